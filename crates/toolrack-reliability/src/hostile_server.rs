//! G14: a hostile server does not harm the other servers of a daemon.
//!
//! A server that burns a CPU slows down the whole machine, also outside of the daemon. So calls to the other servers are
//! timed three times: without load, beside an unrelated process that burns a CPU, and beside a server of the daemon
//! that also burns one, floods the daemon and stops reading. The difference between the last two is the daemon's
//! part.

use std::collections::HashSet;
use std::io;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use toolrack_testkit::harness::{command, now, print_progress};

use crate::daemon::{DaemonHome, RunningDaemon, ServerEntry, history_call_ids};
use crate::daemon_client::DaemonClient;
use crate::findings::{Findings, millis, percentile};
use crate::gate::Effort;
use crate::process::scripted_server;
use crate::random::{Random, Seeds};
use crate::subreaper::Subreaper;

/// Servers of the daemon, including the hostile one.
const N_SERVERS: u64 = 20;

const HOSTILE: &str = "hostile";

/// Concurrent callers of the healthy servers, and the pause of each between two calls.
const N_CALLERS: u64 = 4;
const PAUSE: Duration = Duration::from_millis(2);

/// Allowed slowdown of the slowest calls.
const MAX_RATIO: u32 = 2;

/// Time until the load has its full effect.
const WARM_UP: Duration = Duration::from_millis(300);

/// Calls that the hostile server never reads, and their size: more than the transport queues for it.
const N_UNREAD: usize = 12;
const UNREAD_BYTES: usize = 1 << 20;

const START_LIMIT: Duration = Duration::from_mins(1);
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// Fault plans of the hostile server at a call. The quick gate runs the first one only.
const PLANS: [(&str, &str); 7] = [
    ("all", "call=burn+stderr(256MiB)+nonsense(forever)"),
    ("spin", "call=spin"),
    ("stopread", "call=burn+stopread+hang"),
    ("notify", "call=burn+notify(forever)"),
    ("ping", "call=burn+ping(forever)"),
    ("stderr", "call=burn+stderr(1TiB)"),
    ("changed", "call=burn+changed(forever)"),
];

/// Calls to healthy servers in one time window.
#[derive(Debug, Default)]
struct Calls {
    times: Vec<Duration>,
    /// Call ids as the history has them.
    ids: HashSet<String>,
    failures: Vec<String>,
}

pub(crate) fn run(subreaper: &Subreaper, effort: Effort, seeds: &Seeds) -> Findings {
    let window = effort.select(Duration::from_secs(4), Duration::from_secs(15));
    let mut findings = Findings::default();
    findings.count("servers", N_SERVERS);
    for (number, (name, plan)) in (0..).zip(PLANS).take(effort.select(1, PLANS.len())) {
        let (seed, mut random) = seeds.for_cycle(number);
        print_progress(format!("G14: {name}"));
        if let Err(what) = run_scenario(&mut findings, subreaper, (name, plan), window, &mut random)
        {
            findings.fail(seed, format!("{name}: {what}"));
        }
    }
    findings
}

fn run_scenario(
    findings: &mut Findings,
    subreaper: &Subreaper,
    (name, plan): (&str, &'static str),
    window: Duration,
    random: &mut Random,
) -> Result<(), String> {
    let why = |error: io::Error| error.to_string();
    let mut entries = vec![ServerEntry::scripted(HOSTILE, plan)];
    entries.extend((1..N_SERVERS).map(|number| ServerEntry::scripted(healthy(number), "")));
    let daemon_home = DaemonHome::new(&entries).map_err(why)?;
    let mut daemon = daemon_home.start(subreaper)?;
    daemon.wait_connected(N_SERVERS, START_LIMIT)?;
    // Warm up caches and connections; not counted.
    call_for(&daemon, window / 4, random)?;
    let quiet = call_for(&daemon, window, random)?;

    // An unrelated process that burns a CPU until it is dropped.
    let mut command = command(scripted_server().map_err(why)?);
    command.args(["--plan", "start=spin"]).stdin(Stdio::null()).stdout(Stdio::null());
    let burner = subreaper.start(&mut command).map_err(why)?;
    thread::sleep(WARM_UP);
    let outside = call_for(&daemon, window, random)?;
    drop(burner);

    let (inside, n_unanswered) = thread::scope(|scope| {
        let (daemon, call_timeout) = (&daemon, 2 * WARM_UP + window);
        let hostile_calls: Vec<_> = (0..=N_UNREAD)
            .map(|number| scope.spawn(move || call_hostile_server(daemon, number, call_timeout)))
            .collect();
        thread::sleep(WARM_UP);
        let inside = call_for(daemon, window, random);
        let unanswered = hostile_calls
            .into_iter()
            .filter_map(|call| call.join().ok())
            .filter(|unanswered| *unanswered);
        (inside, unanswered.count())
    });
    let inside = inside?;
    daemon.terminate();
    let code = daemon.wait_exit(STOP_LIMIT);
    let left = daemon_home.marker.kill_survivors();
    let recorded =
        history_call_ids(&daemon_home.home().history_file()).map_err(|error| error.to_string())?;
    add(findings, name, [("quiet", &quiet), ("outside", &outside), ("inside", &inside)]);
    if n_unanswered != N_UNREAD + 1 {
        return Err(format!("only {n_unanswered} calls to the hostile server had to wait"));
    }
    if code != Some(0) || !left.is_empty() {
        return Err(format!("after SIGTERM the daemon exited with {code:?} and left {left:?}"));
    }
    // The hostile server must not push records out of the queues that all servers share.
    let n_lost = inside.ids.difference(&recorded).count();
    if n_lost > 0 {
        let n_calls = inside.ids.len();
        return Err(format!(
            "{n_lost} of {n_calls} calls to healthy servers are not in the history"
        ));
    }
    judge(&outside, &inside)
}

/// Makes a call to the hostile server, and returns whether it stayed unanswered.
fn call_hostile_server(daemon: &RunningDaemon<'_>, number: usize, call_timeout: Duration) -> bool {
    // The first call triggers the fault; the others are more than the server reads.
    let text = if number == 0 { String::new() } else { "x".repeat(UNREAD_BYTES) };
    let called = DaemonClient::open(daemon.socket(), call_timeout)
        .and_then(|mut client| client.call(HOSTILE, "echo", &json!({ "text": text })));
    let timeout_kinds = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
    called.is_err_and(|error| timeout_kinds.contains(&error.kind()))
}

fn add(findings: &mut Findings, plan: &str, phases: [(&str, &Calls); 3]) {
    let prefix = if plan == "all" { String::new() } else { format!("{plan}_") };
    for (phase, calls) in phases {
        findings.count(&format!("{prefix}{phase}_calls"), calls.times.len() as u64);
        for share in [50, 99] {
            let time = millis(percentile(&calls.times, share));
            findings.measure(&format!("{prefix}{phase}_p{share}_ms"), time);
        }
    }
}

fn judge(outside: &Calls, inside: &Calls) -> Result<(), String> {
    if let Some(first) = inside.failures.first().or_else(|| outside.failures.first()) {
        let n_failures = inside.failures.len() + outside.failures.len();
        return Err(format!("{n_failures} calls to healthy servers failed: {first}"));
    }
    let (outside, inside) = (percentile(&outside.times, 99), percentile(&inside.times, 99));
    if inside.is_zero() || inside > outside * MAX_RATIO {
        return Err(format!(
            "p99 of the other servers is {inside:?}, beside an unrelated process it is {outside:?}"
        ));
    }
    Ok(())
}

/// Calls healthy servers for the given time.
fn call_for(
    daemon: &RunningDaemon<'_>,
    window: Duration,
    random: &mut Random,
) -> Result<Calls, String> {
    let deadline = now() + window;
    let streams: Vec<Random> =
        (0..N_CALLERS).map(|stream| Random::new(random.draw(), stream)).collect();
    let parts: Vec<io::Result<Calls>> = thread::scope(|scope| {
        let callers: Vec<_> = streams
            .into_iter()
            .map(|stream| scope.spawn(move || call_until(daemon, deadline, stream)))
            .collect();
        let crashed = |_panic| Err(io::Error::other("a caller crashed"));
        callers.into_iter().map(|caller| caller.join().unwrap_or_else(crashed)).collect()
    });
    let mut all = Calls::default();
    for part in parts {
        let Calls { times, ids, failures } = part.map_err(|error| error.to_string())?;
        all.times.extend(times);
        all.ids.extend(ids);
        all.failures.extend(failures);
    }
    Ok(all)
}

fn call_until(
    daemon: &RunningDaemon<'_>,
    deadline: Instant,
    mut random: Random,
) -> io::Result<Calls> {
    let mut client = daemon.client()?;
    let mut calls = Calls::default();
    while now() < deadline {
        let server = healthy(1 + random.below(N_SERVERS - 1));
        let started_at = now();
        let response = client.call(&server, "echo", &json!({ "text": "x" }))?;
        calls.times.push(started_at.elapsed());
        match response.success_body() {
            Ok(body) => calls.ids.extend(body.get("id").and_then(Value::as_str).map(str::to_owned)),
            Err(error) => calls.failures.push(error.to_string()),
        }
        thread::sleep(PAUSE);
    }
    Ok(calls)
}

fn healthy(number: u64) -> String {
    format!("healthy-{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(ms: u64, failures: &[&str]) -> Calls {
        let failures = failures.iter().map(|failure| (*failure).to_owned()).collect();
        Calls { times: vec![Duration::from_millis(ms); 10], ids: HashSet::new(), failures }
    }

    #[test]
    fn healthy_calls_may_be_twice_as_slow_but_not_fail() {
        let fine = calls(10, &[]);
        assert_eq!(judge(&fine, &calls(20, &[])), Ok(()));
        for bad in [calls(21, &[]), calls(10, &["503"]), Calls::default()] {
            assert!(judge(&fine, &bad).is_err(), "{bad:?}");
        }
        assert!(judge(&calls(10, &["503"]), &fine).is_err());
    }
}
