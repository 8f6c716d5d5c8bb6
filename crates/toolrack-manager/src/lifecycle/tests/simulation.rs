//! Random schedules over the lifecycle and the retry policy, on a simulated clock.
//!
//! The model knows what the state machines cannot: which processes exist, which responses are in flight, what the user
//! wants. After every event it asserts the invariants.

mod model;

use std::time::Duration;

use tokio::time::Instant;

use super::{EAGER, failure};
use crate::lifecycle::{Effect, Event, Lifecycle};
use model::Model;

/// How many schedules run, and how many events each has before all servers are stopped.
const N_SCHEDULES: u64 = 20_000;
const N_EVENTS: usize = 60;

/// A seed to run alone, from the message of a failure.
const REPLAY: Option<u64> = None;

/// Reproducible random numbers (splitmix64).
pub(super) struct Random(u64);

impl Random {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit
    }

    fn ms(&mut self, limit: u64) -> Duration {
        Duration::from_millis(self.below(limit))
    }

    fn jitter(&mut self) -> f64 {
        f64::from(u32::try_from(self.draw() >> 32).unwrap()) / f64::from(u32::MAX)
    }
}

fn run(seed: u64) {
    let mut model = Model::new(seed);
    for _ in 0..N_EVENTS {
        model.next();
    }
    model.finish();
}

/// Gate G16, faults F13, F14, F86 and F88.
#[test]
fn every_schedule_holds_the_invariants() {
    let seeds = REPLAY.map_or(0..N_SCHEDULES, |seed| seed..seed + 1);
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(outcome.is_ok(), "seed {seed} breaks an invariant; set REPLAY to run it alone");
    }
}

/// Fails every launch at once until `recovers`, and returns the times of all launches until `end`.
fn crash_loop(seed: u64, recovers: Duration, end: Duration) -> Vec<Duration> {
    let (mut random, start) = (Random(seed), Instant::now());
    let mut lifecycle = Lifecycle::new(EAGER);
    let mut launches = Vec::new();
    let (mut now, mut event) = (start, Event::Start);
    while now < start + end {
        let Some(Effect::Launch(epoch)) = lifecycle.step(event, now, random.jitter()) else {
            panic!("nothing happens at {:?}", now - start);
        };
        launches.push(now - start);
        if now >= start + recovers {
            lifecycle.step(Event::Opened(epoch), now, random.jitter());
            break;
        }
        lifecycle.step(Event::OpenFailed(epoch, failure()), now, random.jitter());
        lifecycle.step(Event::Gone(epoch), now, random.jitter());
        now = lifecycle.wake_at().expect("a wanted server is retried");
        event = Event::Tick;
    }
    launches
}

/// Gate G06, fault F85.
#[test]
fn crash_loop_is_bounded_and_recovers_within_a_minute() {
    let (minute, day) = (Duration::from_mins(1), Duration::from_hours(24));
    for seed in 0..20 {
        let launches = crash_loop(seed, Duration::MAX / 4, day);
        let n_first = launches.iter().filter(|at| **at < minute).count();
        assert!(n_first <= 10, "{n_first} launches in the first minute");
        assert!((1000..=2000).contains(&launches.len()), "{} launches a day", launches.len());
        let recovers = Duration::from_hours(3);
        let last = *crash_loop(seed, recovers, day).last().unwrap();
        assert!(last <= recovers + minute, "recovers at {recovers:?}, connected at {last:?}");
    }
}
