//! One server: start it, see its tools, call one, end it.
//!
//! `cargo run -p toolrack --example single_server -- PROGRAM [ARGUMENT …]`; without a program it is the demo
//! server of this repository (`cargo build -p toolrack-testkit`).

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::time::Duration;

use serde_json::json;
use toolrack::{McpServerConfig, Toolrack};

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
    let args: Vec<String> = std::env::args().skip(2).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();

    let server = McpServerConfig::stdio("demo", program, &args);
    let rack = Toolrack::builder().server(server).open().await?;
    // A server that has to be fetched first, as by `npx`, takes its time.
    for server in rack.ready(Duration::from_mins(2)).await {
        println!("{}: {}", server.name(), server.state());
    }
    for tool in rack.tools().iter() {
        println!("{}: {}", tool.name(), tool.definition().description);
    }

    let answer = rack.call("demo_greet", &json!({"name": "World"})).await?;
    println!("{}", answer.content);

    // Ends the server and everything it has started.
    rack.shutdown().await;
    Ok(())
}
