//! `toolrack start` and `restart`: a server that runs, if there is a daemon to keep it running.
//!
//! Where none may be started, all there is to find out is whether the server works.

use serde_json::json;

use crate::check_server::trial;
use crate::config_service::put;
use crate::context::Surroundings;
use crate::daemon_client::{self, Daemon, Status};
use crate::error::Failure;
use crate::progress::Live;
use crate::server_selection::Servers;
use crate::settings::DaemonUse;
use crate::suggested_command::word;

/// Starts a server.
pub(crate) async fn start(name: &str, surroundings: &Surroundings) -> Result<(), Failure> {
    begin(name, "start", surroundings).await
}

/// Stops a server and starts it again.
pub(crate) async fn restart(name: &str, surroundings: &Surroundings) -> Result<(), Failure> {
    begin(name, "restart", surroundings).await
}

async fn begin(name: &str, verb: &str, surroundings: &Surroundings) -> Result<(), Failure> {
    let (settings, printer) = (&surroundings.settings, &surroundings.printer);
    let is_enabled = Servers::configured(settings, printer)?.server(name)?.enabled;
    let found = daemon_client::find(settings)?;
    if found.is_none() && settings.daemon != DaemonUse::Usual {
        return test(name, surroundings).await;
    }
    if !is_enabled {
        let typed = word(name);
        let hint = format!("run `toolrack enable {typed}` to use it");
        return Err(Failure::config(format!("`{name}` is disabled"), hint));
    }
    if let Some(daemon) = found {
        return run(&daemon, name, verb, surroundings).await;
    }
    let daemon = daemon_client::require(surroundings).await?;
    printer.note(format_args!(
        "a daemon was started to keep it running (process {})",
        daemon.running.pid
    ));
    run(&daemon, name, verb, surroundings).await
}

async fn run(
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
async fn test(name: &str, surroundings: &Surroundings) -> Result<(), Failure> {
    let trial = trial(name, surroundings).await?;
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
