//! A client at a pipe, message by message: every revision, byte for byte, slow readers, broken lines.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, duplex};
use tokio::io::{ReadHalf, WriteHalf, split};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use toolrack_client::ClientHandler as _;
use toolrack_config::McpServerConfig;
use toolrack_gateway::{Behind, Gateway, GatewayOptions, Scope};
use toolrack_manager::ConnectionState;
use toolrack_testkit::{HttpServer, HttpServerKind, program};

use crate::fixture::{LONG, Stage, Web, eventually, scripted};

/// Our end of a pipe to a gateway.
pub(crate) struct Pipe {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
    serving: JoinSet<std::io::Result<()>>,
}

impl Pipe {
    pub(crate) fn open(gateway: &Gateway, buffer: usize) -> Self {
        let (ours, theirs) = duplex(buffer);
        let (reader, writer) = split(ours);
        let (their_reader, their_writer) = split(theirs);
        let gateway = gateway.clone();
        let mut serving = JoinSet::new();
        serving.spawn(async move { gateway.serve_stdio(their_reader, their_writer).await });
        Self { lines: BufReader::new(reader).lines(), writer, serving }
    }

    pub(crate) async fn say(&mut self, line: &str) {
        let said = async {
            self.writer.write_all(line.as_bytes()).await.unwrap();
            self.writer.write_all(b"\n").await.unwrap();
        };
        timeout(LONG, said).await.expect("the gateway reads");
    }

    pub(crate) async fn hear(&mut self) -> String {
        let line = timeout(LONG, self.lines.next_line()).await.expect("the gateway answers");
        line.unwrap().expect("the gateway is there")
    }

    pub(crate) async fn hear_json(&mut self) -> Value {
        serde_json::from_str(&self.hear().await).unwrap()
    }

    /// The next answer. What clients are told of a server that was connected a moment ago is passed over.
    async fn hear_answer(&mut self) -> Value {
        loop {
            let said = self.hear_json().await;
            if said.get("id").is_some() {
                return said;
            }
        }
    }

    /// Opens a legacy session and gives the greeting.
    async fn greet(&mut self, revision: &str) -> Value {
        self.say(&initialize(revision)).await;
        let greeting = self.hear_json().await;
        self.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        greeting
    }

    async fn end(mut self) {
        drop(self.writer);
        drop(self.lines);
        let ended = timeout(LONG, self.serving.join_next()).await.expect("it ends with its input");
        // Whether the last words could be written does not matter.
        drop(ended);
    }
}

fn initialize(revision: &str) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"},
    }})
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_legacy_revision_is_agreed_to() {
    let stage = Stage::open(vec![scripted("s", &[])], Scope::All).await;
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut pipe = Pipe::open(&stage.gateway, 1 << 16);
        let greeting = pipe.greet(revision).await;
        assert_eq!(greeting["result"]["protocolVersion"], revision);
        assert!(greeting["result"]["capabilities"]["tools"].is_object());
        let knows_completions = greeting["result"]["capabilities"]["completions"].is_object();
        assert_eq!(knows_completions, revision != "2024-11-05", "{greeting}");
        pipe.say(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#).await;
        assert_eq!(pipe.hear().await, r#"{"jsonrpc":"2.0","id":"p","result":{}}"#);
        if revision == "2025-03-26" {
            pipe.say(r#"[{"jsonrpc":"2.0","id":2,"method":"ping"},{"jsonrpc":"2.0","id":3,"method":"ping"}]"#)
                .await;
            let mut ids =
                [pipe.hear_json().await["id"].clone(), pipe.hear_json().await["id"].clone()];
            ids.sort_by_key(ToString::to_string);
            assert_eq!(ids, [2, 3]);
        } else {
            pipe.say(r#"[{"jsonrpc":"2.0","id":2,"method":"ping"}]"#).await;
            assert_eq!(pipe.hear_json().await["error"]["code"], -32600);
        }
        pipe.end().await;
    }
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_and_results_pass_byte_for_byte() {
    // `cat` repeats what a server gets; so the scripted server with header tools, which repeats its arguments.
    let args = ["--header-tools", "valid", "--revision", "2026-07-28"];
    let stage = Stage::open(vec![scripted("s", &args)], Scope::Server("s".to_owned())).await;
    let mut pipe = Pipe::open(&stage.gateway, 1 << 16);
    pipe.greet("2025-11-25").await;
    pipe.say(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#).await;
    let listed = pipe.hear_json().await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    let routed = tools.iter().find(|it| it["inputSchema"].to_string().contains("x-mcp-header"));
    let name = routed.expect("a tool with headers")["name"].as_str().unwrap().to_owned();
    let arguments =
        r#"{ "region" : "x", "n":1.0,  "big":12345678901234567890123, "e":1E5, "s":"a\u0041\/" }"#;
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{{"name":"{name}","arguments":{arguments}}}}}"#
    );
    pipe.say(&call).await;
    let answer = pipe.hear().await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], arguments);
    pipe.end().await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_request_is_refused_and_the_rest_goes_on() {
    let stage = Stage::open(vec![scripted("s", &[])], Scope::All).await;
    let mut pipe = Pipe::open(&stage.gateway, 1 << 16);
    let mut check = async |line: &str, code: i64| {
        pipe.say(line).await;
        let answer = pipe.hear_json().await;
        assert_eq!(answer["error"]["code"], code, "{line}: {answer}");
    };
    check("{oops", -32700).await;
    check("7", -32600).await;
    check(r#"{"jsonrpc":"2.0","id":5}"#, -32600).await;
    check(r#"{"jsonrpc":"2.0","id":5,"method":"tools/list"}"#, -32602).await;
    check(r#"{"jsonrpc":"2.0","id":5,"method":"initialize","params":{}}"#, -32602).await;
    pipe.greet("2025-11-25").await;
    let mut check = async |method: &str, params: Value, code: i64| {
        let line = json!({"jsonrpc": "2.0", "id": 6, "method": method, "params": params});
        pipe.say(&line.to_string()).await;
        let answer = pipe.hear_answer().await;
        assert_eq!(answer["error"]["code"], code, "{line}: {answer}");
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
    pipe.end().await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_request_gets_no_answer() {
    let stage = Stage::open(vec![scripted("s", &[])], Scope::All).await;
    let mut pipe = Pipe::open(&stage.gateway, 1 << 16);
    pipe.greet("2025-11-25").await;
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {"name": "s_sleep", "arguments": {"ms": 60_000}}});
    pipe.say(&call.to_string()).await;
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    pipe.say(&cancel.to_string()).await;
    pipe.say(r#"{"jsonrpc":"2.0","id":8,"method":"ping"}"#).await;
    assert_eq!(pipe.hear_json().await["id"], 8);
    pipe.end().await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_client_loses_notifications_and_slows_down_nobody() {
    let stage = Stage::open(vec![scripted("s", &[])], Scope::All).await;
    // The pipe holds next to nothing, and nobody reads it for now.
    let mut slow = Pipe::open(&stage.gateway, 256);
    slow.say(&initialize("2025-11-25")).await;
    let greeting = slow.hear_json().await;
    assert_eq!(greeting["id"], 1);
    let log = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "s_log", "arguments": {"level": "error", "text": "x", "count": 2_000}}});
    slow.say(&log.to_string()).await;

    let mut quick = Pipe::open(&stage.gateway, 1 << 16);
    quick.greet("2025-11-25").await;
    for id in 10..30 {
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": {"name": "s_echo", "arguments": {"text": "quick"}}});
        quick.say(&call.to_string()).await;
        // Messages that the server sends meanwhile may come in between.
        while quick.hear_json().await["id"] != id {}
    }
    quick.end().await;

    let mut n_messages = 0;
    let (mut is_answered, mut is_told) = (false, false);
    while !(is_answered && is_told) {
        let message = slow.hear_json().await;
        is_answered |= message["id"] == 2;
        let said = message["params"]["data"].as_str().unwrap_or_default();
        is_told |= said.contains("notifications were lost");
        n_messages += usize::from(said == "x");
    }
    assert!(n_messages < 2_000, "some were lost");
    slow.end().await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_list_comes_in_pages() {
    let options = GatewayOptions { page_size: 7, ..GatewayOptions::default() };
    let stage = Stage::open(vec![scripted("s", &["--tools", "30"])], Scope::All).await;
    let (manager, board) = (Arc::clone(&stage.manager), Arc::clone(&stage.switchboard));
    let paged = Gateway::with_options(manager, board, Scope::All, options);
    let mut pipe = Pipe::open(&paged, 1 << 16);
    pipe.greet("2025-11-25").await;
    let (mut names, mut cursor) = (Vec::new(), None);
    loop {
        let params = cursor.map_or(json!({}), |it: Value| json!({ "cursor": it }));
        let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": params});
        pipe.say(&list.to_string()).await;
        let page = pipe.hear_json().await["result"].take();
        let tools = page["tools"].as_array().unwrap().clone();
        assert!(tools.len() <= 7);
        names.extend(tools.iter().map(|it| it["name"].as_str().unwrap().to_owned()));
        match page.get("nextCursor") {
            Some(next) => cursor = Some(next.clone()),
            None => break,
        }
    }
    let expected: Vec<String> =
        stage.manager.all_tools().iter().map(|it| it.name().to_string()).collect();
    assert_eq!(names, expected);
    pipe.end().await;
    paged.close().await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_sees_its_own_servers_only() {
    let configs = vec![scripted("mine", &[]), scripted("other", &[])];
    let agent = Scope::Agent(["mine".to_owned()].into());
    let stage = Stage::open(configs, agent).await;
    let mut pipe = Pipe::open(&stage.gateway, 1 << 18);
    pipe.greet("2025-11-25").await;
    pipe.say(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#).await;
    let tools = pipe.hear_json().await["result"]["tools"].take();
    let names: Vec<&str> =
        tools.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert!(names.iter().all(|it| it.starts_with("mine_")), "{names:?}");
    let call = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call",
        "params": {"name": "other_echo", "arguments": {"text": "no"}}});
    pipe.say(&call.to_string()).await;
    assert_eq!(pipe.hear_json().await["error"]["code"], -32602);
    pipe.end().await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_alone_says_why_it_lists_nothing() {
    let mut server = HttpServer::start(HttpServerKind::scripted(&[])).unwrap();
    let config = McpServerConfig::http("s", server.url());
    let stage = Stage::open(vec![config], Scope::Server("s".to_owned())).await;
    let all = Gateway::new(Arc::clone(&stage.manager), Arc::clone(&stage.switchboard), Scope::All);
    server.kill();
    for (gateway, is_alone) in [(&stage.gateway, true), (&all, false)] {
        let mut pipe = Pipe::open(gateway, 1 << 16);
        pipe.greet("2025-11-25").await;
        for method in ["prompts/list", "resources/list", "resources/templates/list"] {
            let list = json!({"jsonrpc": "2.0", "id": 2, "method": method});
            pipe.say(&list.to_string()).await;
            let answer = pipe.hear_answer().await;
            assert_eq!(answer["error"]["data"]["cause"].is_string(), is_alone, "{answer}");
            assert_eq!(answer["result"].is_object(), !is_alone, "{answer}");
        }
        pipe.end().await;
    }
    all.close().await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_asked_is_answered_after_the_input_has_ended() {
    let stage = Stage::open(vec![scripted("s", &[])], Scope::All).await;
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "s_sleep", "arguments": {"ms": 50}}});
    let input = format!("{}\n{call}\n", initialize("2025-11-25"));
    let (mut reader, writer) = duplex(1 << 16);
    let served = stage.gateway.serve_stdio(input.as_bytes(), writer);
    timeout(Duration::from_secs(10), served).await.expect("it ends").unwrap();
    let mut said = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut reader, &mut said).await.unwrap();
    assert!(said.contains("slept 50 ms"), "{said}");
    assert!(program("scripted-server").exists());
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_was_cancelled_takes_nobody_elses_away() {
    // A server that takes its time to start, so that there is time to cancel.
    let slow = scripted("s", &["--plan", "initialize=late(2s)"]);
    let stage = Stage::set(vec![slow], Scope::Server("s".to_owned()));
    let (manager, mut starting) = (Arc::clone(&stage.manager), JoinSet::new());
    starting.spawn(async move { manager.connect_all().await.map(|_| ()) });
    let is_starting = || *stage.manager.server("s").unwrap().state() == ConnectionState::Connecting;
    eventually("the server starts", is_starting).await;
    let subscribe = r#"{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"test://counter"}}"#;
    let mut first = Pipe::open(&stage.gateway, 1 << 16);
    first.greet("2025-11-25").await;
    first.say(subscribe).await;
    // What came before is at work when this is answered.
    first.say(r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#).await;
    while first.hear_json().await["id"] != 3 {}
    first
        .say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#)
        .await;

    let mut second = Pipe::open(&stage.gateway, 1 << 16);
    second.greet("2025-11-25").await;
    second.say(subscribe).await;
    // That a server has come may be told in between.
    let answer = loop {
        let message = second.hear_json().await;
        if message["id"] == 2 {
            break message;
        }
    };
    assert_eq!(answer["result"], json!({}), "{answer}");
    first.end().await;
    let touch = json!({"jsonrpc": "2.0", "id": 4, "method": "tools/call",
        "params": {"name": "touch", "arguments": {"uri": "test://counter"}}});
    // What the end of the first one might have brought about takes its time.
    for _ in 0..20 {
        second.say(&touch.to_string()).await;
        let (mut is_told, mut is_answered) = (false, false);
        while !(is_told && is_answered) {
            let message = second.hear_json().await;
            is_answered |= message["id"] == 4;
            is_told |= message["method"] == "notifications/resources/updated";
        }
    }
    second.end().await;
    stage.close().await;
}

/// On a clock of its own: nothing here takes time but what we wait for.
#[tokio::test(start_paused = true)]
async fn who_listens_does_not_hold_up_the_end_of_its_pipe() {
    let stage = Stage::set(Vec::new(), Scope::All);
    let mut pipe = Pipe::open(&stage.gateway, 1 << 16);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let listen = json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen",
        "params": {"_meta": meta, "notifications": {"toolsListChanged": true}}});
    pipe.say(&listen.to_string()).await;
    let begun = pipe.hear().await;
    assert!(begun.contains("notifications/subscriptions/acknowledged"), "{begun}");
    let begun = Instant::now();
    pipe.end().await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    stage.close().await;
}

#[tokio::test(start_paused = true)]
async fn who_does_not_read_does_not_hold_up_the_end_of_the_gateway() {
    let stage = Stage::set(Vec::new(), Scope::All);
    let mut pipe = Pipe::open(&stage.gateway, 16);
    for _ in 0..10 {
        pipe.say(r#"{"jsonrpc":"2.0","id":"a long id","method":"ping"}"#).await;
    }
    stage.close().await;
    let ended = timeout(LONG, pipe.serving.join_next()).await.expect("it ends");
    let fault = ended.unwrap().unwrap().unwrap_err();
    assert_eq!(fault.kind(), std::io::ErrorKind::TimedOut);
}

/// Everything that is told, up to this.
async fn told_of(pipe: &mut Pipe, until: &str) -> Vec<String> {
    let mut told = Vec::new();
    while told.last().is_none_or(|it| it != until) {
        told.push(pipe.hear_json().await["method"].as_str().unwrap_or_default().to_owned());
    }
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_removed_is_told_of() {
    let (stays, goes) = (scripted("stays", &[]), scripted("goes", &[]));
    let both = [stays.clone(), goes];
    let stage = Stage::open(both.to_vec(), Scope::All).await;
    let mut pipe = Pipe::open(&stage.gateway, 1 << 16);
    pipe.greet("2025-11-25").await;
    let list = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
    pipe.say(list).await;
    assert!(pipe.hear_answer().await.to_string().contains("goes_echo"));
    // One that never had anything to list is no news.
    let bad = [McpServerConfig::stdio("bad", "false", &[] as &[&str])];
    stage.manager.reconcile(&[], &bad).await.unwrap();
    let has_failed = || stage.manager.server("bad").unwrap().state().failure().is_some();
    eventually("it fails", has_failed).await;
    stage.manager.reconcile(&bad, &[]).await.unwrap();
    let told = told_of(&mut pipe, "notifications/tools/list_changed").await;
    assert_eq!(told.len(), 1, "{told:?}");
    stage.manager.reconcile(&both, &[stays]).await.unwrap();
    told_of(&mut pipe, "notifications/tools/list_changed").await;
    pipe.say(list).await;
    assert!(!pipe.hear_answer().await.to_string().contains("goes_echo"));
    pipe.end().await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_a_server_ends_is_renewed() {
    let stage = Stage::open(vec![scripted("s", &["--revision", "2026-07-28"])], Scope::All).await;
    let mut pipe = Pipe::open(&stage.gateway, 1 << 16);
    pipe.greet("2025-11-25").await;
    let subscribe = r#"{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"test://counter"}}"#;
    pipe.say(subscribe).await;
    assert!(pipe.hear_answer().await["result"].is_object());
    let call = |id: u64, name: &str, arguments: Value| {
        let params = json!({"name": name, "arguments": arguments});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
    };
    let updated = "notifications/resources/updated";
    pipe.say(&call(3, "s_end_listens", json!({"how": "result"}))).await;
    told_of(&mut pipe, updated).await;
    pipe.say(&call(4, "s_touch", json!({"uri": "test://counter"}))).await;
    told_of(&mut pipe, updated).await;
    pipe.end().await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_of_a_server_that_was_stopped_says_so() {
    let stage = Stage::open(vec![scripted("s", &[])], Scope::All).await;
    let mut pipe = Pipe::open(&stage.gateway, 1 << 16);
    pipe.greet("2025-11-25").await;
    stage.manager.disconnect("s").await.unwrap();
    for (tool, code, cause) in
        [("s_echo", -32603, json!("not_connected")), ("s_x", -32602, Value::Null)]
    {
        let params = json!({"name": tool, "arguments": {"text": "a"}});
        let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params});
        pipe.say(&call.to_string()).await;
        let error = pipe.hear_answer().await["error"].clone();
        assert_eq!((&error["code"], &error["data"]["cause"]), (&json!(code), &cause), "{error}");
    }
    pipe.end().await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_endpoint_of_one_server_stands_for_it() {
    let stage = Stage::open(vec![scripted("s", &[])], Scope::Server("s".to_owned())).await;
    let its = stage.manager.server("s").unwrap().client().unwrap().server_info().unwrap().clone();
    let mut pipe = Pipe::open(&stage.gateway, 1 << 16);
    let greeting = pipe.greet("2025-11-25").await;
    assert_eq!(greeting["result"]["serverInfo"]["name"], its.name);
    assert_ne!(its.name, "toolrack");
    pipe.end().await;
    stage.close().await;
}

/// As with `toolrack serve` before a daemon.
#[tokio::test(flavor = "multi_thread")]
async fn log_messages_between_calls_pass_two_gateways() {
    let inner = Stage::open(vec![scripted("s", &["--revision", "2025-11-25"])], Scope::All).await;
    let inner_web = Web::open(&inner.gateway).await;
    let outer = Stage::open(vec![McpServerConfig::http("in", inner_web.url())], Scope::All).await;
    let (manager, board) = (Arc::clone(&outer.manager), Arc::clone(&outer.switchboard));
    let options = GatewayOptions { behind: Behind::Gateway, ..GatewayOptions::default() };
    let gateway = Gateway::with_options(manager, board, Scope::Server("in".to_owned()), options);
    let mut pipe = Pipe::open(&gateway, 1 << 16);
    pipe.greet("2025-11-25").await;
    pipe.say(r#"{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"debug"}}"#)
        .await;
    assert!(pipe.hear_answer().await["result"].is_object());
    let message = serde_json::from_str(r#"{"level":"debug","data":"between calls"}"#).unwrap();
    let talking = async {
        loop {
            inner.switchboard.log_from("s", &message);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        told = told_of(&mut pipe, "notifications/message") => assert!(!told.is_empty()),
        () = talking => {}
    }
    pipe.end().await;
    gateway.close().await;
    outer.close().await;
    inner.close().await;
}
