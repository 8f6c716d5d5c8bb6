//! Servers from npm and PyPI over HTTP: start, use, restart on the same port, cleanup.

use serde_json::{Value, json};
use toolrack_testkit::{HttpServer, HttpServerKind, skipped};

use crate::http_peer::{HttpPeer, message_of};
use crate::peer::TIMEOUT;

fn start(kind: HttpServerKind, test: &str) -> Option<HttpServer> {
    if let Some(reason) = kind.unavailable_reason() {
        skipped(test, &reason);
        return None;
    }
    Some(HttpServer::start(kind).expect("the server starts"))
}

/// Starts a server, uses it in each revision, restarts it, uses it again, and asserts that no process is left.
fn drive(kind: HttpServerKind, revisions: &[&'static str], tool: &str, test: &str) {
    let Some(server) = start(kind, test) else { return };
    let marker = server.marker().clone();
    let mut peer = HttpPeer::new(server, "");
    let url = peer.server.url();
    let sum = |peer: &mut HttpPeer, revision: &'static str| {
        (peer.revision, peer.session) = (revision, None);
        if revision != "2026-07-28" {
            peer.initialize();
        }
        let answer = peer.call(tool, json!({ "a": 2, "b": 3 }));
        assert!(answer.text().contains('5'), "{answer:?}");
    };
    for revision in revisions {
        sum(&mut peer, revision);
    }
    peer.server.restart().expect("it starts again");
    assert_eq!(peer.server.url(), url);
    sum(&mut peer, revisions[0]);
    drop(peer);
    marker.assert_no_processes_left(TIMEOUT);
}

#[test]
fn scripted_server_restarts_on_its_port() {
    let kind = HttpServerKind::scripted(&["--shape", "dual", "--plan", "tree"]);
    drive(kind, &["2025-11-25", "2026-07-28"], "add", "scripted_server_restarts");
}

#[test]
fn server_everything_works() {
    drive(HttpServerKind::Everything, &["2025-11-25"], "get-sum", "server_everything_works");
}

#[test]
fn mcp_1_works_with_and_without_sessions() {
    drive(HttpServerKind::Mcp1, &["2025-11-25"], "add", "mcp_1_works");
    drive(HttpServerKind::Mcp1Stateless, &["2025-06-18"], "add", "mcp_1_works_without_sessions");
}

#[test]
fn mcp_2_works_in_both_eras() {
    drive(HttpServerKind::Mcp2, &["2025-11-25", "2026-07-28"], "add", "mcp_2_works");
}

#[test]
fn fastmcp_works_in_both_eras() {
    drive(HttpServerKind::FastMcp, &["2025-11-25", "2026-07-28"], "add", "fastmcp_works");
}

#[test]
fn server_everything_supports_http_sse_of_2024() {
    let test = "server_everything_speaks_the_two_endpoints_of_2024";
    let Some(server) = start(HttpServerKind::EverythingSse, test) else { return };
    assert!(server.url().ends_with("/sse"));
    let mut http = crate::http_client::Http::connect(server.address()).expect("it listens");
    http.send("GET", "/sse", &[("accept", "text/event-stream")], b"").expect("sent");
    assert_eq!(http.head().expect("a head").status, 200);
    let event = http.event().expect("a stream").expect("an event");
    assert_eq!(event.name.as_deref(), Some("endpoint"));
}

#[test]
fn pypi_servers_send_progress_and_changes() {
    for kind in [HttpServerKind::Mcp1, HttpServerKind::Mcp2, HttpServerKind::FastMcp] {
        let Some(server) = start(kind.clone(), "pypi_servers_send_progress") else { return };
        let mut peer = HttpPeer::new(server, "2025-11-25");
        peer.initialize();
        let params = json!({ "name": "slow", "arguments": { "steps": 2, "ms": 1 }, "_meta": { "progressToken": 1 } });
        let answer = peer.request("tools/call", params);
        assert_eq!((answer.text(), answer.messages.len()), ("took 2 steps", 3), "{kind:?}");
        let (mut stream, head) = peer.listen(None);
        assert!(head.is_stream(), "{kind:?}");
        let answer = peer.call("grow", json!({ "name": "extra" }));
        assert_eq!(answer.text(), "added extra");
        // The server may send it on the stream of the call or on the GET stream.
        let mut call_text =
            answer.messages.first().cloned().filter(|messages| messages.get("method").is_some());
        while call_text.is_none() {
            let event = stream.event().unwrap_or_else(|fault| panic!("{kind:?}: {fault}"));
            call_text = message_of(&event.expect("an event"));
        }
        let method = call_text.and_then(|call_text| call_text.get("method").cloned());
        assert_eq!(method, Some(json!("notifications/tools/list_changed")), "{kind:?}");
        let listed = peer.request("tools/list", json!({}));
        let tools = listed.response()["result"]["tools"].as_array().cloned().unwrap_or_default();
        assert!(tools.iter().any(|tool: &Value| tool["name"] == json!("extra")), "{kind:?}");
    }
}

#[test]
fn mcp_1_resumes_an_ended_stream() {
    let Some(server) = start(HttpServerKind::Mcp1, "mcp_1_can_end_a_stream") else { return };
    let mut peer = HttpPeer::new(server, "2025-11-25");
    peer.initialize();
    let message =
        peer.build_request("tools/call", json!({ "name": "part", "arguments": { "ms": 50 } }));
    let mut http = peer.begin(&message).expect("sent");
    assert!(http.head().expect("a head").is_stream());
    let mut last = None;
    while let Some(event) = http.event().expect("an end in good order") {
        assert_eq!(message_of(&event), None, "the answer comes later");
        last = event.id.or(last);
    }
    let (mut stream, _) = peer.listen(Some(last.as_deref().expect("an id")));
    let answer = loop {
        let event = stream.event().expect("a stream").expect("an event");
        if let Some(answer) = message_of(&event) {
            break answer;
        }
    };
    assert_eq!(answer["result"]["content"][0]["text"], json!("parted and met again"));
}
