//! Test fixtures: scripted servers, a manager with a guardian, and waits for conditions.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use toolrack_config::{EnvValue, McpServerConfig, McpTransport};
use toolrack_manager::{ConnectionState, ManagerBuilder, ManagerEvent, ManagerEvents, McpManager};
use toolrack_stdio::{Guardian, StdioOptions};
use toolrack_testkit::{Marker, eventually_async, program};
use tracing::instrument::WithSubscriber as _;

/// Timeout of waits, for a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A scripted server whose processes can be found by their marker.
pub(crate) fn scripted(name: &str, marker: &Marker, args: &[&str]) -> McpServerConfig {
    let command = program("scripted-server").display().to_string();
    marked(McpServerConfig::stdio(name, command, args), marker)
}

/// The same config with the marker in the environment of its process.
pub(crate) fn marked(mut config: McpServerConfig, marker: &Marker) -> McpServerConfig {
    let (variable, value) = marker.env_var();
    let McpTransport::Stdio { env, .. } = &mut config.transport else {
        panic!("not a stdio server")
    };
    env.insert(variable.to_owned(), EnvValue::from(value));
    config
}

pub(crate) fn builder() -> ManagerBuilder {
    let guardian = Guardian::Program(program("toolrack-guard"));
    McpManager::builder().stdio(StdioOptions { guardian, ..StdioOptions::default() })
}

/// Process id of a scripted server.
pub(crate) async fn pid(manager: &McpManager, server: &str) -> String {
    manager.call_tool(server, "pid", &json!({})).await.unwrap().content
}

pub(crate) fn state(manager: &McpManager, server: &str) -> ConnectionState {
    manager.server(server).unwrap().state().clone()
}

/// Public names of all offered tools.
pub(crate) fn tools(manager: &McpManager) -> Vec<String> {
    manager.all_tools().iter().map(|tool| tool.name().as_ref().to_owned()).collect()
}

pub(crate) async fn eventually(description: &str, mut condition: impl FnMut() -> bool) {
    eventually_async(LONG, description, tokio::time::sleep, async || condition()).await;
}

/// Runs `work` with a tracing subscriber of its own.
///
/// With a single subscriber in the process, `tracing` caches the interest of the thread that reaches a span first,
/// which may belong to another test. A second subscriber makes it ask every time.
pub(crate) async fn with_subscriber<S>(subscriber: S, work: impl Future<Output = ()>)
where
    S: tracing::Subscriber + Send + Sync + 'static,
{
    let second = tracing::Dispatch::new(tracing_subscriber::registry());
    work.with_subscriber(subscriber).await;
    drop(second);
}

/// Writes a file in place, as simple editors do.
pub(crate) fn put(path: &Path, text: &str) {
    File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
}

/// The next event for which `select` returns a value.
pub(crate) async fn next<T>(
    events: &mut ManagerEvents,
    mut select: impl FnMut(ManagerEvent) -> Option<T>,
) -> T {
    let wanted = async {
        loop {
            let event = events.next().await.expect("the manager is open");
            if let Some(found) = select(event) {
                return found;
            }
        }
    };
    tokio::time::timeout(LONG, wanted).await.expect("the event arrives")
}
