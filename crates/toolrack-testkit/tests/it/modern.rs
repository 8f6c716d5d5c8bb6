//! Correct behavior in 2026-07-28: discovery, `_meta`, input rounds, listen streams, cache hints.

use serde_json::{Value, json};

use crate::peer::{Peer, texts};
use crate::schema;

#[test]
fn modern_revision_is_schema_valid() {
    let mut peer = Peer::modern(&["--tools", "2", "--page-size", "10"]);
    let discovered = peer.request("server/discover", json!({}));
    assert_eq!(discovered["result"]["supportedVersions"], json!(["2026-07-28"]));
    let page = peer.request("tools/list", json!({}));
    peer.request("tools/list", json!({ "cursor": page["result"]["nextCursor"] }));
    for (method, params) in [
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({ "uri": "test://logo" })),
        ("prompts/list", json!({})),
        ("prompts/get", json!({ "name": "plain" })),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/resource", "uri": "test://echo/{text}" }, "argument": { "name": "text", "value": "gr" } }),
        ),
    ] {
        let response = peer.request(method, params);
        assert!(response.get("result").is_some(), "{method}: {response}");
    }
    assert_eq!(peer.call_text("echo", json!({ "text": "hi", "nonce": "n" })), json!(["hi", "n"]));
    assert_eq!(peer.call_text("add", json!({ "a": 1, "b": 2 })), json!("3"));
    assert_eq!(peer.call_text("fail", json!({})), json!("this tool always fails"));
    assert_eq!(peer.call_text("log", json!({})), json!("sent 0"));
    let id = peer.send(
        "tools/call",
        json!({ "name": "log", "_meta": { "io.modelcontextprotocol/logLevel": "info" } }),
    );
    assert_eq!(texts(&peer.response_to(&id)), json!("sent 1"));
    let id = peer.send(
        "tools/call",
        json!({ "name": "progress", "arguments": { "steps": 2 }, "_meta": { "progressToken": 7 } }),
    );
    assert_eq!(texts(&peer.response_to(&id)), json!("took 2 steps"));
    for kind in ["roots", "sampling", "elicitation", "state"] {
        play_rounds(&mut peer, kind, 2);
    }
    schema::assert_valid(&peer, "2026-07-28", "modern_revision");
    peer.finish();
}

/// Answers `input_required` until the tool returns its result.
fn play_rounds(peer: &mut Peer, kind: &str, rounds: u64) {
    let arguments = json!({ "kind": kind, "rounds": rounds });
    let mut params = json!({ "name": "ask", "arguments": arguments });
    for _ in 0..rounds {
        let result = peer.request("tools/call", params.clone())["result"].clone();
        assert_eq!(result["resultType"], json!("input_required"), "{kind}: {result}");
        assert_eq!(result.get("inputRequests").is_some(), kind != "state");
        params["requestState"] = result["requestState"].clone();
        if kind != "state" {
            params["inputResponses"] = json!({ "answer": { "mine": kind } });
        }
    }
    let last = peer.request("tools/call", params);
    let expected = if kind == "state" { Value::Null } else { json!({ "mine": kind }) };
    let call_text: Value =
        serde_json::from_str(texts(&last).as_str().expect("text")).expect("JSON");
    assert_eq!(call_text, json!({ "result": expected }));
}

#[test]
fn changed_state_is_rejected_and_missing_input_is_requested_again() {
    let mut peer = Peer::modern(&[]);
    let mut params = json!({ "name": "ask", "arguments": { "kind": "roots" } });
    let first = peer.request("tools/call", params.clone())["result"].clone();
    let state = first["requestState"].as_str().expect("a state").to_owned();

    params["requestState"] = json!(state);
    let again = peer.request("tools/call", params.clone())["result"].clone();
    assert_eq!(again, first);

    params["requestState"] = json!(state.trim_end_matches('>'));
    params["inputResponses"] = json!({ "answer": { "roots": [] } });
    let refused = peer.request("tools/call", params);
    let error = (refused["error"]["code"].clone(), refused["error"]["message"].clone());
    assert_eq!(error, (json!(-32602), json!("`requestState` was not echoed byte for byte")));
    peer.finish();
}

#[test]
fn modern_errors_have_their_codes() {
    let mut peer = Peer::scripted(&["--revision", "2026-07-28"]);
    let check = |peer: &mut Peer, method: &str, params: Value, code: i64| {
        let response = peer.request(method, params);
        assert_eq!(response.pointer("/error/code"), Some(&json!(code)), "{method}: {response}");
    };
    let meta = |version: &str| {
        json!({ "_meta": {
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientCapabilities": {},
        }})
    };
    check(&mut peer, "initialize", json!({ "protocolVersion": "2025-11-25" }), -32022);
    check(&mut peer, "tools/list", json!({}), -32602);
    check(&mut peer, "server/discover", meta("2031-01-01"), -32022);
    check(&mut peer, "ping", meta("2026-07-28"), -32601);
    let mut undeclared = meta("2026-07-28");
    undeclared["name"] = json!("ask");
    undeclared["arguments"] = json!({ "kind": "roots" });
    check(&mut peer, "tools/call", undeclared.clone(), -32021);
    undeclared["arguments"]["force"] = json!(true);
    let forced = peer.request("tools/call", undeclared);
    assert_eq!(forced["result"]["resultType"], json!("input_required"));
    peer.use_modern();
    check(&mut peer, "resources/read", json!({ "uri": "test://none" }), -32602);
    check(&mut peer, "subscriptions/listen", json!({}), -32602);
    schema::assert_valid(&peer, "2026-07-28", "modern_refusals_carry_their_codes");
    peer.finish();
}

#[test]
fn listen_streams_carry_their_subscriptions_until_they_end() {
    let mut peer = Peer::modern(&[]);
    let both = json!({ "toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["test://counter"] });
    let first = peer.send("subscriptions/listen", json!({ "notifications": both }));
    let acknowledged = peer.message();
    let granted = json!({ "toolsListChanged": true, "resourceSubscriptions": ["test://counter"] });
    assert_eq!(acknowledged["params"]["notifications"], granted);
    let tools = json!({ "toolsListChanged": true });
    let second = peer.send("subscriptions/listen", json!({ "notifications": tools }));
    peer.message();

    peer.call_text("mutate_tools", json!({}));
    peer.call_text("touch", json!({ "uri": "test://counter" }));
    peer.notify("notifications/cancelled", json!({ "requestId": first }));
    peer.call_text("mutate_tools", json!({}));
    assert_eq!(peer.call_text("end_listens", json!({ "how": "result" })), json!("ended 1"));
    peer.call_text("mutate_tools", json!({}));

    let subscription = "io.modelcontextprotocol/subscriptionId";
    let seen: Vec<(Value, Value)> = peer
        .received
        .iter()
        .filter(|received| received.get("method").is_some())
        .map(|received| {
            (received["method"].clone(), received["params"]["_meta"][subscription].clone())
        })
        .collect();
    let row = |method: &str, id: &Value| (json!(format!("notifications/{method}")), id.clone());
    assert_eq!(
        seen,
        [
            row("subscriptions/acknowledged", &first),
            row("subscriptions/acknowledged", &second),
            row("tools/list_changed", &first),
            row("tools/list_changed", &second),
            row("resources/updated", &first),
            row("tools/list_changed", &second),
        ]
    );
    let ended =
        peer.received.iter().find(|received| received.get("id") == Some(&second)).expect("an end");
    assert_eq!(ended["result"]["_meta"][subscription], second);
    schema::assert_valid(&peer, "2026-07-28", "listen_streams");
    peer.finish();
}

#[test]
fn server_may_cancel_a_listen_stream() {
    let mut peer = Peer::modern(&[]);
    let id = peer.send("subscriptions/listen", json!({ "notifications": {} }));
    peer.message();
    assert_eq!(peer.call_text("end_listens", json!({ "how": "cancelled" })), json!("ended 1"));
    let cancelled = &peer.received[1];
    let seen = (cancelled["method"].clone(), cancelled["params"]["requestId"].clone());
    assert_eq!(seen, (json!("notifications/cancelled"), id));
    peer.finish();
}

#[test]
fn dual_server_serves_both_eras_over_stdio() {
    let mut peer = Peer::scripted(&["--revision", "dual"]);
    peer.initialize("2025-06-18");
    let legacy =
        peer.request("tools/call", json!({ "name": "echo", "arguments": { "text": "old" } }));
    assert_eq!(legacy["result"], json!({ "content": [{ "type": "text", "text": "old" }] }));
    peer.use_modern();
    let discovered = peer.request("server/discover", json!({}));
    let versions = discovered["result"]["supportedVersions"].as_array().map(Vec::len);
    assert_eq!(versions, Some(5));
    let modern =
        peer.request("tools/call", json!({ "name": "echo", "arguments": { "text": "new" } }));
    assert_eq!(modern["result"]["resultType"], json!("complete"));
    peer.finish();
}
