//! Servers in Docker containers, with a real engine: they run, they stop, and nothing is left behind.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::json;
use toolrack_config::{EnvValue, McpServerConfig, McpTransport, PackageKind};
use toolrack_manager::ErrorKind;
use toolrack_service::Installer;
use toolrack_testkit::{ChildGuard, DockerEngine, Marker, children_of, skipped};

use crate::packages_fixture::{
    TIMEOUT, eventually, failure, installer, manager, package, package_of,
};

const SECRET: &str = "s3cret-in-a-container";

/// The Docker engine, or a skipped test.
macro_rules! engine {
    ($test:literal) => {
        match DockerEngine::shared() {
            Ok(engine) => engine,
            Err(reason) => return skipped($test, &reason),
        }
    };
}

/// The scripted server in a container, with a name that only this test uses.
fn container(name: &str, marker: &Marker) -> McpServerConfig {
    let mut config = package(PackageKind::Docker, DockerEngine::IMAGE, None, marker);
    package_of(&mut config).runtime_args = vec!["--network=none".to_owned()];
    let McpTransport::Package { env, .. } = &mut config.transport else { panic!() };
    env.insert("TOKEN".to_owned(), EnvValue::from(SECRET));
    McpServerConfig { name: name.to_owned(), ..config }
}

fn with_engine(engine: &DockerEngine, marker: &Marker) -> Installer {
    installer(&std::env::temp_dir(), marker).env("DOCKER_HOST", engine.host())
}

fn n_containers(engine: &DockerEngine, name: &str) -> usize {
    engine.containers(name).unwrap().len()
}

/// Whether the text is among the arguments of any process.
fn is_in_process_list(text: &str) -> bool {
    let lines = fs::read_dir("/proc").unwrap().flatten();
    let mut lines = lines.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.any(|line| String::from_utf8_lossy(&line).contains(text))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn container_server_is_called_and_removed() {
    let engine = engine!("container_server_is_called_and_removed");
    let marker = Marker::new();
    let config = container("called", &marker);
    let manager = manager(config, with_engine(engine, &marker));
    let connection = manager.reconnect("called").await.unwrap();
    assert!(connection.is_connected(), "{}", connection.state());
    let result = manager.call_tool("called", "env", &json!({})).await.unwrap();
    assert!(result.content.contains(SECRET), "{}", result.content);
    assert_eq!(n_containers(engine, "toolrack-called"), 1);
    assert!(!is_in_process_list(SECRET));
    manager.disconnect("called").await.unwrap();
    assert_eq!(n_containers(engine, "toolrack-called"), 0);
    marker.assert_no_processes_left(std::time::Duration::ZERO);
    manager.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unresponsive_container_is_removed() {
    let engine = engine!("unresponsive_container_is_removed");
    let marker = Marker::new();
    let mut config = container("deaf", &marker);
    package_of(&mut config).args = vec!["--plan".to_owned(), "ignore=term,eof".to_owned()];
    let manager = manager(config, with_engine(engine, &marker));
    let connection = manager.reconnect("deaf").await.unwrap();
    assert!(connection.is_connected(), "{}", connection.state());
    manager.disconnect("deaf").await.unwrap();
    // On a busy machine the guardian may still be removing the container when `disconnect` returns.
    eventually("no container", || n_containers(engine, "toolrack-deaf") == 0).await;
    manager.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_image_and_stopped_engine_differ() {
    let engine = engine!("missing_image_and_stopped_engine_differ");
    let marker = Marker::new();
    let installer = Installer::new(std::env::temp_dir()).env("DOCKER_HOST", "unix:///nowhere.sock");
    let stopped =
        failure(McpServerConfig { name: "pkg".into(), ..container("x", &marker) }, installer).await;
    assert_eq!(stopped.kind(), ErrorKind::DockerNotRunning, "{stopped}");
    assert!(stopped.reason().starts_with("Docker is not responding: "), "{stopped}");
    assert!(
        stopped.hint().is_some_and(|hint| hint.starts_with("start Docker")),
        "{:?}",
        stopped.hint()
    );

    let registry = Registry::without_images();
    let image = format!("{}/no/such-image", registry.address);
    let config = package(PackageKind::Docker, &image, Some("1"), &marker);
    let missing = failure(config, with_engine(engine, &marker)).await;
    assert_eq!(missing.kind(), ErrorKind::PackageNotFound, "{missing}");
    assert!(
        missing.reason().starts_with(&format!("the image `{image}:1` was not found")),
        "{missing}"
    );
}

/// A registry without images.
struct Registry {
    address: std::net::SocketAddr,
}

impl Registry {
    fn without_images() -> Self {
        use std::io::{Read as _, Write as _};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // Ends with the test process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { continue };
                let mut request = [0; 4096];
                let n_bytes = stream.read(&mut request).unwrap_or(0);
                let request = String::from_utf8_lossy(&request[..n_bytes]).into_owned();
                let unknown =
                    r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;
                let is_greeting = request.contains(" /v2/ ");
                let (status, body) =
                    if is_greeting { ("200 OK", "{}") } else { ("404 Not Found", unknown) };
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n\
                     Docker-Distribution-Api-Version: registry/2.0\r\nConnection: close\r\n\
                     Content-Length: {length}\r\n\r\n"
                );
                let body = if request.starts_with("HEAD") { "" } else { body };
                stream.write_all((head + body).as_bytes()).unwrap_or_default();
            }
        });
        Self { address }
    }
}

/// For the tests below: this test executable, run again with a server in a container, to be killed.
const OWNER: &str = "TOOLRACK_DOCKER_OWNER";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn container_owner() {
    let Some(spec) = std::env::var_os(OWNER) else { return };
    let spec = spec.into_string().unwrap();
    let (name, host) = spec.split_once(' ').unwrap();
    let marker = Marker::new();
    let installer = Installer::new(std::env::temp_dir()).env("DOCKER_HOST", host);
    let manager = manager(container(name, &marker), installer);
    let connection = manager.reconnect(name).await.unwrap();
    assert!(connection.is_connected(), "{}", connection.state());
    tokio::time::sleep(TIMEOUT).await;
}

/// Starts the owner process and waits for its container.
async fn start_container_owner(engine: &DockerEngine, name: &str) -> (ChildGuard, u32) {
    #[expect(clippy::disallowed_methods, reason = "the test kills a second process")]
    let mut command = Command::new(std::env::current_exe().unwrap());
    let child = command
        .args(["docker::container_owner", "--exact"])
        .env(OWNER, format!("{name} {}", engine.host()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id();
    let owner = ChildGuard::new(child);
    let running = format!("toolrack-{name}");
    eventually("the container of the owner", || is_running(engine, &running)).await;
    (owner, pid)
}

fn is_running(engine: &DockerEngine, name: &str) -> bool {
    let filter = format!("--filter=name={name}");
    let listed = engine.run(&["ps", "--quiet", &filter]).unwrap();
    !listed.stdout.is_empty()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn container_does_not_outlive_a_killed_process() {
    let engine = engine!("container_does_not_outlive_a_killed_process");
    let (owner, _pid) = start_container_owner(engine, "owner-killed").await;
    drop(owner);
    let is_removed = || n_containers(engine, "toolrack-owner-killed") == 0;
    eventually("no container", is_removed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphaned_container_is_removed_by_the_next_start() {
    let engine = engine!("orphaned_container_is_removed_by_the_next_start");
    let (owner, pid) = start_container_owner(engine, "all-killed").await;
    // Stop the owner and kill its guardian, so that neither can remove the container. The guardian's death takes
    // `docker` with it.
    let signal = |pid: u32, signal| {
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    };
    signal(pid, rustix::process::Signal::STOP);
    for guardian in children_of(pid) {
        signal(guardian, rustix::process::Signal::KILL);
    }
    drop(owner);
    assert_eq!(n_containers(engine, "toolrack-all-killed"), 1, "another process removed it");
    let marker = Marker::new();
    let manager = manager(container("sweeper", &marker), with_engine(engine, &marker));
    let connection = manager.reconnect("sweeper").await.unwrap();
    assert!(connection.is_connected(), "{}", connection.state());
    assert_eq!(n_containers(engine, "toolrack-all-killed"), 0);
    manager.close().await;
}
