//! The programs that are measured: where each of them is, and how it is asked for one call.
//!
//! Every program is run the way its own help shows, in a home of its own, with nothing configured.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use super::ClientName;
use crate::server_process::ServerCommand;
use crate::{machine, system};

/// Where `cargo xtask bench cli` puts the peers, and the Node that they and the server run on.
const PEERS_DIR: &str = "tests/bench/node_modules";
const EVERYTHING: &str =
    "tests/servers/node/node_modules/@modelcontextprotocol/server-everything/dist/index.js";

/// One call of one server that has to be started for it.
#[derive(Debug)]
pub(crate) struct Errand {
    pub(crate) server: ServerCommand,
    pub(crate) tool: &'static str,
    pub(crate) arguments: &'static [(&'static str, &'static str)],
    /// Part of what the server answers.
    pub(crate) answer: &'static str,
}

impl Errand {
    /// A server as most servers are: a Node program with a hundred modules.
    pub(crate) fn on_node() -> anyhow::Result<Self> {
        let script = installed(Path::new(EVERYTHING))?.display().to_string();
        let server = ServerCommand { program: node()?, args: vec![script, "stdio".to_owned()] };
        Ok(Self { server, tool: "echo", arguments: &[("message", "hello")], answer: "Echo: hello" })
    }

    /// A server that costs next to nothing, so that what is left is the program.
    pub(crate) fn on_demo() -> anyhow::Result<Self> {
        let server = ServerCommand { program: toolrack()?, args: vec!["__demo-server".to_owned()] };
        Ok(Self { server, tool: "add", arguments: &[("a", "1200"), ("b", "34")], answer: "1234" })
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = String> {
        self.arguments.iter().map(|(name, value)| format!("{name}={value}"))
    }
}

/// The program with the arguments that make it run this errand.
pub(crate) fn calling(client: ClientName, errand: &Errand) -> anyhow::Result<Command> {
    let mut command = program(client)?;
    command.args(words(client, errand)?);
    Ok(command)
}

pub(crate) fn help(client: ClientName) -> anyhow::Result<Command> {
    let mut command = program(client)?;
    if client == ClientName::Inspector {
        command.arg("--cli");
    }
    command.arg("--help");
    Ok(command)
}

/// Our program, which is built beside this one.
pub(crate) fn toolrack() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("toolrack");
    if !path.exists() {
        bail!("`toolrack` is not beside the bench: `cargo xtask bench cli` builds it");
    }
    Ok(path)
}

fn program(client: ClientName) -> anyhow::Result<Command> {
    let script = match client {
        ClientName::Toolrack => return Ok(system::command(toolrack()?)),
        ClientName::Mcporter => "mcporter/dist/cli.js",
        ClientName::Inspector => "@modelcontextprotocol/inspector/clients/launcher/build/index.js",
        other => bail!("{other:?} is no program"),
    };
    let mut command = system::command(node()?);
    command.arg(installed(&Path::new(PEERS_DIR).join(script))?);
    Ok(command)
}

fn node() -> anyhow::Result<PathBuf> {
    installed(&Path::new(PEERS_DIR).join("node/bin/node"))
}

pub(super) fn installed(path: &Path) -> anyhow::Result<PathBuf> {
    let path = machine::root().context("the programs are installed in the workspace")?.join(path);
    if !path.exists() {
        bail!("{} is missing: `cargo xtask bench` installs it", path.display());
    }
    Ok(path)
}

fn words(client: ClientName, errand: &Errand) -> anyhow::Result<Vec<OsString>> {
    let ServerCommand { program, args } = &errand.server;
    let program = program.as_os_str().to_owned();
    let mut words: Vec<OsString> = Vec::new();
    match client {
        ClientName::Toolrack => {
            words.extend(["call", errand.tool].map(OsString::from));
            words.extend(errand.pairs().map(OsString::from));
            words.extend(["--".into(), program]);
            words.extend(args.iter().map(OsString::from));
        }
        ClientName::Mcporter => {
            words.extend(["call".into(), "--stdio".into(), program]);
            words.extend(args.iter().flat_map(|arg| ["--stdio-arg".into(), arg.into()]));
            words.push(errand.tool.into());
            words.extend(errand.pairs().map(OsString::from));
        }
        ClientName::Inspector => {
            words.extend(["--cli".into(), program]);
            words.extend(args.iter().map(OsString::from));
            let call = ["--method", "tools/call", "--tool-name", errand.tool];
            words.extend(call.map(OsString::from));
            words.extend(errand.pairs().flat_map(|pair| ["--tool-arg".into(), pair.into()]));
        }
        other => bail!("{other:?} is no program"),
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(client: ClientName, expected: &str) {
        let args = vec!["index.js".to_owned(), "stdio".to_owned()];
        let errand = Errand {
            server: ServerCommand { program: "node".into(), args },
            tool: "add",
            arguments: &[("a", "1"), ("b", "2")],
            answer: "3",
        };
        let words = words(client, &errand).unwrap();
        assert_eq!(words.join(" ".as_ref()), expected);
    }

    #[test]
    fn each_program_is_asked_in_its_own_words() {
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
