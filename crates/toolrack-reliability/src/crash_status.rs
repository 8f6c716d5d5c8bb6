//! G21: when a server of the service crashes, its status shows an error at once, busy or idle.
//!
//! The clock runs from the exit of the server process, as the kernel reports it, to the first poll at which `status`
//! is an error. A crashed server restarts after 125 ms at the earliest, so polling every millisecond cannot miss the
//! error.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use toolrack_service::{Home, LocalService, McpConfig, McpService as _, McpStatus, ServiceOptions};
use toolrack_testkit::Marker;
use toolrack_testkit::harness::{ProcessEntry, ProcessHandle, ProcessTable, print_progress};
use uuid::Uuid;

use crate::findings::{Findings, millis};
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

/// Attempts per crash when the machine is too busy to measure.
const MAX_TRIES: u32 = 5;

/// Servers that crash at the same time.
const N_PARALLEL: usize = 2;

/// After one crash in this many, the gate waits until the service restarts the server by itself.
const RESTART_CHECK_EVERY: u64 = 10;

struct Gate {
    service: LocalService,
    seeds: Seeds,
    next: AtomicU64,
    n_inconclusive: AtomicU64,
}

/// Result of one crash.
#[derive(Debug)]
struct Crash {
    seed: u64,
    scenario: &'static CrashScenario,
    /// From the exit to the error.
    took: Option<Duration>,
    /// Whether it was late only because the machine was too busy.
    is_inconclusive: bool,
    /// From the error until the server ran again by itself, where that was tested.
    back: Option<Duration>,
    failure: Option<String>,
}

pub(crate) async fn run(effort: Effort, seeds: &Seeds) -> anyhow::Result<Findings> {
    let (dir, marker) = (TempDir::new()?, Marker::new());
    let service = LocalService::open(Home::in_dir(dir.path()), ServiceOptions::default()).await?;
    let gate = Arc::new(Gate {
        service,
        seeds: seeds.clone(),
        next: AtomicU64::new(0),
        n_inconclusive: AtomicU64::new(0),
    });
    let n_crashes = effort.select(20, 500) * SCENARIOS.len() as u64;
    print_progress(format!("G21: {n_crashes} crashes"));
    let mut workers = JoinSet::new();
    for worker in 0..N_PARALLEL {
        let servers = gate.servers(worker, &marker)?;
        workers.spawn(Arc::clone(&gate).crash_many(servers, n_crashes));
    }
    let crashes: Vec<Crash> = workers.join_all().await.into_iter().flatten().collect();
    gate.service.close().await;
    let mut findings = Findings::default();
    findings.count("crashes", crashes.len() as u64);
    findings.count("crashes_tried_again", gate.n_inconclusive.load(Ordering::Relaxed));
    findings.percentiles("error", crashes.iter().filter_map(|crash| crash.took));
    for scenario in &SCENARIOS {
        let of_scenario = crashes.iter().filter(|crash| crash.scenario == scenario);
        let longest = of_scenario.filter_map(|crash| crash.took).max().unwrap_or_default();
        findings.measure(&format!("{}_max_ms", scenario.name), millis(longest));
    }
    findings.percentiles("back", crashes.iter().filter_map(|crash| crash.back));
    for Crash { seed, scenario, failure, .. } in crashes {
        if let Some(what) = failure {
            findings.fail(seed, format!("{}: {what}", scenario.name));
        }
    }
    let n_left = findings.fail_leftovers(0, "left at the end", &marker);
    findings.count("survivors", n_left);
    Ok(findings)
}

impl Gate {
    /// Creates one server per crash scenario and returns their ids.
    fn servers(&self, worker: usize, marker: &Marker) -> anyhow::Result<Vec<Uuid>> {
        let (variable, value) = marker.env_var();
        let add = |scenario: &CrashScenario| {
            let document = json!({
                "name": format!("{}-{worker}", scenario.name),
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

    async fn crash_many(self: Arc<Self>, servers: Vec<Uuid>, n_crashes: u64) -> Vec<Crash> {
        let mut crashes = Vec::new();
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= n_crashes {
                return crashes;
            }
            let index = usize::try_from(number).unwrap_or_default() % SCENARIOS.len();
            if let (Some(scenario), Some(id)) = (SCENARIOS.get(index), servers.get(index)) {
                crashes.push(Box::pin(self.crash_one(number, *id, scenario)).await);
            }
        }
    }

    /// Crashes a server. Repeats a few times when the machine was too busy to measure.
    async fn crash_one(&self, number: u64, id: Uuid, scenario: &'static CrashScenario) -> Crash {
        let mut n_tries = 0;
        loop {
            let (seed, random) = self.seeds.for_cycle(number);
            let mut crash = Crash {
                seed,
                scenario,
                took: None,
                is_inconclusive: false,
                back: None,
                failure: None,
            };
            crash.failure = self.crash(id, random, &mut crash).await.err();
            n_tries += 1;
            if crash.is_inconclusive && n_tries < MAX_TRIES {
                self.n_inconclusive.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let checks_restart =
                (number / SCENARIOS.len() as u64).is_multiple_of(RESTART_CHECK_EVERY);
            if checks_restart && crash.failure.is_none() {
                crash.failure = self.wait_restarted(id, &mut crash).await.err();
            }
            return crash;
        }
    }

    async fn crash(&self, id: Uuid, mut random: Random, crash: &mut Crash) -> Result<(), String> {
        let scenario = crash.scenario;
        // A start by the user resets the failure count, so it does not wait for the backoff.
        let started = timeout(CALL_TIMEOUT, self.service.start(id)).await;
        started.map_err(|_late| "does not start")?.map_err(|error| error.to_string())?;
        let ServerProcesses { leader, server } = self.processes(id).await?;
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
        let observation = watcher.finish().ok_or("the process does not end")?;
        let took = shown.saturating_duration_since(observation.ended);
        crash.took = Some(took);
        crash.is_inconclusive = took > ERROR_LIMIT && observation.is_starved();
        if scenario.load == Load::Busy && called.is_ok() {
            return Err("a call to a server that crashed succeeded".to_owned());
        }
        if took > ERROR_LIMIT {
            return Err(format!("`{message}` was shown {took:?} after the death of the process"));
        }
        Ok(())
    }

    /// Waits until the service restarts the server by itself.
    async fn wait_restarted(&self, id: Uuid, crash: &mut Crash) -> Result<(), String> {
        let started_at = Instant::now();
        let runs = async {
            while !matches!(self.service.status(id), McpStatus::Running { .. }) {
                sleep(POLL_INTERVAL).await;
            }
        };
        timeout(CALL_TIMEOUT, runs).await.map_err(|_late| "is not started again")?;
        crash.back = Some(started_at.elapsed());
        Ok(())
    }

    /// The call in progress when the server dies, if the scenario has one.
    async fn background_call(&self, id: Uuid, scenario: &CrashScenario) -> Result<String, String> {
        match scenario.load {
            Load::Idle => Ok(String::new()),
            Load::Busy => self.call(id, "sleep", &json!({ "ms": 600_000 })).await,
        }
    }

    async fn processes(&self, id: Uuid) -> Result<ServerProcesses, String> {
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
        let (leader, server) = leader.zip(server).ok_or("its processes are not found")?;
        Ok(ServerProcesses { leader, server })
    }

    async fn call(&self, id: Uuid, tool: &str, arguments: &Value) -> Result<String, String> {
        self.service.call_tool(id, tool, arguments).await.map_err(|error| error.to_string())
    }
}

/// The processes of one server.
struct ServerProcesses {
    /// The process that the guardian started; its exit is the crash.
    leader: ProcessHandle,
    /// The process that answers, possibly a descendant of the leader.
    server: ProcessHandle,
}

/// How a server crashes, and under which load.
#[derive(Debug, PartialEq)]
struct CrashScenario {
    name: &'static str,
    plan: &'static str,
    /// Signal to the process that answers. Without one, its plan makes it exit.
    signal: Option<Signal>,
    load: Load,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    /// No call is in progress.
    Idle,
    /// A call is in progress.
    Busy,
}

/// The first call asks for process ids, so the second one is the call in progress.
const SCENARIOS: [CrashScenario; 8] = [
    // A launcher exits when the server below it is gone.
    CrashScenario { name: "exit_idle", plan: "tree", signal: Some(Signal::KILL), load: Load::Idle },
    CrashScenario { name: "exit_busy", plan: "call:2=exit(3)", signal: None, load: Load::Busy },
    CrashScenario { name: "kill_idle", plan: "", signal: Some(Signal::KILL), load: Load::Idle },
    CrashScenario { name: "kill_busy", plan: "", signal: Some(Signal::KILL), load: Load::Busy },
    CrashScenario { name: "segv_idle", plan: "", signal: Some(Signal::SEGV), load: Load::Idle },
    CrashScenario { name: "segv_busy", plan: "", signal: Some(Signal::SEGV), load: Load::Busy },
    // Children that survive are ended later and must not delay the error.
    CrashScenario {
        name: "family_idle",
        plan: "start=children(2); escape=1",
        signal: Some(Signal::KILL),
        load: Load::Idle,
    },
    CrashScenario {
        name: "family_busy",
        plan: "start=children(2); escape=1",
        signal: Some(Signal::KILL),
        load: Load::Busy,
    },
];

/// Sleep of the watcher in each round after the exit.
const NAP: Duration = Duration::from_millis(1);

/// A longer oversleep means that the machine is too busy to measure.
const STARVED: Duration = Duration::from_millis(20);

struct ExitWatcher {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Option<ExitObservation>>,
}

/// What the watcher saw.
#[derive(Debug, Clone, Copy)]
struct ExitObservation {
    /// When the process exited.
    ended: Instant,
    /// The largest oversleep since then.
    scheduling_delay: Duration,
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
            Some(ExitObservation { ended, scheduling_delay })
        });
        Self { stop, thread }
    }

    /// Stops the watcher. Returns `None` if the process did not exit.
    fn finish(self) -> Option<ExitObservation> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().ok().flatten()
    }
}

impl ExitObservation {
    fn is_starved(&self) -> bool {
        self.scheduling_delay > STARVED
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
