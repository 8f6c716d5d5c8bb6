//! Handle of a process that this one did not start, such as the daemon or its servers: identified by pid and start time,
//! signaled through a pidfd.
//!
//! A process lives as long as one of its threads. Its main thread may end before the others; `/proc` then shows the
//! process as a zombie, without memory and environment. Only the pidfd tells the difference.
//!
//! **Invariant:** a signal reaches the process that was opened, never another one with the same pid.

#[cfg(target_os = "linux")]
use std::fs;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;

#[cfg(target_os = "linux")]
use rustix::event::{PollFd, PollFlags, Timespec, poll};
#[cfg(target_os = "linux")]
use rustix::io::Errno;
#[cfg(target_os = "linux")]
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

#[cfg(target_os = "linux")]
use crate::orphan_cleanup::ProcessStat;
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
    pub(crate) pid: u32,
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
        let Some(process) = Self::open_pid(pid)? else { return Ok(None) };
        // After the open: a pid that was reused in between has another start time.
        Ok((start_time(pid) == Some(started)).then_some(process))
    }

    /// Opens the process that has this pid now. What identifies the process has to be read afterwards, and counts only
    /// if the process has not exited until then.
    pub(crate) fn open_pid(pid: u32) -> io::Result<Option<Self>> {
        let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
        match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(process) => Ok(Some(Self { pid, process })),
            Err(Errno::SRCH | Errno::INVAL) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The processes below this one, at any depth. None if it has exited: then its pid may be that of another process.
    ///
    /// Takes one pass over `/proc`, so it belongs on a blocking thread.
    pub fn descendants(&self) -> Vec<Self> {
        let mut pids: Vec<u32> = pids().collect();
        // The newest first: a process that only forks and exits lives for a moment after the folder was listed.
        pids.sort_unstable_by(|pid, other| other.cmp(pid));
        let open_below = |pid: u32| {
            let process = Self::open_pid(pid).ok()??;
            (is_below(pid, self.pid) && !process.has_exited()).then_some(process)
        };
        // The check before the open saves a descriptor for every process of the machine.
        let below = pids.into_iter().filter(|pid| is_below(*pid, self.pid));
        let found: Vec<Self> = below.filter_map(open_below).collect();
        if self.has_exited() { Vec::new() } else { found }
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

    /// Whether the process has ended, with all its threads.
    pub fn has_exited(&self) -> bool {
        let mut fds = [PollFd::new(&self.process, PollFlags::IN)];
        // Readable once the last thread has ended.
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|n_ready| n_ready > 0)
    }

    pub(crate) fn send(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.process, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// All processes.
#[cfg(target_os = "linux")]
pub(crate) fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Whether a process runs below another one.
#[cfg(target_os = "linux")]
fn is_below(pid: u32, root: u32) -> bool {
    /// Parents that a walk visits. A pid that is reused meanwhile could produce a cycle.
    const MAX_DEPTH: usize = 10_000;
    let mut process = pid;
    for _ in 0..MAX_DEPTH {
        match ProcessStat::read(process).map(|stat| stat.parent) {
            Some(parent) if parent == root => return true,
            Some(parent) => process = parent,
            None => return false,
        }
    }
    false
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
    pub fn descendants(&self) -> Vec<Self> {
        Vec::new()
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
    fn descendants_of_a_process_are_opened() {
        let (mut child, started) = sleeper();
        let own = std::process::id();
        let own = ProcessHandle::open(own, process_start_time(own).unwrap()).unwrap().unwrap();
        let found = || own.descendants().iter().any(|process| process.pid == child.id());
        assert!(found());
        let handle = ProcessHandle::open(child.id(), started).unwrap().unwrap();
        handle.kill().unwrap();
        // A zombie until it is waited for.
        while !handle.has_exited() {
            std::thread::yield_now();
        }
        assert!(!found() && handle.descendants().is_empty());
        child.wait().unwrap();
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
