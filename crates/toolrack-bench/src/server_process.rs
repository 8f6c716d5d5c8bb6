//! Server processes that a client process starts.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};

use anyhow::Context as _;
use toolrack_testkit::harness;

use crate::server::http::{Eras, Framing, path};

/// Command of a server; usually this program itself.
#[derive(Debug, Clone)]
pub(crate) struct ServerCommand {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
}

impl ServerCommand {
    pub(crate) fn with_tools(n_tools: usize) -> anyhow::Result<Self> {
        let args = vec!["serve".to_owned(), "--tools".to_owned(), n_tools.to_string()];
        Ok(Self { program: std::env::current_exe()?, args })
    }

    pub(crate) fn over_http() -> anyhow::Result<Self> {
        Ok(Self { program: std::env::current_exe()?, args: vec!["serve-http".to_owned()] })
    }

    pub(crate) fn program_text(&self) -> anyhow::Result<String> {
        Ok(self.program.to_str().context("the program path is not UTF-8")?.to_owned())
    }

    pub(crate) fn std(&self) -> std::process::Command {
        let mut command = harness::command(&self.program);
        command.args(&self.args);
        command
    }

    #[cfg(feature = "peers")]
    pub(crate) fn tokio(&self) -> tokio::process::Command {
        tokio::process::Command::from(self.std())
    }
}

/// Address of an HTTP benchmark server on this machine.
#[derive(Debug)]
pub(crate) struct HttpServer {
    pub(crate) port: u16,
    pub(crate) framing: Framing,
}

impl HttpServer {
    pub(crate) fn url(&self, eras: Eras) -> String {
        format!("http://127.0.0.1:{}{}", self.port, path(self.framing, eras))
    }
}

/// A running server process that prints its address.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Child,
    /// The server exits when its stdin closes.
    stdin: ChildStdin,
    /// First line of its output.
    pub(crate) first_line: String,
}

impl ServerProcess {
    pub(crate) fn start(server: &ServerCommand) -> anyhow::Result<Self> {
        let mut command = server.std();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take().context("no stdin")?;
        let mut first_line = String::new();
        BufReader::new(child.stdout.take().context("no stdout")?).read_line(&mut first_line)?;
        Ok(Self { child, stdin, first_line: first_line.trim().to_owned() })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn stop(self) -> anyhow::Result<()> {
        let Self { mut child, stdin, first_line: _ } = self;
        drop(stdin);
        child.wait()?;
        Ok(())
    }
}
