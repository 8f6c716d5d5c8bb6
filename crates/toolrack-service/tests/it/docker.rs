//! Servers in containers, with a real engine: they run, they end, and nothing of them is left.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::json;
use toolrack_config::{EnvValue, McpServerConfig, McpTransport, PackageKind};
use toolrack_manager::FailureKind;
use toolrack_service::Installer;
use toolrack_testkit::{DockerEngine, Kept, Marker, children_of, skipped};

use crate::packages_fixture::{LONG, eventually, failure, installer, manager, package, package_of};

const SECRET: &str = "s3cret-in-a-container";

/// The engine, unless there can be none here.
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
    let mut lines = lines.filter_map(|it| fs::read(it.path().join("cmdline")).ok());
    lines.any(|it| String::from_utf8_lossy(&it).contains(text))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_in_a_container_is_called_and_its_container_goes_with_it() {
    let engine = engine!("a_server_in_a_container_is_called_and_its_container_goes_with_it");
    let marker = Marker::new();
    let config = container("called", &marker);
    let manager = manager(config, with_engine(engine, &marker));
    let connection = manager.reconnect("called").await.unwrap();
    assert!(connection.is_connected(), "{}", connection.state());
    let answer = manager.call_tool("called", "env", &json!({})).await.unwrap();
    assert!(answer.content.contains(SECRET), "{}", answer.content);
    assert_eq!(n_containers(engine, "toolrack-called"), 1);
    assert!(!is_in_process_list(SECRET));
    manager.disconnect("called").await.unwrap();
    assert_eq!(n_containers(engine, "toolrack-called"), 0);
    marker.assert_nobody_left(std::time::Duration::ZERO);
    manager.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_is_deaf_is_removed_all_the_same() {
    let engine = engine!("a_container_that_is_deaf_is_removed_all_the_same");
    let marker = Marker::new();
    let mut config = container("deaf", &marker);
    package_of(&mut config).args = vec!["--plan".to_owned(), "ignore=term,eof".to_owned()];
    let manager = manager(config, with_engine(engine, &marker));
    let connection = manager.reconnect("deaf").await.unwrap();
    assert!(connection.is_connected(), "{}", connection.state());
    manager.disconnect("deaf").await.unwrap();
    // On a busy machine the guardian may still be at it when closing has stopped waiting.
    eventually("no container", || n_containers(engine, "toolrack-deaf") == 0).await;
    manager.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_image_and_a_silent_engine_are_told_apart() {
    let engine = engine!("a_missing_image_and_a_silent_engine_are_told_apart");
    let marker = Marker::new();
    let silent = Installer::new(std::env::temp_dir()).env("DOCKER_HOST", "unix:///nowhere.sock");
    let told =
        failure(McpServerConfig { name: "it".into(), ..container("x", &marker) }, silent).await;
    assert_eq!(told.kind(), FailureKind::DockerNotRunning, "{told}");
    assert!(told.reason().starts_with("Docker does not answer: "), "{told}");
    assert!(told.hint().is_some_and(|it| it.starts_with("start Docker")), "{:?}", told.hint());

    let registry = Registry::without_images();
    let image = format!("{}/no/such-image", registry.address);
    let config = package(PackageKind::Docker, &image, Some("1"), &marker);
    let told = failure(config, with_engine(engine, &marker)).await;
    assert_eq!(told.kind(), FailureKind::PackageNotFound, "{told}");
    assert!(told.reason().starts_with(&format!("the image `{image}:1` was not found")), "{told}");
}

/// A registry that has no image at all.
struct Registry {
    address: std::net::SocketAddr,
}

impl Registry {
    fn without_images() -> Self {
        use std::io::{Read as _, Write as _};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // Ends with the test program, like every thread that is not waited for.
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

/// Who is killed in the tests below: this test program, run again, with a server in a container.
const VICTIM: &str = "TOOLRACK_DOCKER_VICTIM";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn victim() {
    let Some(wish) = std::env::var_os(VICTIM) else { return };
    let wish = wish.into_string().unwrap();
    let (name, host) = wish.split_once(' ').unwrap();
    let marker = Marker::new();
    let installer = Installer::new(std::env::temp_dir()).env("DOCKER_HOST", host);
    let manager = manager(container(name, &marker), installer);
    let connection = manager.reconnect(name).await.unwrap();
    assert!(connection.is_connected(), "{}", connection.state());
    tokio::time::sleep(LONG).await;
}

/// Starts the victim and waits for its container.
async fn start_victim(engine: &DockerEngine, name: &str) -> (Kept, u32) {
    #[expect(clippy::disallowed_methods, reason = "somebody has to be killed")]
    let mut command = Command::new(std::env::current_exe().unwrap());
    let child = command
        .args(["docker::victim", "--exact"])
        .env(VICTIM, format!("{name} {}", engine.host()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id();
    let victim = Kept::new(child);
    let running = format!("toolrack-{name}");
    eventually("the container of the victim", || is_running(engine, &running)).await;
    (victim, pid)
}

fn is_running(engine: &DockerEngine, name: &str) -> bool {
    let filter = format!("--filter=name={name}");
    let listed = engine.ask(&["ps", "--quiet", &filter]).unwrap();
    !listed.stdout.is_empty()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_does_not_outlive_a_process_that_is_killed() {
    let engine = engine!("a_container_does_not_outlive_a_process_that_is_killed");
    let (victim, _pid) = start_victim(engine, "owner-killed").await;
    drop(victim);
    let gone = || n_containers(engine, "toolrack-owner-killed") == 0;
    eventually("no container", gone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_lost_everybody_is_swept_by_the_next_start() {
    let engine = engine!("a_container_that_lost_everybody_is_swept_by_the_next_start");
    let (victim, pid) = start_victim(engine, "all-killed").await;
    // The guardian first, so that it cannot do its work; it takes `docker` along, and the victim cannot
    // help because it is stopped.
    let signal = |pid: u32, signal| {
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    };
    signal(pid, rustix::process::Signal::STOP);
    for guardian in children_of(pid) {
        signal(guardian, rustix::process::Signal::KILL);
    }
    drop(victim);
    assert_eq!(n_containers(engine, "toolrack-all-killed"), 1, "somebody else ended it");
    let marker = Marker::new();
    let manager = manager(container("sweeper", &marker), with_engine(engine, &marker));
    let connection = manager.reconnect("sweeper").await.unwrap();
    assert!(connection.is_connected(), "{}", connection.state());
    assert_eq!(n_containers(engine, "toolrack-all-killed"), 0);
    manager.close().await;
}
