//! G23: no abuse by one server exhausts the daemon or harms a healthy server beside it.
//!
//! The scripted server plays the fixed abuses, then abuses drawn by seed. Each one is added to a running daemon over
//! the API, called, listed and read, and removed. The daemon stays for many abuses, so that leaks add up.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::mem;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use toolrack_service::LogStore;
use toolrack_testkit::harness::{
    command, cpu_time, memory_kib, now, print_progress, reset_peak_memory,
};
use toolrack_testkit::{Marker, open_fds};

use crate::abuse::{Abuse, Connection};
use crate::daemon::{DaemonHome, RunningDaemon, ServerEntry};
use crate::daemon_client::{ApiResponse, DaemonClient, discard_response};
use crate::findings::{Findings, millis, percentile};
use crate::gate::Effort;
use crate::process::scripted_server;
use crate::random::Seeds;
use crate::subreaper::{RunningChild, Subreaper};

const HEALTHY: &str = "healthy";
const HOSTILE: &str = "hostile";

/// Drawn abuses.
const N_QUICK: u64 = 20;
const N_FULL: u64 = 200;

/// Abuses that one daemon sees.
const PER_DAEMON: usize = 26;

/// How long each abuse goes on before the server is removed.
const WINDOW: Duration = Duration::from_millis(1200);

/// Time for a fixed abuse to arrive in full before that.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(20);

/// Memory of the daemon at its peak. The two calls and four lists in progress may each hold one message of 32 MiB, and
/// the list that is kept another 32 MiB.
const MAX_PEAK_KIB: u64 = 320 << 10;

/// Memory of the daemon after the abuse, above that of the start. The tools of a removed server may stay in three forms
/// of 32 MiB until the lists are used again.
const MAX_KEPT_KIB: u64 = 128 << 10;

/// Share of one CPU that the daemon may use during an abuse, and the time that it may use in any case.
const MAX_CPU_PERCENT: u32 = 130;
const FREE_CPU: Duration = Duration::from_secs(1);

/// Share of one CPU that the daemon may use after the removal, above that before the abuses: a task that spins would
/// use all of one.
const MAX_IDLE_CPU_PERCENT: u32 = 30;
const IDLE_WINDOW: Duration = Duration::from_millis(600);

/// Descriptors that may be open during and after the abuse, above those before.
const MAX_OPEN_DESCRIPTORS: usize = 64;
const MAX_DESCRIPTORS: usize = 8;

/// Growth of the home by one abuse: a server's log, its cached tools, and the history of the calls.
const MAX_DISK_BYTES: u64 = 24 << 20;

/// Size of the logs of both servers: 256 KiB each, and what is appended at once.
const MAX_LOG_BYTES: u64 = 1 << 20;

/// 99 of 100 calls to the healthy server may take this long, or this many times as long as without the hostile one.
const MAX_P99: Duration = Duration::from_millis(500);
const MAX_P99_RATIO: u32 = 4;

/// No call to the healthy server may take longer. A daemon that freezes once for seconds has a good p99.
const MAX_CALL: Duration = Duration::from_secs(3);

/// Plays of an abuse during which the healthy server is slow: the machine may be busy with something else.
const MAX_PLAYS: u32 = 3;

/// Concurrent callers of the healthy server, and the pause of each between two calls.
const N_CALLERS: usize = 2;
const PAUSE: Duration = Duration::from_millis(3);

/// Pause between two requests about the hostile server.
const REQUEST_PAUSE: Duration = Duration::from_millis(50);

/// Timeouts of the hostile server in its config, and the time until its processes must have ended.
const SERVER_TIMEOUT: &str = "3s";
const FIXED_SERVER_TIMEOUT: &str = "20s";
const REMOVE_LIMIT: Duration = Duration::from_secs(15);

/// Time for memory, descriptors and processes to be released after the removal.
const SETTLE_LIMIT: Duration = Duration::from_secs(5);
const SETTLE_INTERVAL: Duration = Duration::from_millis(50);

const START_LIMIT: Duration = Duration::from_mins(1);
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// Processes left behind exit by themselves after this time.
const LIFETIME: &str = "60s";

/// Length of tool names that no server has: one word, and one in which every byte could end a server's name.
const UNKNOWN_NAME_BYTES: usize = 4_000;
const UNKNOWN_PATH_BYTES: usize = 256 << 10;

/// Share of the abuses about which the gateway must answer a request with success. Others break their own server.
const MIN_ANSWERED_PERCENT: usize = 25;

/// Requests to the gateway: method, name header and parameters.
const GATEWAY_REQUESTS: [(&str, &str, &str); 6] = [
    ("tools/list", "", "{}"),
    ("resources/list", "", "{}"),
    ("resources/templates/list", "", "{}"),
    ("prompts/list", "", "{}"),
    ("resources/read", "test://readme", r#"{"uri":"test://readme"}"#),
    ("prompts/get", "plain", r#"{"name":"plain"}"#),
];

/// What one abuse did to the daemon.
#[derive(Debug, Default, Clone, PartialEq)]
struct Measured {
    peak_kib: u64,
    kept_kib: u64,
    cpu: Duration,
    took: Duration,
    idle_cpu_percent: u32,
    n_descriptors_open: usize,
    n_descriptors_left: usize,
    disk_bytes: u64,
    p99: Duration,
    longest: Duration,
    /// Requests to the gateway about the hostile server that were answered with success.
    n_answered: u64,
    failures: Vec<String>,
    left: Vec<String>,
}

/// Values before the first abuse of a daemon.
#[derive(Debug, Clone, Copy)]
struct Baseline {
    rss_kib: u64,
    n_descriptors: usize,
    idle_cpu_percent: u32,
    p99: Duration,
}

/// The most that was seen while the hostile server was connected.
#[derive(Debug, Default, Clone, Copy)]
struct Most {
    n_descriptors: usize,
    disk_bytes: u64,
}

/// Calls to the healthy server since they were last taken.
#[derive(Debug, Default)]
struct Neighbor {
    times: Vec<Duration>,
    failures: Vec<String>,
    /// Calls that each caller has ended. The counts go on when the rest is taken.
    n_calls: [u64; N_CALLERS],
}

impl Neighbor {
    fn take(&mut self) -> Self {
        let n_calls = self.n_calls;
        mem::replace(self, Self { n_calls, ..Self::default() })
    }
}

/// The daemon under test and what is beside it.
struct Scene<'a> {
    subreaper: &'a Subreaper,
    daemon: &'a RunningDaemon<'a>,
    /// Directory of the daemon's files, and that of the servers' logs in it.
    home: PathBuf,
    logs: PathBuf,
    neighbor: &'a Mutex<Neighbor>,
    baseline: Baseline,
}

/// Findings, and what every abuse did.
#[derive(Default)]
struct Run {
    findings: Findings,
    measured: Vec<Measured>,
}

/// An abuse, its seed and its number for `--only`.
struct Numbered {
    seed: u64,
    number: u64,
    abuse: Abuse,
}

pub(crate) fn run(
    subreaper: &Subreaper,
    effort: Effort,
    seeds: &Seeds,
    only: Option<u64>,
) -> anyhow::Result<Findings> {
    let mut run = Run::default();
    let abuses = abuses(effort.select(N_QUICK, N_FULL), seeds, only);
    run.findings.count("abuses", abuses.len() as u64);
    for (group, abuses) in abuses.chunks(PER_DAEMON).enumerate() {
        let daemon_home = DaemonHome::new(&[ServerEntry::scripted(HEALTHY, "")])?;
        if let Err(what) = run.play_group(subreaper, &daemon_home, abuses) {
            run.findings.fail(seeds.first(), format!("daemon {}: {what}", group + 1));
        }
        run.findings.fail_leftovers(seeds.first(), "left at the end", &daemon_home.marker);
    }
    report(&mut run.findings, &run.measured, seeds.first());
    Ok(run.findings)
}

/// The fixed abuses and the drawn ones. The number of an abuse is the same with its seed alone.
fn abuses(n_drawn: u64, seeds: &Seeds, only: Option<u64>) -> Vec<Numbered> {
    let fixed = Abuse::fixed();
    let (n_fixed, n_seeds) = (fixed.len() as u64, seeds.all().len() as u64);
    let fixed =
        (0..).zip(fixed).map(|(number, abuse)| Numbered { seed: seeds.first(), number, abuse });
    // A single abuse may come from a full run.
    let n_drawn = only.map_or(n_drawn, |number| n_drawn.max(number + 1));
    let drawn = (0..n_drawn).map(|cycle| {
        let (seed, mut random) = seeds.for_cycle(cycle);
        Numbered { seed, number: n_fixed + cycle / n_seeds, abuse: Abuse::draw(&mut random) }
    });
    let all = fixed.chain(drawn);
    all.filter(|numbered| only.is_none_or(|only| only == numbered.number)).collect()
}

impl Run {
    fn play_group(
        &mut self,
        subreaper: &Subreaper,
        daemon_home: &DaemonHome,
        abuses: &[Numbered],
    ) -> Result<(), String> {
        let mut daemon = daemon_home.start(subreaper)?;
        daemon.wait_connected(1, START_LIMIT)?;
        let (neighbor, stop) = (Mutex::new(Neighbor::default()), AtomicBool::new(false));
        thread::scope(|scope| {
            for index in 0..N_CALLERS {
                let (daemon, neighbor, stop) = (&daemon, &neighbor, &stop);
                scope.spawn(move || call_neighbor(daemon, neighbor, index, stop));
            }
            let scene = Scene::new(subreaper, &daemon, daemon_home, &neighbor);
            let played = scene.and_then(|scene| self.play_all(&scene, abuses));
            stop.store(true, Ordering::Relaxed);
            played
        })?;
        daemon.terminate();
        match daemon.wait_exit(STOP_LIMIT) {
            Some(0) => Ok(()),
            code => Err(format!("after SIGTERM the daemon exited with {code:?}")),
        }
    }

    /// Fails only if the daemon cannot go on.
    fn play_all(&mut self, scene: &Scene<'_>, abuses: &[Numbered]) -> Result<(), String> {
        for Numbered { seed, number, abuse } in abuses {
            print_progress(format!("G23: {number}: {abuse}"));
            let about = |what: &str| format!("{abuse}: {what}; replay with `--only {number}`");
            let (measured, problems) = match scene.play_until_quiet(abuse) {
                Ok(played) => played,
                Err(what) => {
                    self.findings.fail(*seed, about(&what));
                    return Err("the daemon does not go on".to_owned());
                }
            };
            print_progress(format!("G23: {number}: {}", measured.line()));
            for problem in problems {
                self.findings.fail(*seed, about(problem.text()));
            }
            self.measured.push(measured);
        }
        Ok(())
    }
}

impl<'a> Scene<'a> {
    fn new(
        subreaper: &'a Subreaper,
        daemon: &'a RunningDaemon<'a>,
        daemon_home: &DaemonHome,
        neighbor: &'a Mutex<Neighbor>,
    ) -> Result<Self, String> {
        // Caches and connections warm up first.
        thread::sleep(WINDOW);
        neighbor.lock().take();
        thread::sleep(WINDOW);
        let baseline = Baseline {
            rss_kib: memory(daemon, "VmRSS")?,
            n_descriptors: descriptors(daemon)?,
            idle_cpu_percent: idle_cpu_percent(daemon)?,
            p99: percentile(&neighbor.lock().take().times, 99),
        };
        let home = daemon_home.home();
        let logs = home.logs_dir();
        let home = home.config_file().parent().map(Path::to_path_buf).unwrap_or_default();
        Ok(Self { subreaper, daemon, home, logs, neighbor, baseline })
    }

    /// Plays an abuse, and plays it again if the only problem may be that the machine is busy.
    fn play_until_quiet(&self, abuse: &Abuse) -> Result<(Measured, Vec<Problem>), String> {
        let mut n_plays = 0;
        loop {
            n_plays += 1;
            let measured = self.play(abuse)?;
            let problems = judge(self.baseline, &measured);
            let is_only_slow = !problems.is_empty() && problems.iter().all(Problem::is_slowness);
            if !is_only_slow || n_plays == MAX_PLAYS {
                return Ok((measured, problems));
            }
        }
    }

    fn play(&self, abuse: &Abuse) -> Result<Measured, String> {
        let why = |error: io::Error| error.to_string();
        let Self { daemon, neighbor, home, .. } = self;
        let (pid, marker) = (daemon.process.handle.pid, Marker::new());
        let disk_before = disk_usage(home);
        let cpu = || cpu_time(pid).ok_or("the daemon is gone");
        let (started_at, cpu_before) = (now(), cpu()?);
        neighbor.lock().take();
        reset_peak_memory(pid).map_err(|error| format!("cannot reset the peak: {error}"))?;

        let server = match abuse.connection {
            Connection::Stdio => None,
            Connection::Http => Some(start_http(self.subreaper, abuse, &marker).map_err(why)?),
        };
        let url = server.as_ref().map(|server| server.url.as_str());
        let document = document(abuse, &marker, url).map_err(why)?.to_string();
        let mut client = daemon.client().map_err(why)?;
        let added = client.request("POST", "/api/servers", &document);
        let added = added
            .and_then(ApiResponse::success_body)
            .map_err(|error| format!("the daemon does not accept the server: {error}"))?;
        // A drawn abuse may break the server in any way; a fixed one that does not arrive tests nothing.
        let arrival = if abuse.is_fixed { self.wait_for_lists() } else { Ok(()) };
        let deadline = now() + WINDOW;
        let (most, n_answered) = thread::scope(|scope| {
            for round in 0..2 {
                scope.spawn(move || call_hostile(daemon.socket(), round, deadline));
            }
            scope.spawn(|| read_hostile(daemon.socket(), deadline));
            let lists = scope.spawn(|| list_hostile(daemon.socket(), deadline));
            let most = self.watch_until(deadline);
            (most, lists.join().unwrap_or_default())
        });
        let log_problem = self.check_log(&added).err();
        let removal = now();
        let removed = DaemonClient::open(daemon.socket(), REMOVE_LIMIT)
            .and_then(|mut client| client.request("DELETE", "/api/servers/hostile", ""))
            .and_then(ApiResponse::success_body);
        drop(server);
        let took = started_at.elapsed();
        let peak_kib = memory(daemon, "VmHWM")?;
        let cpu = cpu()?.saturating_sub(cpu_before);
        let (kept_kib, n_descriptors_left) = self.settle(&marker)?;
        let idle_cpu_percent = idle_cpu_percent(daemon)?;
        // Calls that began during the abuse count with their whole time.
        self.wait_for_neighbor();
        let Neighbor { times, mut failures, .. } = neighbor.lock().take();
        failures.extend(log_problem);
        failures.extend(arrival.err());
        if let Err(error) = removed {
            failures.push(format!("the removal failed after {:?}: {error}", removal.elapsed()));
        }
        if times.is_empty() {
            failures.push("no call to the healthy server has ended".to_owned());
        }
        let left = marker.kill_survivors();
        Ok(Measured {
            peak_kib,
            kept_kib,
            cpu,
            took,
            idle_cpu_percent: idle_cpu_percent.saturating_sub(self.baseline.idle_cpu_percent),
            n_descriptors_open: most.n_descriptors.saturating_sub(self.baseline.n_descriptors),
            n_descriptors_left,
            disk_bytes: most.disk_bytes.max(disk_usage(home)).saturating_sub(disk_before),
            p99: percentile(&times, 99),
            longest: times.iter().max().copied().unwrap_or_default(),
            n_answered,
            failures,
            left: left.into_iter().map(|process| process.command_line).collect(),
        })
    }

    /// Waits until the hostile server is connected and all of its lists are fetched.
    fn wait_for_lists(&self) -> Result<(), String> {
        let deadline = now() + ARRIVAL_LIMIT;
        let mut client = self.daemon.client().map_err(|error| error.to_string())?;
        loop {
            let states = client.get("/readyz").and_then(ApiResponse::success_body);
            let states = states.map_err(|error| format!("/readyz: {error}"))?;
            if states.pointer("/servers/connected").and_then(Value::as_u64) == Some(2) {
                break;
            }
            if now() > deadline {
                return Err(format!("the abuse did not arrive: {states}"));
            }
            thread::sleep(SETTLE_INTERVAL);
        }
        for (method, name, params) in GATEWAY_REQUESTS {
            let (headers, body) = gateway_request(method, name, params);
            let request = ("POST", "/mcp/server/hostile", headers.as_str());
            let limit = deadline.saturating_duration_since(now());
            match discard_response(self.daemon.socket(), request, &body, limit) {
                Ok(200) => {}
                Ok(status) => return Err(format!("{method}: status {status} instead of the list")),
                Err(error) => return Err(format!("the abuse did not arrive: {method}: {error}")),
            }
        }
        Ok(())
    }

    /// Looks at descriptors and disk until the deadline.
    fn watch_until(&self, deadline: Instant) -> Most {
        let mut most = Most::default();
        while now() < deadline {
            let n_descriptors = descriptors(self.daemon).unwrap_or_default();
            most.n_descriptors = most.n_descriptors.max(n_descriptors);
            most.disk_bytes = most.disk_bytes.max(disk_usage(&self.home));
            thread::sleep(SETTLE_INTERVAL);
        }
        most
    }

    /// Waits until every caller of the healthy server has ended a call, or the limit.
    fn wait_for_neighbor(&self) {
        let n_calls = || self.neighbor.lock().n_calls;
        let (before, deadline) = (n_calls(), now() + REMOVE_LIMIT);
        let is_done = |after: [u64; N_CALLERS]| {
            before.iter().zip(after).all(|(before, after)| after > *before)
        };
        while !is_done(n_calls()) && now() < deadline {
            thread::sleep(PAUSE);
        }
    }

    /// The log of the hostile server is bounded and can be read.
    fn check_log(&self, added: &Value) -> Result<(), String> {
        let n_bytes = disk_usage(&self.logs);
        if n_bytes > MAX_LOG_BYTES {
            return Err(format!("the log has {n_bytes} bytes"));
        }
        let id = added.pointer("/config/id").cloned().unwrap_or_default();
        let id = serde_json::from_value(id).map_err(|error| format!("no server id: {error}"))?;
        let lines = LogStore::new(self.logs.clone()).read(id);
        lines.map(drop).map_err(|error| format!("the log cannot be read: {error}"))
    }

    /// Waits until memory, descriptors and processes are released, or the limit. Returns what is left of the first two.
    fn settle(&self, marker: &Marker) -> Result<(u64, usize), String> {
        let started_at = now();
        loop {
            let kept = memory(self.daemon, "VmRSS")?.saturating_sub(self.baseline.rss_kib);
            let before = self.baseline.n_descriptors;
            let n_descriptors = descriptors(self.daemon)?.saturating_sub(before);
            let is_settled = kept <= MAX_KEPT_KIB
                && n_descriptors <= MAX_DESCRIPTORS
                && marker.survivors().is_empty();
            if is_settled || started_at.elapsed() > SETTLE_LIMIT {
                return Ok((kept, n_descriptors));
            }
            thread::sleep(SETTLE_INTERVAL);
        }
    }
}

/// A limit that was exceeded.
#[derive(Debug, PartialEq)]
enum Problem {
    Slow(String),
    Other(String),
}

impl Problem {
    fn is_slowness(&self) -> bool {
        matches!(self, Self::Slow(_))
    }

    fn text(&self) -> &str {
        let (Self::Slow(text) | Self::Other(text)) = self;
        text
    }
}

fn judge(baseline: Baseline, measured: &Measured) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut add = |text| problems.push(Problem::Other(text));
    let Measured { peak_kib, kept_kib, cpu, took, .. } = measured;
    if *peak_kib > MAX_PEAK_KIB {
        add(format!("the daemon took {peak_kib} KiB at its peak, more than {MAX_PEAK_KIB}"));
    }
    if *kept_kib > MAX_KEPT_KIB {
        add(format!("the daemon kept {kept_kib} KiB after the removal, more than {MAX_KEPT_KIB}"));
    }
    if *cpu > FREE_CPU + *took * MAX_CPU_PERCENT / 100 {
        add(format!("the daemon used {cpu:?} of CPU time in {took:?}"));
    }
    if measured.idle_cpu_percent > MAX_IDLE_CPU_PERCENT {
        add(format!("the daemon uses {} % of a CPU after the removal", measured.idle_cpu_percent));
    }
    if measured.longest > MAX_CALL {
        add(format!("a call to the healthy server took {:?}", measured.longest));
    }
    if measured.n_descriptors_open > MAX_OPEN_DESCRIPTORS {
        add(format!("{} more descriptors were open", measured.n_descriptors_open));
    }
    if measured.n_descriptors_left > MAX_DESCRIPTORS {
        add(format!("{} more descriptors are open", measured.n_descriptors_left));
    }
    if measured.disk_bytes > MAX_DISK_BYTES {
        add(format!("the home grew by {} bytes", measured.disk_bytes));
    }
    if !measured.left.is_empty() {
        add(format!("processes are left: {}", measured.left.join(" | ")));
    }
    if let Some(first) = measured.failures.first() {
        add(format!("{} failures beside it: {first}", measured.failures.len()));
    }
    let max_p99 = MAX_P99.max(baseline.p99 * MAX_P99_RATIO);
    if measured.p99 > max_p99 {
        let (p99, quiet) = (measured.p99, baseline.p99);
        problems.push(Problem::Slow(format!(
            "p99 of the healthy server is {p99:?}, without the hostile one it is {quiet:?}"
        )));
    }
    problems
}

impl Measured {
    fn line(&self) -> String {
        let Self { peak_kib, kept_kib, cpu, took, p99, disk_bytes, .. } = self;
        format!(
            "peak {peak_kib} KiB, kept {kept_kib} KiB, CPU {cpu:?} in {took:?}, then {} %, p99 {p99:?}, \
             longest {:?}, disk {disk_bytes}, descriptors {} and then {}, answered {}",
            self.idle_cpu_percent,
            self.longest,
            self.n_descriptors_open,
            self.n_descriptors_left,
            self.n_answered,
        )
    }
}

fn report(findings: &mut Findings, all: &[Measured], seed: u64) {
    let most = |value: fn(&Measured) -> u64| all.iter().map(value).max().unwrap_or_default();
    findings.count("played", all.len() as u64);
    findings.count("peak_max_kib", most(|measured| measured.peak_kib));
    findings.count("kept_max_kib", most(|measured| measured.kept_kib));
    findings.count("disk_max_bytes", most(|measured| measured.disk_bytes));
    findings.count("descriptors_max", most(|measured| measured.n_descriptors_open as u64));
    findings.count("descriptors_left_max", most(|measured| measured.n_descriptors_left as u64));
    findings.count("idle_cpu_max_percent", most(|measured| measured.idle_cpu_percent.into()));
    let percent = |measured: &Measured| {
        let took = measured.took.as_millis().max(1);
        u64::try_from(measured.cpu.as_millis() * 100 / took).unwrap_or(u64::MAX)
    };
    findings.count("cpu_max_percent", all.iter().map(percent).max().unwrap_or_default());
    let slowest: Vec<Duration> = all.iter().map(|measured| measured.p99).collect();
    findings.measure("neighbor_p99_median_ms", millis(percentile(&slowest, 50)));
    findings.measure("neighbor_p99_max_ms", millis(percentile(&slowest, 100)));
    let longest = all.iter().map(|measured| measured.longest).max().unwrap_or_default();
    findings.measure("neighbor_longest_ms", millis(longest));
    let n_answered = all.iter().filter(|measured| measured.n_answered > 0).count();
    findings.count("abuses_answered", n_answered as u64);
    // A replay plays one.
    if all.len() > 1 && n_answered * 100 < all.len() * MIN_ANSWERED_PERCENT {
        let what =
            format!("the gateway answered requests about {n_answered} of {} abuses", all.len());
        findings.fail(seed, what);
    }
}

/// Calls the healthy server until `stop`.
fn call_neighbor(
    daemon: &RunningDaemon<'_>,
    neighbor: &Mutex<Neighbor>,
    index: usize,
    stop: &AtomicBool,
) {
    let Ok(mut client) = daemon.client() else {
        return neighbor.lock().failures.push("cannot connect".to_owned());
    };
    while !stop.load(Ordering::Relaxed) {
        let started_at = now();
        let called = client.call(HEALTHY, "echo", &json!({ "text": "x" }));
        let took = started_at.elapsed();
        let called = called.and_then(ApiResponse::success_body);
        let mut neighbor = neighbor.lock();
        neighbor.times.push(took);
        if let Some(n_calls) = neighbor.n_calls.get_mut(index) {
            *n_calls += 1;
        }
        if let Err(error) = called {
            neighbor.failures.push(error.to_string());
            drop(neighbor);
            match daemon.client() {
                Ok(new) => client = new,
                Err(_gone) => return,
            }
        } else {
            drop(neighbor);
        }
        thread::sleep(PAUSE);
    }
}

/// Calls tools of the hostile server until the deadline. What it answers does not matter.
fn call_hostile(socket: &Path, round: usize, deadline: Instant) {
    let endless = json!({ "kind": "elicitation", "rounds": 1_000_000, "force": true });
    let calls = [
        ("echo".to_owned(), json!({ "text": "x" })),
        ("n".repeat(UNKNOWN_NAME_BYTES), json!({})),
        (".".repeat(UNKNOWN_PATH_BYTES), json!({})),
        ("ask".to_owned(), endless),
        ("echo".to_owned(), json!({ "text": "x".repeat(1 << 20) })),
    ];
    for (tool, arguments) in calls.iter().cycle().skip(2 * round) {
        let call = json!({ "server": HOSTILE, "tool": tool, "arguments": arguments });
        if request_until(socket, ("POST", "/api/calls", ""), &call.to_string(), deadline).is_none()
        {
            return;
        }
    }
}

/// Reads the state, tools and log of the hostile server until the deadline.
fn read_hostile(socket: &Path, deadline: Instant) {
    let paths = [
        "/api/servers/hostile",
        "/api/tools?server=hostile",
        "/api/servers/hostile/logs?limit=1000",
        "/api/servers",
        "/metrics",
    ];
    for path in paths.into_iter().cycle() {
        if request_until(socket, ("GET", path, ""), "", deadline).is_none() {
            return;
        }
    }
}

/// Sends requests of a modern client to the gateway until the deadline. Returns how many were answered with success.
fn list_hostile(socket: &Path, deadline: Instant) -> u64 {
    let mut n_answered = 0;
    for (method, name, params) in GATEWAY_REQUESTS.into_iter().cycle() {
        let (headers, body) = gateway_request(method, name, params);
        let request = ("POST", "/mcp/server/hostile", headers.as_str());
        match request_until(socket, request, &body, deadline) {
            None => break,
            Some(status) => n_answered += u64::from(status == 200),
        }
    }
    n_answered
}

/// Header lines and body of a request of a modern client.
fn gateway_request(method: &str, name: &str, params: &str) -> (String, String) {
    let mut params: Value = serde_json::from_str(params).unwrap_or_default();
    if let Some(members) = params.as_object_mut() {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        members.insert("_meta".to_owned(), meta);
    }
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let name = if name.is_empty() { String::new() } else { format!("mcp-name: {name}\r\n") };
    let headers = format!(
        "accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
         mcp-method: {method}\r\n{name}"
    );
    (headers, body.to_string())
}

/// Sends a request and discards the response. Returns its status, 0 if there is none, or `None` after the deadline.
fn request_until(
    socket: &Path,
    (method, path, headers): (&str, &str, &str),
    body: &str,
    deadline: Instant,
) -> Option<u16> {
    let left = deadline.saturating_duration_since(now());
    if left.is_zero() {
        return None;
    }
    // The request may fail in any way.
    let status = discard_response(socket, (method, path, headers), body, left).unwrap_or_default();
    thread::sleep(REQUEST_PAUSE.min(left));
    Some(status)
}

/// A hostile HTTP server, which ends with its input.
struct HttpServer {
    url: String,
    _input: Option<ChildStdin>,
    _process: RunningChild,
}

fn start_http(subreaper: &Subreaper, abuse: &Abuse, marker: &Marker) -> io::Result<HttpServer> {
    let mut server = command(scripted_server()?);
    let (variable, value) = marker.env_var();
    server.args(["--http", "127.0.0.1:0"]).args(abuse.args(LIFETIME)).env(variable, value);
    server.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = subreaper.start(&mut server)?;
    let output = process.child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let url = line.trim().strip_prefix("listening ").ok_or(io::ErrorKind::InvalidData)?.to_owned();
    Ok(HttpServer { url, _input: process.child.stdin.take(), _process: process })
}

/// The server for the API.
fn document(abuse: &Abuse, marker: &Marker, url: Option<&str>) -> io::Result<Value> {
    let timeout = if abuse.is_fixed { FIXED_SERVER_TIMEOUT } else { SERVER_TIMEOUT };
    let timeouts = |mut config: Value| {
        if let Some(config) = config.as_object_mut() {
            config.insert("timeout".to_owned(), json!(timeout));
            config.insert("startup_timeout".to_owned(), json!(timeout));
        }
        config
    };
    let (variable, value) = marker.env_var();
    Ok(match url {
        None => json!({
            "name": HOSTILE,
            "package": { "package_type": "binary", "identifier": scripted_server()? },
            "transport": { "type": "stdio" },
            "env_vars": { variable: value },
            "config": timeouts(json!({ "args": abuse.args(LIFETIME) })),
        }),
        Some(url) => json!({
            "name": HOSTILE,
            "package": { "package_type": "http", "identifier": url },
            "transport": { "type": "http", "url": url },
            "config": timeouts(json!({})),
        }),
    })
}

fn memory(daemon: &RunningDaemon<'_>, field: &str) -> Result<u64, String> {
    memory_kib(daemon.process.handle.pid, "status", field)
        .map_err(|error| format!("the daemon has no {field}: {error}"))
}

fn descriptors(daemon: &RunningDaemon<'_>) -> Result<usize, String> {
    open_fds(daemon.process.handle.pid).map_err(|error| format!("the daemon is gone: {error}"))
}

/// Share of one CPU that the daemon uses while only the healthy server is called.
fn idle_cpu_percent(daemon: &RunningDaemon<'_>) -> Result<u32, String> {
    let cpu = || cpu_time(daemon.process.handle.pid).ok_or("the daemon is gone");
    let (started_at, before) = (now(), cpu()?);
    thread::sleep(IDLE_WINDOW);
    let used = cpu()?.saturating_sub(before).as_millis() * 100;
    Ok(u32::try_from(used / started_at.elapsed().as_millis().max(1)).unwrap_or(u32::MAX))
}

/// Bytes of all files below a directory. Files that vanish meanwhile count as empty.
fn disk_usage(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_usage(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASELINE: Baseline = Baseline {
        rss_kib: 20_000,
        n_descriptors: 30,
        idle_cpu_percent: 10,
        p99: Duration::from_millis(10),
    };

    fn fine() -> Measured {
        Measured {
            peak_kib: MAX_PEAK_KIB,
            kept_kib: MAX_KEPT_KIB,
            cpu: FREE_CPU,
            took: Duration::from_secs(2),
            idle_cpu_percent: MAX_IDLE_CPU_PERCENT,
            n_descriptors_open: MAX_OPEN_DESCRIPTORS,
            n_descriptors_left: MAX_DESCRIPTORS,
            disk_bytes: MAX_DISK_BYTES,
            p99: MAX_P99,
            longest: MAX_CALL,
            ..Measured::default()
        }
    }

    #[test]
    fn every_limit_is_judged() {
        assert_eq!(judge(BASELINE, &fine()), []);
        let bad = [
            Measured { peak_kib: MAX_PEAK_KIB + 1, ..fine() },
            Measured { kept_kib: MAX_KEPT_KIB + 1, ..fine() },
            Measured { cpu: Duration::from_secs(5), ..fine() },
            Measured { idle_cpu_percent: MAX_IDLE_CPU_PERCENT + 1, ..fine() },
            // One call in hundreds.
            Measured { longest: MAX_CALL * 2, p99: Duration::ZERO, ..fine() },
            Measured { n_descriptors_open: MAX_OPEN_DESCRIPTORS + 1, ..fine() },
            Measured { n_descriptors_left: MAX_DESCRIPTORS + 1, ..fine() },
            Measured { disk_bytes: MAX_DISK_BYTES + 1, ..fine() },
            Measured { left: vec!["sleep".to_owned()], ..fine() },
            Measured { failures: vec!["503".to_owned()], ..fine() },
        ];
        for measured in bad {
            let judged = judge(BASELINE, &measured);
            assert!(matches!(&*judged, [Problem::Other(_)]), "{measured:?}: {judged:?}");
        }
        let slow = Measured { p99: MAX_P99 * 2, ..fine() };
        assert!(matches!(&*judge(BASELINE, &slow), [Problem::Slow(_)]));
        let busy = Baseline { p99: MAX_P99, ..BASELINE };
        assert_eq!(judge(busy, &slow), []);
    }

    #[test]
    fn number_selects_the_same_abuse_with_its_seed_alone() {
        let text = |numbered: &Numbered| numbered.abuse.to_string();
        let several = Seeds::from_list(vec![1, 2, 3]).unwrap();
        for numbered in abuses(30, &several, None).iter().skip(Abuse::fixed().len()) {
            let alone = Seeds::from_list(vec![numbered.seed]).unwrap();
            let replayed = abuses(1, &alone, Some(numbered.number));
            assert_eq!(replayed.iter().map(text).collect::<Vec<_>>(), [text(numbered)]);
        }
    }
}
