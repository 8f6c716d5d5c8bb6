//! The stdio transport, message by message: every revision, byte-exact payloads, slow readers, malformed lines.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, duplex};
use tokio::io::{ReadHalf, WriteHalf, split};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use toolrack_client::ClientHandler as _;
use toolrack_config::McpServerConfig;
use toolrack_gateway::{Gateway, GatewayOptions, Scope, ServerRequestRouter, Upstream};
use toolrack_manager::ConnectionState;
use toolrack_testkit::{HttpServer, HttpServerKind, program};

use crate::fixture::{Fixture, HttpFixture, TIMEOUT, eventually, scripted};

/// Client end of a stdio connection to a gateway.
pub(crate) struct StdioClient {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
    serving: JoinSet<std::io::Result<()>>,
}

impl StdioClient {
    pub(crate) fn open(gateway: &Gateway, buffer: usize) -> Self {
        let (ours, theirs) = duplex(buffer);
        let (reader, writer) = split(ours);
        let (their_reader, their_writer) = split(theirs);
        let gateway = gateway.clone();
        let mut serving = JoinSet::new();
        serving.spawn(async move { gateway.serve_stdio(their_reader, their_writer).await });
        Self { lines: BufReader::new(reader).lines(), writer, serving }
    }

    pub(crate) async fn send(&mut self, line: &str) {
        let sending = async {
            self.writer.write_all(line.as_bytes()).await.unwrap();
            self.writer.write_all(b"\n").await.unwrap();
        };
        timeout(TIMEOUT, sending).await.expect("the gateway reads");
    }

    pub(crate) async fn receive(&mut self) -> String {
        let line = timeout(TIMEOUT, self.lines.next_line()).await.expect("the gateway responds");
        line.unwrap().expect("the connection is open")
    }

    pub(crate) async fn receive_json(&mut self) -> Value {
        serde_json::from_str(&self.receive().await).unwrap()
    }

    /// The next response. Skips notifications, such as list changes of a server that has just connected.
    async fn receive_response(&mut self) -> Value {
        loop {
            let message = self.receive_json().await;
            if message.get("id").is_some() {
                return message;
            }
        }
    }

    /// Opens a legacy session and returns the result of `initialize`.
    async fn initialize(&mut self, revision: &str) -> Value {
        self.send(&initialize_request(revision)).await;
        let response = self.receive_json().await;
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        response
    }

    async fn close(mut self) {
        drop(self.writer);
        drop(self.lines);
        let ended =
            timeout(TIMEOUT, self.serving.join_next()).await.expect("serving ends with its input");
        // Whether the last messages could be written does not matter.
        drop(ended);
    }
}

fn initialize_request(revision: &str) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"},
    }})
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_legacy_revision_is_accepted() {
    let fixture = Fixture::start(vec![scripted("s", &[])], Scope::All).await;
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut client = StdioClient::open(&fixture.gateway, 1 << 16);
        let response = client.initialize(revision).await;
        assert_eq!(response["result"]["protocolVersion"], revision);
        assert!(response["result"]["capabilities"]["tools"].is_object());
        let knows_completions = response["result"]["capabilities"]["completions"].is_object();
        assert_eq!(knows_completions, revision != "2024-11-05", "{response}");
        client.send(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#).await;
        assert_eq!(client.receive().await, r#"{"jsonrpc":"2.0","id":"p","result":{}}"#);
        if revision == "2025-03-26" {
            client.send(r#"[{"jsonrpc":"2.0","id":2,"method":"ping"},{"jsonrpc":"2.0","id":3,"method":"ping"}]"#)
                .await;
            let mut ids = [
                client.receive_json().await["id"].clone(),
                client.receive_json().await["id"].clone(),
            ];
            ids.sort_by_key(ToString::to_string);
            assert_eq!(ids, [2, 3]);
        } else {
            client.send(r#"[{"jsonrpc":"2.0","id":2,"method":"ping"}]"#).await;
            assert_eq!(client.receive_json().await["error"]["code"], -32600);
        }
        client.close().await;
    }
    fixture.close().await;
}

/// A model reads what a person does not see, so clients get it only on request.
#[tokio::test(flavor = "multi_thread")]
async fn hidden_text_is_stripped_unless_the_client_asks_for_raw_text() {
    let hidden = "a\u{e0049}\u{202e}\u{1b}[8mb\r\n\tc";
    for revision in ["2025-11-25", "2026-07-28"] {
        let inner =
            Fixture::start(vec![scripted("s", &["--revision", revision])], Scope::All).await;
        let inner_http = HttpFixture::start(&inner.gateway).await;
        // As with `toolrack serve` in front of a daemon.
        let config = McpServerConfig::http("daemon", inner_http.url());
        let bridge = Fixture::start(vec![config], Scope::Server("daemon".to_owned())).await;
        let options = GatewayOptions { upstream: Upstream::Gateway, ..GatewayOptions::default() };
        let (manager, router) = (Arc::clone(&bridge.manager), ServerRequestRouter::for_bridge());
        let scope = Scope::Server("daemon".to_owned());
        let outer = Gateway::with_options(manager, router, scope, options);
        for gateway in [&inner.gateway, &outer] {
            let mut client = StdioClient::open(gateway, 1 << 16);
            client.initialize("2025-11-25").await;
            let mut call = async |method: &str, mut params: Value, raw: Option<Value>| {
                if let Some(raw) = raw {
                    params["_meta"] = json!({ "toolrack/raw": raw });
                }
                let request =
                    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
                client.send(&request.to_string()).await;
                client.receive_response().await
            };
            let echo = json!({"name": "s_echo", "arguments": {"text": hidden}});
            let greet = json!({"name": "s_greeting", "arguments": {"name": hidden}});
            let read = json!({"uri": format!("test://echo/{hidden}")});
            for (method, params, pointer, prefix) in [
                ("tools/call", echo.clone(), "/result/content/0/text", ""),
                ("prompts/get", greet, "/result/messages/0/content/text", "Greet "),
                ("resources/read", read, "/result/contents/0/text", ""),
            ] {
                for (raw, expected) in [
                    (None, "ab\r\n\tc"),
                    (Some(json!(false)), "ab\r\n\tc"),
                    (Some(json!(true)), hidden),
                ] {
                    let response = call(method, params.clone(), raw).await;
                    let text = response.pointer(pointer).and_then(Value::as_str);
                    let expected = format!("{prefix}{expected}");
                    let text = text.map(|text| text.trim_end_matches('.'));
                    assert_eq!(text, Some(expected.as_str()), "{revision} {method}: {response}");
                }
            }
            let invalid = call("tools/call", echo, Some(json!("yes"))).await;
            assert_eq!(invalid["error"]["code"], -32602, "{invalid}");
            client.close().await;
        }
        outer.close().await;
        bridge.close().await;
        inner.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_and_results_pass_byte_for_byte() {
    // The header tools of the scripted server return their arguments byte for byte.
    let args = ["--header-tools", "valid", "--revision", "2026-07-28"];
    let fixture = Fixture::start(vec![scripted("s", &args)], Scope::Server("s".to_owned())).await;
    let mut client = StdioClient::open(&fixture.gateway, 1 << 16);
    client.initialize("2025-11-25").await;
    client.send(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#).await;
    let listed = client.receive_json().await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    let routed = tools.iter().find(|tool| tool["inputSchema"].to_string().contains("x-mcp-header"));
    let name = routed.expect("a tool with headers")["name"].as_str().unwrap().to_owned();
    let arguments =
        r#"{ "region" : "x", "n":1.0,  "big":12345678901234567890123, "e":1E5, "s":"a\u0041\/" }"#;
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{{"name":"{name}","arguments":{arguments}}}}}"#
    );
    client.send(&call).await;
    let response = client.receive().await;
    let response: Value = serde_json::from_str(&response).unwrap();
    assert_eq!(response["result"]["content"][0]["text"], arguments);
    client.close().await;
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_messages_are_rejected_and_the_session_continues() {
    let fixture = Fixture::start(vec![scripted("s", &[])], Scope::All).await;
    let mut client = StdioClient::open(&fixture.gateway, 1 << 16);
    let mut check = async |line: &str, code: i64| {
        client.send(line).await;
        let response = client.receive_json().await;
        assert_eq!(response["error"]["code"], code, "{line}: {response}");
    };
    check("{oops", -32700).await;
    check("7", -32600).await;
    check(r#"{"jsonrpc":"2.0","id":5}"#, -32600).await;
    check(r#"{"jsonrpc":"2.0","id":5,"method":"tools/list"}"#, -32602).await;
    check(r#"{"jsonrpc":"2.0","id":5,"method":"initialize","params":{}}"#, -32602).await;
    client.initialize("2025-11-25").await;
    let mut check = async |method: &str, params: Value, code: i64| {
        let line = json!({"jsonrpc": "2.0", "id": 6, "method": method, "params": params});
        client.send(&line.to_string()).await;
        let response = client.receive_response().await;
        assert_eq!(response["error"]["code"], code, "{line}: {response}");
    };
    check("made/up", json!({}), -32601).await;
    check("server/discover", json!({}), -32601).await;
    check("tools/call", json!({"name": "nothing"}), -32602).await;
    check("tools/call", json!({}), -32602).await;
    check("tools/call", json!({"name": "s_echo", "arguments": []}), -32602).await;
    check("tools/list", json!({"cursor": "nowhere"}), -32602).await;
    check("prompts/get", json!({"name": "nothing"}), -32602).await;
    check("resources/read", json!({"uri": "test://nothing"}), -32002).await;
    check("logging/setLevel", json!({"level": "loud"}), -32602).await;
    check("initialize", json!({"protocolVersion": "2025-11-25"}), -32600).await;
    client.close().await;
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_request_gets_no_response() {
    let fixture = Fixture::start(vec![scripted("s", &[])], Scope::All).await;
    let mut client = StdioClient::open(&fixture.gateway, 1 << 16);
    client.initialize("2025-11-25").await;
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {"name": "s_sleep", "arguments": {"ms": 60_000}}});
    client.send(&call.to_string()).await;
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    client.send(&cancel.to_string()).await;
    client.send(r#"{"jsonrpc":"2.0","id":8,"method":"ping"}"#).await;
    assert_eq!(client.receive_json().await["id"], 8);
    client.close().await;
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_client_loses_notifications_and_delays_no_other_client() {
    let fixture = Fixture::start(vec![scripted("s", &[])], Scope::All).await;
    // The buffer is small, and the client does not read for now.
    let mut slow = StdioClient::open(&fixture.gateway, 256);
    slow.send(&initialize_request("2025-11-25")).await;
    let response = slow.receive_json().await;
    assert_eq!(response["id"], 1);
    let log = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "s_log", "arguments": {"level": "error", "text": "x", "count": 2_000}}});
    slow.send(&log.to_string()).await;

    let mut quick = StdioClient::open(&fixture.gateway, 1 << 16);
    quick.initialize("2025-11-25").await;
    for id in 10..30 {
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": {"name": "s_echo", "arguments": {"text": "quick"}}});
        quick.send(&call.to_string()).await;
        // Notifications may come in between.
        while quick.receive_json().await["id"] != id {}
    }
    quick.close().await;

    let mut n_messages = 0;
    let (mut has_response, mut has_notice) = (false, false);
    while !(has_response && has_notice) {
        let message = slow.receive_json().await;
        has_response |= message["id"] == 2;
        let data = message["params"]["data"].as_str().unwrap_or_default();
        has_notice |= data.contains("notifications were lost");
        n_messages += usize::from(data == "x");
    }
    assert!(n_messages < 2_000, "some were lost");
    slow.close().await;
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_list_is_paginated() {
    let options = GatewayOptions { page_size: 7, ..GatewayOptions::default() };
    let fixture = Fixture::start(vec![scripted("s", &["--tools", "30"])], Scope::All).await;
    let (manager, router) = (Arc::clone(&fixture.manager), Arc::clone(&fixture.router));
    let paged = Gateway::with_options(manager, router, Scope::All, options);
    let mut client = StdioClient::open(&paged, 1 << 16);
    client.initialize("2025-11-25").await;
    let (mut names, mut cursor) = (Vec::new(), None);
    loop {
        let params = cursor.map_or(json!({}), |cursor: Value| json!({ "cursor": cursor }));
        let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": params});
        client.send(&list.to_string()).await;
        let page = client.receive_json().await["result"].take();
        let tools = page["tools"].as_array().unwrap().clone();
        assert!(tools.len() <= 7);
        names.extend(tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()));
        match page.get("nextCursor") {
            Some(next) => cursor = Some(next.clone()),
            None => break,
        }
    }
    let expected: Vec<String> =
        fixture.manager.all_tools().iter().map(|tool| tool.name().to_string()).collect();
    assert_eq!(names, expected);
    client.close().await;
    paged.close().await;
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_sees_only_the_server_in_scope() {
    let configs = vec![scripted("mine", &[]), scripted("other", &[])];
    let fixture = Fixture::start(configs, Scope::Server("mine".to_owned())).await;
    let mut client = StdioClient::open(&fixture.gateway, 1 << 18);
    client.initialize("2025-11-25").await;
    client.send(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#).await;
    let tools = client.receive_json().await["result"]["tools"].take();
    let names: Vec<&str> =
        tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names.iter().filter(|name| **name == "echo").count(), 1, "{names:?}");
    let call = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call",
        "params": {"name": "other_echo", "arguments": {"text": "no"}}});
    client.send(&call.to_string()).await;
    assert_eq!(client.receive_json().await["error"]["code"], -32602);
    client.close().await;
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn single_server_endpoint_returns_list_errors() {
    let mut server = HttpServer::start(HttpServerKind::scripted(&[])).unwrap();
    let config = McpServerConfig::http("s", server.url());
    let fixture = Fixture::start(vec![config], Scope::Server("s".to_owned())).await;
    let all = Gateway::new(Arc::clone(&fixture.manager), Arc::clone(&fixture.router), Scope::All);
    server.kill();
    for (gateway, is_single) in [(&fixture.gateway, true), (&all, false)] {
        let mut client = StdioClient::open(gateway, 1 << 16);
        client.initialize("2025-11-25").await;
        for method in ["prompts/list", "resources/list", "resources/templates/list"] {
            let list = json!({"jsonrpc": "2.0", "id": 2, "method": method});
            client.send(&list.to_string()).await;
            let response = client.receive_response().await;
            assert_eq!(response["error"]["data"]["cause"].is_string(), is_single, "{response}");
            assert_eq!(response["result"].is_object(), !is_single, "{response}");
        }
        client.close().await;
    }
    all.close().await;
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_requests_are_answered_after_end_of_input() {
    let fixture = Fixture::start(vec![scripted("s", &[])], Scope::All).await;
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "s_sleep", "arguments": {"ms": 50}}});
    let input = format!("{}\n{call}\n", initialize_request("2025-11-25"));
    let (mut reader, writer) = duplex(1 << 16);
    let served = fixture.gateway.serve_stdio(input.as_bytes(), writer);
    timeout(Duration::from_secs(10), served).await.expect("serving ends").unwrap();
    let mut output = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut reader, &mut output).await.unwrap();
    assert!(output.contains("slept 50 ms"), "{output}");
    assert!(program("scripted-server").exists());
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_subscription_leaves_others_intact() {
    // The server starts slowly, so that there is time to cancel.
    let slow = scripted("s", &["--plan", "initialize=late(2s)"]);
    let fixture = Fixture::new(vec![slow], Scope::Server("s".to_owned()));
    let (manager, mut starting) = (Arc::clone(&fixture.manager), JoinSet::new());
    starting.spawn(async move { manager.connect_all().await.map(|_| ()) });
    let is_starting =
        || *fixture.manager.server("s").unwrap().state() == ConnectionState::Connecting;
    eventually("the server starts", is_starting).await;
    let subscribe = r#"{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"test://counter"}}"#;
    let mut first = StdioClient::open(&fixture.gateway, 1 << 16);
    first.initialize("2025-11-25").await;
    first.send(subscribe).await;
    // When this is answered, the subscription is in progress.
    first.send(r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#).await;
    while first.receive_json().await["id"] != 3 {}
    first
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#)
        .await;

    let mut second = StdioClient::open(&fixture.gateway, 1 << 16);
    second.initialize("2025-11-25").await;
    second.send(subscribe).await;
    // List changes may come in between.
    let response = loop {
        let message = second.receive_json().await;
        if message["id"] == 2 {
            break message;
        }
    };
    assert_eq!(response["result"], json!({}), "{response}");
    first.close().await;
    let touch = json!({"jsonrpc": "2.0", "id": 4, "method": "tools/call",
        "params": {"name": "touch", "arguments": {"uri": "test://counter"}}});
    // An unsubscribe caused by the first client would take a while to show.
    for _ in 0..20 {
        second.send(&touch.to_string()).await;
        let (mut has_notice, mut has_response) = (false, false);
        while !(has_notice && has_response) {
            let message = second.receive_json().await;
            has_response |= message["id"] == 4;
            has_notice |= message["method"] == "notifications/resources/updated";
        }
    }
    second.close().await;
    fixture.close().await;
}

/// Runs on a paused clock.
#[tokio::test(start_paused = true)]
async fn subscription_does_not_delay_end_of_input() {
    let fixture = Fixture::new(Vec::new(), Scope::All);
    let mut client = StdioClient::open(&fixture.gateway, 1 << 16);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let listen = json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen",
        "params": {"_meta": meta, "notifications": {"toolsListChanged": true}}});
    client.send(&listen.to_string()).await;
    let message = client.receive().await;
    assert!(message.contains("notifications/subscriptions/acknowledged"), "{message}");
    let started = Instant::now();
    client.close().await;
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn client_that_does_not_read_does_not_delay_close() {
    let fixture = Fixture::new(Vec::new(), Scope::All);
    let mut client = StdioClient::open(&fixture.gateway, 16);
    for _ in 0..10 {
        client.send(r#"{"jsonrpc":"2.0","id":"a long id","method":"ping"}"#).await;
    }
    fixture.close().await;
    let ended = timeout(TIMEOUT, client.serving.join_next()).await.expect("serving ends");
    let error = ended.unwrap().unwrap().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
}

/// The methods of all notifications up to this one.
async fn notifications_until(client: &mut StdioClient, until: &str) -> Vec<String> {
    let mut methods: Vec<String> = Vec::new();
    while methods.last().is_none_or(|method| method != until) {
        methods.push(client.receive_json().await["method"].as_str().unwrap_or_default().to_owned());
    }
    methods
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_server_is_announced() {
    let (stays, goes) = (scripted("stays", &[]), scripted("goes", &[]));
    let both = [stays.clone(), goes];
    let fixture = Fixture::start(both.to_vec(), Scope::All).await;
    let mut client = StdioClient::open(&fixture.gateway, 1 << 16);
    client.initialize("2025-11-25").await;
    let list = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
    client.send(list).await;
    assert!(client.receive_response().await.to_string().contains("goes_echo"));
    // A server that never listed anything is not announced.
    let bad = [McpServerConfig::stdio("bad", "false", &[] as &[&str])];
    fixture.manager.reconcile(&[], &bad).await.unwrap();
    let has_failed = || fixture.manager.server("bad").unwrap().state().failure().is_some();
    eventually("the server fails", has_failed).await;
    fixture.manager.reconcile(&bad, &[]).await.unwrap();
    let methods = notifications_until(&mut client, "notifications/tools/list_changed").await;
    assert_eq!(methods.len(), 1, "{methods:?}");
    fixture.manager.reconcile(&both, &[stays]).await.unwrap();
    notifications_until(&mut client, "notifications/tools/list_changed").await;
    client.send(list).await;
    assert!(!client.receive_response().await.to_string().contains("goes_echo"));
    client.close().await;
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscription_ended_by_server_is_renewed() {
    let fixture =
        Fixture::start(vec![scripted("s", &["--revision", "2026-07-28"])], Scope::All).await;
    let mut client = StdioClient::open(&fixture.gateway, 1 << 16);
    client.initialize("2025-11-25").await;
    let subscribe = r#"{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"test://counter"}}"#;
    client.send(subscribe).await;
    assert!(client.receive_response().await["result"].is_object());
    let call = |id: u64, name: &str, arguments: Value| {
        let params = json!({"name": name, "arguments": arguments});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
    };
    let updated = "notifications/resources/updated";
    client.send(&call(3, "s_end_listens", json!({"how": "result"}))).await;
    notifications_until(&mut client, updated).await;
    client.send(&call(4, "s_touch", json!({"uri": "test://counter"}))).await;
    notifications_until(&mut client, updated).await;
    client.close().await;
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_of_stopped_server_reports_not_connected() {
    let fixture = Fixture::start(vec![scripted("s", &[])], Scope::All).await;
    let mut client = StdioClient::open(&fixture.gateway, 1 << 16);
    client.initialize("2025-11-25").await;
    fixture.manager.disconnect("s").await.unwrap();
    for (tool, code, cause) in
        [("s_echo", -32603, json!("not_connected")), ("s_x", -32602, Value::Null)]
    {
        let params = json!({"name": tool, "arguments": {"text": "a"}});
        let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params});
        client.send(&call.to_string()).await;
        let error = client.receive_response().await["error"].clone();
        assert_eq!((&error["code"], &error["data"]["cause"]), (&json!(code), &cause), "{error}");
    }
    client.close().await;
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn single_server_endpoint_shows_its_server_info() {
    let fixture = Fixture::start(vec![scripted("s", &[])], Scope::Server("s".to_owned())).await;
    let info =
        fixture.manager.server("s").unwrap().client().unwrap().server_info().unwrap().clone();
    let mut client = StdioClient::open(&fixture.gateway, 1 << 16);
    let response = client.initialize("2025-11-25").await;
    assert_eq!(response["result"]["serverInfo"]["name"], info.name);
    assert_ne!(info.name, "toolrack");
    client.close().await;
    fixture.close().await;
}

/// As with `toolrack serve` in front of a daemon.
#[tokio::test(flavor = "multi_thread")]
async fn log_messages_between_calls_pass_two_gateways() {
    let inner =
        Fixture::start(vec![scripted("s", &["--revision", "2025-11-25"])], Scope::All).await;
    let inner_http = HttpFixture::start(&inner.gateway).await;
    let outer =
        Fixture::start(vec![McpServerConfig::http("in", inner_http.url())], Scope::All).await;
    let (manager, router) = (Arc::clone(&outer.manager), Arc::clone(&outer.router));
    let options = GatewayOptions { upstream: Upstream::Gateway, ..GatewayOptions::default() };
    let gateway = Gateway::with_options(manager, router, Scope::Server("in".to_owned()), options);
    let mut client = StdioClient::open(&gateway, 1 << 16);
    client.initialize("2025-11-25").await;
    client
        .send(r#"{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"debug"}}"#)
        .await;
    assert!(client.receive_response().await["result"].is_object());
    let message = serde_json::from_str(r#"{"level":"debug","data":"between calls"}"#).unwrap();
    let logging = async {
        loop {
            inner.router.log_from("s", &message);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        methods = notifications_until(&mut client, "notifications/message") => {
            assert!(!methods.is_empty());
        }
        () = logging => {}
    }
    client.close().await;
    gateway.close().await;
    outer.close().await;
    inner.close().await;
}
