//! What a user can do with MCP servers, and what is remembered of it: configs, packages, secrets.
//!
//! [`McpService`] is the contract that the program, the daemon and an agent's host talk to.

#![warn(missing_docs)]

mod document;
mod draft;
mod error;
mod home;
mod local;
mod log;
mod login;
mod lookup;
mod model;
mod options;
mod packages;
mod problem;
mod secret;
mod service;
mod status;
mod store;
mod taken;
mod validate;
mod view;

pub use document::{Document, Entry, Place};
pub use error::{ErrorCode, ServiceError, ServiceFault};
pub use home::Home;
pub use local::{CallFault, LocalService, ToolCall};
pub use log::{LogKind, LogLine, LogStore};
pub use lookup::SharedLookup;
pub use model::{
    Enabled, EnvVarConfig, McpConfig, McpPackage, McpPackageType, McpSource, McpStatus,
    McpTransport,
};
pub use options::{Autostart, Follow, ServiceOptions};
pub use packages::Installer;
pub use secret::{SecretStore, SecretVersion};
pub use service::McpService;
pub use status::StatusDetail;
pub use store::{ConfigStore, Generation, NoGeneration, Stored};
pub use toolrack_auth::Secret;
pub use validate::validate;
