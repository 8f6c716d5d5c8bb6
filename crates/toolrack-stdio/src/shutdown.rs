//! The shutdown ladder, as data: when to ask, when to insist, when to kill.
//!
//! [`Climb::step`] decides and the guardian obeys. No clock and no process appears in this file.
//!
//! **Invariant:** every path leads to `Kill`, and `Kill` is repeated until nothing is left.

use std::time::Duration;

use crate::options::Ladder;

/// How often everything that is left is killed again.
const KILL_AGAIN: Duration = Duration::from_millis(10);

/// What the server's remains are given once the server itself has gone of its own accord.
const LEFT_BEHIND: Duration = Duration::from_millis(200);

/// Where on the ladder we are.
#[derive(Debug)]
pub(crate) struct Climb {
    rung: Rung,
    ladder: Ladder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rung {
    Running,
    Closed,
    Terminating,
    Killing,
    Gone,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The owner wants the server ended, patiently. Its input has been closed.
    Stop(Ladder),
    /// The owner is gone. With it went the server's input.
    Abandoned,
    /// The server itself has ended; something it started may still be there.
    ServerGone,
    /// Nothing is left of the server and of what it started.
    NothingLeft,
    /// The time that was asked for is over.
    Alarm,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Nothing new; an alarm that was set stays set.
    Nothing,
    /// Wait this long, then raise the alarm.
    Wait(Duration),
    /// Ask everybody to terminate, then as above.
    Terminate(Duration),
    /// Kill everybody, then as above.
    Kill(Duration),
    /// Report and end.
    Finish,
}

impl Climb {
    /// A server that runs.
    pub(crate) fn new() -> Self {
        Self { rung: Rung::Running, ladder: Ladder::ABANDONED }
    }

    pub(crate) fn step(&mut self, event: Event) -> Order {
        match (event, self.rung) {
            (_, Rung::Gone) => Order::Nothing,
            (Event::NothingLeft, _) => {
                self.rung = Rung::Gone;
                Order::Finish
            }
            (Event::Stop(ladder), Rung::Running) => {
                self.ladder = ladder;
                self.rung = Rung::Closed;
                Order::Wait(ladder.close)
            }
            // The owner vanished while it was waiting for us, so its patience is void.
            (Event::Abandoned, Rung::Running | Rung::Closed) => {
                self.ladder = Ladder::ABANDONED;
                self.rung = Rung::Closed;
                Order::Wait(self.ladder.close)
            }
            (Event::Abandoned, Rung::Terminating) => {
                self.ladder = Ladder::ABANDONED;
                Order::Wait(self.ladder.terminate)
            }
            (Event::ServerGone, Rung::Running | Rung::Closed) => {
                self.rung = Rung::Terminating;
                Order::Terminate(LEFT_BEHIND)
            }
            (Event::Alarm, Rung::Closed) => {
                self.rung = Rung::Terminating;
                Order::Terminate(self.ladder.terminate)
            }
            (Event::Alarm, Rung::Terminating | Rung::Killing) => {
                self.rung = Rung::Killing;
                Order::Kill(KILL_AGAIN)
            }
            // The rest crossed what is already under way.
            (Event::Stop(_) | Event::Abandoned | Event::ServerGone | Event::Alarm, _) => {
                Order::Nothing
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOP: Event =
        Event::Stop(Ladder { close: Duration::from_secs(2), terminate: Duration::from_secs(3) });

    #[track_caller]
    fn check(events: &[Event], expected: &str) {
        let mut climb = Climb::new();
        let orders: Vec<String> = events
            .iter()
            .map(|event| match climb.step(*event) {
                Order::Nothing => "-".to_owned(),
                Order::Wait(time) => format!("wait {time:?}"),
                Order::Terminate(time) => format!("term {time:?}"),
                Order::Kill(time) => format!("kill {time:?}"),
                Order::Finish => "finish".to_owned(),
            })
            .collect();
        assert_eq!(orders.join(", "), expected, "{events:?}");
    }

    #[test]
    fn a_polite_server_is_never_signaled() {
        check(&[STOP, Event::NothingLeft], "wait 2s, finish");
        check(&[Event::Abandoned, Event::NothingLeft], "wait 200ms, finish");
    }

    #[test]
    fn a_stubborn_server_is_killed_in_the_end() {
        check(
            &[STOP, Event::Alarm, Event::Alarm, Event::Alarm, Event::NothingLeft],
            "wait 2s, term 3s, kill 10ms, kill 10ms, finish",
        );
    }

    #[test]
    fn nobody_waits_long_for_an_owner_that_is_gone() {
        check(&[Event::Abandoned, Event::Alarm, Event::Alarm], "wait 200ms, term 300ms, kill 10ms");
        check(&[STOP, Event::Abandoned, Event::Alarm], "wait 2s, wait 200ms, term 300ms");
        check(
            &[STOP, Event::Alarm, Event::Abandoned, Event::Alarm],
            "wait 2s, term 3s, wait 300ms, kill 10ms",
        );
    }

    #[test]
    fn what_a_server_leaves_behind_is_ended_too() {
        check(
            &[Event::ServerGone, Event::Alarm, Event::NothingLeft],
            "term 200ms, kill 10ms, finish",
        );
        check(
            &[STOP, Event::ServerGone, Event::Abandoned, Event::Alarm],
            "wait 2s, term 200ms, wait 300ms, kill 10ms",
        );
    }

    #[test]
    fn orders_are_not_taken_twice() {
        check(&[STOP, STOP], "wait 2s, -");
        check(&[Event::Alarm], "-");
        check(&[STOP, Event::NothingLeft, STOP, Event::Alarm], "wait 2s, finish, -, -");
    }
}
