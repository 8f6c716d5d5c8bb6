//! How much memory servers take, with everything they have started: one look at all processes of this machine.
//!
//! Pages that processes share are counted for each of them, so the sum is what it would be without sharing.

use std::collections::HashMap;
use std::fs;

/// All processes, as they were a moment ago. Empty where there is no `/proc`.
#[derive(Debug, Default)]
pub(crate) struct Census {
    children: HashMap<u32, Vec<u32>>,
    bytes: HashMap<u32, u64>,
}

impl Census {
    /// Looks at every process. Reads a file for each of them, so it belongs where it holds up nobody.
    pub(crate) fn take() -> Self {
        let mut census = Self::default();
        let Ok(processes) = fs::read_dir("/proc") else { return census };
        for pid in processes.flatten().filter_map(|it| it.file_name().to_str()?.parse().ok()) {
            // One that has ended meanwhile has no memory.
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok();
            if let Some((parent, bytes)) = status.as_deref().and_then(parse) {
                census.add(pid, parent, bytes);
            }
        }
        census
    }

    fn add(&mut self, pid: u32, parent: u32, bytes: u64) {
        self.children.entry(parent).or_default().push(pid);
        self.bytes.insert(pid, bytes);
    }

    /// The memory of everything below a process, which is itself only a guardian. `None` if nothing is there.
    pub(crate) fn below(&self, pid: u32) -> Option<u64> {
        let mut sum = None;
        let mut waiting = vec![pid];
        // A number that was given anew between two files could close a circle.
        let mut n_left = self.bytes.len();
        while let Some(parent) = waiting.pop() {
            for child in self.children.get(&parent).into_iter().flatten() {
                if n_left == 0 {
                    return sum;
                }
                n_left -= 1;
                sum = Some(sum.unwrap_or(0) + self.bytes.get(child).copied().unwrap_or(0));
                waiting.push(*child);
            }
        }
        sum.or_else(|| self.bytes.get(&pid).copied())
    }
}

/// The parent and the resident memory of a process. Those of the kernel and those that have ended have none.
fn parse(status: &str) -> Option<(u32, u64)> {
    let field = |name: &str| {
        let line = status.lines().find_map(|it| it.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    let parent = u32::try_from(field("PPid:")?).ok()?;
    Some((parent, field("VmRSS:")? * 1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_read() {
        let check = |status: &str, expected| assert_eq!(parse(status), expected, "{status}");
        check("Name:\tx\nPid:\t7\nPPid:\t3\nVmRSS:\t   42 kB\nThreads:\t1\n", Some((3, 43008)));
        check("Name:\tkthreadd\nPid:\t2\nPPid:\t0\n", None);
        check("PPid:\tx\nVmRSS:\t1 kB\n", None);
        check("", None);
    }

    #[test]
    fn everything_below_is_counted_once_and_a_circle_has_an_end() {
        let mut census = Census::default();
        for (pid, parent, bytes) in [(10, 1, 1), (11, 10, 100), (12, 11, 20), (13, 1, 3)] {
            census.add(pid, parent, bytes);
        }
        assert_eq!(census.below(10), Some(120));
        assert_eq!(census.below(13), Some(3));
        assert_eq!(census.below(99), None);
        census.add(10, 12, 1);
        assert!(census.below(10).is_some());
    }

    #[test]
    fn this_process_has_memory() {
        let own = std::process::id();
        assert!(Census::take().bytes.get(&own).is_some_and(|it| *it > 100_000));
    }
}
