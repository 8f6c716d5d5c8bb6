//! Test processes: markers that find every descendant, facts about processes, and a guard that kills a child.
//!
//! **Invariant:** a marker is unique, so every process found with it belongs to the test that created it.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::harness::{ProcessEntry, ProcessHandle, ProcessTable, memory_kib, now, pids};
use crate::wait::poll;

/// Time limit for a process to die of `SIGKILL`.
const KILL_LIMIT: Duration = Duration::from_secs(2);

/// Time in which the threads of an exiting process end.
const EXIT_TIME: Duration = Duration::from_secs(1);

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
    /// State letter of `/proc/PID/stat`. `Z` is a process whose main thread has ended: one that has exited has no
    /// environment.
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
        let mut found = self.scan();
        // Until its last thread has ended, an exiting process looks like one that goes on without its main thread.
        poll(EXIT_TIME, || {
            let is_exiting = found.iter().any(|process| process.state == 'Z');
            if is_exiting {
                found = self.scan();
            }
            !is_exiting
        });
        found
    }

    fn scan(&self) -> Vec<Process> {
        let assignment = format!("{}={}", Self::VARIABLE, self.value);
        let carries = |pid: u32, file: &str, text: &str| {
            read_of_process(pid, file).split(|byte| *byte == 0).any(|part| part == text.as_bytes())
        };
        pids()
            .filter(|pid| *pid != std::process::id())
            .filter(|pid| {
                carries(*pid, "environ", &assignment) || carries(*pid, "cmdline", &self.value)
            })
            .filter_map(describe)
            .collect()
    }

    /// Kills every process that carries the marker, and returns them.
    pub fn kill_survivors(&self) -> Vec<Process> {
        let deadline = now() + KILL_LIMIT;
        let mut killed: Vec<Process> = Vec::new();
        loop {
            let found = self.survivors();
            let handles: Vec<ProcessHandle> =
                found.iter().filter_map(|process| ProcessHandle::open(process.pid)).collect();
            // Found again with the handle open, it is certainly the process of the handle.
            let left = self.survivors();
            for handle in &handles {
                if left.iter().any(|process| process.pid == handle.pid) {
                    handle.kill();
                    handle.wait_exit(deadline.saturating_duration_since(now()));
                }
            }
            if left.is_empty() || now() > deadline {
                return killed;
            }
            killed.extend(left);
        }
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

/// A file of a process; empty if it has exited. A process whose main thread has ended has it at its other threads only.
fn read_of_process(pid: u32, file: &str) -> Vec<u8> {
    let own = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    if !own.is_empty() {
        return own;
    }
    let mut threads =
        std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_thread =
        |path: &Path| std::fs::read(path.join(file)).ok().filter(|text| !text.is_empty());
    threads.find_map(|thread| of_thread(&thread.path())).unwrap_or_default()
}

/// An id that is unique across processes and restarts.
pub(crate) fn unique_id() -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let made = MADE.fetch_add(1, Ordering::Relaxed);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{}-{made}-{since:x}", std::process::id())
}

fn describe(pid: u32) -> Option<Process> {
    let entry = ProcessEntry::read(pid)?;
    let command_line = entry.arguments().join(" ").trim_end().to_owned();
    Some(Process { pid, command_line, state: entry.state })
}

/// Number of open file descriptors of a process.
pub fn open_fds(pid: u32) -> io::Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// Resident memory of a process, including shared pages.
pub fn rss_bytes(pid: u32) -> io::Result<u64> {
    Ok(memory_kib(pid, "status", "VmRSS")? * 1024)
}

/// Children of `pid`, including zombies.
pub fn children_of(pid: u32) -> Vec<u32> {
    ProcessTable::read().children(pid).iter().map(|child| child.pid).collect()
}

/// Exited children of a process that are not reaped.
pub fn zombies_of(pid: u32) -> Vec<u32> {
    let children = ProcessTable::read().children(pid).into_iter();
    children.filter(ProcessEntry::is_zombie).map(|child| child.pid).collect()
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
    fn unused_marker_kills_nothing() {
        assert_eq!(Marker::new().kill_survivors(), Vec::new());
    }

    #[test]
    fn own_process_can_be_measured() {
        let own = std::process::id();
        assert!(open_fds(own).expect("own descriptors") >= 3);
        assert!(rss_bytes(own).expect("own memory") > 1 << 20);
        assert_eq!(zombies_of(own), Vec::<u32>::new());
    }
}
