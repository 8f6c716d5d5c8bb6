//! `toolrack stop`: ends a server of the daemon. Without one nothing runs, except what a crash has left behind.

use serde_json::json;

use crate::config_service::must_exist;
use crate::context::Surroundings;
use crate::daemon_client;
use crate::error::Failure;
use crate::suggested_command::word;

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
