//! The bench as a program: its server in a dialogue, every client in a short run, and the tables.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test ends at the first thing that is not as it should be, in its helpers too"
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

const HTTP_CLIENTS: [&str; 7] =
    ["bare-tcp", "bare-hyper", "toolrack", "toolrack-raw", "toolrack-session", "rmcp", "pmcp"];

#[expect(clippy::disallowed_methods, reason = "the program under test is run as a user runs it")]
fn bench(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolrack-bench"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// What the server answers to these lines before its input ends.
fn dialogue(requests: &[Value]) -> anyhow::Result<Vec<Value>> {
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
fn the_server_is_a_legacy_server_that_ends_with_its_input() {
    let answers = dialogue(&[
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
    assert_eq!(answers, expected);
}

#[test]
fn the_server_answers_calls_with_as_much_text_as_was_asked_for() {
    let call = |id: u32, name: &str, arguments: Value| {
        let params = json!({"name": name, "arguments": arguments});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    };
    let answers = dialogue(&[
        call(1, "echo", json!({"text": "hello"})),
        call(2, "big", json!({"n": 100_000})),
        call(3, "big", json!({"n": 100_001, "escapes": true})),
    ])
    .unwrap();
    let texts: Vec<(u64, usize)> = answers
        .iter()
        .map(|answer| {
            let text = answer["result"]["content"][0]["text"].as_str().unwrap();
            (answer["id"].as_u64().unwrap(), text.len())
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
    let answer = short_run(client, scenario);
    assert!(answer["report"][metric].is_f64(), "{client}, {scenario}: {answer}");
}

/// What is measured may not be built or installed here; then the answer says which command does it.
#[track_caller]
fn check_where_installed(client: &str, scenario: &str, metric: &str) {
    let answer = short_run(client, scenario);
    let is_missing =
        answer["failure"].as_str().is_some_and(|failure| failure.contains("`cargo xtask bench"));
    assert!(is_missing || answer["report"][metric].is_f64(), "{client}, {scenario}: {answer}");
}

#[test]
fn every_client_gets_through_a_short_run() {
    for client in CLIENTS {
        check_short_run(client, "allocations", "allocations");
    }
}

#[test]
fn every_client_gets_through_a_short_run_over_http() {
    for client in HTTP_CLIENTS {
        check_short_run(client, "http-allocations", "allocations");
    }
}

#[test]
fn large_results_come_as_events_to_many_callers_at_once() {
    for client in HTTP_CLIENTS {
        check_short_run(client, "http-events-mib-64", "calls_per_second");
    }
}

#[test]
fn the_manager_gets_through_every_scenario() {
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
    check_short_run("rmcp", "manager-start", "millis");
}

#[test]
fn every_program_gets_through_a_call() {
    check_where_installed("bare-block", "cli-demo", "tree_peak_mib");
    for client in ["toolrack", "mcporter", "inspector"] {
        check_where_installed(client, "cli-demo", "peak_mib");
    }
    check_where_installed("toolrack", "cli-warm", "millis");
    check_where_installed("toolrack", "cli-help", "answer_millis");
}

#[test]
fn every_gateway_gets_through_short_runs_on_both_fronts() {
    check_short_run("direct", "gateway-stdio", "p50_micros");
    for client in ["gateway", "fast-mcp"] {
        check_where_installed(client, "gateway-stdio", "p50_micros");
        check_where_installed(client, "gateway-http-64", "calls_per_second");
    }
}

#[test]
fn the_manager_is_not_compared_with_something_bare() {
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
    assert!(text.lines().any(|line| line.ends_with(" verdict |")), "{text}");
}

#[test]
fn what_was_asked_for_is_measured_and_shown() {
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
fn a_bench_knows_only_its_own_scenarios() {
    let output = bench(&["stdio", "--only", "http-json", "--no-gate"]).output().unwrap();
    assert!(!output.status.success());
    let args =
        ["http", "--quick", "--only", "http-allocations", "--clients", "bare-tcp", "--no-gate"];
    let output = bench(&args).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(text.starts_with("## Heap allocations per sequential call over HTTP\n"), "{text}");
    assert!(text.contains("| limit: blocking TCP |"), "{text}");
    assert!(text.contains("| a bare hyper-util client |"), "{text}");
}
