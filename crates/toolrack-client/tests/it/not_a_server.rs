//! Programs that are not MCP servers: each has its own error, on time, and nothing is left running.

use std::time::Duration;

use tokio::time::Instant;
use toolrack_client::{ConnectError, McpClient, Timeouts};
use toolrack_stdio::{Guardian, McpServerDef, StdioOptions};
use toolrack_testkit::Marker;

const STARTUP: Duration = Duration::from_secs(3);

/// Connects and compares the error with its causes, joined by colons.
async fn check(command: &str, args: &[&str], expected: &str) {
    let marker = Marker::new();
    let (name, value) = marker.env_var();
    let server = McpServerDef {
        command: command.to_owned(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        env: [(name.to_owned(), value.to_owned())].into(),
        cwd: None,
    };
    let text = failure(server).await;
    assert_eq!(text, expected);
    marker.assert_no_processes_left(Duration::ZERO);
}

async fn failure(server: McpServerDef) -> String {
    let guardian = Guardian::Program(toolrack_testkit::program("toolrack-guard"));
    let options = StdioOptions { guardian, max_message_bytes: 1 << 20, ..StdioOptions::default() };
    let timeouts = Timeouts { startup: STARTUP, ..Timeouts::default() };
    let started = Instant::now();
    let error: ConnectError = McpClient::builder("bad")
        .timeouts(timeouts)
        .connect_stdio(server, options)
        .await
        .unwrap_err();
    // Shutdown may need all its timeouts for a program that ignores SIGTERM.
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
async fn missing_program_is_named() {
    let text = failure(McpServerDef {
        command: "no-such-server".to_owned(),
        env: [("PATH".to_owned(), "/usr/bin".to_owned())].into(),
        ..McpServerDef::default()
    })
    .await;
    assert!(text.contains("program `no-such-server` not found in PATH (/usr/bin)"), "{text}");
}

#[tokio::test]
async fn missing_working_directory_is_named() {
    let text = failure(McpServerDef {
        command: "cat".to_owned(),
        cwd: Some("/no/such/dir".into()),
        ..McpServerDef::default()
    })
    .await;
    assert!(text.contains("working directory `/no/such/dir` does not exist"), "{text}");
}

#[tokio::test]
async fn program_that_echoes_is_not_mcp() {
    check("cat", &[], "the program echoes its input and is not an MCP server").await;
}

#[tokio::test]
async fn program_that_exits_at_once_is_reported() {
    check("true", &[], "the server exited with code 0 before it responded").await;
}

#[tokio::test]
async fn program_that_writes_endless_text_is_not_mcp() {
    check("yes", &[], "the program writes text instead of MCP messages, starting with `y`").await;
}

#[tokio::test]
async fn silent_program_times_out() {
    check("sleep", &["60"], "no response to `server/discover` within 3s").await;
}

#[tokio::test]
async fn unknown_version_is_reported() {
    check(
        &scripted(),
        &["--plan", "version=1999-01-01"],
        "no common protocol version: the client supports 2024-11-05, 2025-03-26, 2025-06-18, \
         2025-11-25, 2026-07-28, the server supports 1999-01-01",
    )
    .await;
}

#[tokio::test]
async fn broken_json_is_not_mcp() {
    check(
        "sh",
        &["-c", r#"while read line; do echo '{"jsonrpc":"2.0","id":1,"result":{broken}'; done"#],
        r#"the program writes text instead of MCP messages, starting with `{"jsonrpc":"2.0","id":1,"result":{broken}`"#,
    )
    .await;
}

#[tokio::test]
async fn oversize_response_is_reported() {
    check(
        &scripted(),
        &["--plan", "initialize=huge(4MiB,front)"],
        "invalid response to `initialize`: invalid payload: response exceeds the limit of 1048576 bytes",
    )
    .await;
}
