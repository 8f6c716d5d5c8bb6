//! G19: broken and hanging servers delay neither the daemon nor other servers, and use no CPU when idle.

use std::thread;
use std::time::Duration;

use serde_json::Value;
use toolrack_testkit::harness::{ProcessTable, now, print_progress};

use crate::cycle::Cycle;
use crate::daemon::{DaemonHome, RunningDaemon, ServerEntry};
use crate::daemon_client::ApiResponse;
use crate::findings::{Findings, millis};
use crate::gate::Effort;
use crate::random::Seeds;
use crate::subreaper::Subreaper;

/// The daemon must accept calls within this time after its start.
const READY_LIMIT: Duration = Duration::from_millis(300);

/// Every healthy server must be callable within this time.
const HEALTHY_LIMIT: Duration = Duration::from_secs(10);

/// A server still not connected after this time counts as hung.
const HUNG: Duration = Duration::from_mins(1);

/// Allowed CPU usage of the daemon and all servers when idle.
const IDLE_PERCENT: f64 = 2.0;

/// How long CPU usage is measured.
const WATCH: Duration = Duration::from_secs(5);

/// One server in this many is broken.
const BROKEN_EVERY: u64 = 5;

/// Fault plans of the broken servers, in turn. None of them connects.
const BROKEN: [&str; 5] = [
    "start=exit(1)",
    "discover=hang; initialize=hang",
    "start=stderr(1MiB)+exit(2)",
    "start=stopread",
    "start=prompt",
];

pub(crate) fn run(
    subreaper: &Subreaper,
    effort: Effort,
    seeds: &Seeds,
) -> anyhow::Result<Findings> {
    let seed = seeds.first();
    let entries = entries(effort.select(20, 100));
    let n_healthy = entries.iter().filter(|entry| is_healthy(entry)).count() as u64;
    let mut findings = Findings::default();
    findings.count("servers", entries.len() as u64);
    findings.count("healthy", n_healthy);
    let mut cycles = Vec::new();
    let n_rounds = effort.select(3, 10);
    for round in 0..n_rounds {
        print_progress(format!("G19: start {}", round + 1));
        // A fresh home without cached tools.
        let daemon_home = DaemonHome::new(&entries)?;
        let outcome = start_daemon(&daemon_home, subreaper, &entries, n_healthy);
        let cycle = outcome.map(|(mut daemon, healthy)| {
            let mut cycle = Cycle::default();
            cycle.time("ready", daemon.ready);
            cycle.time("healthy", healthy);
            cycle.failures.extend(judge(daemon.ready, healthy));
            if round + 1 == n_rounds {
                measure_idle(&mut findings, &mut cycle, &daemon);
            }
            daemon.terminate();
            let code = daemon.wait_exit(HUNG);
            if code != Some(0) {
                cycle.fail(format!("after SIGTERM the daemon exited with {code:?}"));
            }
            cycle
        });
        cycles.push(Cycle::new(seed, cycle));
        findings.fail_leftovers(seed, "left at the end", &daemon_home.marker);
    }
    findings.count("rounds", n_rounds);
    findings.times("", "ready", &cycles);
    findings.times("", "healthy", &cycles);
    findings.fail_cycles(cycles);
    Ok(findings)
}

fn entries(n_servers: u64) -> Vec<ServerEntry> {
    let mut plans = [None].into_iter().chain(BROKEN.map(Some)).cycle();
    let entry = |number: u64| {
        // First and last servers are broken alike, so the order gives no advantage.
        match number.is_multiple_of(BROKEN_EVERY).then(|| plans.next()).flatten() {
            Some(plan) => ServerEntry { name: format!("broken-{number}"), plan },
            None => ServerEntry::scripted(format!("healthy-{number}"), ""),
        }
    };
    (0..n_servers).map(entry).collect()
}

fn is_healthy(entry: &ServerEntry) -> bool {
    entry.plan == Some("")
}

/// Starts the daemon and returns the time until every healthy server was connected.
fn start_daemon<'a>(
    daemon_home: &DaemonHome,
    subreaper: &'a Subreaper,
    entries: &[ServerEntry],
    n_healthy: u64,
) -> Result<(RunningDaemon<'a>, Duration), String> {
    let daemon = daemon_home.start(subreaper)?;
    let healthy = daemon.wait_connected(n_healthy, HUNG)?;
    let mut client = daemon.client().map_err(|error| error.to_string())?;
    for entry in entries.iter().filter(|entry| is_healthy(entry)) {
        let called = client.call(&entry.name, "echo", &serde_json::json!({ "text": "x" }));
        called
            .and_then(ApiResponse::success_body)
            .map_err(|error| format!("{}: {error}", entry.name))?;
    }
    let listed = client.get("/api/servers").and_then(ApiResponse::success_body);
    let listed = listed.map_err(|error| format!("/api/servers: {error}"))?;
    let shown_running: Vec<String> = entries
        .iter()
        .filter(|entry| !is_healthy(entry))
        .filter_map(|entry| broken_but_running(&listed, entry))
        .collect();
    if !shown_running.is_empty() {
        return Err(format!("broken servers shown as running: {}", shown_running.join(", ")));
    }
    Ok((daemon, healthy))
}

/// Returns the name of a broken server whose status is `running`.
fn broken_but_running(listed: &Value, entry: &ServerEntry) -> Option<String> {
    let servers = listed.get("servers")?.as_array()?;
    let matches = |server: &&Value| {
        server.pointer("/config/name").and_then(Value::as_str) == Some(&entry.name)
    };
    let found = servers.iter().find(matches)?;
    let state = found.pointer("/status/status/state").and_then(Value::as_str);
    (state == Some("running")).then(|| entry.name.clone())
}

fn judge(ready: Duration, healthy: Duration) -> impl Iterator<Item = String> {
    let is_late = healthy > HEALTHY_LIMIT;
    let problem =
        is_late.then(|| format!("the healthy servers were ready {healthy:?} after the start"));
    late(ready).into_iter().chain(problem)
}

/// Failure of a daemon that accepted calls too late.
pub(crate) fn late(ready: Duration) -> Option<String> {
    (ready > READY_LIMIT).then(|| format!("the daemon was ready {ready:?} after its start"))
}

/// Measures the CPU usage of the daemon and all its servers when idle.
fn measure_idle(findings: &mut Findings, cycle: &mut Cycle, daemon: &RunningDaemon<'_>) {
    // Wait until crashed servers are in long backoff and all responses have arrived.
    thread::sleep(WATCH);
    let time = || ProcessTable::read().cpu_time_of_tree(daemon.process.handle.pid);
    let (started_at, before) = (now(), time());
    thread::sleep(WATCH);
    let (used, took) = (time().saturating_sub(before), started_at.elapsed());
    let percent = used.as_secs_f64() / took.as_secs_f64() * 100.0;
    findings.measure("idle_percent", (percent * 100.0).round() / 100.0);
    if percent >= IDLE_PERCENT {
        cycle.fail(format!("{:.0} ms of {took:?} on a processor when idle", millis(used)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_the_servers_is_broken_in_every_way() {
        let entries = entries(100);
        let broken: Vec<&ServerEntry> = entries.iter().filter(|entry| !is_healthy(entry)).collect();
        assert_eq!(broken.len(), 20);
        let n_missing = broken.iter().filter(|entry| entry.plan.is_none()).count();
        assert_eq!(n_missing, 4);
        for plan in BROKEN {
            assert!(broken.iter().any(|entry| entry.plan == Some(plan)), "{plan}");
        }
    }

    #[test]
    fn start_is_judged_by_both_times() {
        let n_problems = |ready, healthy| {
            let ms = Duration::from_millis;
            judge(ms(ready), ms(healthy)).count()
        };
        assert_eq!(
            [n_problems(300, 10_000), n_problems(301, 1), n_problems(301, 10_001)],
            [0, 1, 2]
        );
    }

    #[test]
    fn broken_server_shown_as_running_is_found() {
        let listed = serde_json::json!({ "servers": [
            { "config": { "name": "a" }, "status": { "status": { "state": "running" } } },
            { "config": { "name": "b" }, "status": { "status": { "state": "error" } } },
        ] });
        let found =
            |name: &str| broken_but_running(&listed, &ServerEntry::scripted(name, "start=exit"));
        assert_eq!([found("a"), found("b"), found("c")], [Some("a".to_owned()), None, None]);
    }
}
