//! `toolrack disable`: a server that is kept and not started.

use serde_json::json;
use toolrack_service::{Enabled, LocalService, McpService as _};

use crate::config_service::{Change, changed, find, must_be_own, must_exist, put, with_service};
use crate::context::Surroundings;
use crate::daemon_client;
use crate::error::Failure;
use crate::suggested_command::word;

/// Forbids a server to be started.
pub(crate) async fn disable(name: &str, surroundings: &Surroundings) -> Result<(), Failure> {
    must_exist(name, surroundings)?;
    with_service(surroundings, None, async |service: &LocalService| {
        let config = find(service, name)?;
        let mut said = changed(service, &config);
        put(&mut said, "enabled", json!(false));
        if config.enabled {
            must_be_own(service, &config, Change::Disable)?;
            match daemon_client::find(&surroundings.settings)? {
                Some(daemon) => drop(daemon.act(name, "disable").await?),
                None => service.set_enabled(config.id, Enabled::No).await?,
            }
            let typed = word(name);
            let text = format!("`{name}` is disabled; `toolrack enable {typed}` allows it again");
            surroundings.printer.done(text, &said);
        } else {
            surroundings.printer.done(format_args!("`{name}` is disabled already"), &said);
        }
        Ok(())
    })
    .await
}
