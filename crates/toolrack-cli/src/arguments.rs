//! What can be typed, as types. The help texts are written here and nowhere else.

use clap::{Args, Parser, Subcommand};

/// One rack for every MCP server.
#[derive(Debug, Parser)]
#[command(name = "toolrack", version, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Everything the program can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a built-in server, list its tools and call them
    Demo(DemoOptions),
}

/// What may be said about the demonstration.
#[derive(Debug, Args)]
pub(crate) struct DemoOptions {
    /// Talk to the server in the older manner, with a handshake
    #[arg(long)]
    pub(crate) legacy: bool,
}
