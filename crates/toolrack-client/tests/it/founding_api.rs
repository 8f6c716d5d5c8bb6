//! The short forms of the founding document on the client, as it spells them.

use std::time::Duration;

use serde_json::json;
use toolrack_client::{ConnectError, McpClient, Timeouts};
use toolrack_stdio::{McpServerDef, StdioOptions};

#[tokio::test]
async fn three_words_connect_and_the_tools_come_in_their_plainest_form() {
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
async fn a_server_is_told_who_we_are() {
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
    let refused = connecting.connect_stdio(definition, StdioOptions::default()).await;
    assert!(matches!(refused, Err(ConnectError::Exited { .. })), "{refused:?}");
    let said = std::fs::read_to_string(&file).unwrap();
    let us = format!(r#"{{"name":"toolrack","version":"{}"}}"#, env!("CARGO_PKG_VERSION"));
    // Once as a modern client, and once as a legacy one.
    let questions: Vec<&str> = said.lines().collect();
    assert_eq!(questions.len(), 2, "{said}");
    assert!(
        questions.iter().all(|message| message.contains(&format!(r#"lientInfo":{us}"#))),
        "{said}"
    );
}
