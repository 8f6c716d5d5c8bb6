//! The HTTP server as the client process has it: started before the client, ended after it.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdin, Stdio};

use anyhow::Context as _;

use crate::peers::ServerCommand;
use crate::server::http::{Eras, Framing, path};

/// A server that listens on this machine.
#[derive(Debug)]
pub(crate) struct RemoteServer {
    pub(crate) port: u16,
    pub(crate) framing: Framing,
}

impl RemoteServer {
    pub(crate) fn url(&self, eras: Eras) -> String {
        format!("http://127.0.0.1:{}{}", self.port, path(self.framing, eras))
    }
}

/// The process of a server.
#[derive(Debug)]
pub(crate) struct RemoteProcess {
    child: Child,
    /// The server ends with its input, so this is what keeps it going.
    stdin: ChildStdin,
    pub(crate) port: u16,
}

impl RemoteProcess {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let mut command = ServerCommand::over_http()?.std();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take().context("no stdin")?;
        let mut said = String::new();
        BufReader::new(child.stdout.take().context("no stdout")?).read_line(&mut said)?;
        let port = said.trim().parse().context("the server did not say its port")?;
        Ok(Self { child, stdin, port })
    }

    pub(crate) fn end(self) -> anyhow::Result<()> {
        let Self { mut child, stdin, port: _ } = self;
        drop(stdin);
        child.wait()?;
        Ok(())
    }
}
