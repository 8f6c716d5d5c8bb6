//! CPU time and memory of processes, core pinning, and the limit of open files.
//!
//! Memory figures come from `/proc`, in KiB.

use std::io;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use toolrack_testkit::harness::{ProcessEntry, ProcessTable, memory_kib};

/// User and system CPU time of all threads of this process.
pub(crate) fn cpu_time() -> Duration {
    clock(ClockId::ProcessCPUTime)
}

/// Reads a clock. All processes share the monotonic one.
pub(crate) fn clock(id: ClockId) -> Duration {
    let time = clock_gettime(id);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
}

/// Memory of a process in KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    pub(crate) anonymous: u64,
}

impl Memory {
    pub(crate) fn of_current_process() -> io::Result<Self> {
        let read = |field| memory_kib(std::process::id(), "smaps_rollup", field);
        Ok(Self { resident: read("Rss")?, anonymous: read("Anonymous")? })
    }
}

/// Peak resident memory of a process, in KiB.
pub(crate) fn peak_resident_of(pid: u32) -> io::Result<u64> {
    memory_kib(pid, "status", "VmHWM")
}

/// Resident memory of a process, in KiB.
pub(crate) fn resident_of(pid: u32) -> io::Result<u64> {
    memory_kib(pid, "status", "VmRSS")
}

/// Raises the limit of open files to the maximum, for this process and its future children.
pub(crate) fn raise_open_file_limit() -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    setrlimit(Resource::Nofile, raised).context("cannot raise the limit of open files")
}

/// Resident memory of a process and its descendants, in KiB; 0 for an exited process.
pub(crate) fn resident_of_tree(pid: u32) -> u64 {
    let descendants = ProcessTable::read().descendants(pid).into_iter().map(|entry| entry.pid);
    descendants.chain([pid]).map(|pid| resident_of(pid).unwrap_or(0)).sum()
}

/// Private memory of every child process that is a guardian, in KiB.
pub(crate) fn guardian_private_memory() -> io::Result<Vec<u64>> {
    let children = ProcessTable::read().children(std::process::id()).into_iter();
    let private = |entry: ProcessEntry| {
        let read = |field| memory_kib(entry.pid, "smaps_rollup", field);
        Ok(read("Private_Clean")? + read("Private_Dirty")?)
    };
    children.filter(ProcessEntry::is_guardian).map(private).collect()
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
