//! Shared fixtures: server definitions, options with a guardian, and a scripted server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use toolrack_stdio::{Guardian, McpServerDef, StdioClientTransport, StdioOptions, StdioTransport};
use toolrack_testkit::Marker;
use toolrack_transport::{
    CloseReason, IncomingHandler, OnCancel, OutgoingRequest, RawJson, RequestError, RequestId,
    RequestTimeout, Transport, TransportError,
};

pub(crate) fn program(command: &str, args: &[&str]) -> McpServerDef {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    McpServerDef { command: command.to_owned(), args, ..McpServerDef::default() }
}

/// The scripted server, with a marker in its environment by which all its processes can be found.
pub(crate) fn scripted_server(marker: &Marker, args: &[&str]) -> McpServerDef {
    let server = toolrack_testkit::program("scripted-server");
    let mut definition = program(&server.display().to_string(), args);
    definition.env.insert(Marker::VARIABLE.to_owned(), marker.value().to_owned());
    definition
}

pub(crate) fn guarded() -> StdioOptions {
    let guardian = Guardian::Program(env!("CARGO_BIN_EXE_toolrack-guard").into());
    StdioOptions { guardian, ..StdioOptions::default() }
}

/// With a guardian and short shutdown timeouts.
pub(crate) fn fast_shutdown() -> StdioOptions {
    let mut options = guarded();
    options.shutdown.close_stdin = Duration::from_millis(200);
    options.shutdown.terminate = Duration::from_millis(200);
    options
}

pub(crate) async fn spawn(definition: &McpServerDef) -> StdioTransport {
    StdioTransport::spawn_with(definition, guarded()).await.unwrap()
}

/// Records close reasons and stderr.
#[derive(Default)]
pub(crate) struct RecordingHandler {
    close_reasons: Mutex<Vec<String>>,
    stderr: Mutex<Vec<String>>,
}

impl RecordingHandler {
    pub(crate) fn close_reasons(&self) -> Vec<String> {
        self.close_reasons.lock().unwrap().clone()
    }

    pub(crate) fn stderr(&self) -> Vec<String> {
        self.stderr.lock().unwrap().clone()
    }
}

impl IncomingHandler for RecordingHandler {
    fn on_request(&self, _id: RequestId, _method: &str, _params: Option<RawJson>) {}

    fn on_notification(&self, _method: &str, _params: Option<RawJson>) {}

    fn on_stderr(&self, line: &str) {
        self.stderr.lock().unwrap().push(line.to_owned());
    }

    fn on_close(&self, reason: &CloseReason) {
        self.close_reasons.lock().unwrap().push(reason.to_string());
    }
}

pub(crate) async fn connect(
    definition: &McpServerDef,
    options: StdioOptions,
) -> StdioClientTransport {
    StdioClientTransport::spawn(definition, options, Arc::new(RecordingHandler::default()))
        .await
        .unwrap()
}

/// Starts a server and initializes a session of revision 2025-11-25.
pub(crate) async fn initialized(
    definition: &McpServerDef,
    options: StdioOptions,
) -> StdioClientTransport {
    let transport = connect(definition, options).await;
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "0"},
    });
    request(&transport, "initialize", params, 10_000).await.unwrap();
    transport.notify("notifications/initialized", &None::<()>).await.unwrap();
    transport
}

pub(crate) async fn request(
    transport: &StdioClientTransport,
    method: &str,
    params: Value,
    timeout_ms: u64,
) -> Result<Value, RequestError> {
    let timeout = RequestTimeout::fixed(Duration::from_millis(timeout_ms));
    let params = Some(params);
    let outgoing =
        OutgoingRequest { method, params: &params, timeout, on_cancel: OnCancel::Notify };
    let result = transport.request(outgoing).await?;
    result
        .decode()
        .map_err(|error| RequestError::answered(TransportError::Parse(error.to_string())))
}

pub(crate) async fn call(
    transport: &StdioClientTransport,
    tool: &str,
    arguments: Value,
    timeout_ms: u64,
) -> Result<Value, RequestError> {
    let params = json!({"name": tool, "arguments": arguments});
    request(transport, "tools/call", params, timeout_ms).await
}

/// The text of the first content block of a tool result.
pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}
