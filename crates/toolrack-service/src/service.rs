//! `McpService`, the contract of founding document 004, and its data model.
//!
//! **Invariant:** `Debug` shows no value of a variable and nothing of `config`, because they may be secrets.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolrack_mcp::Tool;
use toolrack_transport::BoxFuture;
use uuid::Uuid;

use crate::error::ServiceError;

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
    fn restart(&self, id: Uuid) -> BoxFuture<'_, Result<(), ServiceError>>;

    /// Enables or disables a server, and starts or stops it. If it cannot be started, the flag is reverted and the
    /// error returned.
    fn set_enabled(&self, id: Uuid, enabled: Enabled) -> BoxFuture<'_, Result<(), ServiceError>>;

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
    /// All other keys of its config entry, such as `args`, `headers`, `timeout`, `deny`.
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
    /// Program that should run it, such as `uvx`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_hint: Option<String>,
}

/// Kind of package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpPackageType {
    /// `npx @scope/package`
    Npm,
    /// `uvx package`
    Pypi,
    /// `docker run image`
    Docker,
    /// A local program.
    Binary,
    /// A remote HTTP endpoint.
    Http,
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
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
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

impl McpConfig {
    /// An enabled server with default settings.
    pub fn new(name: impl Into<String>, package: McpPackage, transport: McpTransport) -> Self {
        Self {
            id: Uuid::nil(),
            name: name.into(),
            enabled: true,
            source: McpSource::Manual,
            package,
            transport,
            env_vars: BTreeMap::new(),
            config: Value::Null,
        }
    }
}

impl McpPackage {
    /// The newest version of a package.
    pub fn new(package_type: McpPackageType, identifier: impl Into<String>) -> Self {
        Self { package_type, identifier: identifier.into(), version: None, runtime_hint: None }
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
