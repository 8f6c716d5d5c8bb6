//! Retry policy for tool calls: send, wait for the server, retry or reject.
//!
//! A pure function: the caller reads the server's lifecycle, asks [`decide`], acts, and repeats until the call is sent
//! or rejected.
//!
//! **Invariant:** every wait ends. Its deadline depends only on when the call started.

use std::time::Duration;

use tokio::time::Instant;
use toolrack_transport::{Delivery, deadline_after};

use crate::lifecycle::{ConnectionState, Epoch, Lifecycle};

/// How often one call is sent at most. Bounds the restarts that a repeatable call causes if the server crashes on it.
const MAX_ATTEMPTS: u32 = 3;

/// Deadlines of a call that waits for its server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitDeadlines {
    /// When the call started to wait.
    pub(crate) started: Instant,
    /// For a server that is starting.
    start: Instant,
    /// For a server that failed and is retried.
    retry: Instant,
}

/// What to do with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Send it.
    Send,
    /// Decide again when the server's state changes, or at this time.
    Wait(Instant),
    /// Ask the supervisor to start the server, then wait.
    StartAndWait(Instant),
    /// Fail it: waiting does not help.
    Reject,
}

impl WaitDeadlines {
    /// Deadlines of a call that starts to wait now.
    pub(crate) fn new(now: Instant, startup: Duration, retry: Duration) -> Self {
        let (start, retry) = (deadline_after(now, startup), deadline_after(now, retry));
        Self { started: now, start, retry }
    }
}

/// Decides about a call. `avoid` is the launch on which the call failed before.
pub(crate) fn decide(
    lifecycle: &Lifecycle,
    avoid: Option<Epoch>,
    deadlines: &WaitDeadlines,
    now: Instant,
) -> Decision {
    let until =
        |deadline: Instant, wait: Decision| if now < deadline { wait } else { Decision::Reject };
    match lifecycle.state() {
        // First the intent of the user, then the state: a stopped server whose launch is still ending takes no calls.
        _ if !lifecycle.is_wanted() => Decision::Reject,
        // The call has seen this launch fail before the supervisor has: wait until the snapshot catches up, or the
        // call would spin on the dead connection.
        ConnectionState::Connected if avoid == lifecycle.launch() => {
            until(deadlines.retry, Decision::Wait(deadlines.retry))
        }
        // No deadline: the wait is over, and the call has a timeout of its own.
        ConnectionState::Connected => Decision::Send,
        ConnectionState::Disconnected => {
            until(deadlines.start, Decision::StartAndWait(deadlines.start))
        }
        ConnectionState::Connecting => until(deadlines.start, Decision::Wait(deadlines.start)),
        // A backoff that outlasts the call's deadline is not worth waiting for.
        _ if lifecycle.retry_at().is_some_and(|at| at <= deadlines.retry) => {
            until(deadlines.retry, Decision::StartAndWait(deadlines.retry))
        }
        _ => Decision::Reject,
    }
}

/// Whether a call that failed with its connection is sent again, after `n_attempts` attempts. `is_repeatable` says
/// whether the config allows it to run twice.
pub(crate) fn should_retry(
    delivery: Delivery,
    is_repeatable: impl FnOnce() -> bool,
    n_attempts: u32,
) -> bool {
    let is_safe = match delivery {
        Delivery::NotSent => true,
        // The server may have run the tool, so only the config can say that a second run does no harm.
        Delivery::Unknown => is_repeatable(),
        // An answer is an outcome, even if it is an error.
        Delivery::Answered => false,
    };
    is_safe && n_attempts < MAX_ATTEMPTS
}

#[cfg(test)]
mod tests {
    use toolrack_config::StartMode;

    use super::*;
    use crate::error::{ErrorKind, Failure};
    use crate::lifecycle::{Event, Policy};

    /// An eager server after these events, which happen at `now`.
    fn after(now: Instant, events: &[Event]) -> Lifecycle {
        let mut lifecycle = Lifecycle::new(Policy { enabled: true, start: StartMode::Eager });
        for event in events {
            lifecycle.step(event.clone(), now, 1.0);
        }
        lifecycle
    }

    #[test]
    fn decision_follows_availability() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let deadlines = WaitDeadlines::new(start, Duration::from_secs(30), Duration::from_secs(5));
        let check = |lifecycle: &Lifecycle, avoid: Option<u64>, now: u64, expected: Decision| {
            let decision = decide(lifecycle, avoid.map(Epoch), &deadlines, at(now));
            assert_eq!(decision, expected, "{lifecycle:?} {avoid:?} at {now} s");
        };
        let ready = after(start, &[Event::Start, Event::Opened(Epoch(1))]);
        check(&ready, None, 0, Decision::Send);
        check(&ready, None, 100, Decision::Send);
        check(&ready, Some(0), 0, Decision::Send);
        check(&ready, Some(1), 0, Decision::Wait(at(5)));
        check(&ready, Some(1), 5, Decision::Reject);
        let idle = [Event::Start, Event::Opened(Epoch(1)), Event::Idle(Epoch(1))];
        let idle = after(start, &idle);
        check(&idle, None, 0, Decision::StartAndWait(at(30)));
        check(&idle, None, 30, Decision::Reject);
        let starting = after(start, &[Event::Start]);
        check(&starting, None, 29, Decision::Wait(at(30)));
        check(&starting, None, 30, Decision::Reject);
        // The first backoff takes a quarter of a second.
        let failed = |retry_at: Instant, kind| {
            let failure = Failure::new(kind, "broken");
            let events = [Event::Start, Event::OpenFailed(Epoch(1), failure)];
            after(retry_at - Duration::from_millis(250), &events)
        };
        let lost = |retry_at: Instant| {
            let failure = Failure::new(ErrorKind::Lost, "broken");
            let events = [Event::Start, Event::Opened(Epoch(1)), Event::Lost(Epoch(1), failure)];
            after(retry_at - Duration::from_millis(250), &events)
        };
        for soon in [failed(at(5), ErrorKind::Exited), lost(at(5))] {
            check(&soon, None, 0, Decision::StartAndWait(at(5)));
            check(&soon, None, 5, Decision::Reject);
        }
        check(&failed(at(6), ErrorKind::Exited), None, 0, Decision::Reject);
        check(&lost(at(6)), None, 0, Decision::Reject);
        check(&failed(at(5), ErrorKind::NeedsLogin), None, 0, Decision::Reject);
        check(&after(start, &[Event::Start, Event::Stop]), None, 0, Decision::Reject);
        let off = Policy { enabled: false, start: StartMode::Eager };
        check(&after(start, &[Event::Start, Event::PolicyChanged(off)]), None, 0, Decision::Reject);
    }

    #[test]
    fn maximum_duration_does_not_overflow() {
        let now = Instant::now();
        let deadlines = WaitDeadlines::new(now, Duration::MAX, Duration::MAX);
        let decide = |lifecycle: &Lifecycle| decide(lifecycle, None, &deadlines, now);
        let starting = after(now, &[Event::Start]);
        assert_eq!(decide(&starting), Decision::Wait(deadlines.start));
        let failure = Failure::new(ErrorKind::Exited, "broken");
        let failed = after(now, &[Event::Start, Event::OpenFailed(Epoch(1), failure)]);
        assert_eq!(decide(&failed), Decision::StartAndWait(deadlines.retry));
    }

    #[test]
    fn only_unsent_or_repeatable_calls_are_retried() {
        let check = |delivery, is_repeatable: bool, n_attempts, expected: &str| {
            let retried = should_retry(delivery, || is_repeatable, n_attempts);
            let outcome = if retried { "retry" } else { "fail" };
            assert_eq!(outcome, expected, "{delivery:?} {is_repeatable} {n_attempts}");
        };
        let (once, repeatable) = (false, true);
        check(Delivery::NotSent, once, 1, "retry");
        check(Delivery::NotSent, once, 2, "retry");
        check(Delivery::NotSent, once, 3, "fail");
        check(Delivery::Unknown, once, 1, "fail");
        check(Delivery::Unknown, repeatable, 1, "retry");
        check(Delivery::Unknown, repeatable, 3, "fail");
        check(Delivery::Answered, repeatable, 1, "fail");
    }
}
