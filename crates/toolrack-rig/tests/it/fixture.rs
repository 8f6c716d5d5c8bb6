//! Test fixtures: marked servers, a manager with a guardian, and waits for conditions.

use std::path::Path;
use std::time::Duration;

use toolrack_config::{EnvValue, McpServerConfig, McpTransport};
use toolrack_manager::{McpManager, McpToolAdapter};
use toolrack_stdio::{Guardian, StdioOptions};
use toolrack_testkit::{Journal, Marker, eventually_async, program};

/// Timeout of waits, for a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A test server whose processes carry the marker.
pub(crate) fn server(
    name: &str,
    test_program: &str,
    args: &[&str],
    marker: &Marker,
) -> McpServerConfig {
    let command = program(test_program).display().to_string();
    let mut config = McpServerConfig::stdio(name, command, args);
    let (variable, value) = marker.env_var();
    let McpTransport::Stdio { env, .. } = &mut config.transport else { panic!("not stdio") };
    env.insert(variable.to_owned(), EnvValue::from(value));
    config
}

/// A manager that is connected to its server.
pub(crate) async fn manager(config: McpServerConfig) -> McpManager {
    let guardian = Guardian::Program(program("toolrack-guard"));
    let stdio = StdioOptions { guardian, ..StdioOptions::default() };
    let manager = McpManager::builder().stdio(stdio).build(vec![config]);
    manager.connect_all().await.unwrap();
    manager
}

pub(crate) fn adapter(manager: &McpManager, name: &str) -> McpToolAdapter {
    McpToolAdapter::new(manager, manager.find_tool(name).unwrap())
}

/// Waits until the journal of a scripted server fulfills a condition.
pub(crate) async fn journal_until(
    path: &Path,
    description: &str,
    condition: impl Fn(&Journal) -> bool,
) {
    let is_met = async || condition(&Journal::read(path).unwrap());
    eventually_async(LONG, description, tokio::time::sleep, is_met).await;
}
