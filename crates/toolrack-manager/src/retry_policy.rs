//! What becomes of a call, given where its server stands: it is sent, it waits, or it is refused.
//!
//! Pure: the caller looks, asks here, and does what it is told, until the call is sent or refused.
//!
//! **Invariant:** waiting ends. Every wait has a moment that depends only on when the call began.

use std::time::Duration;

use tokio::time::Instant;
use toolrack_transport::{Delivery, after};

use crate::lifecycle::Life;
use crate::lifecycle::event::{Allowed, Epoch, Phase};

/// How often one call is sent at most, whatever happens to it.
const MOST_ATTEMPTS: u32 = 3;

/// Where a server stands, as far as calls care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It takes calls.
    Ready(Epoch),
    /// It is started by the first call.
    Resting,
    /// It is being started.
    Starting,
    /// It is tried again at this moment.
    Down(Instant),
    /// Somebody has to log in first.
    Barred,
    /// The user has stopped it.
    Stopped,
    /// The config keeps it down.
    Disabled,
}

/// How long a call waits for its server before it is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waits {
    /// Until when a start may take.
    start: Instant,
    /// Until when a failed server has to be tried again.
    retry: Instant,
}

/// What to do with a call now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// Send it.
    Send,
    /// Look again when something has changed, or at this moment.
    Wait(Instant),
    /// The same, after telling the server's owner that somebody waits.
    Demand(Instant),
    /// There is nothing to wait for.
    Refuse,
}

/// Whether a call may be sent again although the server may have seen it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeatable {
    Yes,
    No,
}

impl Standing {
    pub(crate) fn of(life: &Life) -> Self {
        match life.phase() {
            _ if life.policy().allowed == Allowed::No => Standing::Disabled,
            _ if !life.is_wanted() => Standing::Stopped,
            Phase::Idle => Standing::Resting,
            Phase::Connecting => Standing::Starting,
            Phase::Connected { .. } => match life.launch() {
                Some(epoch) => Standing::Ready(epoch),
                None => Standing::Starting,
            },
            Phase::NeedsAuth { .. } => Standing::Barred,
            Phase::Failed { until, .. } | Phase::BackingOff { until, .. } => Standing::Down(*until),
        }
    }
}

impl Waits {
    /// The waits of a call that begins now.
    pub(crate) fn begin(now: Instant, startup: Duration, retry: Duration) -> Self {
        Self { start: after(now, startup), retry: after(now, retry) }
    }
}

/// What to do with a call. A launch that has failed it once is `avoid`ed: its end is not known everywhere yet.
pub(crate) fn route(
    standing: Standing,
    avoid: Option<Epoch>,
    waits: &Waits,
    now: Instant,
) -> Route {
    let until = |moment: Instant, wait: Route| if now < moment { wait } else { Route::Refuse };
    match standing {
        Standing::Ready(epoch) if avoid == Some(epoch) => {
            until(waits.retry, Route::Wait(waits.retry))
        }
        Standing::Ready(_) => Route::Send,
        Standing::Resting => until(waits.start, Route::Demand(waits.start)),
        Standing::Starting => until(waits.start, Route::Wait(waits.start)),
        Standing::Down(retry_at) if retry_at <= waits.retry => {
            until(waits.retry, Route::Demand(waits.retry))
        }
        Standing::Down(_) | Standing::Barred | Standing::Stopped | Standing::Disabled => {
            Route::Refuse
        }
    }
}

/// Whether a call that the line has failed is sent again, after so many attempts.
pub(crate) fn again(delivery: Delivery, repeatable: Repeatable, n_attempts: u32) -> bool {
    let is_harmless = match delivery {
        Delivery::NotSent => true,
        Delivery::Unknown => repeatable == Repeatable::Yes,
        Delivery::Answered => false,
    };
    is_harmless && n_attempts < MOST_ATTEMPTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_goes_where_its_server_stands() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let waits = Waits::begin(start, Duration::from_secs(30), Duration::from_secs(5));
        let check = |standing: Standing, avoid: Option<u64>, now: u64, expected: Route| {
            let routed = route(standing, avoid.map(Epoch), &waits, at(now));
            assert_eq!(routed, expected, "{standing:?} {avoid:?} at {now} s");
        };
        check(Standing::Ready(Epoch(7)), None, 0, Route::Send);
        check(Standing::Ready(Epoch(7)), None, 100, Route::Send);
        check(Standing::Ready(Epoch(7)), Some(6), 0, Route::Send);
        check(Standing::Ready(Epoch(7)), Some(7), 0, Route::Wait(at(5)));
        check(Standing::Ready(Epoch(7)), Some(7), 5, Route::Refuse);
        check(Standing::Resting, None, 0, Route::Demand(at(30)));
        check(Standing::Resting, None, 30, Route::Refuse);
        check(Standing::Starting, None, 29, Route::Wait(at(30)));
        check(Standing::Starting, None, 30, Route::Refuse);
        check(Standing::Down(at(5)), None, 0, Route::Demand(at(5)));
        check(Standing::Down(at(5)), None, 5, Route::Refuse);
        check(Standing::Down(at(6)), None, 0, Route::Refuse);
        check(Standing::Barred, None, 0, Route::Refuse);
        check(Standing::Stopped, None, 0, Route::Refuse);
        check(Standing::Disabled, None, 0, Route::Refuse);
    }

    #[test]
    fn no_wait_is_too_long() {
        let now = Instant::now();
        let waits = Waits::begin(now, Duration::MAX, Duration::MAX);
        assert_eq!(route(Standing::Starting, None, &waits, now), Route::Wait(waits.start));
        assert_eq!(route(Standing::Down(now), None, &waits, now), Route::Demand(waits.retry));
    }

    #[test]
    fn a_call_is_repeated_only_if_that_is_harmless() {
        let check = |delivery, repeatable, n_attempts, expected: &str| {
            let word = if again(delivery, repeatable, n_attempts) { "again" } else { "over" };
            assert_eq!(word, expected, "{delivery:?} {repeatable:?} {n_attempts}");
        };
        check(Delivery::NotSent, Repeatable::No, 1, "again");
        check(Delivery::NotSent, Repeatable::No, 2, "again");
        check(Delivery::NotSent, Repeatable::No, 3, "over");
        check(Delivery::Unknown, Repeatable::No, 1, "over");
        check(Delivery::Unknown, Repeatable::Yes, 1, "again");
        check(Delivery::Unknown, Repeatable::Yes, 3, "over");
        check(Delivery::Answered, Repeatable::Yes, 1, "over");
    }
}
