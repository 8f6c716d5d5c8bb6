//! What can happen in a server's life, what it can call for, and the phases between.

use tokio::time::Instant;
use toolrack_config::StartMode;

use crate::failure::Failure;

/// The number of a launch. Whatever arrives later names the one it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Epoch(pub(crate) u64);

/// How the server is to be treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) allowed: Allowed,
    pub(crate) start: StartMode,
}

/// Whether the config lets the server run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allowed {
    Yes,
    /// `enabled = false`.
    No,
}

/// What the user wants, as far as the config allows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Running,
    Stopped,
}

/// Whether the tools of the server are known without starting it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tools {
    Known,
    Unknown,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// Everything is to be connected. A lazy server whose tools are known is not started for that.
    Begin(Tools),
    /// The user wants this server now.
    Start,
    /// The user wants this server anew.
    Restart,
    /// The user wants it no more.
    Stop,
    /// A call needs it.
    Demand,
    /// It is to be treated otherwise.
    Adjust(Policy),
    /// It is to be reached in another way.
    Replace(Policy),
    /// Nobody has used it for long.
    Idle(Epoch),
    /// Time has passed.
    Tick,
    /// A launch has led to a connection.
    Opened(Epoch),
    /// A launch has led to nothing.
    OpenFailed(Epoch, Failure),
    /// A connection has ended by itself.
    Lost(Epoch, Failure),
    /// Nothing is left of a launch.
    Gone(Epoch),
}

/// What has to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Begin this launch.
    Launch(Epoch),
    /// End this launch, and say when it is gone.
    End(Epoch),
}

/// Where a server stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Phase {
    Idle,
    Connecting,
    Connected {
        since: Instant,
    },
    NeedsAuth {
        failure: Failure,
    },
    /// It could not be connected.
    Failed {
        failure: Failure,
        until: Instant,
    },
    /// It was connected, and is no more.
    BackingOff {
        failure: Failure,
        until: Instant,
    },
}
