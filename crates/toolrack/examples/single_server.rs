//! Start one server, list its tools, call one, and shut down.
//!
//! `cargo run -p toolrack --example single_server -- PROGRAM [ARGUMENT …]`. The default program is the demo server
//! of this repository (`cargo build -p toolrack-testkit`).

#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;
use std::time::Duration;

use serde_json::json;
use toolrack::{McpServerConfig, Toolrack};

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
    let args: Vec<String> = std::env::args().skip(2).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();

    let server = McpServerConfig::stdio("demo", program, &args);
    let rack = Toolrack::builder().server(server).open().await?;
    // A server that `npx` has to install takes a while.
    for server in rack.ready(Duration::from_mins(2)).await {
        println!("{}: {}", server.name(), server.state());
    }
    for tool in rack.tools().iter() {
        println!("{}: {}", tool.name(), tool.definition().description);
    }

    let answer = rack.call("demo_greet").args(json!({"name": "World"})).send().await?;
    println!("{}", answer.text());

    // Stops the server and all its processes.
    rack.shutdown().await;
    Ok(())
}
