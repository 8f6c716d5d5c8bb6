//! What tests of the store share: a folder with a config file, and this test executable as a second program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use toolrack_service::{
    ConfigScope, ConfigStore, McpConfig, McpPackage, McpPackageType, McpTransport,
};
use toolrack_testkit::Kept;
use uuid::Uuid;

/// Long enough for anything here on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// Says to a program started by [`again`] where its file is.
const PATH: &str = "TOOLRACK_TEST_STORE_PATH";

/// A folder that vanishes with the test.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

pub(crate) fn store(dir: &TempDir) -> ConfigStore {
    ConfigStore::new(dir.path().join("toolrack.toml")).lock_timeout(PATIENCE)
}

#[expect(clippy::disallowed_methods, reason = "what a person or an accident does to a file")]
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) {
    fs::write(path, bytes).unwrap();
}

/// What is in a folder, but for locks.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let all = fs::read_dir(dir).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = all.filter(|it| !it.contains(".lock")).collect();
    names.sort();
    names
}

pub(crate) fn server(name: &str) -> McpConfig {
    let package = McpPackage::new(McpPackageType::Binary, "run-me");
    McpConfig::new(name, package, McpTransport::Stdio)
}

/// Adds a server to the defaults.
pub(crate) fn add(store: &ConfigStore, name: &str) -> Uuid {
    store.edit(None, |it| it.add(&ConfigScope::Defaults, &server(name))).unwrap().0
}

/// The names of all servers in the file.
pub(crate) fn servers(store: &ConfigStore) -> Vec<String> {
    let entries = store.read().unwrap().document().unwrap().entries();
    entries.into_iter().map(|it| it.config.name).collect()
}

/// A number that a server of the file counts to.
pub(crate) fn count(config: &McpConfig) -> u64 {
    config.config["x_count"].as_u64().unwrap()
}

pub(crate) fn counted(config: &McpConfig, count: u64) -> McpConfig {
    McpConfig { config: json!({ "x_count": count }), ..config.clone() }
}

/// This test executable once more, for one of its tests, behind another program if there is one.
#[expect(clippy::disallowed_methods, reason = "a test starts the programs it is about")]
pub(crate) fn again(behind: &[String], test: &str, path: &Path) -> Kept {
    let own = std::env::current_exe().unwrap();
    let mut words: Vec<PathBuf> = behind.iter().map(PathBuf::from).collect();
    words.push(own);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env(PATH, path).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Kept::new(command.spawn().unwrap())
}

/// The file for a program that was started by [`again`]; `None` in a normal run of the tests.
pub(crate) fn given_path() -> Option<PathBuf> {
    std::env::var_os(PATH).map(PathBuf::from)
}
