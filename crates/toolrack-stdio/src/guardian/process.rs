//! The guardian process as its owner sees it: whether it acts, and how it is ended with its server if it does not.
//!
//! A server has the rights of its user, so it can stop its guardian with a signal, freeze it with a control group, or
//! kill it. A stopped or frozen guardian acts on nothing, but it is still the parent of every orphan of the server. So
//! the owner kills all processes below it first, and the guardian last. What a killed guardian leaves is found by the
//! server's tag.
//!
//! The owner does not ask why a guardian is silent. To end the tree of one that is merely slow does no harm, because the
//! guardian is about to do the same, and it is kept as long as a process below it is left.
//!
//! **Invariant:** the owner watches a guardian until it has exited, also when the connection is dropped, and kills it
//! if that takes too long. If the owner dies, the kernel continues a stopped guardian, and the next start kills one that
//! is still there (`orphan_cleanup`).

use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::guardian::{CLEANUP_TIMEOUT, now};
use crate::orphan_cleanup::{KILL_TREE_TIMEOUT, KilledTree, kill_tagged_launch, kill_tree};
use crate::process::run_cleanup;
use crate::process_handle::ProcessHandle;

/// How often a guardian that has to exit is checked for a stop.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How long a guardian may take to exit after its last report or its abandonment, without the cleanup command.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the kernel may take to end a killed guardian.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// A guardian process. If it is dropped, it is watched in the background until it has exited.
#[derive(Debug)]
pub(crate) struct GuardianProcess(Option<Watched>);

#[derive(Debug)]
struct Watched {
    process: Child,
    /// `None` before a server is started, and after the guardian has ended it.
    server: Option<StartedServer>,
}

/// What ends a server without its guardian.
#[derive(Debug)]
struct StartedServer {
    tag: String,
    cleanup: Option<Command>,
}

impl GuardianProcess {
    pub(crate) fn new(process: Child) -> Self {
        Self(Some(Watched { process, server: None }))
    }

    pub(crate) fn id(&self) -> Option<u32> {
        self.0.as_ref()?.process.id()
    }

    /// Whether the process has exited or was killed.
    pub(crate) fn has_exited(&mut self) -> bool {
        self.0.as_mut().is_none_or(|watched| !matches!(watched.process.try_wait(), Ok(None)))
    }

    /// Whether a signal has stopped the process.
    pub(crate) fn is_stopped(&self) -> bool {
        self.0.as_ref().is_some_and(|watched| is_stopped(&watched.process))
    }

    /// Notes that the guardian is about to start a server.
    pub(crate) fn server_starts(&mut self, tag: String, cleanup: Option<Command>) {
        if let Some(watched) = &mut self.0 {
            watched.server = Some(StartedServer { tag, cleanup });
        }
    }

    /// Notes that the guardian has ended its server, or did not start it.
    pub(crate) fn server_has_ended(&mut self) {
        if let Some(watched) = &mut self.0 {
            watched.server = None;
        }
    }

    /// Ends the server of a guardian that was killed or does not act, and the guardian. Returns whether it is gone.
    pub(crate) async fn end_server(&mut self) -> bool {
        match &mut self.0 {
            Some(watched) => watched.end_server().await,
            None => true,
        }
    }

    /// Waits until the guardian has exited, and ends it with its server if it takes too long.
    pub(crate) async fn watch(mut self) {
        if let Some(watched) = self.0.take() {
            watched.watch().await;
        }
    }
}

impl Drop for GuardianProcess {
    fn drop(&mut self) {
        let Some(mut watched) = self.0.take() else { return };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(watched.watch())),
            // Nothing is left that could wait for it.
            Err(_no_runtime) if is_stopped(&watched.process) => watched.end_server_now(),
            Err(_no_runtime) => {}
        }
    }
}

impl Watched {
    async fn watch(mut self) {
        while !self.wait_exit().await {
            self.end_server().await;
        }
        // A guardian that was killed has not ended everything.
        let has_succeeded =
            self.process.try_wait().is_ok_and(|exit| exit.is_some_and(|exit| exit.success()));
        if !has_succeeded && self.server.is_some() {
            self.end_server().await;
        }
    }

    /// Waits until the guardian has exited, and returns whether it has. It has not if it is stopped or silent.
    async fn wait_exit(&mut self) -> bool {
        let has_cleanup = self.server.as_ref().is_some_and(|server| server.cleanup.is_some());
        let limit = EXIT_TIMEOUT + if has_cleanup { CLEANUP_TIMEOUT } else { Duration::ZERO };
        for _ in 0..limit.as_millis() / CHECK_INTERVAL.as_millis() {
            match timeout(CHECK_INTERVAL, self.process.wait()).await {
                Ok(Ok(_status)) => return true,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "cannot wait for the guardian");
                    return true;
                }
                Err(_elapsed) if is_stopped(&self.process) => return false,
                Err(_elapsed) => {}
            }
        }
        false
    }

    /// Kills every process below the guardian, then the guardian, then the processes with the server's tag, and runs
    /// the cleanup command. Returns whether the guardian is gone: it is kept if a process below it does not die.
    async fn end_server(&mut self) -> bool {
        tracing::warn!("guardian was killed or does not act; ending the server's processes");
        let (root, tag) = (self.open(), self.tag());
        let killed = tokio::task::spawn_blocking(move || kill_all(root.as_ref(), tag.as_deref()));
        match killed.await {
            Ok(KilledTree { n_left: 0, n_killed }) => {
                tracing::debug!(n_killed, "killed the server's processes");
            }
            Ok(KilledTree { .. }) => return false,
            Err(error) => tracing::warn!(%error, "orphan cleanup was interrupted"),
        }
        if timeout(KILL_TIMEOUT, self.process.wait()).await.is_err() {
            tracing::warn!("killed guardian did not exit in time");
            return false;
        }
        run_cleanup(self.server.take().and_then(|server| server.cleanup)).await;
        true
    }

    /// The same without a runtime and without a wait.
    fn end_server_now(&mut self) {
        kill_all(self.open().as_ref(), self.tag().as_deref());
        if let Some(mut cleanup) = self.server.take().and_then(|server| server.cleanup)
            && let Err(error) = cleanup.as_std_mut().spawn()
        {
            tracing::debug!(%error, "cannot run the cleanup command");
        }
    }

    /// **Invariant:** a process that was waited for has no id here, so the pid is that of the guardian.
    fn open(&self) -> Option<ProcessHandle> {
        ProcessHandle::open_pid(self.process.id()?).ok()?
    }

    fn tag(&self) -> Option<String> {
        self.server.as_ref().map(|server| server.tag.clone())
    }
}

/// The tags last: a process that loses its parent is still found by them.
fn kill_all(root: Option<&ProcessHandle>, tag: Option<&str>) -> KilledTree {
    let tree = root.map(|root| kill_tree(root, now() + KILL_TREE_TIMEOUT)).unwrap_or_default();
    let n_tagged = tag.map_or(0, kill_tagged_launch);
    KilledTree { n_killed: tree.n_killed + n_tagged, ..tree }
}

/// Whether a child of ours is stopped. `NOWAIT` keeps the answer for the next question.
fn is_stopped(child: &Child) -> bool {
    let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    pid.is_some_and(|pid| matches!(waitid(WaitId::Pid(pid), options), Ok(Some(_stopped))))
}
