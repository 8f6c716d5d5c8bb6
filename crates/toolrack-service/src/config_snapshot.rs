//! What is configured at one moment, for one agent: each server with its id.
//!
//! **Invariant:** a view never changes. A later one has a higher number.

use std::collections::BTreeSet;
use std::sync::Mutex;

use toolrack_config::{ConfigFile, McpServerConfig, ServerEntry, Source, interpolate};
use uuid::Uuid;

use crate::document::{Entry, Place};
use crate::service::McpConfig;

/// One configured server, as the user sees it and as the manager does.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) config: McpConfig,
    pub(crate) server: McpServerConfig,
}

/// What is configured at one moment.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) number: u64,
    pub(crate) servers: Vec<Known>,
    /// The ids of all agents of the file.
    pub(crate) agents: Vec<String>,
}

impl View {
    /// What a file says for an agent, or for every agent if none is named.
    pub(crate) fn new(
        number: u64,
        agent: Option<&str>,
        file: &ConfigFile,
        entries: Vec<Entry>,
    ) -> Self {
        let mut servers: Vec<Known> = Vec::new();
        for entry in entries {
            let Some(list) = list_of(&entry.place, agent, file) else { continue };
            let Some(row) = list.iter().find(|it| it.name == entry.config.name) else { continue };
            let server = McpServerConfig {
                id: Some(entry.config.id.to_string()),
                ..row.config(&file.settings)
            };
            let known = Known { config: entry.config, server };
            // An agent's own server takes the place of one that every agent has.
            match servers.iter_mut().find(|it| it.server.name == known.server.name) {
                Some(place) => *place = known,
                None => servers.push(known),
            }
        }
        let agents = file.agents.iter().map(|it| it.id.clone()).collect();
        Self { number, servers, agents }
    }

    pub(crate) fn get(&self, id: Uuid) -> Option<&Known> {
        self.servers.iter().find(|it| it.config.id == id)
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Known> {
        self.servers.iter().find(|it| it.server.name == name)
    }

    /// The configs as the manager wants them.
    pub(crate) fn configs(&self) -> Vec<McpServerConfig> {
        self.servers.iter().map(|it| it.server.clone()).collect()
    }
}

/// The list in which an entry stands, if the agent has it.
fn list_of<'f>(
    place: &Place,
    agent: Option<&str>,
    file: &'f ConfigFile,
) -> Option<&'f [ServerEntry]> {
    match place {
        Place::Defaults => Some(&file.defaults),
        Place::Agent(id) if Some(id.as_str()) == agent => {
            file.agents.iter().find(|it| it.id == *id).map(|it| it.mcp.as_slice())
        }
        Place::Agent(_) => None,
    }
}

/// The names of all secrets that a server needs or can use.
pub(crate) fn secrets_of(server: &McpServerConfig) -> BTreeSet<String> {
    let asked = Mutex::new(BTreeSet::new());
    let note = |source: Source, name: &str| {
        if let (Source::Secret, Ok(mut asked)) = (source, asked.lock()) {
            asked.insert(name.to_owned());
        }
        Ok(Some("x".to_owned()))
    };
    // Only what is asked for counts; a value that does not fit is no fault of the config.
    drop(interpolate(server, &note));
    asked.into_inner().unwrap_or_default()
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

    fn view(agent: Option<&str>) -> View {
        let (file, _warnings) = toolrack_config::read("x.toml", FILE).accept().unwrap();
        View::new(1, agent, &file, Document::parse("x.toml", FILE).unwrap().entries())
    }

    #[track_caller]
    fn check(agent: Option<&str>, expected: &[(&str, &str)]) {
        let view = view(agent);
        let found: Vec<(&str, &str)> = view
            .servers
            .iter()
            .map(|it| (it.config.name.as_str(), it.server.transport.kind()))
            .collect();
        assert_eq!(found, expected);
        assert!(view.servers.iter().all(|it| it.server.timeout.as_secs() == 7));
        assert!(view.servers.iter().all(|it| view.get(it.config.id).is_some()));
    }

    #[test]
    fn an_agent_has_the_defaults_with_its_own_in_their_places() {
        check(None, &[("one", "stdio"), ("two", "http")]);
        check(Some("main"), &[("one", "stdio"), ("two", "stdio")]);
        check(Some("stranger"), &[("one", "stdio"), ("two", "http")]);
        let id = |agent| view(agent).named("two").unwrap().config.id;
        assert_ne!(id(None), id(Some("main")));
        assert_eq!(id(None), id(Some("stranger")));
    }

    #[test]
    fn every_secret_of_a_server_is_found() {
        let view = view(None);
        let names = |name: &str| {
            let secrets = secrets_of(&view.named(name).unwrap().server);
            secrets.into_iter().collect::<Vec<_>>().join(" ")
        };
        assert_eq!((names("one").as_str(), names("two").as_str()), ("first second", "third"));
    }
}
