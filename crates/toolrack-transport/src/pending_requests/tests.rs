//! Every registered request has one outcome, in any order of responses, cancellations and the close.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use proptest::prelude::*;

use super::*;

fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "any moment will do")]
    Instant::now()
}

/// A deadline of `idle` seconds that progress can extend to `total`.
fn deadline(started: Instant, idle: u64, total: u64) -> Deadline {
    let idle_timeout = Duration::from_secs(idle);
    let hard_limit = started + Duration::from_secs(total);
    Deadline { started, expires_at: started + idle_timeout, idle_timeout, hard_limit }
}

fn some_deadline() -> Deadline {
    deadline(now(), 100, 100)
}

type Table = PendingRequests<&'static str, &'static str>;

#[derive(Default)]
struct WakeCounter(AtomicUsize);

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll<A, E: Clone>(
    response: &mut PendingResponse<'_, A, E>,
    counter: &Arc<WakeCounter>,
) -> Poll<Result<A, E>> {
    let waker = Waker::from(Arc::clone(counter));
    Pin::new(response).poll(&mut Context::from_waker(&waker))
}

#[test]
fn response_wakes_its_caller() {
    let (pending, counter) = (Table::default(), Arc::new(WakeCounter::default()));
    let mut first = pending.register(some_deadline()).unwrap();
    let mut second = pending.register(some_deadline()).unwrap();
    assert_eq!((first.id(), second.id()), (1, 2));
    assert_eq!(poll(&mut first, &counter), Poll::Pending);
    assert_eq!(pending.complete(2, "two"), Ok(()));
    assert_eq!(counter.0.load(Ordering::Relaxed), 0);
    assert_eq!(pending.complete(1, "one"), Ok(()));
    assert_eq!(counter.0.load(Ordering::Relaxed), 1);
    assert_eq!(poll(&mut second, &counter), Poll::Ready(Ok("two")));
    assert_eq!(poll(&mut first, &counter), Poll::Ready(Ok("one")));
    assert_eq!(pending.n_open(), 0);
}

#[test]
fn late_and_duplicate_responses_are_returned() {
    let (pending, counter) = (Table::default(), Arc::new(WakeCounter::default()));
    let mut response = pending.register(some_deadline()).unwrap();
    assert_eq!(pending.complete(1, "first"), Ok(()));
    assert_eq!(pending.complete(1, "second"), Err("second"));
    assert_eq!(poll(&mut response, &counter), Poll::Ready(Ok("first")));
    assert_eq!(pending.complete(1, "late"), Err("late"));
    assert_eq!(pending.complete(77, "unknown"), Err("unknown"));
}

#[test]
fn dropping_the_response_removes_the_entry() {
    let pending = Table::default();
    let response = pending.register(some_deadline()).unwrap();
    assert_eq!(pending.n_open(), 1);
    drop(response);
    assert_eq!(pending.n_open(), 0);
    assert_eq!(pending.complete(1, "late"), Err("late"));
}

#[test]
fn close_wakes_all_callers_with_the_reason() {
    let (pending, counter) = (Table::default(), Arc::new(WakeCounter::default()));
    let mut waiting = pending.register(some_deadline()).unwrap();
    let mut completed = pending.register(some_deadline()).unwrap();
    assert_eq!(poll(&mut waiting, &counter), Poll::Pending);
    pending.complete(2, "made it").unwrap();
    pending.close("gone");
    pending.close("too late");
    assert_eq!(counter.0.load(Ordering::Relaxed), 1);
    assert_eq!(poll(&mut waiting, &counter), Poll::Ready(Err("gone")));
    assert_eq!(poll(&mut completed, &counter), Poll::Ready(Ok("made it")));
    assert_eq!(pending.register(some_deadline()).err(), Some("gone"));
}

#[test]
fn progress_extends_the_deadline_up_to_the_hard_limit() {
    let (pending, start) = (Table::default(), now());
    let response = pending.register(deadline(start, 10, 15)).unwrap();
    let expiry = || response.deadline().map(|deadline| (deadline.expires_at - start).as_secs());
    assert_eq!(expiry(), Some(10));
    pending.extend_deadline(Some(1), start + Duration::from_secs(3));
    assert_eq!(expiry(), Some(13));
    pending.extend_deadline(Some(2), start);
    assert_eq!(expiry(), Some(13));
    pending.extend_deadline(None, start + Duration::from_secs(9));
    assert_eq!(expiry(), Some(15));
}

#[test]
fn one_timer_serves_all_requests() {
    let (pending, counter, start) = (Table::default(), Arc::new(WakeCounter::default()), now());
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut long = pending.register(deadline(start, 10, 10)).unwrap();
    let mut longer = pending.register(deadline(start, 20, 20)).unwrap();
    let mut short = pending.register(deadline(start, 5, 5)).unwrap();
    assert_eq!(
        [long.is_earliest(), longer.is_earliest(), short.is_earliest()],
        [true, false, true],
        "the timer is reset only for an earlier deadline"
    );
    for response in [&mut long, &mut longer, &mut short] {
        assert_eq!(poll(response, &counter), Poll::Pending);
    }
    assert_eq!(pending.expire(at(4), |_| "timed out"), Some((at(5), 3)));
    assert_eq!(pending.expire(at(5), |_| "timed out"), Some((at(10), 1)));
    assert_eq!(poll(&mut short, &counter), Poll::Ready(Ok("timed out")));
    pending.complete(1, "in time").unwrap();
    assert_eq!(pending.expire(at(10), |_| "timed out"), Some((at(20), 2)));
    assert_eq!(poll(&mut long, &counter), Poll::Ready(Ok("in time")));
    assert_eq!(pending.expire(at(20), |_| "timed out"), None);
    assert_eq!(poll(&mut longer, &counter), Poll::Ready(Ok("timed out")));
    assert_eq!(counter.0.load(Ordering::Relaxed), 3);
    let last = pending.register(deadline(start, 99, 99)).unwrap();
    assert!(last.is_earliest() && !pending.cancel_expiry(), "no timer is set, then one is needed");
    drop(last);
    assert!(!pending.register(deadline(start, 99, 99)).unwrap().is_earliest());
    assert!(pending.cancel_expiry(), "no request waits");
    assert!(pending.register(deadline(start, 99, 99)).unwrap().is_earliest());
}

#[test]
fn sole_pending_request_is_known() {
    let pending = Table::default();
    assert_eq!(pending.sole_id(), None);
    let first = pending.register(some_deadline()).unwrap();
    assert_eq!(pending.sole_id(), Some(1));
    let second = pending.register(some_deadline()).unwrap();
    assert_eq!(pending.sole_id(), None);
    drop(first);
    assert_eq!(pending.sole_id(), Some(2));
    drop(second);
}

proptest! {
    /// Thousands of requests, completed out of order, some cancelled: every caller gets its own response.
    #[test]
    fn responses_are_never_crossed(
        order in Just((1_u64..=2000).collect::<Vec<_>>()).prop_shuffle(),
        cancelled in proptest::collection::hash_set(1_u64..=2000, 0..500),
    ) {
        let (pending, counter) = (PendingRequests::<u64, ()>::default(), Arc::new(WakeCounter::default()));
        let mut responses: Vec<_> = (0..2000).map(|_| pending.register(some_deadline()).unwrap()).collect();
        responses.retain(|response| !cancelled.contains(&response.id()));
        for id in order {
            let expected = if cancelled.contains(&id) { Err(id * 3) } else { Ok(()) };
            prop_assert_eq!(pending.complete(id, id * 3), expected);
        }
        for response in &mut responses {
            let id = response.id();
            prop_assert_eq!(poll(response, &counter), Poll::Ready(Ok(id * 3)));
        }
        prop_assert_eq!(pending.n_open(), 0);
    }
}
