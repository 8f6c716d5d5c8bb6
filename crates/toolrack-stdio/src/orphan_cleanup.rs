//! The mark that every process of a server carries in its environment.
//!
//! It names the process that owns the server, so that anybody can tell later whether the owner still
//! lives: a process id alone does not say that, because ids are used again. The mark therefore also
//! holds the owner's start time, the boot and the process-id namespace it was counted in.

use std::fs;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(target_os = "linux")]
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The name of the variable.
pub(crate) const VARIABLE: &str = "TOOLRACK_RUN";

/// Whose process it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    boot: String,
    namespace: String,
    pid: u32,
    started: u64,
}

impl Owner {
    /// This process, or `None` where the system does not tell.
    pub(crate) fn ourselves() -> Option<&'static Owner> {
        static OURSELVES: OnceLock<Option<Owner>> = OnceLock::new();
        OURSELVES.get_or_init(|| Owner::of(std::process::id())).as_ref()
    }

    fn of(pid: u32) -> Option<Owner> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
        let namespace = namespace.to_str()?.trim_matches(|it: char| !it.is_ascii_digit());
        Some(Owner {
            boot: boot.trim().split('-').next()?.to_owned(),
            namespace: namespace.to_owned(),
            pid,
            started: start_time(pid)?,
        })
    }

    /// Whether the owner is of this boot and namespace, so that its absence means something, and gone.
    pub(crate) fn is_gone(&self) -> bool {
        let Some(here) = Owner::ourselves() else { return false };
        self.boot == here.boot
            && self.namespace == here.namespace
            && start_time(self.pid) != Some(self.started)
    }
}

/// A new mark for something that belongs to this process, to be found by whoever looks after it is gone.
pub fn new_mark() -> String {
    next()
}

/// Whether a mark names an owner that is known to live no more.
pub fn is_orphaned(mark: &str) -> bool {
    owner(mark).is_some_and(|owner| owner.is_gone())
}

/// A new mark for one launch of ours.
pub(crate) fn next() -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let launch = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    match Owner::ourselves() {
        Some(Owner { boot, namespace, pid, started }) => {
            format!("1.{boot}.{namespace}.{pid}.{started}.{launch}")
        }
        None => format!("0.{}.{launch}", std::process::id()),
    }
}

/// The owner that a mark names, if it is a mark of the kind we write.
pub(crate) fn owner(mark: &str) -> Option<Owner> {
    let mut parts = mark.split('.');
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

/// When a process started, in ticks since the boot. `None` if there is no such process, or only what is
/// left of one until its parent has taken note.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_start_time(&stat)
}

/// The 22nd field, for a process whose state, the third, is not that of a dead one. The second field is a
/// name that may hold anything, blanks and brackets included, so counting starts behind its last bracket.
fn parse_start_time(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    match fields.next()? {
        "Z" | "X" | "x" => None,
        _alive => fields.nth(18)?.parse().ok(),
    }
}

/// Ends every process whose mark names an owner that no longer lives, and says how many there were.
///
/// Looks only at processes we may look at: ours, or everybody's for root. Costs one pass over `/proc`;
/// where there is none, nothing is found.
pub fn sweep() -> usize {
    #[cfg(target_os = "linux")]
    return kill_marked(&is_orphaned);
    #[cfg(not(target_os = "linux"))]
    0
}

/// Ends every process of one launch, again and again until there is none, and says how many there
/// were. Used when the launch has lost its guardian.
#[cfg(target_os = "linux")]
pub(crate) fn sweep_launch(mark: &str) -> usize {
    const ROUNDS: usize = 50;
    let mut n_ended = 0;
    for _ in 0..ROUNDS {
        match kill_marked(&|found| found == mark) {
            0 => break,
            n => n_ended += n,
        }
    }
    n_ended
}

#[cfg(target_os = "linux")]
fn kill_marked(is_ours: &dyn Fn(&str) -> bool) -> usize {
    let Ok(entries) = fs::read_dir("/proc") else { return 0 };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| marked(pid, is_ours))
        .filter(|process| pidfd_send_signal(process, Signal::KILL).is_ok())
        .count()
}

/// A handle on the process, if it is marked the right way. A process that is already dead has no
/// environment and is not counted.
#[cfg(target_os = "linux")]
fn marked(pid: i32, is_ours: &dyn Fn(&str) -> bool) -> Option<OwnedFd> {
    let process = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    environment
        .split(|byte| *byte == 0)
        .filter_map(|variable| std::str::from_utf8(variable).ok()?.split_once('='))
        .any(|(name, value)| name == VARIABLE && is_ours(value))
        .then_some(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_names_its_owner() {
        let (first, second) = (next(), next());
        assert_ne!(first, second);
        assert_eq!(owner(&first).as_ref(), Owner::ourselves());
        assert_eq!(owner(&first), owner(&second));
    }

    #[test]
    fn an_owner_is_gone_only_if_we_can_know() {
        let here = Owner::ourselves().unwrap().clone();
        let gone = |owner: Owner| owner.is_gone();
        assert!(!gone(here.clone()));
        assert!(gone(Owner { started: here.started + 1, ..here.clone() }));
        assert!(gone(Owner { pid: u32::MAX, ..here.clone() }));
        assert!(!gone(Owner { pid: u32::MAX, boot: "other".to_owned(), ..here.clone() }));
        assert!(!gone(Owner { pid: u32::MAX, namespace: "1".to_owned(), ..here }));
    }

    #[test]
    fn what_is_not_our_mark_names_nobody() {
        for mark in ["", "1", "0.12.1", "1.b.n.x.1.1", "1.b.n.1.1", "1.b.n.1.1.1.1", "2.b.n.1.1.1"]
        {
            assert_eq!(owner(mark), None, "{mark}");
        }
    }

    #[test]
    fn a_strange_name_does_not_move_the_fields() {
        let stat = "77 (a) b) (c) S 1 77 77 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        assert_eq!(parse_start_time(stat), Some(4242));
        assert_eq!(parse_start_time("nonsense"), None);
        assert_eq!(parse_start_time(&stat.replace(") S", ") Z")), None, "only a zombie");
    }
}
