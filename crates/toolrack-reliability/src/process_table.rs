//! Process table from `/proc`: parents, states and CPU time.

use std::fs;
use std::time::Duration;

/// Unit of CPU time in `/proc`: 10 ms on every Linux.
const TICK: Duration = Duration::from_millis(10);

/// Snapshot of all processes.
#[derive(Debug, Default)]
pub(crate) struct ProcessTable(Vec<ProcessEntry>);

/// One process. Pid and start time together identify it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessEntry {
    pub(crate) pid: u32,
    parent: u32,
    started: u64,
    is_zombie: bool,
    /// CPU time of its own and of its reaped children.
    n_ticks: u32,
}

impl ProcessTable {
    pub(crate) fn read() -> Self {
        let Ok(entries) = fs::read_dir("/proc") else { return Self::default() };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Self(pids.filter_map(read_entry).collect())
    }

    pub(crate) fn children(&self, parent: u32) -> Vec<ProcessEntry> {
        self.0.iter().filter(|entry| entry.parent == parent).copied().collect()
    }

    /// Children, their children, and so on.
    pub(crate) fn descendants(&self, ancestor: u32) -> Vec<ProcessEntry> {
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
    pub(crate) fn cpu_time_of_tree(&self, ancestor: u32) -> Duration {
        let own = self.0.iter().filter(|entry| entry.pid == ancestor).copied();
        let n_ticks: u32 = own.chain(self.descendants(ancestor)).map(|entry| entry.n_ticks).sum();
        TICK * n_ticks
    }

    pub(crate) fn zombies(&self, ancestor: u32) -> Vec<ProcessEntry> {
        let mut found = self.descendants(ancestor);
        found.retain(|entry| entry.is_zombie);
        found
    }
}

impl ProcessEntry {
    /// Whether it still runs. A zombie does not.
    pub(crate) fn is_alive(&self) -> bool {
        read_entry(self.pid).is_some_and(|now| now.started == self.started && !now.is_zombie)
    }

    /// Whether it exists, possibly as a zombie.
    pub(crate) fn exists(&self) -> bool {
        read_entry(self.pid).is_some_and(|now| now.started == self.started)
    }

    /// Whether it is a guardian, by its first argument.
    pub(crate) fn is_guardian(&self) -> bool {
        let words = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        words.split(|byte| *byte == 0).nth(1) == Some(b"__guard".as_slice())
    }
}

/// Load average of the last minute.
pub(crate) fn load_average() -> Option<f64> {
    parse_load(&fs::read_to_string("/proc/loadavg").ok()?)
}

fn read_entry(pid: u32) -> Option<ProcessEntry> {
    parse_stat(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// A program name may contain parentheses, so the fields count from the last one.
fn parse_stat(pid: u32, stat: &str) -> Option<ProcessEntry> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let is_zombie = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    // User and system time, of its own and of reaped children.
    let times = fields.by_ref().skip(9).take(4).map_while(|field| field.parse::<u32>().ok());
    let n_ticks = times.sum();
    let started = fields.nth(4)?.parse().ok()?;
    Some(ProcessEntry { pid, parent, started, is_zombie, n_ticks })
}

fn parse_load(text: &str) -> Option<f64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_parsed_with_unusual_program_names() {
        let stat = "77 (a) b) (c) Z 12 77 77 0 -1 0 0 0 0 0 1 2 30 4 20 0 1 0 4242 1 1";
        let zombie =
            ProcessEntry { pid: 77, parent: 12, started: 4242, is_zombie: true, n_ticks: 37 };
        assert_eq!(parse_stat(77, stat), Some(zombie));
        assert_eq!(parse_stat(77, "77 (sh) S 1"), None);
    }

    #[test]
    fn descendants_are_found_at_any_depth() {
        let entry = |pid, parent, is_zombie| {
            let n_ticks = pid;
            ProcessEntry { pid, parent, started: 1, is_zombie, n_ticks }
        };
        let table = ProcessTable(vec![
            entry(40, 30, true),
            entry(20, 10, false),
            entry(30, 20, false),
            entry(21, 10, true),
            entry(99, 1, false),
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
        let own = read_entry(std::process::id()).unwrap();
        let reused_pid = ProcessEntry { started: own.started + 1, ..own };
        let seen = [own.is_alive(), own.exists(), reused_pid.is_alive(), reused_pid.exists()];
        assert_eq!((seen, own.is_guardian()), ([true, true, false, false], false));
    }

    #[test]
    fn load_average_is_the_first_number() {
        assert_eq!(parse_load("3.93 2.72 3.05 1/92 4711\n"), Some(3.93));
        assert_eq!(parse_load(""), None);
    }
}
