//! How long a caller waits, and what renews it.
//!
//! Two clocks run: one that every sign of work from the server starts again, and one that nothing
//! stops. Neither depends on IO.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Poll, ready};
use std::time::Duration;

use crate::{Due, Ticket};
use tokio::time::{Instant, sleep_until};

/// Longer than any wait that ends, and short enough to be added to any moment.
const FOREVER: Duration = Duration::from_hours(24 * 365 * 30);

/// How long to wait for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Without a sign of work from the server.
    pub answer: Duration,
    /// In all, whatever the server shows.
    pub at_most: Duration,
}

impl Patience {
    /// A wait that nothing extends.
    pub fn exactly(duration: Duration) -> Self {
        Self { answer: duration, at_most: duration }
    }

    /// A wait that only the end of the line ends, for requests that stay open by design.
    pub fn endless() -> Self {
        Self::exactly(FOREVER)
    }

    /// When a wait is over that begins now.
    pub fn begin(&self) -> Due {
        let started = Instant::now().into_std();
        let renew = self.answer.min(FOREVER);
        let last = started + self.at_most.min(FOREVER);
        Due { started, at: (started + renew).min(last), renew, last }
    }
}

/// The moment that lies `wait` after `now`. A wait that nobody will live to see is cut, because moments can
/// overflow.
pub fn after(now: Instant, wait: Duration) -> Instant {
    now + wait.min(FOREVER)
}

/// Waits for the answer of `ticket` with a clock of its own. When patience has run out, says how long it
/// was.
pub async fn answer_within<A, E: Clone>(
    ticket: &mut Ticket<'_, A, E>,
    due: Due,
) -> Result<Result<A, E>, Duration> {
    let mut alarm = pin!(sleep_until(Instant::from_std(due.at)));
    poll_fn(|context| {
        if let Poll::Ready(outcome) = Pin::new(&mut *ticket).poll(context) {
            return Poll::Ready(Ok(outcome));
        }
        loop {
            ready!(alarm.as_mut().poll(context));
            let renewed = ticket.due().map_or(due.at, |due| due.at);
            if Instant::from_std(renewed) <= alarm.deadline() {
                return Poll::Ready(Err(renewed - due.started));
            }
            alarm.as_mut().reset(Instant::from_std(renewed));
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use crate::Pending;

    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// Touches the request at the given times and says after how long the wait was given up.
    async fn check(patience: Patience, touches: &[u64], expected: u64) {
        let pending = Pending::<(), ()>::new();
        let due = patience.begin();
        let mut ticket = pending.claim(due).unwrap();
        let started = Instant::now();
        let work = async {
            for at in touches {
                sleep_until(started + MS(*at)).await;
                pending.touch(1, Instant::now().into_std());
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            outcome = answer_within(&mut ticket, due) => assert_eq!(outcome, Err(MS(expected))),
            () = work => {}
        }
        assert_eq!(started.elapsed(), MS(expected), "{patience:?} {touches:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn work_renews_one_clock_and_never_the_other() {
        let patience = Patience { answer: MS(100), at_most: MS(300) };
        check(patience, &[], 100).await;
        check(patience, &[50], 150).await;
        check(patience, &[50, 120], 220).await;
        check(patience, &[50, 120, 200, 280], 300).await;
        check(Patience::exactly(MS(100)), &[50, 90], 100).await;
    }

    #[tokio::test(start_paused = true)]
    async fn no_wait_is_too_long_to_be_added() {
        let now = Instant::now();
        assert_eq!(after(now, MS(5)), now + MS(5));
        assert_eq!(after(now, Duration::MAX), now + FOREVER);
        let due = Patience::exactly(Duration::MAX).begin();
        assert_eq!(due.at - due.started, FOREVER);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_in_time_is_given() {
        let pending = Pending::<u8, ()>::new();
        let due = Patience::endless().begin();
        let mut ticket = pending.claim(due).unwrap();
        let answer = answer_within(&mut ticket, due);
        let (answer, ()) = tokio::join!(answer, async { pending.settle(1, 7).unwrap() });
        assert_eq!(answer, Ok(Ok(7)));
    }
}
