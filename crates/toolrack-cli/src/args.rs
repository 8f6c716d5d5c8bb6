//! What can be typed, as types. The help texts are written here and below, and nowhere else.

pub(crate) mod daemon;
pub(crate) mod servers;
pub(crate) mod tools;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

use self::daemon::{DaemonOptions, DashboardOptions, HistoryOptions, ServeOptions};
use self::servers::{
    AddJsonOptions, AddOptions, ConfigOptions, DoctorOptions, EditOptions, EnableOptions,
    GetOptions, ImportOptions, LoginOptions, LogsOptions, NameOptions, SecretOptions,
    StatusOptions,
};
use self::tools::{
    CallOptions, PromptOptions, PromptsOptions, ReadOptions, ResourcesOptions, SearchOptions,
    ToolsOptions,
};
use crate::exit_code::ExitCode;
use crate::output::Output;
use crate::settings::Variable;

/// One rack for every MCP server.
#[derive(Debug, Parser)]
#[command(name = "toolrack", version, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalOptions,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What can be said with every command.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Everywhere")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that stands for itself")]
pub(crate) struct GlobalOptions {
    /// The form of data
    #[arg(short, long, global = true, value_name = "FORM")]
    pub(crate) output: Option<Output>,
    /// Say nothing but data and failures
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Also show what servers write to their error output and logs
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// Use this config file
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Use the servers of this agent of the config file
    #[arg(long, global = true, value_name = "ID")]
    pub(crate) agent: Option<String>,
    /// Do it without the daemon, also if one runs
    #[arg(long, global = true)]
    pub(crate) no_daemon: bool,
}

/// Everything the program can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List tools, of one server or of all
    Tools(ToolsOptions),
    /// Call a tool
    Call(CallOptions),
    /// Find tools by words, in all servers
    Search(SearchOptions),
    /// List what can be read
    Resources(ResourcesOptions),
    /// Read a resource
    Read(ReadOptions),
    /// List prompts
    Prompts(PromptsOptions),
    /// Fill in a prompt
    Prompt(PromptOptions),
    /// Add a server to the config
    Add(Box<AddOptions>),
    /// Add a server that is written in JSON
    AddJson(AddJsonOptions),
    /// List the servers of the config
    #[command(visible_alias = "ls")]
    List,
    /// Show what the config says of a server
    Get(GetOptions),
    /// Edit the config file, and check it before it is saved
    Edit(EditOptions),
    /// Remove a server from the config
    #[command(visible_alias = "rm")]
    Remove(NameOptions),
    /// Allow a server to be started
    Enable(EnableOptions),
    /// Forbid a server to be started
    Disable(NameOptions),
    /// Start a server and see whether it works
    Start(NameOptions),
    /// Stop a server
    Stop(NameOptions),
    /// Stop a server and start it again
    Restart(NameOptions),
    /// Show how servers are
    #[command(visible_alias = "ps")]
    Status(StatusOptions),
    /// Show what a server wrote to its error output
    Logs(LogsOptions),
    /// Log in at a server over HTTP
    Login(LoginOptions),
    /// Forget the login at a server
    Logout(NameOptions),
    /// Keep tokens and passwords out of the config file
    Secret(SecretOptions),
    /// Take over the servers of other tools
    Import(ImportOptions),
    /// Check the config file, or say where it is
    Config(ConfigOptions),
    /// Look for what is wrong, and say how to mend it
    Doctor(DoctorOptions),
    /// Keep servers running between commands
    Daemon(DaemonOptions),
    /// Be an MCP server on the standard streams, with the tools of all servers
    Serve(ServeOptions),
    /// Open the page of the daemon in a browser
    Dashboard(DashboardOptions),
    /// List the calls that went through the daemon
    History(HistoryOptions),
    /// Start a built-in server, list its tools and call them
    Demo(DemoOptions),
    /// Print what makes your shell complete names and options
    Completion(CompletionOptions),
    /// Say what could be typed next
    #[command(name = "__complete", hide = true)]
    Complete(CompleteOptions),
}

/// What may be said about the demonstration.
#[derive(Debug, Args)]
pub(crate) struct DemoOptions {
    /// Verbosity to the server in the older manner, with a handshake
    #[arg(long)]
    pub(crate) legacy: bool,
}

/// Which shell is to be taught.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  source <(toolrack completion bash)              for this shell; add it to ~/.bashrc
  source <(toolrack completion zsh)               for this shell; add it to ~/.zshrc
  toolrack completion fish > ~/.config/fish/completions/toolrack.fish")]
pub(crate) struct CompletionOptions {
    /// Your shell
    pub(crate) shell: Shell,
}

/// The shells that can be taught.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// What was typed so far, as a shell gives it.
#[derive(Debug, Args)]
pub(crate) struct CompleteOptions {
    /// The words after the program's name; the last one is to be completed
    #[arg(last = true)]
    pub(crate) words: Vec<String>,
}

/// A time as config files have it.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    toolrack_config::parse_time(text).map_err(|why| format!("it {why}"))
}

/// The form that was asked for, also where the rest of the line cannot be understood.
pub(crate) fn asked_output(words: &[String]) -> Option<Output> {
    let mut words = words.iter().map(String::as_str).take_while(|word| *word != "--");
    let mut asked = None;
    while let Some(word) = words.next() {
        let form = match word {
            "-o" | "--output" => words.next(),
            _ => word.strip_prefix("--output=").or_else(|| word.strip_prefix("-o")),
        };
        asked = form.and_then(|name| Output::from_str(name, false).ok()).or(asked);
    }
    asked
}

/// A server without a config: a command behind `--`, or an address.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "A server without a config")]
pub(crate) struct TargetOptions {
    /// Verbosity to the server at this address
    #[arg(long, value_name = "URL", conflicts_with_all = ["program", "env", "cwd"])]
    pub(crate) url: Option<String>,
    /// Send this header; `${NAME}` stands for a variable of the environment
    #[arg(long, value_name = "NAME: VALUE", requires = "url")]
    pub(crate) header: Vec<String>,
    /// Give the server this variable; without a value, the one of this environment
    #[arg(long, value_name = "NAME[=VALUE]", requires = "program")]
    pub(crate) env: Vec<String>,
    /// Start the server in this directory
    #[arg(long, value_name = "DIR", requires = "program")]
    pub(crate) cwd: Option<PathBuf>,
    /// How long the server may take to be ready, as in `90s`
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = None)]
    pub(crate) startup_timeout: Option<Duration>,
    /// Start this server and end it afterwards
    #[arg(last = true, value_name = "COMMAND", id = "program")]
    pub(crate) command: Vec<String>,
}

impl TargetOptions {
    /// Whether a server is named here, so that the config file does not matter.
    pub(crate) fn is_given(&self) -> bool {
        self.url.is_some() || !self.command.is_empty()
    }
}

/// Every command that people use, in the order in which it is shown.
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

Run `toolrack COMMAND --help` for more about a command.";

/// The command line with its help in groups.
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

/// The exit codes and the environment, which only `--help` shows.
fn help_tables() -> String {
    let mut text = "Exit codes:\n".to_owned();
    for exit_code in ExitCode::ALL {
        writeln!(text, "  {:<16} {}", exit_code.code(), exit_code.description())
            .unwrap_or_default();
    }
    text.push_str("\nEnvironment:\n");
    for variable in Variable::ALL {
        writeln!(text, "  {:<21} {}", variable.name(), variable.description()).unwrap_or_default();
    }
    text
}

#[cfg(test)]
mod tests;
