//! A daemon that is stopped, or that ignores requests, costs seconds and can be ended.

use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use toolrack_testkit::eventually;

use crate::fixture::{Fixture, LONG, Outcome};

/// Four seconds until a daemon counts as unresponsive, and a margin for a busy machine.
const LIMIT: Duration = Duration::from_secs(12);

#[expect(clippy::disallowed_methods, reason = "measures a separate process")]
fn timed(fixture: &Fixture, args: &[&str]) -> (Outcome, Duration) {
    let started = Instant::now();
    let outcome = fixture.run(args);
    (outcome, started.elapsed())
}

/// A daemon with one server that has been called, and their processes.
fn stopped_daemon(fixture: &Fixture) -> u32 {
    for args in [
        ["add", "demo", "--no-check", "--", "demo-server"].as_slice(),
        &["daemon", "start"],
        &["call", "demo.greet", "name=Ada"],
    ] {
        let outcome = fixture.run(args);
        assert_eq!(outcome.status.code(), Some(0), "{args:?} {outcome:?}");
    }
    let status = fixture.run(&["-o", "json", "daemon", "status"]).stdout;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let pid = status["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).unwrap();
    signal(pid, Signal::STOP);
    pid
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

#[test]
fn stopped_daemon_is_reported_in_seconds_and_stopped() {
    let fixture = Fixture::new();
    let pid = stopped_daemon(&fixture);
    let says = |args: &[&str]| {
        let (outcome, elapsed) = timed(&fixture, args);
        println!("{args:?}: {elapsed:?}");
        assert!(elapsed < LIMIT, "{args:?} {elapsed:?} {outcome:?}");
        assert_eq!(outcome.status.code(), Some(4), "{args:?} {outcome:?}");
        let text = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(text.contains(&format!("(process {pid}) does not answer")), "{args:?} {text}");
        // What the hint names works.
        assert!(text.contains("toolrack daemon stop"), "{args:?} {text}");
        assert!(!text.contains("daemon status"), "{args:?} {text}");
    };
    says(&["status"]);
    says(&["tools"]);
    says(&["call", "demo.greet", "name=Ada"]);
    says(&["call", "demo.greet", "name=Ada", "--timeout", "60s"]);
    says(&["start", "demo"]);
    says(&["stop", "demo"]);
    says(&["restart", "demo"]);
    says(&["resources"]);
    for args in
        [["daemon", "status"].as_slice(), &["daemon", "start"], &["dashboard", "--no-browser"]]
    {
        says(args);
        // It would not help.
        let (outcome, _) = timed(&fixture, args);
        assert!(!outcome.stderr.contains("--no-daemon"), "{args:?} {outcome:?}");
    }
    says(&["serve"]);
    says(&["doctor"]);
    for args in [["list"].as_slice(), &["logs", "demo"], &["daemon", "logs"]] {
        let (outcome, elapsed) = timed(&fixture, args);
        assert!(elapsed < LIMIT && outcome.status.code() == Some(0), "{args:?} {outcome:?}");
    }
    let without = fixture.run(&["--no-daemon", "call", "demo.greet", "name=Ada"]);
    assert_eq!(without.stdout, "Hello, Ada!\n", "{without:?}");
    let (stopped, elapsed) = timed(&fixture, &["-o", "json", "daemon", "stop"]);
    println!("daemon stop: {elapsed:?}");
    assert_eq!(stopped.status.code(), Some(0), "{stopped:?}");
    assert!(stopped.stdout.contains("\"signal\": \"SIGTERM\""), "{stopped:?}");
    assert!(elapsed < LIMIT + Duration::from_secs(10), "{elapsed:?}");
    fixture.marker.assert_no_processes_left(Duration::ZERO);
    let (again, _) = timed(&fixture, &["daemon", "stop"]);
    assert!(again.stderr.contains("no daemon is running"), "{again:?}");
}

/// A daemon in the foreground with a server that takes five seconds to stop.
fn foreground_daemon(fixture: &Fixture) -> Child {
    let server = toolrack_testkit::program("scripted-server").display().to_string();
    let add = ["add", "s", "--no-check", "--", &server, "--plan", "ignore=term,eof"];
    assert_eq!(fixture.run(&add).status.code(), Some(0));
    let mut command = fixture.toolrack(&["daemon", "start", "--foreground"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually(LONG, "the daemon serves", || {
        fixture.run(&["call", "s.echo", "text=x"]).status.code() == Some(0)
            && fixture.run(&["daemon", "status"]).status.code() == Some(0)
    });
    child
}

/// The daemon reads the request to stop and the signal at the same moment.
#[test]
fn daemon_that_gets_a_stop_request_and_a_signal_stops_gracefully() {
    let fixture = Fixture::new();
    let mut child = foreground_daemon(&fixture);
    signal(child.id(), Signal::STOP);
    let reaper = std::thread::spawn(move || child.wait().unwrap());
    let (stopped, _) = timed(&fixture, &["-o", "json", "daemon", "stop"]);
    assert!(stopped.stdout.contains("\"signal\": \"SIGTERM\""), "{stopped:?}");
    assert_eq!(reaper.join().unwrap().code(), Some(0));
    fixture.marker.assert_no_processes_left(Duration::ZERO);
}

#[test]
fn daemon_without_its_socket_gets_a_signal_and_stops_gracefully() {
    let fixture = Fixture::new();
    let mut child = foreground_daemon(&fixture);
    let status = fixture.run(&["-o", "json", "daemon", "status"]).stdout;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    // In its place, so that the daemon does not restore it.
    std::fs::remove_file(status["socket"].as_str().unwrap()).unwrap();
    drop(std::os::unix::net::UnixListener::bind(status["socket"].as_str().unwrap()).unwrap());
    let reaper = std::thread::spawn(move || child.wait().unwrap());
    let (stopped, _) = timed(&fixture, &["-o", "json", "daemon", "stop"]);
    assert_eq!(stopped.status.code(), Some(0), "{stopped:?}");
    assert!(stopped.stdout.contains("\"signal\": \"SIGTERM\""), "{stopped:?}");
    assert_eq!(reaper.join().unwrap().code(), Some(0));
    fixture.marker.assert_no_processes_left(Duration::ZERO);
}

/// A process that holds the instance lock like a daemon, answers nothing and ignores SIGTERM.
#[test]
fn daemon_that_ignores_sigterm_is_killed_with_its_servers() {
    let fixture = Fixture::new();
    fixture.put("home/run/daemon.lock", "");
    let lock = fixture.path().join("home/run/daemon.lock");
    // Connections are accepted by the system, and never read.
    let socket = fixture.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let script = "exec 9<>\"$0\"; flock -x 9; trap '' TERM; echo locked; \
                  sh -c 'trap \"\" TERM; sleep 60' 9>&- & while :; do sleep 0.1 9>&-; done";
    let mut command = fixture.command("sh");
    command.arg("-c").arg(script).arg(&lock).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = [0; 7];
    child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    let started = toolrack_stdio::process_start_time(child.id()).unwrap();
    let info = serde_json::json!({
        "pid": child.id(), "start_time": started, "socket": socket,
        "addr": null, "version": "1", "config": "/c", "agent": null,
    });
    overwrite(&lock, &info);
    let reaper = std::thread::spawn(move || child.wait().unwrap());
    // It has 45 seconds after SIGTERM.
    let stopped = fixture.run_within(3 * LONG, &["-o", "json", "daemon", "stop"]);
    assert_eq!(stopped.status.code(), Some(0), "{stopped:?}");
    assert!(stopped.stdout.contains("\"signal\": \"SIGKILL\""), "{stopped:?}");
    assert_eq!(reaper.join().unwrap().signal(), Some(Signal::KILL.as_raw()));
    fixture.marker.assert_no_processes_left(Duration::ZERO);
}

/// The info that a killed daemon left names a pid that another process has now.
#[test]
fn process_with_a_reused_pid_is_not_signaled() {
    let fixture = Fixture::new();
    let pid = stopped_daemon(&fixture);
    let lock = fixture.path().join("home/run/daemon.lock");
    let mut info: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&lock).unwrap()).unwrap();
    let started = info["start_time"].as_u64().unwrap();
    let mut bystander = fixture.command("sleep").arg("60").spawn().unwrap();
    info["pid"] = bystander.id().into();
    info["start_time"] = (started + 1).into();
    overwrite(&lock, &info);
    let (refused, _) = timed(&fixture, &["daemon", "stop"]);
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    assert!(refused.stderr.contains("is not process"), "{refused:?}");
    assert!(bystander.try_wait().unwrap().is_none());
    bystander.kill().unwrap();
    bystander.wait().unwrap();
    info["pid"] = pid.into();
    info["start_time"] = started.into();
    overwrite(&lock, &info);
    signal(pid, Signal::CONT);
    // It may have read the first request to stop meanwhile.
    let (stopped, _) = timed(&fixture, &["daemon", "stop"]);
    assert_eq!(stopped.status.code(), Some(0), "{stopped:?}");
    fixture.marker.assert_no_processes_left(Duration::ZERO);
}

/// In place, because the daemon holds a lock on the file.
fn overwrite(path: &std::path::Path, info: &serde_json::Value) {
    use std::io::Write as _;
    let mut file = std::fs::OpenOptions::new().write(true).truncate(true).open(path).unwrap();
    file.write_all(info.to_string().as_bytes()).unwrap();
}
