//! Access to the local service for commands on configuration: opens it, finds servers, and
//! describes changes.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use toolrack::Environment;
use toolrack_auth::Browser;
use toolrack_http::HttpOptions;
use toolrack_service::{
    ConfigInput, ConfigScope, ConfigStore, InsecureHome, LoadError, LocalService, McpConfig,
    McpService as _, ServiceOptions,
};

use crate::commands::Context;
use crate::error::{CliError, command};
use crate::server_selection::{Servers, Warnings, load_error};
use crate::settings::{self, Settings};

/// Opens the service of this home, runs `work`, and closes the service in any case.
pub(crate) async fn with_service<T>(
    config: ConfigInput,
    browser: Option<Arc<dyn Browser>>,
    context: &Context,
    work: impl AsyncFnOnce(&LocalService) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let home = context.settings.home()?;
    // The service cannot say which command imports a file of another tool.
    if matches!(config, ConfigInput::File)
        && let Err(error @ LoadError::Foreign(_)) = ConfigStore::new(home.config_file()).load()
    {
        return Err(load_error(error, home.config_file(), &context.settings));
    }
    let options = ServiceOptions { config, browser, ..service_options(&context.settings)? };
    let service = LocalService::open(home.clone(), options).await.map_err(|error| {
        let hint = format!("fix the config file with {}; nothing was changed", command("edit"));
        CliError::from_service(error, &hint)
    })?;
    let outcome = work(&service).await;
    service.close().await;
    outcome
}

/// The same for one configured server. The error of an unknown name suggests similar ones.
pub(crate) async fn with_server<T>(
    name: &str,
    browser: Option<Arc<dyn Browser>>,
    context: &Context,
    work: impl AsyncFnOnce(&LocalService, McpConfig) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let servers = Servers::configured(Warnings::Usual, context)?;
    servers.server(name)?;
    with_service(servers.into_input(), browser, context, async |service: &LocalService| {
        work(service, find_config(service, name)?).await
    })
    .await
}

/// Options for opening the service.
pub(crate) fn service_options(settings: &Settings) -> Result<ServiceOptions, CliError> {
    let dir = settings.home()?.config_file().parent().unwrap_or(Path::new(""));
    Ok(ServiceOptions {
        // `Settings::home` has checked it.
        insecure_home: InsecureHome::Allow,
        agent: settings.agent.clone(),
        lookup: Some(Arc::new(Environment::from_process().with_base_dir(dir))),
        http: HttpOptions { proxy: settings::proxies(), ..HttpOptions::default() },
        ..ServiceOptions::default()
    })
}

/// A server's config, from the service.
pub(crate) fn find_config(service: &LocalService, name: &str) -> Result<McpConfig, CliError> {
    let found = service.list().into_iter().find(|config| config.name == name);
    found.ok_or_else(|| {
        let hint = format!("list servers with {}", command("list"));
        CliError::unknown(format!("server `{name}` not found"), hint)
    })
}

/// Checks that the entry belongs to the selected agent before `verb` (`enable`, `disable` or
/// `remove`) changes it. Shared entries are not changed on behalf of one agent.
pub(crate) fn ensure_own_entry(
    service: &LocalService,
    config: &McpConfig,
    verb: &str,
) -> Result<(), CliError> {
    let Some(agent) = service.agent() else { return Ok(()) };
    let entry = service.config_store().read()?.document()?.get(config.id);
    if entry.is_none_or(|entry| entry.scope != ConfigScope::Defaults) {
        return Ok(());
    }
    let (name, edit, is_enabled) = (&config.name, command("edit"), verb == "enable");
    let hint = format!(
        "without `--agent`, `{verb} {name}` applies to all agents; for `{agent}` only, copy the \
         entry to its `[[agents.mcp]]` with {edit}, and set `enabled = {is_enabled}` there"
    );
    let message = format!("`{name}` is shared by all agents, not specific to `{agent}`");
    Err(CliError::usage(message, hint))
}

/// Path of the config file, for display.
pub(crate) fn config_path(service: &LocalService) -> String {
    service.home().config_file().display().to_string()
}

/// JSON of a changed server.
pub(crate) fn change_json(service: &LocalService, config: &McpConfig) -> Value {
    json!({ "name": config.name, "id": config.id, "file": config_path(service) })
}

/// Adds a key to a JSON object.
pub(crate) fn insert_key(document: &mut Value, key: &str, value: Value) {
    if let Some(members) = document.as_object_mut() {
        members.insert(key.to_owned(), value);
    }
}

/// `1 server`, `2 servers`.
pub(crate) fn count_servers(n_servers: usize) -> String {
    if n_servers == 1 { "1 server".to_owned() } else { format!("{n_servers} servers") }
}
