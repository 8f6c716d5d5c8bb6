//! Founding document 000, typed from its text: a client for one server.
//!
//! `cargo run -p toolrack --example founding_000`. It needs the test servers of this repository
//! (`cargo build -p toolrack-testkit`).

#![expect(clippy::print_stdout, reason = "an example prints its results")]
#![expect(clippy::indexing_slicing, reason = "a panic is a failed assertion")]

use std::error::Error;

use toolrack::client::{MCP_REQUEST_TIMEOUT_SECS, parse_tool_result, parse_tools_list};
use toolrack::serde_json::{self, Value, json};
use toolrack::transport::{JsonRpcNotification, JsonRpcRequest, JsonRpcResponse};
use toolrack::{McpClient, McpToolDef, McpToolResult};

fn main() -> Result<(), Box<dyn Error>> {
    // Must come first: this program runs again as the guardian of its server.
    toolrack::init();
    run()
}

#[tokio::main]
async fn run() -> Result<(), Box<dyn Error>> {
    assert_eq!(MCP_REQUEST_TIMEOUT_SECS, 120);

    // Lifecycle methods.
    let command = toolrack_testkit::program("demo-server").display().to_string();
    let args: Vec<String> = Vec::new();
    let client = McpClient::connect("demo", &command, &args).await?;
    let tools: Vec<McpToolDef> = client.tool_defs();
    assert!(!tools.is_empty());
    for tool in &tools {
        assert!(!tool.name.is_empty() && !tool.description.is_empty());
        assert_eq!(tool.input_schema["type"], "object");
    }
    let result: McpToolResult = client.call_tool("add", &json!({"a": 2, "b": 3})).await?;
    assert!(result.content.contains('5') && !result.is_error, "{result:?}");
    let unknown = client.call_tool("no_such_tool", &json!({})).await;
    assert!(unknown.is_err() || unknown.is_ok_and(|result| result.is_error));
    client.shutdown().await;
    println!("connect, call_tool, shutdown: ok");

    // The server sees our environment, as a child of `Command` does.
    let command = toolrack_testkit::program("scripted-server").display().to_string();
    let client = McpClient::connect("scripted", &command, &args).await?;
    let environment = client.call_tool("env", &json!({})).await?.content;
    let environment: Value = serde_json::from_str(&environment)?;
    for (name, value) in std::env::vars().filter(|(_, value)| value.len() < 200) {
        assert_eq!(environment[&name], value, "{name}");
    }
    client.shutdown().await;
    println!("environment: ok");

    // The tests of the document.
    let request = JsonRpcRequest::new(1, "tools/list", None);
    assert_eq!(
        serde_json::to_value(&request)?,
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    );
    let request = JsonRpcRequest::new(2, "tools/call", Some(json!({"name": "x"})));
    assert_eq!(serde_json::to_value(&request)?["params"]["name"], "x");
    let notification = JsonRpcNotification::new("notifications/initialized", None);
    assert_eq!(serde_json::to_value(&notification)?.get("id"), None);
    let response: JsonRpcResponse =
        serde_json::from_str(r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}"#)?;
    assert!(response.jsonrpc == "2.0" && response.id == 1 && response.error.is_none());
    assert!(response.result.is_some_and(|result| result["tools"].is_array()));
    let response: JsonRpcResponse = serde_json::from_str(
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}"#,
    )?;
    let error = response.error.ok_or("an error")?;
    assert_eq!((error.code, error.message.as_str()), (-32601, "Method not found"));
    let tools = parse_tools_list(&json!({"tools": [
        {"name": "browser_navigate", "description": "Opens a page", "inputSchema": {"type": "object"}},
        {"name": "browser_click", "description": "Clicks"},
        {"description": "malformed: it has no name"},
    ]}));
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["browser_navigate", "browser_click"]);
    assert_eq!(tools[1].description, "Clicks");
    assert!(parse_tools_list(&json!({})).is_empty());
    let text = |text: &str| json!({"type": "text", "text": text});
    let result = parse_tool_result(&json!({"content": [text("one"), text("two")]}));
    assert_eq!((result.content.as_str(), result.is_error), ("one\ntwo", false));
    let result = parse_tool_result(&json!({"content": [text("no")], "isError": true}));
    assert!(result.is_error);
    let result = parse_tool_result(&json!({}));
    assert_eq!((result.content.as_str(), result.is_error), ("", false));
    println!("types and helper functions: ok");
    Ok(())
}
