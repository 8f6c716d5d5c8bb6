//! G03: a thousand concurrent calls to servers that crash, hang and send garbage; each call has exactly one outcome.
//!
//! The callers keep a call log, the servers keep a journal, and the gate compares the two.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use toolrack_testkit::harness::print_progress;
use toolrack_testkit::{Journal, JournalEvent, JournalRecord, Marker};
use toolrack_transport::{Delivery, RawJson, RequestError, Transport as _, TransportError};

use crate::call_log::{CallLog, Outcome, violation};
use crate::cycle::Cycle;
use crate::findings::Findings;
use crate::gate::Effort;
use crate::peer::{Peer, ServerScript, texts};
use crate::random::{Random, Seeds};

/// Faults per call: 5 % crash, 5 % hang, 5 % garbage, 5 % late or duplicate, 80 % none.
const MIX: &str = "ok=80,exit(1)=3,kill(KILL)=2,hang=5,garbage(text,2)=2,nonsense(1)=2,shape(both)=1,\
                   late(50ms)=2,late(1500ms)=1,dup=2";

/// Concurrent calls.
const N_CALLERS: usize = 1_000;

/// Concurrent servers. Many, because a crash fails all calls to its server.
const N_PARALLEL: usize = 50;

/// Timeout of a call: minimum and maximum.
const CALL_TIMEOUT: (Duration, Duration) =
    (Duration::from_millis(500), Duration::from_millis(1_250));

/// Percentage and size of large calls. They exceed a pipe buffer, so that some are cut off half-way.
const LARGE: (u64, usize) = (2, 100 << 10);

/// Time limit for a batch. Far more than it needs.
const BATCH_LIMIT: Duration = Duration::from_mins(2);

/// A batch in progress.
struct Batch {
    started: Instant,
    n_calls: u64,
    n_issued: AtomicU64,
    seed: u64,
    call_log: Mutex<CallLog>,
}

/// Figures of all batches, in display order.
const FIGURES: [&str; 15] = [
    "calls",
    "lines",
    "executed",
    "ok",
    "answered",
    "not_sent",
    "unknown",
    violation::MISSING,
    violation::DUPLICATE,
    violation::WRONG_RESULT,
    violation::MANGLED,
    violation::EXECUTED_TWICE,
    violation::ANSWERED_UNEXECUTED,
    violation::NOT_SENT_EXECUTED,
    violation::LATE,
];

pub(crate) async fn run(effort: Effort, seeds: &Seeds) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    let mut cycles = Vec::new();
    let dir = tempfile::tempdir()?;
    // At least one batch per seed, and none too large for memory.
    let n_batches = effort.select(seeds.all().len() as u64, 40);
    let n_calls = effort.select(21_000_u64.div_ceil(n_batches), 50_000);
    for number in 0..n_batches {
        let (seed, _) = seeds.for_cycle(number);
        let journal = dir.path().join(format!("journal-{number}"));
        let marker = Marker::new();
        let batch = Arc::new(Batch {
            started: Instant::now(),
            n_calls,
            n_issued: AtomicU64::new(0),
            seed,
            call_log: Mutex::default(),
        });
        let n_servers = run_batch(&batch, &journal, &marker).await?;
        let mut cycle = compare(&batch, &journal)?;
        cycle.count("lines", n_servers);
        cycles.push(cycle);
        findings.fail_leftovers(seed, "left behind and killed", &marker);
        std::fs::remove_file(&journal).context("the journal")?;
        print_progress(format!("G03: {} batches of {n_calls} calls compared", number + 1));
    }
    findings.count("at_a_time", N_CALLERS as u64);
    for figure in FIGURES {
        findings.total("", figure, &cycles);
    }
    findings.longest("overrun", &cycles);
    findings.fail_cycles(cycles);
    Ok(findings)
}

/// Makes all calls of a batch, stops every server, and returns the number of servers used.
async fn run_batch(batch: &Arc<Batch>, journal: &Path, marker: &Marker) -> anyhow::Result<u64> {
    let journal = journal.to_string_lossy();
    let script =
        ServerScript::new(marker.value(), &["--mix", MIX, "--seed", "pid", "--journal", &journal])?;
    let stop = CancellationToken::new();
    let mut supervisors = JoinSet::new();
    let mut servers = Vec::new();
    for _ in 0..N_PARALLEL {
        let (sender, server) = watch::channel(None);
        supervisors.spawn(supervise(script.clone(), sender, stop.clone()));
        servers.push(server);
    }
    let mut callers = JoinSet::new();
    for (server, stream) in servers.iter().cycle().zip(0..N_CALLERS) {
        let random = Random::new(batch.seed, stream as u64);
        callers.spawn(call_in_turn(Arc::clone(batch), server.clone(), random));
    }
    // A call without an outcome by then is missing in the log, and found there.
    if timeout(BATCH_LIMIT, callers.join_all()).await.is_err() {
        print_progress("G03: a batch did not end in time");
    }
    stop.cancel();
    Ok(supervisors.join_all().await.into_iter().sum())
}

async fn call_in_turn(batch: Arc<Batch>, mut server: Server, mut random: Random) {
    let mut dead = None;
    while batch.n_issued.fetch_add(1, Ordering::Relaxed) < batch.n_calls {
        let call_timeout = random.time(CALL_TIMEOUT.0, CALL_TIMEOUT.1);
        let is_large = random.below(100) < LARGE.0;
        let text = if is_large { "x".repeat(LARGE.1) } else { "text".to_owned() };
        let Some(peer) = running_peer(&mut server, dead.as_ref()).await else { return };
        let issued = batch.started.elapsed();
        let nonce = batch.call_log.lock().issue(issued + call_timeout);
        let outcome = peer.echo(&text, &nonce.to_string(), call_timeout).await;
        let at = batch.started.elapsed();
        let result = classify(&outcome, &text);
        batch.call_log.lock().record_outcome(nonce, Outcome { result, at });
        // Avoid a dead server: it would reject thousands of calls until the next one starts.
        dead = outcome.is_err_and(|failure| is_closed(&failure.error)).then_some(peer);
    }
}

/// Whether the error means that the transport takes no more calls.
fn is_closed(error: &TransportError) -> bool {
    matches!(
        error,
        TransportError::ProcessExited(_)
            | TransportError::StdinNotAvailable
            | TransportError::StdoutNotAvailable
            | TransportError::Shutdown
    )
}

/// Classifies an outcome and extracts the nonce. A result without its text has no nonce.
fn classify(outcome: &Result<RawJson, RequestError>, text: &str) -> Result<Option<u64>, Delivery> {
    let result = outcome.as_ref().map_err(|failure| failure.delivery)?;
    Ok(texts(result).and_then(|texts| match &*texts {
        [echoed, nonce] if echoed == text => nonce.parse().ok(),
        _ => None,
    }))
}

fn compare(batch: &Batch, journal: &Path) -> anyhow::Result<Cycle> {
    let mut cycle = Cycle { seed: batch.seed, ..Cycle::default() };
    let journal = Journal::read(journal).context("the journal of the servers")?;
    let call_log = batch.call_log.lock();
    let n_calls = call_log.n_calls() as u64;
    let mut executions: HashMap<u64, u64> = HashMap::new();
    let is_executed = |record: &&JournalRecord| record.event == JournalEvent::Executed;
    let executed: Vec<&JournalRecord> = journal.records.iter().filter(is_executed).collect();
    cycle.count("executed", executed.len() as u64);
    for record in executed {
        let nonce = record.nonce.as_ref().and_then(|nonce| nonce.parse().ok());
        match nonce.filter(|nonce| *nonce < n_calls) {
            Some(nonce) => *executions.entry(nonce).or_default() += 1,
            None => cycle.fail(format!("a server ran a call that was never made: {record:?}")),
        }
    }
    for violation in call_log.violations(&executions) {
        cycle.count(violation.name, 1);
        cycle.fail(violation.what);
    }
    cycle.count("calls", n_calls);
    cycle.count("ok", call_log.count(None));
    cycle.count("answered", call_log.count(Some(Delivery::Answered)));
    cycle.count("not_sent", call_log.count(Some(Delivery::NotSent)));
    cycle.count("unknown", call_log.count(Some(Delivery::Unknown)));
    cycle.time("overrun", call_log.worst_lateness());
    if n_calls < batch.n_calls {
        cycle.fail(format!("only {n_calls} of {} calls were made", batch.n_calls));
    }
    Ok(cycle)
}

/// Time limit for a server to start and initialize on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(20);

/// A caller gives up after waiting this long for a server.
const REOPEN_LIMIT: Duration = Duration::from_secs(40);

/// Failed starts in a row before a slot gives up.
const MAX_FAILURES: u32 = 5;

/// The current server of a slot, which restarts it when it dies. `None` until the first one has initialized.
type Server = watch::Receiver<Option<Arc<Peer>>>;

/// Returns a server that is not the known dead one. It may die at any moment.
async fn running_peer(server: &mut Server, dead: Option<&Arc<Peer>>) -> Option<Arc<Peer>> {
    let is_dead = |peer: &Arc<Peer>| dead.is_some_and(|dead| Arc::ptr_eq(peer, dead));
    let usable = |current: &Option<Arc<Peer>>| current.as_ref().is_some_and(|peer| !is_dead(peer));
    let found = timeout(REOPEN_LIMIT, server.wait_for(usable)).await;
    found.ok()?.ok()?.clone()
}

/// Keeps a server running in a slot, and returns the number of servers used.
async fn supervise(
    script: ServerScript,
    current: watch::Sender<Option<Arc<Peer>>>,
    stop: CancellationToken,
) -> u64 {
    let mut closing = JoinSet::new();
    let (mut n_servers, mut n_failures) = (0, 0);
    while !stop.is_cancelled() && n_failures < MAX_FAILURES {
        let peer = match script.connect(START_LIMIT).await {
            Ok(peer) => Arc::new(peer),
            Err(error) => {
                print_progress(format!("G03: a server did not start: {error}"));
                n_failures += 1;
                continue;
            }
        };
        (n_servers, n_failures) = (n_servers + 1, 0);
        current.send_replace(Some(Arc::clone(&peer)));
        tokio::select! {
            () = peer.ended() => {}
            () = stop.cancelled() => {}
        }
        closing.spawn(async move { peer.transport.close().await });
    }
    closing.join_all().await;
    n_servers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(outcome: Result<RawJson, RequestError>, expected: Result<Option<u64>, Delivery>) {
        assert_eq!(classify(&outcome, "text"), expected, "{outcome:?}");
    }

    #[test]
    fn outcomes_are_classified() {
        let result = |text, nonce| {
            let blocks = format!(r#"{{"content":[{{"text":"{text}"}},{{"text":"{nonce}"}}]}}"#);
            Ok(RawJson::new(blocks))
        };
        check(result("text", "7"), Ok(Some(7)));
        check(result("tex", "7"), Ok(None));
        check(result("text", "x"), Ok(None));
        check(Ok(RawJson::NULL), Ok(None));
        let error = || TransportError::Shutdown;
        check(Err(RequestError::not_sent(error())), Err(Delivery::NotSent));
        check(Err(RequestError::unknown(error())), Err(Delivery::Unknown));
        check(Err(RequestError::answered(error())), Err(Delivery::Answered));
    }
}
