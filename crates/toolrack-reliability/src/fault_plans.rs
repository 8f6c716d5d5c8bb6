//! Fault plans of G04 as data: the server's faults, the requests, and the expected outcomes.
//!
//! **Invariant:** a plan states the expected outcome of every step, so a wrong outcome on time is a failure too.

mod table;

use toolrack_transport::{ExitStatus, RawJson, RequestError, TransportError};

pub(crate) use table::PLANS;

/// One server and the requests to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    /// The rows of the fault table that it covers.
    pub(crate) faults: &'static str,
    /// Argument of `scripted-server --plan`.
    pub(crate) script: &'static str,
    /// A plan that does not begin with `initialize` gets one that must succeed.
    pub(crate) steps: &'static [Step],
    pub(crate) weight: Weight,
    /// The number of `notifications/cancelled` that the server must receive, where the plan checks it.
    pub(crate) n_cancelled: Option<usize>,
}

/// Whether a plan mostly waits or mostly computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Many light plans run at the same time.
    Light,
    /// Takes a whole core, so it runs alone.
    Heavy,
}

/// A request and its expected outcome.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) action: Action,
    pub(crate) expected: Expected,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Initialize,
    /// Concurrent calls, each with an argument of about this size.
    Call {
        n_calls: usize,
        bytes: usize,
    },
    /// One page of `tools/list`.
    List,
}

/// Outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// The result of this very call.
    Echo,
    /// Any result.
    Result,
    Timeout,
    Exited(ExitStatus),
    /// The server is gone; its exit or the end of its output may be seen first.
    Gone,
    OutputClosed,
    InputClosed,
    Refused(i64),
    Malformed,
    Oversize,
}

/// Observed outcome of a step, or the text of any other error.
pub(crate) type Observation = Result<Expected, String>;

/// Names an outcome. `is_echo` decides whether a result belongs to the call.
pub(crate) fn observe(
    outcome: &Result<RawJson, RequestError>,
    is_echo: impl FnOnce(&RawJson) -> bool,
) -> Observation {
    let failure = match outcome {
        Ok(result) if is_echo(result) => return Ok(Expected::Echo),
        Ok(_) => return Ok(Expected::Result),
        Err(failure) => failure,
    };
    Ok(match &failure.error {
        TransportError::Timeout(_) => Expected::Timeout,
        TransportError::ProcessExited(server) => Expected::Exited(server.status),
        TransportError::StdoutNotAvailable => Expected::OutputClosed,
        TransportError::StdinNotAvailable => Expected::InputClosed,
        TransportError::JsonRpc(error) => Expected::Refused(error.code),
        TransportError::Parse(_) => Expected::Malformed,
        TransportError::Oversize { .. } => Expected::Oversize,
        other => return Err(other.to_string()),
    })
}

impl Expected {
    pub(crate) fn matches_outcome(self, seen: &Observation) -> bool {
        match (self, seen) {
            (Self::Result, Ok(Self::Echo))
            | (Self::Gone, Ok(Self::Exited(_) | Self::OutputClosed)) => true,
            (expected, seen) => *seen == Ok(expected),
        }
    }
}

impl Plan {
    /// Whether the plan begins with its own `initialize` step.
    pub(crate) fn initializes_itself(&self) -> bool {
        self.steps.first().is_some_and(|step| step.action == Action::Initialize)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use toolrack_transport::JsonRpcError;
    use toolrack_transport::ProcessExit;

    use super::*;

    #[test]
    fn plans_have_unique_names_and_steps() {
        let names: BTreeSet<&str> = PLANS.iter().map(|plan| plan.name).collect();
        assert_eq!(names.len(), PLANS.len());
        assert!(PLANS.len() >= 40, "{} plans", PLANS.len());
        for plan in PLANS {
            assert!(!plan.steps.is_empty() && plan.faults.starts_with('F'), "{plan:?}");
        }
    }

    #[test]
    fn every_fault_of_a_stdio_server_has_a_plan() {
        let covered: BTreeSet<u32> = PLANS
            .iter()
            .flat_map(|plan| plan.faults.split_whitespace())
            .filter_map(|fault| fault.strip_prefix('F')?.parse().ok())
            .collect();
        // Own stdout (39), retries (45), exhausted ids (50) and locks (59) are not server behavior; progress (44),
        // duplicate keys (52) and schemas (63) are tested where they are parsed.
        let not_ours = [39, 44, 45, 50, 52, 59, 63];
        let expected: BTreeSet<u32> =
            (21..=62).filter(|number| !not_ours.contains(number)).collect();
        let missing: Vec<&u32> = expected.difference(&covered).collect();
        assert!(missing.is_empty(), "no plan for {missing:?}");
    }

    /// Exactly these expectations match the outcome.
    #[track_caller]
    fn check(outcome: Result<RawJson, RequestError>, admitting: &[Expected]) {
        let all = [
            Expected::Echo,
            Expected::Result,
            Expected::Timeout,
            Expected::Exited(ExitStatus::Code(3)),
            Expected::Gone,
            Expected::OutputClosed,
            Expected::InputClosed,
            Expected::Refused(-32601),
            Expected::Malformed,
            Expected::Oversize,
        ];
        let seen = observe(&outcome, |result| *result != RawJson::NULL);
        let found: Vec<Expected> =
            all.into_iter().filter(|expected| expected.matches_outcome(&seen)).collect();
        assert_eq!(found, admitting, "{seen:?}");
    }

    #[test]
    fn only_the_expected_outcome_matches() {
        let failed = |error| Err(RequestError::unknown(error));
        let exited =
            |exit| TransportError::ProcessExited(ProcessExit { status: exit, stderr: [].into() });
        let refused = |code| TransportError::from(JsonRpcError::new(code, "no"));
        check(Ok(RawJson::new("{}")), &[Expected::Echo, Expected::Result]);
        check(Ok(RawJson::NULL), &[Expected::Result]);
        check(failed(TransportError::Timeout(5)), &[Expected::Timeout]);
        let gone = [Expected::Exited(ExitStatus::Code(3)), Expected::Gone];
        check(failed(exited(ExitStatus::Code(3))), &gone);
        check(failed(exited(ExitStatus::Signal(9))), &[Expected::Gone]);
        let closed = [Expected::Gone, Expected::OutputClosed];
        check(failed(TransportError::StdoutNotAvailable), &closed);
        check(failed(TransportError::StdinNotAvailable), &[Expected::InputClosed]);
        check(failed(refused(-32601)), &[Expected::Refused(-32601)]);
        check(failed(refused(-1)), &[]);
        check(failed(TransportError::Parse("odd".to_owned())), &[Expected::Malformed]);
        check(failed(TransportError::Oversize { limit_bytes: 1 }), &[Expected::Oversize]);
        check(failed(TransportError::Shutdown), &[]);
    }
}
