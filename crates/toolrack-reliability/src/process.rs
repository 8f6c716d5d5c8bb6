//! Starting this program again and listening to it, and ending processes without ever hitting somebody else's.
//!
//! **Invariant:** a signal goes through a handle that was opened while the process was known to be the
//! right one, so an id that is used again is never hit.

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use toolrack_testkit::{Marker, Process};

use crate::timing::now;

/// How long a process may take to die of `SIGKILL`.
const KILL_LIMIT: Duration = Duration::from_secs(2);

/// How often a process is looked at that is waited for.
const POLL: Duration = Duration::from_millis(20);

/// How long the rest of what a process printed may take to come after its end.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(2);

/// What a process printed, and how it ended.
#[derive(Debug)]
pub(crate) struct ProcessOutput {
    pub(crate) stdout: String,
    pub(crate) exit_status: String,
}

/// A process that can be signaled and watched.
#[derive(Debug)]
pub(crate) struct ProcessHandle {
    pub(crate) pid: u32,
    descriptor: OwnedFd,
}

impl ProcessHandle {
    /// A handle on whoever has this id now. Nothing if nobody has.
    pub(crate) fn open(pid: u32) -> Option<Self> {
        let raw = Pid::from_raw(i32::try_from(pid).ok()?)?;
        let descriptor = pidfd_open(raw, PidfdFlags::empty()).ok()?;
        Some(Self { pid, descriptor })
    }

    /// Sends a signal. One who is gone needs none.
    pub(crate) fn signal(&self, signal: Signal) {
        pidfd_send_signal(&self.descriptor, signal).unwrap_or_default();
    }

    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Waits for the end of the process. Returns `false` if it did not come in time.
    pub(crate) fn wait_exit(&self, limit: Duration) -> bool {
        let mut source = [PollFd::new(&self.descriptor, PollFlags::IN)];
        let limit = Timespec::try_from(limit).ok();
        matches!(poll(&mut source, limit.as_ref()), Ok(1..))
    }
}

/// This very program, to be started in another role.
pub(crate) fn own_program() -> io::Result<Command> {
    Ok(program(std::env::current_exe()?))
}

/// A program, to be started.
pub(crate) fn program(path: PathBuf) -> Command {
    #[expect(clippy::disallowed_methods, reason = "a gate kills programs, and starts them for it")]
    Command::new(path)
}

/// Runs a process to its end, or kills it when the time is over.
pub(crate) fn run_to_exit(command: &mut Command, limit: Duration) -> io::Result<ProcessOutput> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let pipe = child.stdout.take();
    // The channel holds the one message there is, so the thread never waits.
    let (sender, stdout) = sync_channel(1);
    thread::spawn(move || {
        let mut text = String::new();
        // What does not come as text is worth as much as nothing, and so is a late listener.
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

/// The scripted server, which is built beside this program.
pub(crate) fn scripted_server() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("scripted-server");
    if path.is_file() {
        return Ok(path);
    }
    let message = format!("{} is not built; run `cargo xtask reliability`", path.display());
    Err(io::Error::new(io::ErrorKind::NotFound, message))
}

/// Ends everybody who carries the marker, and says who it was.
pub(crate) fn kill_marked(marker: &Marker) -> Vec<Process> {
    let deadline = now() + KILL_LIMIT;
    let mut ended: Vec<Process> = Vec::new();
    loop {
        let handles: Vec<ProcessHandle> = marker
            .survivors()
            .iter()
            .filter_map(|survivor| ProcessHandle::open(survivor.pid))
            .collect();
        // Seen again with a handle open, it is certainly the one the handle is for.
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

/// Everything has to be gone by then.
pub(crate) const CLEANUP_LIMIT: Duration = Duration::from_secs(1);

/// How often the processes are counted.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A process that is just becoming another program can be overlooked, so an empty count is repeated.
const RECHECK_DELAY: Duration = Duration::from_millis(20);

/// How long it took until nobody was left, or how many are left when the time is over.
pub(crate) fn wait_gone(killed: Instant, n_left: &dyn Fn() -> usize) -> Result<Duration, usize> {
    loop {
        let looked = now();
        let left = n_left();
        if left == 0 {
            thread::sleep(RECHECK_DELAY);
            if n_left() == 0 {
                return Ok(looked.saturating_duration_since(killed));
            }
        } else if killed.elapsed() > CLEANUP_LIMIT {
            return Err(left);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// How long it took until nobody carried the marker. Whoever still does when the time is over is ended, and told.
pub(crate) fn wait_cleaned(marker: &Marker, killed: Instant) -> Result<Duration, Vec<Process>> {
    wait_gone(killed, &|| marker.survivors().len()).map_err(|_n_left| kill_marked(marker))
}

/// Who was left, for people.
pub(crate) fn describe_leftovers(left: &[Process]) -> String {
    let lines: Vec<String> = left
        .iter()
        .map(|left| format!("{} {} {}", left.pid, left.state, left.command_line))
        .collect();
    format!("left after {CLEANUP_LIMIT:?}: {}", lines.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_runs_has_a_handle_and_does_not_end() {
        let own = ProcessHandle::open(std::process::id()).unwrap();
        assert!(!own.wait_exit(Duration::ZERO));
    }

    #[test]
    fn nobody_is_ended_for_a_marker_that_nobody_carries() {
        assert_eq!(kill_marked(&Marker::new()), Vec::new());
    }
}
