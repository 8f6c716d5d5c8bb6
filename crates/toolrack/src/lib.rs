//! One rack for every MCP server: what an agent embeds to have many servers, one list of tools and one way to
//! call them.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use serde_json::json;
//! use toolrack::Toolrack;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // First of all: this program is started again to guard each of its servers.
//!     toolrack::init();
//!     agent()
//! }
//!
//! #[tokio::main]
//! async fn agent() -> Result<(), Box<dyn std::error::Error>> {
//!     let rack = Toolrack::open("toolrack.toml").await?;
//!     // A server that `npx` has to fetch first takes its time. Those that cannot be used say why.
//!     for server in rack.ready(Duration::from_mins(2)).await {
//!         eprintln!("{}: {}", server.name(), server.state());
//!     }
//!     for tool in rack.tools().iter() {
//!         println!("{}", tool.name());
//!     }
//!     let answer = rack.call("filesystem_list_directory", &json!({"path": "."})).await?;
//!     println!("{}", answer.content);
//!     rack.shutdown().await;
//!     Ok(())
//! }
//! ```
//!
//! The file names the servers. It is followed: a server that is added, changed or removed there is connected,
//! reconnected or ended, and the others are left alone.
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
//! Servers can be given in code as well, with [`Toolrack::builder`]. One broken server never keeps the others
//! from working: [`Toolrack::servers`] says what is wrong with it, and it is tried again by and by.
//!
//! What servers ask of the user, of a model or of the program is answered by a [`ClientHandler`]:
//!
//! ```
//! use toolrack::mcp::{
//!     ClientCapabilities, Elicitation, ElicitationAnswer, ElicitationCapability, FormContent, LogMessage, Root,
//!     RootsCapability, SamplingCapability, SamplingParams, SamplingResult,
//! };
//! use toolrack::serde_json::value::RawValue;
//! use toolrack::{BoxFuture, ClientHandler, JsonRpcError, RawServerRequest, SamplingError};
//!
//! struct Desk;
//!
//! impl ClientHandler for Desk {
//!     fn capabilities(&self) -> ClientCapabilities {
//!         ClientCapabilities {
//!             roots: Some(RootsCapability::default()),
//!             sampling: Some(SamplingCapability::default()),
//!             elicitation: Some(ElicitationCapability { form: true, url: true }),
//!             ..ClientCapabilities::default()
//!         }
//!     }
//!
//!     fn elicit<'a>(&'a self, server: &'a str, question: Elicitation) -> BoxFuture<'a, ElicitationAnswer> {
//!         Box::pin(async move {
//!             match question {
//!                 Elicitation::Form(form) if form.message == "Go on?" => {
//!                     ElicitationAnswer::Accept { content: Some(FormContent::default()) }
//!                 }
//!                 // The user has to see who asks, and which page it is.
//!                 Elicitation::Url(page) => {
//!                     println!("{server} wants {} to be opened", page.url);
//!                     ElicitationAnswer::Decline
//!                 }
//!                 _ => ElicitationAnswer::Cancel,
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
//!         _question: RawServerRequest<'a>,
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
//! Errors say what was asked for, and their source says why it came to nothing; [`with_causes`] gives both in one line.
//!
//! The examples of this crate are short and meant to be copied: `single_server`, `many_servers`, `deny_list`,
//! `http_with_token`, `progress_and_cancel` and `handler`. For agents on `rig` there is the crate `toolrack-rig`.
//!
//! What most programs need is here; everything else that is public is in the module of its part, such as [`mcp`] for
//! what servers say and [`config`] for files.
//!
//! **Invariant:** nothing is decided here. This crate reads a file, sets up a manager and passes calls on.

#![warn(missing_docs)]

mod builder;
mod config_source;
mod llm_tools;
mod toolrack;

pub use builder::{OpenError, ToolrackBuilder};
pub use config_source::Environment;
pub use llm_tools::{to_anthropic, to_openai};
pub use toolrack::Toolrack;

/// Login to servers over HTTP: OAuth, tokens, and where they are kept.
pub mod auth {
    pub use toolrack_auth::*;
}

/// One server: how it is connected, what can be asked of it, and who answers what it asks.
pub mod client {
    pub use toolrack_client::*;
}

/// Config files as data: reading, checking, comparing.
pub mod config {
    pub use toolrack_config::*;
}

/// The way to servers over HTTP.
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

/// What clients and servers say to each other, as data: tools, results, resources, prompts, questions, capabilities.
pub mod mcp {
    pub use toolrack_mcp::*;
}

/// Servers as child processes, and who watches over them.
pub mod stdio {
    pub use toolrack_stdio::*;
}

/// The crate whose values arguments and schemas are.
pub use serde_json;
/// An address, as [`Authorizer`] takes it.
pub use url::Url;

// For who lets us in.
pub use toolrack_auth::{
    AuthSettings, Authorizer, Browser, FileTokenStore, MemoryTokenStore, PastedRedirect, Secret,
    StaticBearer, SystemBrowser, TokenStore,
};
pub use toolrack_transport::{AtHand, AuthError, Authorization, BoxFuture, Credentials, Rebuff};

// For one server.
pub use toolrack_client::{
    CallError, CallOptions, ClientBuilder, ClientHandler, ConnectError, ConnectStep, Connector,
    DetectedVersion, EraChoice, Event, Events, HttpConnector, Limits, List, ListChanges, McpClient,
    McpToolDef, McpToolResult, OnConnectStep, OnProgress, RawServerRequest, SamplingError,
    StdioConnector, Timeouts,
};
pub use toolrack_http::{HttpOptions, HttpServerDef, ProxySettings};
pub use toolrack_stdio::{
    Farewell, Guardian, Inheritance, Ladder, McpServerDef, StdioOptions, init, sweep,
};
pub use toolrack_transport::{
    Delivery, Diagnosis, Ending, Exit, LineError, Mask, ServerExit, SpawnFault, TransportError,
};

// For many of them.
pub use toolrack_config::{
    EnvValue, Fault, FaultKind, Lookup, McpServerConfig, McpTransport, Names, Origin, Package,
    PackageKind, Pin, Plan, Position, Sandbox, Severity, Source, StartMode,
};
pub use toolrack_manager::{
    Borrowed, CallOutcome, Called, ConnectPhase, ConnectionState, CredentialsOf, Failure,
    FailureKind, McpConnection, McpManager, RackBuilder, RackError, RackEvent, RackEvents, Rule,
    ToolWithServer, with_causes,
};

// What servers say.
pub use toolrack_mcp::{
    ClientCapabilities, Content, DecodeError, Elicitation, ElicitationAnswer, GetPromptResult,
    Implementation, LogLevel, LogMessage, Progress, Prompt, ReadResourceResult, Resource,
    ResourceContents, ResourceTemplate, Root, SamplingParams, SamplingResult, ServerCapabilities,
    Tool, ToolAnnotations, ToolCallResult,
};
pub use toolrack_transport::{JsonRpcError, RawJson};

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
