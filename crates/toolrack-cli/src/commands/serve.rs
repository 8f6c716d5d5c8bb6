//! `toolrack serve`: an MCP server over stdio that offers the tools of all configured servers.
//!
//! Bridges to the daemon if one is running. Otherwise starts the servers itself, and stops them at
//! EOF.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use toolrack_client::ClientHandler;
use toolrack_config::{McpServerConfig, McpTransport};
use toolrack_gateway::{
    Gateway, GatewayOptions, Scope, ServerRequestRouter, Upstream, stdio_streams,
};
use toolrack_manager::McpManager;
use toolrack_service::{Autostart, LocalService, ServiceOptions, WatchConfig};

use crate::args::ServeOptions;
use crate::commands::Context;
use crate::config_service::service_options;
use crate::daemon_client::{self, Daemon};
use crate::error::{CliError, command};
use crate::server_selection::{Servers, Warnings};

/// The daemon's server name in the bridge. Clients never see it, because tool names pass through
/// unchanged.
const DAEMON: &str = "daemon";
/// The daemon enforces the timeouts; the bridge must not be faster.
const NO_TIMEOUT: Duration = Duration::from_hours(24 * 365);

/// How long the first list waits for servers that are starting. Clients are notified of tools that
/// arrive later.
const READY_WAIT: Duration = Duration::from_secs(5);

/// Serves one client over stdio until EOF.
pub(crate) async fn serve(options: ServeOptions, context: &Context) -> Result<(), CliError> {
    if options.http.is_some() {
        return Err(CliError::usage(
            "`serve` uses stdio; the daemon serves over HTTP",
            format!(
                "run {}, and connect clients to `http://ADDR/mcp`",
                command("daemon start --listen ADDR")
            ),
        )
        .with_field("--http"));
    }
    let found = daemon_client::find(&context.settings)?;
    match &options.server {
        Some(name) => drop(Servers::configured(Warnings::Usual, context)?.server(name)?),
        // A running daemon keeps its servers even if the file is invalid now.
        None if found.is_some() => {}
        // Without a daemon, an invalid file is reported at once instead of as an empty tool list.
        None => drop(Servers::configured(Warnings::Usual, context)?),
    }
    match found {
        Some(daemon) => bridge(&daemon, options.server.as_deref(), context).await,
        None => serve_directly(options.server, context).await,
    }
}

async fn serve_directly(server: Option<String>, context: &Context) -> Result<(), CliError> {
    let router = ServerRequestRouter::for_one_client();
    let options = ServiceOptions {
        handler: Some(Arc::clone(&router) as Arc<dyn ClientHandler>),
        limits: ServerRequestRouter::limits(),
        autostart: if server.is_some() { Autostart::None } else { Autostart::AllEnabled },
        watch_config: WatchConfig::Yes,
        ready_wait: Some(READY_WAIT),
        ..service_options(&context.settings)?
    };
    let home = context.settings.home()?.clone();
    let service = LocalService::open(home, options).await?;
    if let Some(name) = &server {
        // A slow server keeps starting in the background; a failed one reports its error to the
        // calls.
        let started = timeout(READY_WAIT, service.manager().start(name)).await;
        if let Ok(Err(error)) = started {
            tracing::debug!(%error, "server failed to start");
        }
    }
    let scope = server.map_or(Scope::All, Scope::Server);
    let outcome = run_gateway(service.manager(), router, scope, Upstream::Servers, context).await;
    service.close().await;
    outcome
}

/// Uses the daemon as the only upstream and passes everything through.
async fn bridge(daemon: &Daemon, server: Option<&str>, context: &Context) -> Result<(), CliError> {
    let target = match server {
        Some(name) => daemon_client::path(&["mcp", "server", name]),
        None => "/mcp".to_owned(),
    };
    let transport = McpTransport::Http { url: daemon.url(&target), headers: HashMap::new() };
    let config = McpServerConfig {
        timeout: NO_TIMEOUT,
        max_timeout: NO_TIMEOUT,
        ..McpServerConfig::new(DAEMON, transport)
    };
    let router = ServerRequestRouter::for_bridge();
    let handler = Arc::clone(&router) as Arc<dyn ClientHandler>;
    let builder = McpManager::builder().handler(handler).limits(ServerRequestRouter::limits());
    let manager = Arc::new(builder.build(vec![config]));
    let connected = async { Ok(manager.connect_all().await?) };
    // A daemon that does not answer is reported at once instead of as an empty tool list.
    if let Err(error) = daemon.while_alive(connected).await {
        manager.close().await;
        return Err(error);
    }
    let scope = Scope::Server(DAEMON.to_owned());
    let outcome = run_gateway(&manager, router, scope, Upstream::Gateway, context).await;
    manager.close().await;
    outcome
}

async fn run_gateway(
    manager: &Arc<McpManager>,
    router: Arc<ServerRequestRouter>,
    scope: Scope,
    upstream: Upstream,
    context: &Context,
) -> Result<(), CliError> {
    let options = GatewayOptions { upstream, ..GatewayOptions::default() };
    let gateway = Gateway::with_options(Arc::clone(manager), router, scope, options);
    let (input, output) = stdio_streams();
    let serving = gateway.serve_stdio(input, output);
    let outcome = tokio::select! {
        // Ctrl-C is a normal end, too.
        () = context.cancellation.cancelled() => Ok(()),
        served = serving => served.map_err(CliError::from),
    };
    gateway.close().await;
    outcome
}
