//! One rack for every MCP server: what an agent embeds to have many servers, one list of tools and one way to
//! call them.
//!
//! ```no_run
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
//! The examples of this crate are short and meant to be copied: `single_server`, `many_servers`, `deny_list`,
//! `http_with_token` and `progress_and_cancel`.
//!
//! **Invariant:** nothing is decided here. This crate reads a file, sets up a manager and passes calls on.

#![warn(missing_docs)]

mod builder;
mod error;
mod file;
mod rack;
mod settings;

pub use builder::ToolrackBuilder;
pub use error::OpenError;
pub use rack::Toolrack;
pub use settings::Environment;

pub use toolrack_auth::{
    AuthSettings, Authorizer, Browser, FileTokenStore, MemoryTokenStore, PastedRedirect, Secret,
    StaticBearer, SystemBrowser, TokenStore,
};
pub use toolrack_client::{
    CallError, CallOptions, ClientBuilder, ClientHandler, ConnectError, McpClient, McpToolDef,
    McpToolResult, OnProgress,
};
pub use toolrack_config::{
    EnvValue, Fault, Lookup, McpServerConfig, McpTransport, Names, Plan, Severity, Source,
    StartMode,
};
pub use toolrack_http::{HttpOptions, ProxySettings};
pub use toolrack_link::{Credentials, Delivery};
pub use toolrack_manager::{
    CallOutcome, ConnectionState, CredentialsOf, Failure, McpConnection, McpManager, RackError,
    RackEvent, RackEvents, Rule, ToolWithServer,
};
pub use toolrack_mcp::{Content, Implementation, Progress, Tool, ToolCallResult};
pub use toolrack_rpc::RawJson;
pub use toolrack_stdio::{Guardian, McpServerDef, StdioOptions, init, sweep};
