//! Founding document 001, typed from its text: the JSON-RPC transport over stdio, with the document's own tests.
//!
//! `cargo run -p toolrack --example founding_001`. It needs `cat`, `sh`, `sleep` and `python3`.

#![expect(clippy::print_stdout, reason = "an example prints its results")]
#![expect(clippy::indexing_slicing, reason = "a panic is a failed assertion")]
#![expect(clippy::str_to_string, reason = "typed as in the document")]

use std::error::Error;
use std::time::Duration;

use tokio::time::Instant;
use toolrack::serde_json::{self, json};
use toolrack::stdio::{McpServerDef, StdioTransport};
use toolrack::transport::{JsonRpcNotification, JsonRpcRequest, JsonRpcResponse, TransportError};

/// The echo server of the document. It dies of a message without an id.
const ECHO: &str = r#"
import sys, json
for line in sys.stdin:
    req = json.loads(line)
    resp = {"jsonrpc": "2.0", "id": req["id"], "result": req.get("params", {})}
    print(json.dumps(resp), flush=True)
"#;

/// The same, but the first request gets no response.
const SLOW_ECHO: &str = r#"
import sys, json
sys.stdin.readline()
for line in sys.stdin:
    req = json.loads(line)
    print(json.dumps({"jsonrpc": "2.0", "id": req["id"], "result": req.get("params", {})}), flush=True)
"#;

fn main() -> Result<(), Box<dyn Error>> {
    // Must come first: this program runs again as the guardian of its server.
    toolrack::init();
    run()
}

#[tokio::main]
async fn run() -> Result<(), Box<dyn Error>> {
    json_rpc_types()?;
    spawn().await?;
    send_and_receive().await?;
    timeout().await?;
    shutdown().await
}

fn json_rpc_types() -> Result<(), Box<dyn Error>> {
    let req = JsonRpcRequest::new(1, "test", Some(json!({"key": "value"})));
    let json = serde_json::to_string(&req)?;
    assert!(json.contains(r#""jsonrpc":"2.0""#));
    assert!(json.contains(r#""id":1"#));
    assert!(json.contains(r#""method":"test""#));
    let json = serde_json::to_string(&JsonRpcRequest::new(1, "test", None))?;
    assert!(!json.contains("params"));
    let resp: JsonRpcResponse =
        serde_json::from_str(r#"{"jsonrpc":"2.0","id":1,"result":{"ok":true}}"#)?;
    assert_eq!(resp.id, 1);
    assert!(resp.result.is_some());
    assert!(resp.error.is_none());
    let resp: JsonRpcResponse = serde_json::from_str(
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Invalid Request"}}"#,
    )?;
    let err = resp.clone().into_result().err().ok_or("an error")?;
    assert_eq!((err.code, err.message.as_str()), (-32600, "Invalid Request"));
    assert_eq!(TransportError::from(err).to_string(), "JSON-RPC error -32600: Invalid Request");
    let json = serde_json::to_string(&JsonRpcNotification::new("notify", None))?;
    assert!(json.contains(r#""method":"notify""#) && !json.contains("id"));
    println!("json_rpc_types: ok");
    Ok(())
}

async fn spawn() -> Result<(), Box<dyn Error>> {
    let def = McpServerDef { command: "cat".to_string(), ..Default::default() };
    let transport = StdioTransport::spawn(&def).await?;
    assert!(transport.is_running().await);
    transport.shutdown().await?;

    let def =
        McpServerDef { command: "nonexistent_command_12345".to_string(), ..Default::default() };
    let result = StdioTransport::spawn(&def).await;
    assert!(matches!(result, Err(TransportError::Spawn(_))));

    let dir = std::env::temp_dir().canonicalize()?;
    let script =
        r#"read line; printf '{"jsonrpc":"2.0","id":1,"result":"%s in %s"}\n' "$TEST_VAR" "$PWD""#;
    let mut def = McpServerDef {
        command: "sh".to_string(),
        args: vec!["-c".to_string(), script.to_string()],
        cwd: Some(dir.clone()),
        ..Default::default()
    };
    def.env.insert("TEST_VAR".to_string(), "hello".to_string());
    let transport = StdioTransport::spawn(&def).await?;
    let result = transport.request("echo", None, 5000).await?;
    assert_eq!(result, format!("hello in {}", dir.display()));
    transport.shutdown().await?;
    println!("spawn: ok");
    Ok(())
}

fn python(script: &str) -> McpServerDef {
    McpServerDef {
        command: "python3".to_string(),
        args: vec!["-c".to_string(), script.to_string()],
        ..Default::default()
    }
}

async fn send_and_receive() -> Result<(), Box<dyn Error>> {
    let transport = StdioTransport::spawn(&python(ECHO)).await?;
    let result = transport.request("echo", Some(json!({"test": "value"})), 5000).await?;
    assert_eq!(result["test"], "value");
    let result = transport.request_with_default_timeout("echo", None).await?;
    assert_eq!(result, json!({}));
    transport.send(&JsonRpcRequest::new(77, "echo", Some(json!([1])))).await?;
    let resp = transport.receive_response().await?;
    assert_eq!(resp.id, 77);
    assert_eq!(resp.into_result()?, json!([1]));
    // The server exits on a message without an id, and the transport says so.
    transport.send_notification(&JsonRpcNotification::new("notify", None)).await?;
    let error = transport.receive_response().await.err().ok_or("an error")?;
    assert!(error.is_process_exited(), "{error}");
    transport.shutdown().await?;
    println!("send_receive: ok");
    Ok(())
}

async fn timeout() -> Result<(), Box<dyn Error>> {
    let def = McpServerDef {
        command: "sleep".to_string(),
        args: vec!["10".to_string()],
        ..Default::default()
    };
    let transport = StdioTransport::spawn(&def).await?;
    let started = Instant::now();
    let result = transport.request("test", None, 100).await;
    assert!(matches!(result, Err(TransportError::Timeout(100))));
    assert!((100..5000).contains(&started.elapsed().as_millis()));
    transport.shutdown().await?;

    // "For recoverable errors (timeout), retry may be appropriate": the document's server survives a late request.
    let transport = StdioTransport::spawn(&python(SLOW_ECHO)).await?;
    let result = transport.request("echo", None, 1500).await;
    assert!(matches!(result, Err(TransportError::Timeout(1500))));
    let result = transport.request("echo", Some(json!("again")), 5000).await?;
    assert_eq!(result, "again");
    transport.shutdown().await?;
    println!("timeout: ok");
    Ok(())
}

async fn shutdown() -> Result<(), Box<dyn Error>> {
    let def = McpServerDef { command: "cat".to_string(), ..Default::default() };
    let transport = StdioTransport::spawn(&def).await?;
    assert!(!transport.is_shutdown());
    let started = Instant::now();
    transport.shutdown().await?;
    assert!(started.elapsed() < Duration::from_secs(2), "`cat` exits when its input is closed");
    assert!(transport.is_shutdown());
    assert!(!transport.is_running().await);
    let result = transport.request("test", None, 1000).await;
    assert!(matches!(result, Err(TransportError::Shutdown)));
    println!("shutdown: ok");
    Ok(())
}
