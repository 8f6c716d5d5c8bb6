//! Startup, shutdown, signals and death of a daemon.

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio_util::task::TaskTracker;
use toolrack_daemon::{Daemon, DaemonError, DaemonInfo, DaemonOptions};
use toolrack_service::Home;
use toolrack_testkit::program;

use crate::fixture::{Client, Fixture, LONG, check_problem, eventually, options, request_unix};

#[tokio::test(flavor = "multi_thread")]
async fn second_daemon_reports_the_running_one() {
    let fixture = Fixture::new();
    let (daemon, _) = fixture.start().await;
    let error = Daemon::start(fixture.home(), options()).await.unwrap_err();
    assert!(
        matches!(error, DaemonError::AlreadyRunning { pid: Some(pid), .. } if pid == std::process::id())
    );
    let found = DaemonInfo::find(&fixture.home()).unwrap().unwrap();
    assert_eq!((found.socket.as_path(), found.addr), (daemon.socket(), daemon.addr()));
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&fixture.home().run_dir()), 0o700);
    assert_eq!(mode(daemon.socket()), 0o600);
    assert_eq!(mode(&fixture.home().lock_file()), 0o600);
    fixture.shutdown(daemon).await;
    assert_eq!(DaemonInfo::find(&fixture.home()).unwrap(), None);
    let (daemon, _) = fixture.start().await;
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn startup_errors_have_hints() {
    let fixture = Fixture::new();
    let listen_on = |addr: &str| DaemonOptions { listen: Some(addr.parse().unwrap()), ..options() };
    let error = Daemon::start(fixture.home(), listen_on("0.0.0.0:0")).await.unwrap_err();
    assert!(matches!(error, DaemonError::NotLoopback(_)) && error.hint().is_some(), "{error}");
    let occupied = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = occupied.local_addr().unwrap().to_string();
    let error = Daemon::start(fixture.home(), listen_on(&addr)).await.unwrap_err();
    assert!(matches!(error, DaemonError::Listen { .. }) && error.hint().is_some(), "{error}");
    std::fs::File::create(fixture.home().config_file())
        .and_then(|mut file| std::io::Write::write_all(&mut file, b"[[defaults.mcp"))
        .unwrap();
    let error = Daemon::start(fixture.home(), options()).await.unwrap_err();
    assert!(matches!(error, DaemonError::Service(_)), "{error}");
    std::fs::remove_file(fixture.home().config_file()).unwrap();
    let (daemon, _) = fixture.start().await;
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn home_that_others_can_change_is_not_touched() {
    let fixture = Fixture::new();
    let home = Home::in_dir(fixture.dir.path().join("open"));
    std::fs::create_dir(home.dir()).unwrap();
    std::fs::set_permissions(home.dir(), Permissions::from_mode(0o777)).unwrap();
    let error = Daemon::start(home.clone(), options()).await.unwrap_err();
    assert!(matches!(error, DaemonError::Service(_)), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("chmod o-w")), "{error:?}");
    assert_eq!(std::fs::read_dir(home.dir()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn unix_socket_needs_no_token() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let status = request_unix(&daemon, "GET", "/api/daemon").await;
    assert_eq!(status.json()["pid"], json!(std::process::id()));
    let unauthenticated = Client { token: "x".to_owned(), ..client };
    check_problem(&unauthenticated.request("GET", "/mcp", None).await, 401, "UNAUTHORIZED", None);
    assert_eq!(request_unix(&daemon, "POST", "/api/daemon/stop").await.status, 202);
    tokio::time::timeout(LONG, daemon.stop_requested()).await.unwrap();
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_drains_running_calls_and_refuses_new_ones() {
    let fixture = Fixture::new();
    let slow_drain = DaemonOptions { drain: LONG, ..options() };
    let daemon = Daemon::start(fixture.home(), slow_drain).await.unwrap();
    let client = fixture.client(&daemon);
    client.add(&fixture.scripted("one", &[])).await;
    let caller = client.clone();
    let sleep = json!({ "tool": "one_sleep", "arguments": { "ms": 3000 } });
    let running_call = TaskTracker::new()
        .spawn(async move { caller.request("POST", "/api/calls", Some(sleep)).await });
    eventually("the call is running", async || {
        client.get("/api/calls").await["running"].as_array().unwrap().len() == 1
    })
    .await;
    let echo = json!({ "tool": "one_echo", "arguments": { "text": "x" } });
    let bytes = client.bytes("POST", "/api/calls", Some(&echo));
    let refused = eventually("a new call is refused", async || {
        let (addr, bytes) = (client.addr, bytes.clone());
        let sent = tokio::task::spawn_blocking(move || crate::http::send(addr, &bytes));
        // During the drain a request gets a 503; later the connection is refused.
        sent.await.unwrap().map_or(true, |response| response.status == 503)
    });
    let refused = async {
        refused.await;
        assert!(!running_call.is_finished(), "the first call was still running");
    };
    tokio::join!(fixture.shutdown(daemon), refused);
    assert_eq!(running_call.await.unwrap().status, 200);
    // A call that finished during the drain is recorded.
    let (daemon, client) = fixture.start().await;
    assert_eq!(client.get("/api/calls?tool=sleep").await["calls"][0]["outcome"], json!("done"));
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn call_longer_than_the_drain_time_is_aborted() {
    let fixture = Fixture::new();
    let drain = Duration::from_millis(200);
    let daemon = Daemon::start(fixture.home(), DaemonOptions { drain, ..options() }).await.unwrap();
    let client = fixture.client(&daemon);
    client.add(&fixture.scripted("one", &[])).await;
    let bytes = client.bytes(
        "POST",
        "/api/calls",
        Some(&json!({ "tool": "one_sleep", "arguments": { "ms": 60000 } })),
    );
    let addr = client.addr;
    let long = tokio::task::spawn_blocking(move || crate::http::send(addr, &bytes));
    eventually("the call is running", async || {
        client.get("/api/calls").await["running"].as_array().unwrap().len() == 1
    })
    .await;
    fixture.shutdown(daemon).await;
    assert!(tokio::time::timeout(LONG, long).await.unwrap().unwrap().is_err());
    let (daemon, client) = fixture.start().await;
    let last = client.get("/api/calls?tool=sleep").await["calls"][0].clone();
    assert_eq!(last["outcome"], json!("abandoned"));
    fixture.shutdown(daemon).await;
}

/// Document 002: the servers are disconnected before the database is closed. This one looks for the log of the open
/// database after its standard input was closed.
#[tokio::test(flavor = "multi_thread")]
async fn shutdown_disconnects_the_servers_before_the_history_is_closed() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let log = fixture.home().history_file().with_extension("db-wal");
    let seen = fixture.dir.path().join("seen");
    let script = format!(
        "'{}'; if [ -e '{}' ]; then echo open; else echo closed; fi > '{}'",
        program("scripted-server").display(),
        log.display(),
        seen.display()
    );
    let mut server = fixture.scripted("one", &["-c", &script]);
    server["package"]["identifier"] = json!("/bin/sh");
    client.add(&server).await;
    let echo = json!({ "tool": "one_echo", "arguments": { "text": "x" } });
    client.post("/api/calls", echo).await;
    eventually("the call is recorded", async || {
        !client.get("/api/calls").await["calls"].as_array().unwrap().is_empty()
    })
    .await;
    assert!(log.exists() && !seen.exists());
    fixture.shutdown(daemon).await;
    assert_eq!(std::fs::read_to_string(&seen).unwrap(), "open\n");
    assert!(!log.exists(), "the history was closed");
}

/// A daemon in a child process.
struct Process {
    child: Child,
    client: Client,
}

impl Process {
    #[expect(
        clippy::disallowed_methods,
        reason = "a daemon that is killed must be a child process"
    )]
    fn start(fixture: &Fixture) -> Self {
        let mut child = Command::new(program("examples/daemon"))
            .arg(fixture.dir.path())
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let addr = line.split(' ').nth(2).and_then(|addr| addr.parse().ok());
        let addr = addr.unwrap_or_else(|| panic!("not ready: {line:?}"));
        let token = fixture.admin.clone();
        Self { child, client: Client { addr, token } }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            self.child.kill().unwrap_or_default();
        }
        drop(self.child.wait());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sigkill_leaves_no_orphans_and_a_consistent_home() {
    let fixture = Fixture::new();
    let echo = json!({ "tool": "one_echo", "arguments": { "text": "x" } });
    let mut n_before = 0;
    for cycle in 0..3 {
        let process = Process::start(&fixture);
        let client = process.client.clone();
        if cycle == 0 {
            for (name, plan) in
                [("one", ""), ("deaf", "ignore=term,eof"), ("family", "start=children(2)")]
            {
                let args: &[&str] = if plan.is_empty() { &[] } else { &["--plan", plan] };
                client.post("/api/servers", fixture.scripted(name, args)).await;
            }
        }
        client.wait_for_state("one", "running").await;
        let n_calls =
            async || client.get("/api/calls?limit=500").await["calls"].as_array().unwrap().len();
        assert!(n_calls().await >= n_before, "the history is intact");
        let mut load = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let (client, echo) = (client.clone(), echo.clone());
            load.spawn(async move {
                let bytes = client.bytes("POST", "/api/calls", Some(&echo));
                // Until the daemon is killed.
                tokio::task::spawn_blocking(move || {
                    while crate::http::send(client.addr, &bytes).is_ok() {}
                })
                .await
                .unwrap();
            });
        }
        eventually("some calls are recorded", async || n_calls().await > n_before + 20).await;
        n_before = n_calls().await;
        process.signal(Signal::KILL);
        drop(process);
        fixture.marker.assert_no_processes_left(Duration::from_secs(5));
        load.join_all().await;
        let text = std::fs::read_to_string(fixture.home().config_file()).unwrap();
        assert_eq!(text.matches("[[defaults.mcp]]").count(), 3, "{text}");
    }
}

/// Answers requests; its tools are in a file.
const SERVER_OF_A_FILE: &str = r#"
say() { printf '{"jsonrpc":"2.0","id":%s,' "$1"; }
while read -r line; do
    id=${line#*'"id":'}; id=${id%%[,\}]*}
    case $line in
    *'"method":"initialize"'*)
        say "$id"; info='"serverInfo":{"name":"t","version":"1"}'
        echo '"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},'"$info"'}}' ;;
    *'"method":"tools/list"'*) say "$id"; cat "$0" ;;
    *'"id":'*) say "$id"; echo '"error":{"code":-32601,"message":"no method"}}' ;;
    esac
done
"#;

fn memory_kib(process: &Process) -> u64 {
    let path = format!("/proc/{}/status", process.child.id());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_of_a_removed_server_returns_to_the_system() {
    const N_TOOLS: usize = 4000;
    let fixture = Fixture::new();
    let process = Process::start(&fixture);
    let client = process.client.clone();
    client.get("/api/tools").await;
    let before = memory_kib(&process);
    let tool = |number: usize| {
        let description = "x".repeat(3000);
        json!({ "name": format!("t{number}"), "description": description, "inputSchema": { "type": "object" } })
    };
    let tools: Vec<_> = (0..N_TOOLS).map(tool).collect();
    let path = fixture.dir.path().join("tools");
    let text = format!("\"result\":{}}}\n", json!({ "tools": tools }));
    toolrack_platform::replace(&path, text.as_bytes()).unwrap();
    let mut document = fixture.scripted("large", &["-c", SERVER_OF_A_FILE]);
    document["package"]["identifier"] = json!("/bin/sh");
    document["config"]["args"].as_array_mut().unwrap().push(json!(path));
    let id = client.add(&document).await;
    assert_eq!(client.get("/api/tools").await["tools"].as_array().unwrap().len(), N_TOOLS);
    assert!(memory_kib(&process) > before + (10 << 10));
    client.request("DELETE", &format!("/api/servers/{id}"), None).await;
    eventually("the memory is returned", async || memory_kib(&process) < before + (6 << 10)).await;
    drop(process);
    fixture.marker.assert_no_processes_left(Duration::from_secs(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn first_signal_shuts_down_gracefully_and_second_forces_exit() {
    let fixture = Fixture::new();
    let mut process = Process::start(&fixture);
    process.client.add(&fixture.scripted("one", &[])).await;
    let stubborn = fixture.scripted("deaf", &["--plan", "ignore=term,eof"]);
    process.client.add(&stubborn).await;
    process.signal(Signal::TERM);
    let status =
        tokio::task::spawn_blocking(move || process.child.wait().map(|status| (status, process)));
    let (status, process) = tokio::time::timeout(LONG, status).await.unwrap().unwrap().unwrap();
    assert!(status.success(), "{status}");
    drop(process);
    fixture.marker.assert_no_processes_left(Duration::ZERO);

    let mut process = Process::start(&fixture);
    process.client.wait_for_state("deaf", "running").await;
    process.signal(Signal::TERM);
    let addr = process.client.addr;
    eventually("the first signal was handled", async || {
        std::net::TcpStream::connect(addr).is_err()
    })
    .await;
    process.signal(Signal::INT);
    let status =
        tokio::task::spawn_blocking(move || process.child.wait().map(|status| (status, process)));
    let (_, process) = tokio::time::timeout(LONG, status).await.unwrap().unwrap().unwrap();
    drop(process);
    fixture.marker.assert_no_processes_left(Duration::from_secs(5));
}
