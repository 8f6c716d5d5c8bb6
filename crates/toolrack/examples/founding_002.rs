//! Founding document 002, typed from its text: the MCP servers of an agent, its workers, and hot reload.
//!
//! `cargo run -p toolrack --example founding_002`. It needs the test servers of this repository
//! (`cargo build -p toolrack-testkit`), which take the place of the document's npm packages. The worker of a real rig
//! agent is in the tests of `toolrack-rig`.

#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

use toolrack::config::{ConfigFile, McpTransport, read};
use toolrack::serde_json::json;
use toolrack::{ConnectionState, McpManager, McpServerConfig, McpToolAdapter};

/// The config of the document.
const CONFIG: &str = r#"
[defaults]
# MCP servers inherited by all agents

[[defaults.mcp]]
name = "filesystem"
transport = "stdio"
command = "npx"
args = ["-y", "@modelcontextprotocol/server-filesystem", "/workspace"]

[[defaults.mcp]]
name = "sentry"
transport = "http"
url = "https://mcp.sentry.io"
headers = { "Authorization" = "Bearer ${SENTRY_TOKEN}" }

# Per-agent override
[[agents]]
id = "main"

[[agents.mcp]]
name = "postgres"
transport = "stdio"
command = "npx"
args = ["-y", "@modelcontextprotocol/server-postgres", "postgresql://..."]
"#;

/// What an agent is given.
struct AgentDeps {
    mcp_manager: Arc<McpManager>,
}

/// The tools of a worker, by name.
struct ToolServer(HashMap<String, McpToolAdapter>);

fn main() -> Result<(), Box<dyn Error>> {
    // Must come first: this program runs again as the guardian of its servers.
    toolrack::init();
    run()
}

#[tokio::main]
async fn run() -> Result<(), Box<dyn Error>> {
    let file = parse(CONFIG)?;
    let resolved = resolve(&file);
    let names: Vec<&str> = resolved.iter().map(|config| config.name.as_str()).collect();
    assert_eq!(names, ["filesystem", "sentry", "postgres"]);
    assert!(resolved.iter().all(|config| config.enabled));
    println!("config: ok");

    // Agent startup. `sentry` has no token, so it fails; the agent works without it.
    let mcp_manager = McpManager::new(resolved.clone());
    mcp_manager.connect_all().await?;
    let deps = AgentDeps { mcp_manager: Arc::new(mcp_manager) };
    let state = |name: &str| deps.mcp_manager.server(name).map(|server| server.state().clone());
    assert_eq!(state("filesystem")?, ConnectionState::Connected);
    assert_eq!(state("postgres")?, ConnectionState::Connected);
    let ConnectionState::Failed(reason) = state("sentry")? else { return Err("a failure".into()) };
    assert!(reason.to_string().contains("SENTRY_TOKEN"), "{reason}");
    println!("startup: ok");

    // A worker.
    let worker = create_worker_tool_server(deps.mcp_manager.get_tools().await);
    let tool = worker.0.get("postgres_echo").ok_or("the tool")?;
    assert_eq!((tool.server_name(), tool.tool_name()), ("postgres", "echo"));
    assert!(!tool.description().is_empty() && tool.input_schema().is_object());
    let output = tool.call(json!({"text": "select 1"})).await?;
    assert!(output.contains("select 1"), "{output}");
    // Errors are text for the model.
    let error = tool.call(json!(["not", "an", "object"])).await.err().ok_or("an error")?;
    assert_eq!(error.to_string(), "the arguments must be an object, not an array");
    assert!(worker.0.keys().all(|name| !name.starts_with("sentry_")));
    println!("worker: ok");

    // Hot reload: the agent's server goes, and a default comes.
    let edited =
        CONFIG.replace("[[agents.mcp]]\nname = \"postgres\"", "[[agents.mcp]]\nname = \"github\"");
    let new_mcp = resolve(&parse(&edited)?);
    let before = deps.mcp_manager.server("filesystem")?.launch();
    deps.mcp_manager.reconcile(&resolved, &new_mcp).await?;
    deps.mcp_manager.connect_all().await?;
    assert!(deps.mcp_manager.server("postgres").is_err());
    assert_eq!(state("github")?, ConnectionState::Connected);
    assert_eq!(deps.mcp_manager.server("filesystem")?.launch(), before, "not touched");
    assert!(worker.0.contains_key("postgres_echo"), "a worker keeps its tools");
    let worker = create_worker_tool_server(deps.mcp_manager.get_tools().await);
    assert!(worker.0.contains_key("github_echo") && !worker.0.contains_key("postgres_echo"));
    println!("hot reload: ok");

    // Reconnect, and shutdown.
    deps.mcp_manager.reconnect("github").await?;
    assert_eq!(state("github")?, ConnectionState::Connected);
    deps.mcp_manager.disconnect_all().await?;
    assert_eq!(state("github")?, ConnectionState::Disconnected);
    assert!(deps.mcp_manager.get_tools().await.is_empty());
    println!("shutdown: ok");
    Ok(())
}

fn parse(text: &str) -> Result<ConfigFile, Box<dyn Error>> {
    let (file, warnings) =
        read("config.toml", text).accept().map_err(|errors| format!("{errors:?}"))?;
    assert!(warnings.is_empty(), "{warnings:?}");
    Ok(file)
}

/// The servers of the agent, with local programs in place of `npx`.
fn resolve(file: &ConfigFile) -> Vec<McpServerConfig> {
    let mut resolved = file.resolve("main");
    for config in &mut resolved {
        if let McpTransport::Stdio { command, args, .. } = &mut config.transport {
            *command = toolrack_testkit::program("scripted-server").display().to_string();
            args.clear();
        }
    }
    resolved
}

fn create_worker_tool_server(mcp_tools: Vec<McpToolAdapter>) -> ToolServer {
    let mut tool_server = ToolServer(HashMap::new());
    for mcp_tool in mcp_tools {
        tool_server.0.insert(mcp_tool.name().to_owned(), mcp_tool);
    }
    tool_server
}
