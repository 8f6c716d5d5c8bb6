//! Targets computed from given figures.

use super::*;
use crate::client_process::RunOutcome;
use crate::clients::ClientName::{FastMcp, Mcporter};
use crate::report::Report;

fn results_from(values: &[(ClientName, Scenario, Setup, Metric, f64)]) -> Results {
    let mut results = Results::default();
    for (client, scenario, setup, metric, value) in values.iter().copied() {
        let report = Report::from([(metric, value)]);
        results.add(Entry { scenario, setup, client }, RunOutcome::Measured(report));
    }
    results
}

#[track_caller]
fn check(targets: &[Target], name: &str, measured: Option<f64>, status: &str) {
    let found = targets.iter().find(|target| target.name == name).expect("no such target");
    assert_eq!((found.measured, found.status()), (measured, status), "{name}");
}

#[test]
fn call_targets_use_the_advantage() {
    use Metric::{CallsPerSecond, P50Micros};
    use Scenario::{InFlight64, Sequential};
    let results = results_from(&[
        (Toolrack, Sequential, PINNED, P50Micros, 4.0),
        (Rmcp, Sequential, PINNED, P50Micros, 16.0),
        (BareTokio, Sequential, PINNED, P50Micros, 3.2),
        (Toolrack, InFlight64, MULTI, CallsPerSecond, 500.0),
        (Rmcp, InFlight64, MULTI, CallsPerSecond, 100.0),
        (ClientName::Turbomcp, InFlight64, CURRENT, CallsPerSecond, 1000.0),
    ]);
    let targets = Figures { results: &results }.call_targets();
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
    use Scenario::{Result8, Result16};
    let results = results_from(&[
        (ToolrackRaw, Result16, CURRENT, Metric::Millis, 24.0),
        (BareBlock, Result16, CURRENT, Metric::Millis, 20.0),
        (Toolrack, Result8, CURRENT, Metric::CpuMillis, 4.0),
        (Rmcp, Result8, CURRENT, Metric::CpuMillis, 16.0),
    ]);
    let targets = Figures { results: &results }.large_result_targets();
    check(&targets, "16 MiB result, raw: time / bare reader's", Some(1.2), "ok");
    check(&targets, "8 MiB result: CPU / rmcp's", Some(0.25), "ok");
    check(&targets, "8 MiB result, raw: memory / payload", None, "not run");
    assert!(all_met(&targets));
}

#[test]
fn memory_target_is_relative_to_payload() {
    let over_idle = 8.0 * 1.048_576 * 2.0;
    let results = results_from(&[(
        ToolrackRaw,
        Scenario::Result8,
        CURRENT,
        Metric::OverIdleMegabytes,
        over_idle,
    )]);
    let targets = Figures { results: &results }.large_result_targets();
    check(&targets, "8 MiB result, raw: memory / payload", Some(2.0), "MISSED");
}

#[test]
fn guardian_may_add_two_milliseconds() {
    use Scenario::Connect;
    let results = results_from(&[
        (Toolrack, Connect, CURRENT, Metric::Millis, 1.0),
        (Rmcp, Connect, CURRENT, Metric::Millis, 2.0),
        (ToolrackGuarded, Connect, CURRENT, Metric::Millis, 4.5),
    ]);
    let targets = Figures { results: &results }.connection_targets();
    check(&targets, "connect without guardian: time / rmcp's", Some(0.5), "ok");
    check(&targets, "connect with guardian: ms more than rmcp", Some(2.5), "MISSED");
    check(&targets, "guardian: KiB of private memory", None, "not run");
}

#[test]
fn http_targets_apply_to_each_runtime() {
    use Metric::{CallsPerSecond, CpuMicrosPerCall, P50Micros};
    let mut results = Results::default();
    let mut add = |client, scenario, setup, metric, value| {
        let report = Report::from([(metric, value)]);
        results.add(Entry { scenario, setup, client }, RunOutcome::Measured(report));
    };
    add(Toolrack, Scenario::HttpJson64, MULTI, CallsPerSecond, 800.0);
    add(Rmcp, Scenario::HttpJson64, MULTI, CallsPerSecond, 100.0);
    add(Pmcp, Scenario::HttpJson64, MULTI, CallsPerSecond, 500.0);
    add(BareHyper, Scenario::HttpJson64, MULTI, CallsPerSecond, 900.0);
    add(Toolrack, Scenario::HttpJson, MULTI, P50Micros, 70.0);
    add(BareTcp, Scenario::HttpJson, CURRENT, P50Micros, 56.0);
    add(Toolrack, Scenario::HttpJson, CURRENT, CpuMicrosPerCall, 30.0);
    add(Rmcp, Scenario::HttpJson, CURRENT, CpuMicrosPerCall, 60.0);
    let targets = Figures { results: &results }.http_targets();
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
    ];
    assert_eq!(found, expected);
}

#[test]
fn manager_targets_use_own_client_and_rmcp() {
    let mut results = Results::default();
    let mut add = |client, scenario, setup, metric, value| {
        let report = Report::from([(metric, value)]);
        results.add(Entry { scenario, setup, client }, RunOutcome::Measured(report));
    };
    add(Manager, Scenario::ManagerSequential, PINNED, Metric::P50OverClient, 1.1);
    add(ManagerRaw, Scenario::ManagerSequential, PINNED, Metric::P50OverClient, 1.2);
    add(Manager, Scenario::ManagerTools, CURRENT, Metric::AllToolsP99Micros, 500.0);
    add(Manager, Scenario::ManagerMemory, CURRENT, Metric::BeyondListKibPerServer, 41.0);
    add(Manager, Scenario::ManagerStart, MULTI, Metric::Millis, 300.0);
    add(Rmcp, Scenario::ManagerStart, MULTI, Metric::Millis, 100.0);
    add(Manager, Scenario::ManagerBadNeighbor, CURRENT, Metric::FailedCalls, 1.0);
    let targets = Figures { results: &results }.manager_targets();
    let measured: Vec<_> = targets.iter().filter(|target| target.measured.is_some()).collect();
    let found: Vec<_> =
        measured.iter().map(|target| (target.name, target.measured, target.status())).collect();
    let expected = [
        ("sequential, one core: p50 / client's", Some(1.1), "ok"),
        ("sequential, one core, raw result: p50 / client's", Some(1.2), "MISSED"),
        ("all_tools, 100 × 50: p99 in ms", Some(0.5), "ok"),
        ("idle server: KiB beyond its tool list", Some(41.0), "MISSED"),
        ("start of 100 servers [multi]: time / rmcp's", Some(3.0), "ok"),
        ("bad neighbor [current]: failed calls", Some(1.0), "MISSED"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn cli_targets_use_added_time() {
    let mut results = Results::default();
    let mut add = |client, scenario, metric, value| {
        let report = Report::from([(metric, value)]);
        results.add(Entry { scenario, setup: CURRENT, client }, RunOutcome::Measured(report));
    };
    add(Toolrack, Scenario::CliNode, Metric::Millis, 460.0);
    add(BareBlock, Scenario::CliNode, Metric::Millis, 410.0);
    add(Mcporter, Scenario::CliNode, Metric::Millis, 1_380.0);
    add(Toolrack, Scenario::CliWarm, Metric::Millis, 16.0);
    add(Toolrack, Scenario::CliHelp, Metric::Millis, 3.0);
    add(Toolrack, Scenario::CliSize, Metric::StrippedMib, 26.0);
    let targets = Figures { results: &results }.cli_targets();
    let measured: Vec<_> = targets.iter().filter(|target| target.measured.is_some()).collect();
    let found: Vec<_> =
        measured.iter().map(|target| (target.name, target.measured, target.status())).collect();
    let expected = [
        ("call, Node.js server: ms added", Some(50.0), "MISSED"),
        ("call, Node.js server: × best peer", Some(3.0), "ok"),
        ("warm call through the daemon: ms", Some(16.0), "MISSED"),
        ("help: ms", Some(3.0), "ok"),
        ("size, stripped: MiB", Some(26.0), "MISSED"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn gateway_targets_use_direct_calls_and_peer() {
    let mut results = Results::default();
    let mut add = |client, scenario, metric, value| {
        let report = Report::from([(metric, value)]);
        results.add(Entry { scenario, setup: CURRENT, client }, RunOutcome::Measured(report));
    };
    add(Gateway, Scenario::GatewayHttp64, Metric::CallsPerSecond, 900.0);
    add(FastMcp, Scenario::GatewayHttp64, Metric::CallsPerSecond, 100.0);
    add(Gateway, Scenario::GatewayStdio, Metric::P50Micros, 250.0);
    add(Direct, Scenario::GatewayStdio, Metric::P50Micros, 20.0);
    add(Gateway, Scenario::GatewayMemory, Metric::SessionsMib, 90.0);
    let targets = Figures { results: &results }.gateway_targets();
    let measured: Vec<_> = targets.iter().filter(|target| target.measured.is_some()).collect();
    let found: Vec<_> =
        measured.iter().map(|target| (target.name, target.measured, target.status())).collect();
    let expected = [
        ("64 in flight, HTTP: × peer", Some(9.0), "ok"),
        ("sequential, stdio: µs added (p50)", Some(230.0), "MISSED"),
        ("100 servers and 1,000 sessions: MiB", Some(90.0), "ok"),
    ];
    assert_eq!(found, expected);
}
