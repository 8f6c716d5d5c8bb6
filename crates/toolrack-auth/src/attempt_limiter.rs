//! Limits repeated logins and step-ups, so that a server cannot open the login page again and again.
//!
//! **Invariant:** a server that keeps rejecting requests gets a bounded number of attempts, per operation and
//! in total.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;
use toolrack_transport::Authorization;

/// Protocol facts §20.4: three attempts in total, and the first is the login itself.
const MAX_STEP_UPS: u32 = 2;
/// Logins caused by challenges, per [`LOGIN_WINDOW`].
const MAX_LOGINS: usize = 5;
const LOGIN_WINDOW: Duration = Duration::from_mins(1);
/// Bound on memory. Beyond it all operations are forgotten, but not the logins.
const MAX_OPERATIONS: usize = 256;
/// A token rejected at a greater age has worked before.
const MIN_TOKEN_AGE: Duration = Duration::from_secs(10);

/// JSON-RPC method and `Mcp-Name`.
pub(crate) type Operation = (String, Option<String>);

/// Attempts at one server.
#[derive(Debug, Default)]
pub(crate) struct AttemptLimiter {
    operations: HashMap<Operation, OperationAttempts>,
    logins: VecDeque<Instant>,
}

#[derive(Debug, Default)]
struct OperationAttempts {
    /// The token obtained because this operation was rejected, and when.
    obtained: Option<(Authorization, Instant)>,
    step_ups: u32,
}

impl AttemptLimiter {
    /// Whether `rejected` was obtained for this operation a moment ago: the next token would be rejected too.
    pub(crate) fn is_exhausted(
        &self,
        operation: &Operation,
        rejected: Option<&Authorization>,
        (now, lifetime): (Instant, Option<Duration>),
    ) -> bool {
        let obtained =
            self.operations.get(operation).and_then(|attempts| attempts.obtained.as_ref());
        // A short-lived token expires soon in normal use, so the window shrinks with it.
        let min_age = lifetime.map_or(MIN_TOKEN_AGE, |lifetime| MIN_TOKEN_AGE.min(lifetime / 2));
        obtained.is_some_and(|(token, at)| {
            Some(token) == rejected && now.saturating_duration_since(*at) < min_age
        })
    }

    /// Records the token obtained for an operation.
    pub(crate) fn record_token(
        &mut self,
        operation: &Operation,
        token: Authorization,
        now: Instant,
    ) {
        self.attempts_of(operation).obtained = Some((token, now));
    }

    /// Counts a step-up of an operation. `false` if none is left.
    pub(crate) fn allow_step_up(&mut self, operation: &Operation) -> bool {
        let attempts = self.attempts_of(operation);
        attempts.step_ups += 1;
        attempts.step_ups <= MAX_STEP_UPS
    }

    /// Counts a login. `false` if none is left in the window.
    pub(crate) fn allow_login(&mut self, now: Instant) -> bool {
        self.logins.retain(|at| now.saturating_duration_since(*at) < LOGIN_WINDOW);
        if self.logins.len() >= MAX_LOGINS {
            return false;
        }
        self.logins.push_back(now);
        true
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
    async fn token_rejected_at_once_is_not_replaced_again() {
        let (one, other) = (Authorization::bearer("1"), Authorization::bearer("2"));
        let start = Instant::now();
        let mut attempts = AttemptLimiter::default();
        attempts.record_token(&operation("a"), one.clone(), start);
        let check = |name: &str, rejected: Option<&Authorization>, after, lifetime, expected| {
            let when = (start + Duration::from_millis(after), lifetime);
            assert_eq!(attempts.is_exhausted(&operation(name), rejected, when), expected);
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
    fn step_ups_are_limited_per_operation() {
        let mut attempts = AttemptLimiter::default();
        let mut step_up = |name| attempts.allow_step_up(&operation(name));
        assert_eq!(
            [step_up("a"), step_up("a"), step_up("a"), step_up("a")],
            [true, true, false, false]
        );
        assert!(step_up("b"));
    }

    #[tokio::test(start_paused = true)]
    async fn logins_are_limited_per_window() {
        let mut attempts = AttemptLimiter::default();
        let start = Instant::now();
        let allowed: Vec<bool> = (0..7).map(|_| attempts.allow_login(start)).collect();
        assert_eq!(allowed, [true, true, true, true, true, false, false]);
        assert!(!attempts.allow_login(start + LOGIN_WINDOW - Duration::from_secs(1)));
        assert!(attempts.allow_login(start + LOGIN_WINDOW));
        attempts = AttemptLimiter::default();
        assert!(attempts.allow_login(start));
    }

    #[test]
    fn attempt_memory_is_bounded() {
        let mut attempts = AttemptLimiter::default();
        for n in 0..10_000 {
            attempts.allow_step_up(&operation(&n.to_string()));
        }
        assert!(attempts.operations.len() <= MAX_OPERATIONS);
    }
}
