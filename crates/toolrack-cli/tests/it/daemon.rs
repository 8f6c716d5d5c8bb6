//! The daemon process: concurrent starts, crashes, signals and the latency of calls.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use toolrack_testkit::{HttpServer, HttpServerKind, Kept, eventually, program};

use crate::stage::{LONG, Outcome, Stage, outcome};

/// Number of servers that ignore SIGTERM and EOF.
const N_STUBBORN: usize = 50;

#[track_caller]
fn run(stage: &Stage, args: &[&str]) -> Outcome {
    let outcome = stage.run(args);
    assert_eq!(outcome.status.code(), Some(0), "{args:?} {outcome:?}");
    outcome
}

/// PID of the daemon.
fn pid(stage: &Stage) -> u32 {
    let status = run(stage, &["-o", "json", "daemon", "status"]).output;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    status["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).unwrap()
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "how long a program takes is what is measured")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn who_needs_a_daemon_starts_one_and_several_at_once_share_it() {
    let stage = Stage::new();
    run(&stage, &["add", "demo", "--no-check", "--", "demo-server"]);
    let outcomes: Vec<Outcome> = thread::scope(|scope| {
        let start = || {
            let mut command = stage.toolrack(&["start", "demo"]);
            command.env_remove("TOOLRACK_NO_AUTOSTART");
            outcome(command)
        };
        let started: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for outcome in outcomes {
        assert_eq!(outcome.status.code(), Some(0), "{outcome:?}");
        assert!(outcome.talk.contains("`demo` runs: 5 tools"), "{outcome:?}");
    }
    let log = std::fs::metadata(stage.path().join("home/daemon.log")).unwrap();
    assert_eq!(log.permissions().mode() & 0o777, 0o600);
    run(&stage, &["daemon", "stop"]);
    stage.marker.assert_nobody_left(Duration::ZERO);
}

#[test]
fn a_warm_call_starts_nothing() {
    let stage = Stage::new();
    run(&stage, &["add", "demo", "--no-check", "--", "demo-server"]);
    run(&stage, &["daemon", "start"]);
    run(&stage, &["call", "demo.greet", "name=Ada"]);
    let server = |stage: &Stage| run(stage, &["-o", "json", "status", "demo"]).output;
    let before = server(&stage);
    let mut times: Vec<Duration> = (0..20)
        .map(|_| {
            let begun = now();
            let called = run(&stage, &["call", "demo.greet", "name=Ada"]);
            assert_eq!(called.output, "Hello, Ada!\n");
            begun.elapsed()
        })
        .collect();
    times.sort();
    println!("a warm call: median {:?}, best {:?}", times[10], times[0]);
    let processes = |text: &str| {
        let status: serde_json::Value = serde_json::from_str(text).unwrap();
        status[0]["processes"][0]["pid"].clone()
    };
    assert!(processes(&before).is_u64(), "{before}");
    assert_eq!(processes(&before), processes(&server(&stage)));
    run(&stage, &["daemon", "stop"]);
    stage.marker.assert_nobody_left(Duration::ZERO);
}

/// A counter of the daemon's metrics.
fn counted(stage: &Stage, name: &str) -> u64 {
    let socket = stage.path().join("home/run/daemon.sock");
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let lines = text.lines().filter(|line| line.starts_with(name));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn a_server_without_its_program_is_started_once_and_not_stormed() {
    let stage = Stage::new();
    run(&stage, &["daemon", "start"]);
    run(&stage, &["add", "missing", "--no-check", "--", "no-such-program"]);
    let begun = now();
    let outcome = stage.run(&["start", "missing"]);
    println!("a failed start: {:?}", begun.elapsed());
    assert_eq!(outcome.status.code(), Some(4), "{outcome:?}");
    let n_restarts = counted(&stage, "toolrack_server_restarts_total");
    assert!(n_restarts < 10, "{n_restarts} restarts for one order");
    run(&stage, &["daemon", "stop"]);
    stage.marker.assert_nobody_left(Duration::ZERO);
}

/// Status line of a dashboard login with this code.
fn log_in(port: &str, code: &str) -> String {
    let mut stream = std::net::TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    let body = format!("{{\"code\":\"{code}\"}}");
    write!(
        stream,
        "POST /api/login HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn the_page_is_opened_by_a_link_that_is_good_once() {
    let stage = Stage::new();
    stage.put("browser", "#!/bin/sh\nprintf %s \"$1\" > \"$0.saw\"\n");
    let browser = stage.path().join("browser");
    std::fs::set_permissions(&browser, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = stage.toolrack(&["dashboard"]);
    command.env_remove("TOOLRACK_NO_AUTOSTART").env("BROWSER", &browser);
    let opened = outcome(command);
    assert_eq!(opened.status.code(), Some(0), "{opened:?}");
    // The link is not printed where others could see it.
    assert!(!opened.talk.contains("code="), "{opened:?}");
    let mut seen = String::new();
    eventually(LONG, "the browser was given a page", || {
        seen = std::fs::read_to_string(stage.path().join("browser.saw")).unwrap_or_default();
        seen.contains(".html")
    });
    // Command lines are readable by all users, so the code is in a private file.
    assert!(!seen.contains("code="), "{seen}");
    let file = std::path::Path::new(&seen);
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(file), mode(file.parent().unwrap())), (0o600, 0o700));
    let page = std::fs::read_to_string(file).unwrap();
    let (_, link) = page.split_once("location.replace(\"http://127.0.0.1:").unwrap();
    let (port, rest) = link.split_once("/#code=").unwrap();
    let (code, _) = rest.split_once('"').unwrap();
    assert_eq!(log_in(port, code), "HTTP/1.1 200 OK");
    assert!(!file.exists(), "a page that was used is left");
    assert_eq!(log_in(port, code), "HTTP/1.1 401 Unauthorized");
    run(&stage, &["daemon", "stop"]);
    stage.marker.assert_nobody_left(Duration::ZERO);
}

#[test]
fn a_killed_daemon_leaves_nothing_and_the_next_one_starts() {
    let stage = Stage::new();
    run(&stage, &["add", "demo", "--no-check", "--", "demo-server"]);
    for _ in 0..3 {
        run(&stage, &["daemon", "start"]);
        run(&stage, &["call", "demo.greet", "name=Ada"]);
        signal(pid(&stage), Signal::KILL);
        stage.marker.assert_nobody_left(LONG);
        assert_eq!(stage.run(&["daemon", "status"]).status.code(), Some(4));
    }
    // Commands work without a daemon, too.
    run(&stage, &["call", "demo.greet", "name=Ada"]);
}

/// A daemon in the foreground with many servers that ignore SIGTERM and EOF.
fn stubborn(stage: &Stage) -> Child {
    use std::fmt::Write as _;
    let server = program("scripted-server").display().to_string();
    let (variable, value) = stage.marker.pair();
    let mut config = String::new();
    for n in 0..N_STUBBORN {
        write!(
            config,
            "[[defaults.mcp]]\nname = \"s{n}\"\ncommand = {server:?}\n\
             args = [\"--plan\", \"ignore=term,eof\"]\nenv = {{ {variable} = {value:?} }}\n"
        )
        .unwrap();
    }
    stage.put("home/toolrack.toml", &config);
    let mut command: Command = stage.toolrack(&["daemon", "start", "--foreground"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually(LONG, "all servers run", || {
        let status = stage.run(&["-o", "json", "daemon", "status"]).output;
        status.contains(&format!("\"n_running_servers\": {N_STUBBORN}"))
    });
    child
}

#[test]
fn a_signal_ends_fifty_stubborn_servers_in_order_and_two_end_them_at_once() {
    let stage = Stage::new();
    let child = stubborn(&stage);
    let begun = now();
    signal(child.id(), Signal::TERM);
    let (status, ..) = Kept::new(child).output(LONG).unwrap();
    println!("one signal: {:?}", begun.elapsed());
    assert_eq!(status.code(), Some(0));
    stage.marker.assert_nobody_left(Duration::ZERO);

    let child = stubborn(&stage);
    let pid = child.id();
    signal(pid, Signal::TERM);
    let socket = stage.path().join("home/run/daemon.sock");
    eventually(LONG, "it has heard the first", || {
        std::os::unix::net::UnixStream::connect(&socket).is_err()
    });
    let begun = now();
    signal(pid, Signal::INT);
    let (status, ..) = Kept::new(child).output(LONG).unwrap();
    println!("two signals: {:?}", begun.elapsed());
    assert_eq!(status.code(), Some(130));
    stage.marker.assert_nobody_left(LONG);
}

#[test]
fn a_server_that_has_gone_fails_behind_the_daemon_as_it_does_without() {
    let stage = Stage::new();
    let mut server = HttpServer::start(HttpServerKind::scripted(&[])).unwrap();
    run(&stage, &["add", "web", &server.url()]);
    run(&stage, &["daemon", "start"]);
    run(&stage, &["call", "web.add", "a=1", "b=2"]);
    assert!(run(&stage, &["resources", "web"]).output.contains("test://readme"));
    server.kill();
    for asked in [
        ["prompts", "web", "-q"].as_slice(),
        &["resources", "web"],
        &["call", "web.add", "a=1", "b=2"],
        &["read", "test://readme"],
    ] {
        let outcome = stage.run(asked);
        assert_eq!(outcome.status.code(), Some(4), "{asked:?} {outcome:?}");
        assert!(!outcome.talk.contains("refused the call"), "{asked:?} {outcome:?}");
    }
    run(&stage, &["daemon", "stop"]);
    stage.marker.assert_nobody_left(Duration::ZERO);
}
