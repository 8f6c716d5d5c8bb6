//! What the tests share: scripted servers, a guardian, config files, and waiting for facts.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use toolrack::{
    EnvValue, Guardian, McpServerConfig, McpTransport, RackEvent, RackEvents, Toolrack,
    ToolrackBuilder,
};
use toolrack_testkit::{Marker, eventually_async, program};

/// Long enough for a busy machine, short enough for a test.
pub(crate) const LONG: Duration = Duration::from_mins(1);

/// A rack whose servers are guarded although the test is no program of its own.
pub(crate) fn builder() -> ToolrackBuilder {
    Toolrack::builder().guardian(Guardian::Program(program("toolrack-guard")))
}

/// A scripted server whose processes can be found by their marker.
pub(crate) fn scripted(name: &str, marker: &Marker, args: &[&str]) -> McpServerConfig {
    let command = program("scripted-server").display().to_string();
    let mut config = McpServerConfig::stdio(name, command, args);
    let (variable, value) = marker.pair();
    let McpTransport::Stdio { env, .. } = &mut config.transport else { panic!("no child") };
    env.insert(variable.to_owned(), EnvValue::from(value));
    config
}

/// The same as an entry of a file, under `table`, with more lines.
pub(crate) fn entry(table: &str, name: &str, marker: &Marker, more: &str) -> String {
    let (variable, value) = marker.pair();
    let command = program("scripted-server").display().to_string();
    format!(
        "[[{table}]]\nname = \"{name}\"\ntransport = \"stdio\"\ncommand = \"{command}\"\n\
         env = {{ {variable} = \"{value}\" }}\n{more}\n\n"
    )
}

/// Writes a file in place, as a simple editor does.
pub(crate) fn put(path: &Path, text: &str) {
    File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
}

pub(crate) fn tools(rack: &Toolrack) -> Vec<String> {
    rack.tools().iter().map(|tool| tool.name().as_ref().to_owned()).collect()
}

/// The servers that take calls.
pub(crate) fn connected(rack: &Toolrack) -> Vec<String> {
    let servers = rack.servers().into_iter().filter(|server| server.is_connected());
    servers.map(|server| server.name().to_owned()).collect()
}

pub(crate) async fn eventually(what: &str, mut fact: impl FnMut() -> bool) {
    eventually_async(LONG, what, tokio::time::sleep, async || fact()).await;
}

/// The next event that `pick` wants.
pub(crate) async fn next<T>(
    events: &mut RackEvents,
    mut pick: impl FnMut(RackEvent) -> Option<T>,
) -> T {
    let wanted = async {
        loop {
            let event = events.next().await.expect("the rack is there");
            if let Some(found) = pick(event) {
                return found;
            }
        }
    };
    tokio::time::timeout(LONG, wanted).await.expect("the event comes")
}
