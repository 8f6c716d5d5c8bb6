//! Every example is run as its reader runs it, and says what its text promises.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use toolrack_testkit::{HttpLog, HttpServer, HttpServerKind, Kept, Marker, program};

use crate::fixture::LONG;

/// Built by `cargo test` beside this test.
fn built(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().parent().unwrap().join("examples").join(name)
}

/// Runs an example to its end and gives what it printed. Its guardians carry the marker, so none may be left.
#[expect(clippy::disallowed_methods, reason = "the example is run as its reader runs it")]
fn run(name: &str, args: &[&str]) -> String {
    assert!(program("demo-server").is_file());
    let marker = Marker::new();
    let (variable, value) = marker.pair();
    let child = Command::new(built(name))
        .args(args)
        .env(variable, value)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (status, said, complained) = Kept::new(child).output(LONG).unwrap();
    assert!(status.success(), "{said}{complained}");
    marker.assert_nobody_left(Duration::from_secs(5));
    said
}

#[test]
fn single_server() {
    let said = run("single_server", &[]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.first(), Some(&"demo_greet: Greets somebody"));
    assert_eq!(lines.last(), Some(&"Hello, World!"));
    assert_eq!(lines.len(), 6, "{said}");
    // And with a program of the reader's own.
    let demo = program("demo-server").display().to_string();
    assert_eq!(run("single_server", &[&demo]), said);
}

#[test]
fn many_servers() {
    let said = run("many_servers", &[]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..2], ["first: connected, 5 tools", "second: connected, 2 tools"]);
    assert!(lines[2].starts_with("broken: failed: "), "{said}");
    assert!(lines[2].contains("`no-such-program-anywhere` was not found"), "{said}");
    assert_eq!(
        lines[3..],
        [
            "first_greet",
            "first_add",
            "first_dice",
            "first_countdown",
            "first_word_count",
            "second_greet",
            "second_add",
            "Hello, both of you! Hello, both of you!",
        ]
    );
}

#[test]
fn deny_list() {
    assert_eq!(
        run("deny_list", &[]),
        "demo_greet\ndemo_add\ndemo_word_count\n\
         demo.countdown: the rule `deny = \"count*\"` matches it\n2 tools are left\n"
    );
}

#[test]
fn handler() {
    let said = run("handler", &[]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 4, "{said}");
    assert_eq!(lines[0], "curious asks: Who are you?");
    assert!(lines[1].contains("my username") && lines[1].contains("my email"), "{said}");
    assert_eq!(lines[2], "curious wants at most 100 tokens");
    assert!(lines[3].contains("Paris"), "{said}");
}

#[test]
fn progress_and_cancel() {
    assert_eq!(
        run("progress_and_cancel", &[]),
        "progress: 1\nprogress: 2\nprogress: 3\ndone: Lift-off!\ngave up on the second call\n\
         countdown: Abandoned\nHello, again!\n"
    );
}

#[test]
fn http_with_token() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let args = ["--shape", "dual", "--http-log", log.to_str().unwrap()];
    let server = HttpServer::start(HttpServerKind::scripted(&args)).unwrap();
    let said = run("http_with_token", &[&server.url(), "t0ken", "pid"]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.first(), Some(&"remote: connected"), "{said}");
    assert!(lines.contains(&"remote_echo"), "{said}");
    let answer: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
    assert_eq!(answer["pid"].as_u64(), server.pid().map(u64::from), "{said}");
    let requests = HttpLog::read(&log).unwrap().requests;
    assert!(!requests.is_empty());
    let token = |headers: &std::collections::BTreeMap<String, String>| {
        headers
            .iter()
            .find(|header| header.0.eq_ignore_ascii_case("authorization"))
            .map(|header| header.1.clone())
    };
    for request in &requests {
        assert_eq!(token(&request.headers).as_deref(), Some("Bearer t0ken"), "{request:?}");
    }
    assert!(!said.contains("t0ken"));
}

#[test]
fn rejected_token_is_reported() {
    let args = ["--plan", "http=status(401)"];
    let server = HttpServer::start(HttpServerKind::scripted(&args)).unwrap();
    let said = run("http_with_token", &[&server.url(), "t0ken"]);
    assert!(said.contains("login needed: the server refused the configured token"), "{said}");
    assert!(!said.contains("t0ken"));
}
