//! Founding document 002, phase 4: a worker with the tools of a manager on its own `ToolServer`.

use std::time::Duration;

use rig_agent::AgentBuilder;
use rig_agent::agent::Agent;
use rig_agent::tool::server::{ToolServer, ToolServerHandle};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use toolrack_manager::McpToolAdapter;
use toolrack_rig::dynamic_tool;
use toolrack_testkit::Marker;

use crate::fixture::{adapter, journal_until, manager, server};
use crate::stub_model::StubModel;

/// The document's function of this name, with the loop that it adds.
pub(crate) fn create_worker_tool_server(mcp_tools: Vec<McpToolAdapter>) -> ToolServerHandle {
    let mut tool_server = ToolServer::new();
    for mcp_tool in mcp_tools {
        tool_server = tool_server.dynamic_tool(dynamic_tool(mcp_tool).unwrap());
    }
    tool_server.run()
}

/// An agent whose model calls `tool` once and repeats its text.
pub(crate) fn worker(tool_server: &ToolServerHandle, tool: &str, arguments: Value) -> Agent {
    let model = StubModel::model(tool, arguments).unwrap();
    AgentBuilder::new(model).tool_server_handle(tool_server.clone()).build()
}

/// Runs a worker to its answer.
pub(crate) async fn answer(tool_server: &ToolServerHandle, tool: &str, arguments: Value) -> String {
    worker(tool_server, tool, arguments).prompt("Go on.").max_turns(3).await.unwrap().to_string()
}

/// Names of the registered tools.
pub(crate) fn tool_names(tool_server: &ToolServerHandle) -> Vec<String> {
    tool_server.static_tool_defs().iter().map(|tool| tool.name.to_string()).collect()
}

#[tokio::test]
async fn worker_calls_a_tool_of_its_tool_server() {
    let marker = Marker::new();
    let manager = manager(server("demo", "demo-server", &[], &marker)).await;
    let tool_server = create_worker_tool_server(manager.get_tools().await);
    let expected = ["demo_greet", "demo_add", "demo_dice", "demo_countdown", "demo_word_count"];
    assert_eq!(tool_names(&tool_server), expected);
    let definition = &tool_server.static_tool_defs()[0];
    assert_eq!(definition.description, "Greets somebody");
    assert_eq!(definition.parameters, *adapter(&manager, "demo_greet").input_schema());

    let text = answer(&tool_server, "demo_greet", json!({"name": "worker"})).await;
    assert_eq!(text, "The tool says: Hello, worker!");
    // The model reads errors, and the worker goes on.
    manager.set_denied_tools("demo", &["add"]).await.unwrap();
    let text = answer(&tool_server, "demo_add", json!({"a": 1, "b": 2})).await;
    assert!(text.contains("it matches `add`, denied at runtime"), "{text}");
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn aborted_worker_cancels_its_call() {
    let marker = Marker::new();
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let args = ["--journal", journal.to_str().unwrap()];
    let manager = manager(server("one", "scripted-server", &args, &marker)).await;
    let tool_server = create_worker_tool_server(manager.get_tools().await);
    let arguments = json!({"ms": 100_000, "nonce": "slow"});
    let worker = worker(&tool_server, "one_sleep", arguments);

    let mut workers = JoinSet::new();
    workers.spawn(async move { worker.prompt("Sleep.").max_turns(3).await.map(drop) });
    journal_until(&journal, "the call arrives", |journal| journal.executions("slow") == 1).await;
    workers.abort_all();
    assert!(workers.join_next().await.unwrap().unwrap_err().is_cancelled());
    // The server writes it when it gets `notifications/cancelled` for a call that it still runs.
    let is_cancelled = |journal: &toolrack_testkit::Journal| journal.cancellations("slow") == 1;
    journal_until(&journal, "the call is cancelled", is_cancelled).await;

    // Only that call ended.
    let text = answer(&tool_server, "one_echo", json!({"text": "next"})).await;
    assert_eq!(text, "The tool says: next");
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn worker_keeps_its_tools_and_a_new_one_gets_the_updated_tools() {
    let marker = Marker::new();
    // The server does not announce changes, so its list is fetched when a worker starts.
    let config = server("one", "scripted-server", &["--silent-changes"], &marker);
    let manager = manager(config).await;
    let first = create_worker_tool_server(manager.get_tools().await);
    let names = tool_names(&first);
    answer(&first, "one_mutate_tools", json!({"add": "late"})).await;
    // A list is used for at least a second.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let second = create_worker_tool_server(manager.get_tools().await);
    assert_eq!(tool_names(&first), names);
    assert!(!names.contains(&"one_late".to_owned()));
    assert_eq!(tool_names(&second).len(), names.len() + 1);
    assert_eq!(answer(&second, "one_late", json!({})).await, "The tool says: late");

    // A server that reconnects in the meantime does not affect the workers.
    let before = answer(&first, "one_pid", json!({})).await;
    manager.reconnect("one").await.unwrap();
    assert_eq!(tool_names(&first), names);
    assert_ne!(answer(&first, "one_pid", json!({})).await, before);

    // Without a connected server, a new worker has no tools.
    manager.disconnect("one").await.unwrap();
    assert_eq!(manager.get_tools().await.len(), 0);
    let text = answer(&first, "one_pid", json!({})).await;
    assert!(text.contains("server `one` is not connected"), "{text}");
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

/// An adapter is a handle of its manager: the last handle ends the servers.
#[tokio::test(flavor = "multi_thread")]
async fn tool_server_keeps_the_manager_open() {
    let marker = Marker::new();
    let manager = manager(server("demo", "demo-server", &[], &marker)).await;
    let tool_server = create_worker_tool_server(manager.get_tools().await);
    drop(manager);
    let text = answer(&tool_server, "demo_greet", json!({"name": "rest"})).await;
    assert_eq!(text, "The tool says: Hello, rest!");
    drop(tool_server);
    marker.assert_no_processes_left(Duration::from_secs(10));
}
