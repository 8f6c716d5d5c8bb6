//! Founding document 003, typed from its text: one client, and a manager of several servers.
//!
//! `cargo run -p toolrack --example founding_003`. It needs the test servers of this repository
//! (`cargo build -p toolrack-testkit`).

#![expect(clippy::print_stdout, reason = "an example prints its results")]
#![expect(clippy::indexing_slicing, reason = "a panic is a failed assertion")]
#![expect(clippy::str_to_string, reason = "typed as in the document")]

use std::collections::HashMap;
use std::error::Error;

use toolrack::client::CallOptions;
use toolrack::config::{EnvValue, McpTransport};
use toolrack::mcp::Content;
use toolrack::serde_json::{self, Value, json};
use toolrack::{ManagerError, McpClient, McpManager, McpServerConfig};

fn main() -> Result<(), Box<dyn Error>> {
    // Must come first: this program runs again as the guardian of its servers.
    toolrack::init();
    run()
}

#[tokio::main]
async fn run() -> Result<(), Box<dyn Error>> {
    single_server().await?;
    multiple_servers().await
}

fn program(name: &str) -> String {
    toolrack_testkit::program(name).display().to_string()
}

async fn single_server() -> Result<(), Box<dyn Error>> {
    // NewClient, Initialize
    let client = McpClient::connect("demo", &program("demo-server"), &[]).await?;
    // ListTools
    let tools = client.list_tools().await?;
    for t in &tools.items {
        println!("Tool: {} - {}", t.name, t.description.as_deref().unwrap_or_default());
        assert!(t.input_schema.get().starts_with('{'));
    }
    // CallTool
    let options = CallOptions::default();
    let result = client.call_tool_full("add", &json!({"a": 1, "b": 2}), &options).await?;
    assert!(!result.is_error);
    for content in &result.content {
        match content {
            Content::Text { text, .. } => assert!(text.contains('3'), "{text}"),
            Content::Image { data, .. } => assert!(!data.is_empty()),
            _ => {}
        }
    }
    // Close
    client.close().await;
    assert!(client.call_tool("add", &json!({})).await.is_err());
    println!("single server: ok");
    Ok(())
}

async fn multiple_servers() -> Result<(), Box<dyn Error>> {
    let manager = McpManager::new(Vec::new());
    // Denied before the server is known.
    manager.set_denied_tools("demo", &["dice"]).await?;
    manager
        .connect(
            "demo",
            McpServerConfig {
                transport: McpTransport::Stdio {
                    command: program("demo-server"),
                    args: Vec::new(),
                    env: HashMap::new(),
                    cwd: None,
                },
                ..McpServerConfig::default()
            },
        )
        .await?;
    // With Custom Environment
    let env = HashMap::from([
        ("DEBUG".to_string(), EnvValue::from("true")),
        ("LOG_LEVEL".to_string(), EnvValue::from("info")),
    ]);
    let transport = McpTransport::Stdio {
        command: program("scripted-server"),
        args: Vec::new(),
        env,
        cwd: None,
    };
    manager.connect("custom", McpServerConfig { transport, ..McpServerConfig::default() }).await?;

    let all_tools = manager.all_tools();
    for t in all_tools.iter() {
        println!("[{}] {}", t.server(), t.tool().name);
    }
    let has = |server: &str, tool: &str| {
        all_tools.iter().any(|t| &**t.server() == server && t.tool().name == tool)
    };
    assert!(has("demo", "add") && has("custom", "echo") && !has("demo", "dice"));

    // Find and call a tool
    let found = manager.find_tool("add").ok_or("the tool")?;
    let result = manager.call_tool_full(found.server(), "add", &json!({"a": 2, "b": 2})).await?;
    let [Content::Text { text, .. }] = &*result.content else { return Err("one text".into()) };
    assert!(text.contains('4'), "{text}");
    let denied = manager.call_tool("demo", "dice", &json!({})).await;
    assert!(matches!(denied, Err(ManagerError::Denied { .. })), "{denied:?}");
    let environment = manager.call_tool("custom", "env", &json!({})).await?.content;
    let environment: Value = serde_json::from_str(&environment)?;
    assert_eq!(
        (&environment["DEBUG"], &environment["LOG_LEVEL"]),
        (&json!("true"), &json!("info"))
    );

    // "server not connected", and a server that cannot be connected
    let unknown = manager.call_tool("memory", "store", &json!({})).await;
    assert!(matches!(unknown, Err(ManagerError::NoSuchServer { .. })), "{unknown:?}");
    let broken = McpServerConfig::stdio("", "/no/such/program", &[]);
    let error = manager.connect("broken", broken).await.err().ok_or("an error")?;
    assert!(error.to_string().contains("/no/such/program"), "{error}");

    let connected = |manager: &McpManager| -> Vec<String> {
        let servers = manager.servers();
        let connected = servers.iter().filter(|server| server.is_connected());
        connected.map(|server| server.name().to_string()).collect()
    };
    assert_eq!(connected(&manager), ["demo", "custom"]);
    manager.disconnect("custom").await?;
    assert_eq!(connected(&manager), ["demo"]);
    manager.close().await;
    println!("multiple servers: ok");
    Ok(())
}
