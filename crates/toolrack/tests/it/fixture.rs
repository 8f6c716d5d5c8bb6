//! Test fixture: scripted servers, a guardian, config files, and polling for conditions.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use toolrack::config::{EnvValue, McpTransport};
use toolrack::stdio::Guardian;
use toolrack::{ManagerEvent, ManagerEvents, McpServerConfig, Toolrack, ToolrackBuilder};
use toolrack_testkit::{Marker, eventually_async, program};

/// Long enough for a busy machine, short enough for a test.
pub(crate) const LONG: Duration = Duration::from_mins(1);

/// A builder with an external guardian, because the test binary does not call `init`.
pub(crate) fn builder() -> ToolrackBuilder {
    Toolrack::builder().guardian(Guardian::Program(program("toolrack-guard")))
}

/// A scripted server whose processes carry the marker.
pub(crate) fn scripted(name: &str, marker: &Marker, args: &[&str]) -> McpServerConfig {
    let command = program("scripted-server").display().to_string();
    let mut config = McpServerConfig::stdio(name, command, args);
    let (variable, value) = marker.env_var();
    let McpTransport::Stdio { env, .. } = &mut config.transport else { panic!("not stdio") };
    env.insert(variable.to_owned(), EnvValue::from(value));
    config
}

/// A scripted server as a config entry under `table`, with additional lines.
pub(crate) fn entry(table: &str, name: &str, marker: &Marker, more: &str) -> String {
    let (variable, value) = marker.env_var();
    let command = program("scripted-server").display().to_string();
    format!(
        "[[{table}]]\nname = \"{name}\"\ntransport = \"stdio\"\ncommand = \"{command}\"\n\
         env = {{ {variable} = \"{value}\" }}\n{more}\n\n"
    )
}

/// Writes a file in place, as a simple editor does.
pub(crate) fn write_file(path: &Path, text: &str) {
    File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
}

pub(crate) fn tools(rack: &Toolrack) -> Vec<String> {
    rack.tools().iter().map(|tool| tool.name().as_ref().to_owned()).collect()
}

/// Names of the connected servers.
pub(crate) fn connected(rack: &Toolrack) -> Vec<String> {
    let servers = rack.servers().into_iter().filter(|server| server.is_connected());
    servers.map(|server| server.name().to_owned()).collect()
}

pub(crate) async fn eventually(condition: &str, mut is_true: impl FnMut() -> bool) {
    eventually_async(LONG, condition, tokio::time::sleep, async || is_true()).await;
}

/// The next event that `pick` accepts.
pub(crate) async fn next<T>(
    events: &mut ManagerEvents,
    mut pick: impl FnMut(ManagerEvent) -> Option<T>,
) -> T {
    let search = async {
        loop {
            let event = events.next().await.expect("an open event stream");
            if let Some(found) = pick(event) {
                return found;
            }
        }
    };
    tokio::time::timeout(LONG, search).await.expect("the event arrives")
}
