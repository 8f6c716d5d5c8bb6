//! Faults over HTTP, seen by the client.

use std::io::{self, Read};
use std::time::Duration;

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use toolrack_testkit::{HttpLog, HttpOutcome, Journal, eventually};

use crate::http_peer::{HttpPeer, HttpReply, message_of, read_reply};
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
    let check = |plan: &str, status: u16, header: Option<(&str, &str)>, body: &str| {
        let HttpReply { head, body: seen, .. } = met(plan, "auto").expect(plan);
        assert_eq!(
            (head.status, String::from_utf8_lossy(&seen).as_ref()),
            (status, body),
            "{plan}"
        );
        if let Some((name, value)) = header {
            assert_eq!(head.header(name), Some(value), "{plan}");
        }
    };
    check("call=status(503,2s)", 503, Some(("retry-after", "2")), "");
    check("call=status(429)", 429, None, "");
    check("call=status(401)", 401, Some(("www-authenticate", "Bearer realm=\"scripted\"")), "");
    check("call=status(403)", 403, None, "");
    check("call=redirect", 307, Some(("location", "/mcp/moved")), "");
    check("call=redirect(same,308)", 308, Some(("location", "/mcp/moved")), "");
    check("call=empty", 200, Some(("content-type", "application/json")), "");
    check(
        "call=status(400)+error(-32000)",
        400,
        Some(("content-type", "application/json")),
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"the plan says so"}}"#,
    );
    let page = met("call=type(html)", "auto").expect("a page");
    assert_eq!(page.head.header("content-type"), Some("text/html; charset=utf-8"));
    let plain = met("call=type(text)", "auto").expect("an answer");
    assert_eq!((plain.head.header("content-type"), plain.text()), (Some("text/plain"), "x"));
    assert_eq!(
        met("call=type(none)", "auto").expect("an answer").head.header("content-type"),
        None
    );
}

#[test]
fn rejected_request_is_not_run() {
    let dir = tempfile::tempdir().expect("a directory");
    for (plan, executions) in [("status(503)", 0), ("redirect", 0), ("drop", 1), ("cut(3)", 1)] {
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
fn redirects_lead_to_their_targets() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    let file = log.to_str().expect("a name");
    let mut peer = HttpPeer::modern(&[
        "--plan",
        "call:1=redirect(other); call:2=redirect(loop)",
        "--http-log",
        file,
    ]);
    let message =
        peer.build_request("tools/call", json!({ "name": "echo", "arguments": { "text": "x" } }));
    let other = peer.post(&message).head.header("location").map(str::to_owned).expect("a location");
    let authority = other.trim_start_matches("http://").trim_end_matches("/mcp");
    assert_ne!(authority, peer.server.address().to_string());
    assert_eq!(peer.post(&message).head.header("location"), Some(peer.server.url().as_str()));
    // The other origin is the same server, so its log shows the headers of the client.
    let headers = peer.headers(&message);
    let mut headers: Vec<(&str, &str)> = headers.iter().map(|(a, b)| (*a, b.as_str())).collect();
    headers.push(("authorization", "Bearer secret"));
    let address = authority.parse().expect("an address");
    let mut http = crate::http_client::Http::connect(address).expect("it listens");
    http.send("POST", "/mcp/moved", &headers, message.to_string().as_bytes()).expect("sent");
    assert_eq!(read_reply(&mut http).expect("a reply").text(), "x");
    let log = HttpLog::read(&log).expect("a log");
    let seen = log.requests.last().expect("a request");
    assert_eq!(seen.headers.get("authorization").map(String::as_str), Some("Bearer secret"));
    assert_eq!(seen.method.as_deref(), Some("tools/call"));
}

#[test]
fn responses_are_cut_as_planned() {
    let check = |plan: &str, reply: &str, expected: io::ErrorKind| {
        let error = met(plan, reply).expect_err(plan);
        assert_eq!(error.kind(), expected, "{plan} as {reply}: {error}");
    };
    for reply in ["json", "sse"] {
        check("call=drop", reply, io::ErrorKind::UnexpectedEof);
        check("call=reset", reply, io::ErrorKind::ConnectionReset);
        check("call=cut(0)", reply, io::ErrorKind::UnexpectedEof);
        check("call=cut(20)", reply, io::ErrorKind::UnexpectedEof);
        check("call=cut(answer)", reply, io::ErrorKind::UnexpectedEof);
    }
    let ended = met("call=end", "sse").expect("an end in good order");
    assert_eq!((ended.head.status, ended.messages.len()), (200, 0));
}

#[test]
fn mute_response_has_no_head() {
    for reply in ["json", "sse"] {
        let mut peer = HttpPeer::modern(&["--plan", "call=mute", "--reply", reply]);
        let message = peer
            .build_request("tools/call", json!({ "name": "echo", "arguments": { "text": "x" } }));
        let http = peer.begin(&message).expect("sent");
        http.stream().set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        let read = http.stream().read(&mut [0]);
        assert_eq!(read.map_err(|error| error.kind()), Err(io::ErrorKind::WouldBlock));
        assert_eq!(peer.request("tools/list", json!({})).head.status, 200);
    }
}

#[test]
fn faults_apply_to_notifications_and_streams() {
    let mut peer = HttpPeer::start(&["--plan", "initialized=status(500)"], "2025-11-25");
    let info = json!({ "name": "it", "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info });
    let answer = peer.request("initialize", params);
    peer.session = answer.head.header("mcp-session-id").map(str::to_owned);
    let call_text = peer.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    assert_eq!(call_text.head.status, 500);

    let peer =
        HttpPeer::legacy(&["--plan", "stream:1=status(405); stream:2=end; delete=status(405)"]);
    assert_eq!(peer.listen(None).1.status, 405);
    let (mut closed, head) = peer.listen(None);
    assert!(head.is_stream());
    while closed.event().expect("an end in good order").is_some() {}
    assert!(peer.listen(None).1.is_stream());
    assert_eq!(peer.delete().status, 405);

    let mut peer = HttpPeer::modern(&["--plan", "http:1-2=status(503)"]);
    let statuses: Vec<u16> =
        (0..3).map(|_| peer.request("tools/list", json!({})).head.status).collect();
    assert_eq!(statuses, [503, 503, 200]);
}

#[test]
fn response_may_come_on_the_get_stream() {
    let mut peer = HttpPeer::legacy(&["--plan", "call=elsewhere"]);
    let (mut stream, _) = peer.listen(None);
    stream.event().expect("a stream");
    let posted = peer.call("echo", json!({ "text": "x" }));
    assert_eq!((posted.head.status, posted.messages.len()), (202, 0));
    let event = stream.event().expect("a stream").expect("an event");
    let answer = message_of(&event).expect("a message");
    assert_eq!(answer["result"]["content"][0]["text"], json!("x"));
}

#[test]
fn response_can_drip() {
    for reply in ["json", "sse"] {
        let answer = met("call=drip(7,1ms)", reply).expect("an answer");
        assert_eq!(answer.text(), "x");
    }
}

#[test]
fn responses_can_be_compressed_and_bombs() {
    for reply in ["json", "sse"] {
        let mut peer = HttpPeer::modern(&["--plan", "call=gzip", "--reply", reply]);
        let message = peer
            .build_request("tools/call", json!({ "name": "echo", "arguments": { "text": "x" } }));
        let mut http = peer.begin(&message).expect("sent");
        let head = http.head().expect("a head");
        assert_eq!(head.header("content-encoding"), Some("gzip"));
        let unpacked = unpack(&http.body(&head).expect("a body"));
        assert!(unpacked.contains(r#""text":"x""#), "{unpacked}");
    }
    let mut peer = HttpPeer::modern(&["--plan", "call=gzip(64MiB)"]);
    let message =
        peer.build_request("tools/call", json!({ "name": "echo", "arguments": { "text": "x" } }));
    let mut http = peer.begin(&message).expect("sent");
    let head = http.head().expect("a head");
    let packed = http.body(&head).expect("a body");
    assert!(packed.len() < 1 << 20, "{} bytes", packed.len());
    let unpacked = unpack(&packed);
    assert!(unpacked.len() > 64 << 20, "{} bytes", unpacked.len());
    let answer: Value = serde_json::from_str(&unpacked).expect("a message");
    assert_eq!(answer["id"], message["id"]);
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
    let plan = "call:1=cut(3); call:2=status(503)";
    let mut peer = HttpPeer::modern(&["--plan", plan, "--http-log", log.to_str().expect("a name")]);
    for _ in 0..3 {
        let message = peer
            .build_request("tools/call", json!({ "name": "echo", "arguments": { "text": "x" } }));
        drop(peer.try_post(&message));
    }
    let (answered, cut) = (Some(HttpOutcome::Completed), Some(HttpOutcome::Cut));
    let expected = [(Some(200), cut), (Some(503), answered), (Some(200), answered)];
    // The client reads a response before its end is logged.
    eventually(TIMEOUT, "every reply has ended as planned", || {
        let log = HttpLog::read(&log).expect("a log");
        log.with_method("tools/call").map(|method| (method.status, method.outcome)).eq(expected)
    });
}

fn unpack(bytes: &[u8]) -> String {
    let mut text = String::new();
    GzDecoder::new(bytes).read_to_string(&mut text).expect("gzip");
    text
}
