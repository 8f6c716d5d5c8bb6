//! Connect to an HTTP server with a bearer token.
//!
//! `cargo run -p toolrack --example http_with_token -- URL TOKEN [TOOL]` lists the tools, and calls one without
//! arguments.

#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;
use std::sync::Arc;

use toolrack::auth::{Secret, StaticBearer};
use toolrack::transport::Credentials;
use toolrack::{McpServerConfig, Toolrack};

// A program without child processes does not need `toolrack::init()`.
#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(url), Some(token)) = (args.next(), args.next()) else {
        return Err("usage: http_with_token URL TOKEN [TOOL]".into());
    };

    // In a config file: `headers = { Authorization = "Bearer ${TOKEN}" }`. The token is sent only to its server and
    // does not appear in `Debug` output. For OAuth, use `Authorizer`.
    let bearer = StaticBearer::new(&Secret::new(token));
    let rack = Toolrack::builder()
        .server(McpServerConfig::http("remote", url))
        .credentials(move |_config| Some(Arc::clone(&bearer) as Arc<dyn Credentials>))
        .open()
        .await?;

    for server in rack.servers() {
        println!("{}: {}", server.name(), server.state());
    }
    for tool in rack.tools().iter() {
        println!("{}", tool.name());
    }
    if let Some(tool) = args.next() {
        println!("{}", rack.call(("remote", &tool)).send().await?.text());
    }

    rack.shutdown().await;
    Ok(())
}
