//! Several servers at once: those that answered, and why the others did not.
//!
//! **Invariant:** one broken server keeps nobody from seeing the others, and no failure is lost.

use std::sync::Arc;

use futures_util::future::join_all;
use toolrack_client::CallError;
use toolrack_config::McpServerConfig;
use toolrack_manager::McpConnection;

use crate::failure::Failure;
use crate::opening::Rack;
use crate::printer::Printer;
use crate::verdict::Verdict;

/// What came of asking several servers.
pub(crate) struct Roll<T> {
    pub(crate) answers: Vec<(Arc<McpConnection>, T)>,
    failures: Vec<(String, Failure)>,
}

/// Asks every server that is enabled, all at once.
pub(crate) async fn call<T>(
    rack: &Rack,
    ask: impl AsyncFn(&McpConnection) -> Result<T, Failure>,
) -> Roll<T> {
    let ask = &ask;
    // One that was named alone is asked even if it is off, and says so.
    let is_asked = |it: &&McpServerConfig| it.enabled || rack.configs().len() == 1;
    let names = rack.configs().iter().filter(is_asked).map(|it| it.name.as_str());
    let asked = names.map(|name| async move {
        let connection = rack.connect(name).await.map_err(|failure| (name.to_owned(), failure))?;
        match rack.attended(name, ask(&connection)).await {
            Ok(answer) => Ok((connection, answer)),
            Err(failure) => Err((name.to_owned(), failure)),
        }
    });
    let mut roll = Roll { answers: Vec::new(), failures: Vec::new() };
    for outcome in join_all(asked).await {
        match outcome {
            Ok(answer) => roll.answers.push(answer),
            Err(failure) => roll.failures.push(failure),
        }
    }
    roll
}

impl<T> Roll<T> {
    /// Whether there is anything to show.
    pub(crate) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// The outcome after everything that could be shown was shown.
    pub(crate) fn close(self, printer: &Printer) -> Result<(), Failure> {
        let n_failed = self.failures.len();
        let n_asked = n_failed + self.answers.len();
        if let Some(at) = self.failures.iter().position(|it| it.1.verdict() == Verdict::Interrupted)
        {
            return self.failures.into_iter().nth(at).map_or(Ok(()), |(_, failure)| Err(failure));
        }
        let mut failures = self.failures.into_iter();
        match (failures.next(), n_asked) {
            (None, _) => Ok(()),
            (Some((_, failure)), 1) => Err(failure),
            (Some(first), _) => {
                let verdict = first.1.verdict();
                for (server, failure) in std::iter::once(first).chain(failures) {
                    let summary = failure.summary();
                    printer.note(format_args!("{server}: {}", summary.message));
                    printer
                        .note(format_args!("{server}: hint: {}", summary.hint.unwrap_or_default()));
                }
                let message = format!("{n_failed} of {n_asked} servers are missing from this list");
                let code = toolrack_service::ErrorCode::ServiceUnavailable;
                Err(Failure::new(verdict, code, message, "see above what to do for each of them"))
            }
        }
    }
}

/// A list that a server does not offer is empty.
pub(crate) fn or_none<T: Default>(outcome: Result<T, CallError>) -> Result<T, Failure> {
    match outcome {
        Err(CallError::Unsupported { .. }) => Ok(T::default()),
        outcome => Ok(outcome?),
    }
}
