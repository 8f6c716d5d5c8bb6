//! One outcome for every claim, in any order of answering, giving up and ending.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use proptest::prelude::*;

use super::*;

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
    let mut first = pending.claim().unwrap();
    let mut second = pending.claim().unwrap();
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
    let mut ticket = pending.claim().unwrap();
    assert_eq!(pending.settle(1, "first"), Ok(()));
    assert_eq!(pending.settle(1, "second"), Err("second"));
    assert_eq!(poll(&mut ticket, &bell), Poll::Ready(Ok("first")));
    assert_eq!(pending.settle(1, "late"), Err("late"));
    assert_eq!(pending.settle(77, "unknown"), Err("unknown"));
}

#[test]
fn dropping_the_ticket_removes_the_entry() {
    let pending = Table::new();
    let ticket = pending.claim().unwrap();
    assert_eq!(pending.n_open(), 1);
    drop(ticket);
    assert_eq!(pending.n_open(), 0);
    assert_eq!(pending.settle(1, "late"), Err("late"));
}

#[test]
fn ending_wakes_everyone_with_the_reason() {
    let (pending, bell) = (Table::new(), Arc::new(Bell::default()));
    let mut waiting = pending.claim().unwrap();
    let mut answered = pending.claim().unwrap();
    assert_eq!(poll(&mut waiting, &bell), Poll::Pending);
    pending.settle(2, "made it").unwrap();
    pending.end("gone");
    pending.end("too late");
    assert_eq!(bell.0.load(Ordering::Relaxed), 1);
    assert_eq!(poll(&mut waiting, &bell), Poll::Ready(Err("gone")));
    assert_eq!(poll(&mut answered, &bell), Poll::Ready(Ok("made it")));
    assert_eq!(pending.claim().err(), Some("gone"));
}

#[test]
fn a_touch_is_seen_by_the_waiter_only() {
    let pending = Table::new();
    let ticket = pending.claim().unwrap();
    #[expect(clippy::disallowed_methods, reason = "any moment will do")]
    let now = Instant::now();
    assert_eq!(ticket.touched(), None);
    assert!(pending.touch(1, now));
    assert_eq!(ticket.touched(), Some(now));
    assert!(!pending.touch(2, now));
}

#[test]
fn the_only_open_request_is_known() {
    let pending = Table::new();
    assert_eq!(pending.only(), None);
    let first = pending.claim().unwrap();
    assert_eq!(pending.only(), Some(1));
    let second = pending.claim().unwrap();
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
        let mut tickets: Vec<_> = (0..2000).map(|_| pending.claim().unwrap()).collect();
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
