//! MCP client that the official conformance suites drive: `toolrack-conformance URL`.
//!
//! It connects, lists the tools and calls them through the product's public API with normal settings.
//! Scenario-specific calls are in [`scenario`], and nowhere else.

mod auto_handler;
mod login;
mod scenario;
mod settings;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use toolrack_client::McpClient;
use toolrack_http::{HttpOptions, HttpServerDef};
use toolrack_transport::Credentials;

use crate::auto_handler::AutoHandler;
use crate::settings::Settings;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let settings = Settings::read()?;
    let authorizer = login::authorizer(&settings)?;
    let credentials = Arc::clone(&authorizer) as Arc<dyn Credentials>;
    let options = HttpOptions { credentials: Some(credentials), ..HttpOptions::default() };
    let definition = HttpServerDef::new(settings.url.as_str());
    let builder = McpClient::builder("conformance").handler(Arc::new(AutoHandler));
    let client = builder.connect_http(definition, options).await.context("no connection")?;
    let outcome = scenario::run(&client, &settings).await;
    client.shutdown().await;
    authorizer.settle().await;
    outcome
}

#[expect(clippy::print_stderr, reason = "the harness keeps what a client says in its log")]
pub(crate) fn print_error(text: &str) {
    eprintln!("{text}");
}
