//! Ending what a crash has left behind.
//!
//! If a program and its guardians are killed in the same instant, processes that had left the server's
//! session survive. They still carry their mark, so the next start finds them.
//!
//! **Invariant:** a process is signaled only through a handle opened before its mark was read, so a
//! process id that is used again is never hit.

/// Ends every process whose mark names an owner that no longer lives, and says how many there were.
///
/// Looks only at processes we may look at: ours, or everybody's for root. Costs one pass over `/proc`;
/// where there is none, nothing is found.
pub fn sweep() -> usize {
    #[cfg(target_os = "linux")]
    return linux::end(&crate::process_tag::is_orphaned);
    #[cfg(not(target_os = "linux"))]
    0
}

/// Ends every process of one launch, again and again until there is none, and says how many there
/// were. Used when the launch has lost its guardian.
#[cfg(target_os = "linux")]
pub(crate) fn sweep_launch(mark: &str) -> usize {
    const ROUNDS: usize = 50;
    let mut n_ended = 0;
    for _ in 0..ROUNDS {
        match linux::end(&|found| found == mark) {
            0 => break,
            n => n_ended += n,
        }
    }
    n_ended
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::os::fd::OwnedFd;

    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

    use crate::process_tag;

    pub(super) fn end(is_ours: &dyn Fn(&str) -> bool) -> usize {
        let Ok(entries) = fs::read_dir("/proc") else { return 0 };
        entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(|pid| marked(pid, is_ours))
            .filter(|process| pidfd_send_signal(process, Signal::KILL).is_ok())
            .count()
    }

    /// A handle on the process, if it is marked the right way. A process that is already dead has no
    /// environment and is not counted.
    fn marked(pid: i32, is_ours: &dyn Fn(&str) -> bool) -> Option<OwnedFd> {
        let process = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        environment
            .split(|byte| *byte == 0)
            .filter_map(|variable| std::str::from_utf8(variable).ok()?.split_once('='))
            .any(|(name, value)| name == process_tag::VARIABLE && is_ours(value))
            .then_some(process)
    }
}
