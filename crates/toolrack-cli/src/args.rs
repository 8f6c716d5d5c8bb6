//! What can be typed, as types. The help texts are written here and below, and nowhere else.

pub(crate) mod config;
pub(crate) mod daemon;
pub(crate) mod list;
pub(crate) mod servers;
pub(crate) mod target;
pub(crate) mod tools;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use self::config::{ConfigOptions, DoctorOptions, ImportOptions, LoginOptions, SecretOptions};
use self::daemon::{DaemonOptions, DashboardOptions, HistoryOptions, ServeOptions};
use self::list::{PromptOptions, PromptsOptions, ReadOptions, ResourcesOptions};
use self::servers::{
    AddJsonOptions, AddOptions, EditOptions, EnableOptions, GetOptions, LogsOptions, NameOptions,
    StatusOptions,
};
use self::tools::{CallOptions, SearchOptions, ToolsOptions};
use crate::output::Output;

/// One rack for every MCP server.
#[derive(Debug, Parser)]
#[command(name = "toolrack", version, disable_help_subcommand = true)]
pub(crate) struct Arguments {
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
    /// Talk to the server in the older manner, with a handshake
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
    let mut words = words.iter().map(String::as_str).take_while(|it| *it != "--");
    let mut asked = None;
    while let Some(word) = words.next() {
        let form = match word {
            "-o" | "--output" => words.next(),
            _ => word.strip_prefix("--output=").or_else(|| word.strip_prefix("-o")),
        };
        asked = form.and_then(|it| Output::from_str(it, false).ok()).or(asked);
    }
    asked
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_arguments_are_sound() {
        Arguments::command().debug_assert();
    }

    #[track_caller]
    fn check(line: &str, expected: Option<Output>) {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        assert_eq!(asked_output(&words), expected, "{line}");
    }

    #[test]
    fn the_form_is_found_in_a_line_that_is_wrong() {
        check("cal x", None);
        check("cal -o json", Some(Output::Json));
        check("cal -ojson --what", Some(Output::Json));
        check("cal --output=yaml", Some(Output::Yaml));
        check("cal --output raw", Some(Output::Raw));
        check("cal -- -o json", None);
        check("cal -o xml", None);
    }
}
