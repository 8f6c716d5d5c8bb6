//! Context of a command: settings, printer and cancellation.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::error::CliError;
use crate::printer::Printer;
use crate::settings::{DaemonUse, Settings};

/// Context of a command.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) settings: Arc<Settings>,
    pub(crate) printer: Arc<Printer>,
    /// Cancelled by Ctrl-C.
    pub(crate) cancellation: CancellationToken,
}

impl Context {
    /// The same context, without the daemon.
    pub(crate) fn without_daemon(&self) -> Self {
        let mut settings = Settings::clone(&self.settings);
        settings.daemon = DaemonUse::Never;
        Self { settings: Arc::new(settings), ..self.clone() }
    }

    /// Runs `work` until Ctrl-C.
    ///
    /// # Cancel safety
    ///
    /// Ctrl-C drops `work` at its next await point.
    pub(crate) async fn run_cancellable<T>(
        &self,
        work: impl Future<Output = Result<T, CliError>>,
    ) -> Result<T, CliError> {
        tokio::select! {
            biased;
            // First, so that Ctrl-C wins over a result that arrives at the same time.
            () = self.cancellation.cancelled() => Err(CliError::interrupted()),
            outcome = work => outcome,
        }
    }

    /// Waits, until Ctrl-C.
    pub(crate) async fn sleep(&self, duration: Duration) -> Result<(), CliError> {
        let waiting = async {
            tokio::time::sleep(duration).await;
            Ok(())
        };
        self.run_cancellable(waiting).await
    }

    /// Runs blocking work, such as reading a pipe, on another thread until Ctrl-C. The thread
    /// itself is not stopped.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, CliError> + Send + 'static,
    ) -> Result<T, CliError> {
        let work = tokio::task::spawn_blocking(work);
        self.run_cancellable(async { work.await.map_err(std::io::Error::from)? }).await
    }
}
