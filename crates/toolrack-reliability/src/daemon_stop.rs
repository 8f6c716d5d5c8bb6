//! G15: a daemon stops gracefully and on time after one signal, even with servers that resist; after a second signal
//! it exits at once, and the guardians end the rest.

use std::thread;
use std::time::Duration;

use toolrack_testkit::harness::{now, print_progress};

use crate::cycle::Cycle;
use crate::daemon::{DaemonHome, ServerEntry};
use crate::findings::Findings;
use crate::gate::Effort;
use crate::random::{Random, Seeds};
use crate::subreaper::Subreaper;

/// Servers of a daemon. All of them resist shutdown.
const N_SERVERS: u64 = 50;

/// Ignores everything but SIGKILL, with a child and with a process that has left the session.
const PLAN: &str = "ignore=term,eof; start=children(1); escape=1";

/// Time limit for a graceful stop.
const STOP_LIMIT: Duration = Duration::from_secs(7);

/// Time limit after the second signal.
const SECOND_LIMIT: Duration = Duration::from_secs(1);

/// A daemon still running after this time counts as hung.
const HUNG: Duration = Duration::from_secs(40);

/// Time limit for all servers to start on a busy machine.
const START_LIMIT: Duration = Duration::from_mins(1);

/// Latest signal after the start, for runs that do not wait for all servers.
const SOON: Duration = Duration::from_secs(4);

/// The longest pause between two signals. Servers are still in their grace period then.
const PAUSE: Duration = Duration::from_millis(1500);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signals {
    One,
    Two,
}

pub(crate) fn run(
    subreaper: &Subreaper,
    effort: Effort,
    seeds: &Seeds,
) -> anyhow::Result<Findings> {
    let entries: Vec<ServerEntry> = (0..N_SERVERS)
        .map(|number| ServerEntry::scripted(format!("stubborn-{number}"), PLAN))
        .collect();
    let daemon_home = DaemonHome::new(&entries)?;
    let mut findings = Findings::default();
    findings.count("servers", N_SERVERS);
    for (prefix, signals) in [("", Signals::One), ("twice_", Signals::Two)] {
        print_progress(format!("G15: signals: {signals:?}"));
        let mut cycles = Vec::new();
        for number in 0..effort.select(1, 50) {
            let (seed, random) = seeds.for_cycle(number);
            cycles.push(Cycle::new(seed, stop(&daemon_home, subreaper, random, number, signals)));
        }
        findings.count(&format!("{prefix}rounds"), cycles.len() as u64);
        findings.times(prefix, "exit", &cycles);
        if signals == Signals::Two {
            findings.times(prefix, "clean", &cycles);
        }
        findings.total(prefix, "survivors", &cycles);
        findings.fail_cycles(cycles);
    }
    Ok(findings)
}

fn stop(
    daemon_home: &DaemonHome,
    subreaper: &Subreaper,
    mut random: Random,
    number: u64,
    signals: Signals,
) -> Result<Cycle, String> {
    let mut daemon = daemon_home.start(subreaper)?;
    // The first run stops with every server running, the others at any time.
    if number == 0 {
        daemon.wait_connected(N_SERVERS, START_LIMIT)?;
    } else {
        thread::sleep(random.time(Duration::ZERO, SOON));
    }
    let mut signaled = now();
    daemon.terminate();
    if signals == Signals::Two {
        let is_over = daemon.process.handle.wait_exit(random.time(Duration::ZERO, PAUSE));
        // A daemon with little to stop may already have exited gracefully, which is fine.
        if !is_over {
            signaled = now();
            daemon.terminate();
        }
    }
    let code = daemon.wait_exit(HUNG);
    let exited = now();
    let took = exited.duration_since(signaled);
    let mut cycle = Cycle::default();
    cycle.time("exit", took);
    cycle.failures.extend(judge(signals, took, code));
    let about = format!("{signals:?}");
    match signals {
        // A graceful stop leaves no process, not even for a moment.
        Signals::One => {
            let left = daemon_home.marker.survivors();
            if !left.is_empty() {
                daemon_home.marker.kill_survivors();
                cycle.fail_leftovers(&left, &about);
            }
        }
        Signals::Two => cycle.wait_cleaned(&daemon_home.marker, exited, &about),
    }
    Ok(cycle)
}

fn judge(signals: Signals, took: Duration, code: Option<i32>) -> Option<String> {
    let limit = match signals {
        Signals::One => STOP_LIMIT,
        Signals::Two => SECOND_LIMIT,
    };
    if took > limit {
        return Some(format!("{signals:?}: the exit came {took:?} after the signal"));
    }
    let is_right = match signals {
        Signals::One => code == Some(0),
        // The stop was forced, and the exit code may say so.
        Signals::Two => matches!(code, Some(0 | 1)),
    };
    (!is_right).then(|| format!("{signals:?}: the exit code is {code:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// These exit codes are accepted at this time.
    #[track_caller]
    fn check(signals: Signals, ms: u64, expected: &[Option<i32>]) {
        let mut codes = vec![Some(0), Some(1), Some(2), None];
        codes.retain(|code| judge(signals, Duration::from_millis(ms), *code).is_none());
        assert_eq!(codes, expected, "{signals:?} {ms}");
    }

    #[test]
    fn stop_is_judged_by_time_and_exit_code() {
        check(Signals::One, 7000, &[Some(0)]);
        check(Signals::One, 7001, &[]);
        check(Signals::Two, 1000, &[Some(0), Some(1)]);
        check(Signals::Two, 1001, &[]);
    }
}
