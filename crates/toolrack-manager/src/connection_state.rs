//! Where a server stands, as everybody above us sees it.

use std::fmt;

use tokio::time::Instant;
use toolrack_client::ConnectStep;

use crate::failure::Failure;
use crate::lifecycle::Life;
use crate::lifecycle::event::{Allowed, Phase};

/// Where a server stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionState {
    /// The config says `enabled = false`.
    Disabled,
    /// Nothing runs: the user has stopped it, or nobody has needed it yet or for a while.
    Disconnected,
    /// It is being started, or its predecessor is being ended first.
    Connecting,
    /// It takes calls.
    Connected,
    /// Somebody has to log in first. It is not tried again before that.
    NeedsAuth(Failure),
    /// It could not be connected. It is tried again by and by.
    Failed(Failure),
    /// It was connected, and will be again.
    BackingOff {
        /// When it is tried again.
        until: Instant,
        /// Why it is not connected any more.
        failure: Failure,
    },
}

/// What a server that is [`ConnectionState::Connecting`] does at the moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectPhase {
    /// Its package is being installed, on a clock of its own.
    Installing,
    /// Its process is being started, or its address reached.
    #[default]
    Starting,
    /// A revision is being agreed on.
    Handshake,
    /// Its tools are being fetched.
    Listing,
}

impl ConnectPhase {
    pub(crate) fn of(step: ConnectStep) -> Self {
        match step {
            ConnectStep::Greeting => Self::Handshake,
            ConnectStep::Listing => Self::Listing,
            _ => Self::Starting,
        }
    }

    /// One word for lists.
    pub fn word(self) -> &'static str {
        match self {
            Self::Installing => "installing",
            Self::Starting => "starting",
            Self::Handshake => "handshake",
            Self::Listing => "listing",
        }
    }
}

impl ConnectionState {
    pub(crate) fn of(life: &Life) -> Self {
        if life.policy().allowed == Allowed::No {
            return ConnectionState::Disabled;
        }
        match life.phase() {
            Phase::Idle => ConnectionState::Disconnected,
            Phase::Connecting => ConnectionState::Connecting,
            Phase::Connected { .. } => ConnectionState::Connected,
            Phase::NeedsAuth { failure } => ConnectionState::NeedsAuth(failure.clone()),
            Phase::Failed { failure, .. } => ConnectionState::Failed(failure.clone()),
            Phase::BackingOff { failure, until } => {
                ConnectionState::BackingOff { until: *until, failure: failure.clone() }
            }
        }
    }

    /// Why it is not connected, if something went wrong.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            ConnectionState::NeedsAuth(failure)
            | ConnectionState::Failed(failure)
            | ConnectionState::BackingOff { failure, .. } => Some(failure),
            _ => None,
        }
    }

    /// One word for lists.
    pub fn word(&self) -> &'static str {
        match self {
            ConnectionState::Disabled => "disabled",
            ConnectionState::Disconnected => "disconnected",
            ConnectionState::Connecting => "connecting",
            ConnectionState::Connected => "connected",
            ConnectionState::NeedsAuth(_) => "needs-auth",
            ConnectionState::Failed(_) => "failed",
            ConnectionState::BackingOff { .. } => "backing-off",
        }
    }
}

impl fmt::Display for ConnectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        self.failure().map_or(Ok(()), |failure| write!(f, ": {failure}"))
    }
}
