//! `toolrack start`, `stop`, `restart`, `enable`, `disable` and `remove`.
//!
//! Servers run in the daemon, which `start` and `restart` launch if needed. If that is not allowed,
//! `start` only checks that the server starts.

use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;
use toolrack_auth::LoginStatus;
use toolrack_service::{Enabled, LocalService, McpConfig, McpService as _};

use crate::args::EnableOptions;
use crate::commands::Context;
use crate::commands::servers::check_server;
use crate::config_service::{change_json, config_path, ensure_own_entry, insert_key, with_server};
use crate::daemon_client::{self, Status};
use crate::error::{CliError, server_command};
use crate::printer::Spinner;
use crate::server_selection::{Servers, Warnings};
use crate::settings::DaemonUse;

/// Starts or restarts a server.
pub(crate) async fn start(name: String, verb: &str, context: &Context) -> Result<(), CliError> {
    let (settings, printer) = (&context.settings, &context.printer);
    let is_enabled = Servers::configured(Warnings::Usual, context)?.server(&name)?.enabled;
    let found = daemon_client::find(settings)?;
    if found.is_none() && settings.daemon != DaemonUse::Auto {
        return start_once(&name, context).await;
    }
    if !is_enabled {
        let hint = format!("enable it with {}", server_command("enable", &name));
        return Err(CliError::config(format!("`{name}` is disabled"), hint));
    }
    let daemon = match found {
        Some(daemon) => daemon,
        None => {
            let daemon = daemon_client::require(context).await?;
            let pid = daemon.running.pid;
            printer.note(format_args!("started the daemon to keep it running (process {pid})"));
            daemon
        }
    };
    let spinner = Spinner::new(printer, &format!("{name}: starting"));
    let starting = context.run_cancellable(daemon.act_and_wait(&name, verb));
    let Status { n_tools, n_tools_total, process, .. } = spinner.during(starting).await?;
    let tools = match n_tools_total {
        Some(total) if total != n_tools => format!("{n_tools} of {total} tools"),
        _ => format!("{n_tools} tools"),
    };
    let json = json!({
        "name": name, "state": "running", "n_tools": n_tools, "n_tools_total": n_tools_total,
        "process": process,
    });
    printer.done(format_args!("`{name}` is running: {tools}"), &json);
    Ok(())
}

/// Starts a server as a check, and stops it again.
async fn start_once(name: &str, context: &Context) -> Result<(), CliError> {
    let checked = check_server(name, context).await?;
    let mut json = json!(checked);
    insert_key(&mut json, "name", json!(name));
    let text = format!(
        "`{name}` starts: {}\nstopped it again: without a daemon, a server runs only as long as \
         the command that uses it",
        checked.describe()
    );
    context.printer.done(text, &json);
    Ok(())
}

/// Stops a server of the daemon. Without a daemon, cleans up orphans of crashed runs.
pub(crate) async fn stop(name: String, context: &Context) -> Result<(), CliError> {
    Servers::configured(Warnings::Usual, context)?.server(&name)?;
    if let Some(daemon) = daemon_client::find(&context.settings)? {
        context.run_cancellable(daemon.act(&name, "stop")).await?;
        let start = server_command("start", &name);
        let text = format!("stopped `{name}`; start it again with {start}");
        context.printer.done(text, &json!({ "name": name, "state": "stopped" }));
        return Ok(());
    }
    let n_orphans = context.blocking(|| Ok(toolrack_stdio::kill_orphans())).await?;
    let cleanup = match n_orphans {
        0 => String::new(),
        n_orphans => format!("stopped {n_orphans} orphaned processes\n"),
    };
    let text = format!(
        "{cleanup}`{name}` is not running: without a daemon, a server runs only as long as the \
         command that uses it\nto keep it from starting, run {}",
        server_command("disable", &name)
    );
    let json = json!({ "name": name, "state": "stopped", "n_swept": n_orphans });
    context.printer.done(text, &json);
    Ok(())
}

/// Enables a server after checking that it starts.
pub(crate) async fn enable(options: EnableOptions, context: &Context) -> Result<(), CliError> {
    let (name, printer) = (&options.server, &context.printer);
    with_server(name, None, context, async |service: &LocalService, config: McpConfig| {
        let mut json = change_json(service, &config);
        insert_key(&mut json, "enabled", json!(true));
        let text = if config.enabled {
            format!("`{name}` is already enabled")
        } else if options.no_check {
            ensure_own_entry(service, &config, "enable")?;
            service.update(McpConfig { enabled: true, ..config })?;
            format!("enabled `{name}` without checking it")
        } else {
            ensure_own_entry(service, &config, "enable")?;
            let spinner = Spinner::new(printer, &format!("{name}: starting"));
            let starting = async {
                Ok(match daemon_client::find(&context.settings)? {
                    Some(daemon) => daemon.act_and_wait(name, "enable").await.map(drop),
                    None => service.set_enabled(config.id, Enabled::Yes).await.map_err(Into::into),
                })
            };
            let started = spinner.during(context.run_cancellable(starting)).await?;
            started.map_err(|failure: CliError| {
                printer.note(format_args!(
                    "`{name}` does not start and stays disabled; use `--no-check` to enable it \
                     anyway"
                ));
                failure.with_login_hint(name)
            })?;
            format!("enabled `{name}`; check passed")
        };
        printer.done(text, &json);
        Ok(())
    })
    .await
}

/// Disables a server.
pub(crate) async fn disable(name: String, context: &Context) -> Result<(), CliError> {
    with_server(&name, None, context, async |service: &LocalService, config: McpConfig| {
        let mut json = change_json(service, &config);
        insert_key(&mut json, "enabled", json!(false));
        let text = if config.enabled {
            ensure_own_entry(service, &config, "disable")?;
            match daemon_client::find(&context.settings)? {
                Some(daemon) => drop(daemon.act(&name, "disable").await?),
                None => service.set_enabled(config.id, Enabled::No).await?,
            }
            let enable = server_command("enable", &name);
            format!("disabled `{name}`; enable it again with {enable}")
        } else {
            format!("`{name}` is already disabled")
        };
        context.printer.done(text, &json);
        Ok(())
    })
    .await
}

/// Time limit for revoking the token at the server. The login is deleted locally in any case.
const LOGOUT_TIMEOUT: Duration = Duration::from_secs(5);

/// Removes a server from the config.
pub(crate) async fn remove(name: String, context: &Context) -> Result<(), CliError> {
    with_server(&name, None, context, async |service: &LocalService, config: McpConfig| {
        ensure_own_entry(service, &config, "remove")?;
        // Before the entry is deleted, which names the server whose token is revoked.
        let is_logged_out = forget_login(service, &config).await;
        service.delete(config.id)?;
        let file = config_path(service);
        let suffix = if is_logged_out { " and logged out" } else { "" };
        let text = format!("removed `{name}` from {file}{suffix}");
        context.printer.done(text, &change_json(service, &config));
        Ok(())
    })
    .await
}

/// Logs out of a server. Returns whether there was a login and it is deleted now.
async fn forget_login(service: &LocalService, config: &McpConfig) -> bool {
    let Ok(authorizer) = service.authorizer(config.id) else { return false };
    if !matches!(authorizer.status().await, Ok(LoginStatus::LoggedIn { .. })) {
        return false;
    }
    // The status says whether the login is deleted: a slow revocation, which follows, is given up.
    let _outcome = timeout(LOGOUT_TIMEOUT, authorizer.logout()).await;
    matches!(authorizer.status().await, Ok(LoginStatus::LoggedOut))
}
