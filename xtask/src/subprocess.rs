//! Child processes with a time limit and streamed output.
//!
//! **Invariant:** every wait ends. A process that exceeds its limit is killed with all its
//! descendants, and an orphan that keeps a pipe open delays the return by [`DRAIN_LIMIT`] at most.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

const POLL: Duration = Duration::from_millis(20);

/// Time to read the rest of the pipes after the process has exited.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// Queued lines. When the queue is full, the reader waits, and so does the process.
const LINE_QUEUE: usize = 1024;

/// A command with its working directory, environment and time limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subprocess {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(&'static str, &'static str)>,
    dir: PathBuf,
    limit: Duration,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitResult {
    Success,
    /// The exit code; `None` if a signal ended it.
    Failure(Option<i32>),
    TimedOut(Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Out,
    Err,
}

impl Subprocess {
    pub(crate) fn new(program: impl Into<OsString>, dir: &Path, limit: Duration) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            dir: dir.to_owned(),
            limit,
        }
    }

    pub(crate) fn args<T: Into<OsString>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    pub(crate) fn env(mut self, name: &'static str, value: &'static str) -> Self {
        self.env.push((name, value));
        self
    }

    /// The command line, for messages.
    pub(crate) fn command_line(&self) -> String {
        let mut words: Vec<String> =
            self.env.iter().map(|(name, value)| format!("{name}='{value}'")).collect();
        words.push(self.program.to_string_lossy().into_owned());
        words.extend(self.args.iter().map(|arg| arg.to_string_lossy().into_owned()));
        words.join(" ")
    }

    /// Runs the command, prints its output and passes each line to `on_line`.
    pub(crate) fn stream(&self, mut on_line: impl FnMut(&str)) -> Result<ExitResult> {
        self.run_piped(stop_tree, |stream, line| {
            match stream {
                Stream::Out => crate::print(line),
                Stream::Err => crate::print_error(line),
            }
            on_line(line);
        })
    }

    /// Runs the command and returns its stdout; stderr is dropped.
    pub(crate) fn read(&self) -> Result<(ExitResult, String)> {
        let mut text = String::new();
        let exit = self.run_piped(stop_alone, |stream, line| {
            if stream == Stream::Out {
                text.push_str(line);
                text.push('\n');
            }
        })?;
        Ok((exit, text))
    }

    /// Runs the command on our own terminal.
    pub(crate) fn attached(&self) -> Result<ExitResult> {
        let child = self.start(Stdio::inherit, Stdio::inherit())?;
        self.wait(child, stop_tree, || thread::sleep(POLL))
    }

    fn run_piped(
        &self,
        stop: fn(&mut Child),
        mut on_line: impl FnMut(Stream, &str),
    ) -> Result<ExitResult> {
        let mut child = self.start(Stdio::piped, Stdio::null())?;
        let (sender, lines) = sync_channel(LINE_QUEUE);
        if let Some(pipe) = child.stdout.take() {
            read_lines(pipe, Stream::Out, sender.clone());
        }
        if let Some(pipe) = child.stderr.take() {
            read_lines(pipe, Stream::Err, sender.clone());
        }
        drop(sender);

        let exit = self.wait(child, stop, || match lines.recv_timeout(POLL) {
            Ok((stream, line)) => on_line(stream, &line),
            Err(RecvTimeoutError::Timeout) => {}
            // Both pipes are closed, but the process may still run.
            Err(RecvTimeoutError::Disconnected) => thread::sleep(POLL),
        })?;
        let deadline = now() + DRAIN_LIMIT;
        while let Ok((stream, line)) = lines.recv_timeout(deadline.saturating_duration_since(now()))
        {
            on_line(stream, &line);
        }
        Ok(exit)
    }

    /// Waits for the exit with `pause` between two checks, and stops the process at its limit.
    fn wait(
        &self,
        mut child: Child,
        stop: fn(&mut Child),
        mut pause: impl FnMut(),
    ) -> Result<ExitResult> {
        let deadline = now() + self.limit;
        loop {
            pause();
            if let Some(status) = child.try_wait()? {
                return Ok(ExitResult::from(status));
            }
            if now() >= deadline {
                stop(&mut child);
                return Ok(ExitResult::TimedOut(self.limit));
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "xtask runs cargo, npm and python by design")]
    fn start(&self, output: fn() -> Stdio, input: Stdio) -> Result<Child> {
        let mut command = Command::new(&self.program);
        command.args(&self.args).current_dir(&self.dir).envs(self.env.iter().copied());
        command.stdin(input).stdout(output()).stderr(output());
        command.spawn().with_context(|| format!("cannot start `{}`", self.command_line()))
    }
}

impl From<ExitStatus> for ExitResult {
    fn from(status: ExitStatus) -> Self {
        if status.success() { ExitResult::Success } else { ExitResult::Failure(status.code()) }
    }
}

impl std::fmt::Display for ExitResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ExitResult::Success => write!(f, "ok"),
            ExitResult::Failure(Some(code)) => write!(f, "exit code {code}"),
            ExitResult::Failure(None) => write!(f, "ended by a signal"),
            ExitResult::TimedOut(limit) => write!(f, "killed after {} s", limit.as_secs()),
        }
    }
}

/// Wall clock.
#[expect(clippy::disallowed_methods, reason = "no tokio here, and real programs take real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Whether the program is on `PATH`.
pub(crate) fn is_installed(program: &str, dir: &Path) -> bool {
    let command = Subprocess::new("sh", dir, Duration::from_secs(10));
    let found = command.args(["-c", "command -v \"$1\"", "sh", program]).read();
    matches!(found, Ok((ExitResult::Success, _)))
}

fn read_lines(
    pipe: impl Read + Send + 'static,
    stream: Stream,
    lines: SyncSender<(Stream, String)>,
) {
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        // A read error is treated as end of file.
        while pipe.read_until(b'\n', &mut line).is_ok_and(|n_bytes| n_bytes > 0) {
            let text = String::from_utf8_lossy(&line);
            if lines.send((stream, text.trim_end_matches('\n').to_owned())).is_err() {
                return;
            }
            line.clear();
        }
    });
}

/// Kills the process and its descendants: the tests that `cargo test` runs, and their servers.
fn stop_tree(child: &mut Child) {
    let here = Path::new(".");
    let limit = Duration::from_secs(10);
    let processes = Subprocess::new("ps", here, limit).args(["-A", "-o", "pid=,ppid="]).read();
    let (_, processes) = processes.unwrap_or((ExitResult::Failure(None), String::new()));
    // The root first: otherwise it could start the next child in place of a killed one.
    let pids = [child.id()].into_iter().chain(descendants(&processes, child.id()));
    let kill = ["-c", "kill -KILL \"$@\"", "sh"].map(str::to_owned);
    let kill = Subprocess::new("sh", here, limit).args(kill).args(pids.map(|pid| pid.to_string()));
    if let Err(error) = kill.read() {
        crate::print_error(&format!("{error:#}"));
    }
    stop_alone(child);
}

fn stop_alone(child: &mut Child) {
    let stopped = child.kill().and_then(|()| child.wait());
    if let Err(error) = stopped {
        crate::print_error(&format!("cannot kill process {}: {error}", child.id()));
    }
}

/// All processes below `root` in a table of `pid ppid` lines.
fn descendants(processes: &str, root: u32) -> Vec<u32> {
    let pairs: Vec<(u32, u32)> = processes
        .lines()
        .filter_map(|line| {
            let (pid, parent) = line.trim().split_once(char::is_whitespace)?;
            Some((pid.parse().ok()?, parent.trim().parse().ok()?))
        })
        .collect();
    let mut found = Vec::new();
    let mut level = vec![root];
    while !level.is_empty() {
        level = pairs
            .iter()
            .filter(|(pid, parent)| level.contains(parent) && !found.contains(pid) && *pid != root)
            .map(|(pid, _)| *pid)
            .collect();
        found.extend(&level);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, limit: Duration) -> Subprocess {
        Subprocess::new("sh", Path::new("."), limit).args(["-c", script])
    }

    #[track_caller]
    fn check(script: &str, expected: (ExitResult, &str)) {
        let (exit, text) = sh(script, Duration::from_secs(20)).read().unwrap();
        assert_eq!((exit, text.as_str()), expected);
    }

    #[test]
    fn output_and_exit_are_reported() {
        check("echo one; echo two", (ExitResult::Success, "one\ntwo\n"));
        check("echo said >&2; exit 3", (ExitResult::Failure(Some(3)), ""));
        check("printf 'no newline'", (ExitResult::Success, "no newline\n"));
        check("kill -KILL $$", (ExitResult::Failure(None), ""));
    }

    #[test]
    fn process_over_its_limit_is_killed_with_its_children() {
        let limit = Duration::from_secs(2);
        let started = now();
        let mut lines = Vec::new();
        let exit = sh("sleep 61 & echo $!; sleep 62", limit)
            .run_piped(stop_tree, |stream, line| lines.push((stream, line.to_owned())))
            .unwrap();
        assert_eq!(exit, ExitResult::TimedOut(limit));
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
        let [(Stream::Out, pid)] = lines.as_slice() else { panic!("one line expected: {lines:?}") };
        let (_, state) = sh(&format!("ps -o stat= -p {pid}"), DRAIN_LIMIT).read().unwrap();
        assert!(state.is_empty() || state.starts_with('Z'), "{pid} is {state}");
    }

    #[test]
    fn orphan_with_an_open_pipe_does_not_block() {
        let started = now();
        let (exit, pid) = sh("sleep 63 & echo $!", Duration::from_mins(1)).read().unwrap();
        let took = started.elapsed();
        let (killed, _) = sh(&format!("kill -KILL {pid}"), DRAIN_LIMIT).read().unwrap();
        assert_eq!((exit, killed), (ExitResult::Success, ExitResult::Success));
        assert!(took < Duration::from_secs(30), "{took:?}");
    }

    #[test]
    fn missing_program_is_named_in_the_error() {
        let error =
            Subprocess::new("no-such-program", Path::new("."), DRAIN_LIMIT).read().unwrap_err();
        assert_eq!(error.to_string(), "cannot start `no-such-program`");
    }

    #[test]
    fn installed_programs_are_found() {
        assert!(is_installed("sh", Path::new(".")));
        assert!(!is_installed("no-such-program", Path::new(".")));
    }

    #[test]
    fn descendants_are_found_at_every_depth() {
        let processes = "1 0\n 10 1\n 11 10\n12   11\n 20 1\n 13 10\njunk\n";
        assert_eq!(descendants(processes, 10), [11, 13, 12]);
        assert_eq!(descendants(processes, 20), Vec::<u32>::new());
    }
}
