//! G22: a daemon killed under load leaves no process and loses no acknowledged data, and the next one is ready at
//! once.
//!
//! Clients make calls, read the history and save the config, all at the same time, when the daemon is killed. A call
//! record is acknowledged once the history has returned it, a config once the save has returned.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use toolrack_service::Home;
use toolrack_testkit::harness::{now, print_progress};

use crate::cycle::Cycle;
use crate::daemon::{DaemonHome, RunningDaemon, ServerEntry, history_call_ids};
use crate::daemon_client::{ApiResponse, DaemonClient};
use crate::findings::Findings;
use crate::gate::Effort;
use crate::random::{Random, Seeds};
use crate::startup;
use crate::subreaper::Subreaper;

/// Servers of the daemon.
const N_SERVERS: u64 = 100;

/// One server in this many resists shutdown, with one of these plans in turn.
const STUBBORN_EVERY: u64 = 10;
const STUBBORN: [&str; 3] = ["tree", "escape=1; ignore=term,eof", "ignore=term"];

/// Time limit for the graceful stop at the end.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// Time limit for all servers to start on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(90);

/// Time under load before the kill: minimum and maximum. Some servers are still starting then.
const LOAD_TIME: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(4));

pub(crate) fn run(
    subreaper: &Subreaper,
    effort: Effort,
    seeds: &Seeds,
) -> anyhow::Result<Findings> {
    let daemon_home = DaemonHome::new(&entries())?;
    let mut durability = DurabilityCheck::open(daemon_home.home())?;
    let mut findings = Findings::default();
    let mut cycles = Vec::new();
    let n_cycles = effort.select(10, 100);
    for number in 0..n_cycles {
        let (seed, random) = seeds.for_cycle(number);
        print_progress(format!("G22: kill {} of {n_cycles}", number + 1));
        let kill = run_and_kill(&daemon_home, subreaper, random, &mut durability);
        cycles.push(Cycle::new(seed, kill));
    }
    let last = final_run(&daemon_home, subreaper, &mut durability);
    cycles.push(Cycle::new(seeds.first(), last));
    findings.count("servers", N_SERVERS);
    findings.count("kills", n_cycles);
    findings.total("", "survivors", &cycles);
    findings.times("", "clean", &cycles);
    findings.times("", "ready", &cycles);
    durability.report(&mut findings);
    findings.fail_cycles(cycles);
    Ok(findings)
}

fn entries() -> Vec<ServerEntry> {
    let mut stubborn = STUBBORN.iter().cycle();
    let entry = |number: u64| {
        let plan = number.is_multiple_of(STUBBORN_EVERY).then(|| stubborn.next()).flatten();
        ServerEntry::scripted(format!("s{number}"), plan.unwrap_or(&""))
    };
    (0..N_SERVERS).map(entry).collect()
}

fn run_and_kill(
    daemon_home: &DaemonHome,
    subreaper: &Subreaper,
    mut random: Random,
    durability: &mut DurabilityCheck,
) -> Result<Cycle, String> {
    let daemon = daemon_home.start(subreaper)?;
    let mut cycle = started(&daemon);
    let load_time = random.time(LOAD_TIME.0, LOAD_TIME.1);
    let (killed, observed) = load_until_killed(&daemon, load_time, &mut random);
    cycle.wait_cleaned(&daemon_home.marker, killed, &format!("killed after {load_time:?}"));
    cycle.failures.extend(durability.verify(observed));
    Ok(cycle)
}

/// A last run with a graceful stop, to check that everything still works.
fn final_run(
    daemon_home: &DaemonHome,
    subreaper: &Subreaper,
    durability: &mut DurabilityCheck,
) -> Result<Cycle, String> {
    let mut daemon = daemon_home.start(subreaper)?;
    let mut cycle = started(&daemon);
    daemon.wait_connected(N_SERVERS, START_LIMIT)?;
    daemon.terminate();
    let code = daemon.wait_exit(STOP_LIMIT);
    if code != Some(0) {
        cycle.fail(format!("after SIGTERM the daemon exited with {code:?}"));
    }
    let left = daemon_home.marker.kill_survivors();
    if !left.is_empty() {
        cycle.fail_leftovers(&left, "after SIGTERM");
    }
    cycle.failures.extend(durability.verify(Observed::default()));
    Ok(cycle)
}

fn started(daemon: &RunningDaemon<'_>) -> Cycle {
    let mut cycle = Cycle::default();
    cycle.time("ready", daemon.ready);
    cycle.failures.extend(startup::late(daemon.ready));
    cycle
}

/// Acknowledged data that must survive the kill.
#[derive(Debug)]
struct DurabilityCheck {
    home: Home,
    /// Calls that the history has returned.
    shown: HashSet<String>,
    /// The last acknowledged config.
    config: String,
    n_answered: u64,
    n_saved: u64,
    /// Answered calls that were not yet in the history when the daemon died.
    n_unwritten: u64,
}

impl DurabilityCheck {
    fn open(home: Home) -> io::Result<Self> {
        let config = fs::read_to_string(home.config_file())?;
        let shown = HashSet::new();
        Ok(Self { home, shown, config, n_answered: 0, n_saved: 0, n_unwritten: 0 })
    }

    /// Compares the disk with the acknowledged data and returns the differences.
    fn verify(&mut self, observed: Observed) -> Vec<String> {
        let Observed { answered, shown, saves, failures } = observed;
        let mut problems = failures;
        self.shown.extend(shown);
        self.n_answered += answered.len() as u64;
        self.n_saved += saves.len().saturating_sub(1) as u64;
        match fs::read_to_string(self.home.config_file()) {
            Ok(found) if is_expected_config(&self.config, &saves, &found) => self.config = found,
            Ok(found) => {
                problems.push(format!("the config is neither the old nor the new one: {found}"));
            }
            Err(error) => problems.push(format!("the config cannot be read: {error}")),
        }
        match history_call_ids(&self.home.history_file()) {
            Ok(history_call_ids) => {
                self.n_unwritten += answered.difference(&history_call_ids).count() as u64;
                let n_lost = self.shown.difference(&history_call_ids).count();
                if n_lost > 0 {
                    problems
                        .push(format!("{n_lost} acknowledged calls are missing in the history"));
                }
            }
            Err(error) => problems.push(format!("the history cannot be used: {error}")),
        }
        problems
    }

    fn report(&self, findings: &mut Findings) {
        findings.count("calls_answered", self.n_answered);
        findings.count("calls_acknowledged", self.shown.len() as u64);
        findings.count("calls_unwritten", self.n_unwritten);
        findings.count("configs_saved", self.n_saved);
        if self.shown.is_empty() || self.n_saved == 0 {
            findings.fail(0, "there was no load, so nothing was tested");
        }
    }
}

/// Whether the config is the last acknowledged one, or the one in flight.
fn is_expected_config(before: &str, saves: &[String], found: &str) -> bool {
    let (in_flight, acknowledged) = match saves.split_last() {
        Some((last, rest)) => (Some(last.as_str()), rest.last().map_or(before, String::as_str)),
        None => (None, before),
    };
    found == acknowledged || Some(found) == in_flight
}

/// Concurrent callers.
const N_CALLERS: u64 = 8;

/// Pause of a caller between two calls. A hundred runs make fewer calls than a history keeps.
const CALL_PAUSE: Duration = Duration::from_millis(20);

/// Pause between two reads of the history, and between two saves of the config.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// Page size of the history. More than the calls between two reads.
const LOOK_BACK: &str = "/api/calls?limit=500";

/// Prefix of the one config line that each save changes.
const SAVED: &str = "# saved ";

/// What the clients observed in one run of the daemon.
#[derive(Debug, Default)]
struct Observed {
    /// Calls whose responses arrived.
    answered: HashSet<String>,
    /// Calls that the history has returned.
    shown: HashSet<String>,
    /// Config texts in the order in which they were sent. All but the last are acknowledged.
    saves: Vec<String>,
    failures: Vec<String>,
}

struct Load<'a> {
    observed: Mutex<Observed>,
    /// Set before the kill: from then on a broken connection is expected.
    expects_close: AtomicBool,
    daemon: &'a RunningDaemon<'a>,
}

/// Puts the daemon under load, kills it, and returns the time of the kill and what the clients observed.
fn load_until_killed(
    daemon: &RunningDaemon<'_>,
    load_time: Duration,
    random: &mut Random,
) -> (Instant, Observed) {
    let load = Load { observed: Mutex::default(), expects_close: AtomicBool::new(false), daemon };
    let streams: Vec<Random> =
        (0..N_CALLERS).map(|stream| Random::new(random.draw(), stream)).collect();
    let at = thread::scope(|scope| {
        for stream in streams {
            let load = &load;
            scope.spawn(move || load.run("a caller", |client| load.call(client, stream)));
        }
        scope.spawn(|| load.run("the reader", |client| load.read_history(client)));
        scope.spawn(|| load.run("the editor", |client| load.save_config(client)));
        thread::sleep(load_time);
        // Before the kill, so that no client reports its broken connection as a failure.
        load.expects_close.store(true, Ordering::Release);
        let at = now();
        daemon.process.handle.kill();
        at
    });
    (at, load.observed.into_inner())
}

impl Load<'_> {
    fn run(&self, who: &str, work: impl FnOnce(&mut DaemonClient) -> io::Result<()>) {
        let ended = self.daemon.client().and_then(|mut client| work(&mut client));
        if !self.expects_close.load(Ordering::Acquire) {
            self.observed.lock().failures.push(format!("{who} failed: {ended:?}"));
        }
    }

    fn call(&self, client: &mut DaemonClient, mut random: Random) -> io::Result<()> {
        loop {
            let server = format!("s{}", random.below(N_SERVERS));
            let response = client.call(&server, "echo", &json!({ "text": "x" }))?.success_body()?;
            let id = text(&response, "/id")?;
            self.observed.lock().answered.insert(id);
            thread::sleep(CALL_PAUSE);
        }
    }

    fn read_history(&self, client: &mut DaemonClient) -> io::Result<()> {
        loop {
            let page = client.get(LOOK_BACK)?.success_body()?;
            let calls = page.get("calls").and_then(Value::as_array).map(Vec::as_slice);
            let ids = calls.unwrap_or_default().iter().map(|call| text(call, "/id"));
            let ids = ids.collect::<io::Result<Vec<String>>>()?;
            self.observed.lock().shown.extend(ids);
            thread::sleep(LOOK_PAUSE);
        }
    }

    fn save_config(&self, client: &mut DaemonClient) -> io::Result<()> {
        let current = client.get("/api/config")?.success_body()?;
        let (current, mut generation) = (text(&current, "/text")?, text(&current, "/generation")?);
        let (base, mut number) = split_marker(&current);
        loop {
            number += 1;
            let next = format!("{base}{SAVED}{number}\n");
            self.observed.lock().saves.push(next.clone());
            let body = json!({ "text": next, "generation": generation });
            let saved = client
                .request("PUT", "/api/config", &body.to_string())
                .and_then(ApiResponse::success_body)?;
            generation = text(&saved, "/generation")?;
            thread::sleep(LOOK_PAUSE);
        }
    }
}

fn text(value: &Value, pointer: &str) -> io::Result<String> {
    let found = value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    found.ok_or_else(|| io::Error::other(format!("no `{pointer}` in {value}")))
}

/// Splits off the marker line of a config, and returns the number in it.
fn split_marker(text: &str) -> (&str, u64) {
    let found = text.rfind(SAVED).and_then(|at| {
        let number = text.get(at + SAVED.len()..)?.trim().parse().ok()?;
        Some((text.get(..at)?, number))
    });
    found.unwrap_or((text, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// These config texts are accepted after these saves.
    #[track_caller]
    fn check_saves(saves: &[&str], expected: &[&str]) {
        let saves: Vec<String> = saves.iter().map(|save| (*save).to_owned()).collect();
        let mut texts = vec!["old", "one", "two", "tw", ""];
        texts.retain(|text| is_expected_config("old", &saves, text));
        assert_eq!(texts, expected, "{saves:?}");
    }

    #[test]
    fn config_is_the_acknowledged_or_the_one_in_flight() {
        check_saves(&[], &["old"]);
        check_saves(&["one"], &["old", "one"]);
        check_saves(&["one", "two"], &["one", "two"]);
    }

    #[track_caller]
    fn check_split(text: &str, expected: (&str, u64)) {
        assert_eq!(split_marker(text), expected);
    }

    #[test]
    fn only_our_marker_line_is_replaced() {
        check_split("a = 1\n", ("a = 1\n", 0));
        check_split("a = 1\n# saved 7\n", ("a = 1\n", 7));
        check_split("# saved by hand\n", ("# saved by hand\n", 0));
        check_split("", ("", 0));
    }
}
