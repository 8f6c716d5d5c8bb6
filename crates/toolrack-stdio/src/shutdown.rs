//! Shutdown state machine: close stdin, then SIGTERM, then SIGKILL.
//!
//! [`Shutdown::step`] decides; the guardian or the supervisor of a process group acts. This module uses neither a clock
//! nor a process.
//!
//! **Invariant:** every path leads to `Kill`, and `Kill` is repeated until no process is left.

use std::time::Duration;

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
    Gone,
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
    /// No process is left.
    NothingLeft,
    /// The timer of the last action expired.
    TimerExpired,
}

/// An output of the state machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Do nothing; a running timer keeps running.
    None,
    /// Set the timer.
    Wait(Duration),
    /// Send SIGTERM to all processes, then set the timer.
    Terminate(Duration),
    /// Send SIGKILL to all processes, then set the timer.
    Kill(Duration),
    /// The shutdown is complete.
    Finish,
}

impl Shutdown {
    /// The state of a running server.
    pub(crate) fn new() -> Self {
        Self { state: ShutdownState::Running, timeouts: ShutdownTimeouts::ABANDONED }
    }

    pub(crate) fn step(&mut self, event: Event) -> Action {
        match (event, self.state) {
            (_, ShutdownState::Gone) => Action::None,
            (Event::NothingLeft, _) => {
                self.state = ShutdownState::Gone;
                Action::Finish
            }
            (Event::Stop(timeouts), ShutdownState::Running) => {
                self.timeouts = timeouts;
                self.state = ShutdownState::StdinClosed;
                Action::Wait(timeouts.close_stdin)
            }
            // The owner that wanted to wait is gone, so its timeouts no longer apply.
            (Event::Abandoned, ShutdownState::Running | ShutdownState::StdinClosed) => {
                self.timeouts = ShutdownTimeouts::ABANDONED;
                self.state = ShutdownState::StdinClosed;
                Action::Wait(self.timeouts.close_stdin)
            }
            (Event::Abandoned, ShutdownState::Terminating) => {
                self.timeouts = ShutdownTimeouts::ABANDONED;
                Action::Wait(self.timeouts.terminate)
            }
            (Event::ServerExited, ShutdownState::Running | ShutdownState::StdinClosed) => {
                self.state = ShutdownState::Terminating;
                Action::Terminate(ORPHAN_TIMEOUT)
            }
            (Event::TimerExpired, ShutdownState::StdinClosed) => {
                self.state = ShutdownState::Terminating;
                Action::Terminate(self.timeouts.terminate)
            }
            (Event::TimerExpired, ShutdownState::Terminating | ShutdownState::Killing) => {
                self.state = ShutdownState::Killing;
                Action::Kill(KILL_INTERVAL)
            }
            // Everything else crossed a step that is already under way.
            (Event::Stop(_) | Event::Abandoned | Event::ServerExited | Event::TimerExpired, _) => {
                Action::None
            }
        }
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
                Action::None => "-".to_owned(),
                Action::Wait(time) => format!("wait {time:?}"),
                Action::Terminate(time) => format!("term {time:?}"),
                Action::Kill(time) => format!("kill {time:?}"),
                Action::Finish => "finish".to_owned(),
            })
            .collect();
        assert_eq!(actions.join(", "), expected, "{events:?}");
    }

    #[test]
    fn cooperative_server_is_never_signaled() {
        check(&[STOP, Event::NothingLeft], "wait 2s, finish");
        check(&[Event::Abandoned, Event::NothingLeft], "wait 200ms, finish");
    }

    #[test]
    fn unresponsive_server_is_killed() {
        check(
            &[
                STOP,
                Event::TimerExpired,
                Event::TimerExpired,
                Event::TimerExpired,
                Event::NothingLeft,
            ],
            "wait 2s, term 3s, kill 10ms, kill 10ms, finish",
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
        check(
            &[Event::ServerExited, Event::TimerExpired, Event::NothingLeft],
            "term 200ms, kill 10ms, finish",
        );
        check(
            &[STOP, Event::ServerExited, Event::Abandoned, Event::TimerExpired],
            "wait 2s, term 200ms, wait 300ms, kill 10ms",
        );
    }

    #[test]
    fn repeated_events_have_no_effect() {
        check(&[STOP, STOP], "wait 2s, -");
        check(&[Event::TimerExpired], "-");
        check(&[STOP, Event::NothingLeft, STOP, Event::TimerExpired], "wait 2s, finish, -, -");
    }
}
