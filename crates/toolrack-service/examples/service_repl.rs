//! A minimal daemon: reads commands from stdin, line by line, and prints one line of JSON for each.
//!
//! `cargo run -p toolrack-service --example service_repl -- HOME`, and then
//!
//! ```text
//! create {"name": "demo", "package": {"package_type": "binary", "identifier": "demo-server"}, "transport": "stdio"}
//! wait demo
//! call demo greet {"name": "World"}
//! list
//! ```
//!
//! It exits at the end of its input.

#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;
use std::io::BufRead as _;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use toolrack_service::{
    Autostart, ErrorCode, Home, LocalService, McpConfig, McpService as _, McpStatus, ServiceError,
    ServiceOptions, WatchConfig,
};
use uuid::Uuid;

/// How long a server may take to be installed and started.
const TIMEOUT: Duration = Duration::from_mins(3);

fn main() -> Result<(), Box<dyn Error>> {
    // Must come first: this program is also started as the guardian of its servers.
    toolrack_stdio::init();
    run()
}

#[tokio::main]
async fn run() -> Result<(), Box<dyn Error>> {
    // Processes that a killed predecessor may have left.
    let n_killed = toolrack_stdio::kill_orphans();
    tracing::debug!(n_killed, "killed processes of a predecessor");
    let home = std::env::args().nth(1).ok_or("usage: service_repl HOME")?;
    let options = ServiceOptions {
        autostart: Autostart::AllEnabled,
        watch_config: WatchConfig::Yes,
        ..ServiceOptions::default()
    };
    let service = LocalService::open(Home::in_dir(home), options).await?;
    for line in std::io::stdin().lock().lines() {
        let response = match respond(&service, &line?).await {
            Ok(response) => response,
            Err(error) => json!({ "errors": error.details() }),
        };
        println!("{response}");
    }
    service.close().await;
    Ok(())
}

async fn respond(service: &LocalService, line: &str) -> Result<Value, ServiceError> {
    let mut words = line.splitn(4, ' ');
    let mut word = || words.next().unwrap_or_default();
    match (word(), word()) {
        ("create", _) => {
            let document = read(line.trim_start_matches("create"))?;
            Ok(json!(service.create(McpConfig::from_json(&document)?)?))
        }
        ("wait", name) => Ok(json!(wait_running(service, id_of(service, name)?).await)),
        ("call", name) => {
            let (tool, arguments) = (word(), read(word())?);
            Ok(json!(service.call_tool(id_of(service, name)?, tool, &arguments).await?))
        }
        ("list", _) => {
            let row =
                |config: McpConfig| json!([config.id, config.name, service.status(config.id)]);
            Ok(service.list().into_iter().map(row).collect())
        }
        _ => Err(ServiceError::new(ErrorCode::ValidationError, "unknown command")),
    }
}

fn read(text: &str) -> Result<Value, ServiceError> {
    serde_json::from_str(text)
        .map_err(|error| ServiceError::new(ErrorCode::ValidationError, error.to_string()))
}

fn id_of(service: &LocalService, name: &str) -> Result<Uuid, ServiceError> {
    let found =
        service.list().into_iter().find(|config| config.name == name).map(|config| config.id);
    found.ok_or_else(|| ServiceError::new(ErrorCode::NotFound, "no such server"))
}

/// Waits until a server is running, or returns its status after a while.
async fn wait_running(service: &LocalService, id: Uuid) -> McpStatus {
    let until = Instant::now() + TIMEOUT;
    loop {
        let status = service.status(id);
        if matches!(status, McpStatus::Running { .. }) || Instant::now() >= until {
            return status;
        }
        sleep(Duration::from_millis(20)).await;
    }
}
