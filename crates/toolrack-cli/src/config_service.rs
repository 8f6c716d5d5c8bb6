//! What is configured and remembered, for commands that start nothing by themselves.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use toolrack::Environment;
use toolrack_auth::Browser;
use toolrack_http::HttpOptions;
use toolrack_service::{LocalService, McpConfig, McpService as _, Place, ServiceOptions};

use crate::context::Surroundings;
use crate::error::Failure;
use crate::server_selection::Servers;
use crate::settings::{self, Settings};

/// Uses the service of this home, and closes it whatever comes of it.
pub(crate) async fn with_service<T>(
    surroundings: &Surroundings,
    browser: Option<Arc<dyn Browser>>,
    work: impl AsyncFnOnce(&LocalService) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let home = surroundings.settings.home()?;
    let options = ServiceOptions { browser, ..service_options(&surroundings.settings)? };
    let service = LocalService::open(home.clone(), options).await.map_err(|error| {
        let hint = "mend the config file with `toolrack edit`; nothing was changed";
        Failure::of(error, hint)
    })?;
    let outcome = work(&service).await;
    service.close().await;
    outcome
}

/// How the service of this home is opened.
pub(crate) fn service_options(settings: &Settings) -> Result<ServiceOptions, Failure> {
    let dir = settings.home()?.config_file().parent().unwrap_or(Path::new(""));
    Ok(ServiceOptions {
        agent: settings.agent.clone(),
        lookup: Some(Arc::new(Environment::of_process().beginning_at(dir))),
        http: HttpOptions { proxy: settings::proxies(), ..HttpOptions::default() },
        ..ServiceOptions::default()
    })
}

/// Sees that there is a server of this name in the config, and says what may have been meant if there is none.
pub(crate) fn must_exist(name: &str, surroundings: &Surroundings) -> Result<(), Failure> {
    let servers = Servers::configured(&surroundings.settings, &surroundings.printer)?;
    servers.server(name).map(drop)
}

/// A server of the config, as the service keeps it.
pub(crate) fn find(service: &LocalService, name: &str) -> Result<McpConfig, Failure> {
    let found = service.list().into_iter().find(|it| it.name == name);
    found.ok_or_else(|| {
        let hint = "run `toolrack list` to see which servers there are";
        Failure::unknown(format!("there is no server `{name}`"), hint)
    })
}

/// What is done to a server in the config file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Remove,
    Disable,
    Enable,
}

impl Change {
    fn word(self) -> &'static str {
        match self {
            Self::Remove => "remove",
            Self::Disable => "disable",
            Self::Enable => "enable",
        }
    }
}

/// Sees that a server may be changed for the agent that is meant. What every agent has is not changed in the name
/// of one.
pub(crate) fn must_be_own(
    service: &LocalService,
    config: &McpConfig,
    change: Change,
) -> Result<(), Failure> {
    let Some(agent) = service.agent() else { return Ok(()) };
    let entry = service.config_store().read()?.document()?.get(config.id);
    match entry.map(|it| it.place) {
        Some(Place::Defaults) => Err(shared(&config.name, agent, change)),
        _ => Ok(()),
    }
}

fn shared(name: &str, agent: &str, change: Change) -> Failure {
    let (word, is_enabled) = (change.word(), change == Change::Enable);
    let hint = format!(
        "`{word} {name}` without an agent is for all of them; for `{agent}` alone, copy the entry into its \
         `[[agents.mcp]]` with `toolrack edit`, and write `enabled = {is_enabled}` there"
    );
    Failure::usage(format!("every agent has `{name}`, not `{agent}` alone"), hint)
}

/// The config file, as people are told.
pub(crate) fn file_of(service: &LocalService) -> String {
    service.home().config_file().display().to_string()
}

/// Which server was changed, and in which file, for programs.
pub(crate) fn changed(service: &LocalService, config: &McpConfig) -> Value {
    json!({ "name": config.name, "id": config.id, "file": file_of(service) })
}

/// Puts one more thing into what programs are told.
pub(crate) fn put(document: &mut Value, key: &str, value: Value) {
    if let Some(members) = document.as_object_mut() {
        members.insert(key.to_owned(), value);
    }
}

/// So many servers, in words.
pub(crate) fn count(n_servers: usize) -> String {
    if n_servers == 1 { "1 server".to_owned() } else { format!("{n_servers} servers") }
}
