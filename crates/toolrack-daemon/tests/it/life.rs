//! One daemon per home, how it ends, and what is left when it is killed.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio_util::task::TaskTracker;
use toolrack_daemon::{Daemon, DaemonError, DaemonOptions, Running, token_file};
use toolrack_testkit::program;

use crate::stage::{Client, LONG, Stage, ask_unix, check_problem, eventually, options};

#[tokio::test(flavor = "multi_thread")]
async fn a_second_daemon_says_who_runs() {
    let stage = Stage::new();
    let (daemon, _) = stage.start().await;
    let error = Daemon::start(stage.home(), options()).await.unwrap_err();
    assert!(
        matches!(error, DaemonError::Running { pid: Some(pid), .. } if pid == std::process::id())
    );
    let found = Running::find(&stage.home()).unwrap().unwrap();
    assert_eq!((found.socket.as_path(), found.addr), (daemon.socket(), daemon.addr()));
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&stage.home().run_dir()), 0o700);
    assert_eq!((mode(daemon.socket()), mode(&token_file(&stage.home()))), (0o600, 0o600));
    assert_eq!(mode(&stage.home().lock_file()), 0o600);
    stage.end(daemon).await;
    assert_eq!(Running::find(&stage.home()).unwrap(), None);
    let (daemon, _) = stage.start().await;
    stage.end(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_started_says_what_to_do() {
    let stage = Stage::new();
    let at = |addr: &str| DaemonOptions { listen: Some(addr.parse().unwrap()), ..options() };
    let error = Daemon::start(stage.home(), at("0.0.0.0:0")).await.unwrap_err();
    assert!(matches!(error, DaemonError::NotLoopback(_)) && error.hint().is_some(), "{error}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let error = Daemon::start(stage.home(), at(&addr)).await.unwrap_err();
    assert!(matches!(error, DaemonError::Address { .. }) && error.hint().is_some(), "{error}");
    std::fs::File::create(stage.home().config_file())
        .and_then(|mut it| std::io::Write::write_all(&mut it, b"[[defaults.mcp"))
        .unwrap();
    let error = Daemon::start(stage.home(), options()).await.unwrap_err();
    assert!(matches!(error, DaemonError::Service(_)), "{error}");
    std::fs::remove_file(stage.home().config_file()).unwrap();
    let (daemon, _) = stage.start().await;
    stage.end(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_socket_needs_no_key() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    let about = ask_unix(&daemon, "GET", "/api/daemon").await;
    assert_eq!(about.json()["pid"], json!(std::process::id()));
    let stranger = Client { token: "x".to_owned(), ..client };
    check_problem(&stranger.ask("GET", "/mcp", None).await, 401, "UNAUTHORIZED", None);
    assert_eq!(ask_unix(&daemon, "POST", "/api/daemon/stop").await.status, 202);
    tokio::time::timeout(LONG, daemon.asked_to_stop()).await.unwrap();
    stage.end(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_under_way_are_waited_for_and_new_ones_refused() {
    let stage = Stage::new();
    let patient = DaemonOptions { drain: LONG, ..options() };
    let daemon = Daemon::start(stage.home(), patient).await.unwrap();
    let client = Client::of(&daemon);
    client.add(&stage.scripted("one", &[])).await;
    let caller = client.clone();
    let sleep = json!({ "tool": "one_sleep", "arguments": { "ms": 3000 } });
    let under_way = TaskTracker::new()
        .spawn(async move { caller.ask("POST", "/api/calls", Some(sleep)).await });
    eventually("it is under way", async || {
        client.get("/api/calls").await["running"].as_array().unwrap().len() == 1
    })
    .await;
    let echo = json!({ "tool": "one_echo", "arguments": { "text": "x" } });
    let bytes = client.bytes("POST", "/api/calls", Some(&echo));
    let refused = eventually("a new call is refused", async || {
        let (addr, bytes) = (client.addr, bytes.clone());
        let sent = tokio::task::spawn_blocking(move || crate::http::send(addr, &bytes));
        // Whoever comes in the very moment is told; later nobody is let in at all.
        sent.await.unwrap().map_or(true, |answer| answer.status == 503)
    });
    let refused = async {
        refused.await;
        assert!(!under_way.is_finished(), "the other one was still under way");
    };
    tokio::join!(stage.end(daemon), refused);
    assert_eq!(under_way.await.unwrap().status, 200);
    // What was under way at the end is remembered.
    let (daemon, client) = stage.start().await;
    assert_eq!(client.get("/api/calls?tool=sleep").await["calls"][0]["outcome"], json!("done"));
    stage.end(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_takes_too_long_is_cut_off_at_the_end() {
    let stage = Stage::new();
    let drain = Duration::from_millis(200);
    let daemon = Daemon::start(stage.home(), DaemonOptions { drain, ..options() }).await.unwrap();
    let client = Client::of(&daemon);
    client.add(&stage.scripted("one", &[])).await;
    let bytes = client.bytes(
        "POST",
        "/api/calls",
        Some(&json!({ "tool": "one_sleep", "arguments": { "ms": 60000 } })),
    );
    let addr = client.addr;
    let long = tokio::task::spawn_blocking(move || crate::http::send(addr, &bytes));
    eventually("it is under way", async || {
        client.get("/api/calls").await["running"].as_array().unwrap().len() == 1
    })
    .await;
    stage.end(daemon).await;
    assert!(tokio::time::timeout(LONG, long).await.unwrap().unwrap().is_err());
    let (daemon, client) = stage.start().await;
    let last = client.get("/api/calls?tool=sleep").await["calls"][0].clone();
    assert_eq!(last["outcome"], json!("abandoned"));
    stage.end(daemon).await;
}

/// A daemon in a process of its own.
struct Process {
    child: Child,
    client: Client,
}

impl Process {
    #[expect(
        clippy::disallowed_methods,
        reason = "a daemon that is killed must be another process"
    )]
    fn start(stage: &Stage) -> Self {
        let mut child = Command::new(program("examples/daemon"))
            .arg(stage.dir.path())
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let addr = line.split(' ').nth(2).and_then(|it| it.parse().ok());
        let addr = addr.unwrap_or_else(|| panic!("not ready: {line:?}"));
        let token = std::fs::read_to_string(token_file(&stage.home())).unwrap();
        Self { child, client: Client { addr, token } }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|it| it.is_none()) {
            self.child.kill().unwrap_or_default();
        }
        drop(self.child.wait());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_daemon_leaves_no_process_and_a_home_in_order() {
    let stage = Stage::new();
    let echo = json!({ "tool": "one_echo", "arguments": { "text": "x" } });
    let mut n_before = 0;
    for cycle in 0..3 {
        let process = Process::start(&stage);
        let client = process.client.clone();
        if cycle == 0 {
            for (name, plan) in
                [("one", ""), ("deaf", "ignore=term,eof"), ("family", "start=children(2)")]
            {
                let args: &[&str] = if plan.is_empty() { &[] } else { &["--plan", plan] };
                client.post("/api/servers", stage.scripted(name, args)).await;
            }
        }
        client.until_state("one", "running").await;
        let n_calls =
            async || client.get("/api/calls?limit=500").await["calls"].as_array().unwrap().len();
        assert!(n_calls().await >= n_before, "the history is intact");
        let mut load = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let (client, echo) = (client.clone(), echo.clone());
            load.spawn(async move {
                let bytes = client.bytes("POST", "/api/calls", Some(&echo));
                // Until the daemon is gone.
                tokio::task::spawn_blocking(move || {
                    while crate::http::send(client.addr, &bytes).is_ok() {}
                })
                .await
                .unwrap();
            });
        }
        eventually("some calls are written", async || n_calls().await > n_before + 20).await;
        n_before = n_calls().await;
        process.signal(Signal::KILL);
        drop(process);
        stage.marker.assert_nobody_left(Duration::from_secs(5));
        load.join_all().await;
        let text = std::fs::read_to_string(stage.home().config_file()).unwrap();
        assert_eq!(text.matches("[[defaults.mcp]]").count(), 3, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_everything_in_order_and_a_second_one_at_once() {
    let stage = Stage::new();
    let mut process = Process::start(&stage);
    process.client.add(&stage.scripted("one", &[])).await;
    let stubborn = stage.scripted("deaf", &["--plan", "ignore=term,eof"]);
    process.client.add(&stubborn).await;
    process.signal(Signal::TERM);
    let status = tokio::task::spawn_blocking(move || process.child.wait().map(|it| (it, process)));
    let (status, process) = tokio::time::timeout(LONG, status).await.unwrap().unwrap().unwrap();
    assert!(status.success(), "{status}");
    drop(process);
    stage.marker.assert_nobody_left(Duration::ZERO);

    let mut process = Process::start(&stage);
    process.client.until_state("deaf", "running").await;
    process.signal(Signal::TERM);
    let addr = process.client.addr;
    eventually("it has heard the first", async || std::net::TcpStream::connect(addr).is_err())
        .await;
    process.signal(Signal::INT);
    let status = tokio::task::spawn_blocking(move || process.child.wait().map(|it| (it, process)));
    let (_, process) = tokio::time::timeout(LONG, status).await.unwrap().unwrap().unwrap();
    drop(process);
    stage.marker.assert_nobody_left(Duration::from_secs(5));
}
