//! Founding document 002, phase 3: names, descriptions, schemas, calls and errors of adapted tools.

use std::sync::Arc;
use std::time::Duration;

use rig_core::tool::{DynamicTool, ErasedTool, ToolContext, ToolErrorKind, ToolResult};
use serde_json::{Value, json};
use toolrack_config::{EnvValue, McpServerConfig, McpTransport};
use toolrack_manager::McpManager;
use toolrack_rig::{McpToolAdapter, dynamic_tools};
use toolrack_stdio::{Guardian, StdioOptions};
use toolrack_testkit::{Marker, program};

/// A demo server whose processes carry the marker.
fn demo(marker: &Marker) -> McpServerConfig {
    let command = program("demo-server").display().to_string();
    let mut config = McpServerConfig::stdio("demo", command, &[]);
    let (variable, value) = marker.env_var();
    let McpTransport::Stdio { env, .. } = &mut config.transport else { panic!("not stdio") };
    env.insert(variable.to_owned(), EnvValue::from(value));
    config
}

async fn manager(config: McpServerConfig) -> Arc<McpManager> {
    let guardian = Guardian::Program(program("toolrack-guard"));
    let stdio = StdioOptions { guardian, ..StdioOptions::default() };
    let manager = Arc::new(McpManager::builder().stdio(stdio).build(vec![config]));
    manager.connect_all().await.unwrap();
    manager
}

fn named(manager: &Arc<McpManager>, name: &str) -> DynamicTool {
    dynamic_tools(manager).into_iter().find(|tool| tool.name().as_str() == name).unwrap()
}

fn adapter(manager: &Arc<McpManager>, name: &str) -> McpToolAdapter {
    McpToolAdapter::new(manager, manager.find_tool(name).unwrap())
}

#[tokio::test]
async fn tools_keep_their_description_and_schema() {
    let marker = Marker::new();
    let manager = manager(demo(&marker)).await;
    let names: Vec<String> =
        dynamic_tools(&manager).iter().map(|tool| tool.name().to_string()).collect();
    let expected = ["demo_greet", "demo_add", "demo_dice", "demo_countdown", "demo_word_count"];
    assert_eq!(names, expected);

    let greet = named(&manager, "demo_greet").definition();
    assert_eq!(greet.description, "Greets somebody");
    assert_eq!(greet.parameters["required"], json!(["name"]));
    assert_eq!(greet.parameters["properties"]["name"]["type"], json!("string"));

    let greet = adapter(&manager, "demo_greet");
    assert_eq!((greet.name(), greet.server_name()), ("demo_greet", "demo"));
    assert_eq!((greet.tool_name(), greet.description()), ("greet", "Greets somebody"));
    assert_eq!(ErasedTool::name(&greet), "demo_greet");
    assert_eq!(ErasedTool::parameters(&greet), *greet.input_schema());
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn call_returns_the_text_of_the_tool() {
    let marker = Marker::new();
    let config = McpServerConfig { max_output_bytes: 12, ..demo(&marker) };
    let manager = manager(config).await;
    let greet = named(&manager, "demo_greet");
    let output = greet.execute(json!({"name": "rig"})).await.unwrap();
    assert_eq!(output.as_text(), Some("Hello, rig!"));
    let cut = greet.execute(json!({"name": "everybody"})).await.unwrap();
    assert_eq!(
        cut.as_text(),
        Some("Hello, every\n[… truncated: 5 of 17 bytes omitted]"),
        "the manager cuts"
    );
    let result = run(&adapter(&manager, "demo_greet"), r#"{"name": "you"}"#).await;
    assert!(result.is_success());
    assert_eq!(result.output().as_text(), Some("Hello, you!"));
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

async fn run(tool: &McpToolAdapter, args: &str) -> ToolResult {
    tool.execute(args.to_owned(), &mut ToolContext::new()).await
}

/// Kind and model text of a failed call.
async fn failure(tool: &DynamicTool, arguments: Value) -> (ToolErrorKind, String) {
    let error = tool.execute(arguments).await.unwrap_err();
    (error.kind(), error.model_feedback().unwrap().to_owned())
}

#[tokio::test]
async fn failures_are_text_for_the_model() {
    let marker = Marker::new();
    let manager = manager(demo(&marker)).await;
    let add = named(&manager, "demo_add");

    let (kind, text) = failure(&add, json!({"a": "one"})).await;
    assert_eq!(kind, ToolErrorKind::Other);
    assert!(!text.is_empty() && text != "the tool failed without an error message", "{text}");

    let (kind, text) = failure(&add, json!("one")).await;
    assert_eq!(kind, ToolErrorKind::InvalidArgs);
    assert_eq!(text, "the arguments must be an object, not a string");

    let result = run(&adapter(&manager, "demo_add"), "{").await;
    assert!(result.is_error_kind(ToolErrorKind::InvalidArgs));

    manager.set_denied_tools("demo", &["add"]).await.unwrap();
    let (kind, text) = failure(&add, json!({"a": 1, "b": 2})).await;
    assert_eq!(kind, ToolErrorKind::PermissionDenied);
    assert!(text.contains("it matches `add`, denied at runtime"), "{text}");
    assert!(!dynamic_tools(&manager).iter().any(|tool| tool.name().as_str() == "demo_add"));

    let greet = named(&manager, "demo_greet");
    manager.close().await;
    let (kind, text) = failure(&greet, json!({"name": "late"})).await;
    assert_ne!(kind, ToolErrorKind::Timeout, "{text}");
    marker.assert_no_processes_left(Duration::ZERO);
}

/// A tool keeps working after its server reconnects.
#[tokio::test]
async fn tools_survive_a_reconnect() {
    let marker = Marker::new();
    let manager = manager(demo(&marker)).await;
    let greet = named(&manager, "demo_greet");
    manager.reconnect("demo").await.unwrap();
    let output = greet.execute(json!({"name": "again"})).await.unwrap();
    assert_eq!(output.as_text(), Some("Hello, again!"));
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}
