//! What can be typed about tools.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::TargetOptions;
use super::time;
use crate::settings::Settings;

/// What may be said about listing tools.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolrack tools                                  every server of the config
  toolrack tools github --schema                  one server, with what its tools take
  toolrack tools -- npx -y some-server            a server without any config
  toolrack tools --url https://host/mcp -o json")]
pub(crate) struct ToolsOptions {
    /// One server of the config; all, if it is not given
    pub(crate) server: Option<String>,
    /// Also show what each tool takes
    #[arg(long)]
    pub(crate) schema: bool,
    /// Start nothing; list what is remembered from the last time
    #[arg(long)]
    pub(crate) cached: bool,
    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

/// What may be said about a call.
#[derive(Debug, Args)]
#[command(after_help = "\
How arguments are written:
  name=text           text, or what the tool's schema makes of it: a number, yes or no, a list
  name:=json          JSON as it is
  name=@file          the text of a file; `name:=@file` is its JSON; `@-` is the standard input
  name.part=text      a part of an object
  name=a name=b       several entries of a list

Examples:
  toolrack call github.search_issues query=\"is:open\" limit=5
  toolrack call 'github.search_issues(query: \"is:open\", limit: 5)'
  toolrack call github.create_issue --args - < issue.json
  toolrack call echo message=hello -- npx -y @modelcontextprotocol/server-everything
  toolrack call echo message=hello --url https://host/mcp")]
pub(crate) struct CallOptions {
    /// The tool as `server.tool`, `server/tool` or its public name, or by its own name if one server alone has it;
    /// `tool(name: value)` gives arguments too
    pub(crate) tool: String,
    /// The arguments, as described below
    #[arg(value_name = "NAME=VALUE")]
    pub(crate) arguments: Vec<String>,
    /// All arguments as one JSON object; `-` reads the standard input, `@file` a file
    #[arg(long, value_name = "JSON")]
    pub(crate) args: Option<String>,
    /// Print the request instead of sending it
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Send the arguments without comparing them with the tool's schema
    #[arg(long)]
    pub(crate) no_check: bool,
    #[command(flatten)]
    pub(crate) request: RequestOptions,
    /// Write images, sounds and files of the result into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) save: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

/// How a request is made.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RequestOptions {
    /// How long it may take in all, as in `90s`
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) timeout: Option<Duration>,
    /// Answer questions of the server with their defaults
    #[arg(short, long)]
    pub(crate) yes: bool,
}

impl RequestOptions {
    /// How long a request may take in all: as it was typed, or else as the environment says.
    pub(crate) fn timeout(&self, settings: &Settings) -> Option<Duration> {
        self.timeout.or(settings.timeout)
    }
}

/// What may be said about a search.
#[derive(Debug, Args)]
#[command(after_help = "\
Searches what is remembered from the last time each server was used; `--live` asks the servers themselves.")]
pub(crate) struct SearchOptions {
    /// Words that the name or the description has to contain, all of them
    #[arg(required = true)]
    pub(crate) words: Vec<String>,
    /// Start every server and search what it has now
    #[arg(long)]
    pub(crate) live: bool,
}

/// What may be said about listing resources.
#[derive(Debug, Args)]
pub(crate) struct ResourcesOptions {
    /// One server of the config; all, if it is not given
    pub(crate) server: Option<String>,
    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

/// What may be said about reading a resource.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolrack read docs file:///readme.md
  toolrack read file:///readme.md -- npx -y some-server")]
pub(crate) struct ReadOptions {
    /// The server of the config and the address of the resource; the address alone, if there is one server
    #[arg(required = true, num_args = 1..=2, value_names = ["SERVER", "URI"])]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) request: RequestOptions,
    /// Write what is no text into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) save: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

/// What may be said about listing prompts.
#[derive(Debug, Args)]
pub(crate) struct PromptsOptions {
    /// One server of the config; all, if it is not given
    pub(crate) server: Option<String>,
    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

/// What may be said about filling in a prompt.
#[derive(Debug, Args)]
pub(crate) struct PromptOptions {
    /// The prompt as `server.prompt` or `server/prompt`; its name alone, if there is one server
    pub(crate) prompt: String,
    /// Its arguments; `name=@file` is the text of a file
    #[arg(value_name = "NAME=VALUE")]
    pub(crate) arguments: Vec<String>,
    #[command(flatten)]
    pub(crate) request: RequestOptions,
    #[command(flatten)]
    pub(crate) target: TargetOptions,
}
