//! Toolrack's client with the gateway as a separate program and third-party servers behind it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use toolrack_client::{CallOptions, EraChoice, McpClient};
use toolrack_http::{HttpOptions, HttpServerDef};
use toolrack_stdio::{Guardian, McpServerDef, StdioOptions};
use toolrack_testkit::{program, skipped};

use crate::fixture::eventually;
use crate::other_clients::Endpoint;

const SLOW_TOOL: &str = "everything_trigger-long-running-operation";

/// Lists, calls, reports progress and cancels.
async fn check(client: &McpClient, endpoint: &Endpoint) {
    let names: Vec<String> = client.tools().items.iter().map(|tool| tool.name.clone()).collect();
    for expected in ["everything_echo", "time_convert_time"] {
        assert!(names.iter().any(|name| name == expected), "{names:?}");
    }
    let echo = client.call_tool("everything_echo", &json!({ "message": "hello" })).await.unwrap();
    assert_eq!(echo.content, "Echo: hello");
    let zone =
        json!({ "source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo" });
    let time = client.call_tool("time_convert_time", &zone).await.unwrap();
    assert!(time.content.contains("21:00"), "{}", time.content);

    let steps = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&steps);
    let options = CallOptions {
        on_progress: Some(Arc::new(move |progress| {
            assert_eq!(progress.total, Some(4.0));
            counted.fetch_add(1, Ordering::Relaxed);
        })),
        ..CallOptions::default()
    };
    client
        .call_tool_full(SLOW_TOOL, &json!({ "duration": 1, "steps": 4 }), &options)
        .await
        .unwrap();
    assert!(steps.load(Ordering::Relaxed) >= 3, "{steps:?}");

    let before = endpoint.n_cancelled();
    let forever = json!({ "duration": 60, "steps": 2 });
    let call = client.call_tool(SLOW_TOOL, &forever);
    assert!(tokio::time::timeout(Duration::from_millis(300), call).await.is_err());
    eventually("the server is told", || endpoint.n_cancelled() == before + 1).await;
    let next = client.call_tool("everything_echo", &json!({ "message": "next" })).await.unwrap();
    assert_eq!(next.content, "Echo: next");
}

#[tokio::test(flavor = "multi_thread")]
async fn own_client_over_http() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = match Endpoint::new(dir.path(), "http") {
        Ok(endpoint) => endpoint,
        Err(reason) => return skipped("own_client_over_http", &reason),
    };
    let listening = endpoint.listen();
    for era in [EraChoice::Legacy, EraChoice::Modern] {
        let definition = HttpServerDef::new(listening.url.clone());
        let builder = McpClient::builder("gateway").era(era);
        let client = builder.connect_http(definition, HttpOptions::default()).await.unwrap();
        check(&client, &endpoint).await;
        client.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn own_client_over_stdio() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = match Endpoint::new(dir.path(), "stdio") {
        Ok(endpoint) => endpoint,
        Err(reason) => return skipped("own_client_over_stdio", &reason),
    };
    for era in [EraChoice::Legacy, EraChoice::Modern] {
        let command = program("toolrack-endpoint").display().to_string();
        let definition = McpServerDef { command, args: endpoint.args(), ..McpServerDef::default() };
        let guardian = Guardian::Program(program("toolrack-guard"));
        let options = StdioOptions { guardian, ..StdioOptions::default() };
        let builder = McpClient::builder("gateway").era(era);
        let client = builder.connect_stdio(definition, options).await.unwrap();
        check(&client, &endpoint).await;
        client.shutdown().await;
    }
}
