//! Facts about other processes, read from `/proc`: descriptors, memory, zombies.

use std::io;
use std::path::PathBuf;

/// How many file descriptors a process has open.
pub fn open_fds(pid: u32) -> io::Result<usize> {
    Ok(std::fs::read_dir(of(pid).join("fd"))?.count())
}

/// How much memory of a process is in RAM, shared pages included.
pub fn rss_bytes(pid: u32) -> io::Result<u64> {
    kib_line(&std::fs::read_to_string(of(pid).join("status"))?, "VmRSS:")
}

/// How much memory a process alone keeps in RAM, which is what ending it would free.
pub fn private_bytes(pid: u32) -> io::Result<u64> {
    let rollup = std::fs::read_to_string(of(pid).join("smaps_rollup"))?;
    Ok(kib_line(&rollup, "Private_Clean:")? + kib_line(&rollup, "Private_Dirty:")?)
}

/// The processes that `pid` is the parent of, zombies included.
pub fn children_of(pid: u32) -> Vec<u32> {
    let is_child = |value: &u32| status(*value).is_some_and(|status| status.parent == pid);
    all_pids().into_iter().filter(is_child).collect()
}

/// The children of a process that ended and were not reaped.
pub fn zombies_of(pid: u32) -> Vec<u32> {
    let is_zombie_child = |value: &u32| {
        status(*value).is_some_and(|status| status.parent == pid && status.state == 'Z')
    };
    all_pids().into_iter().filter(is_zombie_child).collect()
}

pub(crate) fn all_pids() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) state: char,
    pub(crate) parent: u32,
    /// Zero when the group belongs to a process outside of this process namespace, as the session may.
    pub(crate) group: u32,
    pub(crate) session: u32,
}

/// What the kernel tells of a process, or nothing when it has gone meanwhile.
pub(crate) fn status(pid: u32) -> Option<Status> {
    parse_stat(&std::fs::read_to_string(of(pid).join("stat")).ok()?)
}

pub(crate) fn of(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// The name of a program may hold spaces and parentheses, so the fields count from the last parenthesis.
fn parse_stat(stat: &str) -> Option<Status> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let mut number = || fields.next()?.parse().ok();
    Some(Status { state, parent: number()?, group: number()?, session: number()? })
}

fn kib_line(text: &str, name: &str) -> io::Result<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = value.and_then(|value| value.trim().strip_suffix(" kB")?.trim().parse().ok());
    kib.map(|kib: u64| kib * 1024).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("no line `{name}` with a size"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_stat_survive_odd_program_names() {
        let check = |stat: &str, expected: Option<(char, u32, u32, u32)>| {
            let parsed =
                parse_stat(stat).map(|stat| (stat.state, stat.parent, stat.group, stat.session));
            assert_eq!(parsed, expected, "{stat}");
        };
        check("12 (sh) S 1 11 10 0", Some(('S', 1, 11, 10)));
        check("12 (a) R (b)) Z 77 0 0", Some(('Z', 77, 0, 0)));
        check("12", None);
    }

    #[test]
    fn sizes_are_read_in_bytes() {
        let text = "VmPeak:\t  10 kB\nVmRSS:\t   2048 kB\n";
        assert_eq!(kib_line(text, "VmRSS:").ok(), Some(2 << 20));
        assert_eq!(kib_line(text, "VmSwap:").ok(), None);
    }

    #[test]
    fn a_process_can_look_at_itself() {
        let own = std::process::id();
        assert!(open_fds(own).expect("own descriptors") >= 3);
        let (private, resident) = (private_bytes(own), rss_bytes(own));
        assert!(private.expect("own private memory") <= resident.expect("own memory") + (1 << 20));
        assert_eq!(zombies_of(own), Vec::<u32>::new());
    }
}
