//! The service as a program that is spoken to line by line: the smallest daemon.
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
//! Each line is answered by one line of JSON. It ends when its input does.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

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
const PATIENCE: Duration = Duration::from_mins(3);

fn main() -> Result<(), Box<dyn Error>> {
    // First of all: this program is started again to guard its servers.
    toolrack_stdio::init();
    run()
}

#[tokio::main]
async fn run() -> Result<(), Box<dyn Error>> {
    // What a killed predecessor may have left.
    let n_ended = toolrack_stdio::sweep();
    tracing::debug!(n_ended, "processes of a predecessor were ended");
    let home = std::env::args().nth(1).ok_or("say where its home is")?;
    let options = ServiceOptions {
        autostart: Autostart::AllEnabled,
        watch_config: WatchConfig::Yes,
        ..ServiceOptions::default()
    };
    let service = LocalService::open(Home::in_dir(home), options).await?;
    for line in std::io::stdin().lock().lines() {
        let answer = match answer(&service, &line?).await {
            Ok(answer) => answer,
            Err(error) => json!({ "faults": error.details() }),
        };
        println!("{answer}");
    }
    service.close().await;
    Ok(())
}

async fn answer(service: &LocalService, line: &str) -> Result<Value, ServiceError> {
    let mut words = line.splitn(4, ' ');
    let mut word = || words.next().unwrap_or_default();
    match (word(), word()) {
        ("create", _) => {
            let document = read(line.trim_start_matches("create"))?;
            Ok(json!(service.create(McpConfig::from_json(&document)?)?))
        }
        ("wait", name) => Ok(json!(settled(service, id_of(service, name)?).await)),
        ("call", name) => {
            let (tool, arguments) = (word(), read(word())?);
            Ok(json!(service.call_tool(id_of(service, name)?, tool, &arguments).await?))
        }
        ("list", _) => {
            let row = |it: McpConfig| json!([it.id, it.name, service.status(it.id)]);
            Ok(service.list().into_iter().map(row).collect())
        }
        _ => Err(ServiceError::new(ErrorCode::ValidationError, "no such word")),
    }
}

fn read(text: &str) -> Result<Value, ServiceError> {
    serde_json::from_str(text)
        .map_err(|error| ServiceError::new(ErrorCode::ValidationError, error.to_string()))
}

fn id_of(service: &LocalService, name: &str) -> Result<Uuid, ServiceError> {
    let found = service.list().into_iter().find(|it| it.name == name).map(|it| it.id);
    found.ok_or_else(|| ServiceError::new(ErrorCode::NotFound, "no such server"))
}

/// The status of a server that is started by itself, once it runs, or after a while whatever it is.
async fn settled(service: &LocalService, id: Uuid) -> McpStatus {
    let until = Instant::now() + PATIENCE;
    loop {
        let status = service.status(id);
        if matches!(status, McpStatus::Running { .. }) || Instant::now() >= until {
            return status;
        }
        sleep(Duration::from_millis(20)).await;
    }
}
