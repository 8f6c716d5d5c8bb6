//! Test processes: markers that find every descendant, `/proc` readers, and a guard that kills a child.
//!
//! **Invariant:** a marker is unique, so every process found with it belongs to the test that created it.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::poll;

/// Unique environment value for the processes of a test. Children inherit it, even daemons in another session.
///
/// Where the environment is filtered, pass the value as an argument instead (`scripted-server --marker VALUE`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    value: String,
}

/// A process that carries a marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Arguments, joined by spaces.
    pub command_line: String,
    /// State letter of `/proc/PID/stat`; never `Z`, since a zombie has no environment.
    pub state: char,
}

impl Marker {
    /// Environment variable for the value.
    pub const VARIABLE: &str = "TOOLRACK_TEST_RUN";

    /// Creates a unique marker.
    #[expect(
        clippy::new_without_default,
        reason = "every marker is unique, so there is no default"
    )]
    pub fn new() -> Self {
        Self { value: format!("run-{}", unique_id()) }
    }

    /// Value of the variable or argument.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Name and value, for `Command::env`.
    pub fn env_var(&self) -> (&'static str, &str) {
        (Self::VARIABLE, &self.value)
    }

    /// Running processes that carry the marker. Processes of other users are invisible.
    pub fn survivors(&self) -> Vec<Process> {
        let assignment = format!("{}={}", Self::VARIABLE, self.value);
        let carries = |pid: u32, file: &str, text: &str| {
            std::fs::read(proc_dir(pid).join(file)).is_ok_and(|bytes| {
                bytes.split(|byte| *byte == 0).any(|part| part == text.as_bytes())
            })
        };
        all_pids()
            .into_iter()
            .filter(|pid| *pid != std::process::id())
            .filter(|pid| {
                carries(*pid, "environ", &assignment) || carries(*pid, "cmdline", &self.value)
            })
            .filter_map(describe)
            .collect()
    }

    /// Kills every process that carries the marker. Some may be left: one may just be forking, and a killed one takes
    /// a moment to exit.
    pub fn kill_survivors(&self) -> Vec<Process> {
        let left = self.survivors();
        for process in &left {
            if let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) {
                // It may have exited by itself.
                kill_process(pid, Signal::KILL).unwrap_or_default();
            }
        }
        left
    }

    /// Waits until no process carries the marker.
    ///
    /// # Panics
    ///
    /// When processes are left after `within`; the message lists them.
    pub fn assert_no_processes_left(&self, within: Duration) {
        let mut left = Vec::new();
        let gone = poll(within, || {
            left = self.survivors();
            left.is_empty()
        });
        assert!(gone, "{} processes are left after {within:?}: {left:#?}", left.len());
    }
}

/// An id that is unique across processes and restarts.
pub(crate) fn unique_id() -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let made = MADE.fetch_add(1, Ordering::Relaxed);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{}-{made}-{since:x}", std::process::id())
}

fn describe(pid: u32) -> Option<Process> {
    let state = status(pid)?.state;
    let arguments = std::fs::read(proc_dir(pid).join("cmdline")).ok()?;
    let words: Vec<_> = arguments
        .split(|argument| *argument == 0)
        .map(|part| String::from_utf8_lossy(part).into_owned())
        .collect();
    Some(Process { pid, command_line: words.join(" ").trim_end().to_owned(), state })
}

/// Number of open file descriptors of a process.
pub fn open_fds(pid: u32) -> io::Result<usize> {
    Ok(std::fs::read_dir(proc_dir(pid).join("fd"))?.count())
}

/// Resident memory of a process, including shared pages.
pub fn rss_bytes(pid: u32) -> io::Result<u64> {
    kib_line(&std::fs::read_to_string(proc_dir(pid).join("status"))?, "VmRSS:")
}

/// Children of `pid`, including zombies.
pub fn children_of(pid: u32) -> Vec<u32> {
    children_with(pid, |_| true)
}

/// Exited children of a process that are not reaped.
pub fn zombies_of(pid: u32) -> Vec<u32> {
    children_with(pid, |status| status.state == 'Z')
}

fn children_with(pid: u32, matches: impl Fn(&Status) -> bool) -> Vec<u32> {
    let is_child = |status: Status| status.parent == pid && matches(&status);
    all_pids().into_iter().filter(|child| status(*child).is_some_and(is_child)).collect()
}

pub(crate) fn all_pids() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) state: char,
    pub(crate) parent: u32,
    /// Zero when the group leader is outside of this PID namespace, as for the session.
    pub(crate) group: u32,
    pub(crate) session: u32,
}

/// Process status from `/proc/PID/stat`; `None` if the process is gone.
pub(crate) fn status(pid: u32) -> Option<Status> {
    parse_stat(&std::fs::read_to_string(proc_dir(pid).join("stat")).ok()?)
}

pub(crate) fn proc_dir(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// A program name may contain spaces and parentheses, so the fields count from the last parenthesis.
fn parse_stat(stat: &str) -> Option<Status> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let mut number = || fields.next()?.parse().ok();
    Some(Status { state, parent: number()?, group: number()?, session: number()? })
}

fn kib_line(text: &str, name: &str) -> io::Result<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = value.and_then(|value| value.trim().strip_suffix(" kB")?.trim().parse().ok());
    kib.map(|kib: u64| kib * 1024).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("no line `{name}` with a size"))
    })
}

/// Command for a program that a test or a test server starts.
#[expect(clippy::disallowed_methods, reason = "tests start real programs")]
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    Command::new(program)
}

/// A child process that is killed on drop.
#[derive(Debug)]
pub struct ChildGuard(Child);

impl ChildGuard {
    /// Guards a child process.
    pub fn new(child: Child) -> Self {
        Self(child)
    }

    /// Waits for the exit; returns the status, stdout and stderr.
    ///
    /// Fails with `TimedOut` when the process does not exit in time.
    pub fn wait_with_output(
        &mut self,
        timeout: Duration,
    ) -> io::Result<(ExitStatus, String, String)> {
        let mut status = None;
        let ended = poll(timeout, || {
            status = self.0.try_wait().ok().flatten();
            status.is_some()
        });
        let status = status.filter(|_| ended).ok_or(io::ErrorKind::TimedOut)?;
        let (mut stdout, mut stderr) = (String::new(), String::new());
        if let Some(output) = &mut self.0.stdout {
            output.read_to_string(&mut stdout)?;
        }
        if let Some(output) = &mut self.0.stderr {
            output.read_to_string(&mut stderr)?;
        }
        Ok((status, stdout, stderr))
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|status| status.is_none()) {
            // It may have exited by itself; either way it is reaped.
            self.0.kill().unwrap_or_default();
            drop(self.0.wait());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_unique_and_find_no_process_at_first() {
        let (one, two) = (Marker::new(), Marker::new());
        assert_ne!(one, two);
        assert_eq!(one.survivors(), Vec::new());
        one.assert_no_processes_left(Duration::ZERO);
    }

    #[test]
    fn stat_is_parsed_with_unusual_program_names() {
        let check = |stat: &str, expected: Option<(char, u32, u32, u32)>| {
            let parsed = parse_stat(stat)
                .map(|status| (status.state, status.parent, status.group, status.session));
            assert_eq!(parsed, expected, "{stat}");
        };
        check("12 (sh) S 1 11 10 0", Some(('S', 1, 11, 10)));
        check("12 (a) R (b)) Z 77 0 0", Some(('Z', 77, 0, 0)));
        check("12", None);
    }

    #[test]
    fn sizes_are_read_in_bytes() {
        let text = "VmPeak:\t  10 kB\nVmRSS:\t   2048 kB\n";
        assert_eq!(kib_line(text, "VmRSS:").ok(), Some(2 << 20));
        assert_eq!(kib_line(text, "VmSwap:").ok(), None);
    }

    #[test]
    fn own_process_can_be_measured() {
        let own = std::process::id();
        assert!(open_fds(own).expect("own descriptors") >= 3);
        assert!(rss_bytes(own).expect("own memory") > 1 << 20);
        assert_eq!(zombies_of(own), Vec::<u32>::new());
    }
}
