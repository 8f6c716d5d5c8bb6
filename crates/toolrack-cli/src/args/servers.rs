//! What can be typed about the servers of the config.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::time;

/// What may be said about a new server.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  toolrack add files -- npx -y @modelcontextprotocol/server-filesystem ~/work
  toolrack add --transport http sentry https://mcp.sentry.dev/mcp
  toolrack add --transport http api https://host/mcp --header 'Authorization: Bearer ${API_TOKEN}'
  toolrack add --pypi mcp-server-git git -- --repository .
  toolrack add --env-secret GITHUB_TOKEN=github-token github -- npx -y some-server")]
pub(crate) struct AddOptions {
    /// What it is to be called
    pub(crate) name: String,
    /// The address of a server over HTTP
    #[arg(value_name = "URL", conflicts_with_all = ["npm", "pypi", "docker", "binary"])]
    pub(crate) url: Option<String>,
    /// How it is talked to; an address means `http`, a command means `stdio`
    #[arg(short, long, value_name = "WAY")]
    pub(crate) transport: Option<Way>,
    #[command(flatten)]
    pub(crate) package: PackageOptions,
    /// Send this header; `${NAME}` stands for a variable, `${secret:NAME}` for a secret
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,
    /// Give the server this variable
    #[arg(short, long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Give the server a secret of the store in this variable
    #[arg(long, value_name = "NAME=SECRET")]
    pub(crate) env_secret: Vec<String>,
    /// Start it in this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// How long a call may wait for it, as in `90s`
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) timeout: Option<Duration>,
    /// Offer only the tools with this name; `*` stands for anything
    #[arg(long, value_name = "TOOL")]
    pub(crate) allow: Vec<String>,
    /// Withhold the tools with this name; `*` stands for anything
    #[arg(long, value_name = "TOOL")]
    pub(crate) deny: Vec<String>,
    /// Write it down without allowing it to be started
    #[arg(long)]
    pub(crate) disabled: bool,
    /// Do not try whether it starts
    #[arg(long)]
    pub(crate) no_check: bool,
    /// The command that starts it, or the arguments of a package
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// A published package instead of a command.
#[derive(Debug, Clone, Default, Args)]
#[group(multiple = false)]
pub(crate) struct PackageOptions {
    /// A package of the npm registry
    #[arg(long, value_name = "PACKAGE")]
    pub(crate) npm: Option<String>,
    /// A package of the Python package index
    #[arg(long, value_name = "PACKAGE")]
    pub(crate) pypi: Option<String>,
    /// A container image
    #[arg(long, value_name = "IMAGE")]
    pub(crate) docker: Option<String>,
    /// A program of this machine
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) binary: Option<String>,
}

/// How a server is talked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    Stdio,
    Http,
    /// The older manner of HTTP, which is found out by itself
    Sse,
}

/// What may be said about a new server in JSON.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolrack add-json memory '{\"command\": \"npx\", \"args\": [\"-y\", \"@modelcontextprotocol/server-memory\"]}'
  toolrack add-json sentry - < entry.json")]
pub(crate) struct AddJsonOptions {
    /// What it is to be called
    pub(crate) name: String,
    /// Its entry in the config of any tool, or a whole config with one server; `-` reads the standard input
    pub(crate) json: String,
    /// Do not try whether it starts
    #[arg(long)]
    pub(crate) no_check: bool,
}

/// What may be said about one server.
#[derive(Debug, Args)]
pub(crate) struct NameOptions {
    /// The server
    pub(crate) server: String,
}

/// What may be said about showing a server.
#[derive(Debug, Args)]
pub(crate) struct GetOptions {
    /// The server
    pub(crate) server: String,
    /// Also show values of variables and headers that stand in the config file
    #[arg(long)]
    pub(crate) show_values: bool,
}

/// What may be said about editing.
#[derive(Debug, Args)]
pub(crate) struct EditOptions {
    /// Begin at this server
    pub(crate) server: Option<String>,
}

/// What may be said about allowing a server.
#[derive(Debug, Args)]
pub(crate) struct EnableOptions {
    /// The server
    pub(crate) server: String,
    /// Do not try whether it starts
    #[arg(long)]
    pub(crate) no_check: bool,
}

/// What may be said about how servers are.
#[derive(Debug, Args)]
pub(crate) struct StatusOptions {
    /// One server; all, if it is not given
    pub(crate) server: Option<String>,
    /// Start the servers, look at them while they run, and end them
    #[arg(long)]
    pub(crate) check: bool,
}

/// What may be said about what a server has said.
#[derive(Debug, Args)]
pub(crate) struct LogsOptions {
    /// The server
    pub(crate) server: String,
    /// Go on with what is written from now on, until Ctrl-C; with `-o json`, each line is a document
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Everything that is remembered, not only the last start
    #[arg(long)]
    pub(crate) all: bool,
}
