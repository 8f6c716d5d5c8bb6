//! What one killed server cost its callers, judged without a clock or a process.

use std::time::Duration;

use tokio::time::Instant;
use toolrack_transport::RawJson;
use toolrack_transport::{Delivery, Exit, LineError, ServerExit, TransportError};

/// Every call has its outcome this soon after the kill.
const OUTCOME_LIMIT: Duration = Duration::from_millis(100);

/// A system that takes longer to end a killed process is too busy to measure anything by.
const STARVED: Duration = Duration::from_millis(50);

/// What one kill came to.
#[derive(Debug, Default)]
pub(super) struct Toll {
    /// How long the system itself took to end the process.
    pub(super) dying: Duration,
    /// From the kill to the outcomes.
    pub(super) times: Vec<Duration>,
    pub(super) closing: Duration,
    /// Outcomes that came too late, and nothing else.
    pub(super) late: Vec<String>,
    /// Everything else.
    pub(super) failures: Vec<String>,
}

/// The end of one call.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) issued: Instant,
    pub(super) at: Instant,
    pub(super) outcome: Result<RawJson, LineError>,
}

/// When the call was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    /// Long before the kill: it can only end in the death of the server.
    Before,
    /// At any time: it may also have found the door closed.
    Anytime,
}

impl Toll {
    pub(super) fn failed(what: String) -> Self {
        Self { failures: vec![what], ..Self::default() }
    }

    pub(super) fn add(&mut self, killed: Instant, made: Made, ended: Ended) {
        let Ended { issued, at, outcome } = ended;
        let (time, dying) = (at.saturating_duration_since(killed.max(issued)), self.dying);
        if time > OUTCOME_LIMIT {
            let what = format!("an outcome came {time:?} after the kill (dying took {dying:?})");
            self.late.push(what);
        }
        if !is_right(made, &outcome) {
            self.failures.push(format!("a call to a killed server ended in {outcome:?}"));
        }
        self.times.push(time);
    }

    /// How long the outcomes took from the death of the process, which is our own share.
    pub(super) fn own_share(&self) -> Duration {
        let latest = self.times.iter().max().copied().unwrap_or_default();
        latest.saturating_sub(self.dying)
    }

    /// Whether only the machine was too slow, so that the kill has to be tried again.
    pub(super) fn is_void(&self) -> bool {
        let on_time = self.own_share() <= OUTCOME_LIMIT && self.failures.is_empty();
        !self.late.is_empty() && self.dying > STARVED && on_time
    }
}

fn is_right(made: Made, outcome: &Result<RawJson, LineError>) -> bool {
    let Err(LineError { error, delivery }) = outcome else { return false };
    let by_kill =
        matches!(error, TransportError::ProcessExited(ServerExit { exit: Exit::Signal(9), .. }));
    match (made, delivery) {
        (Made::Before, delivery) => by_kill && *delivery == Delivery::Unknown,
        (Made::Anytime, Delivery::NotSent) => {
            by_kill || matches!(error, TransportError::StdinNotAvailable)
        }
        (Made::Anytime, _) => by_kill,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn exited(exit: Exit) -> TransportError {
        TransportError::ProcessExited(ServerExit { exit, stderr: [].into() })
    }

    fn killed_outcome() -> Result<RawJson, LineError> {
        Err(LineError::unknown(exited(Exit::Signal(9))))
    }

    #[track_caller]
    fn check(outcome: Result<RawJson, LineError>, expected: [bool; 2]) {
        let seen = [Made::Before, Made::Anytime].map(|made| is_right(made, &outcome));
        assert_eq!(seen, expected, "{outcome:?}");
    }

    #[test]
    fn only_the_kill_itself_is_the_right_outcome_of_a_waiting_call() {
        check(killed_outcome(), [true, true]);
        check(Err(LineError::not_sent(exited(Exit::Signal(9)))), [false, true]);
        check(Err(LineError::not_sent(TransportError::StdinNotAvailable)), [false, true]);
        check(Err(LineError::unknown(TransportError::StdinNotAvailable)), [false, false]);
        check(Err(LineError::not_sent(TransportError::Shutdown)), [false, false]);
        check(Err(LineError::unknown(exited(Exit::Unknown))), [false, false]);
        check(Err(LineError::unknown(exited(Exit::Signal(15)))), [false, false]);
        check(Err(LineError::unknown(TransportError::Timeout(1))), [false, false]);
        check(Ok(RawJson::NULL), [false, false]);
    }

    #[test]
    fn an_outcome_is_timed_from_the_kill_or_from_a_later_call() {
        let killed = Instant::now();
        let mut toll = Toll::default();
        for (issued, at) in [(killed - MS(500), MS(100)), (killed + MS(50), MS(151))] {
            let ended = Ended { issued, at: killed + at, outcome: killed_outcome() };
            toll.add(killed, Made::Before, ended);
        }
        assert_eq!(toll.times, [MS(100), MS(101)]);
        assert_eq!(toll.late, ["an outcome came 101ms after the kill (dying took 0ns)"]);
        assert_eq!(toll.failures, Vec::<String>::new());
    }

    /// The process took so long to die, and the outcome came so long after the kill.
    fn toll(dying: u64, outcome: u64) -> Toll {
        let killed = Instant::now();
        let mut toll = Toll { dying: MS(dying), ..Toll::default() };
        let at = killed + MS(outcome);
        toll.add(killed, Made::Before, Ended { issued: killed, at, outcome: killed_outcome() });
        toll
    }

    #[test]
    fn a_kill_is_tried_again_only_if_the_machine_alone_was_late() {
        let tolls = [(1, 90), (1, 110), (50, 110), (51, 110), (160, 260), (160, 261)];
        let void = tolls.map(|(dying, outcome)| toll(dying, outcome).is_void());
        assert_eq!(void, [false, false, false, true, true, false]);
        let wrong = Toll { failures: vec!["wrong".to_owned()], ..toll(51, 110) };
        assert!(!wrong.is_void(), "a wrong outcome is wrong on any machine");
    }
}
