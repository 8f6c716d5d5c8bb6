//! Which server is meant, when it is not one of the config file.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::time;

/// A server without a config: a command behind `--`, or an address.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "A server without a config")]
pub(crate) struct TargetOptions {
    /// Talk to the server at this address
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
