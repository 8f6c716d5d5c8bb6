//! Child subreaper: adopts orphaned descendants and reaps them.
//!
//! This is the job of init. Without it, the init of the machine would decide whether dead processes of a gate stay as
//! zombies.
//!
//! **Invariant:** no child is reaped between its spawn and the opening of its handle.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::process::{Child, Command};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use toolrack_testkit::harness::{ProcessHandle, become_subreaper};

/// Interval between two rounds of reaping.
const ROUND: Duration = Duration::from_millis(2);

/// Spawns children and reaps them in the background.
#[derive(Debug, Default)]
pub(crate) struct Subreaper {
    /// Children not to be reaped for now. Locked during a spawn.
    unreaped: Mutex<HashSet<u32>>,
}

/// A running child. Killed on drop, so a failed gate leaves none.
#[derive(Debug)]
pub(crate) struct RunningChild {
    pub(crate) child: Child,
    /// Use only this to signal it: its pid may be reused after the exit.
    pub(crate) handle: ProcessHandle,
}

/// A child that stays a zombie after its exit until this is dropped.
#[derive(Debug)]
pub(crate) struct Unreaped<'a> {
    subreaper: &'a Subreaper,
    pid: u32,
}

impl Subreaper {
    /// Becomes the subreaper and reaps children until this process exits.
    pub(crate) fn open() -> io::Result<Arc<Self>> {
        become_subreaper()?;
        let subreaper = Arc::new(Self::default());
        let reaper = Arc::clone(&subreaper);
        thread::spawn(move || {
            loop {
                reaper.reap();
                thread::sleep(ROUND);
            }
        });
        Ok(subreaper)
    }

    /// Spawns a child.
    pub(crate) fn start(&self, command: &mut Command) -> io::Result<RunningChild> {
        // Held until the handle is open: otherwise the thread could reap the child, and its pid could be reused.
        let unreaped = self.unreaped.lock();
        let child = command.spawn()?;
        let handle = ProcessHandle::open(child.id()).ok_or(io::ErrorKind::NotFound);
        drop(unreaped);
        Ok(RunningChild { child, handle: handle? })
    }

    /// Does not reap this child, like a parent that is busy.
    pub(crate) fn leave_unreaped(&self, child: &ProcessHandle) -> Unreaped<'_> {
        self.unreaped.lock().insert(child.pid);
        Unreaped { subreaper: self, pid: child.pid }
    }

    fn reap(&self) {
        let unreaped = self.unreaped.lock();
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        for child in children().into_iter().filter(|child| !unreaped.contains(child)) {
            let pid = i32::try_from(child).ok().and_then(Pid::from_raw);
            // A child that still runs is checked again in the next round.
            pid.map(|pid| waitid(WaitId::Pid(pid), options)).transpose().unwrap_or_default();
        }
    }
}

impl Drop for RunningChild {
    fn drop(&mut self) {
        self.handle.kill();
    }
}

impl Drop for Unreaped<'_> {
    fn drop(&mut self) {
        self.subreaper.unreaped.lock().remove(&self.pid);
    }
}

/// Children of all threads. Exited ones are listed until they are reaped.
fn children() -> Vec<u32> {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let lists = threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| {
            let pids = list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok());
            pids.collect::<Vec<u32>>()
        })
        .collect()
}
