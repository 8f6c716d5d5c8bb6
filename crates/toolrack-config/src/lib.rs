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

mod check;
mod dialect;
mod draft;
mod fault;
mod fields;
mod file;
mod fingerprint;
mod interpolate;
mod key;
mod native;
mod notes;
mod origin;
mod package;
mod plan;
mod schema;
mod server;
mod template;
mod time;
mod tree;

pub use dialect::{Detection, Dialect, detect, read, read_as};
pub use fault::{Fault, FaultKind, Reading, Severity};
pub use fields::join;
pub use file::{Agent, ConfigFile, Names, ServerEntry, Settings};
pub use fingerprint::{Fingerprint, fingerprint};
pub use interpolate::{Filled, Lookup, ResolvedTransport, interpolate};
pub use notes::nearest;
pub use origin::{Origin, Position};
pub use package::{Package, PackageKind};
pub use plan::{Plan, diff};
pub use schema::{json_schema, key_reference};
pub use server::{
    EnvValue, McpServerConfig, McpTransport, Pin, Sandbox, StartMode, without_secrets,
};
pub use template::Source;
pub use time::parse_time;
