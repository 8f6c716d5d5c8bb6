//! `McpService`, the contract of founding document 004, and its data model; statuses derive from the manager's states.
//!
//! **Invariant:** `Debug` shows no value of a variable and nothing of `config`, because they may be secrets.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;
use toolrack_client::McpClient;
/// Kind of package.
pub use toolrack_config::PackageKind as McpPackageType;
use toolrack_manager::{ConnectPhase, ConnectionState, McpConnection};
use toolrack_mcp::Tool;
use toolrack_transport::BoxFuture;
use uuid::Uuid;

use crate::document::unknown_id;
use crate::error::{ErrorDetail, ServiceError};

/// Manages the configured MCP servers.
///
/// **Invariant:** when a method returns `Ok`, its change is on disk.
pub trait McpService: Send + Sync {
    /// All configured servers, in file order.
    fn list(&self) -> Vec<McpConfig>;

    /// The server with this id.
    fn get(&self, id: Uuid) -> Option<McpConfig>;

    /// Current status; `Stopped` for an unknown id.
    fn status(&self, id: Uuid) -> McpStatus;

    /// Starts a server and waits until it can be called. Does nothing if it is running.
    fn start(&self, id: Uuid) -> BoxFuture<'_, Result<(), ServiceError>>;

    /// Stops a server and waits until its processes are gone.
    fn stop(&self, id: Uuid) -> BoxFuture<'_, Result<(), ServiceError>>;

    /// Stops and starts a server.
    fn restart(&self, id: Uuid) -> BoxFuture<'_, Result<(), ServiceError>> {
        Box::pin(async move {
            self.stop(id).await?;
            self.start(id).await
        })
    }

    /// Enables or disables a server, and starts or stops it. If it cannot be started, the flag is reverted and the
    /// error returned.
    fn set_enabled(&self, id: Uuid, enabled: Enabled) -> BoxFuture<'_, Result<(), ServiceError>> {
        Box::pin(async move {
            let before = self.get(id).ok_or_else(|| unknown_id(id))?;
            self.update(McpConfig { enabled: enabled == Enabled::Yes, ..before.clone() })?;
            if enabled == Enabled::No {
                return self.stop(id).await;
            }
            let started = self.start(id).await;
            if started.is_err() && !before.enabled {
                self.update(before)?;
            }
            started
        })
    }

    /// The tools of all running servers, under their public names.
    fn available_tools(&self) -> Vec<Tool>;

    /// The server that provides a tool.
    fn find_tool_provider(&self, tool_name: &str) -> Option<Uuid>;

    /// Calls a tool and returns the text of its result.
    fn call_tool<'a>(
        &'a self,
        mcp_id: Uuid,
        tool_name: &'a str,
        arguments: &'a Value,
    ) -> BoxFuture<'a, Result<String, ServiceError>>;

    /// Saves a new server. Returns its id, which is assigned unless the config has one.
    ///
    /// # Errors
    ///
    /// Every validation error; the name is taken; the file cannot be saved.
    fn create(&self, config: McpConfig) -> Result<Uuid, ServiceError>;

    /// Replaces the config of a server.
    ///
    /// # Errors
    ///
    /// Like [`create`](Self::create); the id is unknown.
    fn update(&self, config: McpConfig) -> Result<(), ServiceError>;

    /// Deletes a server and stops it.
    ///
    /// # Errors
    ///
    /// The id is unknown, or the file cannot be saved.
    fn delete(&self, id: Uuid) -> Result<(), ServiceError>;

    /// Stops all servers and waits until their processes are gone.
    fn shutdown_all(&self) -> BoxFuture<'_, Result<(), ServiceError>>;
}

/// Config of one server.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct McpConfig {
    /// Assigned once, when the server is first saved; nil until then.
    #[serde(default)]
    pub id: Uuid,
    /// Its name, also in public tool names.
    pub name: String,
    /// Whether it may be started.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Where its definition comes from.
    #[serde(default)]
    pub source: McpSource,
    /// The package, program or endpoint.
    pub package: McpPackage,
    /// The transport.
    pub transport: McpTransport,
    /// Environment variables by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env_vars: BTreeMap<String, EnvVarConfig>,
    /// Settings of its config entry, such as `args`, `headers`, `timeout`, `deny`, and any other members, which are
    /// kept and do not act. Null if there are none. A setting that is null is absent.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub config: Value,
}

/// Where a server's definition comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum McpSource {
    /// The official registry.
    Official {
        /// Its name in the registry.
        name: String,
        /// Its version.
        version: String,
    },
    /// The Smithery registry.
    Smithery {
        /// Its name in the registry.
        qualified_name: String,
    },
    /// Written by hand.
    #[default]
    Manual,
}

/// Package, program or endpoint of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpPackage {
    /// Its kind.
    pub package_type: McpPackageType,
    /// A package name, an image, a program or a URL.
    pub identifier: String,
    /// Version; the newest if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Program that runs it, one of [`McpPackageType::runners`]: `npx`, `bunx` or `pnpm`; `uvx` or `pipx`; `docker` or
    /// `podman`. Without it, an npm or PyPI package is installed once and started directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_hint: Option<String>,
}

/// Transport of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum McpTransport {
    /// Standard streams of a child process.
    Stdio,
    /// HTTP.
    Http {
        /// URL of the endpoint.
        url: String,
    },
}

/// An environment variable of a server.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvVarConfig {
    /// Its name.
    pub name: String,
    /// Its value as written in the config file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Name of the secret that holds its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// Whether its value must not be shown.
    #[serde(default)]
    pub is_secret: bool,
    /// Whether the server cannot be saved or started without it.
    #[serde(default)]
    pub required: bool,
}

/// Whether a server may be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enabled {
    /// Enabled.
    Yes,
    /// Disabled.
    No,
}

/// Status of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum McpStatus {
    /// Not running.
    Stopped,
    /// Being installed or started.
    Starting,
    /// Connected.
    Running {
        /// The names of its tools that are not denied.
        tools: Vec<String>,
    },
    /// It should be running and is not.
    Error {
        /// Why.
        message: String,
    },
    /// Not allowed to start.
    Disabled,
}

/// Status of a server with everything else that is known about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusDetail {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: McpStatus,
    /// What it is doing, in one word such as `installing`, `connected` or `backing-off`.
    pub phase: String,
    /// Why it is not running. The hint says what to do.
    pub problem: Option<ErrorDetail>,
    /// Number of tools that are offered.
    pub n_tools: usize,
    /// Number of tools of the server, if they were ever listed.
    pub n_tools_total: Option<usize>,
    /// Time until the next connection attempt.
    pub retry_in: Option<Duration>,
    /// Whether it crashes again and again.
    pub is_crash_looping: bool,
    /// Number of this launch, counted from one; `None` if nothing is running.
    pub launch: Option<u64>,
    /// The last lines of its stderr, while it runs.
    pub recent_errors: Vec<String>,
    /// Process id of the root of its process tree, if it is a local process.
    pub process: Option<u32>,
}

impl StatusDetail {
    /// Status of a server; `connection` is `None` if the manager does not have it yet.
    pub(crate) fn new(config: &McpConfig, connection: Option<&McpConnection>) -> Self {
        let unmanaged =
            if config.enabled { ConnectionState::Disconnected } else { ConnectionState::Disabled };
        let state = connection.map_or(&unmanaged, McpConnection::state);
        let phase = connection.and_then(McpConnection::phase);
        let client = connection.and_then(McpConnection::client);
        let diagnostics = client.map(McpClient::transport_stats).unwrap_or_default();
        let retry_at = connection.and_then(McpConnection::retry_at);
        let tools = || connection.map(McpConnection::tool_names).unwrap_or_default();
        Self {
            id: config.id,
            name: config.name.clone(),
            status: status(state, tools),
            phase: phase.map_or(state.as_str(), ConnectPhase::as_str).to_owned(),
            problem: state.failure().map(ErrorDetail::from_failure),
            n_tools: connection.map_or(0, McpConnection::n_tools),
            n_tools_total: connection
                .and_then(McpConnection::tool_list)
                .map(|list| list.items.len()),
            retry_in: retry_at.map(|time| time.saturating_duration_since(Instant::now())),
            is_crash_looping: connection.is_some_and(McpConnection::is_crash_looping),
            launch: connection.and_then(McpConnection::launch),
            recent_errors: diagnostics.stderr,
            process: diagnostics.pid,
        }
    }
}

/// The status for a connection state; `tools` lists the offered tools of a connected server.
fn status(state: &ConnectionState, tools: impl FnOnce() -> Vec<String>) -> McpStatus {
    if let Some(failure) = state.failure() {
        return McpStatus::Error { message: ErrorDetail::from_failure(failure).message };
    }
    match state {
        ConnectionState::Disabled => McpStatus::Disabled,
        ConnectionState::Connecting => McpStatus::Starting,
        ConnectionState::Connected => McpStatus::Running { tools: tools() },
        _ => McpStatus::Stopped,
    }
}

fn yes() -> bool {
    true
}

impl fmt::Debug for McpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpConfig")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("enabled", &self.enabled)
            .field("source", &self.source)
            .field("package", &self.package)
            .field("transport", &self.transport)
            .field("env_vars", &self.env_vars)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for EnvVarConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnvVarConfig")
            .field("name", &self.name)
            .field("secret_ref", &self.secret_ref)
            .field("required", &self.required)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use toolrack_manager::{ErrorKind, Failure};

    use super::*;

    #[track_caller]
    fn check(state: ConnectionState, expected: McpStatus) {
        assert_eq!(status(&state, || vec!["greet".to_owned()]), expected);
    }

    /// Spec 004: five statuses; a crashed server is in error while it waits for its next start.
    #[test]
    fn status_of_every_state() {
        check(ConnectionState::Disabled, McpStatus::Disabled);
        check(ConnectionState::Disconnected, McpStatus::Stopped);
        check(ConnectionState::Connecting, McpStatus::Starting);
        check(ConnectionState::Connected, McpStatus::Running { tools: vec!["greet".to_owned()] });
        let error = |message: &str| McpStatus::Error { message: message.to_owned() };
        let crashed = Failure::new(ErrorKind::Exited, "process exited with code 3");
        let until = Instant::now();
        let failure = crashed.clone();
        check(ConnectionState::BackingOff { until, failure }, error("process exited with code 3"));
        check(ConnectionState::Failed(crashed), error("process exited with code 3"));
        let late = Failure::new(ErrorKind::HandshakeTimedOut, "no answer within 30s");
        check(ConnectionState::Failed(late), error("Handshake timed out"));
        let login = Failure::new(ErrorKind::NeedsLogin, "login needed");
        check(ConnectionState::NeedsAuth(login), error("login needed"));
    }
}
