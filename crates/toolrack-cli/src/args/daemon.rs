//! Arguments of `daemon`, `serve`, `dashboard` and `history`.

use clap::{Args, Subcommand};

use crate::settings::Listen;

/// Subcommands of `daemon`.
#[derive(Debug, Subcommand)]
pub(crate) enum DaemonAction {
    /// Start the daemon in the background, with all enabled servers
    Start(DaemonStartOptions),
    /// Stop the daemon and all its servers
    Stop,
    /// Show whether the daemon is running, and where
    Status,
    /// Show the end of the daemon log
    #[command(visible_alias = "log")]
    Logs(DaemonLogsOptions),
    /// Print a systemd user unit for the daemon
    Unit,
}

/// Options of `daemon start`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct DaemonStartOptions {
    /// Run in the foreground and log to stderr, until a signal arrives
    #[arg(short, long)]
    pub(crate) foreground: bool,
    /// Address to listen on for browsers and other clients, or `none` [default: 127.0.0.1:7733]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<Listen>,
    /// Set by the parent process: this process is already detached and logs to a file
    #[arg(long, hide = true, requires = "foreground")]
    pub(crate) detached: bool,
}

/// Options of `daemon logs`.
#[derive(Debug, Args)]
pub(crate) struct DaemonLogsOptions {
    /// Follow log output, until Ctrl-C
    #[arg(short, long)]
    pub(crate) follow: bool,
}

/// Options of `serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Uses the daemon if it is running; otherwise starts the servers itself, and stops them at EOF.
The daemon also serves MCP over HTTP: http://127.0.0.1:7733/mcp, /mcp/AGENT and /mcp/server/NAME.

Examples:
  toolrack serve                                  all servers, as one MCP server for an agent
  toolrack serve --server git                     one server, with its own tool names
  claude mcp add rack -- toolrack serve")]
pub(crate) struct ServeOptions {
    /// Serve only this server, with its own tool names instead of the public ones
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Option<String>,
    // Accepted only to point to `daemon start --listen`.
    #[arg(long, hide = true, value_name = "ADDR", num_args = 0..=1)]
    pub(crate) http: Option<Option<String>>,
}

/// Options of `dashboard`.
#[derive(Debug, Args)]
pub(crate) struct DashboardOptions {
    /// Don't open a browser; print a single-use link, valid for 60 s
    #[arg(long)]
    pub(crate) no_browser: bool,
}

/// Options of `history`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolrack history --failed --limit 5
  toolrack history --server git --tool log -o json
  toolrack history 1f0c8a2b-17                    one call, by ID")]
pub(crate) struct HistoryOptions {
    /// Show only the call with this ID
    pub(crate) id: Option<String>,
    /// Only calls to this server
    #[arg(long, value_name = "NAME", conflicts_with = "id")]
    pub(crate) server: Option<String>,
    /// Only calls of this tool, by the server's own name for it
    #[arg(long, value_name = "NAME", conflicts_with = "id")]
    pub(crate) tool: Option<String>,
    /// Only calls that did not succeed
    #[arg(long, conflicts_with = "id")]
    pub(crate) failed: bool,
    /// Maximum number of calls, newest first
    #[arg(long, value_name = "N", default_value_t = 20, conflicts_with = "id")]
    pub(crate) limit: u32,
}
