//! Who gets what, for every kind of line a server can write.

use std::sync::Mutex;

use proptest::prelude::*;

use super::*;
use crate::timeout::Patience;

/// Writes down what it is given, one entry per call.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Notes {
    fn add(&self, note: String) {
        self.0.lock().unwrap().push(note);
    }
}

fn text(raw: &RawJson) -> String {
    String::from_utf8_lossy(raw.as_bytes()).into_owned()
}

impl Inbox for Notes {
    fn request(&self, id: RequestId, method: &str, params: Option<RawJson>) {
        self.add(format!("request {id} {method} {:?}", params.as_ref().map(text)));
    }

    fn request_about(&self, about: u64, id: RequestId, method: &str, _: Option<RawJson>) {
        self.add(format!("request {id} {method} about {about}"));
    }

    fn notification(&self, method: &str, params: Option<RawJson>) {
        self.add(format!("notification {method} {:?}", params.as_ref().map(text)));
    }

    fn stray(&self, id: Option<RequestId>, outcome: Result<RawJson, JsonRpcError>) {
        self.add(format!("stray {id:?} {}", outcome.is_ok()));
    }

    fn unreadable(&self, sample: &str) {
        self.add(format!("unreadable {sample}"));
    }

    fn ended(&self, ending: &Ending) {
        self.add(format!("ended {ending}"));
    }
}

/// Feeds one line to a line with one open request (id 1) and says what came of it.
#[track_caller]
fn check(line: &str, expected_reply: Option<&str>, expected_notes: &[&str]) {
    let notes = Arc::new(Notes::default());
    let inbound = Inbound::new(Arc::clone(&notes) as Arc<dyn Inbox>);
    let mut ticket = inbound.claim(Patience::endless().begin()).unwrap();
    inbound.accept(line.as_bytes());
    let waker = std::task::Waker::noop();
    let polled = std::pin::Pin::new(&mut ticket).poll(&mut std::task::Context::from_waker(waker));
    let reply = match polled {
        std::task::Poll::Ready(Ok(Ok(result))) => Some(text(&result)),
        std::task::Poll::Ready(Ok(Err(error))) => Some(format!("error: {error}")),
        std::task::Poll::Ready(Err(ending)) => Some(format!("ended: {ending}")),
        std::task::Poll::Pending => None,
    };
    assert_eq!(reply.as_deref(), expected_reply, "{line}");
    assert_eq!(*notes.0.lock().unwrap(), expected_notes, "{line}");
}

#[test]
fn answers_go_to_the_one_who_waits() {
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
fn an_error_without_an_id_is_for_the_only_request() {
    check(
        r#"{"id":null,"error":{"code":-32700,"message":"what"}}"#,
        Some("error: JSON-RPC error -32700: what"),
        &[],
    );
}

#[test]
fn a_malformed_answer_fails_its_call_at_once() {
    check(
        r#"{"id":1,"result":1,"error":{"code":1,"message":""}}"#,
        Some("error: malformed answer: neither a request, a notification nor an answer"),
        &[r#"unreadable {"id":1,"result":1,"error":{"code":1,"message":""}}"#],
    );
}

#[test]
fn unasked_messages_go_to_the_inbox() {
    check(r#"{"id":1,"method":"ping"}"#, None, &["request 1 ping None"]);
    check(r#"{"method":"x","params":[1]}"#, None, &[r#"notification x Some("[1]")"#]);
    check(r#"{"id":2,"result":{}}"#, None, &["stray Some(Number(2)) true"]);
    check(r#"{"id":"x","error":{"code":1}}"#, None, &[r#"stray Some(Text("x")) false"#]);
}

#[test]
fn what_comes_beside_an_answer_is_known_to_belong_to_it() {
    let notes = Arc::new(Notes::default());
    let inbound = Inbound::new(Arc::clone(&notes) as Arc<dyn Inbox>);
    for line in [r#"{"id":1,"method":"ping"}"#, r#"{"method":"x"}"#, "oops"] {
        inbound.accept_beside(7, &Bytes::from_static(line.as_bytes()));
    }
    let expected = ["request 1 ping about 7", "notification x None", "unreadable oops"];
    assert_eq!(*notes.0.lock().unwrap(), expected);
}

#[test]
fn what_is_no_message_is_counted_and_shown() {
    check("Server listening\u{1b}[0m", None, &["unreadable Server listening"]);
    check("{\"id\":1,", None, &["unreadable {\"id\":1,"]);
    check("[1, 2]", None, &["unreadable 1", "unreadable 2"]);
}

#[test]
fn a_batch_is_taken_message_by_message() {
    check(
        r#"[{"method":"x"},{"id":1,"result":{}},{"id":9}]"#,
        Some("{}"),
        &["notification x None", r#"unreadable {"id":9}"#],
    );
}

#[test]
fn an_oversize_answer_fails_the_call_it_belongs_to() {
    let inbound = Inbound::new(Arc::new(Notes::default()));
    let mut first = inbound.claim(Patience::endless().begin()).unwrap();
    let _second = inbound.claim(Patience::endless().begin()).unwrap();
    assert_eq!(
        inbound.oversize(br#"{"jsonrpc":"2.0","id":1,"result":{"#, b"xx", 10),
        Heard::Answer
    );
    let waker = std::task::Waker::noop();
    let polled = std::pin::Pin::new(&mut first).poll(&mut std::task::Context::from_waker(waker));
    assert!(matches!(
        polled,
        std::task::Poll::Ready(Ok(Err(TransportError::Oversize { limit_bytes: 10 })))
    ));
    let note = br#"{"method":"notifications/message","params":"#;
    assert_eq!(inbound.oversize(note, b"xx", 10), Heard::Other, "that was nobody's answer");
    assert_eq!(inbound.oversize(b"xxxx", b"xx", 10), Heard::Answer, "only one is left waiting");
    assert_eq!(inbound.tally().diagnosis().oversize, 3);
}

#[test]
fn the_end_comes_once_and_last() {
    let notes = Arc::new(Notes::default());
    let inbound = Inbound::new(Arc::clone(&notes) as Arc<dyn Inbox>);
    inbound.end(&Ending::OutputClosed);
    inbound.end(&Ending::Closed);
    inbound.accept(br#"{"method":"after"}"#);
    assert_eq!(*notes.0.lock().unwrap(), ["ended the server closed its output"]);
    assert!(inbound.claim(Patience::endless().begin()).is_err());
}

proptest! {
    #[test]
    fn no_line_panics_or_ends_the_line(line in proptest::collection::vec(any::<u8>(), 0..300)) {
        let inbound = Inbound::new(Arc::new(Notes::default()));
        inbound.accept(&line);
        inbound.accept_owned(&Bytes::from(line));
        prop_assert!(inbound.claim(Patience::endless().begin()).is_ok());
    }
}
