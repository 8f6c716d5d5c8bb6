//! What can be typed about logins, secrets and config files.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// What may be said about a login.
#[derive(Debug, Args)]
pub(crate) struct LoginOptions {
    /// The server
    pub(crate) server: String,
    /// Open no browser: show the address of the page, and ask where it led
    #[arg(long)]
    pub(crate) no_browser: bool,
}

/// What can be done with secrets.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolrack secret set github-token                asks for the value, and does not show it
  pass show github | toolrack secret set github-token
  toolrack secret list")]
pub(crate) struct SecretOptions {
    #[command(subcommand)]
    pub(crate) action: SecretAction,
}

/// What can be done with secrets.
#[derive(Debug, Subcommand)]
pub(crate) enum SecretAction {
    /// Store a secret; its value is asked for, or read from the standard input
    Set(SecretSetOptions),
    /// List the names of secrets and the servers that use them
    #[command(visible_alias = "ls")]
    List,
    /// Forget a secret
    #[command(visible_alias = "rm")]
    Remove(SecretRemoveOptions),
}

/// Which secret is stored.
#[derive(Debug, Args)]
pub(crate) struct SecretSetOptions {
    /// What it is called
    pub(crate) name: String,
    // A value that was typed is taken, so that it can be refused with the reason.
    #[arg(hide = true)]
    pub(crate) value: Option<String>,
}

/// Which secret is forgotten.
#[derive(Debug, Args)]
pub(crate) struct SecretRemoveOptions {
    /// What it is called
    pub(crate) name: String,
}

/// What may be said about taking servers over.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolrack import --dry-run                       what every tool on this machine has
  toolrack import cursor --secrets                with values that look secret in the store
  cd project && toolrack import claude            also the servers that Claude Code has for this project
  toolrack import .mcp.json                       a file of any tool")]
pub(crate) struct ImportOptions {
    /// A tool, whose usual files are looked for, or a file; all tools, if neither is given
    #[arg(value_name = "TOOL|FILE")]
    pub(crate) from: Option<String>,
    /// A file of the tool
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Move values of variables, headers and arguments that look secret into the secret store
    #[arg(long)]
    pub(crate) secrets: bool,
}

/// The tools whose configs are found by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tool {
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

/// What can be done with the config file.
#[derive(Debug, Args)]
pub(crate) struct ConfigOptions {
    #[command(subcommand)]
    pub(crate) action: ConfigAction,
}

/// What can be done with the config file.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigAction {
    /// Say everything that is wrong with a config file, of ours or of another tool
    Check(ConfigCheckOptions),
    /// Say where the config file is
    Path,
}

/// Which file is checked.
#[derive(Debug, Args)]
pub(crate) struct ConfigCheckOptions {
    /// The file; the config file in use, if it is not given
    pub(crate) file: Option<PathBuf>,
}

/// What may be said about looking for faults.
#[derive(Debug, Args)]
pub(crate) struct DoctorOptions {
    /// One server; all, if it is not given
    pub(crate) server: Option<String>,
}
