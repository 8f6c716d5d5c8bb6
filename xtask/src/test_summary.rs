//! Test summary: parses the output of `cargo test`, counts results and formats the report.
//!
//! **Invariant:** a test that marked itself as skipped never counts as passed, although the test
//! harness reports it as `ok`.

use std::time::Duration;

use crate::subprocess::ExitResult;

/// Marker of a skipped test: `SKIPPED: name: reason`, one line per test, on stderr.
const SKIP_MARK: &str = "SKIPPED: ";

/// Counts of one run of `cargo xtask test`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TestSummary {
    checks: Counts,
    tests: Counts,
    n_ignored: usize,
    /// Tests that marked themselves as skipped; the harness counted them as passed.
    n_marked: usize,
    /// Test programs that started and have not reported a result.
    n_unfinished: usize,
    skips: Vec<String>,
    failures: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    passed: usize,
    failed: usize,
}

impl TestSummary {
    /// Parses one line of the output of `cargo test`.
    pub(crate) fn read_line(&mut self, line: &str) {
        if let Some(mark) = line.strip_prefix(SKIP_MARK) {
            self.n_marked += 1;
            self.skips.push(mark.trim().to_owned());
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.tests.passed += count(result, "passed");
            self.tests.failed += count(result, "failed");
            self.n_ignored += count(result, "ignored");
            self.n_unfinished = self.n_unfinished.saturating_sub(1);
        } else if is_start(line) {
            self.n_unfinished += 1;
        } else if let Some(name) = failed_test(line) {
            self.failures.push(format!("test {name}"));
        }
    }

    /// Ends the test step. A program that did not compile, crashed or hung printed no `FAILED`
    /// line, so the exit result counts too.
    pub(crate) fn end_tests(&mut self, exit: ExitResult) {
        let n_unfinished = std::mem::take(&mut self.n_unfinished);
        if n_unfinished > 0 {
            self.fail(format!("test: {n_unfinished} programs ended without a result ({exit})"));
        } else if matches!(exit, ExitResult::TimedOut(_))
            || (exit != ExitResult::Success && self.tests.failed == 0)
        {
            self.fail(format!("test: {exit}"));
        }
    }

    /// Records a passed check.
    pub(crate) fn pass(&mut self) {
        self.checks.passed += 1;
    }

    /// Records a failed check.
    pub(crate) fn fail(&mut self, what: impl Into<String>) {
        self.checks.failed += 1;
        self.failures.push(what.into());
    }

    /// Records a skipped check or install, with its reason.
    pub(crate) fn skip(&mut self, what: impl Into<String>) {
        self.skips.push(what.into());
    }

    pub(crate) fn n_tests(&self) -> usize {
        self.tests.passed + self.tests.failed
    }

    pub(crate) fn n_failed(&self) -> usize {
        self.checks.failed + self.tests.failed
    }

    /// The report. Its last line is machine-readable: `N passed, N failed, N skipped`.
    pub(crate) fn report(&self, took: Duration) -> String {
        let tests_passed = self.tests.passed.saturating_sub(self.n_marked);
        let mut lines = vec![
            format!("checks: {} passed, {} failed", self.checks.passed, self.checks.failed),
            format!("tests: {tests_passed} passed, {} failed", self.tests.failed),
        ];
        lines.extend(self.failures.iter().map(|failure| format!("FAILED: {failure}")));
        lines.extend(self.skips.iter().map(|skip| format!("{SKIP_MARK}{skip}")));
        if self.n_ignored > 0 {
            lines.push(format!("{SKIP_MARK}{} tests: ignored by their own mark", self.n_ignored));
        }
        lines.push(format!("time: {:.1} s", took.as_secs_f64()));
        let passed = self.checks.passed + tests_passed;
        let skipped = self.skips.len() + self.n_ignored;
        lines.push(format!("{passed} passed, {} failed, {skipped} skipped", self.n_failed()));
        lines.join("\n")
    }
}

/// The number before `word` in `ok. 5 passed; 0 failed; 1 ignored; …`.
fn count(result: &str, word: &str) -> usize {
    let words: Vec<&str> = result.split_whitespace().collect();
    let pairs = words.iter().zip(words.iter().skip(1));
    let mut numbers = pairs.filter(|(_, text)| text.trim_end_matches(';') == word);
    numbers.next().and_then(|(number, _)| number.parse().ok()).unwrap_or(0)
}

/// `running 5 tests`, the first line of every test program.
fn is_start(line: &str) -> bool {
    let count = line.strip_prefix("running ").and_then(|text| text.split_once(' '));
    count.is_some_and(|(number, unit)| {
        number.parse::<usize>().is_ok() && matches!(unit, "test" | "tests")
    })
}

fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(output: &str, expected: &str) {
        let mut summary = TestSummary::default();
        output.lines().for_each(|line| summary.read_line(line));
        summary.pass();
        assert_eq!(summary.report(Duration::from_millis(1250)), expected);
    }

    #[test]
    fn results_of_all_test_programs_are_added_up() {
        check(
            "test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 2 filtered out; finished in 0.00s\n\
             test a::b ... ok\n\
             test a::c ... FAILED\n\
             test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s",
            "checks: 1 passed, 0 failed\n\
             tests: 8 passed, 1 failed\n\
             FAILED: test a::c\n\
             time: 1.2 s\n\
             9 passed, 1 failed, 0 skipped",
        );
    }

    #[test]
    fn skipped_test_is_not_counted_as_passed() {
        check(
            "SKIPPED: time_server_answers: python3 is not installed\n\
             test result: ok. 5 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0s",
            "checks: 1 passed, 0 failed\n\
             tests: 4 passed, 0 failed\n\
             SKIPPED: time_server_answers: python3 is not installed\n\
             SKIPPED: 2 tests: ignored by their own mark\n\
             time: 1.2 s\n\
             5 passed, 0 failed, 3 skipped",
        );
    }

    #[test]
    fn failed_and_skipped_checks_are_in_the_last_line() {
        let mut summary = TestSummary::default();
        summary.fail("clippy: exit code 101");
        summary.skip("fmt: rustfmt is not installed");
        assert_eq!(
            summary.report(Duration::from_secs(2)),
            "checks: 0 passed, 1 failed\n\
             tests: 0 passed, 0 failed\n\
             FAILED: clippy: exit code 101\n\
             SKIPPED: fmt: rustfmt is not installed\n\
             time: 2.0 s\n\
             0 passed, 1 failed, 1 skipped",
        );
    }
}
