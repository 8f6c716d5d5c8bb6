//! CPU time and memory of processes, core pinning, and the limit of open files.
//!
//! Memory figures come from `/proc`, in KiB.

use std::fs;
use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// User and system CPU time of all threads of this process.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
}

/// Memory of a process in KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    pub(crate) anonymous: u64,
    pub(crate) private: u64,
}

impl Memory {
    pub(crate) fn of_current_process() -> anyhow::Result<Self> {
        Self::for_pid("self")
    }

    fn for_pid(pid: &str) -> anyhow::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        Self::parse(&text).context("unexpected format of smaps_rollup")
    }

    fn parse(text: &str) -> Option<Self> {
        Some(Self {
            resident: parse_kib(text, "Rss")?,
            anonymous: parse_kib(text, "Anonymous")?,
            private: parse_kib(text, "Private_Clean")? + parse_kib(text, "Private_Dirty")?,
        })
    }
}

/// Resets the peak that [`peak_resident`] returns.
pub(crate) fn reset_peak() -> anyhow::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).open("/proc/self/clear_refs")?;
    file.write_all(b"5").context("cannot reset the peak of resident memory")
}

/// Peak resident memory of this process since [`reset_peak`], in KiB.
pub(crate) fn peak_resident() -> anyhow::Result<u64> {
    peak_resident_of(std::process::id())
}

/// Peak resident memory of a process, in KiB.
pub(crate) fn peak_resident_of(pid: u32) -> anyhow::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    parse_kib(&text, "VmHWM").context("status has no VmHWM")
}

/// Resident memory of a process, in KiB.
pub(crate) fn resident_of(pid: u32) -> anyhow::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    parse_kib(&text, "VmRSS").context("status has no VmRSS")
}

/// Raises the limit of open files to the maximum, for this process and its future children.
pub(crate) fn raise_open_file_limit() -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    setrlimit(Resource::Nofile, raised).context("cannot raise the limit of open files")
}

/// Resident memory of a process and its descendants, in KiB; 0 for an exited process.
pub(crate) fn resident_of_tree(pid: u32) -> u64 {
    resident_of(pid).unwrap_or(0) + children_of(pid).into_iter().map(resident_of_tree).sum::<u64>()
}

fn children_of(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut found = Vec::new();
    for thread in threads.flatten() {
        let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        found.extend(
            text.split_ascii_whitespace()
                .filter_map(|split_ascii_whitespace| split_ascii_whitespace.parse::<u32>().ok()),
        );
    }
    found
}

/// Private memory of every child process that is not a server, in KiB: the guardians.
pub(crate) fn guardian_private_memory() -> anyhow::Result<Vec<u64>> {
    let mut found = Vec::new();
    for thread in fs::read_dir("/proc/self/task")? {
        let children = fs::read_to_string(thread?.path().join("children"))?;
        for pid in children.split_ascii_whitespace() {
            let command = fs::read(format!("/proc/{pid}/cmdline"))?;
            // A zombie has no command line and no memory.
            if !command.is_empty() && !is_server(&command) {
                found.push(Memory::for_pid(pid)?.private);
            }
        }
    }
    Ok(found)
}

fn is_server(command: &[u8]) -> bool {
    command.split(|byte| *byte == 0).nth(1) == Some(b"serve".as_slice())
}

/// Pins this process and its future children to one core.
pub(crate) fn pin_to_one_core() -> anyhow::Result<()> {
    let allowed = sched_getaffinity(None)?;
    // The last core: interrupts of a virtual machine tend to go to the first.
    let core = (0..CpuSet::MAX_CPU).rev().find(|core| allowed.is_set(*core));
    let mut one = CpuSet::new();
    one.set(core.context("no core is available")?);
    sched_setaffinity(None, &one).context("cannot pin the process to one core")
}

fn parse_kib(text: &str, field: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
        .and_then(|value| value.trim().strip_suffix(" kB")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLLUP: &str = "\
5581-7ffe ---p 00000000 00:00 0                    [rollup]
Rss:                1828 kB
Pss:                 178 kB
Pss_Anon:             92 kB
Private_Clean:         4 kB
Private_Dirty:        92 kB
Anonymous:            96 kB
";

    #[test]
    fn smaps_rollup_is_parsed() {
        let expected = Memory { resident: 1828, anonymous: 96, private: 96 };
        assert_eq!(Memory::parse(ROLLUP), Some(expected));
        assert_eq!(Memory::parse("Rss: 12 kB\n"), None);
    }

    #[test]
    fn field_matches_whole_name() {
        assert_eq!(parse_kib("VmHWM:\t    2048 kB\n", "VmHWM"), Some(2048));
        assert_eq!(parse_kib("VmHWMX:\t    2048 kB\n", "VmHWM"), None);
        assert_eq!(parse_kib("VmHWM:\tmuch\n", "VmHWM"), None);
    }

    #[test]
    fn guardian_is_not_a_server() {
        assert!(is_server(b"/bin/toolrack-bench\0serve\0--tools\x0010\0"));
        assert!(!is_server(b"/bin/toolrack-bench\0__guard\0serve\0"));
        assert!(!is_server(b"/bin/toolrack-bench\0"));
    }
}
