//! Report of a run: text lines and JSON.

use std::time::Duration;

use serde::Serialize;

use crate::findings::{Failure, Figures, Findings, Verdict};
use crate::gate::{Effort, Gate};

/// Report of one run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) effort: Effort,
    pub(crate) commit: Option<String>,
    pub(crate) n_cores: usize,
    pub(crate) gates: Vec<GateReport>,
}

/// Report of one gate.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct GateReport {
    pub(crate) gate: Gate,
    promise: &'static str,
    pub(crate) verdict: Verdict,
    seeds: Vec<u64>,
    seconds: f64,
    /// Load average over the last minute of the gate.
    load: Option<f64>,
    figures: Figures,
    failures: Vec<Failure>,
    n_failures: u64,
    skipped: Option<String>,
    replay: String,
}

/// Conditions under which a gate ran.
#[derive(Debug, Clone)]
pub(crate) struct Conditions {
    pub(crate) effort: Effort,
    pub(crate) seeds: Vec<u64>,
    pub(crate) took: Duration,
    pub(crate) load: Option<f64>,
}

impl GateReport {
    pub(crate) fn new(gate: Gate, conditions: Conditions, findings: Findings) -> Self {
        let Conditions { effort, seeds, took, load } = conditions;
        let verdict = findings.verdict();
        let Findings { figures, failures, n_failures, skipped } = findings;
        // Without a failure the newest seed is the useful one.
        let seed = failures.first().map(|failure| failure.seed).or_else(|| seeds.last().copied());
        let replay = replay(gate, effort, seed.unwrap_or_default());
        Self {
            gate,
            promise: gate.promise(),
            verdict,
            seeds,
            seconds: (took.as_secs_f64() * 10.0).round() / 10.0,
            load,
            figures,
            failures,
            n_failures,
            skipped,
            replay,
        }
    }

    /// Formats the report for the terminal.
    pub(crate) fn lines(&self) -> Vec<String> {
        let seeds: Vec<String> = self.seeds.iter().map(ToString::to_string).collect();
        let reason = self.skipped.as_ref().map_or(String::new(), |reason| format!("({reason})"));
        let load = self.load.map_or(String::new(), |load| format!(", load {load}"));
        let mut lines = vec![format!(
            "{} {}: {}{reason} in {} s (seeds {}{load})",
            self.gate,
            self.promise,
            self.verdict,
            self.seconds,
            seeds.join(", ")
        )];
        lines.push(format!("    {}", self.figures));
        lines.extend(
            self.failures
                .iter()
                .map(|failure| format!("    broken: seed {}: {}", failure.seed, failure.what)),
        );
        let unseen = self.n_failures - self.failures.len() as u64;
        if unseen > 0 {
            lines.push(format!("    broken: {unseen} more"));
        }
        lines.push(format!("    replay: {}", self.replay));
        lines
    }
}

impl Report {
    pub(crate) fn has_failed(&self) -> bool {
        self.gates.iter().any(|gate| gate.verdict == Verdict::Fail)
    }
}

fn replay(gate: Gate, effort: Effort, seed: u64) -> String {
    let effort = effort.select("", " --full");
    format!("cargo xtask reliability{effort} --gate {gate} --seed {seed}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(effort: Effort, findings: Findings, expected: &[&str]) {
        let took = Duration::from_millis(12_340);
        let conditions = Conditions { effort, seeds: vec![1, 2, 9], took, load: Some(3.5) };
        assert_eq!(GateReport::new(Gate::G01, conditions, findings).lines(), expected);
    }

    #[test]
    fn passed_gate_shows_its_figures() {
        let mut findings = Findings::default();
        findings.count("cycles", 300);
        check(
            Effort::Quick,
            findings,
            &[
                "G01 no orphans: PASS in 12.3 s (seeds 1, 2, 9, load 3.5)",
                "    cycles 300",
                "    replay: cargo xtask reliability --gate G01 --seed 9",
            ],
        );
    }

    #[test]
    fn failed_gate_shows_failures_and_replay() {
        let mut findings = Findings::default();
        for _ in 0..22 {
            findings.fail(2, "3 processes are left");
        }
        let broken = "    broken: seed 2: 3 processes are left";
        let mut expected = vec!["G01 no orphans: FAIL in 12.3 s (seeds 1, 2, 9, load 3.5)", "    "];
        expected.extend([broken; 20]);
        expected.push("    broken: 2 more");
        expected.push("    replay: cargo xtask reliability --full --gate G01 --seed 2");
        check(Effort::Full, findings, &expected);
    }

    #[test]
    fn skipped_gate_shows_the_reason() {
        check(
            Effort::Quick,
            Findings::skipped("no /proc here"),
            &[
                "G01 no orphans: SKIPPED(no /proc here) in 12.3 s (seeds 1, 2, 9, load 3.5)",
                "    ",
                "    replay: cargo xtask reliability --gate G01 --seed 9",
            ],
        );
    }

    #[test]
    fn only_a_failure_fails_the_run() {
        let run = |findings: Findings| {
            let took = Duration::ZERO;
            let conditions = Conditions { effort: Effort::Quick, seeds: vec![1], took, load: None };
            let gates = vec![GateReport::new(Gate::G02, conditions, findings)];
            Report { effort: Effort::Quick, commit: None, n_cores: 2, gates }.has_failed()
        };
        let mut broken = Findings::default();
        broken.fail(1, "broken");
        let runs = [Findings::default(), Findings::skipped("why"), broken].map(run);
        assert_eq!(runs, [false, false, true]);
    }
}
