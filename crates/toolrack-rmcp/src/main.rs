//! rmcp, the official Rust SDK, as a client of the gateway: `rmcp-client MODE http URL` or
//! `rmcp-client MODE stdio COMMAND …`.
//!
//! MODE is `legacy` or `modern`. Lists, calls, follows progress and cancels, then prints `done`. A crate of its own,
//! because the SDK enables features of shared dependencies that the product is built without.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, ProgressNotificationParam,
    ProtocolVersion,
};
use rmcp::service::{
    ClientLifecycleMode, ClientServiceExt as _, NotificationContext, PeerRequestOptions,
    RequestHandle, RunningService,
};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::timeout;

const TIMEOUT: Duration = Duration::from_mins(1);
const SLOW: &str = "everything_trigger-long-running-operation";

/// Forwards progress notifications to a channel.
struct ProgressSender(mpsc::Sender<ProgressNotificationParam>);

type Client = RunningService<RoleClient, ProgressSender>;

impl ClientHandler for ProgressSender {
    async fn on_progress(
        &self,
        progress: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        // A full channel already holds more reports than the test reads.
        self.0.try_send(progress).unwrap_or_default();
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    timeout(TIMEOUT, run(&args)).await.context("timed out")??;
    print("done");
    Ok(())
}

async fn run(args: &[String]) -> Result<()> {
    let (sender, mut reports) = mpsc::channel(64);
    let client = connect(args, ProgressSender(sender)).await?;
    let tools = client.list_all_tools().await?;
    for name in ["everything_echo", "time_convert_time"] {
        ensure!(tools.iter().any(|tool| tool.name == name), "{name} is not listed");
    }
    expect(&client, "everything_echo", json!({ "message": "hello" }), "Echo: hello").await?;
    let zone =
        json!({ "source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo" });
    expect(&client, "time_convert_time", zone, "21:00").await?;

    let slow = start_call(&client, SLOW, json!({ "duration": 1, "steps": 4 })).await?;
    let token = slow.progress_token.clone();
    slow.await_response().await?;
    for _step in 0..3 {
        let report = reports.recv().await.context("no progress")?;
        ensure!(report.progress_token == token && report.total == Some(4.0), "{report:?}");
    }

    let cancelled = start_call(&client, SLOW, json!({ "duration": 60, "steps": 2 })).await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    cancelled.cancel(Some("enough".to_owned())).await?;
    expect(&client, "everything_echo", json!({ "message": "next" }), "Echo: next").await?;
    ensure!(!client.list_all_prompts().await?.is_empty(), "no prompts");
    ensure!(!client.list_all_resources().await?.is_empty(), "no resources");
    client.cancel().await?;
    Ok(())
}

async fn connect(args: &[String], handler: ProgressSender) -> Result<Client> {
    let [mode, transport, target, rest @ ..] = args else {
        bail!("usage: rmcp-client MODE (http URL | stdio COMMAND …)");
    };
    let lifecycle = match mode.as_str() {
        "legacy" => ClientLifecycleMode::Initialize,
        "modern" => ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        },
        other => bail!("unknown mode `{other}`, expected `legacy` or `modern`"),
    };
    Ok(match transport.as_str() {
        "http" => {
            let transport = StreamableHttpClientTransport::from_uri(target.as_str());
            handler.serve_with_lifecycle(transport, lifecycle).await?
        }
        "stdio" => {
            let transport = TokioChildProcess::new(command(target, rest))?;
            handler.serve_with_lifecycle(transport, lifecycle).await?
        }
        other => bail!("unknown transport `{other}`, expected `http` or `stdio`"),
    })
}

#[expect(clippy::disallowed_methods, reason = "the SDK starts the gateway by itself")]
fn command(program: &str, args: &[String]) -> Command {
    let mut command = Command::new(program);
    command.args(args);
    command
}

fn params(tool: &str, arguments: Value) -> CallToolRequestParams {
    let mut params = CallToolRequestParams::new(tool.to_owned());
    if let Value::Object(members) = arguments {
        params.arguments = Some(members);
    }
    params
}

/// Calls a tool and expects `expected` in its text.
async fn expect(client: &Client, tool: &str, arguments: Value, expected: &str) -> Result<()> {
    let result = client.call_tool(params(tool, arguments)).await?;
    let text = result.content.first().and_then(|content| content.as_text()).context("no text")?;
    ensure!(text.text.contains(expected), "{tool}: {}", text.text);
    Ok(())
}

/// Starts a call that can be cancelled.
async fn start_call(
    client: &Client,
    tool: &str,
    arguments: Value,
) -> Result<RequestHandle<RoleClient>> {
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params(tool, arguments)));
    Ok(client.send_cancellable_request(request, PeerRequestOptions::no_options()).await?)
}

#[expect(clippy::print_stdout, reason = "the test reads the result")]
fn print(text: &str) {
    println!("{text}");
}
