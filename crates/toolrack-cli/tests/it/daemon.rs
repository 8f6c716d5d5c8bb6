//! The daemon process: concurrent starts, crashes, signals and the latency of calls.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use toolrack_testkit::{ChildGuard, HttpServer, HttpServerKind, eventually, program};

use crate::fixture::{Fixture, LONG, Outcome, outcome};

/// Number of servers that ignore SIGTERM and EOF.
const N_STUBBORN: usize = 50;

#[track_caller]
fn run(fixture: &Fixture, args: &[&str]) -> Outcome {
    let outcome = fixture.run(args);
    assert_eq!(outcome.status.code(), Some(0), "{args:?} {outcome:?}");
    outcome
}

/// PID of the daemon.
fn pid(fixture: &Fixture) -> u32 {
    let status = run(fixture, &["-o", "json", "daemon", "status"]).stdout;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    status["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).unwrap()
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "measures a separate process")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn concurrent_starts_share_one_daemon() {
    let fixture = Fixture::new();
    run(&fixture, &["add", "demo", "--no-check", "--", "demo-server"]);
    let outcomes: Vec<Outcome> = thread::scope(|scope| {
        let start = || {
            let mut command = fixture.toolrack(&["start", "demo"]);
            command.env_remove("TOOLRACK_NO_AUTOSTART");
            outcome(command)
        };
        let started: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for outcome in outcomes {
        assert_eq!(outcome.status.code(), Some(0), "{outcome:?}");
        assert!(outcome.stderr.contains("`demo` is running: 5 tools"), "{outcome:?}");
    }
    let log = std::fs::metadata(fixture.path().join("home/daemon.log")).unwrap();
    assert_eq!(log.permissions().mode() & 0o777, 0o600);
    run(&fixture, &["daemon", "stop"]);
    fixture.marker.assert_no_processes_left(Duration::ZERO);
}

#[test]
fn warm_call_starts_no_process() {
    let fixture = Fixture::new();
    run(&fixture, &["add", "demo", "--no-check", "--", "demo-server"]);
    run(&fixture, &["daemon", "start"]);
    run(&fixture, &["call", "demo.greet", "name=Ada"]);
    let server = |fixture: &Fixture| run(fixture, &["-o", "json", "status", "demo"]).stdout;
    let before = server(&fixture);
    let mut times: Vec<Duration> = (0..20)
        .map(|_| {
            let started = now();
            let called = run(&fixture, &["call", "demo.greet", "name=Ada"]);
            assert_eq!(called.stdout, "Hello, Ada!\n");
            started.elapsed()
        })
        .collect();
    times.sort();
    println!("a warm call: median {:?}, best {:?}", times[10], times[0]);
    let processes = |text: &str| {
        let status: serde_json::Value = serde_json::from_str(text).unwrap();
        status[0]["processes"][0]["pid"].clone()
    };
    assert!(processes(&before).is_u64(), "{before}");
    assert_eq!(processes(&before), processes(&server(&fixture)));
    run(&fixture, &["daemon", "stop"]);
    fixture.marker.assert_no_processes_left(Duration::ZERO);
}

/// A counter of the daemon's metrics.
fn metric(fixture: &Fixture, name: &str) -> u64 {
    let socket = fixture.path().join("home/run/daemon.sock");
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
fn missing_program_is_not_restarted_in_a_loop() {
    let fixture = Fixture::new();
    run(&fixture, &["daemon", "start"]);
    run(&fixture, &["add", "missing", "--no-check", "--", "no-such-program"]);
    let started = now();
    let outcome = fixture.run(&["start", "missing"]);
    println!("a failed start: {:?}", started.elapsed());
    assert_eq!(outcome.status.code(), Some(4), "{outcome:?}");
    let n_restarts = metric(&fixture, "toolrack_server_restarts_total");
    assert!(n_restarts < 10, "{n_restarts} restarts for one order");
    run(&fixture, &["daemon", "stop"]);
    fixture.marker.assert_no_processes_left(Duration::ZERO);
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
fn dashboard_link_is_single_use() {
    let fixture = Fixture::new();
    fixture.put("browser", "#!/bin/sh\nprintf %s \"$1\" > \"$0.saw\"\n");
    let browser = fixture.path().join("browser");
    std::fs::set_permissions(&browser, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = fixture.toolrack(&["dashboard"]);
    command.env_remove("TOOLRACK_NO_AUTOSTART").env("BROWSER", &browser);
    let opened = outcome(command);
    assert_eq!(opened.status.code(), Some(0), "{opened:?}");
    // The link is not printed where others could see it.
    assert!(!opened.stderr.contains("code="), "{opened:?}");
    let mut seen = String::new();
    eventually(LONG, "the browser was given a page", || {
        seen = std::fs::read_to_string(fixture.path().join("browser.saw")).unwrap_or_default();
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
    run(&fixture, &["daemon", "stop"]);
    fixture.marker.assert_no_processes_left(Duration::ZERO);
}

#[test]
fn killed_daemon_leaves_no_process() {
    let fixture = Fixture::new();
    run(&fixture, &["add", "demo", "--no-check", "--", "demo-server"]);
    for _ in 0..3 {
        run(&fixture, &["daemon", "start"]);
        run(&fixture, &["call", "demo.greet", "name=Ada"]);
        signal(pid(&fixture), Signal::KILL);
        fixture.marker.assert_no_processes_left(LONG);
        assert_eq!(fixture.run(&["daemon", "status"]).status.code(), Some(4));
    }
    // Commands work without a daemon, too.
    run(&fixture, &["call", "demo.greet", "name=Ada"]);
}

/// A server that stops its guardian when its stdin closes, and has processes outside its session, one without a tag.
#[test]
fn daemon_stop_and_kill_leave_no_process_of_a_server_that_stops_its_guardian() {
    let fixture = Fixture::new();
    let server = program("scripted-server").display().to_string();
    let (variable, value) = fixture.marker.env_var();
    for trigger in ["eof", "call:1"] {
        let plan = format!("ignore=term,eof; escape=2; escape=1,untagged; {trigger}=stopparent");
        fixture.put(
            "home/toolrack.toml",
            &format!(
                "[[defaults.mcp]]\nname = \"hostile\"\ncommand = {server:?}\n\
                 args = [\"--marker\", {value:?}, \"--plan\", {plan:?}]\n\
                 env = {{ {variable} = {value:?} }}\n"
            ),
        );
        run(&fixture, &["daemon", "start"]);
        run(&fixture, &["call", "hostile.echo", "text=x"]);
        run(&fixture, &["daemon", "stop"]);
        fixture.marker.assert_no_processes_left(Duration::ZERO);
    }
    // The guardian is stopped when the daemon dies: the kernel continues it.
    run(&fixture, &["daemon", "start"]);
    run(&fixture, &["call", "hostile.echo", "text=x"]);
    signal(pid(&fixture), Signal::KILL);
    fixture.marker.assert_no_processes_left(LONG);
}

/// A daemon in the foreground with many servers that ignore SIGTERM and EOF.
fn stubborn_daemon(fixture: &Fixture) -> Child {
    use std::fmt::Write as _;
    let server = program("scripted-server").display().to_string();
    let (variable, value) = fixture.marker.env_var();
    let mut config = String::new();
    for n in 0..N_STUBBORN {
        write!(
            config,
            "[[defaults.mcp]]\nname = \"s{n}\"\ncommand = {server:?}\n\
             args = [\"--plan\", \"ignore=term,eof\"]\nenv = {{ {variable} = {value:?} }}\n"
        )
        .unwrap();
    }
    fixture.put("home/toolrack.toml", &config);
    let mut command: Command = fixture.toolrack(&["daemon", "start", "--foreground"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually(LONG, "all servers run", || {
        let status = fixture.run(&["-o", "json", "daemon", "status"]).stdout;
        status.contains(&format!("\"n_running_servers\": {N_STUBBORN}"))
    });
    child
}

#[test]
fn second_signal_stops_stubborn_servers_at_once() {
    let fixture = Fixture::new();
    let child = stubborn_daemon(&fixture);
    let started = now();
    signal(child.id(), Signal::TERM);
    let (status, ..) = ChildGuard::new(child).wait_with_output(LONG).unwrap();
    println!("one signal: {:?}", started.elapsed());
    assert_eq!(status.code(), Some(0));
    fixture.marker.assert_no_processes_left(Duration::ZERO);

    let child = stubborn_daemon(&fixture);
    let pid = child.id();
    signal(pid, Signal::TERM);
    let socket = fixture.path().join("home/run/daemon.sock");
    eventually(LONG, "it has heard the first", || {
        std::os::unix::net::UnixStream::connect(&socket).is_err()
    });
    let started = now();
    signal(pid, Signal::INT);
    let (status, ..) = ChildGuard::new(child).wait_with_output(LONG).unwrap();
    println!("two signals: {:?}", started.elapsed());
    assert_eq!(status.code(), Some(130));
    fixture.marker.assert_no_processes_left(LONG);
}

#[test]
fn lost_server_fails_alike_with_and_without_daemon() {
    let fixture = Fixture::new();
    let mut server = HttpServer::start(HttpServerKind::scripted(&[])).unwrap();
    run(&fixture, &["add", "web", &server.url()]);
    run(&fixture, &["daemon", "start"]);
    run(&fixture, &["call", "web.add", "a=1", "b=2"]);
    assert!(run(&fixture, &["resources", "web"]).stdout.contains("test://readme"));
    server.kill();
    for asked in [
        ["prompts", "web", "-q"].as_slice(),
        &["resources", "web"],
        &["call", "web.add", "a=1", "b=2"],
        &["read", "test://readme"],
    ] {
        let outcome = fixture.run(asked);
        assert_eq!(outcome.status.code(), Some(4), "{asked:?} {outcome:?}");
        assert!(!outcome.stderr.contains("refused the call"), "{asked:?} {outcome:?}");
    }
    run(&fixture, &["daemon", "stop"]);
    fixture.marker.assert_no_processes_left(Duration::ZERO);
}
