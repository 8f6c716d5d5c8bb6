//! G01: no process is left after any kill.
//!
//! Three cases: the owner alone at any time, one guardian alone, and the owner together with all guardians. In the
//! first two everything must be gone within a second; in the third, after the sweep of the next start.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use toolrack_testkit::Marker;
use toolrack_testkit::harness::{
    ProcessEntry, ProcessHandle, ProcessTable, now, own_program, print_progress,
};

use crate::cycle::Cycle;
use crate::findings::Findings;
use crate::gate::Effort;
use crate::owner::{ASK, FINE, GONE, READY, SWEPT, Sweep};
use crate::process::{CLEANUP_LIMIT, POLL_INTERVAL, wait_gone};
use crate::random::{Random, Seeds};
use crate::subreaper::{RunningChild, Subreaper};

/// Zombies may exist for this long after everything has exited.
const ZOMBIE_LIMIT: Duration = Duration::from_millis(200);

/// Concurrent cycles. A cycle mostly waits for grace periods.
const N_PARALLEL: usize = 6;

/// Servers of an owner.
const N_SERVERS: usize = 3;

type RunCycle = fn(&Subreaper, Random) -> Result<Cycle, String>;

pub(crate) fn run(subreaper: &Subreaper, effort: Effort, seeds: &Seeds) -> Findings {
    let mut findings = Findings::default();
    let cases: [(&str, &str, u64, RunCycle); 3] = [
        ("", "the owner is killed", effort.select(300, 10_000), kill_owner),
        ("guardian_", "one guardian is killed", effort.select(60, 1_000), kill_guardian),
        (
            "sweep_",
            "the owner and all its guardians are killed, and the next start sweeps",
            effort.select(20, 300),
            kill_owner_and_guardians,
        ),
    ];
    for (prefix, what, n_cycles, cycle) in cases {
        print_progress(format!("G01: {what}"));
        let cycles = run_cycles(n_cycles, &|number| {
            let (seed, random) = seeds.for_cycle(number);
            Cycle::new(seed, cycle(subreaper, random))
        });
        findings.count(&format!("{prefix}cycles"), cycles.len() as u64);
        findings.total(prefix, "survivors", &cycles);
        findings.total(prefix, "zombies", &cycles);
        findings.times(prefix, "clean", &cycles);
        if prefix == "sweep_" {
            findings.total(prefix, "ended", &cycles);
            if !cycles.iter().any(|cycle| cycle.counts.iter().any(is_swept)) {
                findings.fail(0, "no process was left for the sweep, so it was not tested");
            }
        }
        findings.fail_cycles(cycles);
    }
    let n_zombies = zombies();
    findings.count("zombies_at_end", n_zombies as u64);
    if n_zombies > 0 {
        findings.fail(0, format!("{n_zombies} zombies are left at the end"));
    }
    findings
}

fn is_swept((name, number): &(&str, u64)) -> bool {
    *name == "ended" && *number > 0
}

/// Runs the cycles in several threads.
fn run_cycles(n_cycles: u64, cycle: &(dyn Fn(u64) -> Cycle + Sync)) -> Vec<Cycle> {
    let crashed = |_panic| vec![Cycle::new(0, Err("a cycle crashed".to_owned()))];
    thread::scope(|scope| {
        let threads: Vec<_> = (0..n_cycles)
            .take(N_PARALLEL)
            .map(|first| {
                let numbers = (first..n_cycles).step_by(N_PARALLEL);
                scope.spawn(move || numbers.map(cycle).collect::<Vec<Cycle>>())
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_else(crashed)).collect()
    })
}

fn kill_owner(subreaper: &Subreaper, mut random: Random) -> Result<Cycle, String> {
    let marker = Marker::new();
    let kill_time = KillTime::draw(&mut random);
    let mut owner = OwnerHandle::start(subreaper, &marker, Sweep::Never)?;
    let pause = match kill_time {
        KillTime::Starting(pause) | KillTime::Soon(pause) => pause,
        KillTime::InTraffic(pause) => {
            owner.wait_ready()?;
            pause
        }
    };
    thread::sleep(pause);
    let killed = now();
    owner.process.handle.kill();
    let mut cycle = Cycle::default();
    cycle.wait_cleaned(&marker, killed, &format!("owner killed {kill_time:?}"));
    Ok(cycle)
}

fn kill_guardian(subreaper: &Subreaper, mut random: Random) -> Result<Cycle, String> {
    let marker = Marker::new();
    let mut owner = OwnerHandle::start(subreaper, &marker, Sweep::Never)?;
    owner.wait_ready()?;
    let owner_pid = owner.process.handle.pid;
    let table = ProcessTable::read();
    let guardians = guardians(&table, owner_pid)?;
    let index = usize::try_from(random.below(guardians.len() as u64)).unwrap_or_default();
    let Some(guardian) = guardians.get(index) else { return Err("no guardian".to_owned()) };
    let tree = table.descendants(guardian.pid);
    let Some(handle) = ProcessHandle::open(guardian.pid).filter(|_| guardian.is_alive()) else {
        return Err("a guardian ended by itself".to_owned());
    };
    let killed = now();
    handle.kill();
    // The owner is alive, so it must reap its dead guardian.
    let left = || {
        tree.iter().filter(|process| process.is_alive()).count() + usize::from(guardian.exists())
    };
    let mut cycle = Cycle::default();
    match wait_gone(killed, &left) {
        Ok(clean) => cycle.time("clean", clean),
        Err(n_left) => {
            cycle.count("survivors", n_left as u64);
            cycle.fail(format!("{n_left} of a killed guardian's tree are left"));
        }
    }
    let n_zombies = ProcessTable::read().zombies(owner_pid).len() as u64;
    cycle.count("zombies", n_zombies);
    let words = owner.check_servers()?;
    let n_fine = words.iter().filter(|word| *word == FINE).count();
    let n_gone = words.iter().filter(|word| *word == GONE).count();
    if (n_fine, n_gone) != (N_SERVERS - 1, 1) {
        let words = words.join(" ");
        cycle.fail(format!("after the death of one guardian the servers are: {words}"));
    }
    if n_zombies > 0 {
        cycle.fail(format!("{n_zombies} zombies"));
    }
    let killed = now();
    owner.process.handle.kill();
    cycle.check_cleaned(&marker, killed, "owner killed after one of its guardians");
    Ok(cycle)
}

fn kill_owner_and_guardians(subreaper: &Subreaper, mut random: Random) -> Result<Cycle, String> {
    let marker = Marker::new();
    let mut owner = OwnerHandle::start(subreaper, &marker, Sweep::Never)?;
    owner.wait_ready()?;
    let owner_handle = &owner.process.handle;
    let guardians = guardians(&ProcessTable::read(), owner_handle.pid)?;
    let handles: Vec<ProcessHandle> =
        guardians.iter().filter_map(|guardian| ProcessHandle::open(guardian.pid)).collect();
    let all = || handles.iter().chain([owner_handle]);
    // Some parents start the next child before they reap the dead one.
    let unreaped = (random.below(2) == 0).then(|| subreaper.leave_unreaped(owner_handle));
    let owner_state = if unreaped.is_some() { "a zombie" } else { "gone" };
    // Stopped first, no process can react to the death of another: all die in the same instant.
    all().for_each(|process| process.signal(Signal::STOP));
    all().for_each(ProcessHandle::kill);
    for handle in all() {
        if !handle.wait_exit(CLEANUP_LIMIT) {
            return Err("a killed process does not end".to_owned());
        }
    }
    let next_marker = Marker::new();
    let mut next_owner = OwnerHandle::start(subreaper, &next_marker, Sweep::First)?;
    let started = now();
    let n_swept = next_owner.wait_swept()?;
    let swept = now();
    let mut cycle = Cycle::default();
    cycle.count("ended", n_swept);
    let what = format!("owner ({owner_state}) and guardians killed, then swept");
    cycle.wait_cleaned(&marker, swept, &what);
    cycle.times.iter_mut().for_each(|(_, clean)| *clean += swept - started);
    next_owner.process.handle.kill();
    cycle.check_cleaned(&next_marker, now(), "owner killed after its sweep");
    Ok(cycle)
}

/// Returns the guardians of an owner and checks that there is one per server.
fn guardians(table: &ProcessTable, owner: u32) -> Result<Vec<ProcessEntry>, String> {
    let mut found = table.children(owner);
    found.retain(ProcessEntry::is_guardian);
    match found.len() {
        N_SERVERS => Ok(found),
        other => Err(format!("{other} guardians for {N_SERVERS} servers")),
    }
}

/// Counts zombies below this process that were not reaped in time.
fn zombies() -> usize {
    let ended = now();
    loop {
        let n_zombies = ProcessTable::read().zombies(std::process::id()).len();
        if n_zombies == 0 || ended.elapsed() > ZOMBIE_LIMIT {
            return n_zombies;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Phase in the life of an owner, and the delay into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KillTime {
    /// While it starts.
    Starting(Duration),
    /// While its servers start.
    Soon(Duration),
    /// While it calls its servers.
    InTraffic(Duration),
}

impl KillTime {
    /// 30 % while starting, 30 % soon after, 40 % under traffic.
    fn draw(random: &mut Random) -> Self {
        let ms = Duration::from_millis;
        match random.below(10) {
            0..3 => Self::Starting(random.time(ms(0), ms(10))),
            3..6 => Self::Soon(random.time(ms(10), ms(100))),
            _ => Self::InTraffic(random.time(ms(0), ms(100))),
        }
    }
}

/// Timeout for any line of the owner. Far more than it needs.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Buffered output lines. The owner prints few, so it never blocks.
const LINES_AHEAD: usize = 16;

struct OwnerHandle {
    /// Killed on drop: a failed cycle must not leave its owner running.
    process: RunningChild,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl OwnerHandle {
    /// Starts an owner that carries the marker; its children inherit it.
    fn start(subreaper: &Subreaper, marker: &Marker, sweep: Sweep) -> Result<Self, String> {
        let why = |error: std::io::Error| format!("the owner does not start: {error}");
        let mut command = own_program().map_err(why)?;
        command.args(["victim", "--marker", marker.value()]);
        if sweep == Sweep::First {
            command.arg("--sweep");
        }
        let (name, value) = marker.env_var();
        command.env(name, value).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = subreaper.start(&mut command).map_err(why)?;
        let pipes = (process.child.stdin.take(), process.child.stdout.take());
        let (Some(stdin), Some(stdout)) = pipes else {
            return Err("the owner has no pipes".to_owned());
        };
        let (sender, lines) = sync_channel(LINES_AHEAD);
        thread::spawn(move || {
            // Ignore a line cut off by the kill, and stop when the receiver is gone.
            for line in BufReader::new(stdout).lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { process, stdin, lines })
    }

    /// Waits until every server of the owner has answered.
    fn wait_ready(&mut self) -> Result<(), String> {
        match self.next_line()?.as_str() {
            READY => Ok(()),
            other => Err(format!("the owner printed `{other}` instead of `ready`")),
        }
    }

    /// Waits for the sweep of the owner and returns how many processes it ended.
    fn wait_swept(&mut self) -> Result<u64, String> {
        let line = self.next_line()?;
        let count = line.strip_prefix(SWEPT).and_then(|rest| rest.trim().parse().ok());
        count.ok_or_else(|| format!("the owner printed `{line}` instead of `swept`"))
    }

    /// Makes the owner call each of its servers, and returns one status word for each.
    fn check_servers(&mut self) -> Result<Vec<String>, String> {
        let written = self.stdin.write_all(format!("{ASK}\n").as_bytes());
        written.map_err(|error| format!("the owner does not read: {error}"))?;
        Ok(self.next_line()?.split_whitespace().map(str::to_owned).collect())
    }

    fn next_line(&mut self) -> Result<String, String> {
        let line = self.lines.recv_timeout(CALL_TIMEOUT);
        line.map_err(|silence| format!("the owner prints nothing: {silence}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kill_times_follow_their_distribution() {
        let ms = Duration::from_millis;
        let mut counts = [0; 3];
        for stream in 0..1000 {
            match KillTime::draw(&mut Random::new(1, stream)) {
                KillTime::Starting(pause) if pause < ms(10) => counts[0] += 1,
                KillTime::Soon(pause) if ms(10) <= pause && pause < ms(100) => counts[1] += 1,
                KillTime::InTraffic(pause) if pause < ms(100) => counts[2] += 1,
                other => panic!("{other:?}"),
            }
        }
        let near = |count: i32, share: i32| (count - share).abs() < 50;
        assert!(near(counts[0], 300) && near(counts[1], 300) && near(counts[2], 400), "{counts:?}");
    }
}
