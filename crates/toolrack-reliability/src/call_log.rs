//! Log of issued calls and their outcomes, checked against the servers' journals.
//!
//! **Invariant:** no clock and no transport here. Times are relative to the start of the batch.

use std::collections::HashMap;
use std::time::Duration;

use toolrack_transport::Delivery;

/// Tolerated delay after a deadline on a busy machine.
pub(crate) const GRACE: Duration = Duration::from_millis(250);

/// Outcome of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The nonce in the result, if the result has one; or how far the call got.
    pub(crate) result: Result<Option<u64>, Delivery>,
    pub(crate) at: Duration,
}

/// All calls of one batch. A nonce is the index of its call.
#[derive(Debug, Default)]
pub(crate) struct CallLog {
    calls: Vec<Call>,
}

#[derive(Debug)]
struct Call {
    deadline: Duration,
    outcomes: Vec<Outcome>,
}

/// How a call breaks the promise: names of the figures that count it.
pub(crate) mod violation {
    /// It has no outcome.
    pub(crate) const MISSING: &str = "missing";
    /// It has more than one outcome.
    pub(crate) const DUPLICATE: &str = "double";
    /// It received the result of another call.
    pub(crate) const WRONG_RESULT: &str = "cross_wired";
    /// Its result has the wrong shape.
    pub(crate) const MANGLED: &str = "mangled";
    /// It ran more than once.
    pub(crate) const EXECUTED_TWICE: &str = "executed_twice";
    /// It was answered, but never ran.
    pub(crate) const ANSWERED_UNEXECUTED: &str = "answered_unexecuted";
    /// It was reported as not sent, but it ran.
    pub(crate) const NOT_SENT_EXECUTED: &str = "not_sent_executed";
    /// Its outcome came after the deadline plus the grace.
    pub(crate) const LATE: &str = "late";
}

/// A call that breaks the promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) name: &'static str,
    pub(crate) what: String,
}

impl CallLog {
    /// Records a call before it is sent, and returns its nonce.
    pub(crate) fn issue(&mut self, deadline: Duration) -> u64 {
        self.calls.push(Call { deadline, outcomes: Vec::new() });
        self.calls.len() as u64 - 1
    }

    /// Records how a call ended.
    pub(crate) fn record_outcome(&mut self, nonce: u64, outcome: Outcome) {
        let call = usize::try_from(nonce).ok().and_then(|index| self.calls.get_mut(index));
        if let Some(call) = call {
            call.outcomes.push(outcome);
        }
    }

    pub(crate) fn n_calls(&self) -> usize {
        self.calls.len()
    }

    /// Number of outcomes of this kind.
    pub(crate) fn count(&self, kind: Option<Delivery>) -> u64 {
        let outcomes = self.calls.iter().flat_map(|call| &call.outcomes);
        outcomes.filter(|outcome| outcome.result.err() == kind).count() as u64
    }

    /// The largest delay of an outcome after its deadline.
    pub(crate) fn worst_lateness(&self) -> Duration {
        let late = |call: &Call| {
            call.outcomes
                .iter()
                .map(|outcome| outcome.at)
                .max()
                .map(|at| at.saturating_sub(call.deadline))
        };
        self.calls.iter().filter_map(late).max().unwrap_or_default()
    }

    /// Returns every call that breaks the promise. `executions` counts the runs per nonce.
    pub(crate) fn violations(&self, executions: &HashMap<u64, u64>) -> Vec<Violation> {
        let mut found = Vec::new();
        for (nonce, call) in (0..).zip(&self.calls) {
            let n_runs = executions.get(&nonce).copied().unwrap_or_default();
            let Call { deadline, outcomes } = call;
            let names = call.violations(nonce, n_runs).into_iter();
            found.extend(names.map(|name| {
                let detail = format!("deadline {deadline:?}, run {n_runs} times, {outcomes:?}");
                Violation { name, what: format!("call {nonce} is {name}: {detail}") }
            }));
        }
        found
    }
}

impl Call {
    fn violations(&self, nonce: u64, n_runs: u64) -> Vec<&'static str> {
        let any = |is_so: &dyn Fn(&Outcome) -> bool| self.outcomes.iter().any(is_so);
        let is_answered =
            |outcome: &Outcome| matches!(outcome.result, Ok(_) | Err(Delivery::Answered));
        let is_wrong =
            |outcome: &Outcome| matches!(outcome.result, Ok(Some(echoed)) if echoed != nonce);
        let checks = [
            (violation::MISSING, self.outcomes.is_empty()),
            (violation::DUPLICATE, self.outcomes.len() > 1),
            (violation::WRONG_RESULT, any(&is_wrong)),
            (violation::MANGLED, any(&|outcome| outcome.result == Ok(None))),
            (violation::EXECUTED_TWICE, n_runs > 1),
            (violation::ANSWERED_UNEXECUTED, n_runs == 0 && any(&is_answered)),
            (
                violation::NOT_SENT_EXECUTED,
                n_runs > 0 && any(&|outcome| outcome.result == Err(Delivery::NotSent)),
            ),
            (violation::LATE, any(&|outcome| outcome.at > self.deadline + GRACE)),
        ];
        checks.into_iter().filter(|(_, is_broken)| *is_broken).map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(1);

    const OK: Result<Option<u64>, Delivery> = Ok(Some(0));
    const ANSWERED: Result<Option<u64>, Delivery> = Err(Delivery::Answered);
    const NOT_SENT: Result<Option<u64>, Delivery> = Err(Delivery::NotSent);
    const UNKNOWN: Result<Option<u64>, Delivery> = Err(Delivery::Unknown);

    fn end(result: Result<Option<u64>, Delivery>) -> Outcome {
        Outcome { result, at: DEADLINE }
    }

    /// A call with these outcomes and runs has these violations.
    #[track_caller]
    fn check(outcomes: &[Outcome], n_runs: u64, expected: &[&str]) {
        let mut call_log = CallLog::default();
        let nonce = call_log.issue(DEADLINE);
        for outcome in outcomes {
            call_log.record_outcome(nonce, outcome.clone());
        }
        let found = call_log.violations(&HashMap::from([(nonce, n_runs)]));
        let names: Vec<&str> = found.iter().map(|violation| violation.name).collect();
        assert_eq!(names, expected, "{outcomes:?} run {n_runs} times");
    }

    #[test]
    fn allowed_outcomes_are_not_violations() {
        check(&[end(OK)], 1, &[]);
        check(&[end(ANSWERED)], 1, &[]);
        check(&[end(NOT_SENT)], 0, &[]);
        check(&[end(UNKNOWN)], 0, &[]);
        check(&[end(UNKNOWN)], 1, &[]);
    }

    #[test]
    fn every_call_has_exactly_one_outcome() {
        check(&[], 0, &[violation::MISSING]);
        check(&[], 1, &[violation::MISSING]);
        check(&[end(OK), end(UNKNOWN)], 1, &[violation::DUPLICATE]);
    }

    #[test]
    fn a_result_belongs_to_its_call() {
        check(&[end(Ok(Some(1)))], 1, &[violation::WRONG_RESULT]);
        check(&[end(Ok(None))], 1, &[violation::MANGLED]);
    }

    #[test]
    fn nothing_is_run_twice() {
        check(&[end(OK)], 2, &[violation::EXECUTED_TWICE]);
        check(&[end(UNKNOWN)], 2, &[violation::EXECUTED_TWICE]);
    }

    #[test]
    fn outcome_must_match_the_executions() {
        check(&[end(OK)], 0, &[violation::ANSWERED_UNEXECUTED]);
        check(&[end(ANSWERED)], 0, &[violation::ANSWERED_UNEXECUTED]);
        check(&[end(NOT_SENT)], 1, &[violation::NOT_SENT_EXECUTED]);
    }

    #[test]
    fn outcome_is_late_only_after_the_grace() {
        check(&[Outcome { at: DEADLINE + GRACE, ..end(UNKNOWN) }], 1, &[]);
        let late = DEADLINE + GRACE + Duration::from_nanos(1);
        check(&[Outcome { at: late, ..end(UNKNOWN) }], 1, &[violation::LATE]);
    }

    #[test]
    fn violation_names_its_call() {
        let mut call_log = CallLog::default();
        call_log.issue(DEADLINE);
        call_log.issue(DEADLINE);
        call_log.record_outcome(0, end(NOT_SENT));
        let found = call_log.violations(&HashMap::new());
        let lines: Vec<&str> = found.iter().map(|violation| violation.what.as_str()).collect();
        assert_eq!(lines, ["call 1 is missing: deadline 1s, run 0 times, []"]);
    }

    #[test]
    fn outcomes_are_counted_with_the_worst_lateness() {
        let mut call_log = CallLog::default();
        for kind in [OK, OK, UNKNOWN] {
            let nonce = call_log.issue(DEADLINE);
            let at = if kind == UNKNOWN { DEADLINE + GRACE } else { DEADLINE / 2 };
            call_log.record_outcome(nonce, Outcome { at, ..end(kind) });
        }
        let counts = [None, Some(Delivery::Unknown), Some(Delivery::NotSent)];
        let counts = counts.map(|kind| call_log.count(kind));
        assert_eq!((call_log.n_calls(), counts), (3, [2, 1, 0]));
        assert_eq!(call_log.worst_lateness(), GRACE);
    }
}
