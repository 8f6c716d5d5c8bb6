//! Orphan cleanup: tags server processes with their owner, and kills those whose owner has crashed.
//!
//! Every process of a server has a tag in its environment. If a program and its guardians are killed at the same moment,
//! processes outside the server's session survive; the next start finds them by their tag.
//!
//! A pid alone does not identify the owner, because pids are reused. The tag therefore also contains the owner's start
//! time, the boot id and the pid namespace.
//!
//! A guardian has its tag as an argument. If its owner is gone and it is stopped, everything below it is killed with it.
//!
//! **Invariant:** a process is signaled only through a pidfd that was opened before its tag or parent was read, so a
//! reused pid is never hit.

#[cfg(target_os = "linux")]
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(target_os = "linux")]
use std::time::Duration;

#[cfg(target_os = "linux")]
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

#[cfg(target_os = "linux")]
use crate::guardian::ARGUMENT;

/// The environment variable with the process tag.
pub(crate) const TAG_VARIABLE: &str = "TOOLRACK_RUN";

/// The start of every tag of this boot and pid namespace, or `None` where the system does not provide the details.
fn tag_scope() -> Option<&'static str> {
    static SCOPE: OnceLock<Option<String>> = OnceLock::new();
    let scope = SCOPE.get_or_init(|| {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
        let namespace = namespace.to_str()?.trim_matches(|digit: char| !digit.is_ascii_digit());
        Some(format!("1.{}.{namespace}.", boot.trim().split('-').next()?))
    });
    scope.as_deref()
}

/// Creates a unique tag that names this process as owner.
pub fn new_process_tag() -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let launch = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    let pid = std::process::id();
    match (tag_scope(), start_time(pid)) {
        (Some(scope), Some(started)) => format!("{scope}{pid}.{started}.{launch}"),
        _ => format!("0.{pid}.{launch}"),
    }
}

/// Whether a tag names an owner that is gone. Only known for an owner of this boot and pid namespace.
pub fn is_orphaned(tag: &str) -> bool {
    parse_owner(tag).is_some_and(|(pid, started)| start_time(pid) != Some(started))
}

/// The pid and start time of the owner that a tag of this boot and pid namespace names.
fn parse_owner(tag: &str) -> Option<(u32, u64)> {
    let mut numbers = tag.strip_prefix(tag_scope()?)?.split('.');
    let owner = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    let has_launch = numbers.next()?.parse::<u64>().is_ok();
    (has_launch && numbers.next().is_none()).then_some(owner)
}

/// When a process started, in clock ticks since the boot. `None` if there is no such process, or only its zombie.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    let stat = ProcessStat::read(pid)?;
    stat.is_alive().then_some(stat.start_time)
}

/// Fields of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    state: char,
    pub(crate) parent: i32,
    /// In clock ticks since the boot.
    start_time: u64,
}

impl ProcessStat {
    /// `None` if there is no such process.
    pub(crate) fn read(pid: impl fmt::Display) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The third, fourth and 22nd field. The second one, the process name, may contain spaces and parentheses, so the
    /// fields are counted after its last parenthesis.
    fn parse(stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        Some(Self { state, parent, start_time: fields.nth(17)?.parse().ok()? })
    }

    fn is_alive(self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// Stopped by a signal or a tracer.
    #[cfg(target_os = "linux")]
    fn is_stopped(self) -> bool {
        matches!(self.state, 'T' | 't')
    }
}

/// Kills every process whose tag names an owner that is gone, and returns how many there were. A guardian of such an
/// owner ends its server by itself, unless it is stopped: then it is killed with everything below it.
///
/// Sees only processes whose environment we may read: our own, or all of them for root. Takes one pass over `/proc`;
/// without `/proc` it finds nothing.
pub fn kill_orphans() -> usize {
    #[cfg(target_os = "linux")]
    return kill_stopped_guardians() + kill_tagged(&is_orphaned);
    #[cfg(not(target_os = "linux"))]
    0
}

/// Kills every process of one launch and returns how many there were. Used when the guardian was killed.
#[cfg(target_os = "linux")]
pub(crate) fn kill_tagged_launch(tag: &str) -> usize {
    // A process may fork while it is being killed, so repeat until none is found.
    const ROUNDS: usize = 50;
    let mut n_killed = 0;
    for _ in 0..ROUNDS {
        match kill_tagged(&|found| found == tag) {
            0 => break,
            n => n_killed += n,
        }
    }
    n_killed
}

#[cfg(target_os = "linux")]
fn kill_tagged(is_match: &dyn Fn(&str) -> bool) -> usize {
    pids()
        .filter_map(|pid| open_if_tagged(pid, is_match))
        .filter(|process| pidfd_send_signal(process, Signal::KILL).is_ok())
        .count()
}

/// All processes.
#[cfg(target_os = "linux")]
fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Kills the stopped guardians of owners that are gone, with everything below them.
#[cfg(target_os = "linux")]
fn kill_stopped_guardians() -> usize {
    let is_orphaned_guardian = |pid: &i32| {
        ProcessStat::read(pid).is_some_and(ProcessStat::is_stopped)
            && guardian_tag(*pid).is_some_and(|tag| is_orphaned(&tag))
    };
    pids().filter(is_orphaned_guardian).filter_map(Pid::from_raw).map(kill_tree).sum()
}

/// The tag of a guardian. It is an argument, because no process may read the environment of a guardian.
#[cfg(target_os = "linux")]
fn guardian_tag(pid: i32) -> Option<String> {
    let command_line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut args = command_line.split(|byte| *byte == 0).skip(1);
    let is_guardian = args.next()? == ARGUMENT.as_bytes();
    let tag = std::str::from_utf8(args.next()?).ok()?;
    is_guardian.then(|| tag.to_owned())
}

/// Kills all descendants of a process, then the process, and returns how many there were.
///
/// Takes at most a second, and sleeps meanwhile.
#[cfg(target_os = "linux")]
pub(crate) fn kill_tree(root: Pid) -> usize {
    // A process may fork while it is being killed, and takes a moment to die, so repeat until none is found.
    const ROUNDS: usize = 100;
    const PAUSE: Duration = Duration::from_millis(10);
    let Ok(root_process) = pidfd_open(root, PidfdFlags::empty()) else { return 0 };
    let root_pid = root.as_raw_nonzero().get();
    let mut killed = BTreeSet::new();
    for _ in 0..ROUNDS {
        let mut descendants = pids().filter_map(|pid| Some((pid, open_if_below(pid, root_pid)?)));
        let n_before = killed.len();
        let mut is_empty = true;
        for (pid, process) in &mut descendants {
            is_empty = false;
            if pidfd_send_signal(&process, Signal::KILL).is_ok() {
                killed.insert(pid);
            }
        }
        if is_empty {
            break;
        }
        tracing::trace!(n_new = killed.len() - n_before, "killed processes below a guardian");
        std::thread::sleep(PAUSE);
    }
    if pidfd_send_signal(&root_process, Signal::KILL).is_ok() {
        killed.insert(root_pid);
    }
    killed.len()
}

/// Opens a process that runs below another one.
#[cfg(target_os = "linux")]
fn open_if_below(pid: i32, root: i32) -> Option<OwnedFd> {
    /// Parents that a walk visits. A pid that is reused meanwhile could produce a cycle.
    const MAX_DEPTH: usize = 10_000;
    // Open before reading: see the invariant of this module.
    let process = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    let stat = ProcessStat::read(pid).filter(|stat| stat.is_alive())?;
    let mut parent = stat.parent;
    for _ in 0..MAX_DEPTH {
        if parent == root {
            return Some(process);
        }
        parent = ProcessStat::read(parent)?.parent;
    }
    None
}

/// Opens the process if its tag matches. A zombie has no environment and is not counted.
#[cfg(target_os = "linux")]
fn open_if_tagged(pid: i32, is_match: &dyn Fn(&str) -> bool) -> Option<OwnedFd> {
    // Open before reading: see the invariant of this module.
    let process = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    environment
        .split(|byte| *byte == 0)
        .filter_map(|variable| std::str::from_utf8(variable).ok()?.split_once('='))
        .any(|(name, value)| name == TAG_VARIABLE && is_match(value))
        .then_some(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_tag_names_its_owner() {
        let (first, second) = (new_process_tag(), new_process_tag());
        assert_ne!(first, second);
        let pid = std::process::id();
        assert_eq!(parse_owner(&first), Some((pid, start_time(pid).unwrap())));
        assert_eq!(parse_owner(&first), parse_owner(&second));
    }

    #[test]
    fn owner_is_gone_only_in_the_same_boot_and_namespace() {
        let (scope, pid) = (tag_scope().unwrap(), std::process::id());
        let started = start_time(pid).unwrap();
        assert!(!is_orphaned(&format!("{scope}{pid}.{started}.1")));
        assert!(is_orphaned(&format!("{scope}{pid}.{}.1", started + 1)));
        assert!(is_orphaned(&format!("{scope}{}.{started}.1", u32::MAX)));
        let parts: Vec<&str> = scope.split('.').collect();
        assert!(!is_orphaned(&format!("1.other.{}.{}.{started}.1", parts[2], u32::MAX)));
        assert!(!is_orphaned(&format!("1.{}.1.{}.{started}.1", parts[1], u32::MAX)));
    }

    #[test]
    fn invalid_process_tags_are_rejected() {
        let scope = tag_scope().unwrap();
        for numbers in ["", "x.1.1", "1.x.1", "1.1", "1.1.x", "1.1.1.1"] {
            assert_eq!(parse_owner(&format!("{scope}{numbers}")), None, "{numbers}");
        }
        for tag in ["", "1", "0.12.1", &scope.replace("1.", "2."), "1.b.n.1.1.1"] {
            assert_eq!(parse_owner(tag), None, "{tag}");
        }
    }

    #[test]
    fn stat_is_parsed_after_any_process_name() {
        let stat = "77 (a) b) (c) S 12 77 77 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        let parsed = ProcessStat::parse(stat).unwrap();
        assert_eq!(parsed, ProcessStat { state: 'S', parent: 12, start_time: 4242 });
        let check = |state: &str, is_alive: bool, is_stopped: bool| {
            let parsed = ProcessStat::parse(&stat.replace(") S", state)).unwrap();
            assert_eq!((parsed.is_alive(), parsed.is_stopped()), (is_alive, is_stopped), "{state}");
        };
        check(") S", true, false);
        check(") Z", false, false);
        check(") T", true, true);
        check(") t", true, true);
        assert_eq!(ProcessStat::parse("nonsense"), None);
        assert_eq!(ProcessStat::parse("77 (a) S 12"), None);
    }
}
