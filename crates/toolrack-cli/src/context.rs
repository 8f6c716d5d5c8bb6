//! What every command is given: what holds, who speaks, and when to stop.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::error::CliError;
use crate::printer::Printer;
use crate::settings::{DaemonUse, Settings};

/// What every command is given.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) settings: Arc<Settings>,
    pub(crate) printer: Arc<Printer>,
    /// Cancelled by Ctrl-C.
    pub(crate) cancellation: CancellationToken,
}

impl Context {
    /// The same for what is done here, whoever else runs.
    pub(crate) fn without_daemon(&self) -> Self {
        let mut settings = Settings::clone(&self.settings);
        settings.daemon = DaemonUse::Never;
        Self { settings: Arc::new(settings), ..self.clone() }
    }

    /// Waits for something, unless the user wants to stop. What is not waited for any more is dropped.
    pub(crate) async fn run_cancellable<T>(
        &self,
        work: impl Future<Output = Result<T, CliError>>,
    ) -> Result<T, CliError> {
        tokio::select! {
            biased;
            () = self.cancellation.cancelled() => Err(CliError::interrupted()),
            outcome = work => outcome,
        }
    }

    /// Does something that may block, such as reading a pipe, unless the user wants to stop.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, CliError> + Send + 'static,
    ) -> Result<T, CliError> {
        let work = tokio::task::spawn_blocking(work);
        self.run_cancellable(async { work.await.map_err(std::io::Error::from)? }).await
    }
}
