//! Real HTTP servers from npm and PyPI, in both eras and all three transports: list, call, progress, cancel,
//! list changes, restart, and stream resumption.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep, timeout};
use toolrack_client::{CallOptions, EraChoice, Event, McpClient};
use toolrack_http::{HttpOptions, HttpServerDef};
use toolrack_mcp::Era;
use toolrack_testkit::{HttpServer, HttpServerKind, skipped};

/// Longer than any step takes, even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Starts the server, or returns `None` if it is not installed.
fn start(test: &str, kind: HttpServerKind) -> Option<HttpServer> {
    if let Some(reason) = kind.unavailable_reason() {
        skipped(test, &reason);
        return None;
    }
    Some(HttpServer::start(kind).unwrap())
}

async fn connect(server: &HttpServer, era: EraChoice) -> McpClient {
    let definition = HttpServerDef::new(server.url());
    let builder = McpClient::builder("remote").era(era);
    builder.connect_http(definition, HttpOptions::default()).await.unwrap()
}

async fn text(client: &McpClient, tool: &str, arguments: Value) -> String {
    let result = client.call_tool(tool, &arguments).await.unwrap();
    assert!(!result.is_error, "{}", result.content);
    result.content
}

/// Checks common to all Python servers.
async fn check_python(server: &mut HttpServer, client: &McpClient) {
    assert_eq!(text(client, "add", json!({"a": 19, "b": 23})).await, "42");
    check_progress(client, "slow", json!({"steps": 5, "ms": 200})).await;

    // A dropped call does not block the next one.
    let slow = json!({"steps": 100, "ms": 200});
    assert!(timeout(Duration::from_millis(300), client.call_tool("slow", &slow)).await.is_err());
    assert_eq!(text(client, "echo", json!({"text": "next"})).await, "next");
    check_restart(server, client, "slow", &slow).await;
    assert_eq!(text(client, "echo", json!({"text": "again"})).await, "again");
}

/// Progress reaches the callback and extends the call beyond its timeout.
async fn check_progress(client: &McpClient, tool: &str, arguments: Value) {
    let steps = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&steps);
    let options = CallOptions {
        timeout: Some(Duration::from_millis(900)),
        on_progress: Some(Arc::new(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        })),
        ..CallOptions::default()
    };
    let done = client.call_tool_full(tool, &arguments, &options).await.unwrap();
    assert!(!done.is_error);
    assert!(steps.load(Ordering::Relaxed) >= 4, "{steps:?} reports");
}

/// A call that is open when the server is killed fails, without waiting for its timeout, once a new server runs;
/// later calls reach the new server.
async fn check_restart(server: &mut HttpServer, client: &McpClient, tool: &str, slow: &Value) {
    let started = Instant::now();
    let open = client.call_tool(tool, slow);
    let killed = async {
        sleep(Duration::from_millis(300)).await;
        block_in_place(|| server.restart()).unwrap();
    };
    let (lost, ()) = tokio::join!(open, killed);
    assert!(lost.is_err(), "{lost:?}");
    assert!(started.elapsed() < TIMEOUT, "{:?}", started.elapsed());
}

/// The tool list is fetched again after `list_changed`.
async fn check_growth(client: &McpClient) {
    let mut events = client.subscribe();
    let changed = async { while !matches!(events.next().await, Some(Event::ToolsChanged)) {} };
    text(client, "grow", json!({"name": "sprout"})).await;
    timeout(TIMEOUT, changed).await.unwrap();
    assert!(client.tools().items.iter().any(|tool| tool.name == "sprout"));
    assert_eq!(text(client, "sprout", json!({})).await, "sprout");
}

/// Runs all checks in each era, each with a new server.
async fn check_both_eras(test: &str, kind: HttpServerKind) {
    for (choice, era) in [(EraChoice::Auto, Era::Modern), (EraChoice::Legacy, Era::Legacy)] {
        let Some(mut server) = start(test, kind.clone()) else { return };
        let client = connect(&server, choice).await;
        assert_eq!(client.era(), era);
        check_growth(&client).await;
        check_python(&mut server, &client).await;
        client.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fastmcp_in_both_eras() {
    check_both_eras("fastmcp_in_both_eras", HttpServerKind::FastMcp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_sdk_2_in_both_eras() {
    check_both_eras("python_sdk_2_in_both_eras", HttpServerKind::Mcp2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_sdk_1_with_sessions_and_resumption() {
    let test = "python_sdk_1_with_sessions_and_resumption";
    let Some(mut server) = start(test, HttpServerKind::Mcp1) else { return };
    let client = connect(&server, EraChoice::Auto).await;
    assert_eq!(client.era(), Era::Legacy);
    // The server closes the stream of this call before the response, which arrives on another stream.
    assert_eq!(text(&client, "part", json!({"ms": 500})).await, "parted and met again");
    check_growth(&client).await;
    check_python(&mut server, &client).await;
    client.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_sdk_1_without_sessions() {
    let test = "python_sdk_1_without_sessions";
    let Some(mut server) = start(test, HttpServerKind::Mcp1Stateless) else { return };
    let client = connect(&server, EraChoice::Auto).await;
    assert_eq!(client.era(), Era::Legacy);
    check_python(&mut server, &client).await;
    client.shutdown().await;
}

/// TypeScript SDK 1.x over Streamable HTTP and over HTTP+SSE.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_everything_over_both_http_transports() {
    let test = "server_everything_over_both_http_transports";
    for kind in [HttpServerKind::Everything, HttpServerKind::EverythingSse] {
        let Some(mut server) = start(test, kind.clone()) else { return };
        let client = connect(&server, EraChoice::Auto).await;
        assert_eq!(client.era(), Era::Legacy, "{kind:?}");
        assert_eq!(text(&client, "echo", json!({"message": "hello"})).await, "Echo: hello");
        let tool = "trigger-long-running-operation";
        check_progress(&client, tool, json!({"duration": 1.5, "steps": 5})).await;
        let slow = json!({"duration": 20, "steps": 10});
        assert!(timeout(Duration::from_millis(300), client.call_tool(tool, &slow)).await.is_err());
        check_restart(&mut server, &client, tool, &slow).await;
        assert_eq!(text(&client, "echo", json!({"message": "again"})).await, "Echo: again");
        client.shutdown().await;
    }
}
