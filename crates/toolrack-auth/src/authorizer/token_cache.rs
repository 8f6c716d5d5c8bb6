//! In-memory token cache, read for every request.

use std::time::Duration;

use parking_lot::Mutex;
use toolrack_transport::{Authorization, CachedCredential};

use crate::grants::now;
use crate::stored_credentials::StoredGrant;

/// The current token, if any.
#[derive(Debug, Default)]
pub(super) struct TokenCache(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    NotLoaded,
    Empty,
    Token(Box<CachedToken>),
}

/// A token, with counters of its use.
#[derive(Debug)]
struct CachedToken {
    token: Authorization,
    grant: StoredGrant,
    /// How often it was sent, and how often it was rejected. If both are equal, it never worked.
    n_sent: u64,
    n_rejected: u64,
}

impl TokenCache {
    /// The credential to send now. A stale token is not sent.
    pub(super) fn credential(&self, leeway: Duration) -> CachedCredential {
        match &mut *self.0.lock() {
            State::NotLoaded => CachedCredential::Obtain,
            State::Empty => CachedCredential::None,
            State::Token(cached) if cached.grant.is_stale(now(), leeway) => {
                CachedCredential::Obtain
            }
            State::Token(cached) => {
                cached.n_sent += 1;
                CachedCredential::Ready(cached.token.clone())
            }
        }
    }

    pub(super) fn set(&self, grant: &StoredGrant) {
        let token = grant.authorization();
        let mut state = self.0.lock();
        // The same token keeps its counters; reset ones would hide that it never worked.
        if !matches!(&*state, State::Token(cached) if cached.token == token) {
            let cached = CachedToken { token, grant: grant.clone(), n_sent: 0, n_rejected: 0 };
            *state = State::Token(Box::new(cached));
        }
    }

    pub(super) fn clear(&self) {
        *self.0.lock() = State::Empty;
    }

    /// Counts a rejection of the token. True if it never worked.
    pub(super) fn record_rejection(&self) -> bool {
        match &mut *self.0.lock() {
            State::Token(cached) => {
                cached.n_rejected += 1;
                cached.n_rejected >= cached.n_sent
            }
            State::NotLoaded | State::Empty => false,
        }
    }

    pub(super) fn token(&self) -> Option<Authorization> {
        self.grant().map(|grant| grant.authorization())
    }

    /// The grant of the token.
    pub(super) fn grant(&self) -> Option<StoredGrant> {
        match &*self.0.lock() {
            State::Token(cached) => Some(cached.grant.clone()),
            State::NotLoaded | State::Empty => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored_credentials::tests::grant;

    #[test]
    fn token_never_worked_until_a_use_is_not_rejected() {
        let cache = TokenCache::default();
        assert_eq!(cache.credential(Duration::ZERO), CachedCredential::Obtain);
        assert!(!cache.record_rejection());
        cache.set(&grant(0, None));
        let token = Authorization::bearer("acc3ss");
        assert_eq!(cache.credential(Duration::ZERO), CachedCredential::Ready(token.clone()));
        assert!(cache.record_rejection());
        // Setting the same token again keeps the counters.
        cache.set(&grant(0, None));
        assert_eq!(cache.credential(Duration::ZERO), CachedCredential::Ready(token.clone()));
        assert_eq!(cache.credential(Duration::ZERO), CachedCredential::Ready(token));
        assert!(!cache.record_rejection());
        cache.clear();
        assert_eq!(cache.credential(Duration::ZERO), CachedCredential::None);
    }

    #[test]
    fn stale_token_is_not_sent() {
        let cache = TokenCache::default();
        cache.set(&grant(0, Some(1_000)));
        assert_eq!(cache.credential(Duration::ZERO), CachedCredential::Obtain);
        assert_eq!(cache.grant().and_then(|grant| grant.lifetime()), Some(Duration::from_secs(1)));
        assert!(cache.token().is_some());
    }
}
