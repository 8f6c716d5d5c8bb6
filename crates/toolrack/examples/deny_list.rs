//! Tools that an agent must not have: they are not listed, and calling one says which rule forbids it.
//!
//! `cargo run -p toolrack --example deny_list -- PROGRAM`; without a program it is the demo server of this
//! repository (`cargo build -p toolrack-testkit`).

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use serde_json::json;
use toolrack::{McpServerConfig, RackError, Toolrack};

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

    // In a file this is `deny = ["dice"]`. Patterns are matched against the names that the server gives.
    let mut server = McpServerConfig::stdio("demo", program, &[]);
    server.deny = vec!["dice".to_owned()];
    // And this is for every server.
    let rack = Toolrack::builder().server(server).deny("count*").open().await?;
    for tool in rack.tools().iter() {
        println!("{}", tool.name());
    }

    match rack.call("demo_countdown", &json!({"from": 3})).await {
        Err(RackError::Denied { server, tool, rule }) => println!("{server}.{tool}: {rule}"),
        other => println!("not denied: {other:?}"),
    }

    // While it runs, more can be denied.
    rack.set_denied_tools("demo", &["add"]).await?;
    println!("{} tools are left", rack.tools().len());

    rack.shutdown().await;
    Ok(())
}
