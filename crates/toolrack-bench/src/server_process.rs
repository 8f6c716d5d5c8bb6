//! The HTTP server as the client process has it: started before the client, ended after it.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdin, Stdio};

use anyhow::Context as _;

use crate::clients::ServerCommand;
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
    /// The first line that it printed.
    pub(crate) said: String,
}

impl RemoteProcess {
    pub(crate) fn start(server: &ServerCommand) -> anyhow::Result<Self> {
        let mut command = server.std();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take().context("no stdin")?;
        let mut said = String::new();
        BufReader::new(child.stdout.take().context("no stdout")?).read_line(&mut said)?;
        Ok(Self { child, stdin, said: said.trim().to_owned() })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn end(self) -> anyhow::Result<()> {
        let Self { mut child, stdin, said: _ } = self;
        drop(stdin);
        child.wait()?;
        Ok(())
    }
}
