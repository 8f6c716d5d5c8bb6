//! Tests of the program: its servers, a short run of every client, and the tables.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests and their helpers fail at the first surprise"
)]

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

const CLIENTS: [&str; 9] = [
    "bare-tokio",
    "bare-block",
    "toolrack",
    "toolrack-raw",
    "toolrack-guarded",
    "rmcp",
    "pmcp",
    "turbomcp",
    "tower",
];

const HTTP_CLIENTS: [&str; 8] = [
    "bare-tcp",
    "bare-hyper",
    "bare-hyper-connection",
    "toolrack",
    "toolrack-raw",
    "toolrack-session",
    "rmcp",
    "pmcp",
];

/// Clients of a build without the feature `peers`.
fn is_built(client: &str) -> bool {
    cfg!(feature = "peers") || !["rmcp", "pmcp", "turbomcp", "tower"].contains(&client)
}

#[expect(clippy::disallowed_methods, reason = "the tests run the program like a user")]
fn bench(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolrack-bench"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// Sends requests to the stdio server, closes its stdin and returns the responses.
fn responses(requests: &[Value]) -> anyhow::Result<Vec<Value>> {
    let mut server = bench(&["serve", "--tools", "2"]).stdin(Stdio::piped()).spawn()?;
    let mut input = server.stdin.take().context("no stdin")?;
    for request in requests {
        writeln!(input, "{request}")?;
    }
    drop(input);
    let output = server.wait_with_output()?;
    ensure!(output.status.success(), "the server failed");
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| Ok(serde_json::from_slice(line)?)).collect()
}

#[test]
fn server_is_legacy_and_exits_with_stdin() {
    let received = responses(&[
        json!({"jsonrpc": "2.0", "id": 0, "method": "server/discover"}),
        json!({"jsonrpc": "2.0", "id": "a", "method": "initialize", "params": {}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "ping"}),
    ])
    .unwrap();
    let expected = [
        json!({"jsonrpc": "2.0", "id": 0, "error": {"code": -32601, "message": "Method not found"}}),
        json!({"jsonrpc": "2.0", "id": "a", "result": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "toolrack-bench", "version": "1.0.0"},
        }}),
        json!({"jsonrpc": "2.0", "id": 2, "result": {}}),
    ];
    assert_eq!(received, expected);
}

#[test]
fn server_returns_requested_amount_of_text() {
    let call = |id: u32, name: &str, arguments: Value| {
        let params = json!({"name": name, "arguments": arguments});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    };
    let received = responses(&[
        call(1, "echo", json!({"text": "hello"})),
        call(2, "big", json!({"n": 100_000})),
        call(3, "big", json!({"n": 100_001, "escapes": true})),
    ])
    .unwrap();
    let texts: Vec<(u64, usize)> = received
        .iter()
        .map(|response| {
            let text = response["result"]["content"][0]["text"].as_str().unwrap();
            (response["id"].as_u64().unwrap(), text.len())
        })
        .collect();
    assert_eq!(texts, [(1, 100), (2, 100_000), (3, 100_001)]);
}

fn short_run(client: &str, scenario: &str) -> Value {
    let args = ["client", "--client", client, "--scenario", scenario, "--calls", "20", "--quick"];
    let output = bench(&args).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
fn check_short_run(client: &str, scenario: &str, metric: &str) {
    let output = short_run(client, scenario);
    assert!(output["report"][metric].is_f64(), "{client}, {scenario}: {output}");
}

/// The program may not be built or installed here; then the failure names the command that does it.
#[track_caller]
fn check_where_installed(client: &str, scenario: &str, metric: &str) {
    let output = short_run(client, scenario);
    let is_missing =
        output["failure"].as_str().is_some_and(|failure| failure.contains("`cargo xtask bench"));
    assert!(is_missing || output["report"][metric].is_f64(), "{client}, {scenario}: {output}");
}

#[test]
fn every_client_completes_a_short_run() {
    for client in CLIENTS.into_iter().filter(|client| is_built(client)) {
        check_short_run(client, "allocations", "allocations");
    }
}

#[test]
fn every_client_completes_a_short_http_run() {
    for client in HTTP_CLIENTS.into_iter().filter(|client| is_built(client)) {
        check_short_run(client, "http-allocations", "allocations");
    }
}

#[test]
fn every_client_receives_large_sse_results_concurrently() {
    for client in HTTP_CLIENTS.into_iter().filter(|client| is_built(client)) {
        check_short_run(client, "http-events-mib-64", "calls_per_second");
    }
}

#[test]
fn manager_completes_every_scenario() {
    for (scenario, metric) in [
        ("manager-sequential", "p50_over_client"),
        ("manager-in-flight-64", "time_over_client"),
        ("manager-allocations", "allocations"),
        ("manager-tools", "recall_millis"),
        ("manager-memory", "beyond_list_kib_per_server"),
        ("manager-start", "millis"),
        ("manager-bad-neighbor", "failed_calls"),
    ] {
        check_short_run("manager", scenario, metric);
    }
    check_short_run("manager-raw", "manager-sequential", "p50_over_client");
    if is_built("rmcp") {
        check_short_run("rmcp", "manager-start", "millis");
    }
}

#[test]
fn every_program_completes_a_call() {
    check_where_installed("bare-block", "cli-demo", "tree_peak_mib");
    for client in ["toolrack", "mcporter", "inspector"] {
        check_where_installed(client, "cli-demo", "peak_mib");
    }
    check_where_installed("toolrack", "cli-warm", "millis");
    check_where_installed("toolrack", "cli-help", "answer_millis");
}

#[test]
fn every_gateway_completes_short_runs_on_both_transports() {
    check_short_run("direct", "gateway-stdio", "p50_micros");
    for client in ["gateway", "fast-mcp"] {
        check_where_installed(client, "gateway-stdio", "p50_micros");
        check_where_installed(client, "gateway-http-64", "calls_per_second");
    }
}

#[test]
fn manager_targets_have_no_limit_column() {
    let args = ["manager", "--quick", "--only", "manager-allocations", "--no-gate"];
    let output = bench(&args).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(
        text.starts_with("## Heap allocations per sequential call, with a manager\n"),
        "{text}"
    );
    for client in ["toolrack", "toolrack, raw result", "toolrack manager"] {
        assert!(text.contains(&format!("| {client} ")), "{client}: {text}");
    }
    assert!(text.lines().any(|line| line.ends_with(" status |")), "{text}");
}

#[test]
fn selected_scenario_and_client_are_measured() {
    let args =
        ["stdio", "--quick", "--only", "allocations", "--clients", "bare-block", "--no-gate"];
    let output = bench(&args).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(text.starts_with("## Heap allocations per sequential call\n"), "{text}");
    assert!(text.contains("| limit: blocking pipe |"), "{text}");
    assert!(text.contains("| allocations per call, raw result "), "{text}");
}

#[test]
fn benchmark_rejects_scenarios_of_other_subjects() {
    let output = bench(&["stdio", "--only", "http-json", "--no-gate"]).output().unwrap();
    assert!(!output.status.success());
    let args =
        ["http", "--quick", "--only", "http-allocations", "--clients", "bare-tcp", "--no-gate"];
    let output = bench(&args).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(text.starts_with("## Heap allocations per sequential call over HTTP\n"), "{text}");
    assert!(text.contains("| limit: blocking TCP |"), "{text}");
    assert!(text.contains("| bare hyper-util client |"), "{text}");
}
