//! Marks every process that a test starts, however far it strays, and finds those that are still there.
//!
//! **Invariant:** a marker is unique, so what it finds belongs to the test that made it and to nobody else.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::process_info;
use crate::wait::poll;

/// A value for the environment of a test's processes. Children inherit it, and daemons that left their session too.
///
/// Where the environment is filtered, the value may be an argument instead (`scripted-server --marker VALUE`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    value: String,
}

/// A process that carries a marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its process id.
    pub pid: u32,
    /// Its arguments, joined by spaces.
    pub command_line: String,
    /// The letter of its state in `/proc/PID/stat`; `Z` is never seen, since a zombie has no environment left.
    pub state: char,
}

impl Marker {
    /// The environment variable that carries the value.
    pub const VARIABLE: &str = "TOOLRACK_TEST_RUN";

    /// A marker that no other test has.
    #[expect(
        clippy::new_without_default,
        reason = "two markers are never equal, so none is a default"
    )]
    pub fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        Self { value: format!("run-{}-{made}-{since:x}", std::process::id()) }
    }

    /// The value to give to the variable, or as an argument.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Name and value, for `Command::env` and its like.
    pub fn pair(&self) -> (&'static str, &str) {
        (Self::VARIABLE, &self.value)
    }

    /// The living processes that carry the marker. Those of other users cannot be seen.
    pub fn survivors(&self) -> Vec<Process> {
        let assignment = format!("{}={}", Self::VARIABLE, self.value);
        let carries = |pid: u32, file: &str, text: &str| {
            std::fs::read(process_info::of(pid).join(file)).is_ok_and(|bytes| {
                bytes.split(|byte| *byte == 0).any(|part| part == text.as_bytes())
            })
        };
        process_info::all_pids()
            .into_iter()
            .filter(|pid| *pid != std::process::id())
            .filter(|pid| {
                carries(*pid, "environ", &assignment) || carries(*pid, "cmdline", &self.value)
            })
            .filter_map(describe)
            .collect()
    }

    /// Waits until no process carries the marker.
    ///
    /// # Panics
    ///
    /// When some are left after `within`; the text lists them.
    pub fn assert_nobody_left(&self, within: Duration) {
        let mut left = Vec::new();
        let gone = poll(within, || {
            left = self.survivors();
            left.is_empty()
        });
        assert!(gone, "{} processes are left after {within:?}: {left:#?}", left.len());
    }
}

fn describe(pid: u32) -> Option<Process> {
    let state = process_info::status(pid)?.state;
    let arguments = std::fs::read(process_info::of(pid).join("cmdline")).ok()?;
    let words: Vec<_> = arguments
        .split(|argument| *argument == 0)
        .map(|part| String::from_utf8_lossy(part).into_owned())
        .collect();
    Some(Process { pid, command_line: words.join(" ").trim_end().to_owned(), state })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_differ_and_find_nobody_at_first() {
        let (one, two) = (Marker::new(), Marker::new());
        assert_ne!(one, two);
        assert_eq!(one.survivors(), Vec::new());
        one.assert_nobody_left(Duration::ZERO);
    }
}
