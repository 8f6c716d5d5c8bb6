//! Command-line definition: commands, options and help.
//!
//! The clap doc comments here and in the submodules are the help texts; there is no other copy of
//! them.

pub(crate) mod daemon;
pub(crate) mod servers;
pub(crate) mod tools;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

use self::daemon::{DaemonAction, DashboardOptions, HistoryOptions, ServeOptions};
use self::servers::{
    AddJsonOptions, AddOptions, ConfigAction, EnableOptions, GetOptions, ImportOptions,
    LoginOptions, LogsOptions, NameOptions, SecretAction, StatusOptions,
};
use self::tools::{
    CallOptions, ListOptions, PromptOptions, ReadOptions, SearchOptions, ToolsOptions,
};
use crate::exit_code::ExitCode;
use crate::output::Output;
use crate::settings::Variable;

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
    Demo(DemoOptions),
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

/// Options of `demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoOptions {
    /// Use the legacy protocol, with the `initialize` handshake
    #[arg(long)]
    pub(crate) legacy: bool,
}

/// Supported shells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
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
    ("Logins and secrets", &["login", "logout", "secret"]),
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
    let mut groups = String::new();
    for (heading, names) in COMMAND_GROUPS {
        // Writing to a string cannot fail.
        writeln!(groups, "{heading}:").unwrap_or_default();
        for name in *names {
            let Some(verb) = command.find_subcommand(name) else { continue };
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            write!(groups, "  {name:<12} {about}").unwrap_or_default();
            for alias in verb.get_visible_aliases() {
                write!(groups, " [alias: {alias}]").unwrap_or_default();
            }
            groups.push('\n');
        }
        groups.push('\n');
    }
    let template = format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}\n"
    );
    command
        .help_template(template)
        .after_help(HELP_FOOTER)
        .after_long_help(format!("{}\n{HELP_FOOTER}", help_tables()))
}

/// Exit codes and environment variables, which only `--help` prints.
fn help_tables() -> String {
    let mut text = "Exit codes:\n".to_owned();
    for exit_code in ExitCode::ALL {
        writeln!(text, "  {:<16} {}", exit_code.code(), exit_code.description())
            .unwrap_or_default();
    }
    text.push_str("\nEnvironment:\n");
    for variable in Variable::value_variants() {
        writeln!(text, "  {:<21} {}", variable.name(), variable.description()).unwrap_or_default();
    }
    text
}

#[cfg(test)]
mod tests;
