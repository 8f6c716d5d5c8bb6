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
const LOGIN_WINDOW: Duration = Duration::from_mins(1);
/// Operations that are remembered. When there are more, all are forgotten but for the limit on logins.
const MAX_OPERATIONS: usize = 256;
/// A token that is older than this was good for something.
const MIN_TOKEN_AGE: Duration = Duration::from_secs(10);

/// The method of a message and what it was about.
pub(crate) type Operation = (String, Option<String>);

/// What has been tried at one server.
#[derive(Debug, Default)]
pub(crate) struct AttemptLimiter {
    operations: HashMap<Operation, OperationAttempts>,
    logins: VecDeque<Instant>,
}

#[derive(Debug, Default)]
struct OperationAttempts {
    /// The token that was got because this operation was refused, and when.
    obtained: Option<(Authorization, Instant)>,
    step_ups: u32,
}

impl AttemptLimiter {
    /// True if `refused` was got for this very operation a moment ago: the next would be refused too.
    pub(crate) fn is_exhausted(
        &self,
        operation: &Operation,
        refused: Option<&Authorization>,
        (now, lifetime): (Instant, Option<Duration>),
    ) -> bool {
        let obtained =
            self.operations.get(operation).and_then(|attempts| attempts.obtained.as_ref());
        let min_age = lifetime.map_or(MIN_TOKEN_AGE, |lifetime| MIN_TOKEN_AGE.min(lifetime / 2));
        obtained.is_some_and(|(token, at)| {
            Some(token) == refused && now.saturating_duration_since(*at) < min_age
        })
    }

    /// Notes what was got for an operation.
    pub(crate) fn record_token(
        &mut self,
        operation: &Operation,
        token: Authorization,
        now: Instant,
    ) {
        self.attempts_of(operation).obtained = Some((token, now));
    }

    /// Takes one of the step-ups that an operation has. `false` if it has none left.
    pub(crate) fn allow_step_up(&mut self, operation: &Operation) -> bool {
        let attempts = self.attempts_of(operation);
        attempts.step_ups += 1;
        attempts.step_ups <= MAX_STEP_UPS
    }

    /// Takes one of the logins that a while has. `false` if it has none left.
    pub(crate) fn allow_login(&mut self, now: Instant) -> bool {
        self.logins.retain(|at| now.saturating_duration_since(*at) < LOGIN_WINDOW);
        if self.logins.len() >= MAX_LOGINS {
            return false;
        }
        self.logins.push_back(now);
        true
    }

    /// Forgets everything: somebody has asked for a login.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    fn attempts_of(&mut self, operation: &Operation) -> &mut OperationAttempts {
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
        let mut attempts = AttemptLimiter::default();
        attempts.record_token(&operation("a"), one.clone(), start);
        let check = |name: &str, refused: Option<&Authorization>, after, lifetime, expected| {
            let when = (start + Duration::from_millis(after), lifetime);
            assert_eq!(attempts.is_exhausted(&operation(name), refused, when), expected);
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
        let mut attempts = AttemptLimiter::default();
        let mut step_up = |name| attempts.allow_step_up(&operation(name));
        assert_eq!(
            [step_up("a"), step_up("a"), step_up("a"), step_up("a")],
            [true, true, false, false]
        );
        assert!(step_up("b"));
    }

    #[tokio::test(start_paused = true)]
    async fn logins_are_counted_for_a_while() {
        let mut attempts = AttemptLimiter::default();
        let start = Instant::now();
        let allowed: Vec<bool> = (0..7).map(|_| attempts.allow_login(start)).collect();
        assert_eq!(allowed, [true, true, true, true, true, false, false]);
        assert!(!attempts.allow_login(start + LOGIN_WINDOW - Duration::from_secs(1)));
        assert!(attempts.allow_login(start + LOGIN_WINDOW));
        attempts.reset();
        assert!(attempts.allow_login(start));
    }

    #[test]
    fn memory_is_bounded() {
        let mut attempts = AttemptLimiter::default();
        for n in 0..10_000 {
            attempts.allow_step_up(&operation(&n.to_string()));
        }
        assert!(attempts.operations.len() <= MAX_OPERATIONS);
    }
}
