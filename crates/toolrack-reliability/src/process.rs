//! Processes of the gates: the scripted server, and the wait for the end of others.

use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use toolrack_testkit::harness::now;

/// Path of the scripted server, built beside this program.
pub(crate) fn scripted_server() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("scripted-server");
    if path.is_file() {
        return Ok(path);
    }
    let message = format!("{} is not built; run `cargo xtask reliability`", path.display());
    Err(io::Error::new(io::ErrorKind::NotFound, message))
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
