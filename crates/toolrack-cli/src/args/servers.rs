//! Arguments of the commands on configured servers: `add`, `list`, `status`, `logs`, `login`,
//! `secret`, `import`, `config`, `doctor` and the like.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::parse_duration;

/// Options of `add`.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  toolrack add files -- npx -y @modelcontextprotocol/server-filesystem ~/work
  toolrack add --transport http sentry https://mcp.sentry.dev/mcp
  toolrack add --transport http api https://host/mcp --header 'Authorization: Bearer ${API_TOKEN}'
  toolrack add --pypi mcp-server-git git -- --repository .
  toolrack add --env-secret GITHUB_TOKEN=github-token github -- npx -y some-server")]
pub(crate) struct AddOptions {
    /// Name of the server
    pub(crate) name: String,
    /// URL of a server over HTTP
    #[arg(value_name = "URL", conflicts_with_all = ["npm", "pypi", "docker", "binary"])]
    pub(crate) url: Option<String>,
    /// Transport type [default: `http` with a URL, `stdio` with a command]
    #[arg(short, long, value_name = "TRANSPORT")]
    pub(crate) transport: Option<TransportKind>,
    #[command(flatten)]
    pub(crate) package: PackageOptions,
    /// Add a request header; `${NAME}` expands a variable, `${secret:NAME}` a secret
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,
    /// Set an environment variable for the server
    #[arg(short, long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Set an environment variable from the secret store
    #[arg(long, value_name = "NAME=SECRET")]
    pub(crate) env_secret: Vec<String>,
    /// Working directory of the server
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Timeout of a call, e.g. `90s`
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// Allow only tools that match this pattern; `*` matches anything
    #[arg(long, value_name = "TOOL")]
    pub(crate) allow: Vec<String>,
    /// Deny tools that match this pattern; `*` matches anything
    #[arg(long, value_name = "TOOL")]
    pub(crate) deny: Vec<String>,
    /// Add it disabled
    #[arg(long)]
    pub(crate) disabled: bool,
    /// Don't check that the server starts
    #[arg(long)]
    pub(crate) no_check: bool,
    /// Command that starts the server, or arguments of the package
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// A published package instead of a command.
#[derive(Debug, Clone, Default, Args)]
#[group(multiple = false)]
pub(crate) struct PackageOptions {
    /// Package in the npm registry
    #[arg(long, value_name = "PACKAGE")]
    pub(crate) npm: Option<String>,
    /// Package on PyPI
    #[arg(long, value_name = "PACKAGE")]
    pub(crate) pypi: Option<String>,
    /// Container image
    #[arg(long, value_name = "IMAGE")]
    pub(crate) docker: Option<String>,
    /// Program on this machine
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) binary: Option<String>,
}

/// Values of `--transport`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TransportKind {
    Stdio,
    Http,
    /// Legacy HTTP+SSE, detected automatically
    Sse,
}

/// Options of `add-json`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolrack add-json memory '{\"command\": \"npx\", \"args\": [\"-y\", \"@modelcontextprotocol/server-memory\"]}'
  toolrack add-json sentry - < entry.json")]
pub(crate) struct AddJsonOptions {
    /// Name of the server
    pub(crate) name: String,
    /// Server entry from any tool's config, or a whole config with one server; `-` reads stdin
    pub(crate) json: String,
    /// Don't check that the server starts
    #[arg(long)]
    pub(crate) no_check: bool,
}

/// A command on one server.
#[derive(Debug, Args)]
pub(crate) struct NameOptions {
    /// Name of the server
    pub(crate) server: String,
}

/// Options of `get`.
#[derive(Debug, Args)]
pub(crate) struct GetOptions {
    /// Name of the server
    pub(crate) server: String,
    /// Also show the values of environment variables and headers in the config file
    #[arg(long)]
    pub(crate) show_values: bool,
}

/// Options of `enable`.
#[derive(Debug, Args)]
pub(crate) struct EnableOptions {
    /// Name of the server
    pub(crate) server: String,
    /// Don't check that the server starts
    #[arg(long)]
    pub(crate) no_check: bool,
}

/// Options of `status`.
#[derive(Debug, Args)]
pub(crate) struct StatusOptions {
    /// Show only this server
    pub(crate) server: Option<String>,
    /// Start each server, check it, and stop it again
    #[arg(long)]
    pub(crate) check: bool,
}

/// Options of `login`.
#[derive(Debug, Args)]
pub(crate) struct LoginOptions {
    /// Name of the server
    pub(crate) server: String,
    /// Don't open a browser; print the login URL and ask for the redirect URL
    #[arg(long)]
    pub(crate) no_browser: bool,
}

/// Options of `logs`.
#[derive(Debug, Args)]
pub(crate) struct LogsOptions {
    /// Name of the server
    pub(crate) server: String,
    /// Follow log output, until Ctrl-C; with `-o json`, one document per line
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Show all stored output, not only that of the last start
    #[arg(long)]
    pub(crate) all: bool,
}

/// Subcommands of `secret`.
#[derive(Debug, Subcommand)]
pub(crate) enum SecretAction {
    /// Store a secret; the value is prompted for, or read from stdin
    Set {
        /// Name of the secret
        name: String,
        // Accepted only to be rejected with the reason: other users can read command lines.
        #[arg(hide = true)]
        value: Option<String>,
    },
    /// List secrets and the servers that use them
    #[command(visible_alias = "ls")]
    List,
    /// Remove a secret
    #[command(visible_alias = "rm")]
    Remove {
        /// Name of the secret
        name: String,
    },
}

/// Options of `import`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolrack import --dry-run                       show the servers of all tools
  toolrack import cursor --secrets                move secrets to the secret store
  cd project && toolrack import claude            include Claude Code's servers of this project
  toolrack import .mcp.json                       a config file of any tool")]
pub(crate) struct ImportOptions {
    /// Tool whose usual config files are searched, or a file [default: all tools]
    #[arg(value_name = "TOOL|FILE")]
    pub(crate) from: Option<String>,
    /// Config file of that tool
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Show what would be imported, without changing anything
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Move secret-looking variables, headers and arguments into the secret store
    #[arg(long)]
    pub(crate) secrets: bool,
}

/// Tools whose config files are found automatically.
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

/// Subcommands of `config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigAction {
    /// Validate a config file of toolrack or another tool
    Check {
        /// File to validate [default: the config file in use]
        file: Option<PathBuf>,
    },
    /// Print the path of the config file
    Path,
}
