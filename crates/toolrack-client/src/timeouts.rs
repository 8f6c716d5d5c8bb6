//! What can be set about a connection: how long to wait, and how much to take.

use std::time::Duration;

use tokio::time::Instant;
use toolrack_transport::after;

/// Seconds that a call waits for its answer unless told otherwise.
pub const MCP_REQUEST_TIMEOUT_SECS: u64 = 120;

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// One request without a sign of work from the server. Progress starts it again.
    pub call: Duration,
    /// One request in all, whatever progress the server shows.
    pub call_total: Duration,
    /// The whole of a connection: start, handshake and first list of tools.
    pub startup: Duration,
    /// The same for a program that may have to fetch the server first, such as `npx`, if `startup` is not
    /// shorter than usual.
    pub install: Duration,
    /// The answer to the question which era the server belongs to.
    pub probe: Duration,
    /// One answer of the user or the model to a question of the server.
    pub server_request: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            call: Duration::from_secs(MCP_REQUEST_TIMEOUT_SECS),
            call_total: Duration::from_mins(10),
            startup: Self::STARTUP,
            install: Duration::from_mins(2),
            probe: Duration::from_secs(2),
            server_request: Duration::from_mins(5),
        }
    }
}

impl Timeouts {
    const STARTUP: Duration = Duration::from_secs(30);

    /// How long a start may take, behind `launcher` if there is one. Whoever asks for less time than usual gets
    /// just that.
    pub fn startup_for(&self, launcher: Option<&str>) -> Duration {
        match launcher {
            Some(_) if self.startup >= Self::STARTUP => self.startup.max(self.install),
            _ => self.startup,
        }
    }
}

/// The moment that lies `wait` ahead.
pub(crate) fn deadline_after(wait: Duration) -> Instant {
    after(Instant::now(), wait)
}

/// How much is taken from a server before it is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Pages of one list. What comes after them is not fetched.
    pub pages: usize,
    /// Entries of one list. What comes after them is left out.
    pub entries: usize,
    /// How often one call may be answered with a question.
    pub input_rounds: u32,
    /// Requests of the server that are open at once; one more is told that we are busy.
    pub server_requests: usize,
    /// Those among them that wait for the user or the model.
    pub user_requests: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            pages: 1_000,
            entries: 10_000,
            input_rounds: 10,
            server_requests: 32,
            user_requests: 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waiting_forever_is_allowed() {
        assert!(deadline_after(Duration::MAX) > deadline_after(Duration::from_hours(24)));
        assert_eq!(deadline_after(Duration::ZERO), Instant::now());
    }

    #[track_caller]
    fn check(startup: u64, launcher: Option<&str>, expected: u64) {
        let timeouts = Timeouts { startup: Duration::from_secs(startup), ..Timeouts::default() };
        assert_eq!(timeouts.startup_for(launcher).as_secs(), expected);
    }

    #[test]
    fn whoever_fetches_first_gets_more_time_unless_less_was_asked_for() {
        check(30, None, 30);
        check(30, Some("npx"), 120);
        check(29, Some("npx"), 29);
        check(300, Some("npx"), 300);
    }
}
