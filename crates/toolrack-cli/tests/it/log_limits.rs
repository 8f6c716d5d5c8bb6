//! Logs stay within their limits, and a log that an earlier version let grow is shortened.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use toolrack_testkit::{eventually, program};

use crate::fixture::{Fixture, LONG};

/// The limit of docs/limits.md.
const MAX_BYTES: u64 = 256 << 10;

/// The log file of the only server.
fn log_file(fixture: &Fixture) -> PathBuf {
    let listed = fixture.run(&["-o", "json", "list"]).stdout;
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let id = listed[0]["id"].as_str().unwrap();
    fixture.path().join(format!("home/logs/{id}.log"))
}

#[test]
fn log_of_a_flooding_server_is_bounded_and_readable() {
    let fixture = Fixture::new();
    let server = program("scripted-server").display().to_string();
    let plan = "start=stderr(20MiB,raw)";
    let add = ["add", "loud", "--no-check", "--", &server, "--plan", plan];
    assert_eq!(fixture.run(&add).status.code(), Some(0));
    let file = log_file(&fixture);
    // Left by an earlier version.
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let line = format!("{{\"at\":1,\"kind\":\"stderr\",\"text\":\"old {}\"}}\n", "x".repeat(1000));
    File::create(&file).unwrap().write_all(line.repeat(5 << 10).as_bytes()).unwrap();
    assert!(fs::metadata(&file).unwrap().len() > 5 << 20);
    let read = || fixture.shell("toolrack logs loud --all | cut -c 1-60 | tail -n 20");
    assert!(read().stdout.contains("old xxx"), "{:?}", read());
    for args in [["daemon", "start"].as_slice(), &["start", "loud"]] {
        let outcome = fixture.run(args);
        assert_eq!(outcome.status.code(), Some(0), "{args:?} {outcome:?}");
    }
    let size = || fs::metadata(&file).unwrap().len();
    // The first lines of the server shorten the file, and its output follows.
    eventually(LONG, "the log is within its limit and has the output", || {
        let tail = read();
        assert!(tail.stderr.is_empty(), "{tail:?}");
        size() <= MAX_BYTES && tail.stdout.contains("| eeee")
    });
    assert_eq!(fixture.run(&["daemon", "stop"]).status.code(), Some(0));
    assert!(size() <= MAX_BYTES, "{}", size());
    fixture.marker.assert_no_processes_left(Duration::ZERO);
}

/// The log of the daemon: an old one of any size is moved aside by the next daemon.
#[test]
fn large_daemon_log_is_rotated_at_the_next_start() {
    let fixture = Fixture::new();
    fixture.put("home/daemon.log", &format!("{}newest line\n", "old line\n".repeat(1 << 20)));
    assert_eq!(fixture.run(&["daemon", "start"]).status.code(), Some(0));
    let log = fixture.path().join("home/daemon.log");
    // The daemon writes its first line when it is ready.
    eventually(LONG, "the log is new", || {
        let text = fs::read_to_string(&log).unwrap();
        text.len() < 2 << 20 && text.contains("daemon started")
    });
    let old = fs::read_to_string(fixture.path().join("home/daemon.log.old")).unwrap();
    assert!(old.len() <= 2 << 20, "{}", old.len());
    assert!(old.starts_with("old line\n") && old.ends_with("\nnewest line\n"));
    assert_eq!(fixture.run(&["daemon", "stop"]).status.code(), Some(0));
    fixture.marker.assert_no_processes_left(Duration::ZERO);
}
