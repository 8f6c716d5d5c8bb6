//! The contract of the service.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolrack_mcp::Tool;
use toolrack_transport::BoxFuture;
use uuid::Uuid;

use crate::error::ServiceError;

/// What can be done with the configured servers.
///
/// **Invariant:** what a method has promised with `Ok` is on disk.
pub trait McpService: Send + Sync {
    /// Every configured server, in the order of the file.
    fn list(&self) -> Vec<McpConfig>;

    /// One of them.
    fn get(&self, id: Uuid) -> Option<McpConfig>;

    /// How it is now. A server that nobody knows is `Stopped`.
    fn status(&self, id: Uuid) -> McpStatus;

    /// Starts it, and waits until it can be called. One that runs already is left alone.
    fn start(&self, id: Uuid) -> BoxFuture<'_, Result<(), ServiceError>>;

    /// Stops it, and waits until nothing is left of it.
    fn stop(&self, id: Uuid) -> BoxFuture<'_, Result<(), ServiceError>>;

    /// Stops and starts it.
    fn restart(&self, id: Uuid) -> BoxFuture<'_, Result<(), ServiceError>>;

    /// Allows or forbids it, and starts or stops it accordingly. If it cannot be started, it is
    /// forbidden again and the error is returned.
    fn set_enabled(&self, id: Uuid, enabled: Enabled) -> BoxFuture<'_, Result<(), ServiceError>>;

    /// The tools of all servers that run, under their public names.
    fn available_tools(&self) -> Vec<Tool>;

    /// Whose tool it is.
    fn find_tool_provider(&self, tool_name: &str) -> Option<Uuid>;

    /// Calls a tool, and returns the text of its result.
    fn call_tool<'a>(
        &'a self,
        mcp_id: Uuid,
        tool_name: &'a str,
        arguments: &'a Value,
    ) -> BoxFuture<'a, Result<String, ServiceError>>;

    /// Remembers a server under an id of its own, which is returned.
    ///
    /// # Errors
    ///
    /// With every fault of the config, or if its name is taken or it cannot be saved.
    fn create(&self, config: McpConfig) -> Result<Uuid, ServiceError>;

    /// Replaces what is remembered of a server.
    ///
    /// # Errors
    ///
    /// Like [`create`](Self::create), or if nobody knows the id.
    fn update(&self, config: McpConfig) -> Result<(), ServiceError>;

    /// Forgets a server, and stops it.
    ///
    /// # Errors
    ///
    /// If nobody knows the id, or the file cannot be saved.
    fn delete(&self, id: Uuid) -> Result<(), ServiceError>;

    /// Stops every server, and waits until nothing is left of them.
    fn shutdown_all(&self) -> BoxFuture<'_, Result<(), ServiceError>>;
}

/// One configured server.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct McpConfig {
    /// Assigned once, when the server is first saved; nil until then.
    #[serde(default)]
    pub id: Uuid,
    /// What people and tool names call it.
    pub name: String,
    /// Whether it may be started.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Who told of it.
    #[serde(default)]
    pub source: McpSource,
    /// What is run or reached.
    pub package: McpPackage,
    /// How it is talked to.
    pub transport: McpTransport,
    /// Its environment, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env_vars: BTreeMap<String, EnvVarConfig>,
    /// Every other key of its entry in the file, such as `args`, `headers`, `timeout`, `deny`.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub config: Value,
}

/// Who told of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum McpSource {
    /// The official registry.
    Official {
        /// Its name there.
        name: String,
        /// Which one of it.
        version: String,
    },
    /// The Smithery registry.
    Smithery {
        /// Its name there.
        qualified_name: String,
    },
    /// A person.
    #[default]
    Manual,
}

/// What is run or reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpPackage {
    /// Where it comes from.
    pub package_type: McpPackageType,
    /// Its name there: a package, an image, a program or an URL.
    pub identifier: String,
    /// Which one of it; the newest if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The program that should run it, such as `uvx`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_hint: Option<String>,
}

/// Where a server comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpPackageType {
    /// `npx @scope/package`
    Npm,
    /// `uvx package`
    Pypi,
    /// `docker run image`
    Docker,
    /// A program of this machine.
    Binary,
    /// An endpoint that somebody else runs.
    Http,
}

/// How a server is talked to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum McpTransport {
    /// Over the standard streams of a process.
    Stdio,
    /// Over HTTP.
    Http {
        /// Where requests go.
        url: String,
    },
}

/// One variable of a server's environment.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvVarConfig {
    /// Its name.
    pub name: String,
    /// Its value, as it stands in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The secret that is its value.
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
    /// It may.
    Yes,
    /// It must not.
    No,
}

/// How a server is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum McpStatus {
    /// It does not run.
    Stopped,
    /// It is being installed or started.
    Starting,
    /// It can be called.
    Running {
        /// The names of its tools that are not denied.
        tools: Vec<String>,
    },
    /// It should run and does not.
    Error {
        /// Why.
        message: String,
    },
    /// It must not be started.
    Disabled,
}

impl McpConfig {
    /// A server that is enabled and about which nothing more is said.
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
    /// The newest one of a name.
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
