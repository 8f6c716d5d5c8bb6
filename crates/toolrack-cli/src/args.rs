//! Command-line definition: commands, options and help.
//!
//! The clap doc comments here are the help texts; there is no other copy of them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

use crate::error::ExitCode;
use crate::printer::Output;
use crate::settings::{Listen, Settings, Variable};

/// Manage and call MCP servers from one place.
#[derive(Debug, Parser)]
#[command(name = "toolrack", version, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalOptions,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that every command accepts.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Global options")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that stands for itself")]
pub(crate) struct GlobalOptions {
    /// Output format
    #[arg(short, long, global = true, value_name = "FORMAT")]
    pub(crate) output: Option<Output>,
    /// Print only data and errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Also print the servers' stderr and log messages
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// Config file to use
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Use the servers of this agent in the config file
    #[arg(long, global = true, value_name = "ID")]
    pub(crate) agent: Option<String>,
    /// Don't use the daemon, even if one is running
    #[arg(long, global = true)]
    pub(crate) no_daemon: bool,
    /// Use a config file and data folder that other users can change
    #[arg(long, global = true)]
    pub(crate) allow_insecure_home: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List tools
    Tools(ToolsOptions),
    /// Call a tool
    Call(CallOptions),
    /// Search tools by keyword
    Search(SearchOptions),
    /// List resources
    Resources(ListOptions),
    /// Read a resource
    Read(ReadOptions),
    /// List prompts
    Prompts(ListOptions),
    /// Get a prompt
    Prompt(PromptOptions),
    /// Add a server
    Add(Box<AddOptions>),
    /// Add a server from JSON
    AddJson(AddJsonOptions),
    /// List configured servers
    #[command(visible_alias = "ls")]
    List,
    /// Show a server's configuration
    Get(GetOptions),
    /// Edit and validate the config file
    Edit {
        /// Open the file at this server
        server: Option<String>,
    },
    /// Remove a server
    #[command(visible_alias = "rm")]
    Remove(NameOptions),
    /// Enable a server
    Enable(EnableOptions),
    /// Disable a server
    Disable(NameOptions),
    /// Start a server
    Start(NameOptions),
    /// Stop a server
    Stop(NameOptions),
    /// Restart a server
    Restart(NameOptions),
    /// Show server status
    #[command(visible_alias = "ps")]
    Status(StatusOptions),
    /// Show a server's logs
    Logs(LogsOptions),
    /// Log in to a server over HTTP
    Login(LoginOptions),
    /// Log out of a server
    Logout(NameOptions),
    /// Manage secrets
    #[command(
        subcommand,
        after_help = "\
Examples:
  toolrack secret set github-token                prompt for the value
  pass show github | toolrack secret set github-token
  toolrack secret list"
    )]
    Secret(SecretAction),
    /// Manage the keys of clients over HTTP
    #[command(
        subcommand,
        after_help = "\
A client that can start a program needs no key: let it run `toolrack serve`.
A key for other clients can be used for MCP only, unless it is made with --admin.

Examples:
  toolrack key create cursor                      the default servers
  toolrack --agent work key create zed            the servers of an agent
  toolrack key create bot --server git            one server
  pass show bot | toolrack key check --url http://127.0.0.1:7733/mcp"
    )]
    Key(KeyAction),
    /// Import servers from other tools
    Import(ImportOptions),
    /// Validate or locate the config file
    #[command(subcommand)]
    Config(ConfigAction),
    /// Diagnose problems and suggest fixes
    Doctor {
        /// Check only this server
        server: Option<String>,
    },
    /// Manage the background daemon
    #[command(
        subcommand,
        after_help = "\
Examples:
  toolrack daemon start                           keep servers running between commands
  toolrack daemon status
  toolrack daemon unit > ~/.config/systemd/user/toolrack.service"
    )]
    Daemon(DaemonAction),
    /// Run as an MCP server over stdio
    Serve(ServeOptions),
    /// Open the dashboard
    Dashboard(DashboardOptions),
    /// List calls made through the daemon
    History(HistoryOptions),
    /// Run a demo with a built-in server
    Demo {
        /// Use the legacy protocol, with the `initialize` handshake
        #[arg(long)]
        legacy: bool,
    },
    /// Generate a completion script
    #[command(after_help = "\
Examples:
  source <(toolrack completion bash)              current shell; add it to ~/.bashrc
  source <(toolrack completion zsh)               current shell; add it to ~/.zshrc
  toolrack completion fish > ~/.config/fish/completions/toolrack.fish")]
    Completion {
        /// Shell to generate the script for
        shell: Shell,
    },
    /// Print completion candidates
    #[command(name = "__complete", hide = true)]
    Complete {
        /// Words typed after the program name; the last one is being completed
        #[arg(last = true)]
        words: Vec<String>,
    },
}

/// Supported shells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Options of `tools`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolrack tools                                  all configured servers
  toolrack tools github --schema                  one server, with parameters
  toolrack tools -- npx -y some-server            an ad-hoc server
  toolrack tools --url https://host/mcp -o json")]
pub(crate) struct ToolsOptions {
    /// Also show the parameters of each tool
    #[arg(long)]
    pub(crate) schema: bool,
    /// List cached tools without starting any server
    #[arg(long)]
    pub(crate) cached: bool,
    #[command(flatten)]
    pub(crate) list: ListOptions,
}

/// Options of `call`.
#[derive(Debug, Args)]
#[command(after_help = "\
Argument syntax:
  name=text           text, converted to the type in the tool's schema
  name:=json          JSON
  name=@file          contents of a file; `name:=@file` for JSON, `@-` for stdin
  name.part=text      a member of an object
  name=a name=b       items of a list

Examples:
  toolrack call github.search_issues query=\"is:open\" limit=5
  toolrack call 'github.search_issues(query: \"is:open\", limit: 5)'
  toolrack call github.create_issue --args - < issue.json
  toolrack call echo message=hello -- npx -y @modelcontextprotocol/server-everything
  toolrack call echo message=hello --url https://host/mcp")]
pub(crate) struct CallOptions {
    /// Tool as `server.tool`, `server/tool`, its public name, or its own name if unique;
    /// `tool(name: value)` includes the arguments
    pub(crate) tool: String,
    /// Arguments of the tool, see the syntax below
    #[arg(value_name = "NAME=VALUE")]
    pub(crate) arguments: Vec<String>,
    /// All arguments as a JSON object; `-` reads stdin, `@file` a file
    #[arg(long, value_name = "JSON")]
    pub(crate) args: Option<String>,
    /// Print the request instead of sending it
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Don't validate the arguments against the tool's schema
    #[arg(long)]
    pub(crate) no_check: bool,
    #[command(flatten)]
    pub(crate) request: RequestOptions,
    /// Save images, audio and files of the result to this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) save: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

/// Options of a single request.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RequestOptions {
    /// Total timeout of the request, e.g. `90s`
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// Answer the server's questions with their defaults
    #[arg(short, long)]
    pub(crate) yes: bool,
}

impl RequestOptions {
    /// The total timeout: the option, or else `TOOLRACK_TIMEOUT`.
    pub(crate) fn timeout(&self, settings: &Settings) -> Option<Duration> {
        self.timeout.or(settings.timeout)
    }
}

/// Options of `search`.
#[derive(Debug, Args)]
#[command(after_help = "Searches the cached tool lists; `--live` queries the servers.")]
pub(crate) struct SearchOptions {
    /// Keywords; all of them must occur in the name or the description
    #[arg(required = true, value_name = "KEYWORD")]
    pub(crate) words: Vec<String>,
    /// Start all servers and search their current tools
    #[arg(long)]
    pub(crate) live: bool,
}

/// Options of `tools`, `resources` and `prompts`.
#[derive(Debug, Args)]
pub(crate) struct ListOptions {
    /// Only this server [default: all servers]
    pub(crate) server: Option<String>,
    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

/// Options of `read`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolrack read docs file:///readme.md
  toolrack read file:///readme.md -- npx -y some-server")]
pub(crate) struct ReadOptions {
    /// Server and URI of the resource; the server can be omitted if there is only one
    #[arg(required = true, num_args = 1..=2, value_names = ["SERVER", "URI"])]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) request: RequestOptions,
    /// Save binary contents to this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) save: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

/// Options of `prompt`.
#[derive(Debug, Args)]
pub(crate) struct PromptOptions {
    /// Prompt as `server.prompt` or `server/prompt`; the server can be omitted if there is only one
    pub(crate) prompt: String,
    /// Arguments of the prompt; `name=@file` reads a file
    #[arg(value_name = "NAME=VALUE")]
    pub(crate) arguments: Vec<String>,
    #[command(flatten)]
    pub(crate) request: RequestOptions,
    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

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

/// Subcommands of `key`.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyAction {
    /// Create a key and print it, once
    Create(KeyCreateOptions),
    /// List keys, without their secrets
    #[command(visible_alias = "ls")]
    List,
    /// Replace the secret of a key; the old one is invalid at once
    Rotate {
        /// Name of the key
        name: String,
    },
    /// Remove a key, and end its sessions
    #[command(visible_alias = "rm")]
    Revoke {
        /// Name of the key
        name: String,
    },
    /// Check that the program on the daemon's port is the daemon, without sending the key
    #[command(
        after_help = "The key is read from `TOOLRACK_KEY`, or else from the terminal or stdin."
    )]
    Check(KeyCheckOptions),
}

/// Options of `key create`.
#[derive(Debug, Args)]
pub(crate) struct KeyCreateOptions {
    /// Name of the key, such as that of the client
    pub(crate) name: String,
    /// Only for this server
    #[arg(long, value_name = "NAME", conflicts_with = "admin")]
    pub(crate) server: Option<String>,
    /// For everything, including adding servers, which run programs
    #[arg(long)]
    pub(crate) admin: bool,
}

/// Options of `key check`.
#[derive(Debug, Args)]
pub(crate) struct KeyCheckOptions {
    /// URL that the client uses [default: that of the daemon]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
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
Clients that start it reach the daemon through a private socket, and need no key.
The daemon also serves MCP over HTTP, for clients with a key (see `toolrack key`): http://127.0.0.1:7733/mcp,
/mcp/AGENT, /mcp/server/NAME and /mcp/AGENT/server/NAME.

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

/// Parses a duration in the syntax of the config file.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    toolrack_config::parse_duration(text).map_err(|reason| format!("it {reason}"))
}

/// Finds `--output` in arguments that may not parse, so that a usage error is printed in the
/// requested format.
pub(crate) fn requested_output(words: &[String]) -> Option<Output> {
    let mut words = words.iter().map(String::as_str).take_while(|word| *word != "--");
    let mut found = None;
    while let Some(word) = words.next() {
        let form = match word {
            "-o" | "--output" => words.next(),
            _ => word.strip_prefix("--output=").or_else(|| word.strip_prefix("-o")),
        };
        found = form.and_then(|name| Output::from_str(name, false).ok()).or(found);
    }
    found
}

/// An ad-hoc server: a command after `--`, or a URL. The config file is not used.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Ad-hoc server")]
pub(crate) struct TargetOptions {
    /// Connect to the server at this URL
    #[arg(long, value_name = "URL", conflicts_with_all = ["program", "env", "cwd"])]
    pub(crate) url: Option<String>,
    /// Add a request header; `${NAME}` expands an environment variable
    #[arg(long, value_name = "NAME: VALUE", requires = "url")]
    pub(crate) header: Vec<String>,
    /// Set an environment variable for the server; without a value, pass on the current one
    #[arg(long, value_name = "NAME[=VALUE]", requires = "program")]
    pub(crate) env: Vec<String>,
    /// Working directory of the server
    #[arg(long, value_name = "DIR", requires = "program")]
    pub(crate) cwd: Option<PathBuf>,
    /// Maximum time to wait until the server is ready, e.g. `90s`
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, help_heading = None)]
    pub(crate) startup_timeout: Option<Duration>,
    /// Command that starts the server; it is stopped afterwards
    #[arg(last = true, value_name = "COMMAND", id = "program")]
    pub(crate) command: Vec<String>,
}

impl TargetOptions {
    /// Whether an ad-hoc server is given.
    pub(crate) fn is_given(&self) -> bool {
        self.url.is_some() || !self.command.is_empty()
    }
}

/// The commands in the order of the help, by group.
pub(crate) const COMMAND_GROUPS: &[(&str, &[&str])] = &[
    ("Tools", &["tools", "call", "search"]),
    ("Resources and prompts", &["resources", "read", "prompts", "prompt"]),
    (
        "Servers",
        &[
            "add", "add-json", "list", "get", "edit", "remove", "enable", "disable", "start",
            "stop", "restart", "status", "logs",
        ],
    ),
    ("Daemon", &["daemon", "serve", "dashboard", "history"]),
    ("Logins and secrets", &["login", "logout", "secret", "key"]),
    ("Config", &["import", "config", "doctor"]),
    ("More", &["completion", "demo"]),
];

const HELP_FOOTER: &str = "\
Try it:
  toolrack demo
  toolrack tools -- npx -y @modelcontextprotocol/server-everything

See `toolrack COMMAND --help` for more about a command.";

/// Builds the clap command with the grouped help.
pub(crate) fn command() -> clap::Command {
    let command = Cli::command();
    let line = |name: &&str| {
        let verb = command.find_subcommand(name)?;
        let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
        let aliases = verb.get_visible_aliases().map(|alias| format!(" [alias: {alias}]"));
        Some(format!("  {name:<12} {about}{}\n", aliases.collect::<String>()))
    };
    let groups = COMMAND_GROUPS.iter().map(|(heading, names)| {
        format!("{heading}:\n{}\n", names.iter().filter_map(line).collect::<String>())
    });
    let groups: String = groups.collect();
    // Only `--help` prints these tables.
    let exit_codes = ExitCode::value_variants().iter();
    let exit_codes =
        exit_codes.map(|code| format!("  {:<16} {}\n", *code as u8, description(code)));
    let variables = Variable::value_variants().iter();
    let variables =
        variables.map(|variable| format!("  {:<21} {}\n", variable.name(), description(variable)));
    let template = format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}\n"
    );
    command.help_template(template).after_help(HELP_FOOTER).after_long_help(format!(
        "Exit codes:\n{}\nEnvironment:\n{}\n{HELP_FOOTER}",
        exit_codes.collect::<String>(),
        variables.collect::<String>()
    ))
}

/// The command-line program with `call` alone, to parse a call. Its help and its errors are those of [`command`].
pub(crate) fn call_command() -> clap::Command {
    let call = CallOptions::augment_args(clap::Command::new("call"));
    GlobalOptions::augment_args(clap::Command::new("toolrack")).subcommand(call)
}

/// The description of a value, from its doc comment.
fn description(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.and_then(|value| value.get_help().map(ToString::to_string)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
