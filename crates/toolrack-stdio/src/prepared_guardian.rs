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
        matches!(guardian.process.try_wait(), Ok(None)).then_some(guardian)
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

    use tokio::process::Child;
    use tokio::time::timeout;

    use super::*;

    fn prepared() -> PreparedGuardian {
        let program = toolrack_testkit::program("toolrack-guard");
        let guardian = GuardianConnection::open(&program).unwrap();
        PreparedGuardian(Arc::new(Mutex::new(Some(guardian))))
    }

    async fn wait_for_exit(process: &mut Child) {
        timeout(Duration::from_secs(10), process.wait()).await.unwrap().unwrap();
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
        if let Some(guardian) = &mut *prepared.0.lock() {
            guardian.process.start_kill().unwrap();
        }
        let is_gone = || prepared.0.lock().as_mut().unwrap().process.try_wait().unwrap().is_some();
        for _ in 0..1000 {
            if is_gone() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(prepared.take().is_none());
    }

    #[tokio::test]
    async fn unused_guardian_exits() {
        let GuardianConnection { mut process, socket } = prepared().take().unwrap();
        drop(socket);
        wait_for_exit(&mut process).await;
    }
}
