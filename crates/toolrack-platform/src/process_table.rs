//! Processes of this machine with their memory (RSS), from one scan of `/proc`.
//!
//! Shared pages count for every process that maps them, so a sum is an upper bound.

use std::fs;

use serde::Serialize;

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// The id of its parent.
    pub parent: u32,
    /// The name of its program.
    pub name: String,
    /// Its resident memory.
    pub memory_bytes: u64,
}

/// Snapshot of all processes. Empty on systems without `/proc`.
#[derive(Debug, Default)]
pub struct ProcessTable(Vec<Process>);

impl ProcessTable {
    /// Scans `/proc`. Reads one file per process, so it belongs on a blocking thread.
    pub fn scan() -> Self {
        let Ok(entries) = fs::read_dir("/proc") else { return Self::default() };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let processes = pids.filter_map(|pid| {
            // The process may have exited since the directory was listed.
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            parse_status(pid, &status).or_else(|| read_thread_status(pid, &status))
        });
        Self(processes.collect())
    }

    /// All descendants of a process, sorted by id.
    pub fn descendants(&self, root: u32) -> Vec<Process> {
        let mut found: Vec<Process> = Vec::new();
        let mut parents = vec![root];
        while let Some(parent) = parents.pop() {
            for child in self.0.iter().filter(|process| process.parent == parent) {
                // A pid that was reused during the scan can produce a cycle.
                if child.pid != root && found.iter().all(|process| process.pid != child.pid) {
                    parents.push(child.pid);
                    found.push(child.clone());
                }
            }
        }
        found.sort_unstable_by_key(|process| process.pid);
        found
    }

    /// The memory of all descendants of a process, without the process itself, which is the guardian. A process
    /// without descendants counts itself. `None` if there is no such process.
    pub fn tree_bytes(&self, pid: u32) -> Option<u64> {
        let descendants = self.descendants(pid);
        if descendants.is_empty() {
            return self.0.iter().find(|process| process.pid == pid).map(|own| own.memory_bytes);
        }
        Some(descendants.iter().map(|process| process.memory_bytes).sum())
    }
}

/// The status of a process whose main thread has ended, which looks like a zombie, from one of its other threads.
fn read_thread_status(pid: u32, status: &str) -> Option<Process> {
    status.contains("\nState:\tZ").then_some(())?;
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut statuses = threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
    statuses.find_map(|status| parse_status(pid, &status))
}

/// Parses `/proc/PID/status`. `None` for kernel threads and zombies, which have no memory.
fn parse_status(pid: u32, status: &str) -> Option<Process> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let number = |name: &str| field(name)?.split_ascii_whitespace().next()?.parse::<u64>().ok();
    Some(Process {
        pid,
        parent: u32::try_from(number("PPid:")?).ok()?,
        name: field("Name:")?.trim().to_owned(),
        memory_bytes: number("VmRSS:")? * 1024,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32, memory_bytes: u64) -> Process {
        Process { pid, parent, name: "a) b".to_owned(), memory_bytes }
    }

    #[test]
    fn proc_status_is_parsed() {
        let check =
            |status: &str, expected| assert_eq!(parse_status(7, status), expected, "{status}");
        let status = "Name:\ta) b\nPid:\t7\nPPid:\t3\nVmRSS:\t   42 kB\nThreads:\t1\n";
        check(status, Some(process(7, 3, 43008)));
        check("Name:\tkthreadd\nPid:\t2\nPPid:\t0\n", None);
        check("Name:\tx\nPPid:\tx\nVmRSS:\t1 kB\n", None);
        check("", None);
    }

    #[test]
    fn descendants_are_counted_once_and_cycles_terminate() {
        let mut table = ProcessTable(vec![
            process(13, 1, 3),
            process(12, 11, 20),
            process(11, 10, 100),
            process(10, 1, 1),
        ]);
        let pids: Vec<u32> = table.descendants(10).iter().map(|process| process.pid).collect();
        assert_eq!(pids, [11, 12]);
        assert_eq!(table.descendants(12), []);
        assert_eq!(table.tree_bytes(10), Some(120));
        assert_eq!(table.tree_bytes(13), Some(3));
        assert_eq!(table.tree_bytes(99), None);
        table.0.push(process(10, 12, 1));
        assert_eq!(table.tree_bytes(10), Some(120));
    }

    #[test]
    fn own_process_has_memory() {
        let own = std::process::id();
        let table = ProcessTable::scan();
        let own = table.0.iter().find(|process| process.pid == own).unwrap();
        assert!(own.memory_bytes > 100_000 && !own.name.is_empty(), "{own:?}");
    }
}
