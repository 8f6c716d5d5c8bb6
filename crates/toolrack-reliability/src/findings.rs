//! Findings of a gate: figures and failures, printed by its process as one line of JSON.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Number;

use crate::timing::{Percentiles, millis};

/// Failures beyond this number are only counted.
const SHOWN: usize = 20;

/// Result of one gate.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Findings {
    pub(crate) figures: Figures,
    /// The first failures, in order.
    pub(crate) failures: Vec<Failure>,
    pub(crate) n_failures: u64,
    /// Why the gate could not run here.
    pub(crate) skipped: Option<String>,
}

/// One failure, and the seed that reproduces it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) seed: u64,
    pub(crate) what: String,
}

/// Named numbers in display order. A name carries its unit.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Figures(Vec<(String, Number)>);

/// Verdict on a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Verdict {
    Pass,
    Fail,
    Skipped,
}

impl Findings {
    pub(crate) fn skipped(reason: impl Into<String>) -> Self {
        Self { skipped: Some(reason.into()), ..Self::default() }
    }

    pub(crate) fn fail(&mut self, seed: u64, what: impl Into<String>) {
        self.n_failures += 1;
        if self.failures.len() < SHOWN {
            self.failures.push(Failure { seed, what: what.into() });
        }
    }

    pub(crate) fn count(&mut self, name: &str, number: u64) {
        self.figures.0.push((name.to_owned(), Number::from(number)));
    }

    /// Adds a number that is not a count. NaN and infinity are left out.
    pub(crate) fn measure(&mut self, name: &str, number: f64) {
        self.figures.0.extend(Number::from_f64(number).map(|number| (name.to_owned(), number)));
    }

    /// Three figures: `name_p50_ms`, `name_p99_ms`, `name_max_ms`.
    pub(crate) fn percentiles(&mut self, name: &str, percentiles: Percentiles) {
        let Percentiles { p50, p99, max } = percentiles;
        for (part, time) in [("p50", p50), ("p99", p99), ("max", max)] {
            self.measure(&format!("{name}_{part}_ms"), millis(time));
        }
    }

    /// A gate with a failure has failed, even if it was also skipped.
    pub(crate) fn verdict(&self) -> Verdict {
        match (&self.skipped, self.n_failures) {
            (_, 1..) => Verdict::Fail,
            (Some(_), 0) => Verdict::Skipped,
            (None, 0) => Verdict::Pass,
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> =
            self.0.iter().map(|(name, number)| format!("{name} {number}")).collect();
        f.write_str(&words.join(" · "))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::Skipped => "SKIPPED",
        })
    }
}

/// Serializes as an object that keeps the order of its members.
impl Serialize for Figures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, number)| (name, number)))
    }
}

impl<'de> Deserialize<'de> for Figures {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FiguresVisitor)
    }
}

struct FiguresVisitor;

impl<'de> Visitor<'de> for FiguresVisitor {
    type Value = Figures;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of numbers")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Figures, A::Error> {
        let mut figures = Vec::new();
        while let Some(figure) = map.next_entry()? {
            figures.push(figure);
        }
        Ok(Figures(figures))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sample() -> Findings {
        let mut findings = Findings::default();
        findings.count("cycles", 300);
        let ms = Duration::from_millis;
        findings.percentiles(
            "clean",
            Percentiles { p50: ms(1), p99: ms(2), max: Duration::from_micros(2500) },
        );
        findings.measure("nonsense", f64::NAN);
        findings
    }

    #[test]
    fn figures_keep_their_order_in_json() {
        let findings = sample();
        let line = serde_json::to_string(&findings).unwrap();
        assert_eq!(
            line,
            r#"{"figures":{"cycles":300,"clean_p50_ms":1.0,"clean_p99_ms":2.0,"clean_max_ms":2.5},"failures":[],"n_failures":0,"skipped":null}"#
        );
        assert_eq!(serde_json::from_str::<Findings>(&line).unwrap(), findings);
    }

    #[test]
    fn figures_display_on_one_line() {
        let shown = sample().figures.to_string();
        assert_eq!(shown, "cycles 300 · clean_p50_ms 1.0 · clean_p99_ms 2.0 · clean_max_ms 2.5");
    }

    #[track_caller]
    fn check(skipped: Option<&str>, n_failures: u64, expected: Verdict) {
        let mut findings = skipped.map_or_else(Findings::default, Findings::skipped);
        for _ in 0..n_failures {
            findings.fail(7, "broken");
        }
        assert_eq!(findings.verdict(), expected);
    }

    #[test]
    fn one_failure_fails_a_gate_and_a_skip_is_not_a_pass() {
        check(None, 0, Verdict::Pass);
        check(None, 1, Verdict::Fail);
        check(Some("no /proc here"), 0, Verdict::Skipped);
        check(Some("no /proc here"), 1, Verdict::Fail);
    }

    #[test]
    fn failures_beyond_the_first_are_counted() {
        let mut findings = Findings::default();
        for cycle in 0..50 {
            findings.fail(cycle, format!("cycle {cycle}"));
        }
        let last = findings.failures.last().map(|failure| failure.seed);
        assert_eq!((findings.n_failures, findings.failures.len(), last), (50, SHOWN, Some(19)));
    }
}
