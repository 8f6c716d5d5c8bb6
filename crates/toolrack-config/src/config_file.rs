//! A whole config file as data, and what it means for one agent.
//!
//! **Invariant:** reading keeps what a user left out apart from what a user set; defaults are filled in
//! only by [`ConfigFile::resolve`], so that files can be laid over one another first.

use std::time::Duration;

use crate::dialect::Dialect;
use crate::server::{McpServerConfig, McpTransport, Pin, Sandbox, StartMode};
use crate::source_location::Origin;

/// What a config file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigFile {
    /// Whose format it was written in.
    pub dialect: Dialect,
    /// What holds for every server that does not say otherwise.
    pub settings: Settings,
    /// See [`Names::separator`].
    pub name_separator: Option<String>,
    /// See [`Names::limit`].
    pub name_limit: Option<usize>,
    /// Servers that every agent has.
    pub defaults: Vec<ServerEntry>,
    /// Agents with servers of their own.
    pub agents: Vec<Agent>,
}

/// An agent and the servers it has beside the defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agent {
    /// What the agent is called.
    pub id: String,
    /// Added to the defaults; one with the name of a default takes its place.
    pub mcp: Vec<ServerEntry>,
}

/// A server as it stands in a file, with only what the file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerEntry {
    /// What people and agents call it.
    pub name: String,
    /// Its lasting identity, once the service has given it one.
    pub id: Option<String>,
    /// Whether it is to be connected.
    pub enabled: bool,
    /// How it is reached.
    pub transport: McpTransport,
    /// What it says about how it is to be treated.
    pub settings: Settings,
    /// Where it was written.
    pub origin: Origin,
}

/// How servers are to be treated, as far as somebody said so.
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
    /// See [`McpServerConfig::idle`]. `Some(None)` is "never", said aloud.
    pub idle: Option<Option<Duration>>,
    /// See [`McpServerConfig::max_output_bytes`].
    pub max_output_bytes: Option<usize>,
    /// See [`McpServerConfig::max_message_bytes`].
    pub max_message_bytes: Option<usize>,
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

/// How public names of tools are made from the names of server and tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// Stands between server and tool.
    pub separator: String,
    /// A longer name is cut and gets a hash.
    pub limit: usize,
}

impl ConfigFile {
    /// The servers of an agent: the defaults, with its own in their places or after them. An agent that
    /// the file does not know has the defaults.
    pub fn resolve(&self, agent: &str) -> Vec<McpServerConfig> {
        let own = self.agents.iter().filter(|it| it.id == agent).flat_map(|it| &it.mcp);
        let mut entries: Vec<&ServerEntry> = self.defaults.iter().collect();
        for entry in own {
            lay(&mut entries, entry);
        }
        entries.into_iter().map(|it| it.config(&self.settings)).collect()
    }

    /// The servers that every agent has.
    pub fn resolve_defaults(&self) -> Vec<McpServerConfig> {
        self.defaults.iter().map(|it| it.config(&self.settings)).collect()
    }

    /// How public names of tools are made.
    pub fn names(&self) -> Names {
        let plain = Names::default();
        Names {
            separator: self.name_separator.clone().unwrap_or(plain.separator),
            limit: self.name_limit.unwrap_or(plain.limit),
        }
    }

    /// Lays another file over this one: what it says wins, what it does not say stays.
    #[must_use]
    pub fn overlaid_by(mut self, over: ConfigFile) -> ConfigFile {
        self.settings = over.settings.or(&self.settings);
        self.name_separator = over.name_separator.or(self.name_separator);
        self.name_limit = over.name_limit.or(self.name_limit);
        for entry in over.defaults {
            lay(&mut self.defaults, entry);
        }
        for agent in over.agents {
            match self.agents.iter_mut().find(|it| it.id == agent.id) {
                None => self.agents.push(agent),
                Some(known) => agent.mcp.into_iter().for_each(|it| lay(&mut known.mcp, it)),
            }
        }
        self
    }

    /// Every entry, of the defaults and of all agents.
    pub fn entries(&self) -> impl Iterator<Item = &ServerEntry> {
        self.defaults.iter().chain(self.agents.iter().flat_map(|it| &it.mcp))
    }
}

/// Puts an entry where one of the same name is, or at the end.
fn lay<T: AsRef<ServerEntry>>(entries: &mut Vec<T>, entry: T) {
    match entries.iter_mut().find(|it| it.as_ref().name == entry.as_ref().name) {
        Some(place) => *place = entry,
        None => entries.push(entry),
    }
}

impl AsRef<ServerEntry> for ServerEntry {
    fn as_ref(&self) -> &ServerEntry {
        self
    }
}

impl ServerEntry {
    /// An enabled entry that says no more than how the server is reached.
    pub fn new(name: impl Into<String>, transport: McpTransport) -> Self {
        Self {
            name: name.into(),
            id: None,
            enabled: true,
            transport,
            settings: Settings::default(),
            origin: Origin::default(),
        }
    }

    /// The entry with everything it leaves out taken from `settings`, and from our own defaults.
    pub fn config(&self, settings: &Settings) -> McpServerConfig {
        let plain = McpServerConfig::new(self.name.clone(), self.transport.clone());
        let said = self.settings.or(settings);
        let timeout = said.timeout.unwrap_or(plain.timeout);
        McpServerConfig {
            id: self.id.clone(),
            enabled: self.enabled,
            timeout,
            // A limit below the time for one silence would never let that time pass.
            max_timeout: said.max_timeout.unwrap_or(plain.max_timeout).max(timeout),
            startup_timeout: said.startup_timeout.unwrap_or(plain.startup_timeout),
            install_timeout: said.install_timeout.unwrap_or(plain.install_timeout),
            start: said.start.unwrap_or(plain.start),
            idle: said.idle.unwrap_or(plain.idle),
            max_output_bytes: said.max_output_bytes.unwrap_or(plain.max_output_bytes),
            max_message_bytes: said.max_message_bytes.unwrap_or(plain.max_message_bytes),
            allow: said.allow.unwrap_or_default(),
            deny: said.deny.unwrap_or_default(),
            repeatable: said.repeatable.unwrap_or_default(),
            inherit_env: said.inherit_env.unwrap_or(plain.inherit_env),
            pin: said.pin.unwrap_or(plain.pin),
            sandbox: said.sandbox,
            origin: self.origin.clone(),
            ..plain
        }
    }
}

impl Settings {
    /// These, and where they are silent, the others.
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
            allow: self.allow.clone().or_else(|| other.allow.clone()),
            deny: self.deny.clone().or_else(|| other.deny.clone()),
            repeatable: self.repeatable.clone().or_else(|| other.repeatable.clone()),
            inherit_env: self.inherit_env.or(other.inherit_env),
            pin: self.pin.or(other.pin),
            sandbox: self.sandbox.clone().or_else(|| other.sandbox.clone()),
        }
    }
}

impl Default for Names {
    fn default() -> Self {
        Self { separator: "_".to_owned(), limit: 64 }
    }
}
