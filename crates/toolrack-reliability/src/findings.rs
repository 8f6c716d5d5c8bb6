//! Findings of a gate: figures and failures, printed by its process as one line of JSON, and the report of a run.

use std::fmt;
use std::time::Duration;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Number;
use toolrack_testkit::Marker;

use crate::cycle::Cycle;
use crate::gate::{Effort, Gate};

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

    /// Records the failures of the cycles, each with the seed of its cycle.
    pub(crate) fn fail_cycles(&mut self, cycles: Vec<Cycle>) {
        for Cycle { seed, failures, .. } in cycles {
            for what in failures {
                self.fail(seed, what);
            }
        }
    }

    /// The sum of a count over all cycles.
    pub(crate) fn total(&mut self, prefix: &str, name: &str, cycles: &[Cycle]) {
        let counts = cycles.iter().flat_map(|cycle| &cycle.counts);
        let total = counts.filter(|(count, _)| *count == name).map(|(_, number)| number).sum();
        self.count(&format!("{prefix}{name}"), total);
    }

    /// The percentiles of a time over all cycles.
    pub(crate) fn times(&mut self, prefix: &str, name: &str, cycles: &[Cycle]) {
        self.percentiles(&format!("{prefix}{name}"), times_of(name, cycles));
    }

    /// The longest of a time over all cycles.
    pub(crate) fn longest(&mut self, name: &str, cycles: &[Cycle]) {
        let longest = times_of(name, cycles).max().unwrap_or_default();
        self.measure(&format!("{name}_max_ms"), millis(longest));
    }

    /// Kills the processes that carry the marker, and records them as a failure. Returns their number.
    pub(crate) fn fail_leftovers(&mut self, seed: u64, about: &str, marker: &Marker) -> u64 {
        let left = marker.kill_survivors();
        if !left.is_empty() {
            self.fail(seed, format!("{about}: {left:?}"));
        }
        left.len() as u64
    }

    pub(crate) fn count(&mut self, name: &str, number: u64) {
        self.figures.0.push((name.to_owned(), Number::from(number)));
    }

    /// Adds a number that is not a count. NaN and infinity are left out.
    pub(crate) fn measure(&mut self, name: &str, number: f64) {
        self.figures.0.extend(Number::from_f64(number).map(|number| (name.to_owned(), number)));
    }

    /// Three figures: `name_p50_ms`, `name_p99_ms`, `name_max_ms`.
    pub(crate) fn percentiles(&mut self, name: &str, times: impl IntoIterator<Item = Duration>) {
        let times: Vec<Duration> = times.into_iter().collect();
        for (part, share) in [("p50", 50), ("p99", 99), ("max", 100)] {
            self.measure(&format!("{name}_{part}_ms"), millis(percentile(&times, share)));
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

fn times_of(name: &str, cycles: &[Cycle]) -> impl Iterator<Item = Duration> {
    let times = cycles.iter().flat_map(|cycle| &cycle.times);
    times.filter(move |(time, _)| *time == name).map(|(_, took)| *took)
}

/// The time that this percentage does not exceed; zero for an empty list.
pub(crate) fn percentile(times: &[Duration], share: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    let index = (times.len() * share).div_ceil(100).saturating_sub(1);
    times.get(index).copied().unwrap_or_default()
}

/// Converts to milliseconds with three decimals.
pub(crate) fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

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
    pub(crate) promise: &'static str,
    pub(crate) verdict: Verdict,
    pub(crate) seeds: Vec<u64>,
    pub(crate) seconds: f64,
    /// Load average over the last minute of the gate.
    pub(crate) load: Option<f64>,
    #[serde(flatten)]
    pub(crate) findings: Findings,
    pub(crate) replay: String,
}

impl GateReport {
    pub(crate) fn new(gate: Gate, effort: Effort, seeds: &[u64], findings: Findings) -> Self {
        // Without a failure the newest seed is the useful one.
        let seed = findings.failures.first().map(|failure| failure.seed);
        let seed = seed.or_else(|| seeds.last().copied()).unwrap_or_default();
        let effort = effort.select("", " --full");
        Self {
            gate,
            promise: gate.promise(),
            verdict: findings.verdict(),
            seeds: seeds.to_vec(),
            seconds: 0.0,
            load: None,
            findings,
            replay: format!("cargo xtask reliability{effort} --gate {gate} --seed {seed}"),
        }
    }

    /// Adds the conditions under which the gate ran.
    pub(crate) fn under(self, took: Duration, load: Option<f64>) -> Self {
        Self { seconds: (took.as_secs_f64() * 10.0).round() / 10.0, load, ..self }
    }

    /// Formats the report for the terminal.
    pub(crate) fn lines(&self) -> Vec<String> {
        let Self { gate, promise, seconds, findings, replay, .. } = self;
        let verdict = format!("{:?}", self.verdict).to_uppercase();
        let seeds: Vec<String> = self.seeds.iter().map(ToString::to_string).collect();
        let reason = findings.skipped.as_ref().map_or(String::new(), |why| format!("({why})"));
        let load = self.load.map_or(String::new(), |load| format!(", load {load}"));
        let seeds = seeds.join(", ");
        let mut lines = vec![format!(
            "{gate} {promise}: {verdict}{reason} in {seconds} s (seeds {seeds}{load})"
        )];
        lines.push(format!("    {}", findings.figures));
        let shown = findings.failures.iter();
        lines.extend(
            shown.map(|failure| format!("    broken: seed {}: {}", failure.seed, failure.what)),
        );
        let unseen = findings.n_failures - findings.failures.len() as u64;
        if unseen > 0 {
            lines.push(format!("    broken: {unseen} more"));
        }
        lines.push(format!("    replay: {replay}"));
        lines
    }
}

impl Report {
    pub(crate) fn has_failed(&self) -> bool {
        self.gates.iter().any(|gate| gate.verdict == Verdict::Fail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Findings {
        let mut findings = Findings::default();
        findings.count("cycles", 300);
        // 200 times, so that the 99th percentile is not the longest.
        let times = (1..=200_u64).map(|n| match n {
            1..=197 => Duration::from_millis(1),
            198..=199 => Duration::from_millis(2),
            _ => Duration::from_micros(2500),
        });
        findings.percentiles("clean", times);
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

    #[track_caller]
    fn check_percentiles(times: impl IntoIterator<Item = u64>, [p50, p99, max]: [u64; 3]) {
        let ms = Duration::from_millis;
        let times: Vec<Duration> = times.into_iter().map(ms).collect();
        let found = [50, 99, 100].map(|share| percentile(&times, share));
        assert_eq!(found, [ms(p50), ms(p99), ms(max)]);
    }

    #[test]
    fn percentiles_are_measured_times() {
        check_percentiles([], [0, 0, 0]);
        check_percentiles([7], [7, 7, 7]);
        check_percentiles([3, 1, 2], [2, 3, 3]);
        check_percentiles(1..=100, [50, 99, 100]);
        check_percentiles(1..=200, [100, 198, 200]);
        check_percentiles((0..1000).rev(), [499, 989, 999]);
    }

    #[test]
    fn figures_have_three_decimals() {
        assert_eq!(millis(Duration::from_nanos(1_234_567)).to_string(), "1.235");
        assert_eq!(millis(Duration::from_secs(1)).to_string(), "1000");
    }

    #[track_caller]
    fn check_lines(effort: Effort, findings: Findings, expected: &[&str]) {
        let took = Duration::from_millis(12_340);
        let report = GateReport::new(Gate::G01, effort, &[1, 2, 9], findings);
        assert_eq!(report.under(took, Some(3.5)).lines(), expected);
    }

    #[test]
    fn passed_gate_shows_its_figures() {
        let mut findings = Findings::default();
        findings.count("cycles", 300);
        check_lines(
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
        check_lines(Effort::Full, findings, &expected);
    }

    #[test]
    fn skipped_gate_shows_the_reason() {
        check_lines(
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
            let gates = vec![GateReport::new(Gate::G02, Effort::Quick, &[1], findings)];
            Report { effort: Effort::Quick, commit: None, n_cores: 2, gates }.has_failed()
        };
        let mut broken = Findings::default();
        broken.fail(1, "broken");
        let runs = [Findings::default(), Findings::skipped("why"), broken].map(run);
        assert_eq!(runs, [false, false, true]);
    }
}
