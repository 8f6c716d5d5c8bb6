//! G04: a call has its outcome by its deadline for any server behavior, and closing the transport takes at most six
//! seconds.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tempfile::NamedTempFile;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use toolrack_testkit::harness::print_progress;
use toolrack_testkit::{Journal, JournalEvent, Marker, zombies_of};
use toolrack_transport::{RawJson, Transport as _};

use crate::call_log::GRACE;
use crate::fault_plans::{Action, Expected, Observation, PLANS, Plan, Step, Weight, observe};
use crate::findings::{Findings, millis};
use crate::gate::Effort;
use crate::peer::{Peer, ServerScript, texts};
use crate::process::kill_marked;
use crate::random::{Random, Seeds};

/// Time limit for closing.
const CLOSE_LIMIT: Duration = Duration::from_secs(6);

/// Timeout of a call that gets a response.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of a call that gets none: minimum and maximum.
const NO_RESPONSE_TIMEOUT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(2));

/// A step without an outcome after this time counts as hung.
const HUNG: Duration = Duration::from_secs(20);

/// Light plans at the same time.
const N_PARALLEL: usize = 12;

/// Text that breaks line readers: multi-byte characters, quotes, other line separators.
const TEXT: &str = "ä€😀\u{2028}\u{2029}\n\r\"\\\u{1}";

/// Result of one plan.
#[derive(Debug, Default)]
struct PlanResult {
    /// The largest delay of an outcome after its deadline.
    overrun: Duration,
    closing: Duration,
    failures: Vec<String>,
}

pub(crate) async fn run(effort: Effort, seeds: &Seeds) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    let mut results = Vec::new();
    for weight in [Weight::Light, Weight::Heavy] {
        let plans: Vec<&Plan> = PLANS.iter().filter(|plan| plan.weight == weight).collect();
        let n_parallel = if weight == Weight::Light { N_PARALLEL } else { 1 };
        print_progress(format!("G04: {} plans, {n_parallel} at a time", plans.len()));
        let n_rounds = effort.select(1, if weight == Weight::Light { 50 } else { 10 });
        results.extend(run_plans(&plans, n_rounds, n_parallel, seeds).await);
    }
    findings.count("plans", PLANS.len() as u64);
    findings.count("runs", results.len() as u64);
    let overruns = results.iter().map(|(_, result)| result.overrun);
    findings.measure("overrun_max_ms", millis(overruns.max().unwrap_or_default()));
    findings.percentiles("close", results.iter().map(|(_, result)| result.closing));
    findings.fail_all(results.into_iter().map(|(seed, result)| (seed, result.failures)));
    let n_zombies = zombies_of(std::process::id()).len() as u64;
    findings.count("zombies", n_zombies);
    if n_zombies > 0 {
        findings.fail(0, format!("{n_zombies} zombies at the end"));
    }
    Ok(findings)
}

/// Runs every plan `n_rounds` times and returns each result with its seed.
async fn run_plans(
    plans: &[&'static Plan],
    n_rounds: u64,
    n_parallel: usize,
    seeds: &Seeds,
) -> Vec<(u64, PlanResult)> {
    let permits = Arc::new(Semaphore::new(n_parallel));
    let mut running = JoinSet::new();
    let rounds = (0..n_rounds).flat_map(|_| plans.iter().copied());
    for (number, plan) in (0..).zip(rounds) {
        let (seed, random) = seeds.for_cycle(number);
        let permits = Arc::clone(&permits);
        running.spawn(async move {
            // The semaphore is never closed.
            let permit = permits.acquire().await;
            let result = Box::pin(run_plan(plan, random)).await;
            drop(permit);
            (
                seed,
                result.unwrap_or_else(|what| PlanResult {
                    failures: vec![what],
                    ..PlanResult::default()
                }),
            )
        });
    }
    running.join_all().await
}

async fn run_plan(plan: &Plan, mut random: Random) -> Result<PlanResult, String> {
    let marker = Marker::new();
    let about = |what: String| format!("{} ({}): {what}", plan.name, plan.faults);
    let file = NamedTempFile::new().map_err(|error| about(error.to_string()))?;
    let journal = file.path().to_string_lossy();
    let script = ServerScript::new(marker.value(), &["--plan", plan.script, "--journal", &journal]);
    let script = script.map_err(|error| about(error.to_string()))?;
    let peer = script.open().await.map_err(|error| about(error.to_string()))?;
    let peer = Arc::new(peer);
    let mut result = PlanResult::default();
    let first = Step { action: Action::Initialize, expected: Expected::Result };
    let first_step = (!plan.initializes_itself()).then_some(first);
    for step in first_step.iter().chain(plan.steps) {
        let call_timeout = match step.expected {
            Expected::Timeout => random.time(NO_RESPONSE_TIMEOUT.0, NO_RESPONSE_TIMEOUT.1),
            _ => CALL_TIMEOUT,
        };
        run_step(&peer, *step, call_timeout, &mut result).await;
    }
    let closing = Instant::now();
    if timeout(2 * CLOSE_LIMIT, peer.transport.close()).await.is_err() {
        result.failures.push("closing does not end".to_owned());
    }
    result.closing = closing.elapsed();
    if result.closing > CLOSE_LIMIT {
        result.failures.push(format!("closing took {:?}", result.closing));
    }
    let left = marker.survivors();
    if !left.is_empty() {
        kill_marked(&marker);
        result.failures.push(format!("left after closing: {left:?}"));
    }
    if let Some(expected) = plan.n_cancelled {
        let journal = Journal::read(file.path()).map_err(|error| about(error.to_string()))?;
        let n_cancelled =
            journal.records.iter().filter(|record| record.event == JournalEvent::Cancelled).count();
        if n_cancelled != expected {
            result.failures.push(format!("{n_cancelled} calls were cancelled, not {expected}"));
        }
    }
    result.failures = result.failures.into_iter().map(about).collect();
    Ok(result)
}

/// Runs a step and records wrong outcomes and late ones.
async fn run_step(peer: &Arc<Peer>, step: Step, call_timeout: Duration, result: &mut PlanResult) {
    let n_calls = match step.action {
        Action::Call { n_calls, .. } => n_calls,
        Action::Initialize | Action::List => 1,
    };
    let mut requests = JoinSet::new();
    for number in 0..n_calls {
        let peer = Arc::clone(peer);
        requests.spawn(async move {
            let started = Instant::now();
            let seen =
                timeout(HUNG, Box::pin(send_request(&peer, step.action, number, call_timeout)))
                    .await;
            (seen.unwrap_or_else(|_| Err(format!("nothing in {HUNG:?}"))), started.elapsed())
        });
    }
    for (seen, took) in requests.join_all().await {
        let overrun = took.saturating_sub(call_timeout);
        result.overrun = result.overrun.max(overrun);
        if overrun > GRACE {
            result
                .failures
                .push(format!("{:?} took {took:?} with {call_timeout:?} to wait", step.action));
        }
        if !step.expected.matches_outcome(&seen) {
            let Step { action, expected } = step;
            result
                .failures
                .push(format!("{action:?}: {expected:?} expected, {seen:?} after {took:?}"));
        }
    }
}

async fn send_request(
    peer: &Peer,
    action: Action,
    number: usize,
    call_timeout: Duration,
) -> Observation {
    match action {
        Action::Initialize => {
            observe(&peer.initialize(call_timeout).await.map(|()| RawJson::NULL), |_| false)
        }
        Action::List => {
            observe(&peer.request("tools/list", json!({}), call_timeout).await, |_| false)
        }
        Action::Call { bytes, .. } => {
            let text = TEXT.repeat(bytes / TEXT.len() + 1);
            let nonce = format!("n{number}");
            let outcome = peer.echo(&text, &nonce, call_timeout).await;
            observe(&outcome, |result| {
                texts(result).is_some_and(|texts| texts == [text.as_str(), nonce.as_str()])
            })
        }
    }
}
