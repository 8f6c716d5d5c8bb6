//! Test fixture: a home in a temporary directory, scripted servers with a marker, and helpers that wait.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use toolrack_manager::{Failure, ManagerEvent, ManagerEvents};
use toolrack_service::{
    Autostart, EnvVarConfig, Home, LocalService, McpConfig, McpPackage, McpPackageType,
    McpService as _, McpSource, McpStatus, McpTransport, ServiceError, ServiceOptions, WatchConfig,
};
use toolrack_stdio::{Guardian, StdioOptions};
use toolrack_testkit::{Marker, eventually_async, program};
use uuid::Uuid;

/// Long enough for a busy machine, short enough for a test.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// A home in a temporary directory, and a marker in the environment of every server process.
pub(crate) struct Fixture {
    pub(crate) dir: TempDir,
    pub(crate) marker: Marker,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), marker: Marker::new() }
    }

    pub(crate) fn home(&self) -> Home {
        Home::in_dir(self.dir.path())
    }

    /// A service that starts nothing by itself.
    pub(crate) async fn open(&self) -> LocalService {
        LocalService::open(self.home(), options()).await.unwrap()
    }

    /// A service that starts all servers and watches the file, as the daemon does.
    pub(crate) async fn open_as_daemon(&self) -> LocalService {
        let options = ServiceOptions {
            autostart: Autostart::AllEnabled,
            watch_config: WatchConfig::Yes,
            ..options()
        };
        LocalService::open(self.home(), options).await.unwrap()
    }

    /// A scripted server with the marker.
    pub(crate) fn scripted(&self, name: &str, args: &[&str]) -> McpConfig {
        let identifier = program("scripted-server").display().to_string();
        let mut config = binary(name, &identifier, args);
        let (variable, value) = self.marker.env_var();
        config.env_vars.insert(variable.to_owned(), plain(variable, value));
        config
    }

    /// A scripted server behind a symlink. Removing the link makes the next start fail.
    pub(crate) fn linked(&self, name: &str, args: &[&str]) -> (McpConfig, PathBuf) {
        let link = self.path().join("scripted-server-link");
        symlink(program("scripted-server"), &link).unwrap();
        let mut config = self.scripted(name, args);
        config.package.identifier = link.display().to_string();
        (config, link)
    }

    pub(crate) fn text(&self) -> String {
        fs::read_to_string(self.home().config_file()).unwrap_or_default()
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Closes the service and checks that no process is left.
    pub(crate) async fn end(&self, service: &LocalService) {
        service.close().await;
        self.marker.assert_no_processes_left(Duration::ZERO);
    }
}

pub(crate) fn options() -> ServiceOptions {
    let guardian = Guardian::Program(program("toolrack-guard"));
    let stdio = StdioOptions { guardian, ..StdioOptions::default() };
    ServiceOptions { stdio, ..ServiceOptions::default() }
}

pub(crate) fn binary(name: &str, identifier: &str, args: &[&str]) -> McpConfig {
    let config = if args.is_empty() { Value::Null } else { json!({ "args": args }) };
    let package = McpPackage {
        package_type: McpPackageType::Binary,
        identifier: identifier.to_owned(),
        version: None,
        runtime_hint: None,
    };
    McpConfig {
        id: Uuid::nil(),
        name: name.to_owned(),
        enabled: true,
        source: McpSource::Manual,
        package,
        transport: McpTransport::Stdio,
        env_vars: BTreeMap::new(),
        config,
    }
}

pub(crate) fn http(name: &str, url: &str) -> McpConfig {
    let plain = binary(name, url, &[]);
    McpConfig {
        package: McpPackage { package_type: McpPackageType::Http, ..plain.package },
        transport: McpTransport::Http { url: url.to_owned() },
        ..plain
    }
}

pub(crate) fn plain(name: &str, value: &str) -> EnvVarConfig {
    EnvVarConfig {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        secret_ref: None,
        is_secret: false,
        required: false,
    }
}

pub(crate) fn secret(name: &str, secret_ref: &str) -> EnvVarConfig {
    EnvVarConfig {
        value: None,
        secret_ref: Some(secret_ref.to_owned()),
        is_secret: true,
        required: true,
        ..plain(name, "")
    }
}

/// Process id of the only scripted server with the marker.
pub(crate) fn pid(marker: &Marker) -> u32 {
    let servers: Vec<u32> = marker
        .survivors()
        .into_iter()
        .filter(|process| process.command_line.contains("scripted-server"))
        .map(|process| process.pid)
        .collect();
    assert_eq!(servers.len(), 1, "one process: {servers:?}");
    servers[0]
}

/// An environment variable of a process.
pub(crate) fn process_env(pid: u32, name: &str) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
    let text = String::from_utf8_lossy(&environment).into_owned();
    text.split('\0').find_map(|entry| entry.strip_prefix(&format!("{name}=")).map(str::to_owned))
}

pub(crate) fn is_running(status: &McpStatus) -> bool {
    matches!(status, McpStatus::Running { .. })
}

/// `CODE message (field)` of the first detail.
pub(crate) fn describe(error: &ServiceError) -> String {
    let fault = &error.details()[0];
    match &fault.field {
        Some(field) => format!("{} {} ({field})", fault.code, fault.message),
        None => format!("{} {}", fault.code, fault.message),
    }
}

pub(crate) async fn eventually(what: &str, mut fact: impl FnMut() -> bool) {
    eventually_async(TIMEOUT, what, tokio::time::sleep, async || fact()).await;
}

/// Waits until a server has this status.
pub(crate) async fn until(service: &LocalService, id: Uuid, fact: impl Fn(&McpStatus) -> bool) {
    eventually("the status", || fact(&service.status(id))).await;
}

/// The next failure among the events.
pub(crate) async fn next_failure(events: &mut ManagerEvents) -> Failure {
    let failed = async {
        loop {
            if let Some(ManagerEvent::StateChanged { state, .. }) = events.next().await
                && let Some(failure) = state.failure()
            {
                return failure.clone();
            }
        }
    };
    tokio::time::timeout(TIMEOUT, failed).await.unwrap()
}

/// The text of a call without arguments.
pub(crate) async fn call(service: &LocalService, id: Uuid, tool: &str) -> String {
    service.call_tool(id, tool, &json!({})).await.unwrap()
}
