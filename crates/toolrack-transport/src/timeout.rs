//! Request timeouts: an idle timeout that progress restarts, and a total timeout that nothing extends.
//!
//! Neither depends on IO: a request times out even if the server neither reads nor writes.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::pending_requests::{Deadline, PendingResponse};

/// Longer than any real wait, and short enough to be added to any `Instant` without an overflow.
const FOREVER: Duration = Duration::from_hours(24 * 365 * 30);

/// Idle and total timeout of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestTimeout {
    /// The longest wait without a sign of progress from the server.
    pub idle: Duration,
    /// The longest wait in total, regardless of progress.
    pub total: Duration,
}

impl RequestTimeout {
    /// A timeout that progress does not extend.
    pub fn fixed(duration: Duration) -> Self {
        Self { idle: duration, total: duration }
    }

    /// No timeout: only the close of the transport ends the wait. For requests that stay open by design.
    pub fn unlimited() -> Self {
        Self::fixed(FOREVER)
    }

    /// The deadline of a request that starts now.
    pub fn start(&self) -> Deadline {
        // Tokio's clock, which tests can pause.
        let started = Instant::now().into_std();
        let idle_timeout = self.idle.min(FOREVER);
        let hard_limit = started + self.total.min(FOREVER);
        let expires_at = (started + idle_timeout).min(hard_limit);
        Deadline { started, expires_at, idle_timeout, hard_limit }
    }
}

/// `now + wait`, with `wait` capped so that the sum cannot overflow.
pub fn deadline_after(now: Instant, wait: Duration) -> Instant {
    now + wait.min(FOREVER)
}

/// Waits for `response` with a timer of its own. On timeout, returns how long the wait was.
pub async fn await_response<A, E: Clone>(
    response: &mut PendingResponse<'_, A, E>,
    deadline: Deadline,
) -> Result<Result<A, E>, Duration> {
    let mut timer = pin!(sleep_until(Instant::from_std(deadline.expires_at)));
    poll_fn(|context| {
        // Polled first: a response wins over a timer that fires at the same time.
        if let Poll::Ready(outcome) = Pin::new(&mut *response).poll(context) {
            return Poll::Ready(Ok(outcome));
        }
        loop {
            ready!(timer.as_mut().poll(context));
            // Progress may have moved the deadline since the timer was set.
            let expires_at =
                response.deadline().map_or(deadline.expires_at, |deadline| deadline.expires_at);
            if Instant::from_std(expires_at) <= timer.deadline() {
                return Poll::Ready(Err(expires_at - deadline.started));
            }
            // The loop polls the timer again, because only a poll registers the waker.
            timer.as_mut().reset(Instant::from_std(expires_at));
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pending_requests::PendingRequests;
    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// Reports progress at the given times and checks when the request times out.
    async fn check(timeout: RequestTimeout, progress: &[u64], expected: u64) {
        let pending = PendingRequests::<(), ()>::default();
        let deadline = timeout.start();
        let mut response = pending.register(deadline).unwrap();
        let started = Instant::now();
        let report_progress = async {
            for at in progress {
                sleep_until(started + MS(*at)).await;
                pending.extend_deadline(Some(1), Instant::now().into_std());
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            outcome = await_response(&mut response, deadline) => assert_eq!(outcome, Err(MS(expected))),
            () = report_progress => {}
        }
        assert_eq!(started.elapsed(), MS(expected), "{timeout:?} {progress:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn progress_restarts_the_idle_timeout_only() {
        let timeout = RequestTimeout { idle: MS(100), total: MS(300) };
        check(timeout, &[], 100).await;
        check(timeout, &[50], 150).await;
        check(timeout, &[50, 120], 220).await;
        check(timeout, &[50, 120, 200, 280], 300).await;
        check(RequestTimeout::fixed(MS(100)), &[50, 90], 100).await;
    }

    #[tokio::test(start_paused = true)]
    async fn long_timeouts_do_not_overflow() {
        let now = Instant::now();
        assert_eq!(deadline_after(now, MS(5)), now + MS(5));
        assert_eq!(deadline_after(now, Duration::MAX), now + FOREVER);
        let deadline = RequestTimeout::fixed(Duration::MAX).start();
        assert_eq!(deadline.expires_at - deadline.started, FOREVER);
    }

    #[tokio::test(start_paused = true)]
    async fn response_before_the_deadline_is_returned() {
        let pending = PendingRequests::<u8, ()>::default();
        let deadline = RequestTimeout::unlimited().start();
        let mut response = pending.register(deadline).unwrap();
        let outcome = await_response(&mut response, deadline);
        let (outcome, ()) = tokio::join!(outcome, async { pending.complete(1, 7).unwrap() });
        assert_eq!(outcome, Ok(Ok(7)));
    }
}
