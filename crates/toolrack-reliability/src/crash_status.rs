//! G21: when a server of the service crashes, its status shows an error at once, busy or idle.
//!
//! The clock runs from the exit of the server process, as the kernel reports it, to the first poll at which `status`
//! is an error. A crashed server restarts after 125 ms at the earliest, so polling every millisecond cannot miss the
//! error.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};
use toolrack_service::{Home, LocalService, McpConfig, McpService as _, McpStatus, ServiceOptions};
use toolrack_testkit::Marker;
use toolrack_testkit::harness::{ProcessEntry, ProcessHandle, ProcessTable, print_progress};
use uuid::Uuid;

use crate::cycle::{Cycle, repeat_if_busy, run_parallel};
use crate::findings::Findings;
use crate::gate::Effort;
use crate::process::scripted_server;
use crate::random::{Random, Seeds};

/// The status must show the error within this time after the exit.
const ERROR_LIMIT: Duration = Duration::from_millis(100);

/// Interval between two reads of the status.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Guard for waits that normally return at once.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Delay between sending a call and killing the server: minimum and maximum.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(20));

/// Servers that crash at the same time.
const N_PARALLEL: usize = 2;

/// After one crash in this many, the gate waits until the service restarts the server by itself.
const RESTART_CHECK_EVERY: u64 = 10;

struct Gate {
    service: LocalService,
    /// Sets of servers, one server for each scenario. A crash takes a set, so that no other one disturbs it.
    servers: Mutex<Vec<Vec<Uuid>>>,
}

pub(crate) async fn run(effort: Effort, seeds: &Seeds) -> anyhow::Result<Findings> {
    let (dir, marker) = (TempDir::new()?, Marker::new());
    let service = LocalService::open(Home::in_dir(dir.path()), ServiceOptions::default()).await?;
    let gate = Arc::new(Gate { service, servers: Mutex::default() });
    for number in 0..N_PARALLEL {
        let servers = gate.create_servers(number, &marker)?;
        gate.servers.lock().push(servers);
    }
    let n_crashes = effort.select(20, 500) * SCENARIOS.len() as u64;
    print_progress(format!("G21: {n_crashes} crashes"));
    let crash = |(number, (index, scenario))| {
        let (gate, seeds) = (Arc::clone(&gate), seeds.clone());
        async move {
            let servers = gate.servers.lock().pop().unwrap_or_default();
            let id = servers.get(index).copied().unwrap_or_default();
            let cycle = gate.crash_one(&seeds, number, id, scenario).await;
            gate.servers.lock().push(servers);
            cycle
        }
    };
    let scenarios = (0..n_crashes).zip(SCENARIOS.iter().enumerate().cycle());
    let crashes = run_parallel(N_PARALLEL, scenarios.map(crash)).await;
    gate.service.close().await;
    let mut findings = Findings::default();
    findings.count("crashes", crashes.len() as u64);
    findings.total("crashes_", "tried_again", &crashes);
    findings.times("", "error", &crashes);
    for scenario in &SCENARIOS {
        findings.longest(scenario.name, &crashes);
    }
    findings.times("", "back", &crashes);
    findings.fail_cycles(crashes);
    let n_left = findings.fail_leftovers(0, "left at the end", &marker);
    findings.count("survivors", n_left);
    Ok(findings)
}

impl Gate {
    /// Creates one server per crash scenario and returns their ids.
    fn create_servers(&self, number: usize, marker: &Marker) -> anyhow::Result<Vec<Uuid>> {
        let (variable, value) = marker.env_var();
        let add = |scenario: &CrashScenario| {
            let document = json!({
                "name": format!("{}-{number}", scenario.name),
                "package": { "package_type": "binary", "identifier": scripted_server()? },
                "transport": { "type": "stdio" },
                "env_vars": { variable: value },
                "config": { "args": ["--plan", scenario.plan] },
            });
            let config = McpConfig::from_json(&document).context("a config of ours")?;
            self.service.create(config).context("a server of ours")
        };
        SCENARIOS.iter().map(add).collect()
    }

    async fn crash_one(
        &self,
        seeds: &Seeds,
        number: u64,
        id: Uuid,
        scenario: &'static CrashScenario,
    ) -> Cycle {
        let crash = || async {
            let (seed, random) = seeds.for_cycle(number);
            let mut cycle = Cycle { seed, ..Cycle::default() };
            let failure = self.crash(id, scenario, random, &mut cycle).await.err();
            cycle.failures.extend(failure);
            cycle
        };
        let mut cycle = repeat_if_busy(crash).await;
        let checks_restart = (number / SCENARIOS.len() as u64).is_multiple_of(RESTART_CHECK_EVERY);
        if checks_restart && cycle.failures.is_empty() {
            match self.wait_restarted(id).await {
                Some(back) => cycle.time("back", back),
                None => cycle.fail("is not started again"),
            }
        }
        cycle.failures.iter_mut().for_each(|what| *what = format!("{}: {what}", scenario.name));
        cycle
    }

    async fn crash(
        &self,
        id: Uuid,
        scenario: &'static CrashScenario,
        mut random: Random,
        cycle: &mut Cycle,
    ) -> Result<(), String> {
        // A start by the user resets the failure count, so it does not wait for the backoff.
        let started = timeout(CALL_TIMEOUT, self.service.start(id)).await;
        started.map_err(|_late| "does not start")?.map_err(|error| error.to_string())?;
        let (leader, server) = self.processes(id).await?;
        let watcher = ExitWatcher::start(leader, CALL_TIMEOUT);
        let killing = async {
            sleep(random.time(PAUSE.0, PAUSE.1)).await;
            // Some runtimes handle the first SEGV themselves and die of the next one.
            while let Some(signal) = scenario.signal.filter(|_| !server.wait_exit(Duration::ZERO)) {
                server.signal(signal);
                sleep(POLL_INTERVAL).await;
            }
        };
        let error_shown = async {
            loop {
                if let McpStatus::Error { message } = self.service.status(id) {
                    return (Instant::now(), message);
                }
                sleep(POLL_INTERVAL).await;
            }
        };
        let all = async { tokio::join!(error_shown, self.background_call(id, scenario), killing) };
        let ((shown, message), called, ()) =
            timeout(CALL_TIMEOUT, all).await.map_err(|_late| "the crash is never shown")?;
        let (ended, scheduling_delay) = watcher.finish().ok_or("the process does not end")?;
        let took = shown.saturating_duration_since(ended);
        cycle.times.extend([("error", took), (scenario.name, took)]);
        cycle.is_inconclusive = took > ERROR_LIMIT && scheduling_delay > STARVED;
        if scenario.is_busy && called.is_ok() {
            return Err("a call to a server that crashed succeeded".to_owned());
        }
        if took > ERROR_LIMIT {
            return Err(format!("`{message}` was shown {took:?} after the death of the process"));
        }
        Ok(())
    }

    /// Returns the time until the service restarted the server by itself.
    async fn wait_restarted(&self, id: Uuid) -> Option<Duration> {
        let started_at = Instant::now();
        let runs = async {
            while !matches!(self.service.status(id), McpStatus::Running { .. }) {
                sleep(POLL_INTERVAL).await;
            }
        };
        timeout(CALL_TIMEOUT, runs).await.ok().map(|()| started_at.elapsed())
    }

    /// The call in progress when the server dies, if the scenario has one.
    async fn background_call(&self, id: Uuid, scenario: &CrashScenario) -> Result<String, String> {
        if !scenario.is_busy {
            return Ok(String::new());
        }
        self.call(id, "sleep", &json!({ "ms": 600_000 })).await
    }

    /// The process that the guardian started, whose exit is the crash, and the one that answers, possibly a
    /// descendant.
    async fn processes(&self, id: Uuid) -> Result<(ProcessHandle, ProcessHandle), String> {
        let ids = self.call(id, "pid", &json!({})).await?;
        let ids: Value = serde_json::from_str(&ids).map_err(|error| error.to_string())?;
        let pid = ids.get("pid").and_then(Value::as_u64).and_then(|pid| u32::try_from(pid).ok());
        let guardian = self.service.status_detail(id).and_then(|status| status.process);
        let table = ProcessTable::read();
        // Orphans become children of the guardian too.
        let is_leader = |entry: &ProcessEntry| {
            Some(entry.pid) == pid
                || table.descendants(entry.pid).iter().any(|child| Some(child.pid) == pid)
        };
        let leader =
            table.children(guardian.ok_or("it has no process")?).into_iter().find(is_leader);
        let leader = leader.and_then(|leader| ProcessHandle::open(leader.pid));
        let server = pid.and_then(ProcessHandle::open);
        Ok(leader.zip(server).ok_or("its processes are not found")?)
    }

    async fn call(&self, id: Uuid, tool: &str, arguments: &Value) -> Result<String, String> {
        self.service.call_tool(id, tool, arguments).await.map_err(|error| error.to_string())
    }
}

/// How a server crashes, and under which load.
#[derive(Debug)]
struct CrashScenario {
    name: &'static str,
    plan: &'static str,
    /// Signal to the process that answers. Without one, its plan makes it exit.
    signal: Option<Signal>,
    /// Whether a call is in progress.
    is_busy: bool,
}

const fn idle(name: &'static str, plan: &'static str, signal: Signal) -> CrashScenario {
    CrashScenario { name, plan, signal: Some(signal), is_busy: false }
}

const fn busy(name: &'static str, plan: &'static str, signal: Option<Signal>) -> CrashScenario {
    CrashScenario { name, plan, signal, is_busy: true }
}

/// The first call asks for process ids, so the second one is the call in progress.
const SCENARIOS: [CrashScenario; 8] = [
    // A launcher exits when the server below it is gone.
    idle("exit_idle", "tree", Signal::KILL),
    busy("exit_busy", "call:2=exit(3)", None),
    idle("kill_idle", "", Signal::KILL),
    busy("kill_busy", "", Some(Signal::KILL)),
    idle("segv_idle", "", Signal::SEGV),
    busy("segv_busy", "", Some(Signal::SEGV)),
    // Children that survive are ended later and must not delay the error.
    idle("family_idle", "start=children(2); escape=1", Signal::KILL),
    busy("family_busy", "start=children(2); escape=1", Some(Signal::KILL)),
];

/// Sleep of the watcher in each round after the exit.
const NAP: Duration = Duration::from_millis(1);

/// A longer oversleep means that the machine is too busy to measure.
const STARVED: Duration = Duration::from_millis(20);

struct ExitWatcher {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Option<(Instant, Duration)>>,
}

impl ExitWatcher {
    fn start(process: ProcessHandle, call_timeout: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let ended = process.wait_exit(call_timeout).then(Instant::now)?;
            let mut scheduling_delay = Duration::ZERO;
            while !stopped.load(Ordering::Acquire) && ended.elapsed() < call_timeout {
                let started_at = Instant::now();
                thread::sleep(NAP);
                scheduling_delay = scheduling_delay.max(started_at.elapsed().saturating_sub(NAP));
            }
            Some((ended, scheduling_delay))
        });
        Self { stop, thread }
    }

    /// Stops the watcher. Returns the exit of the process, if it came, and the largest oversleep since then.
    fn finish(self) -> Option<(Instant, Duration)> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_process_has_no_exit_observation() {
        let own = ProcessHandle::open(std::process::id()).unwrap();
        assert!(ExitWatcher::start(own, Duration::from_millis(5)).finish().is_none());
    }
}
