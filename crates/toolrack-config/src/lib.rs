//! Config files of MCP servers as data: our own TOML and other tools' dialects, who inherits what,
//! what has to change when a file changes, and values that are filled in when a connection is made.
//!
//! ```
//! use toolrack_config::{Source, interpolate, read};
//!
//! let text = r#"
//! [[defaults.mcp]]
//! name = "sentry"
//! transport = "http"
//! url = "https://mcp.sentry.io"
//! headers = { Authorization = "Bearer ${SENTRY_TOKEN}" }
//! "#;
//! let (config, warnings) = read("toolrack.toml", text).accept().unwrap();
//! assert!(warnings.is_empty());
//!
//! let servers = config.resolve("main");
//! let lookup = |_: Source, name: &str| Ok((name == "SENTRY_TOKEN").then(|| "s3cret".to_owned()));
//! let sentry = interpolate(&servers[0], &lookup).unwrap();
//! assert!(!format!("{sentry:?}").contains("s3cret"));
//! ```
//!
//! **Invariant:** nothing here does IO. Texts and a lookup come in, data and faults come out.

#![warn(missing_docs)]

mod config_file;
mod diagnostic;
mod diagnostics;
mod dialect;
mod diff;
mod duration;
mod fingerprint;
mod interpolate;
mod json_schema;
mod keys;
mod package;
mod raw_server;
mod server;
mod source_location;
mod table_reader;
mod template;
mod toolrack_toml;
mod tree;
mod validate;

pub use config_file::{Agent, ConfigFile, Names, ServerEntry, Settings};
pub use diagnostic::{Fault, FaultKind, Reading, Severity};
pub use diagnostics::nearest;
pub use dialect::{Detection, Dialect, detect, read, read_as};
pub use diff::{Plan, diff};
pub use duration::parse_time;
pub use fingerprint::{Fingerprint, fingerprint};
pub use interpolate::{Filled, Lookup, ResolvedTransport, interpolate};
pub use json_schema::{json_schema, key_reference};
pub use package::{Package, PackageKind};
pub use server::{
    EnvValue, McpServerConfig, McpTransport, Pin, Sandbox, StartMode, without_secrets,
};
pub use source_location::{Origin, Position};
pub use table_reader::join;
pub use template::Source;
