//! Stored credentials of one server: its registered clients and the current grant.
//!
//! **Invariant:** clients are stored by issuer, and a grant names its issuer, resource and client, so that
//! neither is ever sent elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use toolrack_transport::{Authorization, Redactor};

use crate::client_registration::Client;
use crate::secret::Secret;

/// Stored credentials of one server. Opaque outside this crate.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StoredCredentials {
    /// The server, in a file whose name does not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
    /// By issuer.
    #[serde(default)]
    pub(crate) clients: BTreeMap<String, Client>,
    /// The issuer that the configured client was first used with.
    // The names in the file are those of earlier versions, whose logins must stay readable.
    #[serde(default, rename = "bound", skip_serializing_if = "Option::is_none")]
    pub(crate) client_binding: Option<ClientBinding>,
    /// Scopes that the server requested while no user was there to grant them; the next login requests them.
    #[serde(default, rename = "wanted", skip_serializing_if = "Vec::is_empty")]
    pub(crate) pending_scopes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) grant: Option<StoredGrant>,
}

/// Issuer that a configured client was first used with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClientBinding {
    pub(crate) client_id: String,
    pub(crate) issuer: String,
}

/// A token, with everything needed to use and refresh it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredGrant {
    #[serde(flatten)]
    pub(crate) source: GrantSource,
    pub(crate) client_id: String,
    #[serde(default)]
    pub(crate) granted: Vec<String>,
    #[serde(serialize_with = "expose")]
    pub(crate) access_token: Secret,
    #[serde(default, serialize_with = "expose", skip_serializing_if = "Option::is_none")]
    pub(crate) refresh_token: Option<Secret>,
    /// In milliseconds since 1970.
    pub(crate) received_at: u64,
    /// In milliseconds since 1970, if the authorization server declared it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<u64>,
}

/// What all token requests of one grant have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GrantSource {
    pub(crate) issuer: String,
    pub(crate) resource: String,
    pub(crate) token_endpoint: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) revocation_endpoint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) auth_methods: Option<Vec<String>>,
    /// The requested scopes.
    #[serde(default)]
    pub(crate) requested: Vec<String>,
}

impl StoredCredentials {
    /// Registers every secret with the redactor: access tokens, refresh tokens and client secrets of `server`.
    pub(crate) fn add_secrets_to(&self, redactor: &Redactor, server: &str) {
        let add = |what: &str, secret: Option<&Secret>| {
            if let Some(secret) = secret {
                redactor.add_secret(&format!("{what} of {server}"), secret.reveal());
            }
        };
        for (issuer, client) in &self.clients {
            add(&format!("client secret at {issuer}"), client.secret.as_ref());
        }
        if let Some(grant) = &self.grant {
            add("token", Some(&grant.access_token));
            add("refresh token", grant.refresh_token.as_ref());
        }
    }

    /// Serializes the credentials, tokens included.
    pub fn encode(&self) -> Secret {
        // Maps with string keys always serialize to JSON.
        Secret::new(serde_json::to_string_pretty(self).unwrap_or_default())
    }

    /// Parses the output of [`StoredCredentials::encode`].
    pub fn decode(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

impl StoredGrant {
    pub(crate) fn authorization(&self) -> Authorization {
        Authorization::bearer(self.access_token.reveal())
    }

    /// Whether the token needs no refresh: it is fresh, and not the one that was rejected. A token other than
    /// `rejected` was obtained by another process meanwhile.
    pub(crate) fn is_usable(
        &self,
        rejected: Option<&Authorization>,
        now: u64,
        leeway: Duration,
    ) -> bool {
        Some(&self.authorization()) != rejected && !self.is_stale(now, leeway)
    }

    /// Total lifetime of the token, if declared.
    pub(crate) fn lifetime(&self) -> Option<Duration> {
        Some(Duration::from_millis(self.expires_at?.saturating_sub(self.received_at)))
    }

    /// Whether the token must not be used any more. `leeway` is capped for short lifetimes.
    pub(crate) fn is_stale(&self, now: u64, leeway: Duration) -> bool {
        let Some(end) = self.expires_at else { return false };
        let tenth = end.saturating_sub(self.received_at) / 10;
        let leeway = u64::try_from(leeway.as_millis()).unwrap_or(u64::MAX).min(tenth);
        // Strictly greater: both are truncated to milliseconds, and a valid token must not be refreshed.
        now.saturating_add(leeway) > end
    }
}

/// Serializes a secret, optional or not, in plain text. Only for stores.
pub(crate) fn expose<'a, S: Serializer>(
    secret: impl Into<Option<&'a Secret>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    secret.into().map(Secret::reveal).serialize(serializer)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A grant that is valid from `received_at` to `expires_at`.
    pub(crate) fn grant(received_at: u64, expires_at: Option<u64>) -> StoredGrant {
        let source = GrantSource {
            issuer: "https://a".to_owned(),
            resource: "https://h/mcp".to_owned(),
            token_endpoint: "https://a/token".to_owned(),
            revocation_endpoint: None,
            auth_methods: None,
            requested: Vec::new(),
        };
        StoredGrant {
            source,
            client_id: "c".to_owned(),
            granted: Vec::new(),
            access_token: Secret::new("acc3ss"),
            refresh_token: Some(Secret::new("r3fresh")),
            received_at,
            expires_at,
        }
    }

    #[test]
    fn credentials_round_trip_and_debug_hides_secrets() {
        let client = Client { secret: Some(Secret::new("s3cret")), ..Client::public("c") };
        let credentials = StoredCredentials {
            server: None,
            clients: BTreeMap::from([("https://a".to_owned(), client)]),
            grant: Some(grant(1, Some(2))),
            ..StoredCredentials::default()
        };
        assert_eq!(
            StoredCredentials::decode(credentials.encode().reveal()).as_ref(),
            Some(&credentials)
        );
        let debug = format!("{credentials:?}");
        for secret in ["s3cret", "acc3ss", "r3fresh"] {
            assert!(!debug.contains(secret), "{debug}");
        }
        assert_eq!(StoredCredentials::decode("{"), None);
        assert_eq!(StoredCredentials::decode("{}"), Some(StoredCredentials::default()));
    }

    #[test]
    fn newer_stored_token_is_used() {
        let stored = grant(1_000, Some(2_000));
        let (same, older) = (Authorization::bearer("acc3ss"), Authorization::bearer("older"));
        let check = |rejected: Option<&Authorization>, now, expected| {
            assert_eq!(stored.is_usable(rejected, now, Duration::ZERO), expected);
        };
        check(None, 1_500, true);
        check(None, 2_001, false);
        check(Some(&older), 1_500, true);
        check(Some(&older), 2_001, false);
        check(Some(&same), 1_500, false);
    }

    #[test]
    fn stored_secrets_are_redacted() {
        let client = Client { secret: Some(Secret::new("cl13nt-secret")), ..Client::public("c") };
        let credentials = StoredCredentials {
            server: None,
            clients: BTreeMap::from([("https://issuer".to_owned(), client)]),
            grant: Some(grant(0, None)),
            ..StoredCredentials::default()
        };
        let redactor = Redactor::default();
        credentials.add_secrets_to(&redactor, "s");
        let expected = "[secret token of s] [secret refresh token of s] \
                        [secret client secret at https://issuer of s]";
        assert_eq!(redactor.redact("acc3ss r3fresh cl13nt-secret"), expected);
    }

    #[test]
    fn token_is_stale_shortly_before_expiry() {
        let check = |expires_at, leeway_ms, now, expected| {
            let leeway = Duration::from_millis(leeway_ms);
            assert_eq!(grant(1_000, expires_at).is_stale(now, leeway), expected, "{now}");
        };
        check(None, 10, u64::MAX, false);
        check(Some(101_000), 1_000, 100_000, false);
        check(Some(101_000), 1_000, 100_001, true);
        check(Some(1_200), 10_000, 1_180, false);
        check(Some(1_200), 10_000, 1_181, true);
        check(Some(1_200), 0, 1_200, false);
        check(Some(1_200), 0, 1_201, true);
    }
}
