//! Several servers at once: those that answered, and why the others did not.
//!
//! **Invariant:** one broken server keeps nobody from seeing the others, and no failure is lost.

use std::sync::Arc;

use futures_util::future::join_all;
use toolrack_client::{CallError, Cut, Listing};
use toolrack_config::McpServerConfig;
use toolrack_manager::McpConnection;
use toolrack_service::{ErrorCode, ServiceFault};

use crate::error::Failure;
use crate::exit_code::Verdict;
use crate::output::{List, Output};
use crate::printer::Printer;
use crate::server_session::Rack;

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

    /// Shows what came, and gives the outcome.
    pub(crate) fn show(self, list: &List, what: &str, printer: &Printer) -> Result<(), Failure> {
        if self.has_answers() {
            if list.items.is_empty() {
                printer.note(format_args!("note: there are no {what}"));
            }
            printer.list(list);
        }
        self.close(printer)
    }

    /// The outcome after everything that could be shown was shown.
    pub(crate) fn close(mut self, printer: &Printer) -> Result<(), Failure> {
        let is_interrupted = |it: &(String, Failure)| it.1.verdict() == Verdict::Interrupted;
        if let Some(at) = self.failures.iter().position(is_interrupted) {
            return Err(self.failures.swap_remove(at).1);
        }
        let n_asked = self.failures.len() + self.answers.len();
        match (n_asked, self.failures.pop()) {
            (0, _) => Err(Failure::config(
                "every server of the config is disabled",
                "set `enabled = true` for those that you want to use",
            )),
            (_, None) => Ok(()),
            (1, Some((_, failure))) => Err(failure),
            (_, Some(last)) => {
                self.failures.push(last);
                Err(self.missing(n_asked, printer))
            }
        }
    }

    /// Some of several servers did not answer. A program is told in one failure, a person in a few lines.
    fn missing(self, n_asked: usize, printer: &Printer) -> Failure {
        let verdict = self.failures.first().map_or(Verdict::Unreachable, |it| it.1.verdict());
        let message =
            format!("{} of {n_asked} servers are missing from this list", self.failures.len());
        let mut faults = vec![
            ServiceFault::new(ErrorCode::ServiceUnavailable, message)
                .hint("see what is said of each of them"),
        ];
        for (server, failure) in self.failures {
            let ServiceFault { message, hint, code, .. } = failure.summary();
            let hint = hint.unwrap_or_default();
            if printer.output() == Output::Json {
                faults.push(ServiceFault::new(code, format!("{server}: {message} ({hint})")));
            } else {
                printer.note(format_args!("{server}: {message}\n{server}: hint: {hint}"));
            }
        }
        Failure::all(verdict, faults)
    }
}

/// A list that a server does not offer is empty.
pub(crate) fn or_none<T: Default>(outcome: Result<T, CallError>) -> Result<T, Failure> {
    match outcome {
        Err(CallError::Unsupported { .. }) => Ok(T::default()),
        outcome => Ok(outcome?),
    }
}

/// Says what is missing from a list of a server.
pub(crate) fn remark<T>(listing: &Listing<T>, what: &str, server: &str, printer: &Printer) {
    let n = listing.skipped.len();
    if n > 0 {
        printer
            .note(format_args!("note: {n} {what} of `{server}` cannot be read and are left out"));
    }
    if let Some(cut) = listing.cut {
        let why = match cut {
            Cut::RepeatedCursor => "its server begins it again and again",
            Cut::TooManyPages => "it has more pages than are fetched",
            Cut::TooManyEntries => "it has more entries than are kept",
            _ => "it is too long",
        };
        printer.note(format_args!("note: the list of {what} of `{server}` is not whole: {why}"));
    }
}
