//! Prepared guardian: a guardian that starts while its owner still finds out what to run.
//!
//! If no server takes it, it exits when the last copy of the options is dropped, which closes its socket.

use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

#[cfg(target_os = "linux")]
use crate::guardian::{self, GuardianConnection};

#[cfg(not(target_os = "linux"))]
type GuardianConnection = std::convert::Infallible;

/// A guardian that was started ahead, for one server.
#[derive(Clone)]
pub struct PreparedGuardian(Arc<Mutex<Option<GuardianConnection>>>);

impl PreparedGuardian {
    /// Starts our own program as guardian. Starts nothing if the program did not call [`init`](crate::init).
    ///
    /// # Errors
    /// If the process cannot be started.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn start() -> io::Result<Self> {
        // Not on another thread, which was measured to be slower.
        #[cfg(target_os = "linux")]
        let guardian = guardian::own_program().map(GuardianConnection::open).transpose()?;
        #[cfg(not(target_os = "linux"))]
        let guardian = None;
        Ok(Self(Arc::new(Mutex::new(guardian))))
    }

    /// The guardian, unless another server has it or it was killed.
    #[cfg(target_os = "linux")]
    pub(crate) fn take(&self) -> Option<GuardianConnection> {
        let mut guardian = self.0.lock().take()?;
        // A stopped one could not start a server; it is ended on drop.
        (!guardian.process.has_exited() && !guardian.process.is_stopped()).then_some(guardian)
    }
}

impl PartialEq for PreparedGuardian {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for PreparedGuardian {}

impl fmt::Debug for PreparedGuardian {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedGuardian").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::time::Duration;

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;
    use crate::guardian::GuardianProcess;

    fn prepared() -> PreparedGuardian {
        let program = toolrack_testkit::program("toolrack-guard");
        let guardian = GuardianConnection::open(&program).unwrap();
        PreparedGuardian(Arc::new(Mutex::new(Some(guardian))))
    }

    async fn wait_for(condition: impl Fn() -> bool) {
        for _ in 0..1000 {
            if condition() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("timed out");
    }

    fn signal(prepared: &PreparedGuardian, signal: Signal) {
        let id = prepared.0.lock().as_ref().unwrap().process.id().unwrap();
        kill_process(Pid::from_raw(id.cast_signed()).unwrap(), signal).unwrap();
    }

    fn check(
        prepared: &PreparedGuardian,
        condition: impl Fn(&mut GuardianProcess) -> bool,
    ) -> bool {
        condition(&mut prepared.0.lock().as_mut().unwrap().process)
    }

    #[tokio::test]
    async fn one_server_takes_the_guardian() {
        let prepared = prepared();
        let copy = prepared.clone();
        assert_eq!(copy, prepared);
        assert!(copy.take().is_some());
        assert!(prepared.take().is_none());
    }

    #[tokio::test]
    async fn killed_guardian_is_not_used() {
        let prepared = prepared();
        signal(&prepared, Signal::KILL);
        wait_for(|| check(&prepared, GuardianProcess::has_exited)).await;
        assert!(prepared.take().is_none());
    }

    #[tokio::test]
    async fn stopped_guardian_is_not_used_and_is_killed() {
        let prepared = prepared();
        let id = prepared.0.lock().as_ref().unwrap().process.id().unwrap();
        signal(&prepared, Signal::STOP);
        wait_for(|| check(&prepared, |guardian| guardian.is_stopped())).await;
        assert!(prepared.take().is_none());
        wait_for(|| !std::fs::exists(format!("/proc/{id}")).unwrap()).await;
    }

    #[tokio::test]
    async fn unused_guardian_exits() {
        let GuardianConnection { process, socket } = prepared().take().unwrap();
        drop(socket);
        let id = process.id().unwrap();
        drop(process);
        wait_for(|| !std::fs::exists(format!("/proc/{id}")).unwrap()).await;
    }
}
