//! `toolrack enable`: a server that may be started again.

use serde_json::json;
use toolrack_service::{Enabled, LocalService, McpConfig, McpService as _};

use crate::args::servers::EnableOptions;
use crate::config_service::{Change, changed, find, must_be_own, must_exist, put, with_service};
use crate::context::Surroundings;
use crate::daemon_client;
use crate::error::Failure;
use crate::progress::Live;

/// Allows a server to be started. It is tried, and one that does not start stays disabled.
pub(crate) async fn enable(
    options: &EnableOptions,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    let name = &options.server;
    must_exist(name, surroundings)?;
    let printer = &surroundings.printer;
    with_service(surroundings, None, async |service: &LocalService| {
        let config = find(service, name)?;
        let mut said = changed(service, &config);
        put(&mut said, "enabled", json!(true));
        if config.enabled {
            printer.done(format_args!("`{name}` is enabled already"), &said);
            return Ok(());
        }
        must_be_own(service, &config, Change::Enable)?;
        if options.no_check {
            service.update(McpConfig { enabled: true, ..config })?;
            printer.done(format_args!("`{name}` is enabled; it was not tried"), &said);
            return Ok(());
        }
        let live = Live::new(printer);
        live.phase(&format!("{name}: starting"));
        let starting = async {
            Ok(match daemon_client::find(&surroundings.settings)? {
                Some(daemon) => daemon.bring(name, "enable").await.map(drop),
                None => service.set_enabled(config.id, Enabled::Yes).await.map_err(Failure::from),
            })
        };
        match live.during(surroundings.unless_stopped(starting)).await? {
            Ok(()) => {
                printer.done(format_args!("`{name}` is enabled, and it works"), &said);
                Ok(())
            }
            Err(failure) => {
                printer.note(format_args!(
                    "`{name}` does not start, so it stays disabled; `--no-check` enables it all the same"
                ));
                Err(failure)
            }
        }
    })
    .await
}
