//! Cycles of a gate: what one of them found, and how many run at the same time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use toolrack_testkit::{Marker, Process};

use crate::process::{CLEANUP_LIMIT, wait_gone};

/// Attempts per cycle when the machine is too busy to measure.
const MAX_TRIES: u64 = 5;

/// Result of one cycle. Times and counts have the names of their figures.
#[derive(Debug, Default)]
pub(crate) struct Cycle {
    pub(crate) seed: u64,
    pub(crate) times: Vec<(&'static str, Duration)>,
    pub(crate) counts: Vec<(&'static str, u64)>,
    pub(crate) failures: Vec<String>,
    /// Whether it is late only because the machine was too busy.
    pub(crate) is_inconclusive: bool,
}

impl Cycle {
    /// A cycle that ended early is a failure.
    pub(crate) fn new(seed: u64, outcome: Result<Self, String>) -> Self {
        let failed = |what| Self { failures: vec![what], ..Self::default() };
        Self { seed, ..outcome.unwrap_or_else(failed) }
    }

    pub(crate) fn time(&mut self, name: &'static str, took: Duration) {
        self.times.push((name, took));
    }

    pub(crate) fn count(&mut self, name: &'static str, number: u64) {
        self.counts.push((name, number));
    }

    pub(crate) fn fail(&mut self, what: impl Into<String>) {
        self.failures.push(what.into());
    }

    /// Waits until no process carries the marker, and records the time.
    pub(crate) fn wait_cleaned(&mut self, marker: &Marker, since: Instant, about: &str) {
        let clean = self.check_cleaned(marker, since, about);
        self.times.extend(clean.map(|clean| ("clean", clean)));
    }

    /// Returns the time until no process carries the marker. Counts, reports and kills the rest.
    pub(crate) fn check_cleaned(
        &mut self,
        marker: &Marker,
        since: Instant,
        about: &str,
    ) -> Option<Duration> {
        let gone = wait_gone(since, &|| marker.survivors().len());
        if gone.is_err() {
            self.fail_leftovers(&marker.kill_survivors(), about);
        }
        gone.ok()
    }

    /// Counts and reports processes that are left.
    pub(crate) fn fail_leftovers(&mut self, left: &[Process], about: &str) {
        self.count("survivors", left.len() as u64);
        let line = |process: &Process| {
            format!("{} {} {}", process.pid, process.state, process.command_line)
        };
        let lines: Vec<String> = left.iter().map(line).collect();
        self.fail(format!("{about}: left after {CLEANUP_LIMIT:?}: {}", lines.join(" | ")));
    }
}

/// Runs cycles, `n_parallel` at a time, and returns the results.
pub(crate) async fn run_parallel<F>(
    n_parallel: usize,
    cycles: impl Iterator<Item = F>,
) -> Vec<Cycle>
where
    F: Future<Output = Cycle> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(n_parallel));
    let mut running = JoinSet::new();
    for cycle in cycles {
        // The semaphore is never closed.
        let permit = Arc::clone(&permits).acquire_owned().await;
        let cycle = Box::pin(cycle);
        running.spawn(async move {
            let ended = cycle.await;
            drop(permit);
            ended
        });
    }
    running.join_all().await
}

/// Repeats a cycle a few times when the machine was too busy to measure.
pub(crate) async fn repeat_if_busy<F>(cycle: impl Fn() -> F) -> Cycle
where
    F: Future<Output = Cycle> + Send,
{
    let mut n_repeated = 0;
    loop {
        let mut ended = cycle().await;
        if !ended.is_inconclusive || n_repeated + 1 == MAX_TRIES {
            ended.count("tried_again", n_repeated);
            return ended;
        }
        n_repeated += 1;
    }
}
