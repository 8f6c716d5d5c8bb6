//! The client API of founding document 000.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use toolrack_client::{ConnectError, McpClient, Timeouts};
use toolrack_stdio::{McpServerDef, StdioOptions};

#[tokio::test]
async fn connect_lists_plain_tool_definitions() {
    let server = toolrack_testkit::program("demo-server").display().to_string();
    let client = McpClient::connect("demo", &server, &[]).await.unwrap();
    assert_eq!(client.name(), "demo");
    let plain = client.tool_defs();
    let names: Vec<&str> = plain.iter().map(|tool| tool.name.as_str()).collect();
    let list = client.tools();
    let listed: Vec<&str> = list.items.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, listed);
    let written = serde_json::to_value(&plain[0]).unwrap();
    assert_eq!(written["name"], json!(names[0]));
    assert_eq!(written["inputSchema"]["type"], json!("object"));
    assert!(written["description"].as_str().is_some_and(|text| !text.is_empty()));
    client.shutdown().await;
}

#[tokio::test]
async fn server_gets_our_client_info() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("first");
    let script = format!("head -n 1 >> {}", file.display());
    let definition = McpServerDef {
        command: "sh".to_owned(),
        args: vec!["-c".to_owned(), script],
        ..McpServerDef::default()
    };
    let timeouts = Timeouts { startup: Duration::from_secs(20), ..Timeouts::default() };
    let connecting = McpClient::builder("mute").timeouts(timeouts);
    let outcome = connecting.connect_stdio(definition, StdioOptions::default()).await;
    assert!(matches!(outcome, Err(ConnectError::Exited { .. })), "{outcome:?}");
    let received = std::fs::read_to_string(&file).unwrap();
    let us = format!(r#"{{"name":"toolrack","version":"{}"}}"#, env!("CARGO_PKG_VERSION"));
    // One probe of a modern client, and one `initialize` of a legacy client.
    let requests: Vec<&str> = received.lines().collect();
    assert_eq!(requests.len(), 2, "{received}");
    assert!(
        requests.iter().all(|message| message.contains(&format!(r#"lientInfo":{us}"#))),
        "{received}"
    );
}

#[tokio::test]
async fn connect_inherits_the_environment_and_the_builder_does_not() {
    let server = toolrack_testkit::program("demo-server").display().to_string();
    // Cargo sets this variable for tests, and it is not on the allow-list.
    let script = format!("test -n \"$CARGO_MANIFEST_DIR\" && exec {server}");
    let args = ["-c".to_owned(), script];
    let client = McpClient::connect("demo", "sh", &args).await.unwrap();
    client.shutdown().await;

    let definition =
        McpServerDef { command: "sh".to_owned(), args: args.to_vec(), ..McpServerDef::default() };
    let connecting = McpClient::builder("demo");
    let outcome = connecting.connect_stdio(definition, StdioOptions::default()).await;
    assert!(matches!(outcome, Err(ConnectError::Exited { .. })), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn connect_waits_for_initialize_as_long_as_for_a_call() {
    let started = Instant::now();
    let outcome = McpClient::connect("mute", "sleep", &["600".to_owned()]).await;
    assert!(matches!(outcome, Err(ConnectError::TimedOut { .. })), "{outcome:?}");
    // Two attempts of 120 seconds, because a silent server may have been busy with its installation.
    let waited = started.elapsed().as_secs();
    assert!((240..260).contains(&waited), "{waited}");
}
