//! Server status: `McpStatus` of spec 004 derived from the manager's state, and `StatusDetail` with more.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use toolrack_client::McpClient;
use toolrack_manager::{ConnectPhase, ConnectionState, McpConnection};
use uuid::Uuid;

use crate::error::ErrorDetail;
use crate::service::McpStatus;

/// Status of a server with everything else that is known about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusDetail {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: McpStatus,
    /// What it is doing, in one word such as `installing`, `connected` or `backing-off`.
    pub phase: String,
    /// Why it is not running. The hint says what to do.
    pub problem: Option<ErrorDetail>,
    /// Number of tools that are offered.
    pub n_tools: usize,
    /// Number of tools of the server, if they were ever listed.
    pub n_tools_total: Option<usize>,
    /// Time until the next connection attempt.
    pub retry_in: Option<Duration>,
    /// Whether it crashes again and again.
    pub is_crash_looping: bool,
    /// Number of this launch, counted from one; `None` if nothing is running.
    pub launch: Option<u64>,
    /// The last lines of its stderr, while it runs.
    pub recent_errors: Vec<String>,
    /// Process id of the root of its process tree, if it is a local process.
    pub process: Option<u32>,
}

impl StatusDetail {
    /// Status of a server that the manager does not have yet.
    pub(crate) fn from_state(id: Uuid, name: String, state: &ConnectionState) -> Self {
        Self {
            id,
            name,
            status: status(state, Vec::new),
            phase: state.as_str().to_owned(),
            problem: None,
            n_tools: 0,
            n_tools_total: None,
            retry_in: None,
            is_crash_looping: false,
            launch: None,
            recent_errors: Vec::new(),
            process: None,
        }
    }

    /// Status of a server in the manager.
    pub(crate) fn from_connection(id: Uuid, connection: &McpConnection, now: Instant) -> Self {
        let state = connection.state();
        let phase = connection.phase().map_or(state.as_str(), ConnectPhase::as_str);
        let diagnostics = connection.client().map(McpClient::transport_stats).unwrap_or_default();
        Self {
            status: status(state, || connection.tool_names()),
            phase: phase.to_owned(),
            problem: state.failure().map(ErrorDetail::from_failure),
            n_tools: connection.n_tools(),
            n_tools_total: connection.tool_list().map(|list| list.items.len()),
            retry_in: connection.retry_at().map(|time| time.saturating_duration_since(now)),
            is_crash_looping: connection.is_crash_looping(),
            launch: connection.launch(),
            recent_errors: diagnostics.stderr,
            process: diagnostics.pid,
            ..Self::from_state(id, connection.name().to_owned(), state)
        }
    }
}

/// The status for a connection state; `tools` lists the offered tools of a connected server.
pub(crate) fn status(state: &ConnectionState, tools: impl FnOnce() -> Vec<String>) -> McpStatus {
    if let Some(failure) = state.failure() {
        return McpStatus::Error { message: ErrorDetail::from_failure(failure).message };
    }
    match state {
        ConnectionState::Disabled => McpStatus::Disabled,
        ConnectionState::Connecting => McpStatus::Starting,
        ConnectionState::Connected => McpStatus::Running { tools: tools() },
        _ => McpStatus::Stopped,
    }
}

#[cfg(test)]
mod tests {
    use toolrack_manager::{ErrorKind, Failure};

    use super::*;

    #[track_caller]
    fn check(state: ConnectionState, expected: McpStatus) {
        assert_eq!(status(&state, || vec!["greet".to_owned()]), expected);
    }

    /// Spec 004: five statuses; a crashed server is in error while it waits for its next start.
    #[test]
    fn status_of_every_state() {
        check(ConnectionState::Disabled, McpStatus::Disabled);
        check(ConnectionState::Disconnected, McpStatus::Stopped);
        check(ConnectionState::Connecting, McpStatus::Starting);
        check(ConnectionState::Connected, McpStatus::Running { tools: vec!["greet".to_owned()] });
        let error = |message: &str| McpStatus::Error { message: message.to_owned() };
        let crashed = Failure::new(ErrorKind::Exited, "process exited with code 3");
        let until = Instant::now();
        let failure = crashed.clone();
        check(ConnectionState::BackingOff { until, failure }, error("process exited with code 3"));
        check(ConnectionState::Failed(crashed), error("process exited with code 3"));
        let late = Failure::new(ErrorKind::HandshakeTimedOut, "no answer within 30s");
        check(ConnectionState::Failed(late), error("Handshake timed out"));
        let login = Failure::new(ErrorKind::NeedsLogin, "login needed");
        check(ConnectionState::NeedsAuth(login), error("login needed"));
    }
}
