//! What can be typed about the daemon and what it keeps.

use clap::{Args, Subcommand};

use crate::settings::Listen;

/// What can be done with the daemon.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolrack daemon start                           servers stay up, and calls begin at once
  toolrack daemon status
  toolrack daemon unit > ~/.config/systemd/user/toolrack.service")]
pub(crate) struct DaemonOptions {
    #[command(subcommand)]
    pub(crate) action: DaemonAction,
}

/// What can be done with the daemon.
#[derive(Debug, Subcommand)]
pub(crate) enum DaemonAction {
    /// Start it in the background, with every server that is enabled
    Start(DaemonStartOptions),
    /// End it and all its servers
    Stop,
    /// Show whether it runs, and where
    Status,
    /// Show the end of its log
    #[command(visible_alias = "log")]
    Logs(DaemonLogsOptions),
    /// Print a unit with which systemd starts it for you
    Unit,
}

/// How the daemon is started.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct DaemonStartOptions {
    /// Stay here and write the log to the standard error, until a signal comes
    #[arg(short, long)]
    pub(crate) foreground: bool,
    /// Where to listen for browsers and other clients, or `none` [default: 127.0.0.1:7733]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<Listen>,
    /// We are in the background already, and the log is for a file
    #[arg(long, hide = true, requires = "foreground")]
    pub(crate) detached: bool,
}

/// What is shown of the log.
#[derive(Debug, Clone, Args)]
pub(crate) struct DaemonLogsOptions {
    /// Go on with what is written from now on, until Ctrl-C
    #[arg(short, long)]
    pub(crate) follow: bool,
}

/// What is served on the standard streams.
#[derive(Debug, Args)]
#[command(after_help = "\
Uses the daemon if one runs; otherwise it starts the servers itself, and ends them with its input.
The daemon serves the same over HTTP: http://127.0.0.1:7733/mcp, /mcp/AGENT and /mcp/server/NAME.

Examples:
  toolrack serve                                  what you give an agent as the command of one server
  toolrack serve --server git                     one server alone, with the names that it gives its tools
  claude mcp add rack -- toolrack serve")]
pub(crate) struct ServeOptions {
    /// One server of the config, under its own names; all under public names, if it is not given
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Option<String>,
    // Somebody may look for it here, and is told where it is.
    #[arg(long, hide = true, value_name = "ADDR", num_args = 0..=1)]
    pub(crate) http: Option<Option<String>>,
}

/// How the page is opened.
#[derive(Debug, Args)]
pub(crate) struct DashboardOptions {
    /// Open no browser: show the address, which is good once and for a minute
    #[arg(long)]
    pub(crate) no_browser: bool,
}

/// Which calls are wanted.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolrack history --failed --limit 5
  toolrack history --server git --tool log -o json
  toolrack history 1f0c8a2b-17                    one call, by its id")]
pub(crate) struct HistoryOptions {
    /// One call, by its id
    pub(crate) id: Option<String>,
    /// Only calls of this server
    #[arg(long, value_name = "NAME", conflicts_with = "id")]
    pub(crate) server: Option<String>,
    /// Only calls of this tool, as its server names it
    #[arg(long, value_name = "NAME", conflicts_with = "id")]
    pub(crate) tool: Option<String>,
    /// Only calls that did not do what they should
    #[arg(long, conflicts_with = "id")]
    pub(crate) failed: bool,
    /// At most so many, the newest
    #[arg(long, value_name = "N", default_value_t = 20, conflicts_with = "id")]
    pub(crate) limit: u32,
}
