//! Packages of every kind from the real registries, and their failures.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use toolrack_config::{EnvValue, McpTransport, PackageKind};
use toolrack_manager::{ConnectPhase, ErrorKind, ManagerEvent, McpManager};
use toolrack_service::Installer;
use toolrack_testkit::{HttpServer, HttpServerKind, Marker, program, skipped};

use crate::packages_fixture::{
    connect, everything, failure, installer, manager, package, package_of, path_with, shared_dir,
    without_npm, without_pypi,
};

/// Skips the test if a requirement is missing.
macro_rules! need {
    ($test:literal, $missing:expr) => {
        if let Some(reason) = $missing {
            return skipped($test, &reason);
        }
    };
}

/// Directory of the pinned `uv`, if it is installed.
fn uv() -> Result<PathBuf, String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers/python/uv/venv/bin");
    let is_there = dir.join("uv").is_file();
    is_there.then_some(dir).ok_or_else(|| "uv is missing; run `cargo xtask servers`".to_owned())
}

/// An installer whose package managers share caches between test runs.
fn cached(data: &Path, marker: &Marker) -> Installer {
    let cache = |name| shared_dir(name).display().to_string();
    installer(data, marker)
        .env("npm_config_cache", cache("npm"))
        .env("UV_CACHE_DIR", cache("uv"))
        .env("PIP_CACHE_DIR", cache("pip"))
}

fn is_installing(event: &ManagerEvent) -> bool {
    matches!(event, ManagerEvent::PhaseChanged { phase: ConnectPhase::Installing, .. })
}

/// Connects, calls and closes. Returns whether something was installed.
async fn check(manager: McpManager, tool: &str, arguments: serde_json::Value, part: &str) -> bool {
    let events = manager.subscribe();
    let connection = connect(&manager).await;
    assert!(connection.is_connected(), "{}", connection.state());
    drop(connection);
    let result = manager.call_tool("pkg", tool, &arguments).await.unwrap();
    assert!(result.content.contains(part), "{}", result.content);
    everything(manager, events).await.iter().any(is_installing)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn npm_package_is_installed_once_and_then_starts_offline() {
    need!("npm_package_is_installed_once_and_then_starts_offline", without_npm());
    let (data, marker) = (tempfile::tempdir().unwrap(), Marker::new());
    let name = "@modelcontextprotocol/server-memory";
    let mut config = package(PackageKind::Npm, name, Some("2026.8.31"), &marker);
    if let McpTransport::Package { env, .. } = &mut config.transport {
        let file = data.path().join("memory.json").display().to_string();
        env.insert("MEMORY_FILE_PATH".to_owned(), EnvValue::Text(file));
    }
    let first = manager(config.clone(), cached(data.path(), &marker));
    let entity = json!({"entities": [
        {"name": "rack", "entityType": "thing", "observations": ["steel"]}
    ]});
    assert!(check(first, "create_entities", entity, "steel").await);
    // Nothing listens at this registry address, and it is not needed.
    let offline = cached(data.path(), &marker).env("npm_config_registry", "http://127.0.0.1:9/");
    assert!(!check(manager(config, offline), "read_graph", json!({}), "steel").await);
    marker.assert_no_processes_left(Duration::ZERO);
}

async fn check_time(installer: impl Fn() -> Installer, marker: &Marker) {
    let config = package(PackageKind::Pypi, "mcp-server-time", Some("2026.10.19"), marker);
    let question = || json!({"timezone": "Asia/Tokyo"});
    let ask = async || {
        let manager = manager(config.clone(), installer());
        check(manager, "get_current_time", question(), "Asia/Tokyo").await
    };
    assert!(ask().await, "the first start installs");
    assert!(!ask().await, "the second one does not");
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pypi_package_is_installed_with_uv() {
    need!("pypi_package_is_installed_with_uv", without_pypi().or(uv().err()));
    let (data, marker) = (tempfile::tempdir().unwrap(), Marker::new());
    let path = path_with(&uv().unwrap());
    check_time(|| cached(data.path(), &marker).env("PATH", &path), &marker).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pypi_package_is_installed_with_pip_without_uv() {
    need!("pypi_package_is_installed_with_pip_without_uv", without_pypi().or(uv().err()));
    let (data, marker) = (tempfile::tempdir().unwrap(), Marker::new());
    // A PATH with that interpreter alone.
    let bin = data.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let python = uv().unwrap().join("python3").canonicalize().unwrap();
    std::os::unix::fs::symlink(python, bin.join("python3")).unwrap();
    let path = bin.display().to_string();
    check_time(|| cached(data.path(), &marker).env("PATH", &path), &marker).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_package_and_unreachable_registry_differ() {
    need!(
        "missing_package_and_unreachable_registry_differ",
        without_npm().or(without_pypi()).or(uv().err())
    );
    let (data, marker) = (tempfile::tempdir().unwrap(), Marker::new());
    let path = path_with(&uv().unwrap());
    let installer = || cached(data.path(), &marker).env("PATH", &path).env("UV_HTTP_RETRIES", "0");
    let look = async |kind, name, version, installer| {
        let failure = failure(package(kind, name, version, &marker), installer).await;
        (failure.kind(), failure.reason().to_owned())
    };
    let (npm, pypi) = (PackageKind::Npm, PackageKind::Pypi);
    let nothing = "toolrack-no-such-package-0";
    let missing = |text: &str| (ErrorKind::PackageNotFound, text.to_owned());
    assert_eq!(
        look(npm, nothing, None, installer()).await,
        missing("`toolrack-no-such-package-0` was not found on npm")
    );
    assert_eq!(
        look(npm, "@modelcontextprotocol/server-memory", Some("0.0.0"), installer()).await,
        missing("`@modelcontextprotocol/server-memory@0.0.0` was not found on npm")
    );
    assert_eq!(
        look(pypi, nothing, None, installer()).await,
        missing("`toolrack-no-such-package-0` was not found on PyPI")
    );
    assert_eq!(
        look(pypi, "mcp-server-time", Some("0.0.0"), installer()).await,
        missing("`mcp-server-time==0.0.0` was not found on PyPI")
    );
    let silent = installer()
        .env("npm_config_registry", "http://127.0.0.1:9/")
        .env("npm_config_fetch_retries", "0")
        .env("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple");
    let silent = Arc::new(silent);
    for kind in [npm, pypi] {
        let mcp_manager = McpManager::builder().package_installer(Arc::clone(&silent) as Arc<_>);
        let mcp_manager = mcp_manager.build(vec![package(kind, nothing, None, &marker)]);
        let failure = connect(&mcp_manager).await.state().failure().cloned().unwrap();
        assert_eq!(failure.kind(), ErrorKind::Unreachable, "{failure}");
        mcp_manager.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_tool_is_named_with_a_hint() {
    let (data, marker) = (tempfile::tempdir().unwrap(), Marker::new());
    let look = async |kind| {
        let installer = installer(data.path(), &marker).env("PATH", "/nowhere");
        let failure = failure(package(kind, "x", None, &marker), installer).await;
        (failure.kind(), failure.reason().to_owned(), failure.hint().unwrap_or_default().to_owned())
    };
    let missing = |reason: &str, hint: &str| {
        let reason = format!("{reason} is required but was not found in PATH");
        (ErrorKind::MissingTool, reason, hint.to_owned())
    };
    assert_eq!(
        look(PackageKind::Npm).await,
        missing("`node`", "install Node.js 20 or newer, which includes `node`, `npm` and `npx`")
    );
    assert_eq!(
        look(PackageKind::Pypi).await,
        missing(
            "`uv` or `python3`",
            "install uv, see https://docs.astral.sh/uv, or Python 3.10 or newer"
        )
    );
    assert_eq!(
        look(PackageKind::Docker).await,
        missing("`docker`", "install Docker, see https://docs.docker.com/get-docker")
    );
    let (kind, reason, hint) = look(PackageKind::Binary).await;
    assert_eq!(kind, ErrorKind::PackageNotFound);
    assert_eq!(reason, "program `x` not found in PATH (/nowhere)");
    assert_eq!(hint, "install it, or give its full path");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn binaries_and_endpoints_are_not_installed() {
    let (data, marker) = (tempfile::tempdir().unwrap(), Marker::new());
    let server = program("scripted-server");
    let hello = || json!({"text": "hello"});
    let path = server.display().to_string();
    let config = package(PackageKind::Binary, &path, None, &marker);
    let mcp_manager = manager(config, installer(data.path(), &marker));
    assert!(!check(mcp_manager, "echo", hello(), "hello").await);

    let mut config = package(PackageKind::Binary, "scripted-server", None, &marker);
    package_of(&mut config).args = vec!["--plan".to_owned(), "ignore=term".to_owned()];
    let path = path_with(server.parent().unwrap());
    let mcp_manager = manager(config, installer(data.path(), &marker).env("PATH", path));
    assert!(!check(mcp_manager, "echo", hello(), "hello").await);

    let endpoint = HttpServer::start(HttpServerKind::scripted(&[])).unwrap();
    let config = package(PackageKind::Http, &endpoint.url(), None, &marker);
    let mcp_manager = manager(config, installer(data.path(), &marker));
    assert!(!check(mcp_manager, "echo", hello(), "hello").await);
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_required_secret_is_missing_credentials() {
    let (data, marker) = (tempfile::tempdir().unwrap(), Marker::new());
    let mut config = package(PackageKind::Npm, "x", None, &marker);
    if let McpTransport::Package { env, .. } = &mut config.transport {
        let secret = EnvValue::Secret { secret_ref: "git-token".to_owned(), required: true };
        env.insert("TOKEN".to_owned(), secret);
    }
    let failure = failure(config, installer(data.path(), &marker)).await;
    assert_eq!(failure.kind(), ErrorKind::MissingCredentials, "{failure}");
    assert!(failure.reason().contains("`git-token` does not exist"), "{failure}");
}
