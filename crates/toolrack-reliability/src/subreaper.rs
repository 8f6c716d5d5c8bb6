//! Being the parent of last resort: whoever loses its parent below us comes to us and is taken note of.
//!
//! This is what an init process does. Without it, the machine's own init would decide whether the ended
//! processes of a gate stay as zombies.
//!
//! **Invariant:** no child is taken note of between its birth and the opening of its handle.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, getpid, set_child_subreaper, waitid};

use crate::process::ProcessHandle;

/// How often ended children are taken note of.
const ROUND: Duration = Duration::from_millis(2);

/// Makes orphans ours.
pub(crate) fn become_subreaper() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Takes note of every child that has ended. Not beside a runtime that waits for children of its own.
pub(crate) fn reap() {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    while let Ok(Some(_ended)) = waitid(WaitId::All, options) {}
}

/// Where children are born.
#[derive(Debug, Default)]
pub(crate) struct Subreaper {
    /// Children that nobody takes note of for the time being. Held while a child is born.
    unreaped: Mutex<HashSet<u32>>,
}

/// A child that stays a zombie after its end, until this is dropped.
#[derive(Debug)]
pub(crate) struct Unreaped<'a> {
    subreaper: &'a Subreaper,
    pid: u32,
}

impl Subreaper {
    /// Adopts orphans and takes note of the dead until this process ends.
    pub(crate) fn open() -> io::Result<Arc<Self>> {
        become_subreaper()?;
        let subreaper = Arc::new(Self::default());
        let ours = Arc::clone(&subreaper);
        thread::spawn(move || {
            loop {
                ours.reap();
                thread::sleep(ROUND);
            }
        });
        Ok(subreaper)
    }

    /// Starts a child. It is known by its handle only: its id is free for others once it has ended.
    pub(crate) fn start(&self, command: &mut Command) -> io::Result<(Child, ProcessHandle)> {
        let birth = self.unreaped();
        let child = command.spawn()?;
        let handle =
            ProcessHandle::open(child.id()).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound));
        drop(birth);
        Ok((child, handle?))
    }

    /// Takes no note of a child's end, as a parent does that has other things to do.
    pub(crate) fn leave_unreaped(&self, child: &ProcessHandle) -> Unreaped<'_> {
        self.unreaped().insert(child.pid);
        Unreaped { subreaper: self, pid: child.pid }
    }

    fn reap(&self) {
        let unreaped = self.unreaped();
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        for child in children().into_iter().filter(|children| !unreaped.contains(children)) {
            let pid = i32::try_from(child).ok().and_then(Pid::from_raw);
            // One that has not ended is looked at again in the next round.
            pid.map(|pid| waitid(WaitId::Pid(pid), options)).transpose().unwrap_or_default();
        }
    }

    fn unreaped(&self) -> MutexGuard<'_, HashSet<u32>> {
        self.unreaped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Unreaped<'_> {
    fn drop(&mut self) {
        self.subreaper.unreaped().remove(&self.pid);
    }
}

/// The children of all our threads. None is overlooked that has ended: it stays until it is taken note of.
fn children() -> Vec<u32> {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let lists = threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| {
            let pids = list
                .split_ascii_whitespace()
                .filter_map(|split_ascii_whitespace| split_ascii_whitespace.parse().ok());
            pids.collect::<Vec<u32>>()
        })
        .collect()
}
