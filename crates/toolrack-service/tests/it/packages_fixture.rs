//! Test fixture for packages: managers with an installer, configs, and helpers that wait.

use std::collections::HashMap;
use std::net::ToSocketAddrs as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use toolrack_config::{McpServerConfig, McpTransport, Package, PackageKind};
use toolrack_manager::{Failure, ManagerEvent, ManagerEvents, McpConnection, McpManager};
use toolrack_service::Installer;
use toolrack_stdio::{Guardian, StdioOptions};
use toolrack_testkit::{Marker, eventually_async, program};

/// Long enough for a busy machine and a slow registry.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(3);

/// A config of a package whose processes carry the marker.
pub(crate) fn package(
    kind: PackageKind,
    identifier: &str,
    version: Option<&str>,
    marker: &Marker,
) -> McpServerConfig {
    let package = Package {
        kind,
        identifier: identifier.to_owned(),
        version: version.map(str::to_owned),
        args: Vec::new(),
        program: None,
        runtime_hint: None,
        runtime_args: Vec::new(),
    };
    let (variable, value) = marker.env_var();
    let env = HashMap::from([(variable.to_owned(), value.into())]);
    let transport = McpTransport::Package { package, env, cwd: None, headers: HashMap::new() };
    McpServerConfig::new("pkg", transport)
}

/// The package of a config.
pub(crate) fn package_of(config: &mut McpServerConfig) -> &mut Package {
    match &mut config.transport {
        McpTransport::Package { package, .. } => package,
        _ => panic!("no package"),
    }
}

/// A manager of one package server.
pub(crate) fn manager(config: McpServerConfig, installer: Installer) -> McpManager {
    let guardian = Guardian::Program(program("toolrack-guard"));
    McpManager::builder()
        .stdio(StdioOptions { guardian, ..StdioOptions::default() })
        .package_installer(Arc::new(installer))
        .build(vec![config])
}

/// An installer whose commands carry the marker.
pub(crate) fn installer(data: &Path, marker: &Marker) -> Installer {
    let (variable, value) = marker.env_var();
    Installer::new(data).env(variable, value)
}

/// Connects and returns the connection.
pub(crate) async fn connect(manager: &McpManager) -> Arc<McpConnection> {
    manager.reconnect("pkg").await.unwrap()
}

/// Connects and returns why that failed.
pub(crate) async fn failure(config: McpServerConfig, installer: Installer) -> Failure {
    let manager = manager(config, installer);
    let connection = connect(&manager).await;
    manager.close().await;
    connection.state().failure().cloned().unwrap_or_else(|| panic!("{}", connection.state()))
}

/// Closes the manager and returns all its events. The caller must have dropped all connections.
pub(crate) async fn everything(
    manager: McpManager,
    mut events: ManagerEvents,
) -> Vec<ManagerEvent> {
    manager.close().await;
    drop(manager);
    let mut received = Vec::new();
    let listening = async {
        while let Some(event) = events.next().await {
            received.push(event);
        }
    };
    tokio::time::timeout(Duration::from_secs(20), listening).await.unwrap();
    received
}

pub(crate) async fn eventually(what: &str, mut fact: impl FnMut() -> bool) {
    eventually_async(TIMEOUT, what, tokio::time::sleep, async || fact()).await;
}

/// A directory shared by test runs, so that packages are downloaded once.
pub(crate) fn shared_dir(name: &str) -> PathBuf {
    let target = program("toolrack-guard");
    target.parent().and_then(Path::parent).unwrap().join("tmp-packages").join(name)
}

/// `PATH` with this directory in front.
pub(crate) fn path_with(dir: &Path) -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::iter::once(dir.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(dirs).unwrap().into_string().unwrap()
}

/// Why npm is not usable here; `None` if it is.
pub(crate) fn without_npm() -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "only npm knows its configured registry")]
    let mut npm = Command::new("npm");
    let view = npm.args(["view", "--fetch-retries=0", "npm", "version"]).output();
    let is_there = view.is_ok_and(|output| output.status.success());
    (!is_there).then(|| "npm is missing, or its registry cannot be reached".to_owned())
}

/// Why PyPI is not usable here; `None` if it is.
pub(crate) fn without_pypi() -> Option<String> {
    let found =
        ("pypi.org", 443).to_socket_addrs().is_ok_and(|mut addresses| addresses.next().is_some());
    (!found).then(|| "PyPI cannot be reached".to_owned())
}
