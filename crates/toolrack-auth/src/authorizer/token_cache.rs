//! What is known about a token without asking anybody.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use toolrack_transport::{AtHand, Authorization};

use crate::grants::now;
use crate::stored_credentials::GrantRecord;

/// What is at hand.
#[derive(Debug, Default)]
pub(super) struct Present(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Unread,
    Nothing,
    Held(Box<Held>),
}

/// A token and how it has done.
#[derive(Debug)]
struct Held {
    token: Authorization,
    grant: GrantRecord,
    /// How often it was handed out, and how often it came back refused. Both the same: it was good for nothing.
    n_handed_out: u64,
    n_refused: u64,
}

impl Present {
    /// What to send now; a token that is stale by its own word is not.
    pub(super) fn hand_out(&self, leeway: Duration) -> AtHand {
        match &mut *self.state() {
            State::Unread => AtHand::Ask,
            State::Nothing => AtHand::Nothing,
            State::Held(held) if held.grant.is_stale(now(), leeway) => AtHand::Ask,
            State::Held(held) => {
                held.n_handed_out += 1;
                AtHand::Ready(held.token.clone())
            }
        }
    }

    pub(super) fn adopt(&self, grant: &GrantRecord) {
        let token = Authorization::bearer(grant.access_token.reveal());
        let mut state = self.state();
        if !matches!(&*state, State::Held(held) if held.token == token) {
            let held = Held { token, grant: grant.clone(), n_handed_out: 0, n_refused: 0 };
            *state = State::Held(Box::new(held));
        }
    }

    pub(super) fn let_go(&self) {
        *self.state() = State::Nothing;
    }

    /// Takes note that the token at hand was refused. True if it was never good for anything.
    pub(super) fn is_useless(&self) -> bool {
        match &mut *self.state() {
            State::Held(held) => {
                held.n_refused += 1;
                held.n_refused >= held.n_handed_out
            }
            State::Unread | State::Nothing => false,
        }
    }

    pub(super) fn token(&self) -> Option<Authorization> {
        self.held(|it| it.token.clone())
    }

    pub(super) fn granted(&self) -> Option<Vec<String>> {
        self.held(|it| it.grant.granted.clone())
    }

    /// How long the token lives in all, if anybody has said so.
    pub(super) fn lifetime(&self) -> Option<Duration> {
        let (from, to) = self.held(|it| (it.grant.received_at, it.grant.expires_at))?;
        Some(Duration::from_millis(to?.saturating_sub(from)))
    }

    fn held<T>(&self, look: impl FnOnce(&Held) -> T) -> Option<T> {
        match &*self.state() {
            State::Held(held) => Some(look(held)),
            State::Unread | State::Nothing => None,
        }
    }

    // It is consistent between statements, so a panic elsewhere cannot have torn it.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored_credentials::tests::grant;

    #[test]
    fn a_token_is_useless_until_somebody_did_not_come_back() {
        let present = Present::default();
        assert_eq!(present.hand_out(Duration::ZERO), AtHand::Ask);
        assert!(!present.is_useless());
        present.adopt(&grant(0, None));
        let token = Authorization::bearer("acc3ss");
        assert_eq!(present.hand_out(Duration::ZERO), AtHand::Ready(token.clone()));
        assert!(present.is_useless());
        // The same again changes nothing about how it has done.
        present.adopt(&grant(0, None));
        assert_eq!(present.hand_out(Duration::ZERO), AtHand::Ready(token.clone()));
        assert_eq!(present.hand_out(Duration::ZERO), AtHand::Ready(token));
        assert!(!present.is_useless());
        present.let_go();
        assert_eq!(present.hand_out(Duration::ZERO), AtHand::Nothing);
    }

    #[test]
    fn what_is_stale_is_not_handed_out() {
        let present = Present::default();
        present.adopt(&grant(0, Some(1_000)));
        assert_eq!(present.hand_out(Duration::ZERO), AtHand::Ask);
        assert_eq!(present.lifetime(), Some(Duration::from_secs(1)));
        assert!(present.token().is_some());
    }
}
