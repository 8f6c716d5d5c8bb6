//! What can be typed about the servers of the config.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

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
    pub(crate) transport: Option<TransportKind>,
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
pub(crate) enum TransportKind {
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

/// What may be said about what a server has json.
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

/// What may be said about a login.
#[derive(Debug, Args)]
pub(crate) struct LoginOptions {
    /// The server
    pub(crate) server: String,
    /// Open no browser: show the address of the page, and ask where it led
    #[arg(long)]
    pub(crate) no_browser: bool,
}

/// What can be done with secrets.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolrack secret set github-token                asks for the value, and does not show it
  pass show github | toolrack secret set github-token
  toolrack secret list")]
pub(crate) struct SecretOptions {
    #[command(subcommand)]
    pub(crate) action: SecretAction,
}

/// What can be done with secrets.
#[derive(Debug, Subcommand)]
pub(crate) enum SecretAction {
    /// Store a secret; its value is asked for, or read from the standard input
    Set(SecretSetOptions),
    /// List the names of secrets and the servers that use them
    #[command(visible_alias = "ls")]
    List,
    /// Forget a secret
    #[command(visible_alias = "rm")]
    Remove(SecretRemoveOptions),
}

/// Which secret is stored.
#[derive(Debug, Args)]
pub(crate) struct SecretSetOptions {
    /// What it is called
    pub(crate) name: String,
    // A value that was typed is taken, so that it can be refused with the reason.
    #[arg(hide = true)]
    pub(crate) value: Option<String>,
}

/// Which secret is forgotten.
#[derive(Debug, Args)]
pub(crate) struct SecretRemoveOptions {
    /// What it is called
    pub(crate) name: String,
}

/// What may be said about taking servers over.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolrack import --dry-run                       what every tool on this machine has
  toolrack import cursor --secrets                with values that look secret in the store
  cd project && toolrack import claude            also the servers that Claude Code has for this project
  toolrack import .mcp.json                       a file of any tool")]
pub(crate) struct ImportOptions {
    /// A tool, whose usual files are looked for, or a file; all tools, if neither is given
    #[arg(value_name = "TOOL|FILE")]
    pub(crate) from: Option<String>,
    /// A file of the tool
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Move values of variables, headers and arguments that look secret into the secret store
    #[arg(long)]
    pub(crate) secrets: bool,
}

/// The tools whose configs are found by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SourceTool {
    Claude,
    ClaudeDesktop,
    Cursor,
    Vscode,
    Codex,
    Zed,
    Windsurf,
    Opencode,
    Goose,
    Lmstudio,
}

/// What can be done with the config file.
#[derive(Debug, Args)]
pub(crate) struct ConfigOptions {
    #[command(subcommand)]
    pub(crate) action: ConfigAction,
}

/// What can be done with the config file.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigAction {
    /// Say everything that is wrong with a config file, of ours or of another tool
    Check(ConfigCheckOptions),
    /// Say where the config file is
    Path,
}

/// Which file is checked.
#[derive(Debug, Args)]
pub(crate) struct ConfigCheckOptions {
    /// The file; the config file in use, if it is not given
    pub(crate) file: Option<PathBuf>,
}

/// What may be said about looking for faults.
#[derive(Debug, Args)]
pub(crate) struct DoctorOptions {
    /// One server; all, if it is not given
    pub(crate) server: Option<String>,
}
