//! Demo server, as a program and as a function, in both eras.

use std::io::Cursor;

use serde_json::{Value, json};
use toolrack_testkit::demo;

use crate::peer::{Peer, texts};
use crate::schema;

#[test]
fn demo_is_schema_valid_in_every_revision() {
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] {
        let mut peer = Peer::start("demo-server", &[]);
        if revision == "2026-07-28" {
            peer.use_modern();
            peer.request("server/discover", json!({}));
        } else {
            let response = peer.initialize(revision);
            assert_eq!(response["result"]["protocolVersion"], json!(revision));
        }
        let tools = peer.request("tools/list", json!({}))["result"]["tools"].clone();
        let names: Vec<&Value> =
            tools.as_array().expect("a list").iter().map(|tool| &tool["name"]).collect();
        assert_eq!(names, ["greet", "add", "dice", "countdown", "word_count"]);
        assert_eq!(peer.call_text("greet", json!({ "name": "Ada" })), json!("Hello, Ada!"));
        assert_eq!(peer.call_text("add", json!({ "a": 40, "b": 2 })), json!("42"));
        assert_eq!(
            peer.call_text("word_count", json!({ "text": "a b" })),
            json!("1 lines, 2 words, 3 characters")
        );
        peer.request("resources/list", json!({}));
        peer.request("resources/templates/list", json!({}));
        let readme = peer.request("resources/read", json!({ "uri": "demo://readme" }));
        assert!(
            readme["result"]["contents"][0]["text"]
                .as_str()
                .is_some_and(|text| text.contains("demo"))
        );
        peer.request("prompts/list", json!({}));
        peer.request("prompts/get", json!({ "name": "introduce", "arguments": { "name": "Ada" } }));
        let counting = peer.send(
            "tools/call",
            json!({ "name": "countdown", "arguments": { "from": 3, "every_ms": 1 }, "_meta": { "progressToken": "t" } }),
        );
        assert_eq!(texts(&peer.response_to(&counting)), json!("Lift-off!"));
        let steps: Vec<&Value> = peer
            .received
            .iter()
            .filter_map(|received| received.pointer("/params/progress"))
            .collect();
        assert_eq!(steps, [1, 2, 3]);
        schema::assert_valid(&peer, revision, "demo_is_schema_valid");
        peer.finish();
    }
}

#[test]
fn slow_call_delays_no_other_and_can_be_cancelled() {
    let mut peer = Peer::start("demo-server", &[]);
    peer.initialize("2025-11-25");
    let slow = peer.call("countdown", json!({ "from": 1000, "every_ms": 60_000 }));
    let brief = peer.call("countdown", json!({ "from": 0 }));
    assert_eq!(peer.call_text("greet", json!({ "name": "Bob" })), json!("Hello, Bob!"));
    peer.notify("notifications/cancelled", json!({ "requestId": slow }));
    peer.response_to(&brief);
    peer.call("countdown", json!({ "from": 1000, "every_ms": 60_000 }));
    peer.finish();
}

#[test]
fn bad_request_does_not_affect_later_ones() {
    let mut peer = Peer::start("demo-server", &[]);
    peer.write_raw(b"hello\n");
    assert_eq!(peer.message()["error"]["code"], json!(-32700));
    let check = |peer: &mut Peer, method: &str, params: Value, code: i64| {
        assert_eq!(peer.request(method, params)["error"]["code"], json!(code), "{method}");
    };
    check(&mut peer, "tools/list", json!({}), -32602);
    peer.initialize("2025-11-25");
    check(&mut peer, "no/such", json!({}), -32601);
    check(&mut peer, "tools/call", json!({ "name": "none" }), -32602);
    check(&mut peer, "resources/read", json!({ "uri": "demo://none" }), -32002);
    let wrong = peer.request("tools/call", json!({ "name": "greet", "arguments": {} }));
    assert_eq!(wrong["result"]["isError"], json!(true));
    peer.finish();
}

#[test]
fn serve_returns_at_end_of_input() {
    let input = Cursor::new(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n".to_vec());
    demo::serve(input, Vec::new()).expect("the input ends well");
}
