//! Why a server is not connected, as people are told.

mod kind;

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use toolrack_client::ConnectError;
use toolrack_transport::{CloseReason, Redactor, TransportError, sanitize_line, exit_cause};

pub use kind::FailureKind;

/// The longest reason that is kept.
const REASON_CHARS: usize = 1000;

/// Why a server is not connected. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    text: Arc<Text>,
    kind: FailureKind,
}

#[derive(Debug, PartialEq, Eq)]
struct Text {
    reason: String,
    hint: Option<String>,
}

/// What can make it work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Trying again may.
    Retry,
    /// Somebody has to log in first.
    Login,
}

impl Failure {
    /// A failure with a reason and nothing more.
    pub fn new(kind: FailureKind, reason: impl Into<String>) -> Self {
        let reason = sanitize_line(&reason.into(), REASON_CHARS);
        Self { text: Arc::new(Text { reason, hint: None }), kind }
    }

    /// The same, with what to try next.
    #[must_use]
    pub fn hinting(self, hint: impl Into<String>) -> Self {
        let hint = Some(sanitize_line(&hint.into(), REASON_CHARS));
        Self { text: Arc::new(Text { reason: self.text.reason.clone(), hint }), ..self }
    }

    /// An attempt to connect came to nothing.
    pub(crate) fn of_connecting(error: &ConnectError) -> Self {
        let failure = Self::new(FailureKind::of_connecting(error), with_causes(error));
        match error.hint() {
            Some(hint) => failure.hinting(hint),
            None => failure,
        }
    }

    /// A connection that worked has ended.
    pub(crate) fn of_ending(ending: &CloseReason) -> Self {
        let exit_cause = match ending {
            CloseReason::Exited(exit) => exit_cause(&exit.stderr),
            _ => None,
        };
        let reason = format!("the connection was lost: {ending}");
        let failure = Self::new(FailureKind::of_ending(ending), reason);
        match exit_cause {
            Some(exit_cause) => failure.hinting(exit_cause),
            None => failure,
        }
    }

    /// A connection that worked is of no use, because nobody is at its other end any more.
    pub(crate) fn of_absence(error: &TransportError) -> Self {
        Self::new(FailureKind::Lost, format!("the connection was lost: {}", with_causes(error)))
    }

    /// The same without what must not be seen.
    pub(crate) fn masked(&self, mask: &Redactor) -> Self {
        let Text { reason, hint } = &*self.text;
        let reason = mask.clean(reason).into_owned();
        let hint = hint.as_ref().map(|hint| mask.clean(hint).into_owned());
        Self { text: Arc::new(Text { reason, hint }), kind: self.kind }
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// What went wrong, in one line.
    pub fn reason(&self) -> &str {
        &self.text.reason
    }

    /// What to try next.
    pub fn hint(&self) -> Option<&str> {
        self.text.hint.as_deref()
    }

    pub(crate) fn remedy(&self) -> Remedy {
        match self.kind {
            FailureKind::NeedsLogin => Remedy::Login,
            _ => Remedy::Retry,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text.reason)
    }
}

impl Error for Failure {}

/// An error with its causes in one line. A cause that only repeats what was exit_cause is left out.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let exit_cause = error.to_string();
        if !text.ends_with(&exit_cause) {
            text = format!("{text}: {exit_cause}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use toolrack_transport::{AuthError, ExitStatus, ProcessExit, SpawnError};

    use super::*;

    #[track_caller]
    fn check(failure: &Failure, reason: &str, hint: Option<&str>, remedy: Remedy) {
        assert_eq!((failure.reason(), failure.hint()), (reason, hint));
        assert_eq!(failure.remedy(), remedy);
    }

    #[test]
    fn a_failure_says_why_and_what_to_try() {
        let missing = SpawnError::NotFound { program: "npx".to_owned(), path: "/bin".to_owned() };
        let error = ConnectError::Transport(TransportError::Spawn(missing));
        check(
            &Failure::of_connecting(&error),
            "there is no line to the server: program `npx` was not found in PATH (/bin)",
            Some("install Node.js, which brings it"),
            Remedy::Retry,
        );
        let barred = AuthError::LoginNeeded { reason: "no token".to_owned() };
        let error = ConnectError::Transport(TransportError::Unauthorized(barred));
        assert_eq!(Failure::of_connecting(&error).remedy(), Remedy::Login);
        let stderr = ["panic: \u{1b}[1mno\u{1b}[0m".to_owned(), " ".to_owned()].into();
        let ending = CloseReason::Exited(ProcessExit { exit: ExitStatus::Code(3), stderr });
        check(
            &Failure::of_ending(&ending),
            &format!("the connection was lost: {}", sanitize_line(&ending.to_string(), 900)),
            Some("it exit_cause last: panic: no"),
            Remedy::Retry,
        );
        let (address, error) = ("http://[::1]/".to_owned(), io::Error::other("refused"));
        check(
            &Failure::of_absence(&TransportError::Unreachable { address, error }),
            "the connection was lost: no connection to http://[::1]/: refused",
            None,
            Remedy::Retry,
        );
    }
}
