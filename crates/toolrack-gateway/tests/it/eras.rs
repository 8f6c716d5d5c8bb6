//! Clients of both eras with servers of both eras: every feature passes the gateway.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use serde_json::value::to_raw_value;
use toolrack_client::{CallError, CallOptions, EraChoice, Event, McpClient};
use toolrack_config::McpServerConfig;
use toolrack_gateway::Scope;
use toolrack_mcp::{Arguments, CompletionArgument, CompletionRef, LogLevel, ResourceBody};

use crate::fixture::{Fixture, HttpFixture, TIMEOUT, TestUser, eventually, n_cancelled, scripted};

async fn call_text(client: &McpClient, tool: &str, arguments: serde_json::Value) -> String {
    let result = client.call_tool(tool, &arguments).await.unwrap();
    assert!(!result.is_error, "{}", result.content);
    result.content
}

/// Checks one client with two servers, one of which speaks `revision`.
async fn check(era: EraChoice, revision: &str) {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let journal_arg = journal.display().to_string();
    let configs = vec![
        scripted("one", &["--revision", revision, "--journal", &journal_arg]),
        scripted("two", &["--revision", "2025-06-18"]),
    ];
    let fixture = Fixture::start(configs, Scope::All).await;
    let http = HttpFixture::start(&fixture.gateway).await;
    let user = Arc::new(TestUser::default());
    let client = http.client(era, &user).await;

    let names: Vec<String> = client.tools().items.iter().map(|tool| tool.name.clone()).collect();
    assert!(names.contains(&"one_echo".to_owned()) && names.contains(&"two_echo".to_owned()));
    assert_eq!(call_text(&client, "one_echo", json!({"text": "hello"})).await, "hello");
    assert_eq!(call_text(&client, "two_echo", json!({"text": "th\u{e0041}ere"})).await, "there");
    check_server_requests(&client, &user).await;
    check_roots(&client, revision).await;
    check_progress_and_logs(&client, &user).await;
    check_resources_and_prompts(&client).await;
    check_changes(&client).await;
    check_failures(&client).await;

    // Dropping a call cancels it at its server.
    let long = json!({"ms": 60_000});
    let slow = client.call_tool("one_sleep", &long);
    assert!(tokio::time::timeout(Duration::from_millis(300), slow).await.is_err());
    eventually("the server is told", || n_cancelled(&journal) == 1).await;

    client.shutdown().await;
    fixture.close().await;
}

async fn check_server_requests(client: &McpClient, user: &TestUser) {
    let text = call_text(client, "one_ask", json!({"kind": "elicitation", "rounds": 2})).await;
    assert!(text.contains(r#""name":"Ada""#) && text.contains(r#""agree":true"#), "{text}");
    assert!(user.has_recorded(r#"asked Server "one" asks: Who are you?"#));
    let text = call_text(client, "one_ask", json!({"kind": "sampling"})).await;
    assert!(text.contains("42"), "{text}");
    assert!(user.has_recorded(r#"sampled 64 This request comes from the MCP server "one"."#));
}

/// A modern server gets the roots of the calling client. A legacy one would keep them for all clients.
async fn check_roots(client: &McpClient, revision: &str) {
    let asked = client.call_tool("one_ask", &json!({"kind": "roots"})).await.unwrap();
    let has_roots = asked.content.contains("file:///work");
    assert_eq!(has_roots, revision == "2026-07-28", "{}", asked.content);
}

async fn check_progress_and_logs(client: &McpClient, user: &TestUser) {
    let steps = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&steps);
    let options = CallOptions {
        on_progress: Some(Arc::new(move |progress| {
            assert_eq!(progress.total, Some(4.0));
            counted.fetch_add(1, Ordering::Relaxed);
        })),
        ..CallOptions::default()
    };
    let arguments = json!({"steps": 4, "ms": 20});
    client.call_tool_full("one_progress", &arguments, &options).await.unwrap();
    assert_eq!(steps.load(Ordering::Relaxed), 4);

    let options = CallOptions { log_level: Some(LogLevel::Info), ..CallOptions::default() };
    let arguments = json!({"level": "warning", "text": "care\u{202e}ful"});
    client.call_tool_full("one_log", &arguments, &options).await.unwrap();
    eventually("the message arrives", || user.has_recorded(r#"log warning one/log "careful""#))
        .await;
}

async fn check_resources_and_prompts(client: &McpClient) {
    let options = CallOptions::default();
    let resources = client.list_resources().await.unwrap();
    let readmes = resources.items.iter().filter(|resource| resource.uri == "test://readme").count();
    assert_eq!(readmes, 1, "a URI of two servers is listed once");
    let read = client.read_resource("test://readme", &options).await.unwrap();
    assert!(matches!(&read.contents[0].body, ResourceBody::Text(text) if text == "Read me."));
    let read = client.read_resource("test://echo/hi", &options).await.unwrap();
    assert!(matches!(&read.contents[0].body, ResourceBody::Text(text) if text == "hi"));
    assert!(client.read_resource("test://nothing", &options).await.is_err());
    assert_eq!(client.list_resource_templates().await.unwrap().items.len(), 1);

    let prompts = client.list_prompts().await.unwrap();
    let names: Vec<&str> = prompts.items.iter().map(|prompt| prompt.name.as_str()).collect();
    assert_eq!(names, ["one_plain", "one_greeting", "two_plain", "two_greeting"]);
    let filled = BTreeMap::from([("name".to_owned(), "Ada".to_owned())]);
    let prompt = client.get_prompt("two_greeting", &filled, &options).await.unwrap();
    assert_eq!(prompt.messages.len(), 1);
    assert!(client.get_prompt("greeting", &filled, &options).await.is_err());
    let reference = CompletionRef::Prompt { name: "one_greeting" };
    let argument = CompletionArgument { name: "name", value: "al" };
    let completed = client.complete(reference, argument, &BTreeMap::new()).await.unwrap();
    assert_eq!(completed.values, ["alan"]);
}

async fn check_changes(client: &McpClient) {
    let mut events = client.subscribe();
    client.subscribe_resource("test://counter").await.unwrap();
    call_text(client, "one_touch", json!({"uri": "test://counter"})).await;
    let updated = async {
        while let Some(event) = events.next().await {
            if matches!(event, Event::ResourceUpdated { uri } if uri == "test://counter") {
                return;
            }
        }
    };
    tokio::time::timeout(TIMEOUT, updated).await.expect("the update arrives");
    client.unsubscribe_resource("test://counter").await.unwrap();
    call_text(client, "one_mutate_tools", json!({"add": "late"})).await;
    let has_late = || client.tools().items.iter().any(|tool| tool.name == "one_late");
    eventually("the new tool is listed", has_late).await;
}

async fn check_failures(client: &McpClient) {
    let failed = client.call_tool("one_fail", &json!({"text": "oops"})).await.unwrap();
    assert!(failed.is_error, "a tool error is a result");
    let unknown = client.call_tool("one_unknown", &json!({})).await.unwrap_err();
    let source = std::error::Error::source(&unknown).unwrap().to_string();
    assert!(source.contains("Unknown tool: one_unknown"), "{source}");
    let raw = to_raw_value(&json!({"ms": "soon"})).unwrap();
    let refused =
        client.call_tool_raw("one_sleep", Arguments::Raw(&raw), &CallOptions::default()).await;
    assert!(matches!(refused, Err(CallError::Refused(error)) if error.code == -32602));
}

#[tokio::test(flavor = "multi_thread")]
async fn modern_client_with_modern_server() {
    check(EraChoice::Modern, "2026-07-28").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn modern_client_with_legacy_server() {
    check(EraChoice::Modern, "2025-11-25").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn legacy_client_with_modern_server() {
    check(EraChoice::Legacy, "2026-07-28").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn legacy_client_with_legacy_server() {
    check(EraChoice::Legacy, "2025-11-25").await;
}

/// As with `toolrack serve` in front of a daemon: the outer gateway passes the `requestState` of the inner one.
#[tokio::test(flavor = "multi_thread")]
async fn request_state_passes_a_second_gateway() {
    let inner =
        Fixture::start(vec![scripted("s", &["--revision", "2025-11-25"])], Scope::All).await;
    let inner_http = HttpFixture::start(&inner.gateway).await;
    let outer =
        Fixture::start(vec![McpServerConfig::http("in", inner_http.url())], Scope::All).await;
    let outer_http = HttpFixture::start(&outer.gateway).await;
    for era in [EraChoice::Modern, EraChoice::Legacy] {
        let user = Arc::new(TestUser::default());
        let client = outer_http.client(era, &user).await;
        let asking = json!({"kind": "elicitation", "rounds": 2});
        let text = call_text(&client, "in_s_ask", asking).await;
        assert!(text.contains(r#""name":"Ada""#), "{text}");
        // Every gateway in between is named.
        let asked = r#"asked Server "in" asks: Server "s" asks: Who are you?"#;
        assert!(user.has_recorded(asked), "{:?}", user.records);
        client.shutdown().await;
    }
    outer.close().await;
    inner.close().await;
}
