//! Log of issued calls and their outcomes, checked against the servers' journals.
//!
//! **Invariant:** no clock and no transport here. Times are relative to the start of the batch.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

/// Tolerated delay after a deadline on a busy machine.
pub(crate) const GRACE: Duration = Duration::from_millis(250);

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum OutcomeKind {
    /// A result arrived. Its nonce is in [`Outcome::echoed`].
    Ok,
    /// The server answered with an error.
    Answered,
    /// No byte was sent.
    NotSent,
    /// Some or all bytes were sent, and no response arrived.
    Unknown,
}

/// Outcome of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) kind: OutcomeKind,
    pub(crate) at: Duration,
    /// The nonce in the result, if the call has one.
    pub(crate) echoed: Option<u64>,
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

/// How a call breaks the promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ViolationKind {
    /// It has no outcome.
    Missing,
    /// It has more than one outcome.
    Duplicate,
    /// It received the result of another call.
    WrongResult,
    /// Its result has the wrong shape.
    Mangled,
    /// It ran more than once.
    ExecutedTwice,
    /// It was answered, but never ran.
    AnsweredUnexecuted,
    /// It was reported as not sent, but it ran.
    NotSentExecuted,
    /// Its outcome came after the deadline plus the grace.
    Late,
}

impl ViolationKind {
    pub(crate) const ALL: [Self; 8] = [
        Self::Missing,
        Self::Duplicate,
        Self::WrongResult,
        Self::Mangled,
        Self::ExecutedTwice,
        Self::AnsweredUnexecuted,
        Self::NotSentExecuted,
        Self::Late,
    ];

    /// Name of the figure that counts it.
    pub(crate) fn figure(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Duplicate => "double",
            Self::WrongResult => "cross_wired",
            Self::Mangled => "mangled",
            Self::ExecutedTwice => "executed_twice",
            Self::AnsweredUnexecuted => "answered_unexecuted",
            Self::NotSentExecuted => "not_sent_executed",
            Self::Late => "late",
        }
    }
}

/// A call that breaks the promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) nonce: u64,
    pub(crate) kind: ViolationKind,
    detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {} is {}: {}", self.nonce, self.kind.figure(), self.detail)
    }
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

    /// Counts the calls by kind of outcome.
    pub(crate) fn counts(&self) -> HashMap<OutcomeKind, u64> {
        let mut counts = HashMap::new();
        for outcome in self.calls.iter().flat_map(|call| &call.outcomes) {
            *counts.entry(outcome.kind).or_default() += 1;
        }
        counts
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
            let kinds = call.kinds(nonce, n_runs);
            found.extend(kinds.into_iter().map(|kind| {
                let Call { deadline, outcomes } = call;
                let detail = format!("deadline {deadline:?}, run {n_runs} times, {outcomes:?}");
                Violation { nonce, kind, detail }
            }));
        }
        found
    }
}

impl Call {
    fn kinds(&self, nonce: u64, n_runs: u64) -> Vec<ViolationKind> {
        let mut kinds = Vec::new();
        let any = |is_so: &dyn Fn(&Outcome) -> bool| self.outcomes.iter().any(is_so);
        let answered =
            |outcome: &Outcome| matches!(outcome.kind, OutcomeKind::Ok | OutcomeKind::Answered);
        match self.outcomes.len() {
            0 => kinds.push(ViolationKind::Missing),
            1 => {}
            _ => kinds.push(ViolationKind::Duplicate),
        }
        if any(&|outcome| outcome.echoed.is_some_and(|echoed| echoed != nonce)) {
            kinds.push(ViolationKind::WrongResult);
        }
        if any(&|outcome| outcome.kind == OutcomeKind::Ok && outcome.echoed.is_none()) {
            kinds.push(ViolationKind::Mangled);
        }
        if n_runs > 1 {
            kinds.push(ViolationKind::ExecutedTwice);
        }
        if n_runs == 0 && any(&answered) {
            kinds.push(ViolationKind::AnsweredUnexecuted);
        }
        if n_runs > 0 && any(&|outcome| outcome.kind == OutcomeKind::NotSent) {
            kinds.push(ViolationKind::NotSentExecuted);
        }
        if any(&|outcome| outcome.at > self.deadline + GRACE) {
            kinds.push(ViolationKind::Late);
        }
        kinds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(1);

    fn end(kind: OutcomeKind) -> Outcome {
        let echoed = (kind == OutcomeKind::Ok).then_some(0);
        Outcome { kind, at: DEADLINE, echoed }
    }

    /// A call with these outcomes and runs has these violations.
    #[track_caller]
    fn check(outcomes: &[Outcome], n_runs: u64, expected: &[ViolationKind]) {
        let mut call_log = CallLog::default();
        let nonce = call_log.issue(DEADLINE);
        for outcome in outcomes {
            call_log.record_outcome(nonce, outcome.clone());
        }
        let found = call_log.violations(&HashMap::from([(nonce, n_runs)]));
        let kinds: Vec<ViolationKind> = found.iter().map(|violation| violation.kind).collect();
        assert_eq!(kinds, expected, "{outcomes:?} run {n_runs} times");
    }

    #[test]
    fn allowed_outcomes_are_not_violations() {
        check(&[end(OutcomeKind::Ok)], 1, &[]);
        check(&[end(OutcomeKind::Answered)], 1, &[]);
        check(&[end(OutcomeKind::NotSent)], 0, &[]);
        check(&[end(OutcomeKind::Unknown)], 0, &[]);
        check(&[end(OutcomeKind::Unknown)], 1, &[]);
    }

    #[test]
    fn every_call_has_exactly_one_outcome() {
        check(&[], 0, &[ViolationKind::Missing]);
        check(&[], 1, &[ViolationKind::Missing]);
        check(&[end(OutcomeKind::Ok), end(OutcomeKind::Unknown)], 1, &[ViolationKind::Duplicate]);
    }

    #[test]
    fn a_result_belongs_to_its_call() {
        check(
            &[Outcome { echoed: Some(1), ..end(OutcomeKind::Ok) }],
            1,
            &[ViolationKind::WrongResult],
        );
        check(&[Outcome { echoed: None, ..end(OutcomeKind::Ok) }], 1, &[ViolationKind::Mangled]);
    }

    #[test]
    fn nothing_is_run_twice() {
        check(&[end(OutcomeKind::Ok)], 2, &[ViolationKind::ExecutedTwice]);
        check(&[end(OutcomeKind::Unknown)], 2, &[ViolationKind::ExecutedTwice]);
    }

    #[test]
    fn outcome_must_match_the_executions() {
        check(&[end(OutcomeKind::Ok)], 0, &[ViolationKind::AnsweredUnexecuted]);
        check(&[end(OutcomeKind::Answered)], 0, &[ViolationKind::AnsweredUnexecuted]);
        check(&[end(OutcomeKind::NotSent)], 1, &[ViolationKind::NotSentExecuted]);
    }

    #[test]
    fn outcome_is_late_only_after_the_grace() {
        check(&[Outcome { at: DEADLINE + GRACE, ..end(OutcomeKind::Unknown) }], 1, &[]);
        let late = DEADLINE + GRACE + Duration::from_nanos(1);
        check(&[Outcome { at: late, ..end(OutcomeKind::Unknown) }], 1, &[ViolationKind::Late]);
    }

    #[test]
    fn violation_names_its_call() {
        let mut call_log = CallLog::default();
        call_log.issue(DEADLINE);
        call_log.issue(DEADLINE);
        call_log.record_outcome(0, end(OutcomeKind::NotSent));
        let found = call_log.violations(&HashMap::new());
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["call 1 is missing: deadline 1s, run 0 times, []"]);
    }

    #[test]
    fn outcomes_are_counted_with_the_worst_lateness() {
        let mut call_log = CallLog::default();
        for kind in [OutcomeKind::Ok, OutcomeKind::Ok, OutcomeKind::Unknown] {
            let nonce = call_log.issue(DEADLINE);
            let at = if kind == OutcomeKind::Unknown { DEADLINE + GRACE } else { DEADLINE / 2 };
            call_log.record_outcome(nonce, Outcome { at, ..end(kind) });
        }
        let expected = HashMap::from([(OutcomeKind::Ok, 2), (OutcomeKind::Unknown, 1)]);
        assert_eq!((call_log.n_calls(), call_log.counts()), (3, expected));
        assert_eq!(call_log.worst_lateness(), GRACE);
    }
}
