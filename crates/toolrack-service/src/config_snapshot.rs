//! Config snapshot: the servers of one agent at one moment, each with its id.
//!
//! **Invariant:** a snapshot never changes. A later one has a higher revision.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use toolrack_config::{ConfigFile, McpServerConfig, ServerEntry, VariableSource, interpolate};
use uuid::Uuid;

use crate::config_store::StoredConfig;
use crate::document::{ConfigScope, Entry};
use crate::error::ServiceError;
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
    /// The snapshot of a config file for an agent.
    pub(crate) fn from_stored(
        revision: u64,
        agent: Option<&str>,
        stored: &StoredConfig,
    ) -> Result<Self, ServiceError> {
        Ok(Self::new(revision, agent, &stored.file, stored.document()?.entries()))
    }

    /// The servers of an agent, or the defaults if there is none.
    fn new(revision: u64, agent: Option<&str>, file: &ConfigFile, entries: Vec<Entry>) -> Self {
        let mut servers: Vec<ConfiguredServer> = Vec::new();
        for entry in entries {
            let Some(list) = list_in_scope(&entry.scope, agent, file) else { continue };
            // Both lists come from one file: `entries` has ids, `list` has parsed settings.
            let Some(row) = list.iter().find(|candidate| candidate.name == entry.config.name)
            else {
                continue;
            };
            let manager_config = McpServerConfig {
                id: Some(entry.config.id.to_string()),
                ..row.config(&file.settings)
            };
            let server = ConfiguredServer { config: entry.config, manager_config };
            // An agent's own server overrides a default of the same name.
            match servers
                .iter_mut()
                .find(|other| other.manager_config.name == server.manager_config.name)
            {
                Some(overridden) => *overridden = server,
                None => servers.push(server),
            }
        }
        let agents = file.agents.iter().map(|agent| agent.id.clone()).collect();
        Self { revision, servers, agents }
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

/// The list of an entry, if the agent has it.
fn list_in_scope<'f>(
    scope: &ConfigScope,
    agent: Option<&str>,
    file: &'f ConfigFile,
) -> Option<&'f [ServerEntry]> {
    match scope {
        ConfigScope::Defaults => Some(&file.defaults),
        ConfigScope::Agent(id) if Some(id.as_str()) == agent => {
            file.agents.iter().find(|found| found.id == *id).map(|found| found.mcp.as_slice())
        }
        ConfigScope::Agent(_) => None,
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
    use super::*;
    use crate::document::Document;

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
        ConfigSnapshot::new(1, agent, &file, Document::parse("x.toml", FILE).unwrap().entries())
    }

    #[track_caller]
    fn check(agent: Option<&str>, expected: &[(&str, &str)]) {
        let snapshot = snapshot_for(agent);
        let found: Vec<(&str, &str)> = snapshot
            .servers
            .iter()
            .map(|server| (server.config.name.as_str(), server.manager_config.transport.kind()))
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
