//! Orphan cleanup: tags server processes with their owner, and kills those whose owner has crashed.
//!
//! Every process of a server has a tag in its environment. If a program and its guardians are killed at the same moment,
//! processes outside the server's session survive; the next start finds them by their tag.
//!
//! A pid alone does not identify the owner, because pids are reused. The tag therefore also contains the owner's start
//! time, the boot id and the pid namespace.
//!
//! **Invariant:** a process is signaled only through a pidfd that was opened before its tag was read, so a reused pid is
//! never hit.

use std::fs;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(target_os = "linux")]
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The environment variable with the process tag.
pub(crate) const TAG_VARIABLE: &str = "TOOLRACK_RUN";

/// The owner that a tag names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    boot: String,
    namespace: String,
    pid: u32,
    started: u64,
}

impl Owner {
    /// This process, or `None` where the system does not provide the details.
    pub(crate) fn current() -> Option<&'static Owner> {
        static CURRENT: OnceLock<Option<Owner>> = OnceLock::new();
        CURRENT.get_or_init(|| Owner::from_pid(std::process::id())).as_ref()
    }

    fn from_pid(pid: u32) -> Option<Owner> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
        let namespace = namespace.to_str()?.trim_matches(|digit: char| !digit.is_ascii_digit());
        Some(Owner {
            boot: boot.trim().split('-').next()?.to_owned(),
            namespace: namespace.to_owned(),
            pid,
            started: start_time(pid)?,
        })
    }

    /// Whether the owner is gone. Only known for an owner of this boot and pid namespace.
    pub(crate) fn is_gone(&self) -> bool {
        let Some(here) = Owner::current() else { return false };
        self.boot == here.boot
            && self.namespace == here.namespace
            && start_time(self.pid) != Some(self.started)
    }
}

/// Whether a tag names an owner that is known to be gone.
pub fn is_orphaned(tag: &str) -> bool {
    parse_tag(tag).is_some_and(|owner| owner.is_gone())
}

/// Creates a unique tag that names this process as owner.
pub fn new_process_tag() -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let launch = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    match Owner::current() {
        Some(Owner { boot, namespace, pid, started }) => {
            format!("1.{boot}.{namespace}.{pid}.{started}.{launch}")
        }
        None => format!("0.{}.{launch}", std::process::id()),
    }
}

/// The owner that a tag names, if the tag has our format.
pub(crate) fn parse_tag(tag: &str) -> Option<Owner> {
    let mut parts = tag.split('.');
    let mut part = || parts.next();
    if part()? != "1" {
        return None;
    }
    let owner = Owner {
        boot: part()?.to_owned(),
        namespace: part()?.to_owned(),
        pid: part()?.parse().ok()?,
        started: part()?.parse().ok()?,
    };
    let launch = part()?;
    (launch.parse::<u64>().is_ok() && part().is_none()).then_some(owner)
}

/// When a process started, in clock ticks since the boot. `None` if there is no such process, or only its zombie.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_start_time(&stat)
}

/// The 22nd field, unless the state (the third field) is that of a dead process. The second field, the process name, may
/// contain spaces and parentheses, so the fields are counted after its last parenthesis.
fn parse_start_time(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    match fields.next()? {
        "Z" | "X" | "x" => None,
        _alive => fields.nth(18)?.parse().ok(),
    }
}

/// Kills every process whose tag names an owner that is gone, and returns how many there were.
///
/// Sees only processes whose environment we may read: our own, or all of them for root. Takes one pass over `/proc`;
/// without `/proc` it finds nothing.
pub fn kill_orphans() -> usize {
    #[cfg(target_os = "linux")]
    return kill_tagged(&is_orphaned);
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
    let Ok(entries) = fs::read_dir("/proc") else { return 0 };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| open_if_tagged(pid, is_match))
        .filter(|process| pidfd_send_signal(process, Signal::KILL).is_ok())
        .count()
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
        assert_eq!(parse_tag(&first).as_ref(), Owner::current());
        assert_eq!(parse_tag(&first), parse_tag(&second));
    }

    #[test]
    fn owner_is_gone_only_in_the_same_boot_and_namespace() {
        let here = Owner::current().unwrap().clone();
        let gone = |owner: Owner| owner.is_gone();
        assert!(!gone(here.clone()));
        assert!(gone(Owner { started: here.started + 1, ..here.clone() }));
        assert!(gone(Owner { pid: u32::MAX, ..here.clone() }));
        assert!(!gone(Owner { pid: u32::MAX, boot: "other".to_owned(), ..here.clone() }));
        assert!(!gone(Owner { pid: u32::MAX, namespace: "1".to_owned(), ..here }));
    }

    #[test]
    fn invalid_process_tags_are_rejected() {
        for tag in ["", "1", "0.12.1", "1.b.n.x.1.1", "1.b.n.1.1", "1.b.n.1.1.1.1", "2.b.n.1.1.1"] {
            assert_eq!(parse_tag(tag), None, "{tag}");
        }
    }

    #[test]
    fn start_time_is_parsed_after_any_process_name() {
        let stat = "77 (a) b) (c) S 1 77 77 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        assert_eq!(parse_start_time(stat), Some(4242));
        assert_eq!(parse_start_time("nonsense"), None);
        assert_eq!(parse_start_time(&stat.replace(") S", ") Z")), None, "a zombie");
    }
}
