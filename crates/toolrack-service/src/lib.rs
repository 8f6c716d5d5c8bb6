//! MCP service: manages configured servers, their lifecycle, packages, secrets and logs.
//!
//! [`McpService`] (founding document 004) is the contract that the CLI, the daemon and agent hosts use;
//! [`LocalService`] is its implementation on this machine, on top of [`McpManager`](toolrack_manager::McpManager).
//!
//! | module | what it holds |
//! |---|---|
//! | `service` | `McpService` and its data model: `McpConfig`, `McpStatus`, `StatusDetail`, … |
//! | `local_service` | `LocalService`: opening and closing, options, tool calls |
//! | `local_service::mcp_service` | its `McpService`: create, update, delete, start, stop; restarts after a secret has changed |
//! | `local_service::background_tasks` | applying config changes to the manager; recording logs |
//! | `config_store` | the config file on disk: read, edit under a lock, replace atomically; `ETag` |
//! | `document` | format-preserving editor of the config file |
//! | `config_snapshot` | the servers of one agent at one moment |
//! | `validate` | validation with all errors at once; `McpConfig` from JSON |
//! | `error` | `ServiceError`, and how manager errors map to it |
//! | `packages` | package installer for npm, PyPI and Docker |
//! | `secret_store` | `SecretStore`, secrets in private files; lookup of `${…}` variables |
//! | `authorizers` | OAuth authorizers of HTTP servers |
//! | `server_logs` | log files of servers |
//! | `home_permissions` | refuses a home that other users can change |
//! | `paths` | `Home`: paths from `TOOLRACK_HOME` and XDG |
//!
//! **Invariants**, each with the tests that check it:
//!
//! - When a method returns `Ok`, its change is on disk. `killed_save_leaves_the_old_or_the_new_file`,
//!   `two_services_on_one_home_lose_no_change`.
//! - The id of a server never changes: not by a rename, not when it is first written.
//!   `handwritten_entries_keep_their_id`, `update_restarts_only_if_needed`.
//! - A status is the manager's state at that moment. `mc_t9_status_reflects_actual_state`, `status_of_every_state`;
//!   gate G21: within 100 ms of a crash.
//! - A start that fails leaves the `enabled` flag as it was. `failed_toggle_reverts_the_enabled_flag`.
//! - A secret in use is shown nowhere. `secret_is_redacted_everywhere`.
//!
//! Start reading at `service`, then `local_service`: its module doc describes the path of a config change.

#![warn(missing_docs)]

mod authorizers;
mod config_snapshot;
mod config_store;
mod document;
mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod home_permissions;
mod local_service;
mod packages;
mod paths;
mod secret_store;
mod server_logs;
mod service;
mod validate;

pub use config_store::{ConfigStore, ETag, InvalidETag, LoadError, StoredConfig};
pub use document::{ConfigScope, Document, Entry};
pub use error::{ErrorCode, ErrorDetail, ServiceError};
pub use home_permissions::{InsecureHome, insecure_config_paths, insecure_paths, secure_home};
pub use local_service::{
    Autostart, ConfigInput, LocalService, ServiceOptions, ToolCall, ToolCallError, WatchConfig,
};
pub use packages::Installer;
pub use paths::Home;
pub use secret_store::{FileSecretStore, SecretStore, SharedLookup};
pub use server_logs::{LogKind, LogLine, LogStore, read_tail};
pub use service::{
    Enabled, EnvVarConfig, McpConfig, McpPackage, McpPackageType, McpService, McpSource, McpStatus,
    McpTransport, StatusDetail,
};
pub use toolrack_auth::Secret;
pub use toolrack_platform::{Exposure, InsecurePath};
/// Ids of servers.
pub use uuid::Uuid;
pub use validate::validate;
