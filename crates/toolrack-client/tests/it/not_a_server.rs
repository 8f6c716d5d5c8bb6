//! Everything that can be given instead of an MCP server has its own clear error, within the time allowed,
//! and nothing is left running.

use std::time::Duration;

use tokio::time::Instant;
use toolrack_client::{ConnectError, McpClient, Timeouts};
use toolrack_stdio::{Guardian, McpServerDef, StdioOptions};
use toolrack_testkit::Marker;

const STARTUP: Duration = Duration::from_secs(3);

/// Connects to what is no server and gives the error's text, its causes behind colons.
async fn check(command: &str, args: &[&str], expected: &str) {
    let marker = Marker::new();
    let (name, value) = marker.pair();
    let server = McpServerDef {
        command: command.to_owned(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        env: [(name.to_owned(), value.to_owned())].into(),
        cwd: None,
    };
    let text = failure(server).await;
    assert_eq!(text, expected);
    marker.assert_nobody_left(Duration::ZERO);
}

async fn failure(server: McpServerDef) -> String {
    let guardian = Guardian::Program(toolrack_testkit::program("toolrack-guard"));
    let options = StdioOptions { guardian, line_limit_bytes: 1 << 20, ..StdioOptions::default() };
    let timeouts = Timeouts { startup: STARTUP, ..Timeouts::default() };
    let started = Instant::now();
    let error: ConnectError = McpClient::builder("bad")
        .timeouts(timeouts)
        .connect_stdio(server, options)
        .await
        .unwrap_err();
    // The ladder may need its whole patience for a program that does not listen.
    assert!(started.elapsed() < STARTUP + Duration::from_secs(6), "{:?}", started.elapsed());
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

fn scripted() -> String {
    toolrack_testkit::program("scripted-server").display().to_string()
}

#[tokio::test]
async fn a_missing_program() {
    let text = failure(McpServerDef {
        command: "no-such-server".to_owned(),
        env: [("PATH".to_owned(), "/usr/bin".to_owned())].into(),
        ..McpServerDef::default()
    })
    .await;
    assert!(text.contains("program `no-such-server` was not found in PATH (/usr/bin)"), "{text}");
}

#[tokio::test]
async fn a_bad_directory() {
    let text = failure(McpServerDef {
        command: "cat".to_owned(),
        cwd: Some("/no/such/dir".into()),
        ..McpServerDef::default()
    })
    .await;
    assert!(text.contains("working directory `/no/such/dir` does not exist"), "{text}");
}

#[tokio::test]
async fn a_program_that_only_repeats_its_input() {
    check("cat", &[], "the program echoes its input and is no MCP server").await;
}

#[tokio::test]
async fn a_program_that_ends_at_once() {
    check("true", &[], "the server exited with code 0 before it answered").await;
}

#[tokio::test]
async fn a_program_that_floods_its_output() {
    check("yes", &[], "the program writes text and no MCP messages, first `y`").await;
}

#[tokio::test]
async fn a_program_that_says_nothing() {
    check("sleep", &["60"], "no answer to `server/discover` within 3s").await;
}

#[tokio::test]
async fn a_server_that_answers_with_an_unknown_version() {
    check(
        &scripted(),
        &["--plan", "version=1999-01-01"],
        "no common protocol revision: we speak 2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25, \
         2026-07-28, the server speaks 1999-01-01",
    )
    .await;
}

#[tokio::test]
async fn a_server_that_answers_with_broken_json() {
    check(
        "sh",
        &["-c", r#"while read line; do echo '{"jsonrpc":"2.0","id":1,"result":{broken}'; done"#],
        r#"the program writes text and no MCP messages, first `{"jsonrpc":"2.0","id":1,"result":{broken}`"#,
    )
    .await;
}

#[tokio::test]
async fn a_server_whose_answer_is_too_large() {
    check(
        &scripted(),
        &["--plan", "initialize=huge(4MiB,front)"],
        "the answer to `initialize` does not fit the protocol: the payload does not fit the \
         protocol: the answer is larger than the limit of 1048576 bytes",
    )
    .await;
}
