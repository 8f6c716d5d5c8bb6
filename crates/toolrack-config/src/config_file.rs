//! Parsed config file: agents, server entries and defaults, and the effective servers of one agent.
//!
//! **Invariant:** unset values stay distinct from set ones; [`ConfigFile::resolve`] applies defaults,
//! so that files can be overlaid first.

use std::borrow::Borrow;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::diagnostics::SourceLocation;
use crate::dialect::Dialect;
use crate::duration;
use crate::server::{McpServerConfig, McpTransport, Pin, Sandbox, StartMode};

/// A parsed config file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigFile {
    /// Format of the file.
    pub dialect: Dialect,
    /// Defaults of all servers.
    pub settings: Settings,
    /// See [`ToolNaming::separator`].
    pub name_separator: Option<String>,
    /// See [`ToolNaming::limit`].
    pub name_limit: Option<usize>,
    /// Servers of every agent.
    pub defaults: Vec<ServerEntry>,
    /// Agents with their own servers.
    pub agents: Vec<Agent>,
}

/// An agent and its own servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agent {
    /// Agent id.
    pub id: String,
    /// Added to the defaults; an entry with the name of a default replaces it.
    pub mcp: Vec<ServerEntry>,
}

/// A server entry with only the values that the file sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerEntry {
    /// Server name.
    pub name: String,
    /// UUID, once the service assigned one.
    pub id: Option<String>,
    /// Whether the server may be connected.
    pub enabled: bool,
    /// Transport.
    pub transport: McpTransport,
    /// Settings of this entry.
    pub settings: Settings,
    /// Position in the file.
    pub origin: SourceLocation,
}

/// Server settings; `None` means not set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// See [`McpServerConfig::timeout`].
    pub timeout: Option<Duration>,
    /// See [`McpServerConfig::max_timeout`].
    pub max_timeout: Option<Duration>,
    /// See [`McpServerConfig::startup_timeout`].
    pub startup_timeout: Option<Duration>,
    /// See [`McpServerConfig::install_timeout`].
    pub install_timeout: Option<Duration>,
    /// See [`McpServerConfig::start`].
    pub start: Option<StartMode>,
    /// See [`McpServerConfig::idle`]. `Some(None)` is an explicit "never".
    pub idle: Option<Option<Duration>>,
    /// See [`McpServerConfig::max_output_bytes`].
    pub max_output_bytes: Option<usize>,
    /// See [`McpServerConfig::max_message_bytes`].
    pub max_message_bytes: Option<usize>,
    /// See [`McpServerConfig::max_list_bytes`].
    pub max_list_bytes: Option<usize>,
    /// See [`McpServerConfig::allow`].
    pub allow: Option<Vec<String>>,
    /// See [`McpServerConfig::deny`].
    pub deny: Option<Vec<String>>,
    /// See [`McpServerConfig::repeatable`].
    pub repeatable: Option<Vec<String>>,
    /// See [`McpServerConfig::inherit_env`].
    pub inherit_env: Option<bool>,
    /// See [`McpServerConfig::pin`].
    pub pin: Option<Pin>,
    /// See [`McpServerConfig::sandbox`].
    pub sandbox: Option<Sandbox>,
}

/// How public tool names are built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolNaming {
    /// Separator between server and tool.
    pub separator: String,
    /// Maximum length; a longer name is cut and gets a hash suffix.
    pub limit: usize,
}

impl ConfigFile {
    /// The servers of an agent: defaults, replaced or followed by its own. An unknown agent has
    /// the defaults.
    pub fn resolve(&self, agent: &str) -> Vec<McpServerConfig> {
        let own = self.agents.iter().filter(|item| item.id == agent).flat_map(|agent| &agent.mcp);
        let mut entries: Vec<&ServerEntry> = self.defaults.iter().collect();
        for entry in own {
            lay(&mut entries, entry);
        }
        entries.into_iter().map(|entry| entry.config(&self.settings)).collect()
    }

    /// The servers of every agent.
    pub fn resolve_defaults(&self) -> Vec<McpServerConfig> {
        self.defaults.iter().map(|default| default.config(&self.settings)).collect()
    }

    /// Settings of public tool names.
    pub fn names(&self) -> ToolNaming {
        let plain = ToolNaming::default();
        ToolNaming {
            separator: self.name_separator.clone().unwrap_or(plain.separator),
            limit: self.name_limit.unwrap_or(plain.limit),
        }
    }

    /// Overlays another file: its values win, unset ones stay.
    #[must_use]
    pub fn overlay(mut self, over: ConfigFile) -> ConfigFile {
        self.settings = over.settings.or(&self.settings);
        self.name_separator = over.name_separator.or(self.name_separator);
        self.name_limit = over.name_limit.or(self.name_limit);
        for entry in over.defaults {
            lay(&mut self.defaults, entry);
        }
        for agent in over.agents {
            match self.agents.iter_mut().find(|item| item.id == agent.id) {
                None => self.agents.push(agent),
                Some(known) => agent.mcp.into_iter().for_each(|mcp| lay(&mut known.mcp, mcp)),
            }
        }
        self
    }

    /// Sets the startup timeout of every server.
    pub fn set_startup_timeout(&mut self, timeout: Duration) {
        let agents = self.agents.iter_mut().flat_map(|agent| &mut agent.mcp);
        for entry in self.defaults.iter_mut().chain(agents) {
            entry.settings.startup_timeout = Some(timeout);
        }
    }

    /// All entries, of the defaults and of all agents.
    pub fn entries(&self) -> impl Iterator<Item = &ServerEntry> {
        self.defaults.iter().chain(self.agents.iter().flat_map(|agent| &agent.mcp))
    }
}

/// Replaces the entry of the same name, or appends it.
fn lay<T: Borrow<ServerEntry>>(entries: &mut Vec<T>, entry: T) {
    match entries.iter_mut().find(|old| (**old).borrow().name == entry.borrow().name) {
        // In place, so that an override does not change the order of tools.
        Some(place) => *place = entry,
        None => entries.push(entry),
    }
}

impl ServerEntry {
    /// An enabled entry with default settings.
    pub fn new(name: impl Into<String>, transport: McpTransport) -> Self {
        Self {
            name: name.into(),
            id: None,
            enabled: true,
            transport,
            settings: Settings::default(),
            origin: SourceLocation::default(),
        }
    }

    /// The entry as a table of `toolrack.toml`, without its id.
    pub fn to_table(&self) -> Map<String, Value> {
        let mut table = match json!(self.transport) {
            Value::Object(transport) => transport,
            _ => Map::new(),
        };
        remove_unset(&mut table);
        let mut put = |key: &str, value: Value| {
            if !value.is_null() {
                table.insert(key.to_owned(), value);
            }
        };
        put("name", json!(self.name));
        put("enabled", json!((!self.enabled).then_some(false)));
        let settings = &self.settings;
        put("timeout", json!(settings.timeout.map(duration::to_text)));
        put("max_timeout", json!(settings.max_timeout.map(duration::to_text)));
        put("startup_timeout", json!(settings.startup_timeout.map(duration::to_text)));
        put("install_timeout", json!(settings.install_timeout.map(duration::to_text)));
        put("start", json!(settings.start));
        let idle = |idle: Option<Duration>| idle.map_or("never".to_owned(), duration::to_text);
        put("idle", json!(settings.idle.map(idle)));
        put("max_output_bytes", json!(settings.max_output_bytes));
        put("max_message_bytes", json!(settings.max_message_bytes));
        put("max_list_bytes", json!(settings.max_list_bytes));
        put("allow", json!(settings.allow));
        put("deny", json!(settings.deny));
        put("repeatable", json!(settings.repeatable));
        put("inherit_env", json!(settings.inherit_env));
        put("pin", json!(settings.pin.map(|pin| pin == Pin::Hold)));
        put("sandbox", json!(settings.sandbox));
        table
    }

    /// The entry with unset values from `settings` and built-in defaults.
    pub fn config(&self, settings: &Settings) -> McpServerConfig {
        let lines = self.settings.or(settings);
        let timeout = lines.timeout.unwrap_or(Duration::from_mins(2));
        McpServerConfig {
            name: self.name.clone(),
            id: self.id.clone(),
            enabled: self.enabled,
            transport: self.transport.clone(),
            timeout,
            // `max_timeout` below `timeout` would make `timeout` unreachable.
            max_timeout: lines.max_timeout.unwrap_or(Duration::from_mins(10)).max(timeout),
            startup_timeout: lines.startup_timeout.unwrap_or(Duration::from_secs(30)),
            install_timeout: lines.install_timeout.unwrap_or(Duration::from_mins(10)),
            start: lines.start.unwrap_or_default(),
            idle: lines.idle.unwrap_or_default(),
            max_output_bytes: lines.max_output_bytes.unwrap_or(50_000),
            max_message_bytes: lines.max_message_bytes.unwrap_or(32 << 20),
            max_list_bytes: lines.max_list_bytes,
            allow: lines.allow.unwrap_or_default(),
            deny: lines.deny.unwrap_or_default(),
            repeatable: lines.repeatable.unwrap_or_default(),
            inherit_env: lines.inherit_env.unwrap_or_default(),
            pin: lines.pin.unwrap_or_default(),
            sandbox: lines.sandbox,
            origin: self.origin.clone(),
        }
    }
}

/// Removes unset and empty values, which need not be written.
fn remove_unset(table: &mut Map<String, Value>) {
    table.retain(|_, value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => {
            remove_unset(members);
            !members.is_empty()
        }
        _ => true,
    });
}

impl Settings {
    /// These settings, with unset values from `defaults`.
    #[must_use]
    pub fn or(&self, other: &Settings) -> Settings {
        Settings {
            timeout: self.timeout.or(other.timeout),
            max_timeout: self.max_timeout.or(other.max_timeout),
            startup_timeout: self.startup_timeout.or(other.startup_timeout),
            install_timeout: self.install_timeout.or(other.install_timeout),
            start: self.start.or(other.start),
            idle: self.idle.or(other.idle),
            max_output_bytes: self.max_output_bytes.or(other.max_output_bytes),
            max_message_bytes: self.max_message_bytes.or(other.max_message_bytes),
            max_list_bytes: self.max_list_bytes.or(other.max_list_bytes),
            allow: self.allow.clone().or_else(|| other.allow.clone()),
            deny: self.deny.clone().or_else(|| other.deny.clone()),
            repeatable: self.repeatable.clone().or_else(|| other.repeatable.clone()),
            inherit_env: self.inherit_env.or(other.inherit_env),
            pin: self.pin.or(other.pin),
            sandbox: self.sandbox.clone().or_else(|| other.sandbox.clone()),
        }
    }
}

impl Default for ToolNaming {
    fn default() -> Self {
        Self { separator: "_".to_owned(), limit: 64 }
    }
}
