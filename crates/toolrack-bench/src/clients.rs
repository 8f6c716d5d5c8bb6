//! Measured clients behind common traits, and bare pipes and sockets as the limit.
//!
//! Every client is used as its documentation shows, with its defaults. Only message size limits are raised where
//! the child-process transport has a setting for them.

pub(crate) mod bare_hyper;
pub(crate) mod bare_pipe;
pub(crate) mod bare_tcp;
pub(crate) mod cli_programs;
pub(crate) mod manager;
#[cfg(feature = "peers")]
pub(crate) mod rust_sdks;
mod toolrack;

use std::future::Future;

use anyhow::bail;
use clap::ValueEnum;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

pub(crate) use self::bare_hyper::{BareHyper, BareHyperConnection};
pub(crate) use self::manager::ManagerClient;
pub(crate) use self::toolrack::Toolrack;
use crate::scenario::SMALL;

/// The peers of a build without them.
#[cfg(not(feature = "peers"))]
pub(crate) mod rust_sdks {
    use anyhow::bail;

    use super::ClientName;
    use crate::metric::Report;
    use crate::scenario::calls::Job;
    use crate::server_process::ServerCommand;

    #[expect(clippy::unused_async, reason = "the build with peers waits")]
    pub(crate) async fn run(
        client: ClientName,
        _: &Job,
        _: Option<String>,
    ) -> anyhow::Result<Report> {
        bail!("{client:?} is not part of this build; run `cargo xtask bench`")
    }

    #[expect(clippy::unused_async, reason = "the build with peers waits")]
    pub(crate) async fn start_many(
        _: &ServerCommand,
        _: usize,
        _: usize,
    ) -> anyhow::Result<Report> {
        bail!("rmcp is not part of this build; run `cargo xtask bench`")
    }
}

/// More than the largest measured result, for peers with a configurable limit.
#[cfg(feature = "peers")]
const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;

/// A tool call, prepared once and used for every repetition.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) tool: &'static str,
    pub(crate) arguments: Value,
    /// The same arguments for clients that take raw JSON.
    pub(crate) raw_arguments: Box<RawValue>,
    /// Length of the text in the result.
    pub(crate) text_bytes: usize,
}

impl Call {
    fn new(tool: &'static str, arguments: Value, text_bytes: usize) -> anyhow::Result<Self> {
        let raw_arguments = to_raw_value(&arguments)?;
        Ok(Self { tool, arguments, raw_arguments, text_bytes })
    }

    /// Returns a small text at once.
    pub(crate) fn echo() -> anyhow::Result<Self> {
        Self::new("echo", json!({ "text": "hello" }), SMALL)
    }

    /// Returns a small text after 400 ms.
    pub(crate) fn slow() -> anyhow::Result<Self> {
        Self::new("slow", json!({ "text": "hello" }), SMALL)
    }

    /// Gets no response: the server floods its output, spins a core and stops reading.
    pub(crate) fn flood() -> anyhow::Result<Self> {
        Self::new("flood", json!({}), 0)
    }

    /// Returns `text_bytes` of text.
    pub(crate) fn big(text_bytes: usize) -> anyhow::Result<Self> {
        Self::new("big", json!({ "n": text_bytes }), text_bytes)
    }

    /// The same with JSON escapes in the text.
    pub(crate) fn big_with_escapes(text_bytes: usize) -> anyhow::Result<Self> {
        Self::new("big", json!({ "n": text_bytes, "escapes": true }), text_bytes)
    }
}

/// A connected client.
pub(crate) trait BenchClient: Send + Sync + Sized + 'static {
    /// Calls a tool and returns the length of the text in its result.
    fn call(&self, call: &Call) -> impl Future<Output = anyhow::Result<usize>> + Send;

    /// Closes the connection and waits for the exit of a started server.
    fn close(self) -> impl Future<Output = anyhow::Result<()>> + Send {
        async { Ok(()) }
    }

    /// Requests all tools and returns their number. Over HTTP this is not measured.
    fn list_tools(&self) -> impl Future<Output = anyhow::Result<usize>> + Send {
        async { bail!("this client does not list tools") }
    }

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
    BareHyperConnection,
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
    fn info(self) -> (Role, &'static str) {
        match self {
            Self::BareTokio => (Role::Limit, "limit: tokio pipe"),
            Self::BareBlock => (Role::Limit, "limit: blocking pipe"),
            Self::BareFresh => (Role::Limit, "limit: blocking pipe, fresh buffer"),
            Self::BareTcp => (Role::Limit, "limit: blocking TCP"),
            Self::BareHyper => (Role::Limit, "bare hyper-util client"),
            Self::BareHyperConnection => (Role::Limit, "bare hyper connection"),
            Self::Toolrack => (Role::Ours, "toolrack"),
            Self::ToolrackRaw => (Role::Ours, "toolrack, raw result"),
            Self::ToolrackGuarded => (Role::Ours, "toolrack, with guardian"),
            Self::ToolrackSession => (Role::Ours, "toolrack, 2025-11-25 session"),
            Self::Manager => (Role::Ours, "toolrack manager"),
            Self::ManagerRaw => (Role::Ours, "toolrack manager, raw result"),
            Self::Rmcp => (Role::Peer, "rmcp 3.8.0"),
            Self::Pmcp => (Role::Peer, "pmcp 2.23.0"),
            Self::Turbomcp => (Role::Peer, "turbomcp-client 3.6.0"),
            Self::Tower => (Role::Peer, "tower-mcp 0.25.0"),
            Self::Mcporter => (Role::Peer, "mcporter 0.12.3"),
            Self::Inspector => (Role::Peer, "MCP Inspector 2.12.0 --cli"),
            Self::Direct => (Role::Limit, "limit: the server itself"),
            Self::Gateway => (Role::Ours, "toolrack gateway"),
            Self::FastMcp => (Role::Peer, "FastMCP 4.1.2 proxy"),
        }
    }

    pub(crate) fn role(self) -> Role {
        self.info().0
    }

    pub(crate) fn label(self) -> &'static str {
        self.info().1
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
