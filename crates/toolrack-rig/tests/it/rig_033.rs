//! Founding document 002, phases 3 and 4, to the letter: `McpToolAdapter` is a `Tool` of rig 0.33.

use std::time::Duration;

use rig_core_033::completion::ToolDefinition;
use rig_core_033::tool::server::{ToolServer, ToolServerHandle};
use rig_core_033::tool::{Tool, ToolSet};
use serde_json::json;
use toolrack_manager::McpToolAdapter;
use toolrack_testkit::Marker;

use crate::fixture::{adapter, journal_until, manager, server};

fn create_worker_tool_server(mcp_tools: Vec<McpToolAdapter>) -> ToolServerHandle {
    let mut tool_server = ToolServer::new();
    for mcp_tool in mcp_tools {
        tool_server = tool_server.tool(mcp_tool);
    }
    tool_server.run()
}

#[tokio::test]
async fn adapter_is_a_tool_of_rig_033() {
    let marker = Marker::new();
    let manager = manager(server("demo", "demo-server", &[], &marker)).await;
    let greet = adapter(&manager, "demo_greet");
    assert_eq!(Tool::name(&greet), "demo_greet");
    let expected = ToolDefinition {
        name: "demo_greet".to_owned(),
        description: "Greets somebody".to_owned(),
        parameters: greet.input_schema().clone(),
    };
    assert_eq!(Tool::definition(&greet, String::new()).await, expected);

    let worker_tool_server = create_worker_tool_server(manager.get_tools().await);
    let definitions = worker_tool_server.get_tool_defs(None).await.unwrap();
    assert_eq!((definitions.len(), &definitions[0]), (5, &expected));
    // rig 0.33 writes every output as JSON.
    let text = worker_tool_server.call_tool("demo_greet", r#"{"name": "rig"}"#).await.unwrap();
    assert_eq!(text, r#""Hello, rig!""#);
    let error = worker_tool_server.call_tool("demo_add", "[1]").await.unwrap_err().to_string();
    assert!(error.contains("the arguments must be an object, not an array"), "{error}");
    let error = worker_tool_server.call_tool("demo_add", r#"{"a": "one"}"#).await.unwrap_err();
    assert!(!error.to_string().contains("without an error message"), "{error}");
    manager.close().await;
    let error = worker_tool_server.call_tool("demo_greet", "{}").await.unwrap_err().to_string();
    assert!(error.contains("the manager is closed (it was shut down"), "{error}");
    marker.assert_no_processes_left(Duration::ZERO);
}

/// The document's diagram: `handle.add_tool()`.
#[tokio::test]
async fn adapter_is_added_to_a_running_tool_server_of_rig_033() {
    let marker = Marker::new();
    let manager = manager(server("demo", "demo-server", &[], &marker)).await;
    let handle = ToolServer::new().run();
    handle.add_tool(adapter(&manager, "demo_add")).await.unwrap();
    let sum = handle.call_tool("demo_add", r#"{"a": 1, "b": 2}"#).await.unwrap();
    assert_eq!(sum, r#""3""#);
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn dropped_call_of_rig_033_is_cancelled() {
    let marker = Marker::new();
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let args = ["--journal", journal.to_str().unwrap()];
    let manager = manager(server("one", "scripted-server", &args, &marker)).await;
    let tools = ToolSet::from_tools(manager.get_tools().await);
    let arguments = json!({"ms": 100_000, "nonce": "slow"}).to_string();
    let call = tools.call("one_sleep", arguments);
    let arrived =
        journal_until(&journal, "the call arrives", |journal| journal.executions("slow") == 1);
    tokio::select! {
        outcome = call => panic!("the call ended: {outcome:?}"),
        () = arrived => {}
    }
    let is_cancelled = |journal: &toolrack_testkit::Journal| journal.cancellations("slow") == 1;
    journal_until(&journal, "the call is cancelled", is_cancelled).await;
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}
