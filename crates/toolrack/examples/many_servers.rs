//! Many servers from one config file. One is broken: it reports its error, and the others work.
//!
//! `cargo run -p toolrack --example many_servers -- toolrack.toml`. Without a file it writes one for the demo
//! server of this repository (`cargo build -p toolrack-testkit`).

#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use toolrack::Toolrack;

fn main() -> Result<(), Box<dyn Error>> {
    // Must come first: this program runs again as the guardian of each server.
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

    // An invalid file is an error with all diagnostics. A failed server is not an error.
    let rack = Toolrack::open(&path).await?;
    // Waits for servers that are still connecting, not for failed ones.
    rack.ready(Duration::from_mins(2)).await;
    for server in rack.servers() {
        println!("{}: {}, {} tools", server.name(), server.state(), server.n_tools());
    }
    for tool in rack.tools().iter() {
        println!("{}", tool.name());
    }

    // Calls run concurrently.
    let arguments = json!({"name": "both of you"});
    let (one, two) = tokio::join!(
        rack.call("first_greet").args(&arguments).send(),
        rack.call(("second", "greet")).args(&arguments).send()
    );
    println!("{} {}", one?.text(), two?.text());

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
