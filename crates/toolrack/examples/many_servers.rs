//! Many servers from one config file, one of them broken: the others work, and it says what is wrong.
//!
//! `cargo run -p toolrack --example many_servers -- toolrack.toml`; without a file it writes one for the demo
//! server of this repository (`cargo build -p toolrack-testkit`).

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use toolrack::Toolrack;

fn main() -> Result<(), Box<dyn Error>> {
    // First of all: this program is started again to guard each of its servers.
    toolrack::init();
    run()
}

#[tokio::main]
async fn run() -> Result<(), Box<dyn Error>> {
    let mut own = tempfile::NamedTempFile::with_suffix(".toml")?;
    let path = match std::env::args_os().nth(1) {
        Some(path) => PathBuf::from(path),
        None => {
            let demo = toolrack_testkit::program("demo-server");
            own.write_all(sample(&demo.display().to_string()).as_bytes())?;
            own.path().to_owned()
        }
    };

    // A faulty file is told whole, every fault with its line. A faulty server is no error.
    let rack = Toolrack::open(&path).await?;
    // Servers that are still on their way are waited for; those that have failed are not.
    rack.ready(Duration::from_mins(2)).await;
    for server in rack.servers() {
        println!("{}: {}, {} tools", server.name(), server.state(), server.n_tools());
    }
    for tool in rack.tools().iter() {
        println!("{}", tool.name());
    }

    // Calls to different servers run side by side.
    let arguments = json!({"name": "both of you"});
    let (one, two) = tokio::join!(
        rack.call("first_greet", &arguments),
        rack.call_tool("second", "greet", &arguments)
    );
    println!("{} {}", one?.content, two?.content);

    rack.shutdown().await;
    Ok(())
}

fn sample(demo: &str) -> String {
    format!(
        r#"
[[defaults.mcp]]
name = "first"
transport = "stdio"
command = '{demo}'

[[defaults.mcp]]
name = "second"
transport = "stdio"
command = '{demo}'
allow = ["greet", "add"]

[[defaults.mcp]]
name = "broken"
transport = "stdio"
command = "no-such-program-anywhere"
"#
    )
}
