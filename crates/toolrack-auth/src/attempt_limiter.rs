//! What has been tried in vain, so that nobody is sent to a login page again and again.
//!
//! **Invariant:** every server that keeps saying no is asked a bounded number of times, for each operation and in
//! all.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;
use toolrack_transport::Authorization;

/// Protocol facts §20.4: three attempts in all, and the first was the login itself.
const MAX_STEP_UPS: u32 = 2;
/// Logins that nobody asked for, within a while.
const MAX_LOGINS: usize = 5;
const WHILE: Duration = Duration::from_mins(1);
/// Operations that are remembered. When there are more, all are forgotten but for the limit on logins.
const MAX_OPERATIONS: usize = 256;
/// A token that is older than this was good for something.
const MAX_YOUTH: Duration = Duration::from_secs(10);

/// The method of a message and what it was about.
pub(crate) type Operation = (String, Option<String>);

/// What has been tried at one server.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    operations: HashMap<Operation, Tries>,
    logins: VecDeque<Instant>,
}

#[derive(Debug, Default)]
struct Tries {
    /// The token that was got because this operation was refused, and when.
    got: Option<(Authorization, Instant)>,
    step_ups: u32,
}

impl Attempts {
    /// True if `refused` was got for this very operation a moment ago: the next would be refused too.
    pub(crate) fn is_in_vain(
        &self,
        operation: &Operation,
        refused: Option<&Authorization>,
        (now, lifetime): (Instant, Option<Duration>),
    ) -> bool {
        let got = self.operations.get(operation).and_then(|it| it.got.as_ref());
        let youth = lifetime.map_or(MAX_YOUTH, |it| MAX_YOUTH.min(it / 2));
        got.is_some_and(|(token, at)| {
            Some(token) == refused && now.saturating_duration_since(*at) < youth
        })
    }

    /// Notes what was got for an operation.
    pub(crate) fn got(&mut self, operation: &Operation, token: Authorization, now: Instant) {
        self.tries(operation).got = Some((token, now));
    }

    /// Takes one of the step-ups that an operation has. `false` if it has none left.
    pub(crate) fn step_up(&mut self, operation: &Operation) -> bool {
        let tries = self.tries(operation);
        tries.step_ups += 1;
        tries.step_ups <= MAX_STEP_UPS
    }

    /// Takes one of the logins that a while has. `false` if it has none left.
    pub(crate) fn log_in(&mut self, now: Instant) -> bool {
        self.logins.retain(|at| now.saturating_duration_since(*at) < WHILE);
        if self.logins.len() >= MAX_LOGINS {
            return false;
        }
        self.logins.push_back(now);
        true
    }

    /// Forgets everything: somebody has asked for a login.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    fn tries(&mut self, operation: &Operation) -> &mut Tries {
        if self.operations.len() >= MAX_OPERATIONS && !self.operations.contains_key(operation) {
            self.operations.clear();
        }
        self.operations.entry(operation.clone()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(name: &str) -> Operation {
        ("tools/call".to_owned(), Some(name.to_owned()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_was_refused_at_once_is_not_replaced_again() {
        let (one, other) = (Authorization::bearer("1"), Authorization::bearer("2"));
        let start = Instant::now();
        let mut attempts = Attempts::default();
        attempts.got(&operation("a"), one.clone(), start);
        let check = |name: &str, refused: Option<&Authorization>, after, lifetime, expected| {
            let when = (start + Duration::from_millis(after), lifetime);
            assert_eq!(attempts.is_in_vain(&operation(name), refused, when), expected);
        };
        check("a", Some(&one), 0, None, true);
        check("a", Some(&one), 9_999, None, true);
        check("a", Some(&one), 10_000, None, false);
        check("a", Some(&one), 99, Some(Duration::from_millis(200)), true);
        check("a", Some(&one), 100, Some(Duration::from_millis(200)), false);
        check("a", Some(&other), 0, None, false);
        check("a", None, 0, None, false);
        check("b", Some(&one), 0, None, false);
    }

    #[test]
    fn step_ups_are_counted_for_each_operation() {
        let mut attempts = Attempts::default();
        let mut step_up = |name| attempts.step_up(&operation(name));
        assert_eq!(
            [step_up("a"), step_up("a"), step_up("a"), step_up("a")],
            [true, true, false, false]
        );
        assert!(step_up("b"));
    }

    #[tokio::test(start_paused = true)]
    async fn logins_are_counted_for_a_while() {
        let mut attempts = Attempts::default();
        let start = Instant::now();
        let allowed: Vec<bool> = (0..7).map(|_| attempts.log_in(start)).collect();
        assert_eq!(allowed, [true, true, true, true, true, false, false]);
        assert!(!attempts.log_in(start + WHILE - Duration::from_secs(1)));
        assert!(attempts.log_in(start + WHILE));
        attempts.forget();
        assert!(attempts.log_in(start));
    }

    #[test]
    fn memory_is_bounded() {
        let mut attempts = Attempts::default();
        for n in 0..10_000 {
            attempts.step_up(&operation(&n.to_string()));
        }
        assert!(attempts.operations.len() <= MAX_OPERATIONS);
    }
}
