//! G22: a daemon that is killed under load leaves no process, loses nothing that it said was remembered, and the
//! next one is ready at once.
//!
//! Callers make calls, a reader looks at the history, and an editor saves the config, all at the same time, when
//! the daemon is killed. A record is acknowledged once the history has shown it, a config once it is saved.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use rustix::process::Signal;
use serde_json::{Value, json};
use toolrack_service::Home;

use crate::daemon::{Entry, Household, Lodger, written};
use crate::daemon_client::{Answer, Wire};
use crate::findings::Findings;
use crate::gate::Effort;
use crate::process::{cleaned, described, end_marked};
use crate::random::{Random, Seeds};
use crate::startup::READY_LIMIT;
use crate::subreaper::Nursery;
use crate::timing::{Spread, now};

/// Servers of the daemon.
const N_SERVERS: u64 = 100;

/// One in so many does not want to end, in one of these ways.
const STUBBORN_EVERY: u64 = 10;
const STUBBORN: [&str; 3] = ["tree", "escape=1; ignore=term,eof", "ignore=term"];

/// What an orderly end may take at the very end.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// How long all servers may take to start, on a machine that is busy.
const START_LIMIT: Duration = Duration::from_secs(90);

/// How long a daemon lives under load: at least and at most. Some of its servers are still being started then.
const LIFE: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(4));

/// What one death came to.
#[derive(Debug, Default)]
struct Fall {
    ready: Option<Duration>,
    clean: Option<Duration>,
    n_survivors: u64,
    failures: Vec<String>,
}

pub(crate) fn run(nursery: &Nursery, effort: Effort, seeds: &Seeds) -> anyhow::Result<Findings> {
    let household = Household::new(&entries())?;
    let mut books = Books::open(household.home())?;
    let mut findings = Findings::default();
    let mut falls = Vec::new();
    let n_cycles = effort.of(10, 100);
    for cycle in 0..n_cycles {
        let (seed, random) = seeds.turn(cycle);
        crate::print_progress(format!("G22: kill {} of {n_cycles}", cycle + 1));
        let fall = fall(&household, nursery, random, &mut books);
        falls.push((seed, fall.unwrap_or_else(Fall::failed)));
    }
    let last = live(&household, nursery, &mut books).unwrap_or_else(Fall::failed);
    falls.push((seeds.all().first().copied().unwrap_or_default(), last));
    findings.count("servers", N_SERVERS);
    findings.count("kills", n_cycles);
    findings.count("survivors", falls.iter().map(|fall| fall.1.n_survivors).sum());
    let times = |of: fn(&Fall) -> Option<Duration>| {
        Spread::of(falls.iter().filter_map(|fall| of(&fall.1)).collect())
    };
    findings.spread("clean", times(|value| value.clean));
    findings.spread("ready", times(|value| value.ready));
    books.tell(&mut findings);
    for (seed, fall) in falls {
        fall.failures.into_iter().for_each(|what| findings.fail(seed, what));
    }
    Ok(findings)
}

fn entries() -> Vec<Entry> {
    let mut stubborn = STUBBORN.iter().cycle();
    let entry = |number: u64| {
        let plan = number.is_multiple_of(STUBBORN_EVERY).then(|| stubborn.next()).flatten();
        Entry::scripted(format!("s{number}"), plan.unwrap_or(&""))
    };
    (0..N_SERVERS).map(entry).collect()
}

fn fall(
    household: &Household,
    nursery: &Nursery,
    mut random: Random,
    books: &mut Books,
) -> Result<Fall, String> {
    let lodger = household.start(nursery)?;
    let ready = lodger.is_ready()?;
    let mut fall = Fall { ready: Some(ready), failures: late(ready), ..Fall::default() };
    let life = random.time(LIFE.0, LIFE.1);
    let Killed { at, gained } = until_killed(&lodger, life, &mut random);
    match cleaned(&household.marker, at) {
        Ok(clean) => fall.clean = Some(clean),
        Err(left) => {
            fall.n_survivors = left.len() as u64;
            fall.failures.push(format!("killed after {life:?}: {}", described(&left)));
        }
    }
    fall.failures.extend(books.settle(gained));
    Ok(fall)
}

/// A last life that ends in order, to see that everything still works.
fn live(household: &Household, nursery: &Nursery, books: &mut Books) -> Result<Fall, String> {
    let mut lodger = household.start(nursery)?;
    let ready = lodger.is_ready()?;
    let mut failures = late(ready);
    lodger.has_connected(N_SERVERS, START_LIMIT)?;
    lodger.handle.signal(Signal::TERM);
    let code = lodger.ends_within(STOP_LIMIT);
    if code != Some(0) {
        failures.push(format!("asked to end, the daemon exited with {code:?}"));
    }
    let left = end_marked(&household.marker);
    if !left.is_empty() {
        failures.push(described(&left));
    }
    failures.extend(books.settle(Yield::default()));
    Ok(Fall { ready: Some(ready), n_survivors: left.len() as u64, failures, ..Fall::default() })
}

fn late(ready: Duration) -> Vec<String> {
    let is_late = ready > READY_LIMIT;
    is_late.then(|| format!("the daemon was ready {ready:?} after its start")).into_iter().collect()
}

impl Fall {
    fn failed(what: String) -> Self {
        Self { failures: vec![what], ..Self::default() }
    }
}

/// What a daemon has to remember beyond its death.
#[derive(Debug)]
struct Books {
    home: Home,
    /// Calls that the history has shown.
    shown: HashSet<String>,
    /// The config that was last acknowledged.
    config: String,
    n_answered: u64,
    n_saved: u64,
    /// Calls that were answered, and not yet written down when the daemon died.
    n_unwritten: u64,
}

impl Books {
    fn open(home: Home) -> io::Result<Self> {
        let config = fs::read_to_string(home.config_file())?;
        let shown = HashSet::new();
        Ok(Self { home, shown, config, n_answered: 0, n_saved: 0, n_unwritten: 0 })
    }

    /// Holds what is on disk against what was acknowledged. Gives what is wrong.
    fn settle(&mut self, gained: Yield) -> Vec<String> {
        let Yield { answered, shown, saves, failures } = gained;
        let mut faults = failures;
        self.shown.extend(shown);
        self.n_answered += answered.len() as u64;
        self.n_saved += saves.len().saturating_sub(1) as u64;
        match fs::read_to_string(self.home.config_file()) {
            Ok(found) if kept(&self.config, &saves, &found) => self.config = found,
            Ok(found) => faults.push(format!("the config is neither old nor new: {found}")),
            Err(error) => faults.push(format!("the config cannot be read: {error}")),
        }
        match written(&self.home.history_file()) {
            Ok(written) => {
                self.n_unwritten += answered.difference(&written).count() as u64;
                let n_lost = self.shown.difference(&written).count();
                if n_lost > 0 {
                    faults.push(format!("{n_lost} calls are gone that the history has shown"));
                }
            }
            Err(error) => faults.push(format!("the history cannot be used: {error}")),
        }
        faults
    }

    fn tell(&self, findings: &mut Findings) {
        findings.count("calls_answered", self.n_answered);
        findings.count("calls_acknowledged", self.shown.len() as u64);
        findings.count("calls_unwritten", self.n_unwritten);
        findings.count("configs_saved", self.n_saved);
        if self.shown.is_empty() || self.n_saved == 0 {
            findings.fail(0, "there was no load, so nothing was put to the test");
        }
    }
}

/// Whether the config is the last one that was acknowledged, or the one that was just being saved.
fn kept(before: &str, saves: &[String], found: &str) -> bool {
    let (in_flight, acknowledged) = match saves.split_last() {
        Some((last, rest)) => (Some(last.as_str()), rest.last().map_or(before, String::as_str)),
        None => (None, before),
    };
    found == acknowledged || Some(found) == in_flight
}

/// Callers at the same time.
const N_CALLERS: u64 = 8;

/// The pause of a caller between two calls: in a hundred lives no more calls than a history keeps.
const CALL_PAUSE: Duration = Duration::from_millis(20);

/// The pause of whoever looks at the history, and of whoever saves the config.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// How far back the history is looked at. More calls than can be made between two looks.
const LOOK_BACK: &str = "/api/calls?limit=500";

/// Begins the one line of the config that is changed again and again.
const SAVED: &str = "# saved ";

/// What was gained in one life of the daemon.
#[derive(Debug, Default)]
struct Yield {
    /// Calls whose answers came.
    answered: HashSet<String>,
    /// Calls that the history has shown.
    shown: HashSet<String>,
    /// Texts of the config in the order in which they were sent. All but the last one were acknowledged.
    saves: Vec<String>,
    failures: Vec<String>,
}

/// A daemon's end.
#[derive(Debug)]
struct Killed {
    at: Instant,
    gained: Yield,
}

struct Load<'a> {
    gained: Mutex<Yield>,
    /// From now on, a connection that breaks is no surprise.
    is_doomed: AtomicBool,
    lodger: &'a Lodger<'a>,
}

/// Keeps the daemon busy for so long, then kills it, and tells what was gained.
fn until_killed(lodger: &Lodger<'_>, life: Duration, random: &mut Random) -> Killed {
    let load = Load { gained: Mutex::default(), is_doomed: AtomicBool::new(false), lodger };
    let streams: Vec<Random> =
        (0..N_CALLERS).map(|value| Random::new(random.draw(), value)).collect();
    let at = thread::scope(|scope| {
        for stream in streams {
            let load = &load;
            scope.spawn(move || load.run("a caller", |wire| load.call(wire, stream)));
        }
        scope.spawn(|| load.run("the reader", |wire| load.look(wire)));
        scope.spawn(|| load.run("the editor", |wire| load.edit(wire)));
        thread::sleep(life);
        load.is_doomed.store(true, Ordering::Release);
        let at = now();
        lodger.handle.kill();
        at
    });
    Killed { at, gained: load.gained.into_inner().unwrap_or_else(PoisonError::into_inner) }
}

impl Load<'_> {
    fn run(&self, who: &str, work: impl FnOnce(&mut Wire) -> io::Result<()>) {
        let ended = self.lodger.wire().and_then(|mut wire| work(&mut wire));
        if !self.is_doomed.load(Ordering::Acquire) {
            self.gained().failures.push(format!("{who} came to an end: {ended:?}"));
        }
    }

    fn call(&self, wire: &mut Wire, mut random: Random) -> io::Result<()> {
        loop {
            let server = format!("s{}", random.below(N_SERVERS));
            let answer = wire.call(&server, "echo", &json!({ "text": "x" }))?.sound()?;
            let id = text(&answer, "/id")?;
            self.gained().answered.insert(id);
            thread::sleep(CALL_PAUSE);
        }
    }

    fn look(&self, wire: &mut Wire) -> io::Result<()> {
        loop {
            let page = wire.get(LOOK_BACK)?.sound()?;
            let calls = page.get("calls").and_then(Value::as_array).map(Vec::as_slice);
            let ids = calls.unwrap_or_default().iter().map(|call| text(call, "/id"));
            let ids = ids.collect::<io::Result<Vec<String>>>()?;
            self.gained().shown.extend(ids);
            thread::sleep(LOOK_PAUSE);
        }
    }

    fn edit(&self, wire: &mut Wire) -> io::Result<()> {
        let present = wire.get("/api/config")?.sound()?;
        let (present, mut generation) = (text(&present, "/text")?, text(&present, "/generation")?);
        let (base, mut number) = split_marker(&present);
        loop {
            number += 1;
            let next = format!("{base}{SAVED}{number}\n");
            self.gained().saves.push(next.clone());
            let body = json!({ "text": next, "generation": generation });
            let saved =
                wire.ask("PUT", "/api/config", &body.to_string()).and_then(Answer::sound)?;
            generation = text(&saved, "/generation")?;
            thread::sleep(LOOK_PAUSE);
        }
    }

    // One push or insert each, so a panic elsewhere cannot have torn it.
    fn gained(&self) -> MutexGuard<'_, Yield> {
        self.gained.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn text(value: &Value, pointer: &str) -> io::Result<String> {
    let found = value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    found.ok_or_else(|| io::Error::other(format!("no `{pointer}` in {value}")))
}

/// A config without its last line, if that is ours, and the number in it.
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

    /// Which of some texts may be found after these were saved.
    #[track_caller]
    fn check_saves(saves: &[&str], expected: &[&str]) {
        let saves: Vec<String> = saves.iter().map(|save| (*save).to_owned()).collect();
        let mut texts = vec!["old", "one", "two", "tw", ""];
        texts.retain(|text| kept("old", &saves, text));
        assert_eq!(texts, expected, "{saves:?}");
    }

    #[test]
    fn a_config_is_old_or_new() {
        check_saves(&[], &["old"]);
        check_saves(&["one"], &["old", "one"]);
        check_saves(&["one", "two"], &["one", "two"]);
    }

    #[track_caller]
    fn check_split(text: &str, expected: (&str, u64)) {
        assert_eq!(split_marker(text), expected);
    }

    #[test]
    fn the_last_line_is_replaced_if_it_is_ours() {
        check_split("a = 1\n", ("a = 1\n", 0));
        check_split("a = 1\n# saved 7\n", ("a = 1\n", 7));
        check_split("# saved by hand\n", ("# saved by hand\n", 0));
        check_split("", ("", 0));
    }
}
