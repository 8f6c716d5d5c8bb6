//! MCP client runtime for agents: many servers, one list of tools, one way to call them.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use serde_json::json;
//! use toolrack::Toolrack;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // Must come first: this program runs again as the guardian of each server.
//!     toolrack::init();
//!     agent()
//! }
//!
//! #[tokio::main]
//! async fn agent() -> Result<(), Box<dyn std::error::Error>> {
//!     let rack = Toolrack::open("toolrack.toml").await?;
//!     // A server that `npx` has to install takes a while. Servers that failed say why.
//!     for server in rack.ready(Duration::from_mins(2)).await {
//!         eprintln!("{}: {}", server.name(), server.state());
//!     }
//!     for tool in rack.tools().iter() {
//!         println!("{}", tool.name());
//!     }
//!     let result = rack.call("filesystem_list_directory", &json!({"path": "."})).await?;
//!     println!("{}", result.content);
//!     rack.shutdown().await;
//!     Ok(())
//! }
//! ```
//!
//! The config file lists the servers. It is watched: servers that are added, changed or removed are connected,
//! reconnected or stopped; the others are not affected.
//!
//! ```toml
//! [[defaults.mcp]]
//! name = "filesystem"
//! transport = "stdio"
//! command = "npx"
//! args = ["-y", "@modelcontextprotocol/server-filesystem", "."]
//! deny = ["write_*"]
//!
//! [[defaults.mcp]]
//! name = "sentry"
//! transport = "http"
//! url = "https://mcp.sentry.io"
//! headers = { Authorization = "Bearer ${SENTRY_TOKEN}" }
//! ```
//!
//! [`Toolrack::builder`] adds servers from code. A failed server does not affect the others:
//! [`Toolrack::servers`] has its error, and it is retried with backoff.
//!
//! A [`ClientHandler`] answers server requests for elicitation, sampling and roots:
//!
//! ```
//! use toolrack::mcp::{
//!     ClientCapabilities, Elicitation, ElicitationResult, ElicitationCapability, FormContent, LogMessage, Root,
//!     RootsCapability, SamplingCapability, SamplingParams, SamplingResult,
//! };
//! use toolrack::serde_json::value::RawValue;
//! use toolrack::{BoxFuture, ClientHandler, JsonRpcError, RawServerRequest, SamplingError};
//!
//! struct Handler;
//!
//! impl ClientHandler for Handler {
//!     fn capabilities(&self) -> ClientCapabilities {
//!         ClientCapabilities {
//!             roots: Some(RootsCapability::default()),
//!             sampling: Some(SamplingCapability::default()),
//!             elicitation: Some(ElicitationCapability { form: true, url: true }),
//!             ..ClientCapabilities::default()
//!         }
//!     }
//!
//!     fn elicit<'a>(&'a self, server: &'a str, request: Elicitation) -> BoxFuture<'a, ElicitationResult> {
//!         Box::pin(async move {
//!             match request {
//!                 Elicitation::Form(form) if form.message == "Go on?" => {
//!                     ElicitationResult::Accept { content: Some(FormContent::default()) }
//!                 }
//!                 // The user must see the server and the URL.
//!                 Elicitation::Url(page) => {
//!                     println!("{server} asks to open {}", page.url);
//!                     ElicitationResult::Decline
//!                 }
//!                 _ => ElicitationResult::Cancel,
//!             }
//!         })
//!     }
//!
//!     fn sample<'a>(
//!         &'a self,
//!         _server: &'a str,
//!         params: SamplingParams,
//!     ) -> BoxFuture<'a, Result<SamplingResult, SamplingError>> {
//!         Box::pin(async move { Err(SamplingError::Failed(format!("no model for {} tokens", params.max_tokens))) })
//!     }
//!
//!     fn roots<'a>(&'a self, _server: &'a str) -> BoxFuture<'a, Vec<Root>> {
//!         Box::pin(async { Root::new("file:///work".into(), None).into_iter().collect() })
//!     }
//!
//!     fn forward_request<'a>(
//!         &'a self,
//!         _server: &'a str,
//!         _request: RawServerRequest<'a>,
//!     ) -> Option<BoxFuture<'a, Result<Box<RawValue>, JsonRpcError>>> {
//!         None
//!     }
//!
//!     fn log(&self, message: &LogMessage) {
//!         println!("{message:?}");
//!     }
//! }
//! ```
//!
//! An error has its cause as source; [`error_chain`] joins both in one line.
//!
//! The examples of this crate are short and meant to be copied: `single_server`, `many_servers`, `deny_list`,
//! `http_with_token`, `progress_and_cancel` and `handler`. For `rig` agents, see the crate `toolrack-rig`.
//!
//! The root exports the common types; each module below exports one layer completely.
//!
//! | module | contents |
//! |---|---|
//! | `toolrack` | [`Toolrack`]: tools, calls, events, shutdown |
//! | `builder` | [`ToolrackBuilder`], [`OpenError`] |
//! | `config_source` | config file with the selection of servers; [`Environment`] for `${…}` values |
//! | `llm_tools` | tool definitions for `OpenAI` and Anthropic |
//! | [`auth`], [`client`], [`config`], [`http`], [`manager`], [`mcp`], [`stdio`], [`transport`] | the crates below |
//!
//! Start reading with `toolrack`, then `builder`.
//!
//! # Invariants
//!
//! - This crate makes no decisions: it reads a file, sets up a manager and forwards calls.
//! - Every type in a public signature is exported by this crate.
//! - A config edit affects only the servers it changes.

#![warn(missing_docs)]

mod builder;
mod config_source;
mod llm_tools;
mod toolrack;

pub use builder::{OpenError, ToolrackBuilder};
pub use config_source::Environment;
pub use llm_tools::{to_anthropic, to_openai};
pub use toolrack::Toolrack;

/// Authentication of HTTP servers: OAuth, tokens, token stores.
pub mod auth {
    pub use toolrack_auth::*;
}

/// Client of one server: connecting, requests, and the handler of server requests.
pub mod client {
    pub use toolrack_client::*;
}

/// Config files: parsing, validation, diff.
pub mod config {
    pub use toolrack_config::*;
}

/// HTTP transport.
pub mod http {
    pub use toolrack_http::*;
}

/// Transports and JSON-RPC: messages, errors, close reasons.
pub mod transport {
    pub use toolrack_transport::*;
}

/// The manager of all servers behind a [`Toolrack`].
pub mod manager {
    pub use toolrack_manager::*;
}

/// Protocol types: tools, results, resources, prompts, elicitation, capabilities.
pub mod mcp {
    pub use toolrack_mcp::*;
}

/// Stdio transport: server processes and their guardian.
pub mod stdio {
    pub use toolrack_stdio::*;
}

/// JSON values of arguments and schemas.
pub use serde_json;
/// URL type of [`Authorizer`].
pub use url::Url;

// Authentication.
pub use toolrack_auth::{
    AuthSettings, Authorizer, Browser, FileTokenStore, MemoryTokenStore, PastedRedirect, Secret,
    StaticBearer, SystemBrowser, TokenStore,
};
pub use toolrack_transport::{
    AuthChallenge, AuthError, Authorization, BoxFuture, CachedCredential, Credentials,
};

// One server.
pub use toolrack_client::{
    CallError, CallOptions, ClientBuilder, ClientHandler, ConnectError, ConnectStep, Connector,
    DetectedVersion, EraChoice, Event, Events, HttpConnector, Limits, List, ListChanges, McpClient,
    McpToolDef, McpToolResult, OnConnectStep, OnProgress, RawServerRequest, SamplingError,
    StdioConnector, Timeouts,
};
pub use toolrack_http::{HttpOptions, HttpServerDef, ProxySettings};
pub use toolrack_stdio::{
    CleanupCommand, EnvInheritance, Guardian, McpServerDef, ShutdownTimeouts, StdioOptions, init,
    kill_orphans,
};
pub use toolrack_transport::{
    CloseReason, Delivery, ExitStatus, ProcessExit, Redactor, RequestError, SpawnError,
    TransportError, TransportStats,
};

// Many servers.
pub use toolrack_config::{
    ConfigDiff, Diagnostic, DiagnosticKind, EnvValue, Lookup, McpServerConfig, McpTransport,
    Package, PackageKind, Pin, Position, Sandbox, Severity, SourceLocation, StartMode, ToolNaming,
    VariableSource,
};
pub use toolrack_manager::{
    CallOutcome, CallTarget, ClientGuard, ConnectPhase, ConnectionState, CredentialsProvider,
    Failure, FailureKind, FilterRule, ManagerBuilder, ManagerError, ManagerEvent, ManagerEvents,
    McpConnection, McpManager, ToolWithServer, error_chain,
};

// Protocol types.
pub use toolrack_mcp::{
    ClientCapabilities, Content, DecodeError, Elicitation, ElicitationResult, GetPromptResult,
    Implementation, LogLevel, LogMessage, Progress, Prompt, ReadResourceResult, Resource,
    ResourceContents, ResourceTemplate, Root, SamplingParams, SamplingResult, ServerCapabilities,
    Tool, ToolAnnotations, ToolCallResult,
};
pub use toolrack_transport::{JsonRpcError, RawJson};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
