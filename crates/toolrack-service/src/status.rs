//! How a server is, as the contract says it, and what else is known of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use toolrack_client::McpClient;
use toolrack_manager::{ConnectPhase, ConnectionState, McpConnection};
use uuid::Uuid;

use crate::error;
use crate::error::ServiceFault;
use crate::service::McpStatus;

/// What is known of a server beyond its status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusDetail {
    /// Whose.
    pub id: Uuid,
    /// What it is called.
    pub name: String,
    /// How it is.
    pub status: McpStatus,
    /// What it is doing, in one word: `installing`, `handshake`, `connected`, `backing-off` …
    pub phase: String,
    /// Why it does not run, if something went wrong. Its hint says what to do.
    pub problem: Option<ServiceFault>,
    /// How many of its tools are offered.
    pub n_tools: usize,
    /// How many tools it has, if it was ever asked.
    pub n_tools_total: Option<usize>,
    /// How long until it is tried again.
    pub retry_in: Option<Duration>,
    /// Whether it is started again and again.
    pub is_crash_looping: bool,
    /// Which launch this is, counted from one; none if nothing runs.
    pub launch: Option<u64>,
    /// The last lines of its error output, while it runs.
    pub recent_errors: Vec<String>,
    /// The process below which everything of it runs, if it runs on this machine.
    pub process: Option<u32>,
}

impl StatusDetail {
    /// Of a server that nobody has heard of yet.
    pub(crate) fn at_rest(id: Uuid, name: String, state: &ConnectionState) -> Self {
        Self {
            id,
            name,
            status: status(state, Vec::new),
            phase: state.word().to_owned(),
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

    /// Of a server as the manager has it.
    pub(crate) fn of(id: Uuid, connection: &McpConnection, now: Instant) -> Self {
        let state = connection.state();
        let phase = connection.phase().map_or(state.word(), ConnectPhase::word);
        let seen = connection.client().map(McpClient::diagnosis).unwrap_or_default();
        Self {
            status: status(state, || connection.tool_names()),
            phase: phase.to_owned(),
            problem: state.failure().map(error::of_failure),
            n_tools: connection.n_tools(),
            n_tools_total: connection.listing().map(|it| it.items.len()),
            retry_in: connection.retry_at().map(|it| it.saturating_duration_since(now)),
            is_crash_looping: connection.is_crash_looping(),
            launch: connection.launch(),
            recent_errors: seen.stderr,
            process: seen.process,
            ..Self::at_rest(id, connection.name().to_owned(), state)
        }
    }
}

/// The status of a server that stands like this and offers these tools.
pub(crate) fn status(state: &ConnectionState, tools: impl FnOnce() -> Vec<String>) -> McpStatus {
    if let Some(failure) = state.failure() {
        return McpStatus::Error { message: error::of_failure(failure).message };
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
    use toolrack_manager::{Failure, FailureKind};

    use super::*;

    #[track_caller]
    fn check(state: ConnectionState, expected: McpStatus) {
        assert_eq!(status(&state, || vec!["greet".to_owned()]), expected);
    }

    /// Spec 004: five statuses, and a server that crashed is in error while it waits for its next start.
    #[test]
    fn every_state_has_its_status() {
        check(ConnectionState::Disabled, McpStatus::Disabled);
        check(ConnectionState::Disconnected, McpStatus::Stopped);
        check(ConnectionState::Connecting, McpStatus::Starting);
        check(ConnectionState::Connected, McpStatus::Running { tools: vec!["greet".to_owned()] });
        let error = |message: &str| McpStatus::Error { message: message.to_owned() };
        let crashed = Failure::new(FailureKind::Exited, "process exited with code 3");
        let until = Instant::now();
        let failure = crashed.clone();
        check(ConnectionState::BackingOff { until, failure }, error("process exited with code 3"));
        check(ConnectionState::Failed(crashed), error("process exited with code 3"));
        let late = Failure::new(FailureKind::HandshakeTimedOut, "no answer within 30s");
        check(ConnectionState::Failed(late), error("Handshake timed out"));
        let login = Failure::new(FailureKind::NeedsLogin, "login needed");
        check(ConnectionState::NeedsAuth(login), error("login needed"));
    }
}
