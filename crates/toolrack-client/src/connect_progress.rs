//! How far an attempt to connect has come, for whoever shows it.

use std::sync::Arc;

/// What an attempt to connect does at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectStep {
    /// The line is opened: a process is started, or an address is reached.
    Opening,
    /// A revision is agreed on.
    Greeting,
    /// The tools are fetched.
    Listing,
}

/// Whoever wants to know. Called in the middle of connecting, so it must be quick.
pub type StepWatcher = Arc<dyn Fn(ConnectStep) + Send + Sync>;
