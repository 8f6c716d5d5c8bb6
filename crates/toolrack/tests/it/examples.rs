//! Runs every example and checks its output.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use toolrack_testkit::{ChildGuard, HttpLog, HttpServer, HttpServerKind, Marker, program};

use crate::fixture::LONG;

/// Built by `cargo test` next to this test.
fn example_path(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().parent().unwrap().join("examples").join(name)
}

/// Runs an example and returns its output. Its guardians carry the marker, so none may be left.
#[expect(clippy::disallowed_methods, reason = "examples run as separate programs")]
fn run(name: &str, args: &[&str]) -> String {
    assert!(program("demo-server").is_file());
    let marker = Marker::new();
    let (variable, value) = marker.env_var();
    let child = Command::new(example_path(name))
        .args(args)
        .env(variable, value)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (status, stdout, stderr) = ChildGuard::new(child).wait_with_output(LONG).unwrap();
    assert!(status.success(), "{stdout}{stderr}");
    marker.assert_no_processes_left(Duration::from_secs(5));
    stdout
}

#[test]
fn single_server() {
    let stdout = run("single_server", &[]);
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines.first(), Some(&"demo_greet: Greets somebody"));
    assert_eq!(lines.last(), Some(&"Hello, World!"));
    assert_eq!(lines.len(), 6, "{stdout}");
    // And with a program as argument.
    let demo = program("demo-server").display().to_string();
    assert_eq!(run("single_server", &[&demo]), stdout);
}

#[test]
fn many_servers() {
    let stdout = run("many_servers", &[]);
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines[..2], ["first: connected, 5 tools", "second: connected, 2 tools"]);
    assert!(lines[2].starts_with("broken: failed: "), "{stdout}");
    assert!(lines[2].contains("`no-such-program-anywhere` not found"), "{stdout}");
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

/// Founding document 004, as somebody would type it.
#[test]
fn founding_004() {
    let stdout = run("founding_004", &[]);
    let steps: Vec<&str> =
        stdout.lines().filter_map(|line| line.strip_prefix("ok ")?.split(':').next()).collect();
    assert_eq!(
        steps,
        [
            "create",
            "start",
            "available_tools",
            "find_tool_provider",
            "call_tool",
            "stop",
            "update",
            "toggle",
            "MC-NT1",
            "MC-NT2",
            "MC-NT3",
            "MC-NT4",
            "delete",
            "shutdown_all",
        ],
        "{stdout}"
    );
}

#[test]
fn deny_list() {
    assert_eq!(
        run("deny_list", &[]),
        "demo_greet\ndemo_add\ndemo_word_count\n\
         demo.countdown: it matches `deny = \"count*\"`\n2 tools are left\n"
    );
}

#[test]
fn handler() {
    let stdout = run("handler", &[]);
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{stdout}");
    assert_eq!(lines[0], "curious asks: Who are you?");
    assert!(lines[1].contains("my username") && lines[1].contains("my email"), "{stdout}");
    assert_eq!(lines[2], "curious wants at most 100 tokens");
    assert!(lines[3].contains("Paris"), "{stdout}");
}

#[test]
fn progress_and_cancel() {
    assert_eq!(
        run("progress_and_cancel", &[]),
        "progress: 1\nprogress: 2\nprogress: 3\ndone: Lift-off!\ngave up on the second call\n\
         countdown: Cancelled\nHello, again!\n"
    );
}

#[test]
fn http_with_token() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let args = ["--shape", "dual", "--http-log", log.to_str().unwrap()];
    let server = HttpServer::start(HttpServerKind::scripted(&args)).unwrap();
    let stdout = run("http_with_token", &[&server.url(), "t0ken", "pid"]);
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines.first(), Some(&"remote: connected"), "{stdout}");
    assert!(lines.contains(&"remote_echo"), "{stdout}");
    let answer: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
    assert_eq!(answer["pid"].as_u64(), server.pid().map(u64::from), "{stdout}");
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
    assert!(!stdout.contains("t0ken"));
}

#[test]
fn rejected_token_is_reported() {
    let args = ["--plan", "http=status(401)"];
    let server = HttpServer::start(HttpServerKind::scripted(&args)).unwrap();
    let stdout = run("http_with_token", &[&server.url(), "t0ken"]);
    assert!(
        stdout.contains("login required: the server rejected the configured token"),
        "{stdout}"
    );
    assert!(!stdout.contains("t0ken"));
}

/// Each line is printed after the assertions of its part.
#[test]
fn founding_documents_can_be_typed_as_written() {
    let check = |example: &str, expected: &[&str]| {
        let stdout = run(example, &[]);
        let parts: Vec<&str> =
            stdout.lines().filter_map(|line| line.strip_suffix(": ok")).collect();
        assert_eq!(parts, expected, "{example}: {stdout}");
    };
    check(
        "founding_000",
        &["connect, call_tool, shutdown", "environment", "types and helper functions"],
    );
    check("founding_001", &["json_rpc_types", "spawn", "send_receive", "timeout", "shutdown"]);
    check("founding_002", &["config", "startup", "worker", "hot reload", "shutdown"]);
    check("founding_003", &["single server", "multiple servers"]);
}
