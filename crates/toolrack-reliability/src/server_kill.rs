//! G02: when a server is killed, every call to it fails at once, and no descriptor, thread or process leaks.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep, timeout};
use toolrack_testkit::harness::{ProcessHandle, print_progress};
use toolrack_testkit::{Marker, open_fds, zombies_of};
use toolrack_transport::{
    Delivery, ExitStatus, ProcessExit, RawJson, RequestError, Transport as _, TransportError,
};

use crate::cycle::{Cycle, repeat_if_busy, run_parallel};
use crate::findings::Findings;
use crate::gate::Effort;
use crate::peer::{Peer, ServerScript, texts};
use crate::random::{Random, Seeds};

/// Time limit for closing.
const CLOSE_LIMIT: Duration = Duration::from_secs(6);

/// Guard for waits that normally return at once.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of pending calls at the kill.
const MAX_PENDING: u64 = 64;

/// Callers that keep calling during the kill.
const N_BACKGROUND_CALLERS: usize = 2;

/// Pause of such a caller between two calls. Without it, the gate would measure its own load.
const PAUSE: Duration = Duration::from_millis(1);

/// Concurrent servers, one per core of a small machine.
const N_PARALLEL: usize = 2;

/// Descriptors and threads of this process.
#[derive(Debug, PartialEq, Eq)]
struct ResourceUsage {
    n_fds: usize,
    n_threads: usize,
}

pub(crate) async fn run(effort: Effort, seeds: &Seeds) -> anyhow::Result<Findings> {
    let marker = Marker::new();
    let script = ServerScript::new(marker.value(), &[])?;
    let mut findings = Findings::default();
    // Warm up: resources that are created once and kept are not leaks.
    kill_many(&script, seeds, 2 * N_PARALLEL as u64).await;
    let before = ResourceUsage::now()?;
    let n_kills = effort.select(1_000, 10_000);
    print_progress(format!("G02: {n_kills} servers are killed"));
    let kills = kill_many(&script, seeds, n_kills).await;
    let after = ResourceUsage::wait_until_equal(&before).await?;
    findings.count("kills", kills.len() as u64);
    findings.total("kills_", "tried_again", &kills);
    findings.total("", "calls_pending", &kills);
    for name in ["outcome", "dying", "own_share", "close"] {
        findings.times("", name, &kills);
    }
    findings.fail_cycles(kills);
    for (name, n_open) in [
        ("fds_before", before.n_fds),
        ("fds_after", after.n_fds),
        ("threads_before", before.n_threads),
        ("threads_after", after.n_threads),
    ] {
        findings.count(name, n_open as u64);
    }
    if before != after {
        findings.fail(0, format!("resources leaked: {before:?} became {after:?}"));
    }
    let n_zombies = zombies_of(std::process::id()).len() as u64;
    let survivors = marker.kill_survivors();
    findings.count("survivors", survivors.len() as u64);
    findings.count("zombies", n_zombies);
    if !survivors.is_empty() || n_zombies > 0 {
        findings.fail(0, format!("left at the end: {survivors:?} and {n_zombies} zombies"));
    }
    Ok(findings)
}

/// Kills `n_kills` servers, a few at a time.
async fn kill_many(script: &ServerScript, seeds: &Seeds, n_kills: u64) -> Vec<Cycle> {
    let kill = |number| {
        let (script, seeds) = (script.clone(), seeds.clone());
        async move {
            let kill = || async {
                let (seed, random) = seeds.for_cycle(number);
                Cycle::new(seed, kill_one(&script, random).await)
            };
            repeat_if_busy(kill).await
        }
    };
    run_parallel(N_PARALLEL, (0..n_kills).map(kill)).await
}

async fn kill_one(script: &ServerScript, mut random: Random) -> Result<Cycle, String> {
    let connected =
        script.connect(CALL_TIMEOUT).await.map_err(|error| format!("cannot connect: {error}"))?;
    let peer = Arc::new(connected);
    let server = Arc::new(server_handle(&peer).await?);
    let mut background = JoinSet::new();
    for _ in 0..N_BACKGROUND_CALLERS {
        background.spawn(call_until_it_fails(Arc::clone(&peer)));
    }
    let mut pending = JoinSet::new();
    let n_sent = Arc::new(AtomicU64::new(0));
    let n_pending = 1 + random.below(MAX_PENDING);
    for _ in 0..n_pending {
        pending.spawn(call_pending(Arc::clone(&peer), Arc::clone(&n_sent)));
    }
    let all_sent = async {
        while n_sent.load(Ordering::Acquire) < n_pending {
            yield_now().await;
        }
        // The server reads in order: everything sent before an answered message has arrived.
        peer.echo("after", "0", CALL_TIMEOUT).await
    };
    match timeout(CALL_TIMEOUT, all_sent).await {
        Ok(Ok(_)) => {}
        other => return Err(format!("calls do not arrive: {other:?}")),
    }
    sleep(random.time(Duration::ZERO, Duration::from_millis(5))).await;
    // A separate thread sees the exit, however busy the runtime is.
    let watched = Arc::clone(&server);
    let watch = thread::spawn(move || watched.wait_exit(CALL_TIMEOUT).then(Instant::now));
    let killed = Instant::now();
    server.kill();
    let mut kill = KillResult::default();
    match timeout(CALL_TIMEOUT, async { (pending.join_all().await, background.join_all().await) })
        .await
    {
        Err(_) => kill.failures.push(format!("calls still pending after {CALL_TIMEOUT:?}")),
        Ok((waited, background_ends)) => {
            let ended = watch.join().ok().flatten().ok_or("a killed server does not end")?;
            kill.exit_time = ended.saturating_duration_since(killed);
            for ended in waited {
                kill.add(killed, CallStart::Before, ended);
            }
            for ended in background_ends {
                kill.add(killed, CallStart::Anytime, ended);
            }
        }
    }
    let closing = Instant::now();
    if timeout(CLOSE_LIMIT, peer.transport.close()).await.is_err() {
        kill.failures.push(format!("closing takes longer than {CLOSE_LIMIT:?}"));
    }
    let mut cycle = kill.into_cycle();
    cycle.time("close", closing.elapsed());
    Ok(cycle)
}

/// Opens a handle on the server process.
async fn server_handle(peer: &Peer) -> Result<ProcessHandle, String> {
    #[derive(Deserialize)]
    struct Ids {
        pid: u32,
    }
    let response =
        peer.call("pid", json!({}), CALL_TIMEOUT).await.map_err(|error| error.to_string())?;
    let ids = texts(&response).and_then(|texts| serde_json::from_str(texts.first()?).ok());
    let handle = ids.and_then(|Ids { pid }| ProcessHandle::open(pid));
    handle.ok_or_else(|| "the server does not report its pid".to_owned())
}

/// Makes a call that outlives the server, and counts it once it is sent.
async fn call_pending(peer: Arc<Peer>, n_sent: Arc<AtomicU64>) -> CallEnd {
    let issued = Instant::now();
    let mut call = pin!(peer.call("sleep", json!({ "ms": 600_000 }), 6 * CALL_TIMEOUT));
    // Poll once, so that the request is queued before it is counted.
    let first_poll = poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
    n_sent.fetch_add(1, Ordering::Release);
    let outcome = match first_poll {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => call.await,
    };
    CallEnd { issued, at: Instant::now(), outcome }
}

async fn call_until_it_fails(peer: Arc<Peer>) -> CallEnd {
    loop {
        let issued = Instant::now();
        let outcome = peer.echo("chatter", "0", 6 * CALL_TIMEOUT).await;
        if outcome.is_err() {
            return CallEnd { issued, at: Instant::now(), outcome };
        }
        sleep(PAUSE).await;
    }
}

impl ResourceUsage {
    fn now() -> std::io::Result<Self> {
        let n_fds = open_fds(std::process::id())?;
        let n_threads = std::fs::read_dir("/proc/self/task")?.count();
        Ok(Self { n_fds, n_threads })
    }

    /// Returns the usage once it is as before, or after a timeout.
    async fn wait_until_equal(before: &Self) -> std::io::Result<Self> {
        let deadline = Instant::now() + CALL_TIMEOUT / 5;
        loop {
            let now = Self::now()?;
            if now == *before || Instant::now() > deadline {
                return Ok(now);
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Every call must have its outcome within this time after the kill.
const OUTCOME_LIMIT: Duration = Duration::from_millis(100);

/// A slower exit of a killed process means that the machine is too busy to measure.
const STARVED: Duration = Duration::from_millis(50);

/// Result of one kill.
#[derive(Debug, Default)]
struct KillResult {
    /// Time until the kernel ended the process.
    exit_time: Duration,
    /// From the kill to the outcomes.
    times: Vec<Duration>,
    /// Outcomes that were only late.
    late: Vec<String>,
    /// All other failures.
    failures: Vec<String>,
}

/// Outcome of one call.
#[derive(Debug)]
struct CallEnd {
    issued: Instant,
    at: Instant,
    outcome: Result<RawJson, RequestError>,
}

/// When the call was issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallStart {
    /// Long before the kill: it can only fail with the exit of the server.
    Before,
    /// At any time: it may also find the transport closed.
    Anytime,
}

impl KillResult {
    fn add(&mut self, killed: Instant, made: CallStart, ended: CallEnd) {
        let CallEnd { issued, at, outcome } = ended;
        let (time, exit_time) = (at.saturating_duration_since(killed.max(issued)), self.exit_time);
        if time > OUTCOME_LIMIT {
            let what =
                format!("an outcome came {time:?} after the kill (dying took {exit_time:?})");
            self.late.push(what);
        }
        if !is_right(made, &outcome) {
            self.failures.push(format!("a call to a killed server ended in {outcome:?}"));
        }
        self.times.push(time);
    }

    /// Time from the exit of the process to the last outcome: the part of the runtime under test.
    fn our_latency(&self) -> Duration {
        let latest = self.times.iter().max().copied().unwrap_or_default();
        latest.saturating_sub(self.exit_time)
    }

    /// Whether only the machine was too slow, so that the kill must be repeated.
    fn is_inconclusive(&self) -> bool {
        let on_time = self.our_latency() <= OUTCOME_LIMIT && self.failures.is_empty();
        !self.late.is_empty() && self.exit_time > STARVED && on_time
    }

    fn into_cycle(self) -> Cycle {
        let mut cycle = Cycle { is_inconclusive: self.is_inconclusive(), ..Cycle::default() };
        cycle.count("calls_pending", self.times.len() as u64);
        cycle.time("dying", self.exit_time);
        cycle.time("own_share", self.our_latency());
        cycle.times.extend(self.times.into_iter().map(|time| ("outcome", time)));
        cycle.failures = [self.failures, self.late].concat();
        cycle
    }
}

fn is_right(made: CallStart, outcome: &Result<RawJson, RequestError>) -> bool {
    let Err(RequestError { error, delivery }) = outcome else { return false };
    let by_kill = matches!(
        error,
        TransportError::ProcessExited(ProcessExit { status: ExitStatus::Signal(9), .. })
    );
    match (made, delivery) {
        (CallStart::Before, delivery) => by_kill && *delivery == Delivery::Unknown,
        (CallStart::Anytime, Delivery::NotSent) => {
            by_kill || matches!(error, TransportError::StdinNotAvailable)
        }
        (CallStart::Anytime, _) => by_kill,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn exited(exit: ExitStatus) -> TransportError {
        TransportError::ProcessExited(ProcessExit { status: exit, stderr: [].into() })
    }

    fn killed_outcome() -> Result<RawJson, RequestError> {
        Err(RequestError::unknown(exited(ExitStatus::Signal(9))))
    }

    #[track_caller]
    fn check(outcome: Result<RawJson, RequestError>, expected: [bool; 2]) {
        let seen = [CallStart::Before, CallStart::Anytime].map(|made| is_right(made, &outcome));
        assert_eq!(seen, expected, "{outcome:?}");
    }

    #[test]
    fn pending_call_must_fail_with_the_kill() {
        check(killed_outcome(), [true, true]);
        check(Err(RequestError::not_sent(exited(ExitStatus::Signal(9)))), [false, true]);
        check(Err(RequestError::not_sent(TransportError::StdinNotAvailable)), [false, true]);
        check(Err(RequestError::unknown(TransportError::StdinNotAvailable)), [false, false]);
        check(Err(RequestError::not_sent(TransportError::Shutdown)), [false, false]);
        check(Err(RequestError::unknown(exited(ExitStatus::Unknown))), [false, false]);
        check(Err(RequestError::unknown(exited(ExitStatus::Signal(15)))), [false, false]);
        check(Err(RequestError::unknown(TransportError::Timeout(1))), [false, false]);
        check(Ok(RawJson::NULL), [false, false]);
    }

    #[test]
    fn outcome_is_timed_from_the_kill_or_a_later_call() {
        let killed = Instant::now();
        let mut kill = KillResult::default();
        for (issued, at) in [(killed - MS(500), MS(100)), (killed + MS(50), MS(151))] {
            let ended = CallEnd { issued, at: killed + at, outcome: killed_outcome() };
            kill.add(killed, CallStart::Before, ended);
        }
        assert_eq!(kill.times, [MS(100), MS(101)]);
        assert_eq!(kill.late, ["an outcome came 101ms after the kill (dying took 0ns)"]);
        assert_eq!(kill.failures, Vec::<String>::new());
    }

    /// A kill with this exit time and this latency of the outcome.
    fn kill(exit_time: u64, outcome: u64) -> KillResult {
        let killed = Instant::now();
        let mut kill = KillResult { exit_time: MS(exit_time), ..KillResult::default() };
        let at = killed + MS(outcome);
        kill.add(
            killed,
            CallStart::Before,
            CallEnd { issued: killed, at, outcome: killed_outcome() },
        );
        kill
    }

    #[test]
    fn kill_is_repeated_only_if_the_machine_was_slow() {
        let kills = [(1, 90), (1, 110), (50, 110), (51, 110), (160, 260), (160, 261)];
        let void = kills.map(|(exit_time, outcome)| kill(exit_time, outcome).is_inconclusive());
        assert_eq!(void, [false, false, false, true, true, false]);
        let wrong = KillResult { failures: vec!["wrong".to_owned()], ..kill(51, 110) };
        assert!(!wrong.is_inconclusive(), "a wrong outcome is wrong on any machine");
    }
}
