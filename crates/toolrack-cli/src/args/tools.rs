//! Arguments of the commands on tools, resources and prompts.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::TargetOptions;
use super::parse_duration;
use crate::settings::Settings;

/// Options of `tools`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolrack tools                                  all configured servers
  toolrack tools github --schema                  one server, with parameters
  toolrack tools -- npx -y some-server            an ad-hoc server
  toolrack tools --url https://host/mcp -o json")]
pub(crate) struct ToolsOptions {
    /// Only this server [default: all servers]
    pub(crate) server: Option<String>,
    /// Also show the parameters of each tool
    #[arg(long)]
    pub(crate) schema: bool,
    /// List cached tools without starting any server
    #[arg(long)]
    pub(crate) cached: bool,
    #[command(flatten)]
    pub(crate) target: TargetOptions,
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

/// Options of `resources` and `prompts`.
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
