//! `toolrack list`: which servers the config has.

use toolrack_service::{LocalService, McpConfig, McpService as _};

use crate::config_service::with_service;
use crate::context::Surroundings;
use crate::error::Failure;
use crate::output::List;
use crate::redacted_config::{self, Values};
use crate::server_selection::Servers;

/// Lists the servers of the config.
pub(crate) async fn list(surroundings: &Surroundings) -> Result<(), Failure> {
    let printer = &surroundings.printer;
    // What is odd about the file is told here, and an agent that nobody knows is refused.
    Servers::configured(&surroundings.settings, printer)?;
    let configs = with_service(surroundings, None, async |it: &LocalService| Ok(it.list())).await?;
    if configs.is_empty() {
        printer.note(
            "note: there is no server in the config; `toolrack add` adds one, `toolrack import` takes over \
             those of other tools",
        );
    }
    printer.list(&List {
        columns: &["NAME", "ENABLED", "WAY", "TARGET"],
        rows: configs.iter().map(row).collect(),
        items: configs
            .iter()
            .map(|it| redacted_config::document(it, Values::Hidden).to_string())
            .collect(),
    });
    Ok(())
}

fn row(config: &McpConfig) -> Vec<String> {
    let enabled = if config.enabled { "yes" } else { "no" };
    let (way, target) = (redacted_config::way(config), redacted_config::target(config));
    vec![redacted_config::shown(&config.name), enabled.to_owned(), way.to_owned(), target]
}
