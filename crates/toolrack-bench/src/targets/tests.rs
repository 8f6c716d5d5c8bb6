//! Targets computed from given figures.

use super::*;
use crate::clients::ClientName::{
    BareBlock, BareHyper, BareTcp, BareTokio, Direct, FastMcp, Gateway, Manager, ManagerRaw,
    Mcporter, Pmcp, Rmcp, Toolrack, ToolrackGuarded, ToolrackRaw, Turbomcp,
};
use crate::metric::{
    ALL_TOOLS_P99, BEYOND_LIST_KIB, CALLS_PER_SECOND, CPU_MILLIS, CPU_PER_CALL, FAILED_CALLS,
    MILLIS, OVER_IDLE_MB, Outcome, P50, P50_OVER_CLIENT, Report, SESSIONS_MIB, STRIPPED_MIB,
};

fn results_from(values: &[(ClientName, &'static str, Setup, Metric, f64)]) -> Results {
    let mut results = Results::default();
    for (client, scenario, setup, metric, value) in values.iter().copied() {
        let report = Report::from([(metric, value)]);
        results.add(Entry { scenario, setup, client }, Outcome::Report(report));
    }
    results
}

fn measured(targets: &[Target]) -> Vec<(&str, Option<f64>, &str)> {
    let measured = targets.iter().filter(|target| target.measured.is_some());
    measured.map(|target| (target.name, target.measured, target.status())).collect()
}

#[test]
fn every_target_is_parsed() {
    let n_targets = |subject| evaluate(subject, &Results::default()).unwrap().len();
    let subjects =
        [Subject::Stdio, Subject::Http, Subject::Manager, Subject::Cli, Subject::Gateway];
    assert_eq!(subjects.map(n_targets), [25, 12, 16, 10, 5]);
}

#[track_caller]
fn check(targets: &[Target], name: &str, measured: Option<f64>, status: &str) {
    let found = targets.iter().find(|target| target.name == name).expect("no such target");
    assert_eq!((found.measured, found.status()), (measured, status), "{name}");
}

#[test]
fn call_targets_use_the_advantage() {
    let results = results_from(&[
        (Toolrack, "sequential", PINNED, P50, 4.0),
        (Rmcp, "sequential", PINNED, P50, 16.0),
        (BareTokio, "sequential", PINNED, P50, 3.2),
        (Toolrack, "in-flight-64", MULTI, CALLS_PER_SECOND, 500.0),
        (Rmcp, "in-flight-64", MULTI, CALLS_PER_SECOND, 100.0),
        (Turbomcp, "in-flight-64", CURRENT, CALLS_PER_SECOND, 1000.0),
    ]);
    let targets = evaluate(Subject::Stdio, &results).unwrap();
    check(&targets, "sequential, one core: × rmcp (p50)", Some(4.0), "ok");
    check(&targets, "64 in flight [multi]: × rmcp", Some(5.0), "MISSED");
    let either = "64 in flight [multi]: × best peer on either runtime";
    check(&targets, either, Some(0.5), "MISSED");
    check(&targets, "1,024 in flight [multi]: × rmcp", None, "not run");
    assert!(!all_met(&targets));
    let at_limit: Vec<Option<f64>> = targets.iter().take(2).map(|target| target.at_limit).collect();
    assert_eq!(at_limit, [Some(5.0), Some(5.0)]);
}

#[test]
fn large_result_targets_use_bare_reader_and_payload() {
    let results = results_from(&[
        (ToolrackRaw, "result-16", CURRENT, MILLIS, 24.0),
        (BareBlock, "result-16", CURRENT, MILLIS, 20.0),
        (Toolrack, "result-8", CURRENT, CPU_MILLIS, 4.0),
        (Rmcp, "result-8", CURRENT, CPU_MILLIS, 16.0),
    ]);
    let targets = evaluate(Subject::Stdio, &results).unwrap();
    check(&targets, "16 MiB result, raw: time / bare reader's", Some(1.2), "ok");
    check(&targets, "8 MiB result: CPU / rmcp's", Some(0.25), "ok");
    check(&targets, "8 MiB result, raw: memory / payload", None, "not run");
    assert!(all_met(&targets));
}

#[test]
fn memory_target_is_relative_to_payload() {
    let over_idle = 8.0 * 1.048_576 * 2.0;
    let results = results_from(&[(ToolrackRaw, "result-8", CURRENT, OVER_IDLE_MB, over_idle)]);
    let targets = evaluate(Subject::Stdio, &results).unwrap();
    check(&targets, "8 MiB result, raw: memory / payload", Some(2.0), "MISSED");
}

#[test]
fn guardian_may_add_two_milliseconds() {
    let results = results_from(&[
        (Toolrack, "connect", CURRENT, MILLIS, 1.0),
        (Rmcp, "connect", CURRENT, MILLIS, 2.0),
        (ToolrackGuarded, "connect", CURRENT, MILLIS, 4.5),
    ]);
    let targets = evaluate(Subject::Stdio, &results).unwrap();
    check(&targets, "connect without guardian: time / rmcp's", Some(0.5), "ok");
    check(&targets, "connect with guardian: ms more than rmcp", Some(2.5), "MISSED");
    check(&targets, "guardian: KiB of private memory", None, "not run");
}

#[test]
fn http_targets_apply_to_each_runtime() {
    let results = results_from(&[
        (Toolrack, "http-json-64", MULTI, CALLS_PER_SECOND, 800.0),
        (Rmcp, "http-json-64", MULTI, CALLS_PER_SECOND, 100.0),
        (Pmcp, "http-json-64", MULTI, CALLS_PER_SECOND, 500.0),
        (BareHyper, "http-json-64", MULTI, CALLS_PER_SECOND, 900.0),
        (Toolrack, "http-json", MULTI, P50, 70.0),
        (BareTcp, "http-json", CURRENT, P50, 56.0),
        (Toolrack, "http-json", CURRENT, CPU_PER_CALL, 30.0),
        (Rmcp, "http-json", CURRENT, CPU_PER_CALL, 60.0),
    ]);
    let targets = evaluate(Subject::Http, &results).unwrap();
    let found: Vec<_> =
        targets.iter().map(|target| (target.measured, target.at_limit, target.status())).collect();
    let not_run = (None, None, "not run");
    let expected = [
        (Some(8.0), Some(9.0), "ok"),
        (Some(1.6), Some(1.8), "MISSED"),
        (Some(1.25), None, "ok"),
        not_run,
        not_run,
        not_run,
        not_run,
        not_run,
        not_run,
        (Some(0.5), None, "MISSED"),
        not_run,
        not_run,
    ];
    assert_eq!(found, expected);
}

#[test]
fn manager_targets_use_own_client_and_rmcp() {
    let results = results_from(&[
        (Manager, "manager-sequential", PINNED, P50_OVER_CLIENT, 1.1),
        (ManagerRaw, "manager-sequential", PINNED, P50_OVER_CLIENT, 1.2),
        (Manager, "manager-tools", CURRENT, ALL_TOOLS_P99, 500.0),
        (Manager, "manager-memory", CURRENT, BEYOND_LIST_KIB, 41.0),
        (Manager, "manager-start", MULTI, MILLIS, 300.0),
        (Rmcp, "manager-start", MULTI, MILLIS, 100.0),
        (Manager, "manager-bad-neighbor", CURRENT, FAILED_CALLS, 1.0),
    ]);
    let expected = [
        ("sequential, one core: p50 / client's", Some(1.1), "ok"),
        ("sequential, one core, raw result: p50 / client's", Some(1.2), "MISSED"),
        ("all_tools, 100 × 50: p99 in ms", Some(0.5), "ok"),
        ("idle server: KiB beyond its tool list", Some(41.0), "MISSED"),
        ("start of 100 servers [multi]: time / rmcp's", Some(3.0), "ok"),
        ("bad neighbor [current]: failed calls", Some(1.0), "MISSED"),
    ];
    assert_eq!(measured(&evaluate(Subject::Manager, &results).unwrap()), expected);
}

#[test]
fn cli_targets_use_added_time() {
    let results = results_from(&[
        (Toolrack, "cli-node", CURRENT, MILLIS, 460.0),
        (BareBlock, "cli-node", CURRENT, MILLIS, 410.0),
        (Mcporter, "cli-node", CURRENT, MILLIS, 1_380.0),
        (Toolrack, "cli-warm", CURRENT, MILLIS, 16.0),
        (Toolrack, "cli-help", CURRENT, MILLIS, 3.0),
        (Toolrack, "cli-size", CURRENT, STRIPPED_MIB, 26.0),
    ]);
    let expected = [
        ("call, Node.js server: ms added", Some(50.0), "MISSED"),
        ("call, Node.js server: × best peer", Some(3.0), "ok"),
        ("warm call through the daemon: ms", Some(16.0), "MISSED"),
        ("help: ms", Some(3.0), "ok"),
        ("size, stripped: MiB", Some(26.0), "MISSED"),
    ];
    assert_eq!(measured(&evaluate(Subject::Cli, &results).unwrap()), expected);
}

#[test]
fn gateway_targets_use_direct_calls_and_peer() {
    let results = results_from(&[
        (Gateway, "gateway-http-64", CURRENT, CALLS_PER_SECOND, 900.0),
        (FastMcp, "gateway-http-64", CURRENT, CALLS_PER_SECOND, 100.0),
        (Gateway, "gateway-stdio", CURRENT, P50, 250.0),
        (Direct, "gateway-stdio", CURRENT, P50, 20.0),
        (Gateway, "gateway-memory", CURRENT, SESSIONS_MIB, 90.0),
    ]);
    let expected = [
        ("64 in flight, HTTP: × peer", Some(9.0), "ok"),
        ("sequential, stdio: µs added (p50)", Some(230.0), "MISSED"),
        ("100 servers and 1,000 sessions: MiB", Some(90.0), "ok"),
    ];
    assert_eq!(measured(&evaluate(Subject::Gateway, &results).unwrap()), expected);
}
