//! G21: when a server of the service crashes, its status says so at once, whether it was busy or not.
//!
//! The clock runs from the end of the server's own process, as the kernel tells it, to the first look at which
//! `status` is an error. A server that crashed is started again after an eighth of a second at the earliest, so
//! somebody who looks once in a millisecond cannot miss the error in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use toolrack_service::{Home, LocalService, McpConfig, McpService as _, McpStatus, ServiceOptions};
use toolrack_testkit::Marker;
use uuid::Uuid;

use crate::findings::Findings;
use crate::gate::Effort;
use crate::process::{Handle, end_marked, scripted_server};
use crate::process_table::{Census, Resident};
use crate::random::{Random, Seeds};
use crate::timing::{Spread, millis};

/// The status says so this soon after the death of the process.
const ERROR_LIMIT: Duration = Duration::from_millis(100);

/// How often the status is looked at.
const LOOK: Duration = Duration::from_millis(1);

/// What comes with a wait that should not be needed at all.
const PATIENCE: Duration = Duration::from_secs(20);

/// When a server is killed, after a call was sent on its way.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(20));

/// How often a crash is tried on a machine that is too busy.
const MAX_TRIES: u32 = 5;

/// Servers that crash at the same time, each in a lane of its own.
const N_LANES: usize = 2;

/// One crash in so many is left to the service, which has to start the server again by itself.
const ALONE_EVERY: u64 = 10;

struct Gate {
    service: LocalService,
    seeds: Seeds,
    next: AtomicU64,
    n_void: AtomicU64,
}

/// What one crash came to.
#[derive(Debug)]
struct Crash {
    seed: u64,
    way: &'static Way,
    /// From the death to the error.
    took: Option<Duration>,
    /// Whether it was late because the machine was too busy.
    is_void: bool,
    /// From the error until it ran again by itself, if it was left to.
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
        n_void: AtomicU64::new(0),
    });
    let n_crashes = effort.of(20, 500) * WAYS.len() as u64;
    crate::print_progress(format!("G21: {n_crashes} crashes"));
    let mut lanes = JoinSet::new();
    for lane in 0..N_LANES {
        let servers = gate.servers(lane, &marker)?;
        lanes.spawn(Arc::clone(&gate).crash_many(servers, n_crashes));
    }
    let crashes: Vec<Crash> = lanes.join_all().await.into_iter().flatten().collect();
    gate.service.close().await;
    let mut findings = Findings::default();
    findings.count("crashes", crashes.len() as u64);
    findings.count("crashes_tried_again", gate.n_void.load(Ordering::Relaxed));
    let times = |of: &dyn Fn(&Crash) -> Option<Duration>| {
        Spread::of(crashes.iter().filter_map(of).collect())
    };
    findings.spread("error", times(&|value| value.took));
    for way in &WAYS {
        let spread = times(&|value| value.took.filter(|_| value.way == way));
        findings.measure(&format!("{}_max_ms", way.name), millis(spread.max));
    }
    findings.spread("back", times(&|value| value.back));
    for Crash { seed, way, failure, .. } in crashes {
        if let Some(what) = failure {
            findings.fail(seed, format!("{}: {what}", way.name));
        }
    }
    let left = end_marked(&marker);
    findings.count("survivors", left.len() as u64);
    if !left.is_empty() {
        findings.fail(0, format!("left at the end: {left:?}"));
    }
    Ok(findings)
}

impl Gate {
    /// A server for each way to crash, by its id.
    fn servers(&self, lane: usize, marker: &Marker) -> anyhow::Result<Vec<Uuid>> {
        let (variable, value) = marker.pair();
        let add = |way: &Way| {
            let document = json!({
                "name": format!("{}-{lane}", way.name),
                "package": { "package_type": "binary", "identifier": scripted_server()? },
                "transport": { "type": "stdio" },
                "env_vars": { variable: value },
                "config": { "args": ["--plan", way.plan] },
            });
            let config = McpConfig::from_json(&document).context("a config of ours")?;
            self.service.create(config).context("a server of ours")
        };
        WAYS.iter().map(add).collect()
    }

    async fn crash_many(self: Arc<Self>, servers: Vec<Uuid>, n_crashes: u64) -> Vec<Crash> {
        let mut crashes = Vec::new();
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= n_crashes {
                return crashes;
            }
            let place = usize::try_from(number).unwrap_or_default() % WAYS.len();
            if let (Some(way), Some(id)) = (WAYS.get(place), servers.get(place)) {
                crashes.push(Box::pin(self.crash_one(number, *id, way)).await);
            }
        }
    }

    /// Lets a server crash. A crash that the machine was too busy for is tried again, a few times.
    async fn crash_one(&self, number: u64, id: Uuid, way: &'static Way) -> Crash {
        let mut n_tries = 0;
        loop {
            let (seed, random) = self.seeds.turn(number);
            let mut crash =
                Crash { seed, way, took: None, is_void: false, back: None, failure: None };
            crash.failure = self.crash(id, random, &mut crash).await.err();
            n_tries += 1;
            if crash.is_void && n_tries < MAX_TRIES {
                self.n_void.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let is_alone = (number / WAYS.len() as u64).is_multiple_of(ALONE_EVERY);
            if is_alone && crash.failure.is_none() {
                crash.failure = self.comes_back(id, &mut crash).await.err();
            }
            return crash;
        }
    }

    async fn crash(&self, id: Uuid, mut random: Random, crash: &mut Crash) -> Result<(), String> {
        let way = crash.way;
        // A user's start forgets what went before, so that it does not wait for the next try.
        let started = timeout(PATIENCE, self.service.start(id)).await;
        started.map_err(|_late| "does not start")?.map_err(|error| error.to_string())?;
        let Victim { leader, server } = self.processes(id).await?;
        let witness = Witness::of(leader, PATIENCE);
        let deed = async {
            sleep(random.time(PAUSE.0, PAUSE.1)).await;
            // Some programs look at a signal such as SEGV themselves before they die of the next one.
            while let Some(signal) = way.signal.filter(|_| !server.ends_within(Duration::ZERO)) {
                server.signal(signal);
                sleep(LOOK).await;
            }
        };
        let watched = async {
            loop {
                if let McpStatus::Error { message } = self.service.status(id) {
                    return (Instant::now(), message);
                }
                sleep(LOOK).await;
            }
        };
        let all = async { tokio::join!(watched, self.busy(id, way), deed) };
        let ((shown, message), called, ()) =
            timeout(PATIENCE, all).await.map_err(|_late| "the crash is never shown")?;
        let testimony = witness.testify().ok_or("the process does not end")?;
        let took = shown.saturating_duration_since(testimony.ended);
        crash.took = Some(took);
        crash.is_void = took > ERROR_LIMIT && testimony.is_starved();
        if way.load == Load::Busy && called.is_ok() {
            return Err("a call to a server that crashed succeeded".to_owned());
        }
        if took > ERROR_LIMIT {
            return Err(format!("`{message}` was shown {took:?} after the death of the process"));
        }
        Ok(())
    }

    /// Waits until the server runs again, without anybody's help.
    async fn comes_back(&self, id: Uuid, crash: &mut Crash) -> Result<(), String> {
        let begun = Instant::now();
        let runs = async {
            while !matches!(self.service.status(id), McpStatus::Running { .. }) {
                sleep(LOOK).await;
            }
        };
        timeout(PATIENCE, runs).await.map_err(|_late| "is not started again")?;
        crash.back = Some(begun.elapsed());
        Ok(())
    }

    /// The call that is under way when the server dies, or nothing.
    async fn busy(&self, id: Uuid, way: &Way) -> Result<String, String> {
        match way.load {
            Load::Idle => Ok(String::new()),
            Load::Busy => self.call(id, "sleep", &json!({ "ms": 600_000 })).await,
        }
    }

    async fn processes(&self, id: Uuid) -> Result<Victim, String> {
        let said = self.call(id, "pid", &json!({})).await?;
        let said: Value = serde_json::from_str(&said).map_err(|error| error.to_string())?;
        let pid = said.get("pid").and_then(Value::as_u64).and_then(|pid| u32::try_from(pid).ok());
        let guardian =
            self.service.status_detail(id).and_then(|status_detail| status_detail.process);
        let census = Census::take();
        // What has lost its parent is a child of the guardian too.
        let is_leader = |value: &Resident| {
            Some(value.pid) == pid
                || census.descendants(value.pid).iter().any(|value| Some(value.pid) == pid)
        };
        let leader =
            census.children(guardian.ok_or("it runs nowhere")?).into_iter().find(is_leader);
        let leader = leader.and_then(|leader| Handle::of(leader.pid));
        let server = pid.and_then(Handle::of);
        let (leader, server) = leader.zip(server).ok_or("its processes are not to be found")?;
        Ok(Victim { leader, server })
    }

    async fn call(&self, id: Uuid, tool: &str, arguments: &Value) -> Result<String, String> {
        self.service.call_tool(id, tool, arguments).await.map_err(|error| error.to_string())
    }
}

/// The processes of one server.
struct Victim {
    /// The one that was started, whose end is the crash.
    leader: Handle,
    /// The one that answers, which may be below it.
    server: Handle,
}

/// How a server crashes, and when.
#[derive(Debug, PartialEq)]
struct Way {
    name: &'static str,
    plan: &'static str,
    /// What is sent to the process that answers. Without a signal, its plan makes it end.
    signal: Option<Signal>,
    load: Load,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    /// Nobody waits for an answer.
    Idle,
    /// A call is under way.
    Busy,
}

/// The first call asks who is who, so that the second one is the one that is under way.
const WAYS: [Way; 8] = [
    // A launcher that exits when the server below it is gone.
    Way { name: "exit_idle", plan: "tree", signal: Some(Signal::KILL), load: Load::Idle },
    Way { name: "exit_busy", plan: "call:2=exit(3)", signal: None, load: Load::Busy },
    Way { name: "kill_idle", plan: "", signal: Some(Signal::KILL), load: Load::Idle },
    Way { name: "kill_busy", plan: "", signal: Some(Signal::KILL), load: Load::Busy },
    Way { name: "segv_idle", plan: "", signal: Some(Signal::SEGV), load: Load::Idle },
    Way { name: "segv_busy", plan: "", signal: Some(Signal::SEGV), load: Load::Busy },
    // What it leaves behind is ended in its own time, and does not hold up the news.
    Way {
        name: "family_idle",
        plan: "start=children(2); escape=1",
        signal: Some(Signal::KILL),
        load: Load::Idle,
    },
    Way {
        name: "family_busy",
        plan: "start=children(2); escape=1",
        signal: Some(Signal::KILL),
        load: Load::Busy,
    },
];

/// How long the witness sleeps again and again, once the process has ended.
const NAP: Duration = Duration::from_millis(1);

/// A machine that lets somebody oversleep by this much is too busy to measure anything by.
const STARVED: Duration = Duration::from_millis(20);

struct Witness {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Option<Testimony>>,
}

/// What the witness saw.
#[derive(Debug, Clone, Copy)]
struct Testimony {
    /// When the process had ended.
    ended: Instant,
    /// By how much the witness overslept from then on, at most.
    overslept: Duration,
}

impl Witness {
    fn of(process: Handle, patience: Duration) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let ended = process.ends_within(patience).then(Instant::now)?;
            let mut overslept = Duration::ZERO;
            while !over.load(Ordering::Acquire) && ended.elapsed() < patience {
                let begun = Instant::now();
                thread::sleep(NAP);
                overslept = overslept.max(begun.elapsed().saturating_sub(NAP));
            }
            Some(Testimony { ended, overslept })
        });
        Self { is_over, thread }
    }

    /// Ends the watch. Nothing was seen if the process did not end.
    fn testify(self) -> Option<Testimony> {
        self.is_over.store(true, Ordering::Release);
        self.thread.join().ok().flatten()
    }
}

impl Testimony {
    fn is_starved(&self) -> bool {
        self.overslept > STARVED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_runs_on_has_no_testimony() {
        let own = Handle::of(std::process::id()).unwrap();
        assert!(Witness::of(own, Duration::from_millis(5)).testify().is_none());
    }
}
