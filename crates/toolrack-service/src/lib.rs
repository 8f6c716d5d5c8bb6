//! What a user can do with MCP servers, and what is remembered of it: configs, packages, secrets.
//!
//! [`McpService`] is the contract that the program, the daemon and an agent's host talk to.

#![warn(missing_docs)]

mod error;
mod model;
mod packages;
mod service;

pub use error::{ErrorCode, ServiceError, ServiceFault};
pub use model::{
    Enabled, EnvVarConfig, McpConfig, McpPackage, McpPackageType, McpSource, McpStatus,
    McpTransport,
};
pub use packages::Installer;
pub use service::McpService;
