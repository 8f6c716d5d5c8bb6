//! How the program ends: a verdict for scripts, and a failure for people.

use std::fmt;
use std::io;
use std::process::ExitCode;

use toolrack_client::{CallError, ConnectError};

/// What a script can tell from the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Success,
    Usage,
    Unreachable,
    ToolFailed,
    Interrupted,
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> Self {
        ExitCode::from(match verdict {
            Verdict::Success => 0,
            Verdict::Usage => 1,
            Verdict::Unreachable => 4,
            Verdict::ToolFailed => 5,
            // What shells report of a program that Ctrl-C has ended.
            Verdict::Interrupted => 130,
        })
    }
}

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub(crate) struct Failure {
    verdict: Verdict,
    error: anyhow::Error,
    hint: Option<String>,
}

impl Failure {
    pub(crate) fn interrupted() -> Self {
        let error = anyhow::anyhow!("interrupted");
        Self { verdict: Verdict::Interrupted, error, hint: None }
    }

    /// A tool ran and said that it failed.
    pub(crate) fn tool(tool: &str, said: &str) -> Self {
        let error = anyhow::anyhow!("tool `{tool}` failed: {said}");
        Self { verdict: Verdict::ToolFailed, error, hint: None }
    }

    pub(crate) fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    pub(crate) fn verdict(&self) -> Verdict {
        self.verdict
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let hint = error.hint();
        Self { verdict: Verdict::Unreachable, error: error.into(), hint }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self { verdict: Verdict::Unreachable, error: error.into(), hint: None }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self { verdict: Verdict::Unreachable, error: error.into(), hint: None }
    }
}

/// The whole chain in one line, each cause behind a colon.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)
    }
}
