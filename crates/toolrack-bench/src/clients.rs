//! The clients that are measured, behind one seam: a file per client, and bare pipes and sockets for the limit.
//!
//! Every client is used the way its own documentation shows, with its defaults; only limits on the size of
//! a message are raised where its child-process transport has a setting for them.

pub(crate) mod bare_hyper;
pub(crate) mod bare_pipe;
pub(crate) mod bare_tcp;
pub(crate) mod cli_programs;
pub(crate) mod gateways;
mod rust_sdks;
mod toolrack_client;
pub(crate) mod toolrack_manager;

use std::future::Future;

use clap::ValueEnum;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

pub(crate) use self::bare_hyper::BareHyper;
pub(crate) use self::rust_sdks::{Pmcp, PmcpHttp, Rmcp, Tower, Turbomcp};
pub(crate) use self::toolrack_client::{Toolrack, ToolrackGuarded, ToolrackRaw, ToolrackSession};
pub(crate) use self::toolrack_manager::{ManagerClient, ManagerClientRaw};
use crate::scenario::Subject;
use crate::server_process::{HttpServer, ServerCommand};

/// More than the largest result that is measured, for peers that let a caller say so.
const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;

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

    /// Not answered: the server floods its output, spins a core and reads no more.
    pub(crate) fn flood() -> anyhow::Result<Self> {
        Self::new("flood", json!({}))
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

/// A connected client under measurement. A clone is another handle on the same line.
pub(crate) trait BenchClient: Clone + Send + Sync + Sized + 'static {
    /// Calls a tool and says how many bytes of text came back.
    fn call(&self, call: &Call) -> impl Future<Output = anyhow::Result<usize>> + Send;

    /// Ends the line and waits for a server that was started for it. Only the last handle ends it.
    fn close(self) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// A client of servers that it reaches over HTTP.
pub(crate) trait HttpClient: BenchClient {
    /// Agrees on a revision with a server that is there already.
    fn connect(server: &HttpServer) -> impl Future<Output = anyhow::Result<Self>> + Send;
}

/// A client of servers that it starts.
pub(crate) trait StdioClient: BenchClient {
    /// Starts the server and agrees on a revision with it.
    fn connect(server: &ServerCommand) -> impl Future<Output = anyhow::Result<Self>> + Send;

    /// Asks for all tools and says how many there are.
    fn list_tools(&self) -> impl Future<Output = anyhow::Result<usize>> + Send;

    /// The same, where a list that came with connecting will do.
    fn initial_tools(&self) -> impl Future<Output = anyhow::Result<usize>> + Send {
        self.list_tools()
    }
}

/// How long the text in a result is, for those who do not decode it.
fn text_bytes(result: &[u8]) -> Option<usize> {
    let text = result.strip_prefix(br#"{"content":[{"type":"text","text":""#)?;
    Some(text.strip_suffix(br#""}],"isError":false}"#)?.len())
}

/// Every client by the name it has on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub(crate) enum ClientName {
    BareTokio,
    BareBlock,
    BareFresh,
    BareTcp,
    BareHyper,
    Toolrack,
    ToolrackRaw,
    ToolrackGuarded,
    ToolrackSession,
    Manager,
    ManagerRaw,
    Rmcp,
    Pmcp,
    Turbomcp,
    Tower,
    Mcporter,
    Inspector,
    Direct,
    Gateway,
    FastMcp,
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
            Self::BareTokio
            | Self::BareBlock
            | Self::BareFresh
            | Self::BareTcp
            | Self::BareHyper
            | Self::Direct => Role::Limit,
            Self::Toolrack
            | Self::ToolrackRaw
            | Self::ToolrackGuarded
            | Self::ToolrackSession
            | Self::Manager
            | Self::ManagerRaw
            | Self::Gateway => Role::Ours,
            Self::Rmcp
            | Self::Pmcp
            | Self::Turbomcp
            | Self::Tower
            | Self::Mcporter
            | Self::Inspector
            | Self::FastMcp => Role::Peer,
        }
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::BareTokio => "limit: tokio pipe",
            Self::BareBlock => "limit: blocking pipe",
            Self::BareFresh => "limit: blocking pipe, fresh buffer",
            Self::BareTcp => "limit: blocking TCP",
            Self::BareHyper => "bare hyper-util client",
            Self::Toolrack => "toolrack",
            Self::ToolrackRaw => "toolrack, raw result",
            Self::ToolrackGuarded => "toolrack, with guardian",
            Self::ToolrackSession => "toolrack, 2025-11-25 session",
            Self::Manager => "toolrack manager",
            Self::ManagerRaw => "toolrack manager, raw result",
            Self::Rmcp => "rmcp 3.8.0",
            Self::Pmcp => "pmcp 2.23.0",
            Self::Turbomcp => "turbomcp-client 3.6.0",
            Self::Tower => "tower-mcp 0.25.0",
            Self::Mcporter => "mcporter 0.12.3",
            Self::Inspector => "MCP Inspector 2.12.0 --cli",
            Self::Direct => "limit: the server itself",
            Self::Gateway => "toolrack gateway",
            Self::FastMcp => "FastMCP 4.1.2 proxy",
        }
    }

    /// Whether the client is measured in the scenarios about single servers.
    pub(crate) fn speaks(self, subject: Subject) -> bool {
        match self {
            Self::Toolrack | Self::ToolrackRaw | Self::Rmcp | Self::Pmcp => true,
            Self::BareTcp | Self::BareHyper | Self::ToolrackSession => subject == Subject::Http,
            Self::Manager
            | Self::ManagerRaw
            | Self::Mcporter
            | Self::Inspector
            | Self::Direct
            | Self::Gateway
            | Self::FastMcp => false,
            _ => subject == Subject::Stdio,
        }
    }

    /// A blocking client has no runtime to choose.
    pub(crate) fn has_runtime(self) -> bool {
        !matches!(self, Self::BareBlock | Self::BareFresh | Self::BareTcp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_raw_result_is_measured_where_it_stands() {
        let result = br#"{"content":[{"type":"text","text":"hello"}],"isError":false}"#;
        assert_eq!(text_bytes(result), Some(5));
        assert_eq!(text_bytes(br#"{"content":[]}"#), None);
    }
}
