//! Founding document 004 (the MCP service), as somebody would type it: configs with all fields, the whole life of a
//! server, and the negative test cases MC-NT1 to MC-NT4. Every step is checked.
//!
//! `cargo run -p toolrack --example founding_004`. It uses the demo server of this repository
//! (`cargo build -p toolrack-testkit`).

#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::collections::BTreeMap;
use std::error::Error;

use serde_json::json;
use toolrack::service::{
    Enabled, EnvVarConfig, ErrorCode, Home, McpPackage, McpPackageType, McpSource, McpTransport,
    ServiceOptions, Uuid,
};
use toolrack::{LocalService, McpConfig, McpService, McpStatus};

fn main() -> Result<(), Box<dyn Error>> {
    // Must come first: this program runs again as the guardian of each server.
    toolrack::init();
    run()
}

#[tokio::main]
async fn run() -> Result<(), Box<dyn Error>> {
    // An application uses `Home::for_application("PersonalAgent", |name| std::env::var_os(name))`: on macOS that is
    // `~/Library/Application Support/PersonalAgent`.
    let dir = tempfile::tempdir()?;
    let service = LocalService::open(Home::in_dir(dir.path()), ServiceOptions::default()).await?;
    let id = create(&service, dir.path())?;
    use_tools(&service, id).await?;
    change(&service, id).await?;
    negative_cases(&service, id).await?;

    service.delete(id)?;
    assert!(service.get(id).is_none() && service.list().is_empty());
    assert!(!dir.path().join(format!("secrets/mcp_{id}.key")).exists());
    println!("ok delete");
    service.shutdown_all().await?;
    println!("ok shutdown_all");
    service.close().await;
    Ok(())
}

/// Data model: a config with all fields of the document.
fn demo_server() -> McpConfig {
    let api_key = EnvVarConfig {
        name: "API_KEY".to_owned(),
        value: Some("a secret that goes to the secret store".to_owned()),
        secret_ref: None,
        is_secret: true,
        required: true,
    };
    let region = EnvVarConfig {
        name: "REGION".to_owned(),
        value: None,
        secret_ref: None,
        is_secret: false,
        required: false,
    };
    let env_vars = [api_key, region].map(|variable| (variable.name.clone(), variable));
    McpConfig {
        id: Uuid::nil(),
        name: "demo".to_owned(),
        enabled: true,
        source: McpSource::Official { name: "io.example/demo".to_owned(), version: "1".to_owned() },
        package: McpPackage {
            package_type: McpPackageType::Binary,
            identifier: toolrack_testkit::program("demo-server").display().to_string(),
            version: None,
            runtime_hint: None,
        },
        transport: McpTransport::Stdio,
        env_vars: BTreeMap::from(env_vars),
        // Settings such as `deny` act; everything else is the application's own, and is kept.
        config: json!({ "deny": ["dice"], "icon": "🎲", "layout": { "column": 2, "pinned": null } }),
    }
}

fn create(service: &LocalService, dir: &std::path::Path) -> Result<Uuid, Box<dyn Error>> {
    let config = demo_server();
    let id = service.create(config.clone())?;
    let saved = service.get(id).ok_or("the server was not saved")?;
    assert_eq!(saved.config, config.config, "the application's own values come back");
    assert_eq!((&saved.source, &saved.package), (&config.source, &config.package));
    assert_eq!(service.list(), std::slice::from_ref(&saved));
    // The value is in the secret store, and the config refers to it.
    let api_key = saved.env_vars.get("API_KEY").ok_or("no API_KEY")?;
    assert!(api_key.value.is_none() && api_key.secret_ref.is_some());
    assert!(dir.join(format!("secrets/mcp_{id}.key")).is_file());
    let text = std::fs::read_to_string(service.home().config_file())?;
    assert!(!text.contains("a secret that goes"), "{text}");
    println!("ok create");
    Ok(id)
}

/// Server lifecycle and tool execution.
async fn use_tools(service: &LocalService, id: Uuid) -> Result<(), Box<dyn Error>> {
    assert_eq!(service.status(id), McpStatus::Stopped);
    service.start(id).await?;
    match service.status(id) {
        McpStatus::Running { tools } => println!("ok start: {}", tools.join(" ")),
        other => return Err(format!("not running: {other:?}").into()),
    }
    let tools = service.available_tools();
    assert!(tools.iter().any(|tool| tool.name == "demo_greet"), "{tools:?}");
    assert!(!tools.iter().any(|tool| tool.name == "demo_dice"), "denied");
    println!("ok available_tools: {}", tools.len());
    let provider = service.find_tool_provider("demo_greet").ok_or("no provider")?;
    assert_eq!((provider, service.find_tool_provider("no_such_tool")), (id, None));
    println!("ok find_tool_provider");
    let result = service.call_tool(provider, "demo_greet", &json!({ "name": "World" })).await?;
    assert_eq!(result, "Hello, World!");
    println!("ok call_tool: {result}");
    service.stop(id).await?;
    assert_eq!(service.status(id), McpStatus::Stopped);
    assert!(service.available_tools().is_empty());
    println!("ok stop");
    Ok(())
}

/// Updates, and the end-to-end flow "MCP toggle".
async fn change(service: &LocalService, id: Uuid) -> Result<(), Box<dyn Error>> {
    let config = service.get(id).ok_or("no server")?;
    service.update(McpConfig { name: "renamed".to_owned(), ..config })?;
    assert_eq!(service.get(id).map(|config| config.name).as_deref(), Some("renamed"));
    println!("ok update");
    service.set_enabled(id, Enabled::No).await?;
    assert_eq!(service.status(id), McpStatus::Disabled);
    service.set_enabled(id, Enabled::Yes).await?;
    assert!(matches!(service.status(id), McpStatus::Running { .. }));
    println!("ok toggle");
    Ok(())
}

async fn negative_cases(service: &LocalService, id: Uuid) -> Result<(), Box<dyn Error>> {
    // MC-NT1: start disabled MCP.
    service.set_enabled(id, Enabled::No).await?;
    let error = service.start(id).await.err().ok_or("a disabled server has started")?;
    assert_eq!((error.code(), service.status(id)), (ErrorCode::Conflict, McpStatus::Disabled));
    println!("ok MC-NT1: {error}");

    // MC-NT2: call_tool with unknown mcp_id.
    let unknown = Uuid::from_u128(4);
    let called = service.call_tool(unknown, "demo_greet", &json!({ "name": "World" })).await;
    let error = called.err().ok_or("an unknown server has answered")?;
    assert_eq!(error.code(), ErrorCode::NotFound);
    println!("ok MC-NT2: {error}");

    // MC-NT3: create with missing name.
    let before = service.list();
    let nameless = McpConfig { name: " ".to_owned(), ..demo_server() };
    let error = service.create(nameless).err().ok_or("saved without a name")?;
    assert_eq!((error.code(), service.list()), (ErrorCode::ValidationError, before.clone()));
    println!("ok MC-NT3: {error}");

    // MC-NT4: registry env var required but not provided.
    let mut incomplete = McpConfig { name: "incomplete".to_owned(), ..demo_server() };
    if let Some(api_key) = incomplete.env_vars.get_mut("API_KEY") {
        api_key.value = None;
    }
    let error = service.create(incomplete).err().ok_or("saved without a credential")?;
    assert_eq!((error.code(), service.list()), (ErrorCode::ValidationError, before));
    println!("ok MC-NT4: {error}");
    Ok(())
}
