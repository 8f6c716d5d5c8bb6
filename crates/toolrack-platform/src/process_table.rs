//! Resident memory (RSS) of process trees, from one scan of `/proc`.
//!
//! Shared pages count for every process that maps them, so a sum is an upper bound.

use std::collections::HashMap;
use std::fs;

/// Snapshot of all processes. Empty on systems without `/proc`.
#[derive(Debug, Default)]
pub struct ProcessTable {
    children: HashMap<u32, Vec<u32>>,
    bytes: HashMap<u32, u64>,
}

impl ProcessTable {
    /// Scans `/proc`. Reads one file per process, so it belongs on a blocking thread.
    pub fn scan() -> Self {
        let mut table = Self::default();
        let Ok(entries) = fs::read_dir("/proc") else { return table };
        for pid in entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            // The process may have exited since the directory was listed.
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok();
            if let Some((parent, bytes)) = status.as_deref().and_then(parse_status) {
                table.insert(pid, parent, bytes);
            }
        }
        table
    }

    fn insert(&mut self, pid: u32, parent: u32, bytes: u64) {
        self.children.entry(parent).or_default().push(pid);
        self.bytes.insert(pid, bytes);
    }

    /// The memory of all descendants of a process, without the process itself, which is the guardian. A process
    /// without descendants counts itself. `None` if there is no such process.
    pub fn tree_bytes(&self, pid: u32) -> Option<u64> {
        let mut sum = None;
        let mut pending = vec![pid];
        // A pid that was reused during the scan can produce a cycle.
        let mut n_left = self.bytes.len();
        while let Some(parent) = pending.pop() {
            for child in self.children.get(&parent).into_iter().flatten() {
                if n_left == 0 {
                    return sum;
                }
                n_left -= 1;
                sum = Some(sum.unwrap_or(0) + self.bytes.get(child).copied().unwrap_or(0));
                pending.push(*child);
            }
        }
        sum.or_else(|| self.bytes.get(&pid).copied())
    }
}

/// Parses parent and RSS from `/proc/PID/status`. `None` for kernel threads and zombies, which have no RSS.
fn parse_status(status: &str) -> Option<(u32, u64)> {
    let field = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name))?;
        value.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    let parent = u32::try_from(field("PPid:")?).ok()?;
    Some((parent, field("VmRSS:")? * 1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_status_is_parsed() {
        let check = |status: &str, expected| assert_eq!(parse_status(status), expected, "{status}");
        check("Name:\tx\nPid:\t7\nPPid:\t3\nVmRSS:\t   42 kB\nThreads:\t1\n", Some((3, 43008)));
        check("Name:\tkthreadd\nPid:\t2\nPPid:\t0\n", None);
        check("PPid:\tx\nVmRSS:\t1 kB\n", None);
        check("", None);
    }

    #[test]
    fn descendants_are_counted_once_and_cycles_terminate() {
        let mut table = ProcessTable::default();
        for (pid, parent, bytes) in [(10, 1, 1), (11, 10, 100), (12, 11, 20), (13, 1, 3)] {
            table.insert(pid, parent, bytes);
        }
        assert_eq!(table.tree_bytes(10), Some(120));
        assert_eq!(table.tree_bytes(13), Some(3));
        assert_eq!(table.tree_bytes(99), None);
        table.insert(10, 12, 1);
        assert!(table.tree_bytes(10).is_some());
    }

    #[test]
    fn own_process_has_memory() {
        let own = std::process::id();
        assert!(ProcessTable::scan().bytes.get(&own).is_some_and(|bytes| *bytes > 100_000));
    }
}
