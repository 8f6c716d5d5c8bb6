//! Measured command-line programs: their paths, and their arguments for one call.
//!
//! Every program is run as its help shows, in an empty home without configuration.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use toolrack_testkit::harness;

use super::ClientName;
use crate::pages;
use crate::server_process::ServerCommand;

/// Where `cargo xtask bench cli` installs the peers and Node.js.
const PEERS_DIR: &str = "tests/bench/node_modules";
const EVERYTHING: &str =
    "tests/servers/node/node_modules/@modelcontextprotocol/server-everything/dist/index.js";

/// One call of a server that the program starts.
#[derive(Debug)]
pub(crate) struct CliCall {
    pub(crate) server: ServerCommand,
    pub(crate) tool: &'static str,
    pub(crate) arguments: &'static [(&'static str, &'static str)],
    /// Part of the result.
    pub(crate) expected_output: &'static str,
}

impl CliCall {
    /// A typical server: a Node.js program with a hundred modules.
    pub(crate) fn on_node_server() -> anyhow::Result<Self> {
        let script = installed_path(Path::new(EVERYTHING))?.display().to_string();
        let server =
            ServerCommand { program: node_path()?, args: vec![script, "stdio".to_owned()] };
        Ok(Self {
            server,
            tool: "echo",
            arguments: &[("message", "hello")],
            expected_output: "Echo: hello",
        })
    }

    /// A very cheap server, so that the program dominates.
    pub(crate) fn on_demo_server() -> anyhow::Result<Self> {
        let server =
            ServerCommand { program: toolrack_path()?, args: vec!["__demo-server".to_owned()] };
        Ok(Self {
            server,
            tool: "add",
            arguments: &[("a", "1200"), ("b", "34")],
            expected_output: "1234",
        })
    }

    pub(crate) fn key_value_args(&self) -> impl Iterator<Item = String> {
        self.arguments.iter().map(|(name, value)| format!("{name}={value}"))
    }
}

/// Command that makes this call, or prints the help.
pub(crate) fn command(client: ClientName, call: Option<&CliCall>) -> anyhow::Result<Command> {
    let mut command = match client {
        ClientName::Toolrack => harness::command(toolrack_path()?),
        ClientName::Mcporter => node_command("mcporter/dist/cli.js")?,
        ClientName::Inspector => {
            let launcher = "@modelcontextprotocol/inspector/clients/launcher/build/index.js";
            let mut command = node_command(launcher)?;
            command.arg("--cli");
            command
        }
        other => bail!("{other:?} is not a program"),
    };
    let Some(call) = call else {
        command.arg("--help");
        return Ok(command);
    };
    let ServerCommand { program, args } = &call.server;
    let pairs = call.key_value_args();
    match client {
        ClientName::Toolrack => {
            command.args(["call", call.tool]).args(pairs).arg("--").arg(program).args(args)
        }
        ClientName::Mcporter => {
            let args = args.iter().flat_map(|arg| ["--stdio-arg", arg]);
            command.args(["call", "--stdio"]).arg(program).args(args).arg(call.tool).args(pairs)
        }
        _ => {
            command.arg(program).args(args);
            command.args(["--method", "tools/call", "--tool-name", call.tool]);
            command.args(pairs.flat_map(|pair| ["--tool-arg".to_owned(), pair]))
        }
    };
    Ok(command)
}

pub(crate) fn toolrack_path() -> anyhow::Result<PathBuf> {
    built_path("toolrack", "cli")
}

/// Path of a program of this project, which is built beside this one.
pub(crate) fn built_path(program: &str, benchmark: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(program);
    ensure!(path.exists(), "`{program}` is not built: run `cargo xtask bench {benchmark}`");
    Ok(path)
}

/// Command of a peer, which is a script for Node.js.
fn node_command(script: &str) -> anyhow::Result<Command> {
    let mut command = harness::command(node_path()?);
    command.arg(installed_path(&Path::new(PEERS_DIR).join(script))?);
    Ok(command)
}

fn node_path() -> anyhow::Result<PathBuf> {
    installed_path(&Path::new(PEERS_DIR).join("node/bin/node"))
}

pub(crate) fn installed_path(path: &Path) -> anyhow::Result<PathBuf> {
    let path =
        pages::root().context("cannot find the workspace with the installed programs")?.join(path);
    if !path.exists() {
        bail!(
            "{} is missing: run `cargo xtask bench cli` or `cargo xtask bench gateway`",
            path.display()
        );
    }
    Ok(path)
}
