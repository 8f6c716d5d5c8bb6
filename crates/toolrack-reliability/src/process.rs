//! Child processes of the gates: start, output, signals, and cleanup of leftovers.
//!
//! **Invariant:** a signal goes through a pidfd that was opened while the process was known to be the right one, so a
//! reused pid is never hit.

use std::io;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use toolrack_testkit::{Marker, Process};

use crate::timing::now;

/// Time limit for a process to die of `SIGKILL`.
const KILL_LIMIT: Duration = Duration::from_secs(2);

/// Interval between two checks of a child.
const POLL: Duration = Duration::from_millis(20);

/// Time limit for the rest of the output after the exit.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(2);

/// Output and exit status of a process.
#[derive(Debug)]
pub(crate) struct ProcessOutput {
    pub(crate) stdout: String,
    pub(crate) exit_status: String,
}

/// A process that can be signaled and watched (pidfd).
#[derive(Debug)]
pub(crate) struct ProcessHandle {
    pub(crate) pid: u32,
    descriptor: OwnedFd,
}

impl ProcessHandle {
    /// Opens a handle on the process with this pid. `None` if it does not exist.
    pub(crate) fn open(pid: u32) -> Option<Self> {
        let raw = Pid::from_raw(i32::try_from(pid).ok()?)?;
        let descriptor = pidfd_open(raw, PidfdFlags::empty()).ok()?;
        Some(Self { pid, descriptor })
    }

    /// Sends a signal. Does nothing if the process is gone.
    pub(crate) fn signal(&self, signal: Signal) {
        pidfd_send_signal(&self.descriptor, signal).unwrap_or_default();
    }

    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Waits for the exit. Returns `false` on timeout.
    pub(crate) fn wait_exit(&self, limit: Duration) -> bool {
        let mut source = [PollFd::new(&self.descriptor, PollFlags::IN)];
        let limit = Timespec::try_from(limit).ok();
        matches!(poll(&mut source, limit.as_ref()), Ok(1..))
    }
}

/// This program, for another role.
pub(crate) fn own_program() -> io::Result<Command> {
    Ok(program(std::env::current_exe()?))
}

/// Command for a program.
pub(crate) fn program(path: PathBuf) -> Command {
    #[expect(clippy::disallowed_methods, reason = "a gate starts the programs that it kills")]
    Command::new(path)
}

/// Runs a process to its exit, or kills it after the limit.
pub(crate) fn run_to_exit(command: &mut Command, limit: Duration) -> io::Result<ProcessOutput> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let pipe = child.stdout.take();
    // The channel holds the only message, so the thread never blocks.
    let (sender, stdout) = sync_channel(1);
    thread::spawn(move || {
        let mut text = String::new();
        // Ignore output that is not UTF-8, and a receiver that has given up.
        pipe.map(|mut pipe| pipe.read_to_string(&mut text)).transpose().unwrap_or_default();
        sender.send(text).unwrap_or_default();
    });
    let deadline = now() + limit;
    let exit_status = loop {
        if let Some(status) = child.try_wait()? {
            break status.to_string();
        }
        if now() > deadline {
            child.kill()?;
            child.wait()?;
            break format!("did not end in {limit:?} and was killed");
        }
        thread::sleep(POLL);
    };
    let stdout = stdout.recv_timeout(OUTPUT_TIMEOUT).unwrap_or_default();
    Ok(ProcessOutput { stdout, exit_status })
}

/// Path of the scripted server, built beside this program.
pub(crate) fn scripted_server() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("scripted-server");
    if path.is_file() {
        return Ok(path);
    }
    let message = format!("{} is not built; run `cargo xtask reliability`", path.display());
    Err(io::Error::new(io::ErrorKind::NotFound, message))
}

/// Kills every process that carries the marker, and returns them.
pub(crate) fn kill_marked(marker: &Marker) -> Vec<Process> {
    let deadline = now() + KILL_LIMIT;
    let mut ended: Vec<Process> = Vec::new();
    loop {
        let handles: Vec<ProcessHandle> = marker
            .survivors()
            .iter()
            .filter_map(|survivor| ProcessHandle::open(survivor.pid))
            .collect();
        // Found again with the handle open, it is certainly the process of the handle.
        let left = marker.survivors();
        for handle in handles.iter().filter(|handle| left.iter().any(|seen| seen.pid == handle.pid))
        {
            handle.kill();
            handle.wait_exit(deadline.saturating_duration_since(now()));
        }
        if left.is_empty() || now() > deadline {
            return ended;
        }
        ended.extend(left);
    }
}

/// All processes must be gone within this time.
pub(crate) const CLEANUP_LIMIT: Duration = Duration::from_secs(1);

/// Interval between two counts of the processes.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A process can be missed during `exec`, so a count of zero is repeated.
const RECHECK_DELAY: Duration = Duration::from_millis(20);

/// Returns the time until no process was left, or the number of processes left after the limit.
pub(crate) fn wait_gone(killed: Instant, n_left: &dyn Fn() -> usize) -> Result<Duration, usize> {
    loop {
        let checked_at = now();
        let left = n_left();
        if left == 0 {
            thread::sleep(RECHECK_DELAY);
            if n_left() == 0 {
                return Ok(checked_at.saturating_duration_since(killed));
            }
        } else if killed.elapsed() > CLEANUP_LIMIT {
            return Err(left);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the time until no process carried the marker. Kills and returns those left after the limit.
pub(crate) fn wait_cleaned(marker: &Marker, killed: Instant) -> Result<Duration, Vec<Process>> {
    wait_gone(killed, &|| marker.survivors().len()).map_err(|_n_left| kill_marked(marker))
}

/// Formats leftover processes.
pub(crate) fn describe_leftovers(left: &[Process]) -> String {
    let lines: Vec<String> = left
        .iter()
        .map(|process| format!("{} {} {}", process.pid, process.state, process.command_line))
        .collect();
    format!("left after {CLEANUP_LIMIT:?}: {}", lines.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_process_has_a_handle() {
        let own = ProcessHandle::open(std::process::id()).unwrap();
        assert!(!own.wait_exit(Duration::ZERO));
    }

    #[test]
    fn unused_marker_kills_nothing() {
        assert_eq!(kill_marked(&Marker::new()), Vec::new());
    }
}
