//! Test fixture for the store: a temporary directory, and this test executable as a second process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use toolrack_service::{ConfigScope, ConfigStore, McpConfig};
use toolrack_testkit::ChildGuard;
use uuid::Uuid;

/// Long enough for anything here on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(2);

/// Tells a process started by [`spawn_self`] the path of its file.
const PATH: &str = "TOOLRACK_TEST_STORE_PATH";

/// A directory that is deleted after the test.
pub(crate) fn temp_dir() -> TempDir {
    tempfile::tempdir().unwrap()
}

pub(crate) fn store(dir: &TempDir) -> ConfigStore {
    ConfigStore::new(dir.path().join("toolrack.toml")).lock_timeout(TIMEOUT)
}

#[expect(clippy::disallowed_methods, reason = "what a person or an accident does to a file")]
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) {
    fs::write(path, bytes).unwrap();
}

/// The files in a directory, without locks.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let all =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = all.filter(|name| !name.contains(".lock")).collect();
    names.sort();
    names
}

pub(crate) fn server(name: &str) -> McpConfig {
    let package = json!({ "package_type": "binary", "identifier": "run-me" });
    let transport = json!({ "type": "stdio" });
    let config = json!({ "name": name, "package": package, "transport": transport });
    serde_json::from_value(config).unwrap()
}

/// Adds a server to the defaults.
pub(crate) fn add(store: &ConfigStore, name: &str) -> Uuid {
    store.edit(None, |document| document.add(&ConfigScope::Defaults, &server(name))).unwrap().0
}

/// The names of all servers in the file.
pub(crate) fn servers(store: &ConfigStore) -> Vec<String> {
    let entries = store.read().unwrap().document().unwrap().entries();
    entries.into_iter().map(|entry| entry.config.name).collect()
}

/// A counter in a server's config.
pub(crate) fn count(config: &McpConfig) -> u64 {
    config.config["x_count"].as_u64().unwrap()
}

pub(crate) fn counted(config: &McpConfig, count: u64) -> McpConfig {
    McpConfig { config: json!({ "x_count": count }), ..config.clone() }
}

/// Starts this test executable again for one of its tests, optionally below a wrapper such as `strace`.
#[expect(clippy::disallowed_methods, reason = "the test needs a second process")]
pub(crate) fn spawn_self(wrapper: &[String], test: &str, path: &Path) -> ChildGuard {
    let own = std::env::current_exe().unwrap();
    let mut argv: Vec<PathBuf> = wrapper.iter().map(PathBuf::from).collect();
    argv.push(own);
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]).args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env(PATH, path).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    ChildGuard::new(command.spawn().unwrap())
}

/// The path for a process started by [`spawn_self`]; `None` in a normal test run.
pub(crate) fn child_path() -> Option<PathBuf> {
    std::env::var_os(PATH).map(PathBuf::from)
}
