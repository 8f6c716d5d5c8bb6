//! The guardian process as its owner sees it: whether it is stopped, and how it is ended if it does not end by itself.
//!
//! A server has the rights of its user, so it can stop its guardian with a signal. A stopped guardian acts on nothing,
//! but it is still the parent of every orphan of the server. So the owner kills all processes below it first, and the
//! guardian last.
//!
//! **Invariant:** a guardian that is stopped does not outlive its owner's interest in it: the owner kills it, also when
//! the connection is dropped. If the owner dies, the kernel continues the guardian, and the next start kills one that
//! was stopped again (`orphan_cleanup`).

use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tokio::process::Child;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::orphan_cleanup::{kill_tagged_launch, kill_tree};

/// How often a guardian that has to exit is checked for a stop.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How long a guardian may take to exit after its last report or its abandonment.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the kernel may take to end a killed guardian.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// A guardian process. If it is dropped, it is watched in the background until it has exited.
#[derive(Debug)]
pub(crate) struct GuardianProcess(Option<Child>);

/// How a guardian that has to exit behaved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExitWait {
    Exited,
    Stopped,
    /// It runs and waits for processes that the system does not end.
    Late,
}

impl GuardianProcess {
    pub(crate) fn new(process: Child) -> Self {
        Self(Some(process))
    }

    pub(crate) fn id(&self) -> Option<u32> {
        self.0.as_ref()?.id()
    }

    /// Whether the process has exited or was killed.
    pub(crate) fn has_exited(&mut self) -> bool {
        self.0.as_mut().is_none_or(|process| !matches!(process.try_wait(), Ok(None)))
    }

    /// Whether a signal has stopped the process.
    pub(crate) fn is_stopped(&self) -> bool {
        self.0.as_ref().and_then(pid).is_some_and(is_stopped)
    }

    /// Kills every process below the guardian, then the guardian, then the processes with the server's tag.
    pub(crate) async fn kill_with_server(&mut self, tag: &str) {
        let Some(mut process) = self.0.take() else { return };
        tracing::warn!("guardian is stopped; ending it and the server's processes");
        kill_with_tree(&mut process, Some(tag.to_owned())).await;
    }

    /// Waits until the guardian has exited, and kills it with the server's processes if it is stopped.
    pub(crate) async fn end(mut self, tag: &str) {
        let Some(mut process) = self.0.take() else { return };
        watch(&mut process, Some(tag.to_owned())).await;
    }
}

impl Drop for GuardianProcess {
    fn drop(&mut self) {
        let Some(mut process) = self.0.take() else { return };
        match Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(async move { watch(&mut process, None).await });
            }
            Err(_no_runtime) => {
                // Nothing is left that could wait for it.
                if let Some(pid) = pid(&process).filter(|pid| is_stopped(*pid)) {
                    kill_tree(pid);
                }
            }
        }
    }
}

async fn watch(process: &mut Child, tag: Option<String>) {
    match wait_exit(process).await {
        ExitWait::Exited => tracing::trace!("guardian exited"),
        ExitWait::Late => tracing::warn!("guardian did not exit in time"),
        ExitWait::Stopped => {
            tracing::warn!("guardian is stopped; ending it and the server's processes");
            kill_with_tree(process, tag).await;
        }
    }
}

async fn wait_exit(process: &mut Child) -> ExitWait {
    let checks = EXIT_TIMEOUT.as_millis() / CHECK_INTERVAL.as_millis();
    for _ in 0..checks {
        match timeout(CHECK_INTERVAL, process.wait()).await {
            Ok(Ok(_status)) => return ExitWait::Exited,
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot wait for the guardian");
                return ExitWait::Exited;
            }
            Err(_elapsed) if pid(process).is_some_and(is_stopped) => return ExitWait::Stopped,
            Err(_elapsed) => {}
        }
    }
    ExitWait::Late
}

/// **Invariant:** the process is not waited for before its tree is killed, so its pid stays its own.
async fn kill_with_tree(process: &mut Child, tag: Option<String>) {
    let Some(root) = pid(process) else { return };
    let killed = tokio::task::spawn_blocking(move || {
        kill_tree(root) + tag.map_or(0, |tag| kill_tagged_launch(&tag))
    });
    match killed.await {
        Ok(n_killed) => tracing::debug!(n_killed, "killed the processes of a stopped guardian"),
        Err(error) => tracing::warn!(%error, "orphan cleanup was interrupted"),
    }
    if timeout(KILL_TIMEOUT, process.wait()).await.is_err() {
        tracing::warn!("killed guardian did not exit in time");
    }
}

fn pid(process: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(process.id()?).ok()?)
}

/// Whether a child of ours is stopped. `NOWAIT` keeps the answer for the next question.
fn is_stopped(child: Pid) -> bool {
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(child), options), Ok(Some(_stopped)))
}
