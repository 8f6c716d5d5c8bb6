//! G04: whatever a server does, a call has its outcome in time, and closing the line takes six seconds at most.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tempfile::NamedTempFile;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use toolrack_testkit::{Event, Journal, Marker, zombies_of};
use toolrack_transport::RawJson;
use toolrack_transport::Transport as _;

use crate::call_log::GRACE;
use crate::fault_plans::{Act, Expected, PLANS, Plan, Seen, Step, Weight};
use crate::findings::Findings;
use crate::gate::Effort;
use crate::peer::{Peer, Script, texts};
use crate::process::end_marked;
use crate::random::{Random, Seeds};
use crate::timing::{Spread, millis};

/// What closing may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(6);

/// How long is waited where an answer is expected.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long is waited where none is: at least and at most.
const IN_VAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(2));

/// A step that has no outcome by then is not waited for any more.
const HUNG: Duration = Duration::from_secs(20);

/// Light plans at the same time.
const N_LANES: usize = 12;

/// Everything that breaks readers of lines: several bytes, quotes, breaks of other kinds.
const TEXT: &str = "ä€😀\u{2028}\u{2029}\n\r\"\\\u{1}";

/// What one plan came to.
#[derive(Debug, Default)]
struct Played {
    /// By how much outcomes came after their deadlines, at most.
    overrun: Duration,
    closing: Duration,
    failures: Vec<String>,
}

pub(crate) async fn run(effort: Effort, seeds: &Seeds) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    let mut played = Vec::new();
    for weight in [Weight::Light, Weight::Heavy] {
        let plans: Vec<&Plan> = PLANS.iter().filter(|plan| plan.weight == weight).collect();
        let n_lanes = if weight == Weight::Light { N_LANES } else { 1 };
        crate::print_progress(format!("G04: {} plans, {n_lanes} at a time", plans.len()));
        let n_rounds = effort.of(1, if weight == Weight::Light { 50 } else { 10 });
        played.extend(play_all(&plans, n_rounds, n_lanes, seeds).await);
    }
    findings.count("plans", PLANS.len() as u64);
    findings.count("runs", played.len() as u64);
    let overruns = played.iter().map(|(_, played)| played.overrun);
    findings.measure("overrun_max_ms", millis(overruns.max().unwrap_or_default()));
    findings.spread("close", Spread::of(played.iter().map(|(_, played)| played.closing).collect()));
    for (seed, played) in played {
        played.failures.into_iter().for_each(|what| findings.fail(seed, what));
    }
    let n_zombies = zombies_of(std::process::id()).len() as u64;
    findings.count("zombies", n_zombies);
    if n_zombies > 0 {
        findings.fail(0, format!("{n_zombies} zombies at the end"));
    }
    Ok(findings)
}

/// Plays every plan so often, and gives what each came to, with its seed.
async fn play_all(
    plans: &[&'static Plan],
    n_rounds: u64,
    n_lanes: usize,
    seeds: &Seeds,
) -> Vec<(u64, Played)> {
    let places = Arc::new(Semaphore::new(n_lanes));
    let mut playing = JoinSet::new();
    let rounds = (0..n_rounds).flat_map(|_| plans.iter().copied());
    for (number, plan) in (0..).zip(rounds) {
        let (seed, random) = seeds.turn(number);
        let places = Arc::clone(&places);
        playing.spawn(async move {
            // The semaphore is never closed.
            let place = places.acquire().await;
            let played = Box::pin(play(plan, random)).await;
            drop(place);
            (
                seed,
                played.unwrap_or_else(|what| Played { failures: vec![what], ..Played::default() }),
            )
        });
    }
    playing.join_all().await
}

async fn play(plan: &Plan, mut random: Random) -> Result<Played, String> {
    let marker = Marker::new();
    let about = |what: String| format!("{} ({}): {what}", plan.name, plan.faults);
    let file = NamedTempFile::new().map_err(|error| about(error.to_string()))?;
    let journal = file.path().to_string_lossy();
    let script = Script::new(marker.value(), &["--plan", plan.script, "--journal", &journal]);
    let script = script.map_err(|error| about(error.to_string()))?;
    let peer = script.open().await.map_err(|error| about(error.to_string()))?;
    let peer = Arc::new(peer);
    let mut played = Played::default();
    let first = Step { act: Act::Greet, expected: Expected::Result };
    let greeting = (!plan.greets_itself()).then_some(first);
    for step in greeting.iter().chain(plan.steps) {
        let patience = match step.expected {
            Expected::Timeout => random.time(IN_VAIN.0, IN_VAIN.1),
            _ => PATIENCE,
        };
        take(&peer, *step, patience, &mut played).await;
    }
    let closing = Instant::now();
    if timeout(2 * CLOSE_LIMIT, peer.line.close()).await.is_err() {
        played.failures.push("closing does not end".to_owned());
    }
    played.closing = closing.elapsed();
    if played.closing > CLOSE_LIMIT {
        played.failures.push(format!("closing took {:?}", played.closing));
    }
    let left = marker.survivors();
    if !left.is_empty() {
        end_marked(&marker);
        played.failures.push(format!("left after closing: {left:?}"));
    }
    if let Some(expected) = plan.n_cancelled {
        let journal = Journal::read(file.path()).map_err(|error| about(error.to_string()))?;
        let told = journal.records.iter().filter(|record| record.event == Event::Cancelled).count();
        if told != expected {
            played.failures.push(format!("{told} calls were cancelled, not {expected}"));
        }
    }
    played.failures = played.failures.into_iter().map(about).collect();
    Ok(played)
}

/// Takes a step, and notes what was wrong with its outcomes and their times.
async fn take(peer: &Arc<Peer>, step: Step, patience: Duration, played: &mut Played) {
    let n_calls = match step.act {
        Act::Call { n_calls, .. } => n_calls,
        Act::Greet | Act::List => 1,
    };
    let mut asking = JoinSet::new();
    for number in 0..n_calls {
        let peer = Arc::clone(peer);
        asking.spawn(async move {
            let started = Instant::now();
            let seen = timeout(HUNG, Box::pin(ask(&peer, step.act, number, patience))).await;
            (
                seen.unwrap_or_else(|_| Seen::Other(format!("nothing in {HUNG:?}"))),
                started.elapsed(),
            )
        });
    }
    for (seen, took) in asking.join_all().await {
        let overrun = took.saturating_sub(patience);
        played.overrun = played.overrun.max(overrun);
        if overrun > GRACE {
            played.failures.push(format!("{:?} took {took:?} with {patience:?} to wait", step.act));
        }
        if !step.expected.admits(&seen) {
            let Step { act, expected } = step;
            played
                .failures
                .push(format!("{act:?}: {expected:?} expected, {seen:?} after {took:?}"));
        }
    }
}

async fn ask(peer: &Peer, act: Act, number: usize, patience: Duration) -> Seen {
    match act {
        Act::Greet => Seen::of(&peer.greet(patience).await.map(|()| RawJson::NULL), |_| false),
        Act::List => Seen::of(&peer.ask("tools/list", json!({}), patience).await, |_| false),
        Act::Call { bytes, .. } => {
            let text = TEXT.repeat(bytes / TEXT.len() + 1);
            let nonce = format!("n{number}");
            let outcome = peer.echo(&text, &nonce, patience).await;
            Seen::of(&outcome, |result| {
                texts(result).is_some_and(|texts| texts == [text.as_str(), nonce.as_str()])
            })
        }
    }
}
