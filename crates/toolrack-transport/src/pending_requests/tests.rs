//! One outcome for every claim, in any order of answering, giving up and ending.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use proptest::prelude::*;

use super::*;

fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "any moment will do")]
    Instant::now()
}

/// A wait of `wait` seconds that work can stretch to `at_most`.
fn due(started: Instant, wait: u64, at_most: u64) -> Due {
    let renew = Duration::from_secs(wait);
    Due { started, at: started + renew, renew, last: started + Duration::from_secs(at_most) }
}

fn some_time() -> Due {
    due(now(), 100, 100)
}

type Table = Pending<&'static str, &'static str>;

#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll<A, E: Clone>(ticket: &mut Ticket<'_, A, E>, bell: &Arc<Bell>) -> Poll<Result<A, E>> {
    let waker = Waker::from(Arc::clone(bell));
    Pin::new(ticket).poll(&mut Context::from_waker(&waker))
}

#[test]
fn an_answer_reaches_the_one_who_asked() {
    let (pending, bell) = (Table::new(), Arc::new(Bell::default()));
    let mut first = pending.claim(some_time()).unwrap();
    let mut second = pending.claim(some_time()).unwrap();
    assert_eq!((first.id(), second.id()), (1, 2));
    assert_eq!(poll(&mut first, &bell), Poll::Pending);
    assert_eq!(pending.settle(2, "two"), Ok(()));
    assert_eq!(bell.0.load(Ordering::Relaxed), 0);
    assert_eq!(pending.settle(1, "one"), Ok(()));
    assert_eq!(bell.0.load(Ordering::Relaxed), 1);
    assert_eq!(poll(&mut second, &bell), Poll::Ready(Ok("two")));
    assert_eq!(poll(&mut first, &bell), Poll::Ready(Ok("one")));
    assert_eq!(pending.n_open(), 0);
}

#[test]
fn late_and_second_answers_are_given_back() {
    let (pending, bell) = (Table::new(), Arc::new(Bell::default()));
    let mut ticket = pending.claim(some_time()).unwrap();
    assert_eq!(pending.settle(1, "first"), Ok(()));
    assert_eq!(pending.settle(1, "second"), Err("second"));
    assert_eq!(poll(&mut ticket, &bell), Poll::Ready(Ok("first")));
    assert_eq!(pending.settle(1, "late"), Err("late"));
    assert_eq!(pending.settle(77, "unknown"), Err("unknown"));
}

#[test]
fn dropping_the_ticket_removes_the_entry() {
    let pending = Table::new();
    let ticket = pending.claim(some_time()).unwrap();
    assert_eq!(pending.n_open(), 1);
    drop(ticket);
    assert_eq!(pending.n_open(), 0);
    assert_eq!(pending.settle(1, "late"), Err("late"));
}

#[test]
fn ending_wakes_everyone_with_the_reason() {
    let (pending, bell) = (Table::new(), Arc::new(Bell::default()));
    let mut waiting = pending.claim(some_time()).unwrap();
    let mut answered = pending.claim(some_time()).unwrap();
    assert_eq!(poll(&mut waiting, &bell), Poll::Pending);
    pending.settle(2, "made it").unwrap();
    pending.end("gone");
    pending.end("too late");
    assert_eq!(bell.0.load(Ordering::Relaxed), 1);
    assert_eq!(poll(&mut waiting, &bell), Poll::Ready(Err("gone")));
    assert_eq!(poll(&mut answered, &bell), Poll::Ready(Ok("made it")));
    assert_eq!(pending.claim(some_time()).err(), Some("gone"));
}

#[test]
fn work_moves_the_end_of_a_wait_but_not_the_last() {
    let (pending, start) = (Table::new(), now());
    let ticket = pending.claim(due(start, 10, 15)).unwrap();
    let ends = || ticket.due().map(|due| (due.at - start).as_secs());
    assert_eq!(ends(), Some(10));
    assert!(pending.touch(1, start + Duration::from_secs(3)));
    assert_eq!(ends(), Some(13));
    assert!(pending.touch(1, start + Duration::from_secs(9)));
    assert_eq!(ends(), Some(15));
    assert!(!pending.touch(2, start));
}

#[test]
fn one_clock_serves_every_wait() {
    let (pending, bell, start) = (Table::new(), Arc::new(Bell::default()), now());
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut long = pending.claim(due(start, 10, 10)).unwrap();
    let mut longer = pending.claim(due(start, 20, 20)).unwrap();
    let mut short = pending.claim(due(start, 5, 5)).unwrap();
    assert_eq!(
        [long.is_soonest(), longer.is_soonest(), short.is_soonest()],
        [true, false, true],
        "the clock is set anew only for a sooner end"
    );
    for ticket in [&mut long, &mut longer, &mut short] {
        assert_eq!(poll(ticket, &bell), Poll::Pending);
    }
    assert_eq!(pending.expire(at(4), |_| "over"), Some(at(5)));
    assert_eq!(pending.expire(at(5), |_| "over"), Some(at(10)));
    assert_eq!(poll(&mut short, &bell), Poll::Ready(Ok("over")));
    pending.settle(1, "in time").unwrap();
    assert_eq!(pending.expire(at(10), |_| "over"), Some(at(20)));
    assert_eq!(poll(&mut long, &bell), Poll::Ready(Ok("in time")));
    assert_eq!(pending.expire(at(20), |_| "over"), None);
    assert_eq!(poll(&mut longer, &bell), Poll::Ready(Ok("over")));
    assert_eq!(bell.0.load(Ordering::Relaxed), 3);
    assert!(pending.claim(due(start, 99, 99)).unwrap().is_soonest(), "no clock is set");
}

#[test]
fn the_only_open_request_is_known() {
    let pending = Table::new();
    assert_eq!(pending.only(), None);
    let first = pending.claim(some_time()).unwrap();
    assert_eq!(pending.only(), Some(1));
    let second = pending.claim(some_time()).unwrap();
    assert_eq!(pending.only(), None);
    drop(first);
    assert_eq!(pending.only(), Some(2));
    drop(second);
}

proptest! {
    /// Thousands in flight, answered out of order, some given up: everybody gets their own answer.
    #[test]
    fn answers_are_never_crossed(
        order in Just((1_u64..=2000).collect::<Vec<_>>()).prop_shuffle(),
        given_up in proptest::collection::hash_set(1_u64..=2000, 0..500),
    ) {
        let (pending, bell) = (Pending::<u64, ()>::new(), Arc::new(Bell::default()));
        let mut tickets: Vec<_> = (0..2000).map(|_| pending.claim(some_time()).unwrap()).collect();
        tickets.retain(|ticket| !given_up.contains(&ticket.id()));
        for id in order {
            let expected = if given_up.contains(&id) { Err(id * 3) } else { Ok(()) };
            prop_assert_eq!(pending.settle(id, id * 3), expected);
        }
        for ticket in &mut tickets {
            let id = ticket.id();
            prop_assert_eq!(poll(ticket, &bell), Poll::Ready(Ok(id * 3)));
        }
        prop_assert_eq!(pending.n_open(), 0);
    }
}
