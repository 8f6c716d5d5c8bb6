//! 2026-07-28 over HTTP: stateless requests, header checks, cancellation by disconnect.

use serde_json::{Value, json};
use toolrack_testkit::{HttpLog, HttpOutcome, Journal, eventually};

use crate::http_peer::{HttpPeer, message_of};
use crate::peer::TIMEOUT;
use crate::schema;

#[test]
fn modern_revision_is_schema_valid_over_http() {
    for reply in ["json", "sse", "auto"] {
        let mut peer = HttpPeer::modern(&["--reply", reply, "--header-tools", "all"]);
        let discovered = peer.request("server/discover", json!({}));
        assert_eq!(discovered.response()["result"]["supportedVersions"], json!(["2026-07-28"]));
        assert_eq!(discovered.head.is_stream(), reply == "sse");
        for (method, params) in [
            ("tools/list", json!({})),
            ("resources/read", json!({ "uri": "test://readme" })),
            ("prompts/get", json!({ "name": "plain" })),
        ] {
            let answer = peer.request(method, params);
            assert_eq!(answer.head.status, 200, "{method}");
            assert!(answer.response().get("result").is_some(), "{method}: {answer:?}");
        }
        assert_eq!(peer.call("add", json!({ "a": 1, "b": 2 })).text(), "3");
        let arguments = json!({ "name": "progress", "arguments": { "steps": 2 }, "_meta": { "progressToken": "t" } });
        let answer = peer.request("tools/call", arguments);
        assert_eq!(answer.text(), "took 2 steps");
        assert_eq!(answer.messages.len(), if reply == "json" { 1 } else { 3 });
        schema::assert_all_valid(
            &peer.received,
            &peer.sent_requests,
            "2026-07-28",
            "modern_revision_over_http",
        );
    }
}

#[test]
fn errors_have_their_http_status() {
    let mut peer = HttpPeer::modern(&[]);
    let check = |peer: &mut HttpPeer, message: Value, status: u16, code: i64| {
        let answer = peer.post(&message);
        assert_eq!((answer.head.status, answer.code()), (status, Some(code)), "{message}");
    };
    let unknown = peer.build_request("nothing/here", json!({}));
    check(&mut peer, unknown, 404, -32601);
    let initialize = peer.build_request("initialize", json!({ "protocolVersion": "2025-11-25" }));
    check(&mut peer, initialize, 400, -32022);
    let mut naked = peer.build_request("tools/list", json!({}));
    naked["params"]["_meta"] = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28" });
    check(&mut peer, naked, 400, -32602);
    let force = peer
        .build_request("tools/call", json!({ "name": "ask", "arguments": { "kind": "sampling" } }));
    check(&mut peer, force, 400, -32021);
    // An unknown tool is not a bad request.
    let unknown_tool = peer.build_request("tools/call", json!({ "name": "stranger" }));
    check(&mut peer, unknown_tool, 200, -32602);
    peer.revision = "2031-01-01";
    let mut future = peer.build_request("server/discover", json!({}));
    future["params"] = json!({ "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2031-01-01",
        "io.modelcontextprotocol/clientCapabilities": {},
    } });
    let headers = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2031-01-01"),
        ("mcp-method", "server/discover"),
    ];
    let mut http = peer.connect();
    http.send("POST", "/mcp", &headers, future.to_string().as_bytes()).expect("sent");
    let answer = crate::http_peer::read_reply(&mut http).expect("a reply");
    assert_eq!((answer.head.status, answer.code()), (400, Some(-32022)));
}

#[test]
fn mismatched_headers_are_rejected() {
    let mut peer = HttpPeer::modern(&["--header-tools", "valid"]);
    let message =
        peer.build_request("tools/call", json!({ "name": "echo", "arguments": { "text": "x" } }));
    let right = peer.headers(&message);
    let check = |wrong: &str, value: Option<&str>, expected: (u16, Option<i64>)| {
        let mut headers: Vec<(&str, &str)> =
            right.iter().map(|(a, b)| (*a, b.as_str())).filter(|(a, _)| *a != wrong).collect();
        headers.extend(value.map(|value| (wrong, value)));
        let mut http = peer.connect();
        http.send("POST", "/mcp", &headers, message.to_string().as_bytes()).expect("sent");
        let answer = crate::http_peer::read_reply(&mut http).expect("a reply");
        assert_eq!((answer.head.status, answer.code()), expected, "{wrong}: {value:?}");
    };
    check("mcp-name", Some("echo"), (200, None));
    check("mcp-name", Some("=?base64?ZWNobw==?="), (200, None));
    check("mcp-name", None, (400, Some(-32020)));
    check("mcp-method", Some("tools/list"), (400, Some(-32020)));
    check("mcp-protocol-version", None, (400, Some(-32020)));
    check("mcp-protocol-version", Some("2025-11-25"), (400, Some(-32020)));
    check("accept", Some("application/json"), (406, Some(-32000)));
    check("content-type", Some("text/plain"), (415, Some(-32000)));
}

#[test]
fn disconnect_cancels_the_call() {
    let dir = tempfile::tempdir().expect("a directory");
    let (journal, log) = (dir.path().join("journal"), dir.path().join("log"));
    let files = [
        "--journal",
        journal.to_str().expect("a name"),
        "--http-log",
        log.to_str().expect("a name"),
    ];
    for reply in ["sse", "json"] {
        let mut peer = HttpPeer::modern(&[&files[..], &["--reply", reply]].concat());
        let arguments = json!({ "ms": 60_000, "nonce": reply });
        let message =
            peer.build_request("tools/call", json!({ "name": "sleep", "arguments": arguments }));
        let http = peer.begin(&message).expect("sent");
        let read = || Journal::read(&journal).expect("a journal");
        eventually(TIMEOUT, "the call is run", || read().executions(reply) == 1);
        assert_eq!(read().cancellations(reply), 0);
        drop(http);
        eventually(TIMEOUT, "the call is cancelled", || read().cancellations(reply) == 1);
        let ended = || {
            HttpLog::read(&log)
                .expect("a log")
                .requests
                .last()
                .and_then(|requests| requests.outcome)
        };
        eventually(TIMEOUT, "the log tells of it", || ended() == Some(HttpOutcome::ClientClosed));
    }
}

#[test]
fn listen_stream_sends_changes_until_it_ends() {
    let mut peer = HttpPeer::modern(&[]);
    let wanted = json!({ "notifications": { "toolsListChanged": true } });
    let message = peer.build_request("subscriptions/listen", wanted);
    let mut stream = peer.begin(&message).expect("sent");
    assert!(stream.head().expect("a head").is_stream());
    let mut next = || message_of(&stream.event().expect("a stream").expect("an event"));
    let acknowledged = next().expect("a message");
    assert_eq!(acknowledged["method"], json!("notifications/subscriptions/acknowledged"));
    assert_eq!(peer.call("mutate_tools", json!({})).text(), "added extra_1");
    let changed = next().expect("a message");
    assert_eq!(changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], message["id"]);
    assert_eq!(peer.call("end_listens", json!({})).text(), "ended 1");
    let result = next().expect("a message");
    assert_eq!(result["id"], message["id"]);
    assert_eq!(stream.event().expect("the end"), None);
    peer.received.extend([acknowledged, changed, result]);
    schema::assert_all_valid(
        &peer.received,
        &peer.sent_requests,
        "2026-07-28",
        "a_listen_stream_tells_of_changes",
    );
    // A closed stream gets no more notifications.
    let message = peer.build_request("subscriptions/listen", json!({ "notifications": {} }));
    drop(peer.begin(&message).expect("sent"));
    eventually(TIMEOUT, "no listener is left", || {
        peer.call("end_listens", json!({})).text() == "ended 0"
    });
}

#[test]
fn hundreds_of_requests_are_served_concurrently() {
    let mut peer = HttpPeer::modern(&[]);
    let arguments = json!({ "name": "sleep", "arguments": { "ms": 300 } });
    let open: Vec<_> = (0..300)
        .map(|_| {
            let message = peer.build_request("tools/call", arguments.clone());
            (peer.begin(&message).expect("sent"), message)
        })
        .collect();
    for (mut http, message) in open {
        let answer = crate::http_peer::read_reply(&mut http).expect("a reply");
        assert_eq!((answer.text(), &answer.response()["id"]), ("slept 300 ms", &message["id"]));
    }
}

#[test]
fn connection_serves_many_requests() {
    let mut peer = HttpPeer::modern(&[]);
    let mut http = peer.connect();
    for number in 0..50 {
        let arguments = json!({ "text": number.to_string() });
        let message =
            peer.build_request("tools/call", json!({ "name": "echo", "arguments": arguments }));
        let headers = peer.headers(&message);
        let headers: Vec<(&str, &str)> = headers.iter().map(|(a, b)| (*a, b.as_str())).collect();
        http.send("POST", "/mcp", &headers, message.to_string().as_bytes()).expect("sent");
        let answer = crate::http_peer::read_reply(&mut http).expect("a reply");
        assert_eq!(answer.text(), number.to_string());
    }
}
