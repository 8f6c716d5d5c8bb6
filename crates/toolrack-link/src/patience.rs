//! How long a caller waits, and what renews it.
//!
//! Two clocks run: one that every sign of work from the server starts again, and one that nothing
//! stops. Neither depends on IO.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use toolrack_rpc::Ticket;

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

    /// When a wait is over that began at `started` and saw work last at `touched`.
    pub fn deadline(&self, started: Instant, touched: Option<Instant>) -> Instant {
        let renewed = touched.unwrap_or(started) + self.answer.min(FOREVER);
        renewed.min(started + self.at_most.min(FOREVER))
    }
}

/// Waits for the answer of `ticket`. When patience has run out, says how long it was.
pub async fn answer_within<A, E: Clone>(
    ticket: &mut Ticket<'_, A, E>,
    patience: Patience,
    started: Instant,
) -> Result<Result<A, E>, Duration> {
    let mut alarm = pin!(sleep_until(patience.deadline(started, None)));
    poll_fn(|context| {
        if let Poll::Ready(outcome) = Pin::new(&mut *ticket).poll(context) {
            return Poll::Ready(Ok(outcome));
        }
        loop {
            ready!(alarm.as_mut().poll(context));
            let renewed = patience.deadline(started, ticket.touched().map(Instant::from_std));
            if renewed <= alarm.deadline() {
                return Poll::Ready(Err(alarm.deadline() - started));
            }
            alarm.as_mut().reset(renewed);
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use toolrack_rpc::Pending;

    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// Touches the request at the given times and says after how long the wait was given up.
    async fn check(patience: Patience, touches: &[u64], expected: u64) {
        let pending = Pending::<(), ()>::new();
        let mut ticket = pending.claim().unwrap();
        let started = Instant::now();
        let work = async {
            for at in touches {
                sleep_until(started + MS(*at)).await;
                pending.touch(1, Instant::now().into_std());
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            outcome = answer_within(&mut ticket, patience, started) => assert_eq!(outcome, Err(MS(expected))),
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
    async fn an_answer_in_time_is_given() {
        let pending = Pending::<u8, ()>::new();
        let mut ticket = pending.claim().unwrap();
        let answer = answer_within(&mut ticket, Patience::endless(), Instant::now());
        let (answer, ()) = tokio::join!(answer, async { pending.settle(1, 7).unwrap() });
        assert_eq!(answer, Ok(Ok(7)));
    }
}
