//! What the tests share: scripted servers, a manager under a guardian, and waiting for facts.

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

/// Long enough for a busy machine, short enough for a test.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A scripted server whose processes can be found by their marker.
pub(crate) fn scripted(name: &str, marker: &Marker, args: &[&str]) -> McpServerConfig {
    let command = program("scripted-server").display().to_string();
    marked(McpServerConfig::stdio(name, command, args), marker)
}

/// The same config with the marker in the environment of its process.
pub(crate) fn marked(mut config: McpServerConfig, marker: &Marker) -> McpServerConfig {
    let (variable, value) = marker.pair();
    let McpTransport::Stdio { env, .. } = &mut config.transport else { panic!("no child") };
    env.insert(variable.to_owned(), EnvValue::from(value));
    config
}

pub(crate) fn builder() -> ManagerBuilder {
    let guardian = Guardian::Program(program("toolrack-guard"));
    McpManager::builder().stdio(StdioOptions { guardian, ..StdioOptions::default() })
}

/// The process that answers for a scripted server.
pub(crate) async fn pid(manager: &McpManager, server: &str) -> String {
    let answer = manager.call_tool(server, "pid", &json!({})).await.unwrap();
    answer.content
}

pub(crate) fn state(manager: &McpManager, server: &str) -> ConnectionState {
    manager.server(server).unwrap().state().clone()
}

/// Names of all tools that are offered.
pub(crate) fn tools(manager: &McpManager) -> Vec<String> {
    manager.all_tools().iter().map(|it| it.name().as_ref().to_owned()).collect()
}

pub(crate) async fn eventually(what: &str, mut fact: impl FnMut() -> bool) {
    eventually_async(LONG, what, tokio::time::sleep, async || fact()).await;
}

/// Does `work` with a subscriber of its own, after everything that can be recorded was met once.
///
/// While there is one subscriber in the process, `tracing` asks only the thread that meets a span first whether
/// anybody wants it, and another test may be the first. With two of them it asks all.
pub(crate) async fn watched_by<S>(subscriber: S, work: impl Future<Output = ()>)
where
    S: tracing::Subscriber + Send + Sync + 'static,
{
    let second = tracing::Dispatch::new(tracing_subscriber::registry());
    work.with_subscriber(subscriber).await;
    drop(second);
}

/// Writes a file in place, as a simple editor does.
pub(crate) fn put(path: &Path, text: &str) {
    File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
}

/// The next event that `pick` wants.
pub(crate) async fn next<T>(
    events: &mut ManagerEvents,
    mut pick: impl FnMut(ManagerEvent) -> Option<T>,
) -> T {
    let wanted = async {
        loop {
            let event = events.next().await.expect("the manager is there");
            if let Some(found) = pick(event) {
                return found;
            }
        }
    };
    tokio::time::timeout(LONG, wanted).await.expect("the event comes")
}
