//! The rules of `cargo xtask tidy`. Each is a pure function from file text to findings.

pub(crate) mod dependencies;
pub(crate) mod forbidden;
pub(crate) mod layers;
pub(crate) mod machine_paths;
pub(crate) mod specs_ledger;
pub(crate) mod transcripts;

use std::fmt;

/// A violation of a rule, with advice.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    rule: &'static str,
    advice: String,
}

impl Finding {
    pub(crate) fn new(
        path: &str,
        line: usize,
        rule: &'static str,
        advice: impl Into<String>,
    ) -> Self {
        Self { path: path.to_owned(), line, rule, advice: advice.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, rule, advice } = self;
        write!(f, "{path}:{line}: {rule}: {advice}")
    }
}

/// Lines with their numbers, from 1.
pub(crate) fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines())
}

/// Compares findings as they are printed.
#[cfg(test)]
#[track_caller]
pub(crate) fn assert_findings(seen: &[Finding], expected: &[&str]) {
    let seen: Vec<String> = seen.iter().map(ToString::to_string).collect();
    assert_eq!(seen, expected);
}
