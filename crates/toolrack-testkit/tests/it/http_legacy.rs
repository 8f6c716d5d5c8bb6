//! Legacy HTTP transports: sessions, streams and resumption of 2025, and HTTP+SSE of 2024-11-05.

use serde_json::{Value, json};
use toolrack_testkit::{HttpLog, Journal, eventually};

use crate::http_client::Http;
use crate::http_peer::{HttpPeer, message_of, read_reply};
use crate::peer::TIMEOUT;
use crate::schema;

#[test]
fn session_lasts_from_initialize_to_delete() {
    for revision in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        for reply in ["json", "sse", "auto"] {
            let mut peer = HttpPeer::start(&["--revision", revision, "--reply", reply], revision);
            peer.initialize();
            assert!(peer.session.is_some());
            assert_eq!(peer.request("tools/list", json!({})).head.status, 200);
            assert_eq!(peer.call("echo", json!({ "text": "hi" })).text(), "hi");
            schema::assert_all_valid(
                &peer.received,
                &peer.sent_requests,
                revision,
                "session_lasts",
            );
            assert_eq!(peer.delete().status, 200);
            let gone = peer.request("tools/list", json!({}));
            assert_eq!((gone.head.status, gone.code()), (404, Some(-32001)));
        }
    }
}

#[test]
fn requests_need_session_and_revision_headers() {
    let mut peer = HttpPeer::legacy(&[]);
    let session = peer.session.take();
    let check = |peer: &mut HttpPeer, status: u16| {
        assert_eq!(peer.request("tools/list", json!({})).head.status, status);
    };
    check(&mut peer, 400);
    peer.session = Some("stranger".to_owned());
    check(&mut peer, 404);
    peer.session = session;
    peer.revision = "2025-06-18";
    check(&mut peer, 400);
    peer.revision = "1999-01-01";
    check(&mut peer, 400);
    peer.revision = "2025-11-25";
    check(&mut peer, 200);
    assert_eq!(peer.listen(Some("9-9")).1.status, 400);
}

#[test]
fn get_stream_carries_unsolicited_messages() {
    for reply in ["json", "sse"] {
        let mut peer = HttpPeer::legacy(&["--reply", reply]);
        let (mut stream, head) = peer.listen(None);
        assert!(head.is_stream());
        let first = stream.event().expect("a stream").expect("an event");
        assert_eq!((first.id.as_deref(), first.data.join("")), (Some("0-0"), String::new()));
        assert_eq!(peer.call("mutate_tools", json!({})).text(), "added extra_1");
        let event = stream.event().expect("a stream").expect("an event");
        let call_text = message_of(&event).expect("a message");
        assert_eq!(call_text["method"], json!("notifications/tools/list_changed"));
        assert_eq!(event.id.as_deref(), Some("0-1"));
    }
}

#[test]
fn server_request_is_answered_by_a_post() {
    for reply in ["json", "auto"] {
        let mut peer = HttpPeer::legacy(&["--reply", reply]);
        let (mut aside, _) = peer.listen(None);
        aside.event().expect("a stream");
        let message = peer.build_request(
            "tools/call",
            json!({ "name": "ask", "arguments": { "kind": "roots" } }),
        );
        let mut http = peer.begin(&message).expect("sent");
        // A JSON response cannot carry a request, so that comes on the GET stream.
        let event = if reply == "json" {
            aside.event()
        } else {
            http.head().expect("a head");
            assert_eq!(http.event().expect("a stream").expect("an event").data, [""]);
            http.event()
        };
        let sent_requests =
            message_of(&event.expect("a stream").expect("an event")).expect("a message");
        assert_eq!(sent_requests["method"], json!("roots/list"));
        let result =
            json!({ "jsonrpc": "2.0", "id": sent_requests["id"], "result": { "roots": [] } });
        assert_eq!(peer.post(&result).head.status, 202);
        let answer = if reply == "json" {
            read_reply(&mut http).expect("a reply").response().clone()
        } else {
            message_of(&http.event().expect("a stream").expect("an event")).expect("a message")
        };
        assert_eq!(answer["result"]["content"][0]["text"], json!(r#"{"result":{"roots":[]}}"#));
    }
}

#[test]
fn broken_stream_is_resumed() {
    let mut peer = HttpPeer::legacy(&["--reply", "sse"]);
    let arguments = json!({ "ms": 200 });
    let message =
        peer.build_request("tools/call", json!({ "name": "sleep", "arguments": arguments }));
    let mut http = peer.begin(&message).expect("sent");
    http.head().expect("a head");
    let first = http.event().expect("a stream").expect("an event");
    drop(http);
    let (mut stream, _) = peer.listen(Some(first.id.as_deref().expect("an id")));
    let event = stream.event().expect("a stream").expect("an event");
    let answer = message_of(&event).expect("a message");
    assert_eq!(answer["id"], message["id"]);
    assert_eq!(stream.event().expect("the end"), None);
    // Everything after an event is sent again, also when the response has ended.
    let (mut stream, _) = peer.listen(Some(first.id.as_deref().expect("an id")));
    let again = stream.event().expect("a stream").expect("an event");
    assert_eq!(message_of(&again).expect("a message"), answer);
    assert_eq!(stream.event().expect("the end"), None);
}

#[test]
fn disconnect_does_not_cancel_but_a_notification_does() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("journal");
    let mut peer =
        HttpPeer::legacy(&["--reply", "sse", "--journal", path.to_str().expect("a name")]);
    let read = || Journal::read(&path).expect("a journal");
    let arguments = json!({ "ms": 60_000, "nonce": "a" });
    let message =
        peer.build_request("tools/call", json!({ "name": "sleep", "arguments": arguments }));
    let http = peer.begin(&message).expect("sent");
    eventually(TIMEOUT, "the call is run", || read().executions("a") == 1);
    drop(http);
    assert_eq!(peer.call("echo", json!({ "text": "x" })).text(), "x");
    assert_eq!(read().cancellations("a"), 0);
    let params = json!({ "requestId": message["id"] });
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
    assert_eq!(peer.post(&cancel).head.status, 202);
    assert_eq!(read().cancellations("a"), 1);
}

#[test]
fn legacy_server_may_be_stateless() {
    let args = ["--shape", "stateless", "--revision", "2025-06-18"];
    let mut peer = HttpPeer::start(&args, "2025-06-18");
    peer.initialize();
    assert_eq!(peer.session, None);
    assert_eq!(peer.call("echo", json!({ "text": "hi" })).text(), "hi");
    assert_eq!(peer.listen(None).1.status, 405);
    let probe = json!({ "jsonrpc": "2.0", "id": 9, "method": "server/discover", "params": {} });
    let answer = peer.post(&probe);
    assert_eq!((answer.head.status, answer.code()), (200, Some(-32601)));
}

#[test]
fn dual_server_serves_both_eras_at_one_url() {
    let mut peer = HttpPeer::start(&["--shape", "dual"], "2025-11-25");
    peer.initialize();
    assert_eq!(peer.call("echo", json!({ "text": "old" })).text(), "old");
    (peer.revision, peer.session) = ("2026-07-28", None);
    assert_eq!(peer.request("server/discover", json!({})).head.status, 200);
    assert_eq!(peer.call("echo", json!({ "text": "new" })).text(), "new");
}

#[test]
fn http_sse_of_2024_works() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    let args = ["--shape", "sse", "--http-log", log.to_str().expect("a name")];
    let mut peer = HttpPeer::start(&args, "2024-11-05");
    let (mut stream, head) = peer.listen(None);
    assert!(head.is_stream());
    let event = stream.event().expect("a stream").expect("an event");
    assert_eq!(event.name.as_deref(), Some("endpoint"));
    let target = event.data.join("");
    assert!(target.starts_with("/messages?"), "{target}");
    let post = |peer: &HttpPeer, message: &Value| {
        let mut http: Http = peer.connect();
        let headers = [("content-type", "application/json")];
        http.send("POST", &target, &headers, message.to_string().as_bytes()).expect("sent");
        http.head().expect("a head").status
    };
    for (method, params) in [
        ("initialize", json!({ "protocolVersion": "2024-11-05", "capabilities": {} })),
        ("tools/list", json!({})),
        ("tools/call", json!({ "name": "echo", "arguments": { "text": "hi" } })),
    ] {
        let message = peer.build_request(method, params);
        assert_eq!(post(&peer, &message), 202);
        let event = stream.event().expect("a stream").expect("an event");
        assert_eq!(event.name.as_deref(), Some("message"));
        let answer = message_of(&event).expect("a message");
        assert_eq!(answer["id"], message["id"]);
        peer.received.push(answer);
    }
    schema::assert_all_valid(
        &peer.received,
        &peer.sent_requests,
        "2024-11-05",
        "http_sse_of_2024_works",
    );
    let message = peer.build_request("tools/list", json!({}));
    assert_eq!(peer.post(&message).head.status, 405);
    drop(stream);
    eventually(TIMEOUT, "a lost stream is a lost session", || post(&peer, &message) == 404);
    assert!(HttpLog::read(&log).expect("a log").with_verb("GET").count() == 1);
}
