//! The servers of a daemon for clients that speak MCP: all of them, one of them, and those of another agent.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;
use toolrack_client::{EraChoice, McpClient};
use toolrack_daemon::Daemon;
use toolrack_http::{HttpOptions, HttpServerDef};

use crate::http::send;
use crate::stage::{Client, LONG, Stage, ask_unix, check_problem, eventually};

/// Comes in over the Unix socket.
async fn by_socket(daemon: &Daemon, path: &str, era: EraChoice) -> McpClient {
    let url = format!("unix:{}:{path}", daemon.socket().display());
    let builder = McpClient::builder("daemon").era(era);
    builder.connect_http(HttpServerDef::new(url), HttpOptions::default()).await.unwrap()
}

/// Comes in over TCP, with this key.
async fn by_tcp(client: &Client, path: &str) -> McpClient {
    let mut definition = HttpServerDef::new(format!("http://{}{path}", client.addr));
    definition.headers.push(("authorization".to_owned(), format!("Bearer {}", client.token)));
    let builder = McpClient::builder("daemon");
    builder.connect_http(definition, HttpOptions::default()).await.unwrap()
}

async fn tools(client: &McpClient) -> Vec<String> {
    let listed = client.list_tools().await.unwrap();
    listed.items.iter().map(|it| it.name.clone()).collect()
}

async fn echo(client: &McpClient, tool: &str) -> String {
    client.call_tool(tool, &json!({ "text": "hi" })).await.unwrap().content
}

#[tokio::test(flavor = "multi_thread")]
async fn all_servers_are_behind_one_endpoint_and_each_has_its_own() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    for name in ["one", "two"] {
        client.add(&stage.scripted(name, &[])).await;
    }
    for era in [EraChoice::Modern, EraChoice::Legacy] {
        let all = by_socket(&daemon, "/mcp", era).await;
        let seen = tools(&all).await;
        assert!(["one_echo", "two_echo"].iter().all(|it| seen.iter().any(|name| name == it)));
        assert_eq!(echo(&all, "two_echo").await, "hi");
        let one = by_socket(&daemon, "/mcp/server/one", era).await;
        assert!(tools(&one).await.iter().all(|it| !it.starts_with("one_")));
        assert_eq!(echo(&one, "echo").await, "hi");
    }
    let over_tcp = by_tcp(&client, "/mcp").await;
    assert_eq!(echo(&over_tcp, "one_echo").await, "hi");
    // Calls through the gateway are calls like any other.
    eventually("the history has them", async || {
        client.get("/api/calls?tool=echo").await["calls"].as_array().unwrap().len() == 5
    })
    .await;
    stage.end(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_come_and_go_are_seen_at_once() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    check_problem(&client.ask("POST", "/mcp/server/one", None).await, 404, "NOT_FOUND", None);
    let all = by_socket(&daemon, "/mcp", EraChoice::Auto).await;
    assert_eq!(tools(&all).await, Vec::<String>::new());
    client.add(&stage.scripted("one", &[])).await;
    eventually("it is listed", async || !tools(&all).await.is_empty()).await;
    let one = by_socket(&daemon, "/mcp/server/one", EraChoice::Legacy).await;
    assert_eq!(echo(&one, "echo").await, "hi");
    let gone = client.ask("DELETE", "/api/servers/one", None).await;
    assert_eq!(gone.status, 204, "{gone:?}");
    assert_eq!(client.get("/api/tools").await, json!({ "tools": [] }));
    eventually("it is listed no more", async || tools(&all).await.is_empty()).await;
    let gone = one.call_tool("echo", &json!({ "text": "hi" })).await;
    assert!(gone.is_err());
    check_problem(&client.ask("POST", "/mcp/server/one", None).await, 404, "NOT_FOUND", None);
    stage.end(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_has_its_own_servers() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    client.add(&stage.scripted("one", &[])).await;
    check_problem(&client.ask("POST", "/mcp/main", None).await, 404, "NOT_FOUND", None);
    save_with(&client, &agent_of(&stage)).await;
    eventually("it is known", async || client.ask("POST", "/mcp/main", None).await.status != 404)
        .await;
    let main = by_socket(&daemon, "/mcp/main", EraChoice::Auto).await;
    eventually("it has both", async || {
        let seen = tools(&main).await;
        ["one_echo", "mine_echo"].iter().all(|it| seen.iter().any(|name| name == it))
    })
    .await;
    assert_eq!(echo(&main, "mine_echo").await, "hi");
    let all = by_socket(&daemon, "/mcp", EraChoice::Auto).await;
    assert!(!tools(&all).await.iter().any(|it| it == "mine_echo"));
    eventually("the history knows whose call it was", async || {
        client.get("/api/calls?server=mine").await["calls"][0]["agent"] == json!("main")
    })
    .await;
    save_with(&client, "").await;
    eventually("it is gone", async || client.ask("POST", "/mcp/main", None).await.status == 404)
        .await;
    stage.end(daemon).await;
}

fn agent_of(stage: &Stage) -> String {
    let document = stage.scripted("mine", &[]);
    let command = document["package"]["identifier"].as_str().unwrap().to_owned();
    let (variable, value) = stage.marker.pair();
    format!(
        "\n[[agents]]\nid = \"main\"\n[[agents.mcp]]\nname = \"mine\"\ncommand = {command:?}\n\
         env = {{ {variable} = {value:?} }}\n"
    )
}

/// Writes what stands before the first agent, and this.
async fn save_with(client: &Client, end: &str) {
    let config = client.get("/api/config").await;
    let text = config["text"].as_str().unwrap();
    let start = text.split("\n[[agents]]").next().unwrap();
    let saved = json!({ "text": format!("{start}{end}"), "generation": config["generation"] });
    let answer = client.ask("PUT", "/api/config", Some(saved)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_listens_does_not_hold_up_the_end_and_who_waits_gets_an_answer() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    client.add(&stage.scripted("one", &[])).await;
    let legacy = by_socket(&daemon, "/mcp", EraChoice::Legacy).await;
    let modern = by_tcp(&client, "/mcp").await;
    // Both have a stream open for what they are not asked for.
    let events = (legacy.subscribe(), modern.subscribe());
    assert_eq!(echo(&legacy, "one_echo").await, "hi");
    let waiting = TaskTracker::new().spawn(async move {
        let arguments = json!({ "ms": 700 });
        modern.call_tool("one_sleep", &arguments).await.map(|it| it.is_error)
    });
    eventually("it is under way", async || {
        client.get("/api/calls").await["running"].as_array().unwrap().len() == 1
    })
    .await;
    let begun = Instant::now();
    stage.end(daemon).await;
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert!(matches!(timeout(LONG, waiting).await.unwrap().unwrap(), Ok(false)));
    drop(events);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_there_is_nothing() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    let stranger = Client { token: "x".to_owned(), ..client };
    for path in ["/mcp", "/mcp/main", "/mcp/server/one"] {
        let answer = stranger.ask("POST", path, Some(Value::Null)).await;
        check_problem(&answer, 401, "UNAUTHORIZED", None);
    }
    assert_eq!(ask_unix(&daemon, "GET", "/mcp").await.status, 405);
    stage.end(daemon).await;
}

/// docs/limits.md: 32 MiB for a message, which is more than the API takes.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_may_be_larger_than_a_body_of_the_api() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    let greeting = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "padding": "x".repeat(20 << 20),
    }});
    let answer = client.ask("POST", "/mcp", Some(greeting.clone())).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let head = |length: &str| {
        let (host, token) = (client.addr, &client.token);
        format!(
            "POST /mcp HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\n{length}\r\nconnection: close\r\n\r\n"
        )
    };
    let send = async |bytes: String| {
        let addr = client.addr;
        let sent = tokio::task::spawn_blocking(move || send(addr, bytes.as_bytes())).await;
        sent.unwrap().unwrap()
    };
    let greeting = greeting.to_string();
    let chunked = format!("{:x}\r\n{greeting}\r\n0\r\n\r\n", greeting.len());
    let answer = send(head("transfer-encoding: chunked") + &chunked).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    // Announced as too large: refused before it is sent.
    let answer = send(head("content-length: 99999999999")).await;
    assert_eq!(answer.status, 413, "{answer:?}");
    stage.end(daemon).await;
}
