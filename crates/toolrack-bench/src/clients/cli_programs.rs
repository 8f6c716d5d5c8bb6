//! Measured command-line programs: their paths, and their arguments for one call.
//!
//! Every program is run as its help shows, in an empty home without configuration.

use std::ffi::OsString;
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
    let mut command = base_command(client)?;
    match call {
        Some(call) => command.args(call_args(client, call)?),
        None if client == ClientName::Inspector => command.args(["--cli", "--help"]),
        None => command.arg("--help"),
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

fn base_command(client: ClientName) -> anyhow::Result<Command> {
    let script = match client {
        ClientName::Toolrack => return Ok(harness::command(toolrack_path()?)),
        ClientName::Mcporter => "mcporter/dist/cli.js",
        ClientName::Inspector => "@modelcontextprotocol/inspector/clients/launcher/build/index.js",
        other => bail!("{other:?} is not a program"),
    };
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

fn call_args(client: ClientName, call: &CliCall) -> anyhow::Result<Vec<OsString>> {
    let ServerCommand { program, args } = &call.server;
    let program = program.as_os_str().to_owned();
    let mut command_args: Vec<OsString> = Vec::new();
    match client {
        ClientName::Toolrack => {
            command_args.extend(["call", call.tool].map(OsString::from));
            command_args.extend(call.key_value_args().map(OsString::from));
            command_args.extend(["--".into(), program]);
            command_args.extend(args.iter().map(OsString::from));
        }
        ClientName::Mcporter => {
            command_args.extend(["call".into(), "--stdio".into(), program]);
            command_args.extend(args.iter().flat_map(|arg| ["--stdio-arg".into(), arg.into()]));
            command_args.push(call.tool.into());
            command_args.extend(call.key_value_args().map(OsString::from));
        }
        ClientName::Inspector => {
            command_args.extend(["--cli".into(), program]);
            command_args.extend(args.iter().map(OsString::from));
            let method = ["--method", "tools/call", "--tool-name", call.tool];
            command_args.extend(method.map(OsString::from));
            command_args
                .extend(call.key_value_args().flat_map(|pair| ["--tool-arg".into(), pair.into()]));
        }
        other => bail!("{other:?} is not a program"),
    }
    Ok(command_args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(client: ClientName, expected: &str) {
        let args = vec!["index.js".to_owned(), "stdio".to_owned()];
        let call = CliCall {
            server: ServerCommand { program: "node".into(), args },
            tool: "add",
            arguments: &[("a", "1"), ("b", "2")],
            expected_output: "3",
        };
        let command_args = call_args(client, &call).unwrap();
        assert_eq!(command_args.join(" ".as_ref()), expected);
    }

    #[test]
    fn call_args_follow_each_program() {
        check(ClientName::Toolrack, "call add a=1 b=2 -- node index.js stdio");
        check(
            ClientName::Mcporter,
            "call --stdio node --stdio-arg index.js --stdio-arg stdio add a=1 b=2",
        );
        check(
            ClientName::Inspector,
            "--cli node index.js stdio --method tools/call --tool-name add \
             --tool-arg a=1 --tool-arg b=2",
        );
    }
}
