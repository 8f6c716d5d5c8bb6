//! G04: a call has its outcome by its deadline for any server behavior, and closing the transport takes at most six
//! seconds.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tempfile::NamedTempFile;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use toolrack_testkit::harness::print_progress;
use toolrack_testkit::{Journal, JournalEvent, Marker, zombies_of};
use toolrack_transport::{RawJson, Transport as _};

use crate::call_log::GRACE;
use crate::cycle::{Cycle, run_parallel};
use crate::fault_plans::{Action, Expected, Observation, PLANS, Plan, Step, Weight, observe};
use crate::findings::Findings;
use crate::gate::Effort;
use crate::peer::{Peer, ServerScript, texts};
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

pub(crate) async fn run(effort: Effort, seeds: &Seeds) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    let mut cycles = Vec::new();
    for weight in [Weight::Light, Weight::Heavy] {
        let plans: Vec<&Plan> = PLANS.iter().filter(|plan| plan.weight == weight).collect();
        let n_parallel = if weight == Weight::Light { N_PARALLEL } else { 1 };
        print_progress(format!("G04: {} plans, {n_parallel} at a time", plans.len()));
        let n_rounds = effort.select(1, if weight == Weight::Light { 50 } else { 10 });
        let rounds: Vec<&'static Plan> = plans.repeat(n_rounds);
        let run = |(number, plan)| {
            let (seed, random) = seeds.for_cycle(number);
            async move { Cycle::new(seed, run_plan(plan, random).await) }
        };
        cycles.extend(run_parallel(n_parallel, (0..).zip(rounds).map(run)).await);
    }
    findings.count("plans", PLANS.len() as u64);
    findings.count("runs", cycles.len() as u64);
    findings.longest("overrun", &cycles);
    findings.times("", "close", &cycles);
    findings.fail_cycles(cycles);
    let n_zombies = zombies_of(std::process::id()).len() as u64;
    findings.count("zombies", n_zombies);
    if n_zombies > 0 {
        findings.fail(0, format!("{n_zombies} zombies at the end"));
    }
    Ok(findings)
}

async fn run_plan(plan: &Plan, mut random: Random) -> Result<Cycle, String> {
    let marker = Marker::new();
    let about = |what: String| format!("{} ({}): {what}", plan.name, plan.faults);
    let file = NamedTempFile::new().map_err(|error| about(error.to_string()))?;
    let journal = file.path().to_string_lossy();
    let script = ServerScript::new(marker.value(), &["--plan", plan.script, "--journal", &journal]);
    let script = script.map_err(|error| about(error.to_string()))?;
    let peer = script.open().await.map_err(|error| about(error.to_string()))?;
    let peer = Arc::new(peer);
    let mut cycle = Cycle::default();
    let first = Step { action: Action::Initialize, expected: Expected::Result };
    let first_step = (!plan.initializes_itself()).then_some(first);
    for step in first_step.iter().chain(plan.steps) {
        let call_timeout = match step.expected {
            Expected::Timeout => random.time(NO_RESPONSE_TIMEOUT.0, NO_RESPONSE_TIMEOUT.1),
            _ => CALL_TIMEOUT,
        };
        run_step(&peer, *step, call_timeout, &mut cycle).await;
    }
    let closing = Instant::now();
    if timeout(2 * CLOSE_LIMIT, peer.transport.close()).await.is_err() {
        cycle.fail("closing does not end");
    }
    let closing = closing.elapsed();
    cycle.time("close", closing);
    if closing > CLOSE_LIMIT {
        cycle.fail(format!("closing took {closing:?}"));
    }
    let left = marker.survivors();
    if !left.is_empty() {
        marker.kill_survivors();
        cycle.fail(format!("left after closing: {left:?}"));
    }
    if let Some(expected) = plan.n_cancelled {
        let journal = Journal::read(file.path()).map_err(|error| about(error.to_string()))?;
        let n_cancelled =
            journal.records.iter().filter(|record| record.event == JournalEvent::Cancelled).count();
        if n_cancelled != expected {
            cycle.fail(format!("{n_cancelled} calls were cancelled, not {expected}"));
        }
    }
    cycle.failures = cycle.failures.into_iter().map(about).collect();
    Ok(cycle)
}

/// Runs a step and records wrong outcomes and late ones.
async fn run_step(peer: &Arc<Peer>, step: Step, call_timeout: Duration, cycle: &mut Cycle) {
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
        cycle.time("overrun", overrun);
        if overrun > GRACE {
            cycle.fail(format!("{:?} took {took:?} with {call_timeout:?} to wait", step.action));
        }
        if !step.expected.matches_outcome(&seen) {
            let Step { action, expected } = step;
            cycle.fail(format!("{action:?}: {expected:?} expected, {seen:?} after {took:?}"));
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
