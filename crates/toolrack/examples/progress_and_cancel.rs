//! Follow the progress of a slow call, and cancel another.
//!
//! `cargo run -p toolrack --example progress_and_cancel -- PROGRAM`. The default program is the demo server of
//! this repository (`cargo build -p toolrack-testkit`).

#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;
use std::time::Duration;

use serde_json::json;
use toolrack::{ManagerEvent, McpServerConfig, Toolrack};

fn main() -> Result<(), Box<dyn Error>> {
    // Must come first: this program runs again as the guardian of its server.
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

    // Each progress report restarts the timeout.
    let result = rack
        .call("demo_countdown")
        .args(json!({"from": 3, "every_ms": 50}))
        .timeout(Duration::from_secs(10))
        .on_progress(|progress| println!("progress: {}", progress.progress))
        .send()
        .await?;
    println!("done: {}", result.text());

    // Dropping a call cancels it and notifies the server.
    let mut events = rack.events();
    let slow = json!({"from": 1000, "every_ms": 1000});
    let limit = Duration::from_millis(200);
    if tokio::time::timeout(limit, rack.call("demo_countdown").args(&slow).send()).await.is_err() {
        println!("gave up on the second call");
    }
    while let Some(event) = events.next().await {
        if let ManagerEvent::CallFinished { tool, outcome, .. } = event {
            println!("{tool}: {outcome:?}");
            break;
        }
    }

    // The connection stays usable.
    println!("{}", rack.call("demo_greet").args(json!({"name": "again"})).send().await?.text());
    rack.shutdown().await;
    Ok(())
}
