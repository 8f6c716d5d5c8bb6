//! What the tests of this crate share: definitions, guardians, and a server that follows a plan.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use toolrack_stdio::{Guardian, McpServerDef, StdioLine, StdioOptions, StdioTransport};
use toolrack_testkit::Marker;
use toolrack_transport::{
    Abandon, Ending, Inbox, Line, LineError, Outgoing, Patience, TransportError,
};
use toolrack_transport::{RawJson, RequestId};

pub(crate) fn program(command: &str, args: &[&str]) -> McpServerDef {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    McpServerDef { command: command.to_owned(), args, ..McpServerDef::default() }
}

/// The scripted server with a plan, marked so that everything it starts can be found.
pub(crate) fn scripted(marker: &Marker, args: &[&str]) -> McpServerDef {
    let server = toolrack_testkit::program("scripted-server");
    let mut definition = program(&server.display().to_string(), args);
    definition.env.insert(Marker::VARIABLE.to_owned(), marker.value().to_owned());
    definition
}

pub(crate) fn guarded() -> StdioOptions {
    let guardian = Guardian::Program(env!("CARGO_BIN_EXE_toolrack-guard").into());
    StdioOptions { guardian, ..StdioOptions::default() }
}

/// Guarded, and impatient when it comes to ending.
pub(crate) fn brisk() -> StdioOptions {
    let mut options = guarded();
    options.ladder.close = Duration::from_millis(200);
    options.ladder.terminate = Duration::from_millis(200);
    options
}

pub(crate) async fn spawn(definition: &McpServerDef) -> StdioTransport {
    StdioTransport::spawn_with(definition, guarded()).await.unwrap()
}

/// Keeps the endings and the error output, forgets the rest.
#[derive(Default)]
pub(crate) struct Heard {
    endings: Mutex<Vec<String>>,
    stderr: Mutex<Vec<String>>,
}

impl Heard {
    pub(crate) fn endings(&self) -> Vec<String> {
        self.endings.lock().unwrap().clone()
    }

    pub(crate) fn stderr(&self) -> Vec<String> {
        self.stderr.lock().unwrap().clone()
    }
}

impl Inbox for Heard {
    fn request(&self, _id: RequestId, _method: &str, _params: Option<RawJson>) {}

    fn notification(&self, _method: &str, _params: Option<RawJson>) {}

    fn stderr(&self, line: &str) {
        self.stderr.lock().unwrap().push(line.to_owned());
    }

    fn ended(&self, ending: &Ending) {
        self.endings.lock().unwrap().push(ending.to_string());
    }
}

pub(crate) async fn open(definition: &McpServerDef, options: StdioOptions) -> StdioLine {
    StdioLine::open(definition, options, Arc::new(Heard::default())).await.unwrap()
}

/// Opens a line and greets the server in the manner of 2025-11-25.
pub(crate) async fn greeted(definition: &McpServerDef, options: StdioOptions) -> StdioLine {
    let line = open(definition, options).await;
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "0"},
    });
    ask(&line, "initialize", params, 10_000).await.unwrap();
    line.notify("notifications/initialized", &None::<()>).await.unwrap();
    line
}

pub(crate) async fn ask(
    line: &StdioLine,
    method: &str,
    params: Value,
    timeout_ms: u64,
) -> Result<Value, LineError> {
    let patience = Patience::exactly(Duration::from_millis(timeout_ms));
    let params = Some(params);
    let request = Outgoing { method, params: &params, patience, abandon: Abandon::Tell };
    let result = line.request(request).await?;
    result.decode().map_err(|error| LineError::answered(TransportError::Parse(error.to_string())))
}

pub(crate) async fn call(
    line: &StdioLine,
    tool: &str,
    arguments: Value,
    timeout_ms: u64,
) -> Result<Value, LineError> {
    let params = json!({"name": tool, "arguments": arguments});
    ask(line, "tools/call", params, timeout_ms).await
}

/// The text of the first block of a tool's result.
pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}
