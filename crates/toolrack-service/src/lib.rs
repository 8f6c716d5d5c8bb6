//! What a user can do with MCP servers, and what is remembered of it: configs, packages, secrets.
//!
//! [`McpService`] is the contract that the program, the daemon and an agent's host talk to.

#![warn(missing_docs)]

mod atomic_file;
mod authorizers;
mod config_from_json;
mod config_snapshot;
mod config_store;
mod document;
mod error;
mod local_service;
mod packages;
mod paths;
mod secret_store;
mod server_logs;
mod service;
mod status;
mod validate;

pub use config_store::{ConfigStore, ETag, InvalidETag, StoredConfig};
pub use document::{ConfigScope, Document, Entry};
pub use error::{ErrorCode, ErrorDetail, ServiceError};
pub use local_service::{Autostart, ServiceOptions, WatchConfig};
pub use local_service::{LocalService, ToolCall, ToolCallError};
pub use packages::Installer;
pub use paths::Home;
pub use secret_store::SharedLookup;
pub use secret_store::{SecretStore, SecretVersion};
pub use server_logs::{LogKind, LogLine, LogStore};
pub use service::McpService;
pub use service::{
    Enabled, EnvVarConfig, McpConfig, McpPackage, McpPackageType, McpSource, McpStatus,
    McpTransport,
};
pub use status::StatusDetail;
pub use toolrack_auth::Secret;
pub use validate::validate;
