//! State of the authorization servers: clients, codes, tokens and counters.
//!
//! **Invariant:** a refresh token works once, and a second use revokes every token of its login.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Role;
use crate::harness::now;

/// Counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stats {
    /// Registered clients.
    pub registrations: u32,
    /// Authorization page visits.
    pub logins: u32,
    /// Codes exchanged for tokens.
    pub codes: u32,
    /// Successful refreshes.
    pub refreshes: u32,
    /// Refreshes while the access token was still valid.
    pub early_refreshes: u32,
    /// Requests rejected because of an invalid code or refresh token.
    pub invalid_grants: u32,
    /// Tokens without user interaction: client credentials and identity assertions.
    #[serde(rename = "without_person")]
    pub non_interactive: u32,
    /// Accepted calls.
    pub calls: u32,
    /// Rejected calls.
    #[serde(rename = "rebuffs")]
    pub rejections: u32,
}

/// A registered client.
#[derive(Debug, Clone, Default)]
pub(crate) struct Client {
    pub(crate) secret: Option<String>,
    pub(crate) redirect_uris: Vec<String>,
    pub(crate) method: Option<String>,
}

/// Grant of a code or token.
#[derive(Debug, Clone)]
pub(crate) struct Grant {
    pub(crate) role: Role,
    pub(crate) client_id: String,
    pub(crate) scope: String,
    pub(crate) resource: String,
}

#[derive(Debug, Clone)]
pub(crate) struct AuthorizationCode {
    pub(crate) grant: Grant,
    pub(crate) redirect_uri: String,
    pub(crate) challenge: String,
}

#[derive(Debug)]
struct AccessToken {
    grant: Grant,
    login: u64,
    expires_at: Instant,
}

#[derive(Debug)]
struct RefreshToken {
    grant: Grant,
    login: u64,
    access: String,
    is_used: bool,
}

/// State of the authorization servers.
#[derive(Debug, Default)]
pub(crate) struct TokenStore {
    pub(crate) stats: Stats,
    pub(crate) clients: HashMap<(Role, String), Client>,
    /// A code works once.
    pub(crate) codes: HashMap<String, AuthorizationCode>,
    access: HashMap<String, AccessToken>,
    refresh: HashMap<String, RefreshToken>,
    revoked_logins: HashSet<u64>,
    count: u64,
}

/// A pair of tokens.
#[derive(Debug)]
pub(crate) struct TokenPair {
    pub(crate) access: String,
    pub(crate) refresh: Option<String>,
    pub(crate) scope: String,
}

/// What becomes of refresh tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rotation {
    /// There are none.
    None,
    /// They stay valid.
    Keep,
    /// A refresh replaces them.
    Rotate,
}

impl TokenStore {
    pub(crate) fn new(clients: &[(String, String)]) -> Self {
        let mut store = Self::default();
        for (id, secret) in clients {
            let secret = Some(secret.clone()).filter(|secret| !secret.is_empty());
            let client = Client { secret, ..Client::default() };
            store.clients.insert((Role::First, id.clone()), client);
        }
        store
    }

    /// Returns a new unique value. Test tokens may be guessable, but must be easy to find in output.
    pub(crate) fn unique_value(&mut self, what: &str) -> String {
        self.count += 1;
        format!("{what}-s3cret-{}", self.count)
    }

    pub(crate) fn insert_code(&mut self, code: AuthorizationCode) -> String {
        let name = self.unique_value("code");
        self.codes.insert(name.clone(), code);
        name
    }

    /// Issues the tokens of a new login.
    pub(crate) fn issue(
        &mut self,
        grant: Grant,
        lifetime: Duration,
        rotation: Rotation,
    ) -> TokenPair {
        self.count += 1;
        let login = self.count;
        self.issue_pair(grant, login, lifetime, rotation)
    }

    fn issue_pair(
        &mut self,
        grant: Grant,
        login: u64,
        lifetime: Duration,
        rotation: Rotation,
    ) -> TokenPair {
        let access = self.unique_value("access");
        let scope = grant.scope.clone();
        let refresh = (rotation != Rotation::None).then(|| {
            let name = self.unique_value("refresh");
            let (grant, access) = (grant.clone(), access.clone());
            let entry = RefreshToken { grant, login, access, is_used: false };
            self.refresh.insert(name.clone(), entry);
            name
        });
        let expires_at = now() + lifetime;
        self.access.insert(access.clone(), AccessToken { grant, login, expires_at });
        TokenPair { access, refresh, scope }
    }

    /// Issues the next tokens of a login. Revokes the login and returns `None` if the token is reused or belongs to
    /// another client. Without rotation the token stays valid.
    pub(crate) fn refresh_login(
        &mut self,
        token: &str,
        (role, client_id): (Role, &str),
        lifetime: Duration,
        rotation: Rotation,
    ) -> Option<TokenPair> {
        let entry = self.refresh.get_mut(token)?;
        let login = entry.login;
        let matches = entry.grant.role == role && entry.grant.client_id == client_id;
        if !matches || entry.is_used || self.revoked_logins.contains(&login) {
            self.revoked_logins.insert(login);
            return None;
        }
        entry.is_used = rotation == Rotation::Rotate;
        let rotation = if entry.is_used { rotation } else { Rotation::None };
        let (grant, old) = (entry.grant.clone(), entry.access.clone());
        self.stats.refreshes += 1;
        if self.access.get(&old).is_some_and(|token| now() < token.expires_at) {
            self.stats.early_refreshes += 1;
        }
        let pair = self.issue_pair(grant, login, lifetime, rotation);
        if let Some(entry) = self.refresh.get_mut(token) {
            entry.access.clone_from(&pair.access);
        }
        Some(pair)
    }

    /// Grant of a valid access token.
    pub(crate) fn grant(&self, access: &str) -> Option<&Grant> {
        let entry = self.access.get(access)?;
        let good = now() < entry.expires_at && !self.revoked_logins.contains(&entry.login);
        good.then_some(&entry.grant)
    }

    pub(crate) fn expire_all(&mut self) {
        let now = now();
        for entry in self.access.values_mut() {
            entry.expires_at = now;
        }
    }

    pub(crate) fn revoke_all(&mut self) {
        let logins: Vec<u64> = self.access.values().map(|token| token.login).collect();
        self.revoked_logins.extend(logins);
    }

    /// Revokes the login of an access or refresh token.
    pub(crate) fn revoke(&mut self, token: &str) {
        let refresh = self.refresh.get(token).map(|entry| entry.login);
        let login = refresh.or_else(|| self.access.get(token).map(|entry| entry.login));
        self.revoked_logins.extend(login);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_mins(1);

    fn grant() -> Grant {
        let (client_id, scope, resource) = ("c".to_owned(), "s".to_owned(), "r".to_owned());
        Grant { role: Role::First, client_id, scope, resource }
    }

    #[test]
    fn reused_refresh_token_revokes_the_login() {
        let mut store = TokenStore::default();
        let who = (Role::First, "c");
        let first = store.issue(grant(), LIFETIME, Rotation::Rotate);
        let token = first.refresh.unwrap();
        let second = store.refresh_login(&token, who, LIFETIME, Rotation::Rotate).unwrap();
        assert!(store.grant(&second.access).is_some());
        assert!(store.refresh_login(&token, who, LIFETIME, Rotation::Rotate).is_none());
        assert!(store.grant(&second.access).is_none());
        assert!(
            store
                .refresh_login(&second.refresh.unwrap(), who, LIFETIME, Rotation::Rotate)
                .is_none()
        );
        assert_eq!((store.stats.refreshes, store.stats.early_refreshes), (1, 1));
    }

    #[test]
    fn refresh_of_an_expired_token_is_not_early() {
        let mut store = TokenStore::default();
        let pair = store.issue(grant(), Duration::ZERO, Rotation::Rotate);
        assert!(store.grant(&pair.access).is_none());
        store
            .refresh_login(&pair.refresh.unwrap(), (Role::First, "c"), LIFETIME, Rotation::Rotate)
            .unwrap();
        assert_eq!(store.stats.early_refreshes, 0);
    }

    #[test]
    fn other_client_cannot_refresh() {
        let mut store = TokenStore::default();
        let token = store.issue(grant(), LIFETIME, Rotation::Rotate).refresh.unwrap();
        assert!(
            store
                .refresh_login(&token, (Role::First, "other"), LIFETIME, Rotation::Rotate)
                .is_none()
        );
    }
}
