//! Handle of a process that this one did not start, such as the daemon or its servers: identified by pid and start time,
//! signaled through a pidfd.
//!
//! **Invariant:** a signal reaches the process that was opened, never another one with the same pid.

use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;

#[cfg(target_os = "linux")]
use rustix::event::{PollFd, PollFlags, Timespec, poll};
#[cfg(target_os = "linux")]
use rustix::io::Errno;
#[cfg(target_os = "linux")]
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::orphan_cleanup::start_time;

/// When a process started, in clock ticks since the boot: with its pid, this identifies it. `None` if there is no such
/// process, only its zombie, or no `/proc`.
pub fn process_start_time(pid: u32) -> Option<u64> {
    start_time(pid)
}

/// A process of this user.
#[derive(Debug)]
pub struct ProcessHandle {
    #[cfg(target_os = "linux")]
    process: OwnedFd,
}

#[cfg(target_os = "linux")]
impl ProcessHandle {
    /// Opens a process, if it is still the one that started then.
    ///
    /// # Errors
    ///
    /// The system has no handles for processes.
    pub fn open(pid: u32, started: u64) -> io::Result<Option<Self>> {
        let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
        let process = match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(Errno::SRCH | Errno::INVAL) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // After the open: a pid that was reused in between has another start time.
        Ok((start_time(pid) == Some(started)).then_some(Self { process }))
    }

    /// Asks the process to end (SIGTERM), also if it is stopped. A process that has ended is not an error.
    ///
    /// # Errors
    ///
    /// The process belongs to another user.
    pub fn terminate(&self) -> io::Result<()> {
        self.send(Signal::TERM)?;
        // A stopped process takes the signal when it continues.
        self.send(Signal::CONT)
    }

    /// Kills the process (SIGKILL).
    ///
    /// # Errors
    ///
    /// The process belongs to another user.
    pub fn kill(&self) -> io::Result<()> {
        self.send(Signal::KILL)
    }

    /// Whether the process has ended.
    pub fn has_exited(&self) -> bool {
        let mut fds = [PollFd::new(&self.process, PollFlags::IN)];
        // Readable once the process has ended.
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|n_ready| n_ready > 0)
    }

    fn send(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.process, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl ProcessHandle {
    /// Not available on this system.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn open(_pid: u32, _started: u64) -> io::Result<Option<Self>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Not available on this system.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn terminate(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Not available on this system.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn kill(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Not available on this system.
    pub fn has_exited(&self) -> bool {
        true
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Child, Command};

    use rustix::process::kill_process;

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a process to signal")]
    fn sleeper() -> (Child, u64) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let started = process_start_time(child.id()).unwrap();
        (child, started)
    }

    #[test]
    fn stopped_process_is_terminated() {
        let (mut child, started) = sleeper();
        kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
        let handle = ProcessHandle::open(child.id(), started).unwrap().unwrap();
        assert!(!handle.has_exited());
        handle.terminate().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
        assert!(handle.has_exited());
        handle.kill().unwrap();
        assert!(ProcessHandle::open(child.id(), started).unwrap().is_none());
    }

    #[test]
    fn reused_pid_is_not_opened() {
        let (mut child, started) = sleeper();
        assert!(ProcessHandle::open(child.id(), started + 1).unwrap().is_none());
        assert!(ProcessHandle::open(u32::MAX, started).unwrap().is_none());
        ProcessHandle::open(child.id(), started).unwrap().unwrap().kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
    }
}
