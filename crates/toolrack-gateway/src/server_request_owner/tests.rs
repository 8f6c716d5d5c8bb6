//! Ownership of server requests, and turns of clients.

use toolrack_transport::Redactor;

use super::*;
use crate::active_request::NotificationSink;
use crate::gateway::Naming;
use crate::message_queue::{MessageQueue, Replay};
use crate::params::{ClientInfo, Params};
use crate::subscriptions::LogFilter;

/// A request of the client with this name. Clients with upper-case names support server requests.
fn request(client: &str) -> Arc<ActiveRequest> {
    let supports_sampling = client.chars().all(char::is_uppercase);
    let capabilities = if supports_sampling { r#"{"sampling":{}}"# } else { "{}" };
    let text = format!(r#"{{"protocolVersion":"2025-11-25","capabilities":{capabilities}}}"#);
    let params = Params::parse(Some(text.as_bytes())).unwrap();
    let info = ClientInfo::from_initialize(&params).unwrap();
    let queue = Arc::new(MessageQueue::new(Replay::No, &Redactor::default()));
    let log_filter = LogFilter::Request(None);
    let sink = NotificationSink { queue, progress_token: None, log_filter };
    ActiveRequest::new((Arc::new(info), ClientId::forwarded(client)), sink, Naming::Raw).0
}

fn owner(queue: &mut ServerQueue, about: Option<u64>, now: Instant) -> String {
    match queue.owner_of_request(about, now) {
        RequestOwner::Request(request) => format!("request of {}", request.client_id),
        RequestOwner::Client(client_id) => client_id.to_string(),
        RequestOwner::None => "none".to_owned(),
        RequestOwner::Ambiguous => "ambiguous".to_owned(),
    }
}

#[track_caller]
fn check_owner(active: &[&str], cancelled: &[&str], expected: &str) {
    let (mut queue, now) = (ServerQueue::default(), Instant::now());
    for client in cancelled {
        let request = request(client);
        queue.start(&request, now);
        queue.finish(&request, Completion::Unknown, now);
    }
    for client in active {
        queue.start(&request(client), now);
    }
    assert_eq!(owner(&mut queue, None, now), expected, "{active:?} {cancelled:?}");
    assert!(queue.takes_turns() && !queue.is_unused(), "the server request is remembered");
}

#[test]
fn server_request_belongs_to_a_client_only_if_unambiguous() {
    check_owner(&[], &[], "none");
    check_owner(&["A"], &[], "A");
    check_owner(&["A", "A"], &[], "A");
    check_owner(&["A", "B"], &[], "ambiguous");
    check_owner(&["A", "b"], &[], "ambiguous");
    check_owner(&["b"], &[], "b");
    check_owner(&["A"], &["B"], "ambiguous");
    check_owner(&["A"], &["A"], "A");
    check_owner(&["A"], &["B", "C", "A"], "ambiguous");
    check_owner(&[], &["B"], "none");
}

#[test]
fn cancelled_requests_are_forgotten_after_grace_or_restart() {
    let (mut queue, now) = (ServerQueue::default(), Instant::now());
    let (cancelled, active) = (request("B"), request("A"));
    queue.start(&cancelled, now);
    queue.finish(&cancelled, Completion::Unknown, now);
    queue.start(&active, now);
    assert_eq!(owner(&mut queue, None, now), "ambiguous");
    assert_eq!(owner(&mut queue, None, now + GRACE), "A");
    queue.finish(&cancelled, Completion::Unknown, now);
    queue.server_restarted();
    assert_eq!(owner(&mut queue, None, now), "A");
    queue.finish(&cancelled, Completion::Done, now);
    assert_eq!(owner(&mut queue, None, now), "A", "the server has responded");
}

#[test]
fn attributed_server_request_needs_no_turns() {
    let (mut queue, now) = (ServerQueue::default(), Instant::now());
    let (a, b) = (request("A"), request("B"));
    queue.start(&a, now);
    queue.start(&b, now);
    a.record_sent(7);
    b.record_sent(8);
    assert_eq!(owner(&mut queue, Some(7), now), "request of A");
    assert_eq!(owner(&mut queue, Some(8), now), "request of B");
    assert_eq!(owner(&mut queue, Some(9), now), "none");
    b.record_sent(7);
    assert_eq!(owner(&mut queue, Some(7), now), "request of B", "the ids have restarted");
    assert!(!queue.takes_turns());
}

#[track_caller]
fn check_turn(active: &[&str], ahead: &[&str], own: &str, expected: &str) {
    let (mut queue, now) = (ServerQueue::default(), Instant::now());
    queue.owner_of_request(None, now);
    for client in active {
        queue.start(&request(client), now);
    }
    for client in ahead {
        queue.enqueue(&request(client), now);
    }
    let ticket = queue.enqueue(&request(own), now);
    let turn = if queue.turn(ticket, now) == Turn::Now { "proceeds" } else { "waits" };
    assert_eq!(turn, expected, "{active:?} {ahead:?} {own}");
    assert_eq!(queue.turn(ticket, now + MAX_TURN), Turn::Now, "waits no longer");
}

#[test]
fn clients_that_could_be_confused_take_turns() {
    check_turn(&[], &[], "A", "proceeds");
    check_turn(&["A", "A"], &[], "A", "proceeds");
    check_turn(&["B"], &[], "A", "waits");
    check_turn(&["b"], &[], "A", "waits");
    check_turn(&["A"], &[], "b", "waits");
    check_turn(&["b"], &[], "c", "proceeds");
    check_turn(&["A"], &["B"], "A", "waits");
    check_turn(&[], &["B"], "A", "waits");
    check_turn(&["b"], &["c"], "d", "proceeds");
}

#[tokio::test(start_paused = true)]
async fn request_that_awaits_its_client_is_no_cause() {
    let mut queue = ServerQueue::default();
    let (idle, busy) = (request("A"), request("B"));
    queue.start(&idle, Instant::now());
    queue.start(&busy, Instant::now());
    let _asked = idle.begin_server_request();
    let now = Instant::now();
    assert_eq!(owner(&mut queue, None, now), "ambiguous", "two requests may come together");
    tokio::time::advance(GRACE).await;
    assert_eq!(owner(&mut queue, None, Instant::now()), "B");
    queue.finish(&busy, Completion::Done, Instant::now());
    assert_eq!(owner(&mut queue, None, Instant::now()), "A", "no other is active");
}

#[test]
fn no_turn_waits_for_a_person() {
    let (mut queue, now) = (ServerQueue::default(), Instant::now());
    queue.owner_of_request(None, now);
    let active = request("B");
    queue.start(&active, now);
    let ticket = queue.enqueue(&request("A"), now);
    assert_ne!(queue.turn(ticket, now), Turn::Now);
    let _asked = active.begin_server_request();
    let since = active.awaiting_client_since().unwrap();
    assert_ne!(queue.turn(ticket, since), Turn::Now, "the response may come at once");
    assert_eq!(queue.turn(ticket, since + GRACE), Turn::Now);
}

#[test]
fn server_that_sends_no_requests_has_no_turns() {
    let (mut queue, now) = (ServerQueue::default(), Instant::now());
    let active = request("A");
    queue.start(&active, now);
    let ticket = queue.enqueue(&request("B"), now);
    assert_eq!(queue.turn(ticket, now), Turn::Now);
    queue.dequeue(ticket);
    queue.finish(&active, Completion::Done, now);
    assert!(queue.is_unused());
}
