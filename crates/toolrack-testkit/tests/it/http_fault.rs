//! Faults over HTTP, seen by the client.

use std::io;

use serde_json::{Value, json};
use toolrack_testkit::{HttpLog, HttpOutcome, Journal, eventually};

use crate::http_peer::{HttpPeer, HttpReply};
use crate::peer::TIMEOUT;

/// Makes one `echo` call in the modern era.
fn met(plan: &str, reply: &str) -> io::Result<HttpReply> {
    let mut peer = HttpPeer::modern(&["--plan", plan, "--reply", reply]);
    let message =
        peer.build_request("tools/call", json!({ "name": "echo", "arguments": { "text": "x" } }));
    let answer = peer.try_post(&message);
    // The server must survive.
    assert_eq!(peer.request("server/discover", json!({})).head.status, 200, "{plan}");
    answer
}

#[test]
fn planned_statuses_have_their_headers() {
    let check = |plan: &str, status: u16, header: Option<(&str, &str)>| {
        let HttpReply { head, body, .. } = met(plan, "auto").expect(plan);
        assert_eq!((head.status, body.as_slice()), (status, b"".as_slice()), "{plan}");
        if let Some((name, value)) = header {
            assert_eq!(head.header(name), Some(value), "{plan}");
        }
    };
    check("call=status", 503, None);
    check("call=status(429)", 429, None);
    check("call=status(401)", 401, Some(("www-authenticate", "Bearer realm=\"scripted\"")));
    check("call=status(403)", 403, None);
}

#[test]
fn rejected_request_is_not_run() {
    let dir = tempfile::tempdir().expect("a directory");
    for (plan, executions) in [("status(503)", 0), ("error(-32603)", 1)] {
        let path = dir.path().join(plan);
        let file = path.to_str().expect("a name");
        let mut peer = HttpPeer::modern(&["--plan", &format!("call={plan}"), "--journal", file]);
        let arguments = json!({ "text": "x", "nonce": "n" });
        let message =
            peer.build_request("tools/call", json!({ "name": "echo", "arguments": arguments }));
        drop(peer.try_post(&message));
        let journal = Journal::read(&path).expect("a journal");
        assert_eq!(journal.executions("n"), executions, "{plan}");
    }
}

#[test]
fn faults_apply_to_notifications_and_requests() {
    let mut peer = HttpPeer::start(&["--plan", "initialized=status(500)"], "2025-11-25");
    let info = json!({ "name": "it", "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info });
    let answer = peer.request("initialize", params);
    peer.session = answer.head.header("mcp-session-id").map(str::to_owned);
    let call_text = peer.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    assert_eq!(call_text.head.status, 500);

    let mut peer = HttpPeer::modern(&["--plan", "http:1-2=status(503)"]);
    let statuses: Vec<u16> =
        (0..3).map(|_| peer.request("tools/list", json!({})).head.status).collect();
    assert_eq!(statuses, [503, 503, 200]);
}

#[test]
fn message_faults_apply_over_http() {
    for reply in ["json", "sse"] {
        let huge = met("call=huge(1MiB,front)", reply).expect("an answer");
        assert_eq!(huge.text().len(), 1 << 20);
        assert_eq!(met("call=error(-32603)", reply).expect("an answer").code(), Some(-32603));
        assert_eq!(met("call=late(20ms)", reply).expect("an answer").text(), "x");
        assert_eq!(met("call=frame(bytewise)", reply).expect("an answer").text(), "x");
        assert_eq!(
            met("call=shape(null)", reply).expect("an answer").response()["result"],
            Value::Null
        );
    }
    assert_eq!(met("call=dup", "sse").expect("an answer").messages.len(), 2);
    assert_eq!(met("call=notify(3)", "auto").expect("an answer").messages.len(), 4);
    assert_eq!(met("call=notify(3)", "json").expect("an answer").messages.len(), 1);
    let garbage = met("call=garbage(text)", "sse").expect("an answer");
    assert_eq!(garbage.text(), "x");
}

#[test]
fn http_log_records_how_responses_ended() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    let plan = "call:1=status(503)";
    let mut peer = HttpPeer::modern(&["--plan", plan, "--http-log", log.to_str().expect("a name")]);
    for _ in 0..2 {
        let message = peer
            .build_request("tools/call", json!({ "name": "echo", "arguments": { "text": "x" } }));
        drop(peer.try_post(&message));
    }
    let answered = Some(HttpOutcome::Completed);
    let expected = [(Some(503), answered), (Some(200), answered)];
    // The client reads a response before its end is logged.
    eventually(TIMEOUT, "every reply has ended as planned", || {
        let log = HttpLog::read(&log).expect("a log");
        log.with_method("tools/call").map(|method| (method.status, method.outcome)).eq(expected)
    });
}
