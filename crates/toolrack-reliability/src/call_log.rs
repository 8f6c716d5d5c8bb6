//! The ledger of calls: what was issued, what became of it, and whether the servers' journals agree.
//!
//! **Invariant:** nothing here knows a clock or a line. Times are counted from the start of the batch.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

/// What may be late beyond a deadline, because a machine is busy.
pub(crate) const GRACE: Duration = Duration::from_millis(250);

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A result came. The nonce in it is told apart in [`Outcome::echoed`].
    Ok,
    /// The server answered, and not with a result.
    Answered,
    /// No byte of it left.
    NotSent,
    /// It left, or a part of it did, and no answer came.
    Unknown,
}

/// The end of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) kind: Kind,
    pub(crate) at: Duration,
    /// The nonce in the result, if there was one.
    pub(crate) echoed: Option<u64>,
}

/// All calls of one batch. Nonces are places in it.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    calls: Vec<Call>,
}

#[derive(Debug)]
struct Call {
    deadline: Duration,
    outcomes: Vec<Outcome>,
}

/// What is wrong with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// It has no outcome.
    Missing,
    /// It has more than one.
    Double,
    /// It was given somebody else's result.
    CrossWired,
    /// Its result is no result of such a call.
    Mangled,
    /// It was run more than once.
    Repeated,
    /// It was answered, and nobody ran it.
    Invented,
    /// It was said not to have been sent, and it was run.
    Leaked,
    /// Its outcome came after its deadline and the grace.
    Late,
}

impl Fault {
    pub(crate) const ALL: [Self; 8] = [
        Self::Missing,
        Self::Double,
        Self::CrossWired,
        Self::Mangled,
        Self::Repeated,
        Self::Invented,
        Self::Leaked,
        Self::Late,
    ];

    /// Its name among the figures.
    pub(crate) fn figure(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Double => "double",
            Self::CrossWired => "cross_wired",
            Self::Mangled => "mangled",
            Self::Repeated => "executed_twice",
            Self::Invented => "answered_unexecuted",
            Self::Leaked => "not_sent_executed",
            Self::Late => "late",
        }
    }
}

/// A call that is not as promised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) nonce: u64,
    pub(crate) fault: Fault,
    detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {} is {}: {}", self.nonce, self.fault.figure(), self.detail)
    }
}

impl Ledger {
    /// Notes a call before it is made, and gives its nonce.
    pub(crate) fn issue(&mut self, deadline: Duration) -> u64 {
        self.calls.push(Call { deadline, outcomes: Vec::new() });
        self.calls.len() as u64 - 1
    }

    /// Notes how a call ended.
    pub(crate) fn settle(&mut self, nonce: u64, outcome: Outcome) {
        let call = usize::try_from(nonce).ok().and_then(|place| self.calls.get_mut(place));
        if let Some(call) = call {
            call.outcomes.push(outcome);
        }
    }

    pub(crate) fn n_calls(&self) -> usize {
        self.calls.len()
    }

    /// How many calls ended in each way.
    pub(crate) fn counts(&self) -> HashMap<Kind, u64> {
        let mut counts = HashMap::new();
        for outcome in self.calls.iter().flat_map(|call| &call.outcomes) {
            *counts.entry(outcome.kind).or_default() += 1;
        }
        counts
    }

    /// By how much outcomes came after their deadlines, at most.
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

    /// Every call that is not as promised. `executions` says how often each nonce was run.
    pub(crate) fn violations(&self, executions: &HashMap<u64, u64>) -> Vec<Violation> {
        let mut found = Vec::new();
        for (nonce, call) in (0..).zip(&self.calls) {
            let n_runs = executions.get(&nonce).copied().unwrap_or_default();
            let faults = call.faults(nonce, n_runs);
            found.extend(faults.into_iter().map(|fault| {
                let Call { deadline, outcomes } = call;
                let detail = format!("deadline {deadline:?}, run {n_runs} times, {outcomes:?}");
                Violation { nonce, fault, detail }
            }));
        }
        found
    }
}

impl Call {
    fn faults(&self, nonce: u64, n_runs: u64) -> Vec<Fault> {
        let mut faults = Vec::new();
        let any = |is_so: &dyn Fn(&Outcome) -> bool| self.outcomes.iter().any(is_so);
        let answered = |value: &Outcome| matches!(value.kind, Kind::Ok | Kind::Answered);
        match self.outcomes.len() {
            0 => faults.push(Fault::Missing),
            1 => {}
            _ => faults.push(Fault::Double),
        }
        if any(&|value| value.echoed.is_some_and(|echoed| echoed != nonce)) {
            faults.push(Fault::CrossWired);
        }
        if any(&|value| value.kind == Kind::Ok && value.echoed.is_none()) {
            faults.push(Fault::Mangled);
        }
        if n_runs > 1 {
            faults.push(Fault::Repeated);
        }
        if n_runs == 0 && any(&answered) {
            faults.push(Fault::Invented);
        }
        if n_runs > 0 && any(&|value| value.kind == Kind::NotSent) {
            faults.push(Fault::Leaked);
        }
        if any(&|value| value.at > self.deadline + GRACE) {
            faults.push(Fault::Late);
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(1);

    fn end(kind: Kind) -> Outcome {
        let echoed = (kind == Kind::Ok).then_some(0);
        Outcome { kind, at: DEADLINE, echoed }
    }

    /// One call with these outcomes that was run so often has these faults.
    #[track_caller]
    fn check(outcomes: &[Outcome], n_runs: u64, expected: &[Fault]) {
        let mut ledger = Ledger::default();
        let nonce = ledger.issue(DEADLINE);
        for outcome in outcomes {
            ledger.settle(nonce, outcome.clone());
        }
        let found = ledger.violations(&HashMap::from([(nonce, n_runs)]));
        let faults: Vec<Fault> = found.iter().map(|found| found.fault).collect();
        assert_eq!(faults, expected, "{outcomes:?} run {n_runs} times");
    }

    #[test]
    fn what_may_happen_is_no_violation() {
        check(&[end(Kind::Ok)], 1, &[]);
        check(&[end(Kind::Answered)], 1, &[]);
        check(&[end(Kind::NotSent)], 0, &[]);
        check(&[end(Kind::Unknown)], 0, &[]);
        check(&[end(Kind::Unknown)], 1, &[]);
    }

    #[test]
    fn every_call_has_exactly_one_outcome() {
        check(&[], 0, &[Fault::Missing]);
        check(&[], 1, &[Fault::Missing]);
        check(&[end(Kind::Ok), end(Kind::Unknown)], 1, &[Fault::Double]);
    }

    #[test]
    fn a_result_belongs_to_its_call() {
        check(&[Outcome { echoed: Some(1), ..end(Kind::Ok) }], 1, &[Fault::CrossWired]);
        check(&[Outcome { echoed: None, ..end(Kind::Ok) }], 1, &[Fault::Mangled]);
    }

    #[test]
    fn nothing_is_run_twice() {
        check(&[end(Kind::Ok)], 2, &[Fault::Repeated]);
        check(&[end(Kind::Unknown)], 2, &[Fault::Repeated]);
    }

    #[test]
    fn an_answer_was_run_and_what_was_not_sent_was_not() {
        check(&[end(Kind::Ok)], 0, &[Fault::Invented]);
        check(&[end(Kind::Answered)], 0, &[Fault::Invented]);
        check(&[end(Kind::NotSent)], 1, &[Fault::Leaked]);
    }

    #[test]
    fn an_outcome_is_late_only_after_the_grace() {
        check(&[Outcome { at: DEADLINE + GRACE, ..end(Kind::Unknown) }], 1, &[]);
        let late = DEADLINE + GRACE + Duration::from_nanos(1);
        check(&[Outcome { at: late, ..end(Kind::Unknown) }], 1, &[Fault::Late]);
    }

    #[test]
    fn a_violation_names_its_call() {
        let mut ledger = Ledger::default();
        ledger.issue(DEADLINE);
        ledger.issue(DEADLINE);
        ledger.settle(0, end(Kind::NotSent));
        let found = ledger.violations(&HashMap::new());
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["call 1 is missing: deadline 1s, run 0 times, []"]);
    }

    #[test]
    fn outcomes_are_counted_and_the_latest_is_known() {
        let mut ledger = Ledger::default();
        for kind in [Kind::Ok, Kind::Ok, Kind::Unknown] {
            let nonce = ledger.issue(DEADLINE);
            let at = if kind == Kind::Unknown { DEADLINE + GRACE } else { DEADLINE / 2 };
            ledger.settle(nonce, Outcome { at, ..end(kind) });
        }
        let expected = HashMap::from([(Kind::Ok, 2), (Kind::Unknown, 1)]);
        assert_eq!((ledger.n_calls(), ledger.counts()), (3, expected));
        assert_eq!(ledger.worst_lateness(), GRACE);
    }
}
