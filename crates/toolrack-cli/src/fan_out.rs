//! Queries all servers at once, and reports the servers that failed or whose tools are unknown.
//!
//! **Invariant:** a failing server does not hide the others, and no error is lost.

use std::sync::Arc;

use futures_util::future::join_all;
use toolrack_client::{CallError, Truncated};
use toolrack_config::McpServerConfig;
use toolrack_manager::McpConnection;
use toolrack_service::{ErrorCode, ErrorDetail, LogKind, LogLine};

use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::output::{List, Output};
use crate::printer::Printer;
use crate::server_session::ServerSession;
use crate::suggested_command::{command, server_command};

/// Results of a query to several servers.
pub(crate) struct FanOut<T> {
    pub(crate) responses: Vec<(Arc<McpConnection>, T)>,
    failures: Vec<(String, CliError)>,
}

/// Queries all enabled servers concurrently.
pub(crate) async fn query_all<T>(
    session: &ServerSession,
    query: impl AsyncFn(&McpConnection) -> Result<T, CliError>,
) -> FanOut<T> {
    let query = &query;
    // A single named server is queried even if disabled, to get the error.
    let is_queried = |config: &&McpServerConfig| config.enabled || session.configs.len() == 1;
    let names = session.configs.iter().filter(is_queried).map(|config| config.name.as_str());
    // In parallel: a hanging server delays the list by its own timeout only once.
    let queries = names.map(|name| async move {
        let connection =
            session.connect(name).await.map_err(|failure| (name.to_owned(), failure))?;
        match session.run(name, None, query(&connection)).await {
            Ok(answer) => Ok((connection, answer)),
            Err(failure) => Err((name.to_owned(), failure)),
        }
    });
    let mut results = FanOut { responses: Vec::new(), failures: Vec::new() };
    for outcome in join_all(queries).await {
        match outcome {
            Ok(answer) => results.responses.push(answer),
            Err(failure) => results.failures.push(failure),
        }
    }
    results
}

impl<T> FanOut<T> {
    /// Whether any server responded.
    pub(crate) fn has_responses(&self) -> bool {
        !self.responses.is_empty()
    }

    /// Prints the list, and returns the overall result.
    pub(crate) fn show(self, list: &List, what: &str, printer: &Printer) -> Result<(), CliError> {
        if self.has_responses() {
            if list.items.is_empty() {
                printer.note(format_args!("note: no {what} found"));
            }
            printer.list(list);
        }
        self.close(printer)
    }

    /// The overall result, after everything has been printed.
    pub(crate) fn close(mut self, printer: &Printer) -> Result<(), CliError> {
        let is_interrupted =
            |failure: &(String, CliError)| failure.1.exit_code() == ExitCode::Interrupted;
        if let Some(at) = self.failures.iter().position(is_interrupted) {
            // Ctrl-C fails every query at once; one "interrupted" says it all.
            return Err(self.failures.swap_remove(at).1);
        }
        let n_queried = self.failures.len() + self.responses.len();
        match (n_queried, self.failures.pop()) {
            (0, _) => {
                let hint = format!("enable one with {}", command("enable NAME"));
                Err(CliError::config("all configured servers are disabled", hint))
            }
            (_, None) => Ok(()),
            (1, Some((_, failure))) => Err(failure),
            (_, Some(last)) => {
                self.failures.push(last);
                Err(self.partial_failure(n_queried, printer))
            }
        }
    }

    /// The error if some servers failed: details go to notes, or with `-o json` into the one error.
    fn partial_failure(self, n_queried: usize, printer: &Printer) -> CliError {
        let exit_code =
            self.failures.first().map_or(ExitCode::Unreachable, |failure| failure.1.exit_code());
        let message = format!(
            "{} of {n_queried} servers failed and are missing from this list",
            self.failures.len()
        );
        let mut error_details = vec![
            ErrorDetail::new(ErrorCode::ServiceUnavailable, message)
                .with_hint("see the error of each server"),
        ];
        for (server, failure) in self.failures {
            let ErrorDetail { message, hint, code, .. } = failure.summary();
            let hint = hint.unwrap_or_default();
            if printer.output() == Output::Json {
                error_details.push(ErrorDetail::new(code, format!("{server}: {message} ({hint})")));
            } else {
                printer.note(format_args!("{server}: {message}\n{server}: hint: {hint}"));
            }
        }
        CliError::from_details(exit_code, error_details)
    }
}

/// Treats an unsupported list as empty.
pub(crate) fn or_empty<T: Default>(outcome: Result<T, CallError>) -> Result<T, CliError> {
    match outcome {
        Err(CallError::Unsupported { .. }) => Ok(T::default()),
        outcome => Ok(outcome?),
    }
}

/// Notes skipped entries and truncated lists.
pub(crate) fn note_truncated<T>(
    listing: &toolrack_client::List<T>,
    what: &str,
    server: &str,
    printer: &Printer,
) {
    let n = listing.skipped.len();
    if n > 0 {
        printer.note(format_args!(
            "note: {n} {what} of `{server}` could not be parsed and were \
             skipped"
        ));
    }
    if let Some(cut) = listing.truncated {
        let reason = match cut {
            Truncated::RepeatedCursor => "the server repeats a cursor",
            Truncated::TooManyPages => "too many pages",
            Truncated::TooManyEntries => "too many entries",
            _ => "too long",
        };
        printer
            .note(format_args!("note: the list of {what} of `{server}` is incomplete: {reason}"));
    }
}

/// A server whose tools are not listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnlistedServer {
    pub(crate) server: String,
    pub(crate) reason: UnlistedReason,
}

/// Why a server's tools are not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnlistedReason {
    NotQueried,
    /// Stopped by the user.
    Stopped,
    /// The last start failed.
    Failed,
}

/// Notes which servers' tools are not listed.
pub(crate) fn note_unlisted(unlisted: &[UnlistedServer], printer: &Printer) {
    for (reason, names, advice) in group_by_reason(unlisted) {
        let advice = advice.map(|advice| format!("; {advice}")).unwrap_or_default();
        printer.note(format_args!("note: not listed ({reason}): {names}{advice}"));
    }
}

/// Hint for an unknown tool: it may belong to a server that is not running.
pub(crate) fn unlisted_hint(unlisted: &[UnlistedServer]) -> Option<String> {
    let groups = group_by_reason(unlisted).into_iter();
    let idle = groups.filter_map(|(reason, names, advice)| {
        advice.map(|advice| format!("{reason}: {names}; {advice}"))
    });
    let idle: Vec<String> = idle.collect();
    (!idle.is_empty()).then(|| idle.join("; "))
}

/// The reasons, each with the names of its servers and what to run next.
fn group_by_reason(unlisted: &[UnlistedServer]) -> Vec<(&'static str, String, Option<String>)> {
    let reasons = [
        (UnlistedReason::Stopped, "stopped", Some(("start it with", "start"))),
        (UnlistedReason::Failed, "failed", Some(("see why with", "doctor"))),
        (UnlistedReason::NotQueried, "not queried yet", None),
    ];
    let group = |(reason, word, next): (UnlistedReason, _, Option<(&str, &str)>)| {
        let same = unlisted.iter().filter(|server| server.reason == reason);
        let names: Vec<&str> = same.map(|server| server.server.as_str()).collect();
        let advice = next.map(|(purpose, verb)| match names.as_slice() {
            [name] => format!("{purpose} {}", server_command(verb, name)),
            _ => format!("{purpose} {}", server_command(verb, "NAME")),
        });
        (!names.is_empty()).then(|| (word, names.join(", "), advice))
    };
    reasons.into_iter().filter_map(group).collect()
}

/// Outcome of the last recorded start.
pub(crate) fn last_outcome(lines: Vec<LogLine>) -> Option<LogLine> {
    let is_outcome = |line: &LogLine| {
        matches!(line.kind, LogKind::Ready | LogKind::Failure | LogKind::NeedsLogin)
    };
    lines.into_iter().rev().find(is_outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(unlisted: &[(&str, UnlistedReason)], expected: Option<&str>) {
        let unlisted = unlisted
            .iter()
            .map(|(name, reason)| UnlistedServer { server: (*name).to_owned(), reason: *reason });
        assert_eq!(unlisted_hint(&unlisted.collect::<Vec<_>>()).as_deref(), expected);
    }

    #[test]
    fn unlisted_servers_are_hinted() {
        check(&[], None);
        check(&[("a", UnlistedReason::NotQueried)], None);
        check(
            &[("a", UnlistedReason::Stopped), ("b", UnlistedReason::NotQueried)],
            Some("stopped: a; start it with `toolrack start a`"),
        );
        check(
            &[
                ("a", UnlistedReason::Stopped),
                ("b", UnlistedReason::Stopped),
                ("c", UnlistedReason::Failed),
            ],
            Some(
                "stopped: a, b; start it with `toolrack start NAME`; failed: c; \
                 see why with `toolrack doctor c`",
            ),
        );
    }
}
