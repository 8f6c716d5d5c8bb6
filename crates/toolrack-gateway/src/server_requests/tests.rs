//! Ownership of server requests, and turns of clients.

use toolrack_transport::Redactor;

use super::*;
use crate::message_queue::{Replay, StreamContent};
use crate::params::Params;

/// A request of the client with this name. Clients with upper-case names support server requests.
fn request(client: &str) -> Arc<ActiveRequest> {
    let supports_sampling = client.chars().all(char::is_uppercase);
    let capabilities = if supports_sampling { r#"{"sampling":{}}"# } else { "{}" };
    let text = format!(r#"{{"protocolVersion":"2025-11-25","capabilities":{capabilities}}}"#);
    let params = Params::parse(Some(text.as_bytes())).unwrap();
    let info = Arc::new(ClientInfo::from_initialize(params).unwrap());
    let queue = MessageQueue::new(Replay::No, StreamContent::All, &Redactor::default());
    let log_filter = LogFilter::Request(None);
    let scope = Arc::new(Scope::Server("s".to_owned()));
    let sink = NotificationSink { queue, scope, progress_token: None, log_filter };
    let channel = ClientChannel::InputRequired(mpsc::channel(1).0);
    ActiveRequest::new((info, ClientId::Forwarded(client.into())), sink, channel)
}

/// Adds a request and makes it active.
fn start(queue: &mut ServerQueue, request: &Arc<ActiveRequest>, now: Instant) -> u64 {
    let ticket = queue.add(request, now);
    queue.activate(ticket, now);
    ticket
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
        let ticket = start(&mut queue, &request(client), now);
        queue.remove(ticket, Delivery::Unknown, now);
    }
    for client in active {
        start(&mut queue, &request(client), now);
    }
    assert_eq!(owner(&mut queue, None, now), expected, "{active:?} {cancelled:?}");
    assert!(queue.sends_unattributed && !queue.is_unused(), "the server request is remembered");
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
    let (router, now) = (ServerRequestRouter::new(), Instant::now());
    let with_queue = |action: &dyn Fn(&mut ServerQueue)| router.with_queue("s", action);
    let cancel = |delivery: Delivery| {
        with_queue(&|queue| {
            let ticket = start(queue, &request("B"), now);
            queue.remove(ticket, delivery, now);
        });
    };
    let check = |now: Instant, expected: &str| {
        assert_eq!(router.with_queue("s", |queue| owner(queue, None, now)), expected);
    };
    cancel(Delivery::Unknown);
    with_queue(&|queue| assert_ne!(start(queue, &request("A"), now), 0));
    check(now, "ambiguous");
    check(now + GRACE, "A");
    cancel(Delivery::Unknown);
    check(now, "ambiguous");
    router.server_restarted("s");
    check(now, "A");
    cancel(Delivery::Answered);
    check(now, "A");
}

#[test]
fn attributed_server_request_needs_no_turns() {
    let (mut queue, now) = (ServerQueue::default(), Instant::now());
    let (a, b) = (request("A"), request("B"));
    start(&mut queue, &a, now);
    start(&mut queue, &b, now);
    a.record_sent(7);
    b.record_sent(8);
    assert_eq!(owner(&mut queue, Some(7), now), "request of A");
    assert_eq!(owner(&mut queue, Some(8), now), "request of B");
    assert_eq!(owner(&mut queue, Some(9), now), "none");
    b.record_sent(7);
    assert_eq!(owner(&mut queue, Some(7), now), "request of B", "the ids have restarted");
    assert!(!queue.sends_unattributed);
}

/// A queue of a server that has sent an unattributed request.
fn queue_with_turns(now: Instant) -> ServerQueue {
    let mut queue = ServerQueue::default();
    assert!(matches!(queue.owner_of_request(None, now), RequestOwner::None));
    queue
}

#[track_caller]
fn check_turn(active: &[&str], ahead: &[&str], own: &str, expected: &str) {
    let now = Instant::now();
    let mut queue = queue_with_turns(now);
    for client in active {
        start(&mut queue, &request(client), now);
    }
    for client in ahead {
        queue.add(&request(client), now);
    }
    let ticket = queue.add(&request(own), now);
    let turn = if queue.wait_until(ticket, now).is_none() { "proceeds" } else { "waits" };
    assert_eq!(turn, expected, "{active:?} {ahead:?} {own}");
    assert_eq!(queue.wait_until(ticket, now + MAX_TURN), None, "waits no longer");
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
    start(&mut queue, &idle, Instant::now());
    let busy = start(&mut queue, &busy, Instant::now());
    let _asked = idle.begin_server_request();
    let now = Instant::now();
    assert_eq!(owner(&mut queue, None, now), "ambiguous", "two requests may come together");
    tokio::time::advance(GRACE).await;
    assert_eq!(owner(&mut queue, None, Instant::now()), "B");
    queue.remove(busy, Delivery::Answered, Instant::now());
    assert_eq!(owner(&mut queue, None, Instant::now()), "A", "no other is active");
}

#[test]
fn no_turn_waits_for_a_person() {
    let now = Instant::now();
    let mut queue = queue_with_turns(now);
    let active = request("B");
    start(&mut queue, &active, now);
    let ticket = queue.add(&request("A"), now);
    assert_ne!(queue.wait_until(ticket, now), None);
    let _asked = active.begin_server_request();
    let since = active.awaiting_client_since().unwrap();
    assert_ne!(queue.wait_until(ticket, since), None, "the response may come at once");
    assert_eq!(queue.wait_until(ticket, since + GRACE), None);
}

#[test]
fn server_that_sends_no_requests_has_no_turns() {
    let (mut queue, now) = (ServerQueue::default(), Instant::now());
    let active = queue.add(&request("A"), now);
    let ticket = queue.add(&request("B"), now);
    assert_eq!(queue.wait_until(ticket, now), None);
    queue.remove(ticket, Delivery::Answered, now);
    queue.remove(active, Delivery::Answered, now);
    assert!(queue.is_unused());
}

#[test]
fn request_that_gives_up_while_waiting_is_not_cancelled() {
    let now = Instant::now();
    let mut queue = queue_with_turns(now);
    start(&mut queue, &request("A"), now);
    let ticket = queue.add(&request("B"), now);
    queue.remove(ticket, Delivery::Unknown, now);
    assert_eq!(owner(&mut queue, None, now), "A", "the server never got the other request");
}

#[test]
fn whole_numbers_have_no_fraction() {
    let check = |value: f64, expected: &str| assert_eq!(number(value).to_string(), expected);
    check(50.0, "50");
    check(-3.0, "-3");
    check(0.5, "0.5");
    check(1e300, "1e+300");
}

#[test]
fn log_messages_are_filtered_by_session_or_request() {
    let level = Arc::new(Mutex::new(None));
    let session = LogFilter::Session(Arc::clone(&level));
    let admits_or = |filter: &LogFilter, level, default_level| {
        filter.lowest_or(default_level).is_some_and(|lowest| level >= lowest)
    };
    let admits = |filter: &LogFilter, level| admits_or(filter, level, LogLevel::Info);
    assert!(admits_or(&session, LogLevel::Debug, LogLevel::Debug));
    assert!(!admits(&session, LogLevel::Debug) && admits(&session, LogLevel::Info));
    *level.lock() = Some(LogLevel::Error);
    assert!(!admits(&session, LogLevel::Info) && admits(&session, LogLevel::Alert));
    assert!(!admits(&LogFilter::Request(None), LogLevel::Emergency));
    assert!(admits(&LogFilter::Request(Some(LogLevel::Info)), LogLevel::Info));
}

#[test]
fn log_message_names_its_server() {
    let message: LogMessage =
        serde_json::from_str(r#"{"level":"info","logger":"db","data":{ "a":1 }}"#).unwrap();
    let check = |scope: &Scope, expected: &str| {
        let text = log_notification("git", &message, scope);
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(text.contains(expected), "{text}");
    };
    check(&Scope::Server("git".to_owned()), r#""logger":"db","data":{ "a":1 }"#);
    check(&Scope::All, r#""logger":"git/db""#);
}
