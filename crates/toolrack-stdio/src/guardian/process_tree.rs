//! The processes a guardian answers for: the server, and orphans of the server that came to it.
//!
//! A child that has ended keeps its id until its parent has taken note. The server's own end is noted
//! last of all, so the id of its process group stays ours until nothing is left to signal.
//!
//! **Invariant:** only our own children and their groups are signaled, and those ids cannot be anybody
//! else's.

use std::fs;
use std::io;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, getpgid, kill_process, kill_process_group,
    waitid,
};
use toolrack_transport::Exit;

/// The server and what it has left to us.
#[derive(Debug)]
pub(crate) struct Children {
    server: Pid,
    server_exit: Option<Exit>,
}

/// What has changed since the last look.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Somebody is still there.
    Nothing,
    /// The server itself has ended, and perhaps others are left.
    ServerGone(Exit),
    /// Nobody is left.
    NothingLeft,
}

impl Children {
    pub(crate) fn new(server: Pid) -> Self {
        Self { server, server_exit: None }
    }

    /// Takes note of every child that has ended.
    pub(crate) fn look(&mut self) -> Change {
        if self.server_exit.is_none()
            && let Some(exit) = self.server_end()
        {
            self.server_exit = Some(exit);
            return Change::ServerGone(exit);
        }
        let orphans: Vec<Pid> = children().into_iter().filter(|it| *it != self.server).collect();
        let n_left = orphans.into_iter().filter(|orphan| !has_ended(*orphan)).count();
        if self.server_exit.is_none() || n_left > 0 {
            return Change::Nothing;
        }
        // Its children come to us only when it ends, so a last look is needed before it is let go.
        if children().into_iter().any(|it| it != self.server) {
            return Change::Nothing;
        }
        ignore_gone(waitid(WaitId::Pid(self.server), WaitIdOptions::EXITED));
        Change::NothingLeft
    }

    /// Signals the server's group, and every orphan together with a group it may lead.
    pub(crate) fn signal(&self, signal: Signal) {
        ignore_gone(kill_process_group(self.server, signal));
        for child in children().into_iter().filter(|it| *it != self.server) {
            if getpgid(Some(child)) == Ok(child) {
                ignore_gone(kill_process_group(child, signal));
            }
            ignore_gone(kill_process(child, signal));
        }
    }

    /// How the server ended, leaving the note of it for later.
    fn server_end(&self) -> Option<Exit> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(self.server), options) {
            Ok(status) => status.map(exit_of),
            Err(_no_such_child) => Some(Exit::Unknown),
        }
    }
}

fn exit_of(status: WaitIdStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Unknown,
    }
}

fn has_ended(child: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    !matches!(waitid(WaitId::Pid(child), options), Ok(None))
}

/// A process that is gone needs no signal and no note.
fn ignore_gone<T>(outcome: rustix::io::Result<T>) {
    drop(outcome);
}

/// Our children, ended ones included.
fn children() -> Vec<Pid> {
    let listed = fs::read_to_string("/proc/thread-self/children");
    match listed {
        Ok(list) => list.split_ascii_whitespace().filter_map(parse_pid).collect(),
        // Kernels without that list still tell every process's parent.
        Err(_no_list) => children_by_parent().unwrap_or_default(),
    }
}

fn children_by_parent() -> io::Result<Vec<Pid>> {
    let ourselves = std::process::id();
    Ok(fs::read_dir("/proc")?
        .filter_map(|entry| {
            let name = entry.ok()?.file_name();
            let pid = parse_pid(name.to_str()?)?;
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            (parent(&stat)? == ourselves).then_some(pid)
        })
        .collect())
}

/// The fourth field. The second one is a name that may hold anything.
fn parent(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn parse_pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_read_behind_any_name() {
        assert_eq!(parent("77 (a) b) (c) S 12 77 77 0"), Some(12));
        assert_eq!(parent("77"), None);
    }
}
