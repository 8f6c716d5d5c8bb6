//! Routing of every kind of line that a server can write.

use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;
use crate::timeout::RequestTimeout;

/// Records its calls.
#[derive(Default)]
struct RecordingHandler(Mutex<Vec<String>>);

impl RecordingHandler {
    fn record(&self, call: String) {
        self.0.lock().push(call);
    }
}

fn text(raw: &RawJson) -> String {
    String::from_utf8_lossy(raw.as_bytes()).into_owned()
}

impl IncomingHandler for RecordingHandler {
    fn on_request(&self, id: RequestId, method: &str, params: Option<RawJson>) {
        self.record(format!("request {id} {method} {:?}", params.as_ref().map(text)));
    }

    fn on_related_request(&self, related_id: u64, id: RequestId, method: &str, _: Option<RawJson>) {
        self.record(format!("request {id} {method} for {related_id}"));
    }

    fn on_notification(&self, method: &str, params: Option<RawJson>) {
        self.record(format!("notification {method} {:?}", params.as_ref().map(text)));
    }

    fn on_unmatched_response(&self, id: Option<RequestId>, outcome: Result<RawJson, JsonRpcError>) {
        self.record(format!("unmatched {id:?} {}", outcome.is_ok()));
    }

    fn on_unreadable(&self, sample: &str) {
        self.record(format!("unreadable {sample}"));
    }

    fn on_close(&self, reason: &CloseReason) {
        self.record(format!("closed: {reason}"));
    }
}

/// Routes one line while request 1 is pending, and checks its response and the calls of the handler.
#[track_caller]
fn check(line: &str, expected_response: Option<&str>, expected_calls: &[&str]) {
    let handler = Arc::new(RecordingHandler::default());
    let router =
        MessageRouter::new(Arc::clone(&handler) as Arc<dyn IncomingHandler>, Redactor::default());
    let mut response = router.pending.register(RequestTimeout::unlimited().start()).unwrap();
    router.route(line.as_bytes());
    let waker = std::task::Waker::noop();
    let polled = std::pin::Pin::new(&mut response).poll(&mut std::task::Context::from_waker(waker));
    let outcome = match polled {
        std::task::Poll::Ready(Ok(Ok(result))) => Some(text(&result)),
        std::task::Poll::Ready(Ok(Err(error))) => Some(format!("error: {error}")),
        std::task::Poll::Ready(Err(reason)) => Some(format!("closed: {reason}")),
        std::task::Poll::Pending => None,
    };
    assert_eq!(outcome.as_deref(), expected_response, "{line}");
    assert_eq!(*handler.0.lock(), expected_calls, "{line}");
}

#[test]
fn responses_complete_their_requests() {
    check(r#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#, Some(r#"{"a":1}"#), &[]);
    check(r#"{"jsonrpc":"2.0","id":"1","result":7}"#, Some("7"), &[]);
    check(r#"{"jsonrpc":"2.0","id":1.0,"result":null}"#, Some("null"), &[]);
    check("\u{feff}{\"id\":1,\"result\":7}\r", Some("7"), &[]);
    check("\r", None, &[]);
    check(
        r#"{"id":1,"error":{"code":-32601,"message":"no"}}"#,
        Some("error: JSON-RPC error -32601: no"),
        &[],
    );
}

#[test]
fn error_without_id_completes_the_only_request() {
    check(
        r#"{"id":null,"error":{"code":-32700,"message":"what"}}"#,
        Some("error: JSON-RPC error -32700: what"),
        &[],
    );
}

#[test]
fn malformed_response_fails_its_request() {
    check(
        r#"{"id":1,"result":1,"error":{"code":1,"message":""}}"#,
        Some("error: failed to parse response: neither a request, a notification nor a response"),
        &[r#"unreadable {"id":1,"result":1,"error":{"code":1,"message":""}}"#],
    );
}

#[test]
fn other_messages_go_to_the_handler() {
    check(r#"{"id":1,"method":"ping"}"#, None, &["request 1 ping None"]);
    check(r#"{"method":"x","params":[1]}"#, None, &[r#"notification x Some("[1]")"#]);
    check(r#"{"id":2,"result":{}}"#, None, &["unmatched Some(Number(2)) true"]);
    check(r#"{"id":"x","error":{"code":1}}"#, None, &[r#"unmatched Some(Text("x")) false"#]);
}

#[test]
fn related_request_names_its_request() {
    let handler = Arc::new(RecordingHandler::default());
    let router =
        MessageRouter::new(Arc::clone(&handler) as Arc<dyn IncomingHandler>, Redactor::default());
    for line in [r#"{"id":1,"method":"ping"}"#, r#"{"method":"x"}"#, "oops"] {
        router.route_related(7, &Bytes::from_static(line.as_bytes()));
    }
    let expected = ["request 1 ping for 7", "notification x None", "unreadable oops"];
    assert_eq!(*handler.0.lock(), expected);
}

#[test]
fn unreadable_lines_are_counted_and_reported() {
    check("Server listening\u{1b}[0m", None, &["unreadable Server listening"]);
    check("{\"id\":1,", None, &["unreadable {\"id\":1,"]);
    check("[1, 2]", None, &["unreadable 1", "unreadable 2"]);
}

#[test]
fn batch_messages_are_routed_one_by_one() {
    check(
        r#"[{"method":"x"},{"id":1,"result":{}},{"id":9}]"#,
        Some("{}"),
        &["notification x None", r#"unreadable {"id":9}"#],
    );
}

#[test]
fn oversize_response_fails_its_request() {
    let router = MessageRouter::new(Arc::new(RecordingHandler::default()), Redactor::default());
    let mut first = router.pending.register(RequestTimeout::unlimited().start()).unwrap();
    let _second = router.pending.register(RequestTimeout::unlimited().start()).unwrap();
    assert_eq!(
        router.route_oversize(br#"{"jsonrpc":"2.0","id":1,"result":{"#, b"xx", 10),
        Routed::Response
    );
    let waker = std::task::Waker::noop();
    let polled = std::pin::Pin::new(&mut first).poll(&mut std::task::Context::from_waker(waker));
    assert!(matches!(
        polled,
        std::task::Poll::Ready(Ok(Err(TransportError::Oversize { limit_bytes: 10 })))
    ));
    let notification = br#"{"method":"notifications/message","params":"#;
    assert_eq!(router.route_oversize(notification, b"xx", 10), Routed::Other, "not a response");
    assert_eq!(
        router.route_oversize(b"xxxx", b"xx", 10),
        Routed::Response,
        "only one request is pending"
    );
    assert_eq!(router.counters().stats().oversize, 3);
}

#[test]
fn close_is_reported_once_and_last() {
    let handler = Arc::new(RecordingHandler::default());
    let router =
        MessageRouter::new(Arc::clone(&handler) as Arc<dyn IncomingHandler>, Redactor::default());
    router.close(&CloseReason::OutputClosed);
    router.close(&CloseReason::Closed);
    router.route(br#"{"method":"after"}"#);
    assert_eq!(*handler.0.lock(), ["closed: the server closed its output"]);
    assert!(router.pending.register(RequestTimeout::unlimited().start()).is_err());
}

proptest! {
    #[test]
    fn no_line_panics_or_closes_the_router(line in proptest::collection::vec(any::<u8>(), 0..300)) {
        let router = MessageRouter::new(Arc::new(RecordingHandler::default()), Redactor::default());
        router.route(&line);
        router.route_owned(&Bytes::from(line));
        prop_assert!(router.pending.register(RequestTimeout::unlimited().start()).is_ok());
    }
}
