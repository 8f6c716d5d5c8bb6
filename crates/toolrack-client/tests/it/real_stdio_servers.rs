//! Real stdio servers from npm and PyPI, started by the usual launcher: connect, list, call, cancel, shutdown,
//! and no process left.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use toolrack_client::{CallOptions, ClientBuilder, ClientHandler, McpClient};
use toolrack_mcp::{
    ClientCapabilities, Elicitation, ElicitationCapability, ElicitationResult, FieldKind,
    FieldValue,
};
use toolrack_stdio::{Guardian, McpServerDef, StdioOptions};
use toolrack_testkit::{Marker, skipped};
use toolrack_transport::BoxFuture;

fn servers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers")
}

/// A server from npm, started with `npx`, or `None` if it is not installed.
fn npm(test: &str, server: &str, args: &[&str]) -> Option<McpServerDef> {
    let dir = servers().join("node");
    if !dir.join("node_modules/.bin").join(server).exists() {
        skipped(test, &format!("{server} is not installed; run `cargo xtask servers`"));
        return None;
    }
    let args = ["--no-install", server].iter().chain(args).map(|arg| (*arg).to_owned()).collect();
    Some(McpServerDef {
        command: "npx".to_owned(),
        args,
        cwd: Some(dir),
        ..McpServerDef::default()
    })
}

/// A server from PyPI, started from its virtual environment, or `None` if it is not installed.
fn pypi(test: &str, server: &str) -> Option<McpServerDef> {
    let program = servers().join("python/venv/bin").join(server);
    if !program.exists() {
        skipped(test, &format!("{server} is not installed; run `cargo xtask servers`"));
        return None;
    }
    Some(McpServerDef { command: program.display().to_string(), ..McpServerDef::default() })
}

async fn connect(server: McpServerDef, marker: &Marker) -> McpClient {
    connect_with(McpClient::builder("real"), server, marker).await
}

async fn connect_with(
    builder: ClientBuilder,
    mut server: McpServerDef,
    marker: &Marker,
) -> McpClient {
    let (name, value) = marker.env_var();
    server.env.insert(name.to_owned(), value.to_owned());
    let guardian = Guardian::Program(toolrack_testkit::program("toolrack-guard"));
    let options = StdioOptions { guardian, ..StdioOptions::default() };
    builder.connect_stdio(server, options).await.unwrap()
}

/// Shuts the client down and asserts that no server process is left.
async fn shutdown(client: McpClient, marker: &Marker) {
    let started = Instant::now();
    client.shutdown().await;
    assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
    marker.assert_no_processes_left(Duration::ZERO);
}

fn names(client: &McpClient) -> Vec<String> {
    client.tools().items.iter().map(|tool| tool.name.clone()).collect()
}

async fn text(client: &McpClient, tool: &str, arguments: Value) -> String {
    let result = client.call_tool(tool, &arguments).await.unwrap();
    assert!(!result.is_error, "{}", result.content);
    result.content
}

#[tokio::test]
async fn server_everything_through_npx() {
    let test = "server_everything_through_npx";
    let Some(server) = npm(test, "mcp-server-everything", &[]) else { return };
    let marker = Marker::new();
    let client = connect(server, &marker).await;
    assert_eq!(client.revision().as_str(), "2025-11-25");
    assert!(names(&client).len() >= 12, "{:?}", names(&client));
    assert_eq!(text(&client, "echo", json!({"message": "hello"})).await, "Echo: hello");
    let sum = text(&client, "get-sum", json!({"a": 19, "b": 23})).await;
    assert!(sum.contains("42"), "{sum}");

    // A dropped call is cancelled and does not block the next one.
    let long = json!({"duration": 20, "steps": 40});
    let options = CallOptions::default();
    let slow = client.call_tool_full("trigger-long-running-operation", &long, &options);
    assert!(timeout(Duration::from_millis(300), slow).await.is_err());
    let started = Instant::now();
    assert_eq!(text(&client, "echo", json!({"message": "next"})).await, "Echo: next");
    assert!(started.elapsed() < Duration::from_secs(1));

    // Progress reaches the callback and extends the call beyond its timeout.
    let steps = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&steps);
    let options = CallOptions {
        timeout: Some(Duration::from_millis(700)),
        on_progress: Some(Arc::new(move |_| {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        })),
        ..CallOptions::default()
    };
    let long = json!({"duration": 2, "steps": 8});
    let done = client.call_tool_full("trigger-long-running-operation", &long, &options).await;
    assert!(!done.unwrap().is_error);
    assert!(steps.load(std::sync::atomic::Ordering::Relaxed) >= 7);

    let refused = client.call_tool("no-such-tool", &json!({})).await;
    assert!(refused.is_err() || refused.is_ok_and(|result| result.is_error));
    shutdown(client, &marker).await;
}

/// Selects the first option of a form.
struct FirstOption;

impl ClientHandler for FirstOption {
    fn capabilities(&self) -> ClientCapabilities {
        let elicitation = Some(ElicitationCapability { form: true, url: false });
        ClientCapabilities { elicitation, ..ClientCapabilities::default() }
    }

    fn elicit<'a>(
        &'a self,
        _server: &'a str,
        request: Elicitation,
    ) -> BoxFuture<'a, ElicitationResult> {
        Box::pin(async move {
            let Elicitation::Form(form) = request else { return ElicitationResult::Decline };
            let [field] = form.schema.fields() else { panic!("{:?}", form.schema) };
            let FieldKind::Choice { options, .. } = &field.kind else { panic!("{field:?}") };
            let value = FieldValue::Text(options[0].value.clone());
            ElicitationResult::Accept { content: Some([(field.name.clone(), value)].into()) }
        })
    }
}

#[tokio::test]
async fn server_everything_task_tool() {
    let test = "server_everything_task_tool";
    let Some(server) = npm(test, "mcp-server-everything", &[]) else { return };
    let marker = Marker::new();
    let builder = McpClient::builder("real").handler(Arc::new(FirstOption));
    let client = connect_with(builder, server, &marker).await;
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = Arc::clone(&seen);
    let options = CallOptions {
        on_progress: Some(Arc::new(move |progress| {
            sink.lock().unwrap().extend(progress.message.clone());
        })),
        ..CallOptions::default()
    };
    let tool = "simulate-research-query";
    let arguments = json!({"topic": "python", "ambiguous": true});
    let result = client.call_tool_full(tool, &arguments, &options).await.unwrap();
    let report = result.text();
    assert!(report.contains("Research Report: python"), "{report}");
    assert!(report.contains("Clarification") && !report.contains("User cancelled"), "{report}");
    let seen = seen.lock().unwrap().clone();
    assert!(seen.iter().any(|message| message.contains("Gathering sources")), "{seen:?}");

    // A dropped task call blocks neither the next call nor shutdown.
    let endless = client.call_tool(tool, &arguments);
    assert!(timeout(Duration::from_millis(300), endless).await.is_err());
    assert_eq!(text(&client, "echo", json!({"message": "next"})).await, "Echo: next");
    shutdown(client, &marker).await;
}

#[tokio::test]
async fn server_filesystem_through_npx() {
    let test = "server_filesystem_through_npx";
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let Some(server) = npm(test, "mcp-server-filesystem", &[root.to_str().unwrap()]) else {
        return;
    };
    let marker = Marker::new();
    let client = connect(server, &marker).await;
    assert!(names(&client).contains(&"read_text_file".to_owned()), "{:?}", names(&client));
    let file = root.join("note.txt").display().to_string();
    text(&client, "write_file", json!({"path": file, "content": "from a tool"})).await;
    assert_eq!(std::fs::read_to_string(root.join("note.txt")).unwrap(), "from a tool");
    let read = text(&client, "read_text_file", json!({"path": file})).await;
    assert_eq!(read, "from a tool");
    let outside = client.call_tool("read_text_file", &json!({"path": "/etc/hostname"})).await;
    assert!(outside.unwrap().is_error);
    shutdown(client, &marker).await;
}

#[tokio::test]
async fn server_memory_through_npx() {
    let test = "server_memory_through_npx";
    let Some(mut server) = npm(test, "mcp-server-memory", &[]) else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("memory.jsonl").display().to_string();
    server.env.insert("MEMORY_FILE_PATH".to_owned(), file);
    let marker = Marker::new();
    let client = connect(server, &marker).await;
    let entity =
        json!({"name": "Toolrack", "entityType": "program", "observations": ["starts servers"]});
    text(&client, "create_entities", json!({"entities": [entity]})).await;
    let found = text(&client, "search_nodes", json!({"query": "starts"})).await;
    assert!(found.contains("Toolrack"), "{found}");
    shutdown(client, &marker).await;
}

#[tokio::test]
async fn mcp_server_time_from_its_virtual_environment() {
    let test = "mcp_server_time_from_its_virtual_environment";
    let Some(server) = pypi(test, "mcp-server-time") else { return };
    let marker = Marker::new();
    let client = connect(server, &marker).await;
    assert!(names(&client).contains(&"get_current_time".to_owned()), "{:?}", names(&client));
    let time = text(&client, "get_current_time", json!({"timezone": "Europe/Paris"})).await;
    assert!(time.contains("Europe/Paris"), "{time}");
    let wrong = client.call_tool("get_current_time", &json!({"timezone": "Mars/Base"})).await;
    assert!(wrong.is_err() || wrong.is_ok_and(|result| result.is_error));
    shutdown(client, &marker).await;
}
