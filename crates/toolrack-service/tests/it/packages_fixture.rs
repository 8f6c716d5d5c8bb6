//! What the tests of packages share: managers with an installer, configs, and waiting for facts.

use std::collections::HashMap;
use std::net::ToSocketAddrs as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use toolrack_config::{McpServerConfig, McpTransport, Package, PackageKind};
use toolrack_manager::{Failure, McpConnection, McpManager, RackEvent, RackEvents};
use toolrack_service::Installer;
use toolrack_stdio::{Guardian, StdioOptions};
use toolrack_testkit::{Marker, eventually_async, program};

/// Long enough for a busy machine and a slow registry.
pub(crate) const LONG: Duration = Duration::from_mins(3);

/// A server that is a package, whose processes can be found by their marker.
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
        runtime_args: Vec::new(),
    };
    let (variable, value) = marker.pair();
    let env = HashMap::from([(variable.to_owned(), value.into())]);
    let transport = McpTransport::Package { package, env, cwd: None, headers: HashMap::new() };
    McpServerConfig::new("it", transport)
}

/// The package of a config, to be changed.
pub(crate) fn package_of(config: &mut McpServerConfig) -> &mut Package {
    match &mut config.transport {
        McpTransport::Package { package, .. } => package,
        _ => panic!("no package"),
    }
}

/// A manager of one server that is a package. Installers carry the marker too.
pub(crate) fn manager(config: McpServerConfig, installer: Installer) -> McpManager {
    let guardian = Guardian::Program(program("toolrack-guard"));
    McpManager::builder()
        .stdio(StdioOptions { guardian, ..StdioOptions::default() })
        .packages(Arc::new(installer))
        .build(vec![config])
}

/// An installer whose commands carry the marker.
pub(crate) fn installer(data: &Path, marker: &Marker) -> Installer {
    let (variable, value) = marker.pair();
    Installer::new(data).env(variable, value)
}

/// Connects, and gives the server as it then stands.
pub(crate) async fn connect(manager: &McpManager) -> Arc<McpConnection> {
    manager.reconnect("it").await.unwrap()
}

/// Connects to no avail, and says why.
pub(crate) async fn failure(config: McpServerConfig, installer: Installer) -> Failure {
    let manager = manager(config, installer);
    let connection = connect(&manager).await;
    manager.close().await;
    connection.state().failure().cloned().unwrap_or_else(|| panic!("{}", connection.state()))
}

/// Ends the manager, and gives everything that it has told. Nobody else may hold a connection of it.
pub(crate) async fn everything(manager: McpManager, mut events: RackEvents) -> Vec<RackEvent> {
    manager.close().await;
    drop(manager);
    let mut told = Vec::new();
    let listening = async {
        while let Some(event) = events.next().await {
            told.push(event);
        }
    };
    tokio::time::timeout(Duration::from_secs(20), listening).await.unwrap();
    told
}

pub(crate) async fn eventually(what: &str, mut fact: impl FnMut() -> bool) {
    eventually_async(LONG, what, tokio::time::sleep, async || fact()).await;
}

/// A folder that later runs find again, so that registries are asked once.
pub(crate) fn shared_dir(name: &str) -> PathBuf {
    let target = program("toolrack-guard");
    target.parent().and_then(Path::parent).unwrap().join("tmp-packages").join(name)
}

/// The present `PATH` with this folder in front.
pub(crate) fn path_with(dir: &Path) -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::iter::once(dir.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(dirs).unwrap().into_string().unwrap()
}

/// Why packages cannot be had from npm here, or nothing when they can.
pub(crate) fn without_npm() -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "only npm knows which registry it asks")]
    let mut npm = Command::new("npm");
    let asked = npm.args(["view", "--fetch-retries=0", "npm", "version"]).output();
    let is_there = asked.is_ok_and(|it| it.status.success());
    (!is_there).then(|| "npm is missing, or its registry cannot be reached".to_owned())
}

/// The same for PyPI.
pub(crate) fn without_pypi() -> Option<String> {
    let found = ("pypi.org", 443).to_socket_addrs().is_ok_and(|mut it| it.next().is_some());
    (!found).then(|| "PyPI cannot be reached".to_owned())
}
