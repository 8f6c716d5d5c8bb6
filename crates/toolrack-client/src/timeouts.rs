//! Timeouts and limits of a connection.

use std::time::Duration;

/// Default idle timeout of a call, in seconds.
pub const MCP_REQUEST_TIMEOUT_SECS: u64 = 120;

/// Timeouts of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Idle timeout of a request. Progress restarts it.
    pub call: Duration,
    /// Total timeout of a request, regardless of progress.
    pub call_total: Duration,
    /// Connecting: start, handshake and first tool list.
    pub startup: Duration,
    /// Replaces `startup` behind a launcher that may have to install the server, such as `npx`, unless `startup`
    /// is below its default.
    pub install: Duration,
    /// Probe for the protocol era.
    pub probe: Duration,
    /// One server request that waits for the user or a model.
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

    /// Startup timeout, behind `launcher` if any. A `startup` below the default always applies as it is: the
    /// caller wants a quick answer.
    pub fn startup_for(&self, launcher: Option<&str>) -> Duration {
        match launcher {
            Some(_) if self.startup >= Self::STARTUP => self.startup.max(self.install),
            _ => self.startup,
        }
    }
}

/// Limits on the data accepted from a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Pages of one list. Further pages are not fetched.
    pub pages: usize,
    /// Entries of one list. Further entries are dropped.
    pub entries: usize,
    /// Bytes of all pages of one list. Further pages are dropped; the first page is always kept.
    pub list_bytes: usize,
    /// Rounds of input requests per call.
    pub input_rounds: u32,
    /// Server requests in flight. Further ones get a "busy" error.
    pub server_requests: usize,
    /// Those among them that wait for the user or a model.
    pub user_requests: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            pages: 1_000,
            entries: 10_000,
            list_bytes: 32 * 1024 * 1024,
            input_rounds: 10,
            server_requests: 32,
            user_requests: 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(startup: u64, launcher: Option<&str>, expected: u64) {
        let timeouts = Timeouts { startup: Duration::from_secs(startup), ..Timeouts::default() };
        assert_eq!(timeouts.startup_for(launcher).as_secs(), expected);
    }

    #[test]
    fn launchers_get_the_install_timeout() {
        check(30, None, 30);
        check(30, Some("npx"), 120);
        check(29, Some("npx"), 29);
        check(300, Some("npx"), 300);
    }
}
