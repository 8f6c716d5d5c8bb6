//! The clients that are measured, behind one seam: a file per client, and bare pipes for the limit.
//!
//! Every client is used the way its own documentation shows, on a child process, with its defaults; only
//! limits on the size of a message are raised where its child-process transport has a setting for them.

pub(crate) mod bare;
mod ours;
mod pmcp;
mod rmcp;
mod tower;
mod turbomcp;

use std::future::Future;
use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

pub(crate) use self::ours::{Toolrack, ToolrackGuarded, ToolrackRaw};
pub(crate) use self::pmcp::Pmcp;
pub(crate) use self::rmcp::Rmcp;
pub(crate) use self::tower::Tower;
pub(crate) use self::turbomcp::Turbomcp;
use crate::process;

/// More than the largest result that is measured, for peers that let a caller say so.
const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;

/// How to start the server: this same program.
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

    pub(crate) fn std(&self) -> std::process::Command {
        let mut command = process::command(&self.program);
        command.args(&self.args);
        command
    }

    pub(crate) fn tokio(&self) -> tokio::process::Command {
        let mut command = process::tokio_command(&self.program);
        command.args(&self.args);
        command
    }
}

/// A tool call, made once and used for every repetition.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) tool: &'static str,
    pub(crate) arguments: Value,
    /// The same, for a client that takes them as they are.
    pub(crate) raw_arguments: Box<RawValue>,
}

impl Call {
    fn new(tool: &'static str, arguments: Value) -> anyhow::Result<Self> {
        let raw_arguments = to_raw_value(&arguments)?;
        Ok(Self { tool, arguments, raw_arguments })
    }

    /// Answered at once with 100 bytes of text.
    pub(crate) fn echo() -> anyhow::Result<Self> {
        Self::new("echo", json!({ "text": "hello" }))
    }

    /// Answered after 400 ms.
    pub(crate) fn slow() -> anyhow::Result<Self> {
        Self::new("slow", json!({ "text": "hello" }))
    }

    /// Answered with `text_bytes` of text.
    pub(crate) fn big(text_bytes: usize) -> anyhow::Result<Self> {
        Self::new("big", json!({ "n": text_bytes }))
    }

    /// The same, in text that has escapes in JSON.
    pub(crate) fn big_with_escapes(text_bytes: usize) -> anyhow::Result<Self> {
        Self::new("big", json!({ "n": text_bytes, "escapes": true }))
    }
}

/// A client under measurement. A clone is another handle on the same line.
pub(crate) trait Contender: Clone + Send + Sync + Sized + 'static {
    /// Starts the server and agrees on a revision with it.
    fn connect(server: &ServerCommand) -> impl Future<Output = anyhow::Result<Self>> + Send;

    /// Calls a tool and says how many bytes of text came back.
    fn call(&self, call: &Call) -> impl Future<Output = anyhow::Result<usize>> + Send;

    /// Asks for all tools and says how many there are.
    fn list_tools(&self) -> impl Future<Output = anyhow::Result<usize>> + Send;

    /// The same, where a list that came with connecting will do.
    fn known_tools(&self) -> impl Future<Output = anyhow::Result<usize>> + Send {
        self.list_tools()
    }

    /// Ends the line and waits for the server. Only the last handle ends it.
    fn close(self) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// Every client by the name it has on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub(crate) enum ClientName {
    BareTokio,
    BareBlock,
    BareFresh,
    Toolrack,
    ToolrackRaw,
    ToolrackGuarded,
    Rmcp,
    Pmcp,
    Turbomcp,
    Tower,
}

/// What a client is in a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The same bytes with no client at all.
    Limit,
    Ours,
    Peer,
}

impl ClientName {
    pub(crate) fn role(self) -> Role {
        match self {
            Self::BareTokio | Self::BareBlock | Self::BareFresh => Role::Limit,
            Self::Toolrack | Self::ToolrackRaw | Self::ToolrackGuarded => Role::Ours,
            Self::Rmcp | Self::Pmcp | Self::Turbomcp | Self::Tower => Role::Peer,
        }
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::BareTokio => "limit: tokio pipe",
            Self::BareBlock => "limit: blocking pipe",
            Self::BareFresh => "limit: blocking pipe, fresh buffer",
            Self::Toolrack => "toolrack",
            Self::ToolrackRaw => "toolrack, raw result",
            Self::ToolrackGuarded => "toolrack, with guardian",
            Self::Rmcp => "rmcp 3.8.0",
            Self::Pmcp => "pmcp 2.23.0",
            Self::Turbomcp => "turbomcp-client 3.6.0",
            Self::Tower => "tower-mcp 0.25.0",
        }
    }

    /// A blocking client has no runtime to choose.
    pub(crate) fn has_runtime(self) -> bool {
        !matches!(self, Self::BareBlock | Self::BareFresh)
    }
}
