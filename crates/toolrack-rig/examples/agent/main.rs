//! A complete agent without an API key: a stub model calls a tool and answers with its text.
//!
//! `cargo run -p toolrack-rig --example agent -- DIR` lists DIR with the npm filesystem server if
//! `cargo xtask servers` has installed it, else it greets with the demo server.

#![expect(clippy::print_stdout, reason = "an example prints its results")]

mod stub_model;

use std::error::Error;
use std::path::{Path, PathBuf};

use rig_agent::AgentBuilder;
use serde_json::{Value, json};
use toolrack_config::McpServerConfig;
use toolrack_manager::McpManager;
use toolrack_rig::dynamic_tools;

use stub_model::StubModel;

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
    let manager = McpManager::new(vec![config]);
    manager.connect_all().await?;

    let agent = AgentBuilder::new(StubModel::model(tool, arguments)?)
        .preamble("Use tools to answer.")
        .dynamic_tools(dynamic_tools(&manager))
        .build();
    println!("{}", agent.prompt("What is there?").max_turns(3).await?);

    manager.close().await;
    Ok(())
}
