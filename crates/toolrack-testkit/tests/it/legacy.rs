//! Correct behavior in the legacy era: every method and tool, in each of its four revisions.

use serde_json::{Value, json};
use toolrack_testkit::{Journal, JournalEvent, eventually};

use crate::peer::{Peer, TIMEOUT, texts};
use crate::schema;

#[test]
fn every_legacy_revision_is_schema_valid() {
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut peer = Peer::scripted(&["--revision", revision, "--tools", "3"]);
        let response = peer.initialize(revision);
        assert_eq!(response.pointer("/result/protocolVersion"), Some(&json!(revision)));
        use_everything(&mut peer, revision);
        schema::assert_valid(&peer, revision, "every_legacy_revision_works");
        peer.finish();
    }
}

fn use_everything(peer: &mut Peer, revision: &str) {
    peer.request("ping", json!({}));
    peer.request("tools/list", json!({}));
    for (method, params) in [
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({ "uri": "test://readme" })),
        ("resources/read", json!({ "uri": "test://logo" })),
        ("resources/read", json!({ "uri": "test://echo/hi" })),
        ("resources/subscribe", json!({ "uri": "test://counter" })),
        ("prompts/list", json!({})),
        ("prompts/get", json!({ "name": "greeting", "arguments": { "name": "Ada" } })),
        ("logging/setLevel", json!({ "level": "warning" })),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "greeting" }, "argument": { "name": "name", "value": "a" } }),
        ),
    ] {
        let response = peer.request(method, params);
        assert!(response.get("result").is_some(), "{revision} {method}: {response}");
    }
    assert_eq!(
        peer.call_text("echo", json!({ "text": "é\"\n", "nonce": "n1" })),
        json!(["é\"\n", "n1"])
    );
    assert_eq!(peer.call_text("add", json!({ "a": 1, "b": 2.5 })), json!("3.5"));
    assert_eq!(peer.call_text("sleep", json!({ "ms": 1 })), json!("slept 1 ms"));
    assert_eq!(peer.call_text("fail", json!({ "text": "no" })), json!("no"));
    assert_eq!(peer.call_text("tool_00002", json!({})), json!("tool_00002"));
    assert_eq!(
        peer.call_text("log", json!({ "level": "error", "text": "x", "count": 2 })),
        json!("sent 2")
    );
    assert_eq!(peer.call_text("log", json!({ "level": "info" })), json!("sent 0"));
    assert_eq!(peer.call_text("mutate_tools", json!({ "add": "new" })), json!("added new"));
    assert_eq!(peer.call_text("new", json!({})), json!("new"));
    assert_eq!(peer.call_text("mutate_tools", json!({ "remove": "new" })), json!("removed new"));
    assert_eq!(
        peer.call_text("touch", json!({ "uri": "test://counter" })),
        json!("touched test://counter")
    );
    let id = peer.send(
        "tools/call",
        json!({ "name": "progress", "arguments": { "steps": 3 }, "_meta": { "progressToken": "p" } }),
    );
    assert_eq!(texts(&peer.response_to(&id)), json!("took 3 steps"));
    let kinds: &[&str] = if revision < "2025-06-18" {
        &["ping", "roots", "sampling"]
    } else {
        &["ping", "roots", "sampling", "elicitation"]
    };
    for kind in kinds {
        assert_eq!(ask_back(peer, kind), json!(r#"{"result":{"mine":1}}"#), "{kind}");
    }
    let methods = |name: &str| {
        peer.received.iter().filter(|received| received["method"] == json!(name)).count()
    };
    let call_text = [
        "notifications/message",
        "notifications/progress",
        "notifications/tools/list_changed",
        "notifications/resources/updated",
    ];
    assert_eq!(call_text.map(methods), [2, 3, 2, 1]);
}

/// Calls `ask`, answers the server's request, and returns the tool's result.
fn ask_back(peer: &mut Peer, kind: &str) -> Value {
    let id = peer.call("ask", json!({ "kind": kind }));
    let request = peer.message();
    peer.write(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": { "mine": 1 } }));
    texts(&peer.response_to(&id))
}

#[test]
fn legacy_errors_have_their_codes() {
    let mut peer = Peer::scripted(&[]);
    let check = |peer: &mut Peer, method: &str, params: Value, code: i64| {
        let response = peer.request(method, params);
        assert_eq!(response.pointer("/error/code"), Some(&json!(code)), "{method}: {response}");
    };
    check(&mut peer, "tools/list", json!({}), -32600);
    check(&mut peer, "server/discover", json!({}), -32601);
    peer.initialize("2025-11-25");
    check(&mut peer, "server/discover", json!({}), -32601);
    check(&mut peer, "no/such", json!({}), -32601);
    check(&mut peer, "tools/call", json!({ "name": "nobody" }), -32602);
    check(&mut peer, "tools/call", json!({ "name": "sleep", "arguments": {} }), -32602);
    check(&mut peer, "tools/list", json!({ "cursor": "x" }), -32602);
    check(&mut peer, "resources/read", json!({ "uri": "test://none" }), -32002);
    check(&mut peer, "prompts/get", json!({ "name": "greeting" }), -32602);
    check(&mut peer, "logging/setLevel", json!({ "level": "loud" }), -32602);
    peer.write_raw(b"not a message\n\n");
    assert_eq!(peer.message().pointer("/error/code"), Some(&json!(-32700)));
    schema::assert_valid(&peer, "2025-11-25", "refusals_carry_the_codes_of_their_revision");
    peer.finish();
}

#[test]
fn tool_pages_make_the_whole_list() {
    let mut whole = Peer::legacy(&["--tools", "20"]);
    let all = whole.request("tools/list", json!({}))["result"]["tools"].clone();
    assert_eq!(all.as_array().map(Vec::len), Some(34));
    whole.finish();

    let mut paged = Peer::legacy(&["--tools", "20", "--page-size", "7", "--schema-bytes", "4KiB"]);
    let (mut names, mut params, mut n_pages) = (Vec::new(), json!({}), 0);
    let largest = loop {
        let result = paged.request("tools/list", params)["result"].clone();
        names.extend(
            result["tools"].as_array().expect("a list").iter().map(|tools| tools["name"].clone()),
        );
        n_pages += 1;
        match result.get("nextCursor") {
            Some(cursor) => params = json!({ "cursor": cursor }),
            None => break result["tools"][0]["inputSchema"].to_string().len(),
        }
    };
    let expected: Vec<Value> =
        all.as_array().expect("a list").iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!((names, n_pages), (expected, 5));
    assert!(largest >= 4096, "{largest}");
    paged.finish();
}

#[test]
fn big_results_have_the_requested_size() {
    let mut peer = Peer::legacy(&[]);
    for (bytes, escapes) in [(0, false), (1 << 20, false), (100_001, true)] {
        let text = peer.call_text("big", json!({ "bytes": bytes, "escapes": escapes }));
        assert_eq!(text.as_str().map(str::len), Some(bytes));
    }
    peer.finish();
}

#[test]
fn cancelled_call_gets_no_response_and_is_journaled() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("journal");
    let file = path.to_str().expect("a name");
    let mut peer = Peer::legacy(&["--journal", file, "--plan", "call:3=hang"]);
    let pid = peer.child.id();
    let sleeping = peer.call("sleep", json!({ "ms": 60_000, "nonce": "s" }));
    let stepping = peer.send(
        "tools/call",
        json!({ "name": "progress", "arguments": { "steps": 100_000, "ms": 60_000, "nonce": "p" } }),
    );
    let hanging = peer.call("echo", json!({ "text": "h", "nonce": "h" }));
    for id in [&sleeping, &stepping, &hanging] {
        peer.notify("notifications/cancelled", json!({ "requestId": id }));
    }
    peer.notify("notifications/cancelled", json!({ "requestId": 999 }));
    peer.assert_quiet();
    let journal = Journal::read(&path).expect("a journal");
    let seen: Vec<(JournalEvent, Option<&str>, u64, u32)> = journal
        .records
        .iter()
        .map(|record| (record.event, record.nonce.as_deref(), record.call, record.pid))
        .collect();
    let row = |event, nonce, call| (event, nonce, call, pid);
    assert_eq!(
        seen,
        [
            row(JournalEvent::Executed, Some("s"), 1),
            row(JournalEvent::Executed, Some("p"), 2),
            row(JournalEvent::Executed, Some("h"), 3),
            row(JournalEvent::Cancelled, Some("s"), 1),
            row(JournalEvent::Cancelled, Some("p"), 2),
            row(JournalEvent::Cancelled, Some("h"), 3),
            row(JournalEvent::Executed, None, 4),
        ]
    );
    peer.finish();
}

#[test]
fn cancelling_a_call_cancels_its_client_request() {
    let mut peer = Peer::legacy(&[]);
    let id = peer.call("ask", json!({ "kind": "roots" }));
    let request = peer.message();
    peer.notify("notifications/cancelled", json!({ "requestId": id }));
    let taken_back = peer.message();
    assert_eq!(taken_back["method"], json!("notifications/cancelled"));
    assert_eq!(taken_back["params"]["requestId"], request["id"]);
    peer.write(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": {} }));
    peer.assert_quiet();
    peer.finish();
}

#[test]
fn client_error_is_returned_by_the_tool() {
    let mut peer = Peer::legacy(&[]);
    let id = peer.call("ask", json!({ "kind": "sampling" }));
    let request = peer.message();
    let error = json!({ "code": -32601, "message": "no" });
    peer.write(&json!({ "jsonrpc": "2.0", "id": request["id"], "error": error }));
    let call_text = texts(&peer.response_to(&id));
    assert_eq!(call_text, json!(r#"{"error":{"code":-32601,"message":"no"}}"#));
    peer.finish();
}

#[test]
fn server_reports_its_process() {
    let mut peer = Peer::legacy(&["--marker", "visible"]);
    let (variable, value) = peer.marker.env_var();
    let value = value.to_owned();
    let environment: Value = parse(&peer.call_text("env", json!({})));
    assert_eq!(environment[variable], json!(value));
    let descriptors = parse(&peer.call_text("fds", json!({})));
    // A test harness may pass on more than these three, but all three are pipes of this test.
    let is_pipe = |fd: &str| {
        descriptors[fd].as_str().is_some_and(|descriptors| descriptors.starts_with("pipe:"))
    };
    assert_eq!(["0", "1", "2"].map(is_pipe), [true; 3], "{descriptors}");
    assert!(!descriptors.to_string().contains("/proc/"), "{descriptors}");
    let process = parse(&peer.call_text("pid", json!({})));
    let expected = (json!(peer.child.id()), json!(std::process::id()));
    assert_eq!((process["pid"].clone(), process["parent"].clone()), expected);
    let survivors = peer.marker.survivors();
    assert_eq!(survivors.len(), 1, "{survivors:?}");
    assert!(survivors[0].command_line.ends_with("scripted-server --marker visible"));
    peer.finish();
}

#[test]
fn dual_server_negotiates_the_requested_revision() {
    for (sent_requests, agreed) in [("2024-11-05", "2024-11-05"), ("2030-01-01", "2025-11-25")] {
        let mut peer = Peer::scripted(&["--revision", "dual"]);
        let response = peer.initialize(sent_requests);
        assert_eq!(response["result"]["protocolVersion"], json!(agreed));
        assert_eq!(peer.call_text("echo", json!({ "text": "hi" })), json!("hi"));
        peer.finish();
    }
}

#[test]
fn invalid_plan_exits_with_a_reason() {
    let mut peer = Peer::scripted(&["--plan", "explode"]);
    assert_eq!(peer.exit().code(), Some(2));
    let output = String::from_utf8(peer.stderr()).expect("text");
    assert!(output.starts_with("scripted-server: --plan: in `explode`: unknown fault"), "{output}");
    assert!(output.ends_with("hint: see `scripted-server --help`"), "{output}");
}

#[test]
fn help_explains_every_fault() {
    let mut peer = Peer::scripted(&["--help"]);
    let mut text = String::new();
    while let Some(line) = peer.line() {
        text.push_str(&String::from_utf8(line).expect("text"));
        text.push('\n');
    }
    for word in ["  stopread ", "  unknown ", "call:every=10=hang"] {
        assert!(text.contains(word), "{word:?} in {text}");
    }
    eventually(TIMEOUT, "help exits", || !peer.is_running());
}

fn parse(text: &Value) -> Value {
    serde_json::from_str(text.as_str().expect("a text")).expect("JSON")
}
