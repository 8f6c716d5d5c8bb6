//! What can be typed about resources and prompts.

use std::path::PathBuf;

use clap::Args;

use super::target::TargetOptions;
use super::tools::ConductOptions;

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
    pub(crate) conduct: ConductOptions,
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
    pub(crate) conduct: ConductOptions,
    #[command(flatten)]
    pub(crate) target: TargetOptions,
}
