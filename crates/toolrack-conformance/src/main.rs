//! MCP client that the official conformance suites drive: `toolrack-conformance URL`.
//!
//! | module | what it holds |
//! |---|---|
//! | [`scenario`] | calls that a scenario expects |
//! | [`settings`] | command line and environment of the harness |
//! | [`login`] | OAuth settings of a scenario, and a browser without a window |
//! | [`auto_handler`] | elicitation handler that accepts everything |
//! | `bin/toolrack-endpoint` | gateway program for suites that test a server |
//!
//! **Invariant:** the client uses the product's public API with normal settings. Scenario-specific code is in
//! [`scenario`] only.

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
    let client = builder.connect_http(definition, options).await.context("cannot connect")?;
    let outcome = scenario::run(&client, &settings).await;
    client.shutdown().await;
    authorizer.wait_idle().await;
    outcome
}

#[expect(clippy::print_stderr, reason = "the harness logs the stderr of the client")]
pub(crate) fn print_error(text: &str) {
    eprintln!("{text}");
}
