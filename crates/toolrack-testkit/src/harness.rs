//! What the test servers, the benchmarks and the reliability gates share: printing, clock, child processes, `/proc`,
//! random numbers, statistics.
//!
//! **Invariant:** a signal goes through a pidfd that was opened while the process was known to be the right one, so a
//! reused pid is never hit.

use std::ffi::OsStr;
use std::io::{self, Read, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};
use std::{fmt, fs, thread};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_open, pidfd_send_signal,
    set_child_subreaper, waitid,
};

/// Prints a result.
#[expect(clippy::print_stdout, reason = "results of a program go to stdout")]
pub fn print_line(text: impl fmt::Display) {
    println!("{text}");
}

/// Prints a progress message.
#[expect(clippy::print_stderr, reason = "progress goes to stderr")]
pub fn print_progress(text: impl fmt::Display) {
    eprintln!("  … {text}");
}

/// The real clock, which is never paused.
#[expect(clippy::disallowed_methods, reason = "measurements take real time")]
pub fn now() -> Instant {
    Instant::now()
}

/// Command for a program.
#[expect(clippy::disallowed_methods, reason = "these programs start what they measure and kill")]
pub fn command(program: impl AsRef<OsStr>) -> Command {
    Command::new(program)
}

/// Command for this program, in another role.
pub fn own_program() -> io::Result<Command> {
    Ok(command(std::env::current_exe()?))
}

/// First line of the output of a program, if it runs.
pub fn first_line_of(program: &str, args: &[&str]) -> Option<String> {
    let output = command(program).args(args).stdin(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.to_owned())
}

/// A process that can be signaled and watched (pidfd).
#[derive(Debug)]
pub struct ProcessHandle {
    /// Process id.
    pub pid: u32,
    descriptor: OwnedFd,
}

impl ProcessHandle {
    /// Opens a handle on the process with this pid. `None` if it does not exist.
    pub fn open(pid: u32) -> Option<Self> {
        let raw = Pid::from_raw(i32::try_from(pid).ok()?)?;
        let descriptor = pidfd_open(raw, PidfdFlags::empty()).ok()?;
        Some(Self { pid, descriptor })
    }

    /// Sends a signal. Does nothing if the process is gone.
    pub fn signal(&self, signal: Signal) {
        pidfd_send_signal(&self.descriptor, signal).unwrap_or_default();
    }

    /// Sends `SIGKILL`.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Waits for the exit without using CPU time. Returns `false` on timeout.
    pub fn wait_exit(&self, limit: Duration) -> bool {
        let mut source = [PollFd::new(&self.descriptor, PollFlags::IN)];
        let limit = Timespec::try_from(limit).ok();
        matches!(poll(&mut source, limit.as_ref()), Ok(1..))
    }
}

/// Output and end of a process.
#[derive(Debug)]
pub struct ProcessOutput {
    /// Standard output.
    pub stdout: String,
    /// Standard error, if it was piped.
    pub stderr: String,
    /// Exit status, or that the process was killed after its limit.
    pub exit_status: String,
    /// Whether it was killed after its limit.
    pub timed_out: bool,
}

/// Time limit for the rest of the output after the exit: a descendant may keep the pipe open.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs a process to its exit, or kills it after the limit.
pub fn run_to_exit(command: &mut Command, limit: Duration) -> io::Result<ProcessOutput> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().map(read_in_background);
    let stderr = child.stderr.take().map(read_in_background);
    // The child is not reaped yet, so the pid is its own.
    let handle = ProcessHandle::open(child.id()).ok_or(io::ErrorKind::NotFound)?;
    let timed_out = !handle.wait_exit(limit);
    if timed_out {
        child.kill()?;
    }
    let status = child.wait()?.to_string();
    let exit_status =
        if timed_out { format!("did not end in {limit:?} and was killed") } else { status };
    let text = |pipe: Option<Receiver<String>>| {
        pipe.and_then(|pipe| pipe.recv_timeout(OUTPUT_TIMEOUT).ok()).unwrap_or_default()
    };
    Ok(ProcessOutput { stdout: text(stdout), stderr: text(stderr), exit_status, timed_out })
}

/// Reads to the end in a thread, which sends one message; the channel never blocks.
fn read_in_background(mut pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = sync_channel(1);
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // Bytes before a read error are still useful. The receiver may have given up.
        pipe.read_to_end(&mut bytes).unwrap_or_default();
        sender.send(String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    });
    receiver
}

/// Makes this process the parent of orphaned descendants, so that it can reap them.
pub fn become_subreaper() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Interval between two checks for leftover processes.
const REAP_INTERVAL: Duration = Duration::from_millis(10);

/// Waits for all descendants of this subreaper and reaps them. Kills and describes those left after the limit.
///
/// Not for use beside a runtime that waits for children of its own.
pub fn reap_descendants(limit: Duration) -> io::Result<Vec<String>> {
    let deadline = now() + limit;
    let mut killed = Vec::new();
    loop {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        while let Ok(Some(_ended)) = waitid(WaitId::All, options) {}
        let left = ProcessTable::read().descendants(std::process::id());
        if left.is_empty() {
            return Ok(killed);
        }
        if now() > deadline + limit {
            return Err(io::Error::other(format!("processes cannot be killed: {left:?}")));
        }
        if now() > deadline {
            for entry in left {
                // Still alive with the handle open, it is the process of the handle.
                let handle = ProcessHandle::open(entry.pid).filter(|_| entry.is_alive());
                let Some(handle) = handle else { continue };
                killed.push(format!("{} {}", entry.pid, entry.arguments().join(" ").trim_end()));
                handle.kill();
            }
        }
        thread::sleep(REAP_INTERVAL);
    }
}

/// Unit of CPU time in `/proc`: 10 ms on every Linux.
const TICK: Duration = Duration::from_millis(10);

/// Snapshot of all processes.
#[derive(Debug, Default)]
pub struct ProcessTable(Vec<ProcessEntry>);

/// One process. Pid and start time together identify it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessEntry {
    /// Process id.
    pub pid: u32,
    /// State letter; `Z` is a zombie.
    pub(crate) state: char,
    pub(crate) parent: u32,
    /// Zero when the group leader is outside of this PID namespace, as for the session.
    pub(crate) group: u32,
    pub(crate) session: u32,
    started: u64,
    /// CPU time of its own.
    n_own_ticks: u32,
    /// CPU time of its own and of its reaped children.
    n_ticks: u32,
}

impl ProcessTable {
    /// Reads `/proc`.
    pub fn read() -> Self {
        Self(pids().filter_map(ProcessEntry::read).collect())
    }

    /// Direct children.
    pub fn children(&self, parent: u32) -> Vec<ProcessEntry> {
        self.0.iter().filter(|entry| entry.parent == parent).copied().collect()
    }

    /// Children, their children, and so on.
    pub fn descendants(&self, ancestor: u32) -> Vec<ProcessEntry> {
        let mut found = self.children(ancestor);
        let mut seen = 0;
        while let Some(next) = found.get(seen).copied() {
            found.extend(self.children(next.pid));
            seen += 1;
        }
        found
    }

    /// CPU time of a process and its descendants. Exited children count for their parent, so nothing is lost between
    /// two snapshots.
    pub fn cpu_time_of_tree(&self, ancestor: u32) -> Duration {
        let own = self.0.iter().filter(|entry| entry.pid == ancestor).copied();
        let n_ticks: u32 = own.chain(self.descendants(ancestor)).map(|entry| entry.n_ticks).sum();
        TICK * n_ticks
    }

    /// Descendants that are not reaped.
    pub fn zombies(&self, ancestor: u32) -> Vec<ProcessEntry> {
        let mut found = self.descendants(ancestor);
        found.retain(ProcessEntry::is_zombie);
        found
    }
}

impl ProcessEntry {
    /// Reads `/proc/PID/stat`; `None` if the process is gone.
    pub(crate) fn read(pid: u32) -> Option<Self> {
        Self::parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// A program name may contain parentheses, so the fields count from the last one.
    fn parse(pid: u32, stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let mut number = || fields.next()?.parse().ok();
        let (parent, group, session) = (number()?, number()?, number()?);
        // User and system time, of its own and of reaped children.
        let times = fields.by_ref().skip(7).take(4).map_while(|field| field.parse().ok());
        let times: Vec<u32> = times.collect();
        let (n_own_ticks, n_ticks) = (times.iter().take(2).sum(), times.iter().sum());
        let started = fields.nth(4)?.parse().ok()?;
        Some(Self { pid, state, parent, group, session, started, n_own_ticks, n_ticks })
    }

    pub(crate) fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Whether it still runs. A zombie does not.
    pub fn is_alive(&self) -> bool {
        Self::read(self.pid).is_some_and(|now| now.started == self.started && !now.is_zombie())
    }

    /// Whether it exists, possibly as a zombie.
    pub fn exists(&self) -> bool {
        Self::read(self.pid).is_some_and(|now| now.started == self.started)
    }

    /// Program and arguments; empty for a zombie.
    pub fn arguments(&self) -> Vec<String> {
        let bytes = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let words = bytes.split_inclusive(|byte| *byte == 0);
        words.map(|word| String::from_utf8_lossy(word).trim_end_matches('\0').to_owned()).collect()
    }

    /// Whether it is a guardian, by its first argument.
    pub fn is_guardian(&self) -> bool {
        self.arguments().get(1).is_some_and(|argument| argument == "__guard")
    }
}

/// Ids of all processes.
pub(crate) fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// CPU time of a process, without its children; `None` if it is gone.
pub fn cpu_time(pid: u32) -> Option<Duration> {
    ProcessEntry::read(pid).map(|entry| TICK * entry.n_own_ticks)
}

/// A memory figure of a process in KiB: file below `/proc/PID` (`status`, `smaps_rollup`) and field.
pub fn memory_kib(pid: u32, file: &str, field: &str) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}"))?;
    parse_kib(&text, field).ok_or_else(|| io::Error::other(format!("{file} has no {field}")))
}

fn parse_kib(text: &str, field: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
        .and_then(|value| value.trim().strip_suffix(" kB")?.parse().ok())
}

/// Resets the peak of resident memory of a process (`VmHWM`).
pub fn reset_peak_memory(pid: u32) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(format!("/proc/{pid}/clear_refs"))?.write_all(b"5")
}

/// Bijection that spreads neighboring numbers (finalizer of splitmix64).
pub fn splitmix64(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Interpolated quantile (0.5 is the median); `None` without values.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index into a vector, from a share between 0 and 1"
    )]
    let (below, fraction) = {
        let exact = last as f64 * share.clamp(0.0, 1.0);
        (exact as usize, exact.fract())
    };
    let low = *sorted.get(below)?;
    let high = *sorted.get(below + 1).unwrap_or(&low);
    Some(low + (high - low) * fraction)
}

/// Median; `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_process_has_a_handle() {
        let own = ProcessHandle::open(std::process::id()).expect("own process");
        assert!(!own.wait_exit(Duration::ZERO));
    }

    #[test]
    fn process_is_run_to_its_exit_or_killed() {
        let run = |script: &str, limit| {
            let mut command = command("sh");
            command.args(["-c", script]).stderr(Stdio::piped());
            let output = run_to_exit(&mut command, limit).expect("sh runs");
            let text = format!("{}{}{}", output.stdout, output.stderr, output.exit_status);
            (output.timed_out, text)
        };
        let minute = Duration::from_mins(1);
        let ended = run("echo out; echo err >&2; exit 3", minute);
        assert_eq!(ended, (false, "out\nerr\nexit status: 3".to_owned()));
        let ended = run("exec sleep 61", Duration::from_millis(50));
        assert_eq!(ended, (true, "did not end in 50ms and was killed".to_owned()));
    }

    #[test]
    fn stat_is_parsed_with_unusual_program_names() {
        let stat = "77 (a) b) (c) Z 12 76 75 0 -1 0 0 0 0 0 1 2 30 4 20 0 1 0 4242 1 1";
        let zombie = ProcessEntry {
            pid: 77,
            state: 'Z',
            parent: 12,
            group: 76,
            session: 75,
            started: 4242,
            n_own_ticks: 3,
            n_ticks: 37,
        };
        assert_eq!(ProcessEntry::parse(77, stat), Some(zombie));
        let outside = "12 (a) R (b)) S 77 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1 1 1";
        let found = ProcessEntry::parse(12, outside).map(|entry| (entry.state, entry.group));
        assert_eq!(found, Some(('S', 0)));
        assert_eq!(ProcessEntry::parse(77, "77 (sh) S 1"), None);
    }

    #[test]
    fn descendants_are_found_at_any_depth() {
        let entry = |pid, parent, state| {
            let (group, session, n_ticks) = (0, 0, pid);
            ProcessEntry { pid, state, parent, group, session, started: 1, n_own_ticks: 0, n_ticks }
        };
        let table = ProcessTable(vec![
            entry(40, 30, 'Z'),
            entry(20, 10, 'S'),
            entry(30, 20, 'R'),
            entry(21, 10, 'Z'),
            entry(99, 1, 'S'),
        ]);
        let pids =
            |found: Vec<ProcessEntry>| found.iter().map(|entry| entry.pid).collect::<Vec<u32>>();
        assert_eq!(pids(table.children(10)), [20, 21]);
        assert_eq!(pids(table.descendants(10)), [20, 21, 30, 40]);
        assert_eq!(pids(table.zombies(10)), [21, 40]);
        assert_eq!(pids(table.descendants(40)), Vec::<u32>::new());
        assert_eq!(table.cpu_time_of_tree(20), TICK * 90);
        assert_eq!(table.cpu_time_of_tree(7), Duration::ZERO);
    }

    #[test]
    fn own_process_is_alive_and_not_a_guardian() {
        let own = ProcessEntry::read(std::process::id()).expect("own process");
        let reused_pid = ProcessEntry { started: own.started + 1, ..own };
        let seen = [own.is_alive(), own.exists(), reused_pid.is_alive(), reused_pid.exists()];
        assert_eq!((seen, own.is_guardian()), ([true, true, false, false], false));
    }

    #[test]
    fn memory_field_matches_its_whole_name() {
        let text = "VmRSS:\t  10 kB\nVmHWM:\t    2048 kB\n";
        assert_eq!(parse_kib(text, "VmHWM"), Some(2048));
        assert_eq!(parse_kib("VmHWMX:\t    2048 kB\n", "VmHWM"), None);
        assert_eq!(parse_kib("VmHWM:\tmuch\n", "VmHWM"), None);
        assert!(memory_kib(std::process::id(), "status", "VmRSS").is_ok());
    }

    #[test]
    fn quantiles_are_interpolated() {
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[4.0], 0.5), Some(4.0));
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 0.5), Some(2.0));
        assert_eq!(quantile(&[4.0, 1.0, 3.0, 2.0], 0.5), Some(2.5));
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 1.0), Some(5.0));
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.0), Some(1.0));
        assert_eq!(quantile(&[0.0, 100.0], 0.99), Some(99.0));
    }
}
