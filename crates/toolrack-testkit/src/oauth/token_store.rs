//! What the authorization servers remember: clients, codes, tokens, and what has happened.
//!
//! **Invariant:** a refresh token works once, and a second use ends every token of its login.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Role;
use crate::timer::now;

/// What has happened so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stats {
    /// Clients that have registered.
    pub registrations: u32,
    /// Visits to the authorization page.
    pub logins: u32,
    /// Codes that became tokens.
    pub codes: u32,
    /// Refreshes that gave a token.
    pub refreshes: u32,
    /// Those of them that came while the token was still good.
    pub early_refreshes: u32,
    /// Refusals because a code or refresh token is no good.
    pub invalid_grants: u32,
    /// Tokens for programs, and for people whom a company vouches for.
    pub without_person: u32,
    /// Calls that were let in.
    pub calls: u32,
    /// Calls that were not.
    pub rebuffs: u32,
}

/// A client, as registered.
#[derive(Debug, Clone, Default)]
pub(crate) struct Client {
    pub(crate) secret: Option<String>,
    pub(crate) redirect_uris: Vec<String>,
    pub(crate) method: Option<String>,
}

/// What a token, or a code on its way to one, is for.
#[derive(Debug, Clone)]
pub(crate) struct Grant {
    pub(crate) role: Role,
    pub(crate) client_id: String,
    pub(crate) scope: String,
    pub(crate) resource: String,
}

#[derive(Debug, Clone)]
pub(crate) struct Code {
    pub(crate) grant: Grant,
    pub(crate) redirect_uri: String,
    pub(crate) challenge: String,
}

#[derive(Debug)]
struct Access {
    grant: Grant,
    login: u64,
    ends: Instant,
}

#[derive(Debug)]
struct Refresh {
    grant: Grant,
    login: u64,
    access: String,
    is_used: bool,
}

/// What the authorization servers remember.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) stats: Stats,
    pub(crate) clients: HashMap<(Role, String), Client>,
    codes: HashMap<String, Code>,
    access: HashMap<String, Access>,
    refresh: HashMap<String, Refresh>,
    over: HashSet<u64>,
    count: u64,
}

/// A pair of tokens.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) access: String,
    pub(crate) refresh: Option<String>,
    pub(crate) scope: String,
}

/// Whether the old refresh token goes when the new one comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rotation {
    Rotate,
    Keep,
}

impl Ledger {
    pub(crate) fn new(clients: &[(String, String)]) -> Self {
        let mut ledger = Self::default();
        for (id, secret) in clients {
            let secret = Some(secret.clone()).filter(|some| !some.is_empty());
            let client = Client { secret, ..Client::default() };
            ledger.clients.insert((Role::First, id.clone()), client);
        }
        ledger
    }

    /// A name that nobody has had before. Tokens of tests need not be unguessable, but they must be findable.
    pub(crate) fn fresh(&mut self, what: &str) -> String {
        self.count += 1;
        format!("{what}-s3cret-{}", self.count)
    }

    pub(crate) fn code(&mut self, code: Code) -> String {
        let name = self.fresh("code");
        self.codes.insert(name.clone(), code);
        name
    }

    /// Takes a code, which works once.
    pub(crate) fn take_code(&mut self, name: &str) -> Option<Code> {
        self.codes.remove(name)
    }

    /// Gives the tokens of a new login.
    pub(crate) fn issue(
        &mut self,
        grant: Grant,
        lifetime: Duration,
        rotation: Option<Rotation>,
    ) -> Pair {
        self.count += 1;
        let login = self.count;
        self.pair(grant, login, lifetime, rotation)
    }

    fn pair(
        &mut self,
        grant: Grant,
        login: u64,
        lifetime: Duration,
        rotation: Option<Rotation>,
    ) -> Pair {
        let access = self.fresh("access");
        let scope = grant.scope.clone();
        let refresh = rotation.map(|_| {
            let name = self.fresh("refresh");
            let entry =
                Refresh { grant: grant.clone(), login, access: access.clone(), is_used: false };
            self.refresh.insert(name.clone(), entry);
            name
        });
        let ends = now() + lifetime;
        self.access.insert(access.clone(), Access { grant, login, ends });
        Pair { access, refresh, scope }
    }

    /// The next tokens of a login. `None` if it is over, or is over from now on.
    pub(crate) fn renew(
        &mut self,
        token: &str,
        (role, client_id): (Role, &str),
        lifetime: Duration,
        rotation: Rotation,
    ) -> Option<Pair> {
        let entry = self.refresh.get_mut(token)?;
        let login = entry.login;
        let fits = entry.grant.role == role && entry.grant.client_id == client_id;
        if !fits || entry.is_used || self.over.contains(&login) {
            self.over.insert(login);
            return None;
        }
        let grant = entry.grant.clone();
        let old = entry.access.clone();
        if rotation == Rotation::Rotate {
            entry.is_used = true;
        }
        self.stats.refreshes += 1;
        if self.access.get(&old).is_some_and(|value| now() < value.ends) {
            self.stats.early_refreshes += 1;
        }
        let pair = self.pair(
            grant,
            login,
            lifetime,
            Some(rotation).filter(|some| *some == Rotation::Rotate),
        );
        if let Some(entry) = self.refresh.get_mut(token) {
            entry.access.clone_from(&pair.access);
        }
        Some(pair)
    }

    /// What a token lets its bearer do, while it does.
    pub(crate) fn grant(&self, access: &str) -> Option<&Grant> {
        let entry = self.access.get(access)?;
        let good = now() < entry.ends && !self.over.contains(&entry.login);
        good.then_some(&entry.grant)
    }

    pub(crate) fn expire_all(&mut self) {
        let now = now();
        for entry in self.access.values_mut() {
            entry.ends = now;
        }
    }

    pub(crate) fn revoke_all(&mut self) {
        let logins: Vec<u64> = self.access.values().map(|value| value.login).collect();
        self.over.extend(logins);
    }

    /// Ends the login of a token, whichever of the two it is.
    pub(crate) fn revoke(&mut self, token: &str) {
        let refresh = self.refresh.get(token).map(|value| value.login);
        let login = refresh.or_else(|| self.access.get(token).map(|value| value.login));
        self.over.extend(login);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Duration = Duration::from_mins(1);

    fn grant() -> Grant {
        let (client_id, scope, resource) = ("c".to_owned(), "s".to_owned(), "r".to_owned());
        Grant { role: Role::First, client_id, scope, resource }
    }

    #[test]
    fn a_refresh_token_used_twice_ends_the_login() {
        let mut ledger = Ledger::default();
        let who = (Role::First, "c");
        let first = ledger.issue(grant(), LIFE, Some(Rotation::Rotate));
        let token = first.refresh.unwrap();
        let second = ledger.renew(&token, who, LIFE, Rotation::Rotate).unwrap();
        assert!(ledger.grant(&second.access).is_some());
        assert!(ledger.renew(&token, who, LIFE, Rotation::Rotate).is_none());
        assert!(ledger.grant(&second.access).is_none());
        assert!(ledger.renew(&second.refresh.unwrap(), who, LIFE, Rotation::Rotate).is_none());
        assert_eq!((ledger.stats.refreshes, ledger.stats.early_refreshes), (1, 1));
    }

    #[test]
    fn a_token_ends_in_time_and_its_refresh_is_not_early_then() {
        let mut ledger = Ledger::default();
        let pair = ledger.issue(grant(), Duration::ZERO, Some(Rotation::Rotate));
        assert!(ledger.grant(&pair.access).is_none());
        ledger.renew(&pair.refresh.unwrap(), (Role::First, "c"), LIFE, Rotation::Rotate).unwrap();
        assert_eq!(ledger.stats.early_refreshes, 0);
    }

    #[test]
    fn a_stranger_cannot_refresh() {
        let mut ledger = Ledger::default();
        let token = ledger.issue(grant(), LIFE, Some(Rotation::Rotate)).refresh.unwrap();
        assert!(ledger.renew(&token, (Role::First, "other"), LIFE, Rotation::Rotate).is_none());
    }
}
