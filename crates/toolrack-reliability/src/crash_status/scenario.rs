//! The ways in which a server crashes.

use rustix::process::Signal;

/// How a server crashes, and when.
#[derive(Debug, PartialEq)]
pub(super) struct Way {
    pub(super) name: &'static str,
    pub(super) plan: &'static str,
    /// What is sent to the process that answers. Without a signal, its plan makes it end.
    pub(super) signal: Option<Signal>,
    pub(super) load: Load,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// Nobody waits for an answer.
    Idle,
    /// A call is under way.
    Busy,
}

/// The first call asks who is who, so that the second one is the one that is under way.
pub(super) const WAYS: [Way; 8] = [
    // A launcher that exits when the server below it is gone.
    Way { name: "exit_idle", plan: "tree", signal: Some(Signal::KILL), load: Load::Idle },
    Way { name: "exit_busy", plan: "call:2=exit(3)", signal: None, load: Load::Busy },
    Way { name: "kill_idle", plan: "", signal: Some(Signal::KILL), load: Load::Idle },
    Way { name: "kill_busy", plan: "", signal: Some(Signal::KILL), load: Load::Busy },
    Way { name: "segv_idle", plan: "", signal: Some(Signal::SEGV), load: Load::Idle },
    Way { name: "segv_busy", plan: "", signal: Some(Signal::SEGV), load: Load::Busy },
    // What it leaves behind is ended in its own time, and does not hold up the news.
    Way {
        name: "family_idle",
        plan: "start=children(2); escape=1",
        signal: Some(Signal::KILL),
        load: Load::Idle,
    },
    Way {
        name: "family_busy",
        plan: "start=children(2); escape=1",
        signal: Some(Signal::KILL),
        load: Load::Busy,
    },
];
