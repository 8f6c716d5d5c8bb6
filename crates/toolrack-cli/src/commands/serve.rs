//! `toolrack serve`: all servers behind one pipe, for whoever starts this program as an MCP server.
//!
//! If a daemon runs, this is a bridge to it; otherwise the servers are started here, and end with the input.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use toolrack_client::ClientHandler;
use toolrack_config::{McpServerConfig, McpTransport};
use toolrack_gateway::{Behind, Gateway, GatewayOptions, Scope, Switchboard, standard_streams};
use toolrack_manager::McpManager;
use toolrack_service::{Autostart, Follow, LocalService, ServiceOptions};

use crate::args::daemon::ServeOptions;
use crate::config_service::{ensure_exists, service_options};
use crate::context::Context;
use crate::daemon_client::{self, Daemon};
use crate::error::CliError;
use crate::server_selection::Servers;

/// What the bridge calls the daemon. Nobody sees it, because names pass as they are.
const DAEMON: &str = "daemon";
/// The daemon ends calls in time; the bridge does not come before it.
const NEVER: Duration = Duration::from_hours(24 * 365);

/// How long the first answer waits for servers that start. A client hears of tools that come later.
const READY_WAIT: Duration = Duration::from_secs(5);

/// Serves one client on the standard streams, until its input ends.
pub(crate) async fn serve(options: ServeOptions, context: &Context) -> Result<(), CliError> {
    if options.http.is_some() {
        return Err(CliError::usage(
            "`serve` speaks on the standard streams; over HTTP it is the daemon that serves",
            "run `toolrack daemon start --listen ADDR`; clients then use `http://ADDR/mcp`",
        )
        .with_field("--http"));
    }
    let found = daemon_client::find(&context.settings)?;
    match &options.server {
        Some(name) => ensure_exists(name, context)?,
        // A daemon goes on with what it has, whatever becomes of the file.
        None if found.is_some() => {}
        None => drop(Servers::configured(&context.settings, &context.printer)?),
    }
    match found {
        Some(daemon) => bridge(&daemon, options.server.as_deref(), context).await,
        None => alone(options.server, context).await,
    }
}

async fn alone(server: Option<String>, context: &Context) -> Result<(), CliError> {
    let switchboard = Switchboard::for_one_client();
    let options = ServiceOptions {
        handler: Some(Arc::clone(&switchboard) as Arc<dyn ClientHandler>),
        limits: Switchboard::limits(),
        autostart: if server.is_some() { Autostart::Nothing } else { Autostart::Enabled },
        follow: Follow::Yes,
        ready_wait: READY_WAIT,
        ..service_options(&context.settings)?
    };
    let home = context.settings.home()?.clone();
    let service = LocalService::open(home, options).await?;
    if let Some(name) = &server {
        // One that takes longer goes on by itself, and one that fails says so to whoever calls it.
        let started = timeout(READY_WAIT, service.rack().start(name)).await;
        if let Ok(Err(error)) = started {
            tracing::debug!(%error, "the server does not start");
        }
    }
    let scope = server.map_or(Scope::All, Scope::Server);
    let before = (scope, Behind::Servers);
    let outcome = pass(service.rack(), switchboard, before, context).await;
    service.close().await;
    outcome
}

/// The daemon is the only server, and whatever it says is passed on as it is.
async fn bridge(daemon: &Daemon, server: Option<&str>, context: &Context) -> Result<(), CliError> {
    let target = match server {
        Some(name) => daemon_client::path(&["mcp", "server", name]),
        None => "/mcp".to_owned(),
    };
    let transport = McpTransport::Http { url: daemon.url(&target), headers: HashMap::new() };
    let config = McpServerConfig {
        timeout: NEVER,
        max_timeout: NEVER,
        ..McpServerConfig::new(DAEMON, transport)
    };
    let switchboard = Switchboard::for_one_client();
    let handler = Arc::clone(&switchboard) as Arc<dyn ClientHandler>;
    let builder = McpManager::builder().handler(handler).limits(Switchboard::limits());
    let manager = Arc::new(builder.build(vec![config]));
    manager.connect_all().await?;
    let scope = Scope::Server(DAEMON.to_owned());
    let before = (scope, Behind::Gateway);
    let outcome = pass(&manager, switchboard, before, context).await;
    manager.close().await;
    outcome
}

async fn pass(
    manager: &Arc<McpManager>,
    switchboard: Arc<Switchboard>,
    (scope, behind): (Scope, Behind),
    context: &Context,
) -> Result<(), CliError> {
    let options = GatewayOptions { behind, ..GatewayOptions::default() };
    let gateway = Gateway::with_options(Arc::clone(manager), switchboard, scope, options);
    let (input, output) = standard_streams();
    let serving = gateway.serve_stdio(input, output);
    let outcome = tokio::select! {
        // Leaving is how this may end, too.
        () = context.cancellation.cancelled() => Ok(()),
        served = serving => served.map_err(CliError::from),
    };
    gateway.close().await;
    outcome
}
