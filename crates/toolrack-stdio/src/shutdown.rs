//! Shutdown state machine: close stdin, then SIGTERM, then SIGKILL.
//!
//! [`Shutdown::step`] decides; the guardian or the supervisor of a process group acts. This module uses neither a clock
//! nor a process.
//!
//! **Invariant:** every path leads to `Kill`, and `Kill` is repeated until no process is left.

use std::time::Duration;

use rustix::process::Signal;

use crate::options::ShutdownTimeouts;

/// How often the remaining processes are killed again: a process may fork while it is being killed.
const KILL_INTERVAL: Duration = Duration::from_millis(10);

/// The time between SIGTERM and SIGKILL for processes that a server leaves behind when it exits by itself.
const ORPHAN_TIMEOUT: Duration = Duration::from_millis(200);

/// The shutdown of one server.
#[derive(Debug)]
pub(crate) struct Shutdown {
    state: ShutdownState,
    timeouts: ShutdownTimeouts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ShutdownState {
    Running,
    StdinClosed,
    Terminating,
    Killing,
}

/// An input of the state machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The owner requests a graceful stop. The server's stdin is closed already.
    Stop(ShutdownTimeouts),
    /// The owner is gone, and the server's stdin with it.
    Abandoned,
    /// The server exited; processes that it started may be left.
    ServerExited,
    /// The timer of the last action expired.
    TimerExpired,
}

/// An output of the state machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Action {
    /// The signal to send to all processes.
    pub(crate) signal: Option<Signal>,
    /// The timer to set afterwards.
    pub(crate) wait: Duration,
}

impl Shutdown {
    /// The state of a running server.
    pub(crate) fn new() -> Self {
        Self { state: ShutdownState::Running, timeouts: ShutdownTimeouts::ABANDONED }
    }

    /// The next action. `None`: do nothing, and a running timer keeps running.
    pub(crate) fn step(&mut self, event: Event) -> Option<Action> {
        let (state, signal, wait) = match (event, self.state) {
            (Event::Stop(timeouts), ShutdownState::Running) => {
                self.timeouts = timeouts;
                (ShutdownState::StdinClosed, None, timeouts.close_stdin)
            }
            // The owner that wanted to wait is gone, so its timeouts no longer apply.
            (Event::Abandoned, ShutdownState::Running | ShutdownState::StdinClosed) => {
                self.timeouts = ShutdownTimeouts::ABANDONED;
                (ShutdownState::StdinClosed, None, self.timeouts.close_stdin)
            }
            (Event::Abandoned, ShutdownState::Terminating) => {
                self.timeouts = ShutdownTimeouts::ABANDONED;
                (ShutdownState::Terminating, None, self.timeouts.terminate)
            }
            (Event::ServerExited, ShutdownState::Running | ShutdownState::StdinClosed) => {
                (ShutdownState::Terminating, Some(Signal::TERM), ORPHAN_TIMEOUT)
            }
            (Event::TimerExpired, ShutdownState::StdinClosed) => {
                (ShutdownState::Terminating, Some(Signal::TERM), self.timeouts.terminate)
            }
            (Event::TimerExpired, ShutdownState::Terminating | ShutdownState::Killing) => {
                (ShutdownState::Killing, Some(Signal::KILL), KILL_INTERVAL)
            }
            // Everything else crossed a step that is already under way.
            (Event::Stop(_) | Event::Abandoned | Event::ServerExited | Event::TimerExpired, _) => {
                return None;
            }
        };
        self.state = state;
        Some(Action { signal, wait })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOP: Event = Event::Stop(ShutdownTimeouts {
        close_stdin: Duration::from_secs(2),
        terminate: Duration::from_secs(3),
    });

    #[track_caller]
    fn check(events: &[Event], expected: &str) {
        let mut shutdown = Shutdown::new();
        let actions: Vec<String> = events
            .iter()
            .map(|event| match shutdown.step(*event) {
                None => "-".to_owned(),
                Some(Action { signal: None, wait }) => format!("wait {wait:?}"),
                Some(Action { signal: Some(Signal::TERM), wait }) => format!("term {wait:?}"),
                Some(Action { signal: Some(_kill), wait }) => format!("kill {wait:?}"),
            })
            .collect();
        assert_eq!(actions.join(", "), expected, "{events:?}");
    }

    #[test]
    fn cooperative_server_is_never_signaled() {
        check(&[STOP], "wait 2s");
        check(&[Event::Abandoned], "wait 200ms");
    }

    #[test]
    fn unresponsive_server_is_killed() {
        check(
            &[STOP, Event::TimerExpired, Event::TimerExpired, Event::TimerExpired],
            "wait 2s, term 3s, kill 10ms, kill 10ms",
        );
    }

    #[test]
    fn lost_owner_shortens_the_timeouts() {
        check(
            &[Event::Abandoned, Event::TimerExpired, Event::TimerExpired],
            "wait 200ms, term 300ms, kill 10ms",
        );
        check(&[STOP, Event::Abandoned, Event::TimerExpired], "wait 2s, wait 200ms, term 300ms");
        check(
            &[STOP, Event::TimerExpired, Event::Abandoned, Event::TimerExpired],
            "wait 2s, term 3s, wait 300ms, kill 10ms",
        );
    }

    #[test]
    fn processes_left_by_the_server_are_ended() {
        check(&[Event::ServerExited, Event::TimerExpired], "term 200ms, kill 10ms");
        check(
            &[STOP, Event::ServerExited, Event::Abandoned, Event::TimerExpired],
            "wait 2s, term 200ms, wait 300ms, kill 10ms",
        );
    }

    #[test]
    fn repeated_events_have_no_effect() {
        check(&[STOP, STOP], "wait 2s, -");
        check(&[Event::TimerExpired], "-");
    }
}
