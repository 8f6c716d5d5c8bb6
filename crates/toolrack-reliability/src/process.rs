//! Processes of the gates: the scripted server, and cleanup of leftovers.

use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use toolrack_testkit::harness::{ProcessHandle, now};
use toolrack_testkit::{Marker, Process};

/// Time limit for a process to die of `SIGKILL`.
const KILL_LIMIT: Duration = Duration::from_secs(2);

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
    fn unused_marker_kills_nothing() {
        assert_eq!(kill_marked(&Marker::new()), Vec::new());
    }
}
