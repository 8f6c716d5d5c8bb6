//! A slow call: hear of its progress, and give up on another one.
//!
//! `cargo run -p toolrack --example progress_and_cancel -- PROGRAM`; without a program it is the demo server of
//! this repository (`cargo build -p toolrack-testkit`).

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use toolrack::{CallOptions, McpServerConfig, Progress, RackEvent, Toolrack};

fn main() -> Result<(), Box<dyn Error>> {
    // First of all: this program is started again to guard its server.
    toolrack::init();
    run()
}

#[tokio::main]
async fn run() -> Result<(), Box<dyn Error>> {
    let program = match std::env::args().nth(1) {
        Some(program) => program,
        None => toolrack_testkit::program("demo-server").display().to_string(),
    };
    let server = McpServerConfig::stdio("demo", program, &[]);
    let rack = Toolrack::builder().server(server).open().await?;

    // Each report of progress also renews the time that the call has.
    let report = |progress: &Progress| println!("progress: {}", progress.progress);
    let options = CallOptions {
        timeout: Some(Duration::from_secs(10)),
        on_progress: Some(Arc::new(report)),
        ..CallOptions::default()
    };
    let arguments = json!({"from": 3, "every_ms": 50});
    let result = rack.call_full("demo_countdown", &arguments, &options).await?;
    println!("done: {}", result.text());

    // A call that is dropped is cancelled: the server is told, and may stop working on it.
    let mut events = rack.events();
    let slow = json!({"from": 1000, "every_ms": 1000});
    let patience = Duration::from_millis(200);
    if tokio::time::timeout(patience, rack.call("demo_countdown", &slow)).await.is_err() {
        println!("gave up on the second call");
    }
    while let Some(event) = events.next().await {
        if let RackEvent::CallFinished { tool, outcome, .. } = event {
            println!("{tool}: {outcome:?}");
            break;
        }
    }

    // The line goes on as if nothing had happened.
    println!("{}", rack.call("demo_greet", &json!({"name": "again"})).await?.content);
    rack.shutdown().await;
    Ok(())
}
