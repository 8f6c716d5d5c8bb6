//! What a user can do with MCP servers, and what is remembered of it: configs, packages, secrets.
//!
//! [`McpService`] is the contract that the program, the daemon and an agent's host talk to.

#![warn(missing_docs)]

mod document;
mod error;
mod home;
mod model;
mod packages;
mod secret;
mod service;
mod store;

pub use document::{Document, Entry, Place};
pub use error::{ErrorCode, ServiceError, ServiceFault};
pub use home::Home;
pub use model::{
    Enabled, EnvVarConfig, McpConfig, McpPackage, McpPackageType, McpSource, McpStatus,
    McpTransport,
};
pub use packages::Installer;
pub use secret::{SecretStore, SecretVersion};
pub use service::McpService;
pub use store::{ConfigStore, Generation, NoGeneration, Stored};
pub use toolrack_auth::Secret;
