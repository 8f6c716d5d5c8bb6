//! Deny tools: they are not listed, and a call returns the rule that denies it.
//!
//! `cargo run -p toolrack --example deny_list -- PROGRAM`. The default program is the demo server of this
//! repository (`cargo build -p toolrack-testkit`).

#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;

use serde_json::json;
use toolrack::{ManagerError, McpServerConfig, Toolrack};

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

    // In a config file: `deny = ["dice"]`. Patterns match the server's own tool names.
    let mut server = McpServerConfig::stdio("demo", program, &[]);
    server.deny = vec!["dice".to_owned()];
    // This pattern applies to every server.
    let rack = Toolrack::builder().server(server).deny("count*").open().await?;
    for tool in rack.tools().iter() {
        println!("{}", tool.name());
    }

    match rack.call("demo_countdown").args(json!({"from": 3})).send().await {
        Err(ManagerError::Denied { server, tool, rule }) => println!("{server}.{tool}: {rule}"),
        other => println!("not denied: {other:?}"),
    }

    // More tools can be denied at run time.
    rack.set_denied_tools("demo", &["add"]).await?;
    println!("{} tools are left", rack.tools().len());

    rack.shutdown().await;
    Ok(())
}
