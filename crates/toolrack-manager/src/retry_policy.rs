//! Retry policy for tool calls: send, wait for the server, retry or reject.
//!
//! A pure function: the caller reads the server's availability, asks [`decide`], acts, and repeats until the call is sent or
//! rejected.
//!
//! **Invariant:** every wait ends. Its deadline depends only on when the call started.

use std::time::Duration;

use tokio::time::Instant;
use toolrack_transport::{Delivery, deadline_after};

use crate::lifecycle::{Enabled, Epoch, Lifecycle, Phase};

/// How often one call is sent at most. Bounds the restarts that a repeatable call causes if the server crashes on it.
const MAX_ATTEMPTS: u32 = 3;

/// Whether a server accepts calls, and if not, what would change that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Availability {
    /// It accepts calls.
    Ready(Epoch),
    /// The next call starts it.
    Idle,
    /// It is starting.
    Starting,
    /// It failed, and is retried at this time.
    RetryAt(Instant),
    /// It requires a login.
    NeedsAuth,
    /// The user stopped it.
    Stopped,
    /// The config disables it.
    Disabled,
}

/// Deadlines of a call that waits for its server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitDeadlines {
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

/// Whether the config says that a call may run twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeatable {
    Yes,
    No,
}

impl Availability {
    pub(crate) fn from_lifecycle(lifecycle: &Lifecycle) -> Self {
        match lifecycle.phase() {
            // First the intent of the user, then the phase: a stopped server whose launch is still
            // ending takes no calls.
            _ if lifecycle.policy().enabled == Enabled::No => Availability::Disabled,
            _ if !lifecycle.is_wanted() => Availability::Stopped,
            Phase::Idle => Availability::Idle,
            Phase::Connecting => Availability::Starting,
            Phase::Connected { .. } => match lifecycle.launch() {
                // With the epoch, so that a call can tell this launch from the one on
                // which it failed.
                Some(epoch) => Availability::Ready(epoch),
                None => Availability::Starting,
            },
            Phase::NeedsAuth { .. } => Availability::NeedsAuth,
            Phase::Failed { until, .. } | Phase::BackingOff { until, .. } => {
                Availability::RetryAt(*until)
            }
        }
    }
}

impl WaitDeadlines {
    /// Deadlines of a call that starts to wait now.
    pub(crate) fn new(now: Instant, startup: Duration, retry: Duration) -> Self {
        Self { start: deadline_after(now, startup), retry: deadline_after(now, retry) }
    }
}

/// Decides about a call. `avoid` is the launch on which the call failed before.
pub(crate) fn decide(
    availability: Availability,
    avoid: Option<Epoch>,
    deadlines: &WaitDeadlines,
    now: Instant,
) -> Decision {
    let until =
        |deadline: Instant, wait: Decision| if now < deadline { wait } else { Decision::Reject };
    match availability {
        // The call has seen this launch fail before the supervisor has: wait until the snapshot catches up, or the
        // call would spin on the dead connection.
        Availability::Ready(epoch) if avoid == Some(epoch) => {
            until(deadlines.retry, Decision::Wait(deadlines.retry))
        }
        // No deadline: the wait is over, and the call has a timeout of its own.
        Availability::Ready(_) => Decision::Send,
        Availability::Idle => until(deadlines.start, Decision::StartAndWait(deadlines.start)),
        Availability::Starting => until(deadlines.start, Decision::Wait(deadlines.start)),
        // A backoff that outlasts the call's deadline is not worth waiting for.
        Availability::RetryAt(retry_at) if retry_at <= deadlines.retry => {
            until(deadlines.retry, Decision::StartAndWait(deadlines.retry))
        }
        Availability::RetryAt(_)
        | Availability::NeedsAuth
        | Availability::Stopped
        | Availability::Disabled => Decision::Reject,
    }
}

/// Whether a call that failed with its connection is sent again, after `n_attempts` attempts.
pub(crate) fn should_retry(delivery: Delivery, repeatable: Repeatable, n_attempts: u32) -> bool {
    let is_safe = match delivery {
        Delivery::NotSent => true,
        // The server may have run the tool, so only the config can say that a second run does no harm.
        Delivery::Unknown => repeatable == Repeatable::Yes,
        // An answer is an outcome, even if it is an error.
        Delivery::Answered => false,
    };
    is_safe && n_attempts < MAX_ATTEMPTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decision_follows_availability() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let deadlines = WaitDeadlines::new(start, Duration::from_secs(30), Duration::from_secs(5));
        let check =
            |availability: Availability, avoid: Option<u64>, now: u64, expected: Decision| {
                let decision = decide(availability, avoid.map(Epoch), &deadlines, at(now));
                assert_eq!(decision, expected, "{availability:?} {avoid:?} at {now} s");
            };
        check(Availability::Ready(Epoch(7)), None, 0, Decision::Send);
        check(Availability::Ready(Epoch(7)), None, 100, Decision::Send);
        check(Availability::Ready(Epoch(7)), Some(6), 0, Decision::Send);
        check(Availability::Ready(Epoch(7)), Some(7), 0, Decision::Wait(at(5)));
        check(Availability::Ready(Epoch(7)), Some(7), 5, Decision::Reject);
        check(Availability::Idle, None, 0, Decision::StartAndWait(at(30)));
        check(Availability::Idle, None, 30, Decision::Reject);
        check(Availability::Starting, None, 29, Decision::Wait(at(30)));
        check(Availability::Starting, None, 30, Decision::Reject);
        check(Availability::RetryAt(at(5)), None, 0, Decision::StartAndWait(at(5)));
        check(Availability::RetryAt(at(5)), None, 5, Decision::Reject);
        check(Availability::RetryAt(at(6)), None, 0, Decision::Reject);
        check(Availability::NeedsAuth, None, 0, Decision::Reject);
        check(Availability::Stopped, None, 0, Decision::Reject);
        check(Availability::Disabled, None, 0, Decision::Reject);
    }

    #[test]
    fn maximum_duration_does_not_overflow() {
        let now = Instant::now();
        let deadlines = WaitDeadlines::new(now, Duration::MAX, Duration::MAX);
        let decide = |availability| decide(availability, None, &deadlines, now);
        assert_eq!(decide(Availability::Starting), Decision::Wait(deadlines.start));
        assert_eq!(decide(Availability::RetryAt(now)), Decision::StartAndWait(deadlines.retry));
    }

    #[test]
    fn only_unsent_or_repeatable_calls_are_retried() {
        let check = |delivery, repeatable, n_attempts, expected: &str| {
            let retried = should_retry(delivery, repeatable, n_attempts);
            let outcome = if retried { "retry" } else { "fail" };
            assert_eq!(outcome, expected, "{delivery:?} {repeatable:?} {n_attempts}");
        };
        check(Delivery::NotSent, Repeatable::No, 1, "retry");
        check(Delivery::NotSent, Repeatable::No, 2, "retry");
        check(Delivery::NotSent, Repeatable::No, 3, "fail");
        check(Delivery::Unknown, Repeatable::No, 1, "fail");
        check(Delivery::Unknown, Repeatable::Yes, 1, "retry");
        check(Delivery::Unknown, Repeatable::Yes, 3, "fail");
        check(Delivery::Answered, Repeatable::Yes, 1, "fail");
    }
}
