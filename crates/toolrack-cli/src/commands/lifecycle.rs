//! `toolrack start` and `restart`: a server that runs, if there is a daemon to keep it running.
//!
//! Where none may be started, all there is to find out is whether the server works.

use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;
use toolrack_auth::Status as LoginStatus;
use toolrack_service::{Enabled, LocalService, McpConfig, McpService as _};

use crate::args::servers::EnableOptions;
use crate::check_server::check_server;
use crate::config_service::{
    Change, changed, file_of, find, must_be_own, must_exist, put, with_service,
};
use crate::context::Surroundings;
use crate::daemon_client::{self, Daemon, Status};
use crate::error::Failure;
use crate::printer::Live;
use crate::server_selection::Servers;
use crate::settings::DaemonUse;
use crate::suggested_command::word;

/// Starts a server.
pub(crate) async fn start(name: &str, surroundings: &Surroundings) -> Result<(), Failure> {
    start_or_restart(name, "start", surroundings).await
}

/// Stops a server and starts it again.
pub(crate) async fn restart(name: &str, surroundings: &Surroundings) -> Result<(), Failure> {
    start_or_restart(name, "restart", surroundings).await
}

async fn start_or_restart(
    name: &str,
    verb: &str,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    let (settings, printer) = (&surroundings.settings, &surroundings.printer);
    let is_enabled = Servers::configured(settings, printer)?.server(name)?.enabled;
    let found = daemon_client::find(settings)?;
    if found.is_none() && settings.daemon != DaemonUse::Usual {
        return start_once(name, surroundings).await;
    }
    if !is_enabled {
        let typed = word(name);
        let hint = format!("run `toolrack enable {typed}` to use it");
        return Err(Failure::config(format!("`{name}` is disabled"), hint));
    }
    if let Some(daemon) = found {
        return start_in_daemon(&daemon, name, verb, surroundings).await;
    }
    let daemon = daemon_client::require(surroundings).await?;
    printer.note(format_args!(
        "a daemon was started to keep it running (process {})",
        daemon.running.pid
    ));
    start_in_daemon(&daemon, name, verb, surroundings).await
}

async fn start_in_daemon(
    daemon: &Daemon,
    name: &str,
    verb: &str,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    let live = Live::new(&surroundings.printer);
    live.phase(&format!("{name}: starting"));
    let bringing = surroundings.unless_stopped(daemon.bring(name, verb));
    let Status { n_tools, n_tools_total, process, .. } = live.during(bringing).await?;
    let tools = match n_tools_total {
        Some(total) if total != n_tools => format!("{n_tools} of {total} tools"),
        _ => format!("{n_tools} tools"),
    };
    let said = json!({
        "name": name, "state": "running", "n_tools": n_tools, "n_tools_total": n_tools_total,
        "process": process,
    });
    surroundings.printer.done(format_args!("`{name}` runs: {tools}"), &said);
    Ok(())
}

/// Starts a server, sees whether it works, and ends it.
async fn start_once(name: &str, surroundings: &Surroundings) -> Result<(), Failure> {
    let trial = check_server(name, surroundings).await?;
    let mut said = trial.json();
    put(&mut said, "name", json!(name));
    let text = format!(
        "`{name}` starts: {}\nit has been ended again: without a daemon, a server runs as long as the command \
         that uses it",
        trial.words()
    );
    surroundings.printer.done(text, &said);
    Ok(())
}

/// Ends a server. Without a daemon it ends what crashed programs have left behind, and says that nothing else is there
/// to be stopped.
pub(crate) async fn stop(name: &str, surroundings: &Surroundings) -> Result<(), Failure> {
    must_exist(name, surroundings)?;
    let typed = word(name);
    if let Some(daemon) = daemon_client::find(&surroundings.settings)? {
        surroundings.unless_stopped(daemon.act(name, "stop")).await?;
        let text = format!("`{name}` has ended; `toolrack start {typed}` starts it again");
        surroundings.printer.done(text, &json!({ "name": name, "state": "stopped" }));
        return Ok(());
    }
    let n_swept = surroundings.blocking(|| Ok(toolrack_stdio::sweep())).await?;
    let swept = match n_swept {
        0 => String::new(),
        n_swept => format!("{n_swept} processes that a crash had left behind were ended\n"),
    };
    let text = format!(
        "{swept}`{name}` does not run: without a daemon, a server runs as long as the command that uses it\n\
         `toolrack disable {typed}` keeps it from being started"
    );
    let said = json!({ "name": name, "state": "stopped", "n_swept": n_swept });
    surroundings.printer.done(text, &said);
    Ok(())
}

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

/// How long the server may take to hear that nobody is logged in any more. It is forgotten here either way.
const LOGOUT_TIMEOUT: Duration = Duration::from_secs(5);

/// Removes a server from the config.
pub(crate) async fn remove(name: &str, surroundings: &Surroundings) -> Result<(), Failure> {
    must_exist(name, surroundings)?;
    with_service(surroundings, None, async |service: &LocalService| {
        let config = find(service, name)?;
        must_be_own(service, &config, Change::Remove)?;
        let had_login = forget_login(service, &config).await;
        service.delete(config.id)?;
        let file = file_of(service);
        let besides = if had_login { ", and its login is forgotten" } else { "" };
        let text = format!("`{name}` is removed from {file}{besides}");
        surroundings.printer.done(text, &changed(service, &config));
        Ok(())
    })
    .await
}

/// Forgets the login at a server, and says whether there was one.
async fn forget_login(service: &LocalService, config: &McpConfig) -> bool {
    let Ok(authorizer) = service.authorizer(config.id) else { return false };
    match authorizer.status().await {
        Ok(LoginStatus::LoggedIn { .. }) => {
            timeout(LOGOUT_TIMEOUT, authorizer.logout()).await.is_ok()
        }
        _ => false,
    }
}
