//! Config files of MCP servers: `toolrack.toml`, formats of other tools, interpolation and diff; no IO.
//!
//! ```
//! use toolrack_config::{VariableSource, interpolate, read};
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
//! let lookup =
//!     |_: VariableSource, name: &str| Ok((name == "SENTRY_TOKEN").then(|| "s3cret".to_owned()));
//! let sentry = interpolate(&servers[0], &lookup).unwrap();
//! assert!(!format!("{sentry:?}").contains("s3cret"));
//! ```
//!
//! Start with `dialect` (reading a file) and `config_file` (the result).
//!
//! | module | what it holds |
//! |---|---|
//! | `dialect`, `dialect/*` | format detection, readers of the files of other tools, their variable references |
//! | `toolrack_toml` | reader of `toolrack.toml` |
//! | `tree` | TOML, JSONC and YAML as one tree with positions |
//! | `keys`, `table_reader` | table of all keys; typed table reader |
//! | `json_schema` | docs/toolrack.schema.json and the key reference of docs/config.md |
//! | `raw_server`, `validate` | unvalidated server entry; validation rules |
//! | `config_file`, `server` | the config as data; resolution for one agent |
//! | `interpolate` | `${VAR}`, `${secret:name}`, `${file:path}` |
//! | `diff` | diff of two server sets, config fingerprint |
//! | `diagnostics`, `suggest` | diagnostics with file, line and column; did-you-mean suggestions |
//! | `duration` | durations such as `90s` |
//!
//! **Invariant:** no IO. Text and a lookup go in, data and diagnostics come out.
//!
//! **Invariant:** no text makes a reader panic, exhaust the stack or fill the memory.
//!
//! **Invariant:** an error in one key does not hide the others: all diagnostics come at once, with positions.
//!
//! **Invariant:** only keys of the key table are read, and every key of the table is documented.
//!
//! **Invariant:** unset values stay distinct from set ones until [`ConfigFile::resolve`].
//!
//! **Invariant:** resolved values are never searched for references, and never printed.
//!
//! **Invariant:** a reference or duration of another tool keeps the meaning that it has there.
//!
//! **Invariant:** a diff names every server once and leads from the old set to the new one.

#![warn(missing_docs)]

mod config_file;
mod diagnostics;
mod dialect;
mod diff;
mod duration;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod interpolate;
mod json_schema;
mod keys;
mod raw_server;
mod server;
mod suggest;
mod table_reader;
mod toolrack_toml;
mod tree;
mod validate;

pub use config_file::{Agent, ConfigFile, ServerEntry, Settings, ToolNaming};
pub use diagnostics::{Diagnostic, DiagnosticKind, Parsed, Position, Severity, SourceLocation};
pub use dialect::{Dialect, detect, read, read_as};
pub use diff::{ConfigDiff, Fingerprint, diff, fingerprint};
pub use duration::parse_duration;
pub use interpolate::{Lookup, Resolved, ResolvedTransport, VariableSource, interpolate};
pub use json_schema::{json_schema, key_reference};
pub use keys::is_setting;
pub use server::{
    EnvValue, McpServerConfig, McpTransport, Package, PackageKind, Pin, Sandbox, StartMode,
    without_secrets,
};
pub use suggest::{did_you_mean, similar_names, suggest};
pub use table_reader::join;
pub use toolrack_toml::read_server;
