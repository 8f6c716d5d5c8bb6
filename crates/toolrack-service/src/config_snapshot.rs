//! Config snapshot: the servers of one agent at one moment, each with its id.
//!
//! **Invariant:** a snapshot never changes. A later one has a higher revision.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use toolrack_config::{ConfigFile, McpServerConfig, ServerEntry, VariableSource, interpolate};
use uuid::Uuid;

use crate::document::{ConfigScope, entries_with_ids};
use crate::service::McpConfig;

/// One configured server: its config in the service, and as the manager takes it.
#[derive(Debug, Clone)]
pub(crate) struct ConfiguredServer {
    pub(crate) config: McpConfig,
    pub(crate) manager_config: McpServerConfig,
}

/// The configured servers at one moment.
#[derive(Debug, Default)]
pub(crate) struct ConfigSnapshot {
    pub(crate) revision: u64,
    pub(crate) servers: Vec<ConfiguredServer>,
    /// The ids of all agents in the file.
    pub(crate) agents: Vec<String>,
}

impl ConfigSnapshot {
    /// The servers of an agent, or the defaults if there is none.
    pub(crate) fn from_file(revision: u64, agent: Option<&str>, file: &ConfigFile) -> Self {
        let mut servers: Vec<ConfiguredServer> = Vec::new();
        for (scope, entry, id) in entries_with_ids(file) {
            if matches!(&scope, ConfigScope::Agent(other) if Some(other.as_str()) != agent) {
                continue;
            }
            let manager_config =
                McpServerConfig { id: Some(id.to_string()), ..entry.config(&file.settings) };
            let config = McpConfig { id, ..McpConfig::from_written(entry) };
            let server = ConfiguredServer { config, manager_config };
            // An agent's own server overrides a default of the same name.
            match servers.iter_mut().find(|other| other.config.name == server.config.name) {
                Some(overridden) => *overridden = server,
                None => servers.push(server),
            }
        }
        let agents = file.agents.iter().map(|agent| agent.id.clone()).collect();
        Self { revision, servers, agents }
    }

    /// Servers that the caller has, without a config file.
    pub(crate) fn from_servers(revision: u64, servers: Vec<McpServerConfig>) -> Self {
        let entry = |server: &McpServerConfig| ServerEntry {
            id: server.id.clone(),
            enabled: server.enabled,
            ..ServerEntry::new(server.name.clone(), server.transport.clone())
        };
        let file =
            ConfigFile { defaults: servers.iter().map(entry).collect(), ..Default::default() };
        let mut snapshot = Self::from_file(revision, None, &file);
        for ConfiguredServer { manager_config, .. } in &mut snapshot.servers {
            // Of two servers with one name, the last counts.
            if let Some(server) = servers.iter().rfind(|server| server.name == manager_config.name)
            {
                let id = manager_config.id.take();
                *manager_config = McpServerConfig { id, ..server.clone() };
            }
        }
        snapshot
    }

    pub(crate) fn get(&self, id: Uuid) -> Option<&ConfiguredServer> {
        self.servers.iter().find(|server| server.config.id == id)
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&ConfiguredServer> {
        self.servers.iter().find(|server| server.manager_config.name == name)
    }

    /// The configs for the manager.
    pub(crate) fn configs(&self) -> Vec<McpServerConfig> {
        self.servers.iter().map(|server| server.manager_config.clone()).collect()
    }
}

/// The names of all secrets that a server refers to.
pub(crate) fn referenced_secrets(server: &McpServerConfig) -> BTreeSet<String> {
    let names = Mutex::new(BTreeSet::new());
    let record = |source: VariableSource, name: &str| {
        if source == VariableSource::Secret {
            names.lock().insert(name.to_owned());
        }
        Ok(Some("x".to_owned()))
        // Any value will do: only the names are of interest.
    };
    // Interpolation may fail with these values, which does not matter.
    drop(interpolate(server, &record));
    names.into_inner()
}

#[cfg(test)]
mod tests {
    use toolrack_config::McpTransport;

    use super::*;

    const FILE: &str = r#"
[defaults]
timeout = "7s"

[[defaults.mcp]]
name = "one"
command = "one"
env = { TOKEN = { secret_ref = "first" }, OTHER = "${secret:second}-${HOME}" }

[[defaults.mcp]]
name = "two"
url = "https://example.com/mcp"
headers = { Authorization = "Bearer ${secret:third}" }

[[agents]]
id = "main"
[[agents.mcp]]
name = "two"
command = "mine"
"#;

    fn snapshot_for(agent: Option<&str>) -> ConfigSnapshot {
        let (file, _warnings) = toolrack_config::read("x.toml", FILE).accept().unwrap();
        ConfigSnapshot::from_file(1, agent, &file)
    }

    fn kind(transport: &McpTransport) -> &'static str {
        match transport {
            McpTransport::Stdio { .. } => "stdio",
            McpTransport::Http { .. } => "http",
            _ => "package",
        }
    }

    #[track_caller]
    fn check(agent: Option<&str>, expected: &[(&str, &str)]) {
        let snapshot = snapshot_for(agent);
        let found: Vec<(&str, &str)> = snapshot
            .servers
            .iter()
            .map(|server| (server.config.name.as_str(), kind(&server.manager_config.transport)))
            .collect();
        assert_eq!(found, expected);
        assert!(snapshot.servers.iter().all(|server| server.manager_config.timeout.as_secs() == 7));
        assert!(snapshot.servers.iter().all(|server| snapshot.get(server.config.id).is_some()));
    }

    #[test]
    fn agent_overrides_defaults_by_name() {
        check(None, &[("one", "stdio"), ("two", "http")]);
        check(Some("main"), &[("one", "stdio"), ("two", "stdio")]);
        check(Some("stranger"), &[("one", "stdio"), ("two", "http")]);
        let id = |agent| snapshot_for(agent).by_name("two").unwrap().config.id;
        assert_ne!(id(None), id(Some("main")));
        assert_eq!(id(None), id(Some("stranger")));
    }

    #[test]
    fn referenced_secrets_are_found() {
        let snapshot = snapshot_for(None);
        let names = |name: &str| {
            let secrets = referenced_secrets(&snapshot.by_name(name).unwrap().manager_config);
            secrets.into_iter().collect::<Vec<_>>().join(" ")
        };
        assert_eq!((names("one").as_str(), names("two").as_str()), ("first second", "third"));
    }
}
