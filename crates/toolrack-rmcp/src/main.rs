//! The official Rust SDK before a gateway: `rmcp-client MODE http URL` or `rmcp-client MODE stdio COMMAND …`.
//!
//! MODE is `legacy` or `modern`. Lists, calls, follows progress and cancels, and says `done` if all is as it should be.
//! A crate of its own, because the SDK turns on features of shared dependencies that the product is built without.

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

const ALL: Duration = Duration::from_mins(1);
const SLOW: &str = "everything_trigger-long-running-operation";

/// Hands reports of progress on.
struct Listener(mpsc::Sender<ProgressNotificationParam>);

type Client = RunningService<RoleClient, Listener>;

impl ClientHandler for Listener {
    async fn on_progress(
        &self,
        progress: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        // More than are waited for are of no interest.
        self.0.try_send(progress).unwrap_or_default();
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    timeout(ALL, run(&words)).await.context("it takes too long")??;
    say("done");
    Ok(())
}

async fn run(words: &[String]) -> Result<()> {
    let (sender, mut reports) = mpsc::channel(64);
    let client = connect(words, Listener(sender)).await?;
    let tools = client.list_all_tools().await?;
    for name in ["everything_echo", "time_convert_time"] {
        ensure!(tools.iter().any(|tool| tool.name == name), "{name} is not listed");
    }
    expect(&client, "everything_echo", json!({ "message": "hello" }), "Echo: hello").await?;
    let zone =
        json!({ "source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo" });
    expect(&client, "time_convert_time", zone, "21:00").await?;

    let slow = begin(&client, SLOW, json!({ "duration": 1, "steps": 4 })).await?;
    let token = slow.progress_token.clone();
    slow.await_response().await?;
    for _step in 0..3 {
        let report = reports.recv().await.context("nobody reports")?;
        ensure!(report.progress_token == token && report.total == Some(4.0), "{report:?}");
    }

    let forever = begin(&client, SLOW, json!({ "duration": 60, "steps": 2 })).await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    forever.cancel(Some("enough".to_owned())).await?;
    expect(&client, "everything_echo", json!({ "message": "next" }), "Echo: next").await?;
    ensure!(!client.list_all_prompts().await?.is_empty(), "no prompts");
    ensure!(!client.list_all_resources().await?.is_empty(), "no resources");
    client.cancel().await?;
    Ok(())
}

async fn connect(words: &[String], listener: Listener) -> Result<Client> {
    let [mode, way, target, args @ ..] = words else {
        bail!("usage: rmcp-client MODE (http URL | stdio COMMAND …)");
    };
    let lifecycle = match mode.as_str() {
        "legacy" => ClientLifecycleMode::Initialize,
        "modern" => ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        },
        other => bail!("no mode `{other}`; there are legacy and modern"),
    };
    Ok(match way.as_str() {
        "http" => {
            let transport = StreamableHttpClientTransport::from_uri(target.as_str());
            listener.serve_with_lifecycle(transport, lifecycle).await?
        }
        "stdio" => {
            let transport = TokioChildProcess::new(command(target, args))?;
            listener.serve_with_lifecycle(transport, lifecycle).await?
        }
        other => bail!("no way `{other}`; there are http and stdio"),
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

/// Calls a tool, whose text must have `expected` in it.
async fn expect(client: &Client, tool: &str, arguments: Value, expected: &str) -> Result<()> {
    let result = client.call_tool(params(tool, arguments)).await?;
    let text = result.content.first().and_then(|content| content.as_text()).context("no text")?;
    ensure!(text.text.contains(expected), "{tool}: {}", text.text);
    Ok(())
}

/// Begins a call that can be cancelled.
async fn begin(client: &Client, tool: &str, arguments: Value) -> Result<RequestHandle<RoleClient>> {
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params(tool, arguments)));
    Ok(client.send_cancellable_request(request, PeerRequestOptions::no_options()).await?)
}

#[expect(clippy::print_stdout, reason = "whoever started the client reads its verdict")]
fn say(text: &str) {
    println!("{text}");
}
