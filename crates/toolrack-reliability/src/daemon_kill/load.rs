//! What goes on when the daemon is killed: calls, looks at the history, and changes of the config.
//!
//! **Invariant:** every thread ends with the daemon, because its connection does.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::N_SERVERS;
use crate::clock::now;
use crate::daemon::Lodger;
use crate::daemon_client::{Answer, Wire};
use crate::random::Random;

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
pub(super) struct Yield {
    /// Calls whose answers came.
    pub(super) answered: HashSet<String>,
    /// Calls that the history has shown.
    pub(super) shown: HashSet<String>,
    /// Texts of the config in the order in which they were sent. All but the last one were acknowledged.
    pub(super) saves: Vec<String>,
    pub(super) failures: Vec<String>,
}

/// A daemon's end.
#[derive(Debug)]
pub(super) struct Killed {
    pub(super) at: Instant,
    pub(super) gained: Yield,
}

struct Load<'a> {
    gained: Mutex<Yield>,
    /// From now on, a connection that breaks is no surprise.
    is_doomed: AtomicBool,
    lodger: &'a Lodger<'a>,
}

/// Keeps the daemon busy for so long, then kills it, and tells what was gained.
pub(super) fn until_killed(lodger: &Lodger<'_>, life: Duration, random: &mut Random) -> Killed {
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
        let (base, mut number) = parts(&present);
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
fn parts(text: &str) -> (&str, u64) {
    let found = text.rfind(SAVED).and_then(|at| {
        let number = text.get(at + SAVED.len()..)?.trim().parse().ok()?;
        Some((text.get(..at)?, number))
    });
    found.unwrap_or((text, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: (&str, u64)) {
        assert_eq!(parts(text), expected);
    }

    #[test]
    fn the_last_line_is_replaced_if_it_is_ours() {
        check("a = 1\n", ("a = 1\n", 0));
        check("a = 1\n# saved 7\n", ("a = 1\n", 7));
        check("# saved by hand\n", ("# saved by hand\n", 0));
        check("", ("", 0));
    }
}
