//! Installations with a fake `npm` that the test controls: slow, stopped, concurrent, killed.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;
use toolrack_config::{McpServerConfig, PackageKind};
use toolrack_manager::{ConnectPhase, ConnectionState, ErrorKind, ManagerEvent, McpManager};
use toolrack_service::Installer;
use toolrack_testkit::{ChildGuard, Marker, program};

use crate::packages_fixture::{
    TIMEOUT, connect, eventually, everything, failure, installer, manager, package, package_of,
};

/// Records each run, waits for the file `go`, and installs our scripted server.
const NPM: &str = r#"#!/bin/sh
for word; do case $word in --prefix=*) dir=${word#--prefix=};; esac; done
echo asked >>"@/asked"
mkdir -p "$dir/node_modules/fake" "$dir/node_modules/.bin"
echo '{"dependencies":{"fake":"1.0.0"}}' >"$dir/package.json"
echo '{"name":"fake","bin":"server"}' >"$dir/node_modules/fake/package.json"
echo 'fetching the package' >&2
sleep 1000 & helper=$!
while [ ! -e "@/go" ]; do sleep 0.05; done
kill $helper
ln -s "@/server" "$dir/node_modules/.bin/fake"
"#;

/// A directory with the fake `npm` in its `PATH`.
struct FakeNpm {
    dir: tempfile::TempDir,
    marker: Marker,
}

impl FakeNpm {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("bin");
        fs::create_dir(&bin).unwrap();
        let script = NPM.replace('@', &dir.path().display().to_string());
        fs::copy("/bin/true", bin.join("node")).unwrap();
        put(&bin.join("npm"), &script);
        symlink(program("scripted-server"), dir.path().join("server")).unwrap();
        Self { dir, marker: Marker::new() }
    }

    fn config(&self) -> McpServerConfig {
        package(PackageKind::Npm, "fake", Some("1.0.0"), &self.marker)
    }

    fn installer(&self) -> Installer {
        let path = format!("{}/bin:/usr/bin:/bin", self.dir.path().display());
        installer(&self.data(), &self.marker).env("PATH", path)
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn manager(&self, config: McpServerConfig) -> McpManager {
        manager(config, self.installer())
    }

    /// Lets the fake `npm` finish.
    fn finish(&self) {
        fs::File::create(self.dir.path().join("go")).unwrap();
    }

    fn n_runs(&self) -> usize {
        let runs = fs::read_to_string(self.dir.path().join("asked"));
        runs.map_or(0, |text| text.lines().count())
    }

    /// Number of complete installations.
    fn n_complete(&self) -> usize {
        let packages =
            fs::read_dir(self.data().join("packages/npm")).into_iter().flatten().flatten();
        packages.filter(|package| package.path().join(".toolrack-program").exists()).count()
    }
}

fn put(file: &Path, script: &str) {
    use std::io::Write as _;
    fs::File::create(file).unwrap().write_all(script.as_bytes()).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
}

fn phase(manager: &McpManager) -> Option<ConnectPhase> {
    manager.server("pkg").unwrap().phase()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_installation_outlasts_the_startup_timeout() {
    let fake = FakeNpm::new();
    let config = McpServerConfig { startup_timeout: Duration::from_secs(3), ..fake.config() };
    let wait = config.startup_timeout + Duration::from_millis(200);
    let manager = fake.manager(config);
    let events = manager.subscribe();
    let finishing = async {
        eventually("the phase", || phase(&manager) == Some(ConnectPhase::Installing)).await;
        assert_eq!(*manager.server("pkg").unwrap().state(), ConnectionState::Connecting);
        // Not a wait for a condition: the installation has to take this long.
        tokio::time::sleep(wait).await;
        assert_eq!(phase(&manager), Some(ConnectPhase::Installing));
        fake.finish();
    };
    let (connection, ()) = tokio::join!(connect(&manager), finishing);
    assert!(connection.is_connected(), "{}", connection.state());
    assert_eq!(connection.phase(), None);
    let result = manager.call_tool("pkg", "echo", &json!({"text": "hello"})).await.unwrap();
    assert!(result.content.contains("hello"), "{}", result.content);
    drop(connection);
    let (mut phases, mut lines) = (Vec::new(), Vec::new());
    for event in everything(manager, events).await {
        match event {
            ManagerEvent::PhaseChanged { phase, .. } => phases.push(phase.as_str()),
            ManagerEvent::InstallerOutput { line, .. } => lines.push(line.to_string()),
            _ => {}
        }
    }
    phases.dedup();
    assert_eq!(phases.first().copied(), Some("starting"));
    assert_eq!(phases.get(1..3), Some(&["installing", "starting"][..]), "{phases:?}");
    assert_eq!(phases.last().copied(), Some("listing"), "{phases:?}");
    assert_eq!(lines, ["fetching the package"]);
    fake.marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_installation_leaves_nothing_behind() {
    let fake = FakeNpm::new();
    let manager = fake.manager(fake.config());
    let stopping = async {
        eventually("npm at work", || fake.n_runs() == 1 && fake.marker.survivors().len() > 1).await;
        manager.disconnect("pkg").await.unwrap();
        fake.marker.assert_no_processes_left(Duration::ZERO);
    };
    let (connection, ()) = tokio::join!(connect(&manager), stopping);
    assert!(!connection.is_connected());
    assert_eq!(*manager.server("pkg").unwrap().state(), ConnectionState::Disconnected);
    assert_eq!(fake.n_complete(), 0);
    fake.finish();
    let connection = connect(&manager).await;
    assert!(connection.is_connected(), "{}", connection.state());
    assert_eq!((fake.n_runs(), fake.n_complete()), (2, 1));
    manager.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn installation_has_its_own_timeout() {
    let fake = FakeNpm::new();
    let config = McpServerConfig { install_timeout: Duration::from_millis(700), ..fake.config() };
    let failure = failure(config, fake.installer()).await;
    assert_eq!(failure.kind(), ErrorKind::InstallTimedOut, "{failure}");
    assert_eq!(failure.reason(), "package was not installed within 700ms");
    assert!(
        failure.hint().is_some_and(|hint| hint.contains("install_timeout")),
        "{:?}",
        failure.hint()
    );
    fake.marker.assert_no_processes_left(Duration::ZERO);
    assert_eq!(fake.n_complete(), 0);
}

/// For the tests below: this test executable, run again to install and connect.
const PROCESS: &str = "TOOLRACK_INSTALLING_PROCESS";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn installing_process() {
    let Some(dir) = std::env::var_os(PROCESS) else { return };
    let dir = PathBuf::from(dir);
    let marker = Marker::new();
    let path = format!("{}/bin:/usr/bin:/bin", dir.display());
    let installer = installer(&dir.join("data"), &marker).env("PATH", path);
    let manager = manager(package(PackageKind::Npm, "fake", Some("1.0.0"), &marker), installer);
    let connection = connect(&manager).await;
    assert!(connection.is_connected(), "{}", connection.state());
    manager.close().await;
}

fn start_process(fake: &FakeNpm) -> ChildGuard {
    #[expect(clippy::disallowed_methods, reason = "two programs are to install at once")]
    let mut command = Command::new(std::env::current_exe().unwrap());
    let command = command.args(["packages_npm::installing_process", "--exact"]);
    let command =
        command.env(PROCESS, fake.dir.path()).stdout(Stdio::piped()).stderr(Stdio::null());
    ChildGuard::new(command.spawn().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_processes_install_a_package_once() {
    let fake = FakeNpm::new();
    let mut processes = [start_process(&fake), start_process(&fake), start_process(&fake)];
    eventually("npm at work", || fake.n_runs() > 0).await;
    fake.finish();
    for process in &mut processes {
        let (status, lines, _) = process.wait_with_output(TIMEOUT).unwrap();
        assert!(status.success(), "{lines}");
    }
    assert_eq!((fake.n_runs(), fake.n_complete()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn incomplete_installation_is_never_started() {
    let fake = FakeNpm::new();
    let process = start_process(&fake);
    eventually("npm at work", || fake.n_runs() == 1).await;
    // Killed in the middle: its directory is left, its lock is free.
    drop(process);
    fake.finish();
    let manager = fake.manager(fake.config());
    let connection = connect(&manager).await;
    assert!(connection.is_connected(), "{}", connection.state());
    assert_eq!((fake.n_runs(), fake.n_complete()), (2, 1));
    manager.close().await;
}

/// Records how it was called, answers queries like a container engine, and becomes our scripted server.
const RUNNER: &str = r#"#!/bin/sh
case "$1 $2" in
  "image inspect") exit 0;;
  info*|ps*|rm*) exit 0;;
esac
echo "${0##*/} $*" >"@/called"
exec "@/server"
"#;

/// Spec 004: the program that `runtime_hint` names is what is started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runtime_hint_is_the_program_that_is_started() {
    let fake = FakeNpm::new();
    let dir = fake.dir.path();
    let script = RUNNER.replace('@', &dir.display().to_string());
    let called = async |kind: PackageKind, hint: &str| {
        put(&dir.join("bin").join(hint), &script);
        let mut config = package(kind, "fake", Some("1.0"), &fake.marker);
        package_of(&mut config).runtime_hint = Some(hint.to_owned());
        package_of(&mut config).args = vec!["--stdio".to_owned()];
        let manager = fake.manager(config);
        let connection = connect(&manager).await;
        assert!(connection.is_connected(), "{hint}: {}", connection.state());
        drop(connection);
        manager.close().await;
        fs::read_to_string(dir.join("called")).unwrap().trim_end().to_owned()
    };
    let (npm, pypi) = (PackageKind::Npm, PackageKind::Pypi);
    assert_eq!(called(npm, "npx").await, "npx --yes fake@1.0 --stdio");
    assert_eq!(called(npm, "bunx").await, "bunx fake@1.0 --stdio");
    assert_eq!(called(npm, "pnpm").await, "pnpm dlx fake@1.0 --stdio");
    assert_eq!(called(pypi, "uvx").await, "uvx --from fake==1.0 fake --stdio");
    assert_eq!(called(pypi, "pipx").await, "pipx run --spec fake==1.0 fake --stdio");
    let podman = called(PackageKind::Docker, "podman").await;
    assert!(podman.starts_with("podman run --rm --interactive "), "{podman}");
    assert!(podman.ends_with(" -- fake:1.0 --stdio"), "{podman}");
    assert_eq!((fake.n_runs(), fake.n_complete()), (0, 0), "nothing was installed");
    fake.marker.assert_no_processes_left(Duration::ZERO);
}
