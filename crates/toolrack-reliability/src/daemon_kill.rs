//! G22: a daemon that is killed under load leaves no process, loses nothing that it said was remembered, and the
//! next one is ready at once.
//!
//! Callers make calls, a reader looks at the history, and an editor saves the config, all at the same time, when
//! the daemon is killed. A record is acknowledged once the history has shown it, a config once it is saved.

mod durability;
mod load;

use std::time::Duration;

use rustix::process::Signal;

use crate::daemon::{Entry, Household};
use crate::findings::Findings;
use crate::gate::Effort;
use crate::leftovers::{cleaned, described};
use crate::print;
use crate::process::end_marked;
use crate::random::{Random, Seeds};
use crate::startup::READY_LIMIT;
use crate::stats::Spread;
use crate::subreaper::Nursery;
use durability::Books;
use load::{Killed, Yield, until_killed};

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
        print::talk(format!("G22: kill {} of {n_cycles}", cycle + 1));
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
