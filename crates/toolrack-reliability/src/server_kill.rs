//! G02: when a server is killed, every call to it ends at once, and nothing of it stays with us.

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
use toolrack_testkit::{Marker, open_fds, zombies_of};
use toolrack_transport::{
    Delivery, ExitStatus, ProcessExit, RawJson, RequestError, Transport as _, TransportError,
};

use crate::findings::Findings;
use crate::gate::Effort;
use crate::peer::{Peer, Script, texts};
use crate::process::{Handle, end_marked};
use crate::random::{Random, Seeds};
use crate::timing::Spread;

/// What closing may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(6);

/// What comes with a wait that should not be needed at all.
const PATIENCE: Duration = Duration::from_secs(10);

/// Calls that wait when the server is killed, at most.
const MAX_PENDING: u64 = 64;

/// Callers that go on calling while the server is killed.
const N_CHATTERERS: usize = 2;

/// The pause of such a caller between two calls. Without it, the gate would measure its own load.
const PAUSE: Duration = Duration::from_millis(1);

/// How often a kill is tried on a machine that is too busy.
const MAX_TRIES: u32 = 5;

/// Servers at the same time, one for each core of a small machine.
const N_LANES: u64 = 2;

/// What a process holds on to.
#[derive(Debug, PartialEq, Eq)]
struct Holdings {
    n_fds: usize,
    n_threads: usize,
}

struct Gate {
    script: Script,
    seeds: Seeds,
    next: AtomicU64,
    n_void: AtomicU64,
}

pub(crate) async fn run(effort: Effort, seeds: &Seeds) -> anyhow::Result<Findings> {
    let marker = Marker::new();
    let script = Script::new(marker.value(), &[])?;
    let gate = Arc::new(Gate {
        script,
        seeds: seeds.clone(),
        next: AtomicU64::new(0),
        n_void: AtomicU64::new(0),
    });
    let mut findings = Findings::default();
    // What is made once and kept is made in the first round, which is not counted.
    kill_many(&gate, 2 * N_LANES).await;
    let before = Holdings::now()?;
    let n_kills = effort.of(1_000, 10_000);
    crate::print_progress(format!("G02: {n_kills} servers are killed"));
    gate.next.store(0, Ordering::Relaxed);
    let tolls = kill_many(&gate, n_kills).await;
    let after = Holdings::settled(&before).await?;
    let times: Vec<Duration> = tolls.iter().flat_map(|(_, toll)| toll.times.clone()).collect();
    let spread =
        |of: fn(&Toll) -> Duration| Spread::of(tolls.iter().map(|(_, toll)| of(toll)).collect());
    findings.count("kills", tolls.len() as u64);
    findings.count("kills_tried_again", gate.n_void.load(Ordering::Relaxed));
    findings.count("calls_pending", times.len() as u64);
    findings.spread("outcome", Spread::of(times));
    findings.spread("dying", spread(|value| value.dying));
    findings.spread("own_share", spread(Toll::own_share));
    findings.spread("close", spread(|value| value.closing));
    for (seed, Toll { late, failures, .. }) in tolls {
        failures.into_iter().chain(late).for_each(|what| findings.fail(seed, what));
    }
    add_remains(&mut findings, &before, &after, &marker);
    Ok(findings)
}

fn add_remains(findings: &mut Findings, before: &Holdings, after: &Holdings, marker: &Marker) {
    findings.count("fds_before", before.n_fds as u64);
    findings.count("fds_after", after.n_fds as u64);
    findings.count("threads_before", before.n_threads as u64);
    findings.count("threads_after", after.n_threads as u64);
    if before != after {
        findings.fail(0, format!("not everything was let go: {before:?} became {after:?}"));
    }
    let n_zombies = zombies_of(std::process::id()).len() as u64;
    let survivors = end_marked(marker);
    findings.count("survivors", survivors.len() as u64);
    findings.count("zombies", n_zombies);
    if !survivors.is_empty() || n_zombies > 0 {
        findings.fail(0, format!("left at the end: {survivors:?} and {n_zombies} zombies"));
    }
}

/// Kills so many servers, a few at the same time, and gives what each came to, with its seed.
async fn kill_many(gate: &Arc<Gate>, n_kills: u64) -> Vec<(u64, Toll)> {
    let mut lanes = JoinSet::new();
    for _ in 0..N_LANES {
        let gate = Arc::clone(gate);
        lanes.spawn(async move {
            let mut tolls = Vec::new();
            loop {
                let number = gate.next.fetch_add(1, Ordering::Relaxed);
                if number >= n_kills {
                    return tolls;
                }
                tolls.push(Box::pin(gate.kill(number)).await);
            }
        });
    }
    lanes.join_all().await.into_iter().flatten().collect()
}

impl Gate {
    /// Kills a server. A kill that the machine was too busy for is tried again, a few times.
    async fn kill(&self, number: u64) -> (u64, Toll) {
        let mut n_tries = 0;
        loop {
            let (seed, random) = self.seeds.turn(number);
            let toll = kill_one(&self.script, random).await.unwrap_or_else(Toll::failed);
            n_tries += 1;
            if !toll.is_void() || n_tries == MAX_TRIES {
                return (seed, toll);
            }
            self.n_void.fetch_add(1, Ordering::Relaxed);
        }
    }
}

async fn kill_one(script: &Script, mut random: Random) -> Result<Toll, String> {
    let met = script.meet(PATIENCE).await.map_err(|error| format!("no fresh line: {error}"))?;
    let peer = Arc::new(met);
    let server = Arc::new(server_of(&peer).await?);
    let mut talking = JoinSet::new();
    for _ in 0..N_CHATTERERS {
        talking.spawn(call_until_it_fails(Arc::clone(&peer)));
    }
    let mut pending = JoinSet::new();
    let n_sent = Arc::new(AtomicU64::new(0));
    let n_pending = 1 + random.below(MAX_PENDING);
    for _ in 0..n_pending {
        pending.spawn(wait_for_ever(Arc::clone(&peer), Arc::clone(&n_sent)));
    }
    let all_sent = async {
        while n_sent.load(Ordering::Acquire) < n_pending {
            yield_now().await;
        }
        // Messages are read in order: what was sent before an answered one has arrived.
        peer.echo("after", "0", PATIENCE).await
    };
    match timeout(PATIENCE, all_sent).await {
        Ok(Ok(_)) => {}
        other => return Err(format!("calls do not arrive: {other:?}")),
    }
    sleep(random.time(Duration::ZERO, Duration::from_millis(5))).await;
    // A thread of its own tells when the process had ended, however busy the runtime was.
    let dying = Arc::clone(&server);
    let watch = thread::spawn(move || dying.ends_within(PATIENCE).then(Instant::now));
    let killed = Instant::now();
    server.kill();
    let mut toll = Toll::default();
    match timeout(PATIENCE, async { (pending.join_all().await, talking.join_all().await) }).await {
        Err(_) => toll.failures.push(format!("calls without an outcome after {PATIENCE:?}")),
        Ok((waited, talked)) => {
            let ended = watch.join().ok().flatten().ok_or("a killed server does not end")?;
            toll.dying = ended.saturating_duration_since(killed);
            for ended in waited {
                toll.add(killed, Made::Before, ended);
            }
            for ended in talked {
                toll.add(killed, Made::Anytime, ended);
            }
        }
    }
    let closing = Instant::now();
    if timeout(CLOSE_LIMIT, peer.line.close()).await.is_err() {
        toll.failures.push(format!("closing takes longer than {CLOSE_LIMIT:?}"));
    }
    toll.closing = closing.elapsed();
    Ok(toll)
}

/// A handle on the server's own process.
async fn server_of(peer: &Peer) -> Result<Handle, String> {
    #[derive(Deserialize)]
    struct Ids {
        pid: u32,
    }
    let answer = peer.call("pid", json!({}), PATIENCE).await.map_err(|error| error.to_string())?;
    let ids = texts(&answer).and_then(|texts| serde_json::from_str(texts.first()?).ok());
    let handle = ids.and_then(|Ids { pid }| Handle::of(pid));
    handle.ok_or_else(|| "the server does not say who it is".to_owned())
}

/// Makes a call that the server answers long after its death, and counts it when it is on its way.
async fn wait_for_ever(peer: Arc<Peer>, n_sent: Arc<AtomicU64>) -> Ended {
    let issued = Instant::now();
    let mut call = pin!(peer.call("sleep", json!({ "ms": 600_000 }), 6 * PATIENCE));
    let begun = poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
    n_sent.fetch_add(1, Ordering::Release);
    let outcome = match begun {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => call.await,
    };
    Ended { issued, at: Instant::now(), outcome }
}

async fn call_until_it_fails(peer: Arc<Peer>) -> Ended {
    loop {
        let issued = Instant::now();
        let outcome = peer.echo("chatter", "0", 6 * PATIENCE).await;
        if outcome.is_err() {
            return Ended { issued, at: Instant::now(), outcome };
        }
        sleep(PAUSE).await;
    }
}

impl Holdings {
    fn now() -> std::io::Result<Self> {
        let n_fds = open_fds(std::process::id())?;
        let n_threads = std::fs::read_dir("/proc/self/task")?.count();
        Ok(Self { n_fds, n_threads })
    }

    /// What is held once it is as it was before, or when the patience is over.
    async fn settled(before: &Self) -> std::io::Result<Self> {
        let deadline = Instant::now() + PATIENCE / 5;
        loop {
            let now = Self::now()?;
            if now == *before || Instant::now() > deadline {
                return Ok(now);
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Every call has its outcome this soon after the kill.
const OUTCOME_LIMIT: Duration = Duration::from_millis(100);

/// A system that takes longer to end a killed process is too busy to measure anything by.
const STARVED: Duration = Duration::from_millis(50);

/// What one kill came to.
#[derive(Debug, Default)]
struct Toll {
    /// How long the system itself took to end the process.
    dying: Duration,
    /// From the kill to the outcomes.
    times: Vec<Duration>,
    closing: Duration,
    /// Outcomes that came too late, and nothing else.
    late: Vec<String>,
    /// Everything else.
    failures: Vec<String>,
}

/// The end of one call.
#[derive(Debug)]
struct Ended {
    issued: Instant,
    at: Instant,
    outcome: Result<RawJson, RequestError>,
}

/// When the call was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    /// Long before the kill: it can only end in the death of the server.
    Before,
    /// At any time: it may also have found the door closed.
    Anytime,
}

impl Toll {
    fn failed(what: String) -> Self {
        Self { failures: vec![what], ..Self::default() }
    }

    fn add(&mut self, killed: Instant, made: Made, ended: Ended) {
        let Ended { issued, at, outcome } = ended;
        let (time, dying) = (at.saturating_duration_since(killed.max(issued)), self.dying);
        if time > OUTCOME_LIMIT {
            let what = format!("an outcome came {time:?} after the kill (dying took {dying:?})");
            self.late.push(what);
        }
        if !is_right(made, &outcome) {
            self.failures.push(format!("a call to a killed server ended in {outcome:?}"));
        }
        self.times.push(time);
    }

    /// How long the outcomes took from the death of the process, which is our own share.
    fn own_share(&self) -> Duration {
        let latest = self.times.iter().max().copied().unwrap_or_default();
        latest.saturating_sub(self.dying)
    }

    /// Whether only the machine was too slow, so that the kill has to be tried again.
    fn is_void(&self) -> bool {
        let on_time = self.own_share() <= OUTCOME_LIMIT && self.failures.is_empty();
        !self.late.is_empty() && self.dying > STARVED && on_time
    }
}

fn is_right(made: Made, outcome: &Result<RawJson, RequestError>) -> bool {
    let Err(RequestError { error, delivery }) = outcome else { return false };
    let by_kill = matches!(
        error,
        TransportError::ProcessExited(ProcessExit { status: ExitStatus::Signal(9), .. })
    );
    match (made, delivery) {
        (Made::Before, delivery) => by_kill && *delivery == Delivery::Unknown,
        (Made::Anytime, Delivery::NotSent) => {
            by_kill || matches!(error, TransportError::StdinNotAvailable)
        }
        (Made::Anytime, _) => by_kill,
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
        let seen = [Made::Before, Made::Anytime].map(|made| is_right(made, &outcome));
        assert_eq!(seen, expected, "{outcome:?}");
    }

    #[test]
    fn only_the_kill_itself_is_the_right_outcome_of_a_waiting_call() {
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
    fn an_outcome_is_timed_from_the_kill_or_from_a_later_call() {
        let killed = Instant::now();
        let mut toll = Toll::default();
        for (issued, at) in [(killed - MS(500), MS(100)), (killed + MS(50), MS(151))] {
            let ended = Ended { issued, at: killed + at, outcome: killed_outcome() };
            toll.add(killed, Made::Before, ended);
        }
        assert_eq!(toll.times, [MS(100), MS(101)]);
        assert_eq!(toll.late, ["an outcome came 101ms after the kill (dying took 0ns)"]);
        assert_eq!(toll.failures, Vec::<String>::new());
    }

    /// The process took so long to die, and the outcome came so long after the kill.
    fn toll(dying: u64, outcome: u64) -> Toll {
        let killed = Instant::now();
        let mut toll = Toll { dying: MS(dying), ..Toll::default() };
        let at = killed + MS(outcome);
        toll.add(killed, Made::Before, Ended { issued: killed, at, outcome: killed_outcome() });
        toll
    }

    #[test]
    fn a_kill_is_tried_again_only_if_the_machine_alone_was_late() {
        let tolls = [(1, 90), (1, 110), (50, 110), (51, 110), (160, 260), (160, 261)];
        let void = tolls.map(|(dying, outcome)| toll(dying, outcome).is_void());
        assert_eq!(void, [false, false, false, true, true, false]);
        let wrong = Toll { failures: vec!["wrong".to_owned()], ..toll(51, 110) };
        assert!(!wrong.is_void(), "a wrong outcome is wrong on any machine");
    }
}
