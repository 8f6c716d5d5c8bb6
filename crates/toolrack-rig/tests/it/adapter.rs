//! Founding document 002, phase 3: names, descriptions, schemas, calls and errors of adapted tools.

use std::time::Duration;

use rig_core::tool::{DynamicTool, ToolErrorKind};
use serde_json::{Value, json};
use toolrack_config::McpServerConfig;
use toolrack_manager::{McpManager, ToolAdapterError};
use toolrack_rig::dynamic_tools;
use toolrack_testkit::Marker;

use crate::fixture::{adapter, manager, server};

fn demo(marker: &Marker) -> McpServerConfig {
    server("demo", "demo-server", &[], marker)
}

fn named(manager: &McpManager, name: &str) -> DynamicTool {
    dynamic_tools(manager).into_iter().find(|tool| tool.name().as_str() == name).unwrap()
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
    assert_eq!(named(&manager, "demo_greet").definition().parameters, *greet.input_schema());
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
    let text = adapter(&manager, "demo_greet").call(json!({"name": "you"})).await.unwrap();
    assert_eq!(text, "Hello, you!");
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
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

    let error = adapter(&manager, "demo_add").call(json!([1, 2])).await.unwrap_err();
    assert!(matches!(error, ToolAdapterError::Arguments("an array")), "{error:?}");

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
