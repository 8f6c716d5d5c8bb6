//! A complete agent without an API key: a stub model calls a tool and answers with its text.
//!
//! `cargo run -p toolrack-rig --example agent -- DIR` lists DIR with the npm filesystem server if
//! `cargo xtask servers` has installed it, else it greets with the demo server.

#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::stream;
use rig_agent::AgentBuilder;
use rig_agent::completion::{CompletionRequest, CompletionResponse, Usage};
use rig_core::driver::{Exchange, Model, Opened, Opening, Transport};
use rig_core::error::ProviderError;
use rig_core::message::{
    AssistantContent, Message, Origin, ToolCall, ToolFunction, ToolName, ToolResultContent,
    UserContent,
};
use rig_core::test_utils::{MockFrame, MockScript};
use serde_json::{Value, json};
use toolrack_config::McpServerConfig;
use toolrack_manager::McpManager;
use toolrack_rig::dynamic_tools;

/// A model that calls `tool` once and repeats its text.
#[derive(Clone)]
struct StubModel {
    tool: ToolName,
    arguments: Value,
}

impl StubModel {
    fn answer(&self, request: &CompletionRequest) -> AssistantContent {
        if let Some(text) = request.chat_history.iter().find_map(tool_text) {
            return AssistantContent::text(format!("The tool says: {text}"));
        }
        let function = ToolFunction::new(self.tool.clone(), self.arguments.clone());
        AssistantContent::ToolCall(ToolCall::from_wire("call-1", function))
    }
}

/// A real agent uses a provider's model here; nothing else changes.
impl Transport<MockScript> for StubModel {
    fn send(&self, request: CompletionRequest, _exchange: Exchange) -> Opening<MockFrame> {
        let content = vec![self.answer(&request)];
        let origin = Origin::new("stub.api", "stub", "");
        let response = CompletionResponse::new(content, Usage::new(), origin, Value::Null);
        let frame: Result<_, ProviderError> = Ok(MockFrame::Response(Box::new(response)));
        Opening::ready(Opened::new(stream::iter([frame])))
    }
}

fn tool_text(message: &Message) -> Option<String> {
    let Message::User { content } = message else { return None };
    content.iter().find_map(|part| match part {
        UserContent::ToolResult(result) => match result.content.first()? {
            ToolResultContent::Text(text) => Some(text.text().to_owned()),
            _ => None,
        },
        _ => None,
    })
}

/// The npm filesystem server, or the demo server if it is not installed.
fn server(dir: &Path) -> Result<(McpServerConfig, &'static str, Value), Box<dyn Error>> {
    let node = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers/node");
    let program = node.join("node_modules/.bin/mcp-server-filesystem");
    let dir = dir.canonicalize()?.display().to_string();
    if program.exists() {
        let config = McpServerConfig::stdio("fs", program.display().to_string(), &[&dir]);
        return Ok((config, "fs_list_directory", json!({"path": dir})));
    }
    let demo = toolrack_testkit::program("demo-server").display().to_string();
    Ok((McpServerConfig::stdio("demo", demo, &[]), "demo_greet", json!({"name": "World"})))
}

fn main() -> Result<(), Box<dyn Error>> {
    // Must come first: this program runs again as the guardian of its server.
    toolrack_stdio::init();
    run()
}

#[tokio::main]
async fn run() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    let (config, tool, arguments) = server(&dir)?;
    let manager = Arc::new(McpManager::new(vec![config]));
    manager.connect_all().await?;

    let stub = StubModel { tool: ToolName::new(tool)?, arguments };
    let model = Model::new(MockScript::new("stub"), stub);
    let agent = AgentBuilder::new(model)
        .preamble("Use tools to answer.")
        .dynamic_tools(dynamic_tools(&manager))
        .build();
    println!("{}", agent.prompt("What is there?").max_turns(3).await?);

    manager.close().await;
    Ok(())
}
