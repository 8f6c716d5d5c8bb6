//! Orphan cleanup: tags server processes with their owner, and kills those whose owner has crashed.
//!
//! Every process of a server has a tag in its environment. If a program and its guardians are killed at the same moment,
//! processes outside the server's session survive; the next start finds them by their tag.
//!
//! A pid alone does not identify the owner, because pids are reused. The tag therefore also contains the owner's start
//! time, the boot id and the pid namespace.
//!
//! A guardian has its tag as an argument. If its owner is gone and it does not end by itself, because it is stopped or
//! frozen, it is killed with everything below it.
//!
//! **Invariant:** a process is signaled only through a pidfd that was opened before its tag or parent was read, so a
//! reused pid is never hit.

#[cfg(target_os = "linux")]
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
#[cfg(target_os = "linux")]
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(target_os = "linux")]
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use rustix::process::Signal;

#[cfg(target_os = "linux")]
use crate::guardian::{ARGUMENT, now};
#[cfg(target_os = "linux")]
use crate::process_handle::{ProcessHandle, pids};

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
    // The state is that of the main thread, which may end before the others. Only the handle tells them apart.
    #[cfg(target_os = "linux")]
    if let Ok(Some(process)) = ProcessHandle::open_pid(pid) {
        let stat = ProcessStat::read(pid)?;
        return (!process.has_exited()).then_some(stat.start_time);
    }
    let stat = ProcessStat::read(pid)?;
    stat.is_alive().then_some(stat.start_time)
}

/// Fields of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    state: char,
    pub(crate) parent: u32,
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
/// owner ends its server by itself. If it is stopped, or still there after two seconds, it is killed with everything below
/// it.
///
/// Sees only processes whose environment we may read: our own, or all of them for root. Takes one pass over `/proc`, and
/// seconds if there is such a guardian, so it belongs on a blocking thread; without `/proc` it finds nothing.
pub fn kill_orphans() -> usize {
    #[cfg(target_os = "linux")]
    {
        let guardians = orphaned_guardians();
        kill_tagged(&is_orphaned) + kill_silent_guardians(&guardians)
    }
    #[cfg(not(target_os = "linux"))]
    0
}

/// How long a guardian may need after the loss of its owner. It needs half a second, and longer only for a cleanup
/// command, whose targets the next start finds.
#[cfg(target_os = "linux")]
const GUARDIAN_EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long killing a tree may take.
#[cfg(target_os = "linux")]
pub(crate) const KILL_TREE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long killing all trees of lost guardians may take. Those that are left wait for the next cleanup.
#[cfg(target_os = "linux")]
const KILL_ALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The time between two checks for processes that have to exit.
#[cfg(target_os = "linux")]
const PAUSE: Duration = Duration::from_millis(10);

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
        .filter(|process| process.kill().is_ok())
        .count()
}

/// The guardians of owners that are gone.
#[cfg(target_os = "linux")]
fn orphaned_guardians() -> Vec<ProcessHandle> {
    let open_if_orphaned = |pid: u32| {
        is_orphaned(&guardian_tag(pid)?).then_some(())?;
        // Open, then read again: see the invariant of this module. The first look saves a descriptor per process.
        let guardian = ProcessHandle::open_pid(pid).ok()??;
        (is_orphaned(&guardian_tag(pid)?) && !guardian.has_exited()).then_some(guardian)
    };
    pids().filter_map(open_if_orphaned).collect()
}

/// Waits for guardians that end by themselves, and kills the others with everything below them.
#[cfg(target_os = "linux")]
fn kill_silent_guardians(guardians: &[ProcessHandle]) -> usize {
    let (silent_at, deadline) = (now() + GUARDIAN_EXIT_TIMEOUT, now() + KILL_ALL_TIMEOUT);
    let is_stopped = |pid| ProcessStat::read(pid).is_some_and(ProcessStat::is_stopped);
    let may_exit = |guardian: &ProcessHandle| !guardian.has_exited() && !is_stopped(guardian.pid);
    while guardians.iter().any(may_exit) && now() < silent_at {
        std::thread::sleep(PAUSE);
    }
    let silent = guardians.iter().filter(|guardian| !guardian.has_exited());
    silent.map(|root| kill_tree(root, deadline.min(now() + KILL_TREE_TIMEOUT)).n_killed).sum()
}

/// The tag of a guardian. It is an argument, because no process may read the environment of a guardian.
#[cfg(target_os = "linux")]
fn guardian_tag(pid: u32) -> Option<String> {
    let command_line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut args = command_line.split(|byte| *byte == 0).skip(1);
    let is_guardian = args.next()? == ARGUMENT.as_bytes();
    let tag = std::str::from_utf8(args.next()?).ok()?;
    is_guardian.then(|| tag.to_owned())
}

/// How many processes of a tree were killed, and how many did not die of it.
#[cfg(target_os = "linux")]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KilledTree {
    pub(crate) n_killed: usize,
    pub(crate) n_left: usize,
}

/// Kills all descendants of a process, then the process. Sleeps meanwhile.
///
/// If a descendant does not die until the deadline, the process is kept: it inherits the orphans, which nothing else
/// would find. Descendants of another user, which we may not signal, do not count.
#[cfg(target_os = "linux")]
pub(crate) fn kill_tree(root: &ProcessHandle, deadline: Instant) -> KilledTree {
    // Stop all of them before any is killed: the rest would go on to fork, and a stopped one does not.
    let mut stopped = BTreeSet::new();
    loop {
        let n_before = stopped.len();
        for process in root.descendants() {
            if stopped.insert(process.pid) {
                process.send(Signal::STOP).unwrap_or_default();
            }
        }
        if stopped.len() == n_before || now() >= deadline {
            break;
        }
    }
    let mut killed = BTreeSet::new();
    let n_left = loop {
        let descendants = root.descendants();
        let mortal: Vec<u32> = descendants
            .iter()
            .filter(|process| process.kill().is_ok())
            .map(|process| process.pid)
            .collect();
        killed.extend(&mortal);
        if mortal.is_empty() || now() >= deadline {
            break mortal.len();
        }
        // A killed process takes a moment to die.
        std::thread::sleep(PAUSE);
    };
    if n_left > 0 {
        tracing::warn!(n_left, guardian = root.pid, "killed processes do not exit");
    } else if !root.has_exited() && root.kill().is_ok() {
        killed.insert(root.pid);
    }
    KilledTree { n_killed: killed.len(), n_left }
}

/// Opens the process if its tag matches. A process that has exited has no environment.
#[cfg(target_os = "linux")]
fn open_if_tagged(pid: u32, is_match: &dyn Fn(&str) -> bool) -> Option<ProcessHandle> {
    // Open before reading: see the invariant of this module.
    let process = ProcessHandle::open_pid(pid).ok()??;
    environment(pid)?
        .split(|byte| *byte == 0)
        .filter_map(|variable| std::str::from_utf8(variable).ok()?.split_once('='))
        .any(|(name, value)| name == TAG_VARIABLE && is_match(value))
        .then_some(process)
}

/// The environment of a process. A process whose main thread has ended shows it at its other threads only.
#[cfg(target_os = "linux")]
fn environment(pid: u32) -> Option<Vec<u8>> {
    match fs::read(format!("/proc/{pid}/environ")) {
        Ok(environment) if !environment.is_empty() => return Some(environment),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return None,
        Ok(_) | Err(_) => {}
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    threads.flatten().find_map(|thread| {
        fs::read(thread.path().join("environ")).ok().filter(|environment| !environment.is_empty())
    })
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

    /// A shell with children that run below it.
    #[cfg(target_os = "linux")]
    #[expect(clippy::disallowed_methods, reason = "processes to kill")]
    fn shell(script: &str) -> (std::process::Child, ProcessHandle) {
        let child = std::process::Command::new("sh").args(["-c", script]).spawn().unwrap();
        let handle = ProcessHandle::open_pid(child.id()).unwrap().unwrap();
        toolrack_testkit::eventually(Duration::from_secs(10), "the shell has children", || {
            !handle.descendants().is_empty()
        });
        (child, handle)
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn root_is_killed_after_the_last_of_its_tree() {
        let (mut child, root) = shell("sleep 300 & wait");
        // Without time to die, the descendant is left.
        assert_eq!(kill_tree(&root, now()), KilledTree { n_killed: 1, n_left: 1 });
        assert!(!root.has_exited());
        assert_eq!(kill_tree(&root, now() + KILL_TREE_TIMEOUT).n_left, 0);
        child.wait().unwrap();
        assert_eq!(kill_tree(&root, now() + KILL_TREE_TIMEOUT), KilledTree::default());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn tree_that_forks_all_the_time_is_killed() {
        let forks = "sh -c 'while :; do sleep 300 & done'";
        let (mut child, root) = shell(&format!("{forks} & {forks} & wait"));
        let descendants = root.descendants();
        let killed = kill_tree(&root, now() + Duration::from_secs(20));
        assert_eq!(killed.n_left, 0);
        assert!(killed.n_killed > 2 && descendants.iter().all(ProcessHandle::has_exited));
        child.wait().unwrap();
    }
}
