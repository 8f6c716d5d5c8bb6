//! Programs started by these commands, each with a time limit and its output passed on as it comes.
//!
//! **Invariant:** no wait here is without end. A program that outlives its limit is killed with all
//! its descendants, and an orphan that keeps a pipe open delays us by [`LAST_WORDS`] at most.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::printer;

const POLL: Duration = Duration::from_millis(20);

/// How long to listen for what is still in the pipes after the program has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Lines read but not yet passed on. When full, the reader waits, and so does the program.
const LINES_AHEAD: usize = 1024;

/// One program to run: what, where, and for how long at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chore {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(&'static str, &'static str)>,
    dir: PathBuf,
    limit: Duration,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Success,
    /// The exit code, or nothing if a signal ended it.
    Failure(Option<i32>),
    TimedOut(Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Out,
    Err,
}

impl Chore {
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

    /// The command as a person would type it.
    pub(crate) fn line(&self) -> String {
        let mut words: Vec<String> =
            self.env.iter().map(|(name, value)| format!("{name}='{value}'")).collect();
        words.push(self.program.to_string_lossy().into_owned());
        words.extend(self.args.iter().map(|arg| arg.to_string_lossy().into_owned()));
        words.join(" ")
    }

    /// Runs the program, passes each line of its output on, and lets `hear` see it too.
    pub(crate) fn stream(&self, mut hear: impl FnMut(&str)) -> Result<Ending> {
        self.listen(stop_tree, |stream, line| {
            match stream {
                Stream::Out => printer::say(line),
                Stream::Err => printer::complain(line),
            }
            hear(line);
        })
    }

    /// Runs the program and keeps what it printed to stdout; its stderr is dropped.
    pub(crate) fn read(&self) -> Result<(Ending, String)> {
        let mut text = String::new();
        let ending = self.listen(stop_alone, |stream, line| {
            if stream == Stream::Out {
                text.push_str(line);
                text.push('\n');
            }
        })?;
        Ok((ending, text))
    }

    /// Runs the program on our own terminal.
    pub(crate) fn attached(&self) -> Result<Ending> {
        let mut child = self.start(Stdio::inherit, Stdio::inherit())?;
        let deadline = now() + self.limit;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Ending::from(status));
            }
            if now() >= deadline {
                stop_tree(&mut child);
                return Ok(Ending::TimedOut(self.limit));
            }
            thread::sleep(POLL);
        }
    }

    fn listen(&self, stop: fn(&mut Child), mut hear: impl FnMut(Stream, &str)) -> Result<Ending> {
        let mut child = self.start(Stdio::piped, Stdio::null())?;
        let (sender, lines) = sync_channel(LINES_AHEAD);
        if let Some(pipe) = child.stdout.take() {
            read_lines(pipe, Stream::Out, sender.clone());
        }
        if let Some(pipe) = child.stderr.take() {
            read_lines(pipe, Stream::Err, sender.clone());
        }
        drop(sender);

        let deadline = now() + self.limit;
        let ending = loop {
            match lines.recv_timeout(POLL) {
                Ok((stream, line)) => hear(stream, &line),
                Err(RecvTimeoutError::Timeout) => {}
                // Both pipes are closed, which does not mean that the program has ended.
                Err(RecvTimeoutError::Disconnected) => thread::sleep(POLL),
            }
            if let Some(status) = child.try_wait()? {
                break Ending::from(status);
            }
            if now() >= deadline {
                stop(&mut child);
                break Ending::TimedOut(self.limit);
            }
        };
        drain(&lines, hear);
        Ok(ending)
    }

    #[expect(clippy::disallowed_methods, reason = "xtask runs cargo, npm and python by design")]
    fn start(&self, output: fn() -> Stdio, input: Stdio) -> Result<Child> {
        let mut command = Command::new(&self.program);
        command.args(&self.args).current_dir(&self.dir).envs(self.env.iter().copied());
        command.stdin(input).stdout(output()).stderr(output());
        command.spawn().with_context(|| format!("cannot start `{}`", self.line()))
    }
}

impl From<ExitStatus> for Ending {
    fn from(status: ExitStatus) -> Self {
        if status.success() { Ending::Success } else { Ending::Failure(status.code()) }
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ending::Success => write!(f, "ok"),
            Ending::Failure(Some(code)) => write!(f, "exit code {code}"),
            Ending::Failure(None) => write!(f, "ended by a signal"),
            Ending::TimedOut(limit) => write!(f, "killed after {} s", limit.as_secs()),
        }
    }
}

/// The clock of the real world.
#[expect(clippy::disallowed_methods, reason = "no tokio here, and real programs take real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Whether a program of this name can be started from the command line.
pub(crate) fn is_installed(program: &str, dir: &Path) -> bool {
    let chore = Chore::new("sh", dir, Duration::from_secs(10));
    let found = chore.args(["-c", "command -v \"$1\"", "sh", program]).read();
    matches!(found, Ok((Ending::Success, _)))
}

fn read_lines(
    pipe: impl Read + Send + 'static,
    stream: Stream,
    lines: SyncSender<(Stream, String)>,
) {
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        // A read error means the same as the end: there is nothing more to hear.
        while pipe.read_until(b'\n', &mut line).is_ok_and(|n_bytes| n_bytes > 0) {
            let text = String::from_utf8_lossy(&line);
            if lines.send((stream, text.trim_end_matches('\n').to_owned())).is_err() {
                return;
            }
            line.clear();
        }
    });
}

fn drain(lines: &Receiver<(Stream, String)>, mut hear: impl FnMut(Stream, &str)) {
    let deadline = now() + LAST_WORDS;
    while let Ok((stream, line)) = lines.recv_timeout(deadline.saturating_duration_since(now())) {
        hear(stream, &line);
    }
}

/// Kills the program and everything below it: the tests that `cargo test` runs, and their servers.
fn stop_tree(child: &mut Child) {
    let here = Path::new(".");
    let limit = Duration::from_secs(10);
    let processes = Chore::new("ps", here, limit).args(["-A", "-o", "pid=,ppid="]).read();
    let (_, processes) = processes.unwrap_or((Ending::Failure(None), String::new()));
    // The root goes first, or it would start the next program in place of a killed one.
    let pids = [child.id()].into_iter().chain(descendants(&processes, child.id()));
    let kill = ["-c", "kill -KILL \"$@\"", "sh"].map(str::to_owned);
    let kill = Chore::new("sh", here, limit).args(kill).args(pids.map(|pid| pid.to_string()));
    if let Err(error) = kill.read() {
        printer::complain(&format!("{error:#}"));
    }
    stop_alone(child);
}

fn stop_alone(child: &mut Child) {
    let stopped = child.kill().and_then(|()| child.wait());
    if let Err(error) = stopped {
        printer::complain(&format!("cannot kill process {}: {error}", child.id()));
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

    fn sh(script: &str, limit: Duration) -> Chore {
        Chore::new("sh", Path::new("."), limit).args(["-c", script])
    }

    #[track_caller]
    fn check(script: &str, expected: (Ending, &str)) {
        let (ending, text) = sh(script, Duration::from_secs(20)).read().unwrap();
        assert_eq!((ending, text.as_str()), expected);
    }

    #[test]
    fn output_and_ending_are_reported() {
        check("echo one; echo two", (Ending::Success, "one\ntwo\n"));
        check("echo said >&2; exit 3", (Ending::Failure(Some(3)), ""));
        check("printf 'no newline'", (Ending::Success, "no newline\n"));
        check("kill -KILL $$", (Ending::Failure(None), ""));
    }

    #[test]
    fn program_that_outlives_its_limit_is_killed_with_its_children() {
        let limit = Duration::from_secs(2);
        let started = now();
        let mut heard = Vec::new();
        let ending = sh("sleep 61 & echo $!; sleep 62", limit)
            .listen(stop_tree, |stream, line| heard.push((stream, line.to_owned())))
            .unwrap();
        assert_eq!(ending, Ending::TimedOut(limit));
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
        let [(Stream::Out, pid)] = heard.as_slice() else { panic!("one line expected: {heard:?}") };
        let (_, state) = sh(&format!("ps -o stat= -p {pid}"), LAST_WORDS).read().unwrap();
        assert!(state.is_empty() || state.starts_with('Z'), "{pid} is {state}");
    }

    #[test]
    fn orphan_that_keeps_the_pipe_does_not_hold_us() {
        let started = now();
        let (ending, pid) = sh("sleep 63 & echo $!", Duration::from_mins(1)).read().unwrap();
        let took = started.elapsed();
        let (killed, _) = sh(&format!("kill -KILL {pid}"), LAST_WORDS).read().unwrap();
        assert_eq!((ending, killed), (Ending::Success, Ending::Success));
        assert!(took < Duration::from_secs(30), "{took:?}");
    }

    #[test]
    fn program_that_does_not_exist_is_an_error_that_names_it() {
        let error = Chore::new("no-such-program", Path::new("."), LAST_WORDS).read().unwrap_err();
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
