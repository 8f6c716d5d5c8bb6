//! What is configured and remembered, for commands that start nothing by themselves.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use toolrack::Environment;
use toolrack_auth::Browser;
use toolrack_http::HttpOptions;
use toolrack_service::{LocalService, McpConfig, McpService as _, Place, ServiceOptions};

use crate::context::Context;
use crate::error::CliError;
use crate::server_selection::Servers;
use crate::settings::{self, Settings};

/// Uses the service of this home, and closes it whatever comes of it.
pub(crate) async fn with_service<T>(
    context: &Context,
    browser: Option<Arc<dyn Browser>>,
    work: impl AsyncFnOnce(&LocalService) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let home = context.settings.home()?;
    let options = ServiceOptions { browser, ..service_options(&context.settings)? };
    let service = LocalService::open(home.clone(), options).await.map_err(|error| {
        let hint = "mend the config file with `toolrack edit`; nothing was changed";
        CliError::from_service(error, hint)
    })?;
    let outcome = work(&service).await;
    service.close().await;
    outcome
}

/// How the service of this home is opened.
pub(crate) fn service_options(settings: &Settings) -> Result<ServiceOptions, CliError> {
    let dir = settings.home()?.config_file().parent().unwrap_or(Path::new(""));
    Ok(ServiceOptions {
        agent: settings.agent.clone(),
        lookup: Some(Arc::new(Environment::of_process().beginning_at(dir))),
        http: HttpOptions { proxy: settings::proxies(), ..HttpOptions::default() },
        ..ServiceOptions::default()
    })
}

/// Sees that there is a server of this name in the config, and says what may have been meant if there is none.
pub(crate) fn ensure_exists(name: &str, context: &Context) -> Result<(), CliError> {
    let servers = Servers::configured(&context.settings, &context.printer)?;
    servers.server(name).map(drop)
}

/// A server of the config, as the service keeps it.
pub(crate) fn find_config(service: &LocalService, name: &str) -> Result<McpConfig, CliError> {
    let found = service.list().into_iter().find(|config| config.name == name);
    found.ok_or_else(|| {
        let hint = "run `toolrack list` to see which servers there are";
        CliError::unknown(format!("there is no server `{name}`"), hint)
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
    fn as_str(self) -> &'static str {
        match self {
            Self::Remove => "remove",
            Self::Disable => "disable",
            Self::Enable => "enable",
        }
    }
}

/// Sees that a server may be changed for the agent that is meant. What every agent has is not changed in the name
/// of one.
pub(crate) fn ensure_own_entry(
    service: &LocalService,
    config: &McpConfig,
    change: Change,
) -> Result<(), CliError> {
    let Some(agent) = service.agent() else { return Ok(()) };
    let entry = service.config_store().read()?.document()?.get(config.id);
    match entry.map(|entry| entry.place) {
        Some(Place::Defaults) => Err(shared_entry(&config.name, agent, change)),
        _ => Ok(()),
    }
}

fn shared_entry(name: &str, agent: &str, change: Change) -> CliError {
    let (word, is_enabled) = (change.as_str(), change == Change::Enable);
    let hint = format!(
        "`{word} {name}` without an agent is for all of them; for `{agent}` alone, copy the entry into its \
         `[[agents.mcp]]` with `toolrack edit`, and write `enabled = {is_enabled}` there"
    );
    CliError::usage(format!("every agent has `{name}`, not `{agent}` alone"), hint)
}

/// The config file, as people are told.
pub(crate) fn config_path(service: &LocalService) -> String {
    service.home().config_file().display().to_string()
}

/// Which server was change_json, and in which file, for programs.
pub(crate) fn change_json(service: &LocalService, config: &McpConfig) -> Value {
    json!({ "name": config.name, "id": config.id, "file": config_path(service) })
}

/// Puts one more thing into what programs are told.
pub(crate) fn insert_key(document: &mut Value, key: &str, value: Value) {
    if let Some(members) = document.as_object_mut() {
        members.insert(key.to_owned(), value);
    }
}

/// So many servers, in words.
pub(crate) fn count_servers(n_servers: usize) -> String {
    if n_servers == 1 { "1 server".to_owned() } else { format!("{n_servers} servers") }
}
