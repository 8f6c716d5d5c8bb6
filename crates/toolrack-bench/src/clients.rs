//! Measured clients behind common traits, and bare pipes and sockets as the limit.
//!
//! Every client is used as its documentation shows, with its defaults. Only message size limits are raised where
//! the child-process transport has a setting for them.

pub(crate) mod bare_hyper;
pub(crate) mod bare_pipe;
pub(crate) mod bare_tcp;
pub(crate) mod cli_programs;
pub(crate) mod gateways;
pub(crate) mod manager;
mod rust_sdks;
mod toolrack;

use std::future::Future;

use clap::ValueEnum;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

pub(crate) use self::bare_hyper::BareHyper;
pub(crate) use self::manager::{ManagerClient, ManagerClientRaw};
pub(crate) use self::rust_sdks::{Pmcp, PmcpHttp, Rmcp, Tower, Turbomcp};
pub(crate) use self::toolrack::{Toolrack, ToolrackGuarded, ToolrackRaw, ToolrackSession};
use crate::scenario::Subject;
use crate::server_process::{HttpServer, ServerCommand};

/// More than the largest measured result, for peers with a configurable limit.
const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;

/// A tool call, prepared once and used for every repetition.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) tool: &'static str,
    pub(crate) arguments: Value,
    /// The same arguments for clients that take raw JSON.
    pub(crate) raw_arguments: Box<RawValue>,
}

impl Call {
    fn new(tool: &'static str, arguments: Value) -> anyhow::Result<Self> {
        let raw_arguments = to_raw_value(&arguments)?;
        Ok(Self { tool, arguments, raw_arguments })
    }

    /// Returns 100 bytes of text at once.
    pub(crate) fn echo() -> anyhow::Result<Self> {
        Self::new("echo", json!({ "text": "hello" }))
    }

    /// Returns after 400 ms.
    pub(crate) fn slow() -> anyhow::Result<Self> {
        Self::new("slow", json!({ "text": "hello" }))
    }

    /// Gets no response: the server floods its output, spins a core and stops reading.
    pub(crate) fn flood() -> anyhow::Result<Self> {
        Self::new("flood", json!({}))
    }

    /// Returns `text_bytes` of text.
    pub(crate) fn big(text_bytes: usize) -> anyhow::Result<Self> {
        Self::new("big", json!({ "n": text_bytes }))
    }

    /// The same with JSON escapes in the text.
    pub(crate) fn big_with_escapes(text_bytes: usize) -> anyhow::Result<Self> {
        Self::new("big", json!({ "n": text_bytes, "escapes": true }))
    }
}

/// A connected client. Clones share the connection.
pub(crate) trait BenchClient: Clone + Send + Sync + Sized + 'static {
    /// Calls a tool and returns the length of the text in its result.
    fn call(&self, call: &Call) -> impl Future<Output = anyhow::Result<usize>> + Send;

    /// Closes the connection and waits for the exit of a started server. Only the last clone does this.
    fn close(self) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// A client that connects over HTTP.
pub(crate) trait HttpClient: BenchClient {
    /// Connects to a running server and negotiates the protocol version.
    fn connect(server: &HttpServer) -> impl Future<Output = anyhow::Result<Self>> + Send;
}

/// A client that starts a stdio server.
pub(crate) trait StdioClient: BenchClient {
    /// Starts the server and negotiates the protocol version.
    fn connect(server: &ServerCommand) -> impl Future<Output = anyhow::Result<Self>> + Send;

    /// Requests all tools and returns their number.
    fn list_tools(&self) -> impl Future<Output = anyhow::Result<usize>> + Send;

    /// Number of tools; may use the list that was fetched while connecting.
    fn initial_tools(&self) -> impl Future<Output = anyhow::Result<usize>> + Send {
        self.list_tools()
    }
}

/// Length of the text in an undecoded result.
fn text_bytes(result: &[u8]) -> Option<usize> {
    let text = result.strip_prefix(br#"{"content":[{"type":"text","text":""#)?;
    Some(text.strip_suffix(br#""}],"isError":false}"#)?.len())
}

/// Measured client, as named on the command line.
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

/// Role of a client in a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The same bytes without any MCP client.
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

    /// Whether the client is measured in scenarios with a single server.
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

    /// Blocking clients run without Tokio.
    pub(crate) fn has_runtime(self) -> bool {
        !matches!(self, Self::BareBlock | Self::BareFresh | Self::BareTcp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_result_text_is_measured() {
        let result = br#"{"content":[{"type":"text","text":"hello"}],"isError":false}"#;
        assert_eq!(text_bytes(result), Some(5));
        assert_eq!(text_bytes(br#"{"content":[]}"#), None);
    }
}
