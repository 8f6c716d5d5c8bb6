//! The rules of `cargo xtask tidy`. Each is a pure function from file text to findings.

pub(crate) mod ban;
pub(crate) mod coverage;
pub(crate) mod dependency;
pub(crate) mod layer;
pub(crate) mod machine;
pub(crate) mod shape;
pub(crate) mod transcript;

use std::fmt;

/// One place that breaks one rule, and what to do about it.
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

/// Lines with the numbers that editors give them.
pub(crate) fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines())
}

/// Compares findings with the form in which a person reads them.
#[cfg(test)]
#[track_caller]
pub(crate) fn assert_findings(seen: &[Finding], expected: &[&str]) {
    let seen: Vec<String> = seen.iter().map(ToString::to_string).collect();
    assert_eq!(seen, expected);
}
