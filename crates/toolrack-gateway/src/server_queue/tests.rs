//! Whose question it is, and whose turn.

use toolrack_transport::Mask;

use super::*;
use crate::active_request::{Spot, Wanted};
use crate::client_info::Caller;
use crate::message_queue::{Outbox, Replay};
use crate::params::Params;
use crate::scope::Naming;

/// A request of a client, which is named by a letter: capital ones can be asked.
fn seat(client: &str) -> Arc<Seat> {
    let is_able = client.chars().all(char::is_uppercase);
    let capabilities = if is_able { r#"{"sampling":{}}"# } else { "{}" };
    let text = format!(r#"{{"protocolVersion":"2025-11-25","capabilities":{capabilities}}}"#);
    let caller = Caller::legacy(&Params::read(Some(text.as_bytes())).unwrap()).unwrap();
    let out = Arc::new(Outbox::new(Replay::No, &Mask::default()));
    let spot = Spot { out, token: None, wanted: Wanted::ByRequest(None) };
    Seat::new((Arc::new(caller), Owner::named(client)), spot, Naming::Raw).0
}

fn whose(table: &mut Table, about: Option<u64>, now: Instant) -> String {
    match table.whose(about, now) {
        Whose::Request(seat) => format!("request of {:?}", seat.owner),
        Whose::Client(owner) => format!("{owner:?}"),
        Whose::Nobody => "nobody".to_owned(),
        Whose::Unknown => "unknown".to_owned(),
    }
}

#[track_caller]
fn check_whose(open: &[&str], given_up: &[&str], expected: &str) {
    let (mut table, now) = (Table::default(), Instant::now());
    for client in given_up {
        let seat = seat(client);
        table.sit(&seat, now);
        table.leave(&seat, End::Unknown, now);
    }
    for client in open {
        table.sit(&seat(client), now);
    }
    assert_eq!(whose(&mut table, None, now), expected, "{open:?} {given_up:?}");
    assert!(table.has_turns() && !table.is_blank(), "the server is known to ask now");
}

#[test]
fn a_question_is_a_clients_only_if_it_can_be_nobody_elses() {
    check_whose(&[], &[], "nobody");
    check_whose(&["A"], &[], "A");
    check_whose(&["A", "A"], &[], "A");
    check_whose(&["A", "B"], &[], "unknown");
    check_whose(&["A", "b"], &[], "unknown");
    check_whose(&["b"], &[], "b");
    check_whose(&["A"], &["B"], "unknown");
    check_whose(&["A"], &["A"], "A");
    check_whose(&["A"], &["B", "C", "A"], "unknown");
    check_whose(&[], &["B"], "nobody");
}

#[test]
fn what_was_given_up_is_forgotten_in_time_or_with_the_process() {
    let (mut table, now) = (Table::default(), Instant::now());
    let (given_up, open) = (seat("B"), seat("A"));
    table.sit(&given_up, now);
    table.leave(&given_up, End::Unknown, now);
    table.sit(&open, now);
    assert_eq!(whose(&mut table, None, now), "unknown");
    assert_eq!(whose(&mut table, None, now + AFTERMATH), "A");
    table.leave(&given_up, End::Unknown, now);
    table.renewed();
    assert_eq!(whose(&mut table, None, now), "A");
    table.leave(&given_up, End::Done, now);
    assert_eq!(whose(&mut table, None, now), "A", "it was answered");
}

#[test]
fn a_line_that_tells_is_believed_and_needs_no_turns() {
    let (mut table, now) = (Table::default(), Instant::now());
    let (a, b) = (seat("A"), seat("B"));
    table.sit(&a, now);
    table.sit(&b, now);
    a.noted(7);
    b.noted(8);
    assert_eq!(whose(&mut table, Some(7), now), "request of A");
    assert_eq!(whose(&mut table, Some(8), now), "request of B");
    assert_eq!(whose(&mut table, Some(9), now), "nobody");
    b.noted(7);
    assert_eq!(whose(&mut table, Some(7), now), "request of B", "the numbers have begun anew");
    assert!(!table.has_turns());
}

#[track_caller]
fn check_turn(open: &[&str], ahead: &[&str], mine: &str, expected: &str) {
    let (mut table, now) = (Table::default(), Instant::now());
    table.whose(None, now);
    for client in open {
        table.sit(&seat(client), now);
    }
    for client in ahead {
        table.line_up(&seat(client), now);
    }
    let number = table.line_up(&seat(mine), now);
    let said = if table.turn(number, now) == Turn::Now { "goes on" } else { "waits" };
    assert_eq!(said, expected, "{open:?} {ahead:?} {mine}");
    assert_eq!(table.turn(number, now + TURN), Turn::Now, "nobody waits for longer");
}

#[test]
fn clients_that_could_be_confused_take_turns() {
    check_turn(&[], &[], "A", "goes on");
    check_turn(&["A", "A"], &[], "A", "goes on");
    check_turn(&["B"], &[], "A", "waits");
    check_turn(&["b"], &[], "A", "waits");
    check_turn(&["A"], &[], "b", "waits");
    check_turn(&["b"], &[], "c", "goes on");
    check_turn(&["A"], &["B"], "A", "waits");
    check_turn(&[], &["B"], "A", "waits");
    check_turn(&["b"], &["c"], "d", "goes on");
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_client_thinks_is_no_cause() {
    let mut table = Table::default();
    let (thinking, working) = (seat("A"), seat("B"));
    table.sit(&thinking, Instant::now());
    table.sit(&working, Instant::now());
    let _open = thinking.open_question();
    assert_eq!(whose(&mut table, None, Instant::now()), "unknown", "it may ask two things at once");
    tokio::time::advance(AFTERMATH).await;
    assert_eq!(whose(&mut table, None, Instant::now()), "B");
    table.leave(&working, End::Done, Instant::now());
    assert_eq!(whose(&mut table, None, Instant::now()), "A", "there is nobody else");
}

#[test]
fn nobody_waits_for_a_person_who_thinks() {
    let (mut table, now) = (Table::default(), Instant::now());
    table.whose(None, now);
    let asked = seat("B");
    table.sit(&asked, now);
    let number = table.line_up(&seat("A"), now);
    assert_ne!(table.turn(number, now), Turn::Now);
    let _open = asked.open_question();
    let since = asked.asked_since().unwrap();
    assert_ne!(table.turn(number, since), Turn::Now, "the answer may come at once");
    assert_eq!(table.turn(number, since + AFTERMATH), Turn::Now);
}

#[test]
fn a_server_that_never_asks_has_no_turns() {
    let (mut table, now) = (Table::default(), Instant::now());
    let open = seat("A");
    table.sit(&open, now);
    let number = table.line_up(&seat("B"), now);
    assert_eq!(table.turn(number, now), Turn::Now);
    table.step_out(number);
    table.leave(&open, End::Done, now);
    assert!(table.is_blank());
}
