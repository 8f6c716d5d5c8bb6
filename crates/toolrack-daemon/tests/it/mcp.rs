//! MCP endpoints: all servers, one server, and the servers of an agent.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;
use toolrack_client::{EraChoice, McpClient};
use toolrack_daemon::Daemon;
use toolrack_http::{HttpOptions, HttpServerDef};

use crate::fixture::{Client, Fixture, LONG, check_problem, eventually, request_unix};
use crate::http::send;

/// Connects over the Unix socket.
async fn connect_unix(daemon: &Daemon, path: &str, era: EraChoice) -> McpClient {
    let url = format!("unix:{}:{path}", daemon.socket().display());
    let builder = McpClient::builder("daemon").era(era);
    builder.connect_http(HttpServerDef::new(url), HttpOptions::default()).await.unwrap()
}

/// Connects over TCP with a token.
async fn connect_tcp(client: &Client, path: &str) -> McpClient {
    let mut definition = HttpServerDef::new(format!("http://{}{path}", client.addr));
    definition.headers.push(("authorization".to_owned(), format!("Bearer {}", client.token)));
    let builder = McpClient::builder("daemon");
    builder.connect_http(definition, HttpOptions::default()).await.unwrap()
}

async fn tools(client: &McpClient) -> Vec<String> {
    let listed = client.list_tools().await.unwrap();
    listed.items.iter().map(|tool| tool.name.clone()).collect()
}

async fn echo(client: &McpClient, tool: &str) -> String {
    client.call_tool(tool, &json!({ "text": "hi" })).await.unwrap().content
}

#[tokio::test(flavor = "multi_thread")]
async fn one_endpoint_for_all_servers_and_one_for_each() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    for name in ["one", "two"] {
        client.add(&fixture.scripted(name, &[])).await;
    }
    for era in [EraChoice::Modern, EraChoice::Legacy] {
        let all = connect_unix(&daemon, "/mcp", era).await;
        let listed = tools(&all).await;
        assert!(["one_echo", "two_echo"].iter().all(|tool| listed.iter().any(|name| name == tool)));
        assert_eq!(echo(&all, "two_echo").await, "hi");
        let one = connect_unix(&daemon, "/mcp/server/one", era).await;
        assert!(tools(&one).await.iter().all(|name| !name.starts_with("one_")));
        assert_eq!(echo(&one, "echo").await, "hi");
    }
    let over_tcp = connect_tcp(&client, "/mcp").await;
    assert_eq!(echo(&over_tcp, "one_echo").await, "hi");
    // Calls through the gateway are recorded too.
    eventually("the history has them", async || {
        client.get("/api/calls?tool=echo").await["calls"].as_array().unwrap().len() == 5
    })
    .await;
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn added_and_removed_servers_show_up_at_once() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    check_problem(&client.request("POST", "/mcp/server/one", None).await, 404, "NOT_FOUND", None);
    let all = connect_unix(&daemon, "/mcp", EraChoice::Auto).await;
    assert_eq!(tools(&all).await, Vec::<String>::new());
    client.add(&fixture.scripted("one", &[])).await;
    eventually("it is listed", async || !tools(&all).await.is_empty()).await;
    let one = connect_unix(&daemon, "/mcp/server/one", EraChoice::Legacy).await;
    assert_eq!(echo(&one, "echo").await, "hi");
    let deleted = client.request("DELETE", "/api/servers/one", None).await;
    assert_eq!(deleted.status, 204, "{deleted:?}");
    assert_eq!(client.get("/api/tools").await, json!({ "tools": [] }));
    eventually("it is no longer listed", async || tools(&all).await.is_empty()).await;
    let result = one.call_tool("echo", &json!({ "text": "hi" })).await;
    assert!(result.is_err());
    check_problem(&client.request("POST", "/mcp/server/one", None).await, 404, "NOT_FOUND", None);
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_endpoint_serves_its_own_servers() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    client.add(&fixture.scripted("one", &[])).await;
    check_problem(&client.request("POST", "/mcp/main", None).await, 404, "NOT_FOUND", None);
    save_agents(&client, &agent_config(&fixture)).await;
    eventually("the agent is known", async || {
        client.request("POST", "/mcp/main", None).await.status != 404
    })
    .await;
    let main = connect_unix(&daemon, "/mcp/main", EraChoice::Auto).await;
    eventually("it has both servers", async || {
        let listed = tools(&main).await;
        ["one_echo", "mine_echo"].iter().all(|tool| listed.iter().any(|name| name == tool))
    })
    .await;
    assert_eq!(echo(&main, "mine_echo").await, "hi");
    let all = connect_unix(&daemon, "/mcp", EraChoice::Auto).await;
    assert!(!tools(&all).await.iter().any(|name| name == "mine_echo"));
    eventually("the history names the agent", async || {
        client.get("/api/calls?server=mine").await["calls"][0]["agent"] == json!("main")
    })
    .await;
    save_agents(&client, "").await;
    eventually("the agent is removed", async || {
        client.request("POST", "/mcp/main", None).await.status == 404
    })
    .await;
    fixture.shutdown(daemon).await;
}

fn agent_config(fixture: &Fixture) -> String {
    let document = fixture.scripted("mine", &[]);
    let command = document["package"]["identifier"].as_str().unwrap().to_owned();
    let (variable, value) = fixture.marker.env_var();
    format!(
        "\n[[agents]]\nid = \"main\"\n[[agents.mcp]]\nname = \"mine\"\ncommand = {command:?}\n\
         env = {{ {variable} = {value:?} }}\n"
    )
}

/// Replaces the agents of the config file.
async fn save_agents(client: &Client, agents: &str) {
    let config = client.get("/api/config").await;
    let text = config["text"].as_str().unwrap();
    let start = text.split("\n[[agents]]").next().unwrap();
    let saved = json!({ "text": format!("{start}{agents}"), "generation": config["generation"] });
    let response = client.request("PUT", "/api/config", Some(saved)).await;
    assert_eq!(response.status, 200, "{response:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn open_streams_do_not_delay_shutdown_and_running_calls_finish() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    client.add(&fixture.scripted("one", &[])).await;
    let legacy = connect_unix(&daemon, "/mcp", EraChoice::Legacy).await;
    let modern = connect_tcp(&client, "/mcp").await;
    // Both hold a notification stream open.
    let events = (legacy.subscribe(), modern.subscribe());
    assert_eq!(echo(&legacy, "one_echo").await, "hi");
    let running = TaskTracker::new().spawn(async move {
        let arguments = json!({ "ms": 700 });
        modern.call_tool("one_sleep", &arguments).await.map(|result| result.is_error)
    });
    eventually("the call is running", async || {
        client.get("/api/calls").await["running"].as_array().unwrap().len() == 1
    })
    .await;
    let started = Instant::now();
    fixture.shutdown(daemon).await;
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    assert!(matches!(timeout(LONG, running).await.unwrap().unwrap(), Ok(false)));
    drop(events);
}

#[tokio::test(flavor = "multi_thread")]
async fn mcp_endpoints_require_a_token() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let unauthenticated = Client { token: "x".to_owned(), ..client };
    for path in ["/mcp", "/mcp/main", "/mcp/server/one"] {
        let response = unauthenticated.request("POST", path, Some(Value::Null)).await;
        check_problem(&response, 401, "UNAUTHORIZED", None);
    }
    assert_eq!(request_unix(&daemon, "GET", "/mcp").await.status, 405);
    fixture.shutdown(daemon).await;
}

/// docs/limits.md: the message limit is 32 MiB, the API body limit 16 MiB.
#[tokio::test(flavor = "multi_thread")]
async fn mcp_message_limit_is_larger_than_the_api_body_limit() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "padding": "x".repeat(20 << 20),
    }});
    let response = client.request("POST", "/mcp", Some(initialize.clone())).await;
    assert_eq!(response.status, 200, "{response:?}");
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
    let initialize = initialize.to_string();
    let chunked = format!("{:x}\r\n{initialize}\r\n0\r\n\r\n", initialize.len());
    let response = send(head("transfer-encoding: chunked") + &chunked).await;
    assert_eq!(response.status, 200, "{response:?}");
    // Announced as too large: refused before the body is sent.
    let response = send(head("content-length: 99999999999")).await;
    assert_eq!(response.status, 413, "{response:?}");
    fixture.shutdown(daemon).await;
}
