//! Token refresh, shared by all tasks and all processes of a user.
//!
//! Authorization servers may rotate refresh tokens: each one works once. Two processes that refresh with the same
//! one would invalidate the login. `grants` has the token request itself.
//!
//! **Invariant:** a refresh happens under the store lock, after the stored credentials were read under that
//! lock: a process that finds a newer token uses it, and no process overwrites or removes a token that it has
//! not read.

use std::time::Duration;

use toolrack_transport::{AuthError, Authorization};

use super::flow::AuthFlow;
use crate::discovery::{Discovered, resource_covers};
use crate::grants::{now, union_scopes};
use crate::http_client::Form;
use crate::stored_credentials::{StoredCredentials, StoredGrant};
use crate::token_endpoint::{TokenError, authenticate_request};
use crate::token_store::StoreLock;

impl AuthFlow {
    /// Whether there is a token other than the rejected one, in the cache or in the store.
    pub(super) async fn token_changed(
        &self,
        rejected: Option<&Authorization>,
    ) -> Result<bool, AuthError> {
        if self.token_cache.token().is_some_and(|token| Some(&token) != rejected) {
            return Ok(true);
        }
        // Without the lock: reading is safe, and a newer token saves the wait for it.
        let credentials = self.store.load(&self.key).await?.unwrap_or_default();
        let grant = self.usable_grant(&credentials);
        if token_action(grant, rejected, now(), self.settings.leeway) != TokenAction::Use {
            return Ok(false);
        }
        if let Some(grant) = grant {
            self.token_cache.set(grant);
        }
        Ok(true)
    }

    /// Refreshes the token under the lock, or takes the newer one of another process.
    /// Afterwards the cache has a token, or is empty if the user must log in again.
    pub(super) async fn refresh(&self, rejected: Option<&Authorization>) -> Result<(), AuthError> {
        // Held during the token request: other processes wait here, and then find the new token.
        let mut lock = self.store.lock(&self.key).await?;
        // Read again under the lock: another process may have used up the refresh token meanwhile.
        let mut credentials = lock.load().await?.unwrap_or_default();
        let grant = self.usable_grant(&credentials).cloned();
        match (token_action(grant.as_ref(), rejected, now(), self.settings.leeway), grant) {
            (TokenAction::Use, Some(grant)) => self.token_cache.set(&grant),
            (TokenAction::Refresh, Some(grant)) => {
                match self.requester().refresh(&credentials).await {
                    Ok(Some(next)) => {
                        // Before saving: if that fails, this process can still use the token.
                        self.token_cache.set(&next);
                        credentials.grant = Some(next);
                        lock.save(Some(&credentials)).await?;
                    }
                    Ok(None) => self.token_cache.clear(),
                    // May be temporary, so the stored grant stays.
                    Err(TokenError::Other(error)) => return Err(error),
                    Err(error) => {
                        self.token_cache.clear();
                        self.discard_grant(lock, &grant, &error).await?;
                    }
                }
            }
            _ => self.token_cache.clear(),
        }
        Ok(())
    }

    /// Removes an expired grant, if it is still the stored one.
    async fn discard_grant(
        &self,
        mut lock: Box<dyn StoreLock>,
        expired: &StoredGrant,
        error: &TokenError,
    ) -> Result<(), AuthError> {
        let mut credentials = lock.load().await?.unwrap_or_default();
        if credentials
            .grant
            .as_ref()
            .is_none_or(|stored| stored.refresh_token != expired.refresh_token)
        {
            // A program that ignores the lock has stored a newer grant.
            if let Some(grant) = self.usable_grant(&credentials) {
                self.token_cache.set(grant);
            }
            return Ok(());
        }
        tracing::info!(server = %self.key, "the login has expired");
        credentials.grant = None;
        // The registration goes too, so that the next login registers anew.
        if matches!(error, TokenError::InvalidClient(_)) {
            credentials.clients.remove(&expired.issuer);
        }
        // The next login requests the scopes of the lost grant again.
        credentials.pending_scopes = union_scopes(&credentials.pending_scopes, &expired.requested);
        Ok(lock.save(Some(&credentials)).await?)
    }

    /// Whether the stored grant is from the discovered authorization server and for the same resource.
    pub(super) async fn grant_matches(&self, found: &Discovered) -> Result<bool, AuthError> {
        let credentials = self.store.load(&self.key).await?.unwrap_or_default();
        Ok(self.usable_grant(&credentials).is_some_and(|grant| {
            grant.issuer == found.metadata.issuer && grant.resource == found.resource
        }))
    }

    /// The stored grant, if it is for this server and for the configured client.
    pub(super) fn usable_grant<'a>(
        &self,
        credentials: &'a StoredCredentials,
    ) -> Option<&'a StoredGrant> {
        let grant = credentials.grant.as_ref()?;
        // After a change of the configured client, the token of the old client must not be sent.
        let is_same_client = self.settings.pre_registered.as_ref().is_none_or(|client| {
            client.client_id == grant.client_id
                && client.issuer.as_ref().is_none_or(|issuer| *issuer == grant.issuer)
        });
        (is_same_client && resource_covers(&grant.resource, &self.server)).then_some(grant)
    }

    /// Stores scopes for the next login, when no user is there to grant them.
    pub(super) async fn save_pending_scopes(&self, scopes: &[String]) -> Result<(), AuthError> {
        let mut lock = self.store.lock(&self.key).await?;
        let mut credentials = lock.load().await?.unwrap_or_default();
        credentials.pending_scopes = union_scopes(&credentials.pending_scopes, scopes);
        Ok(lock.save(Some(&credentials)).await?)
    }

    /// Revokes the token at the authorization server. Best effort: the local copy is already gone.
    pub(super) async fn revoke(&self, credentials: &StoredCredentials) {
        let Some(grant) = &credentials.grant else { return };
        let Ok(url) = self.http.endpoint(grant.revocation_endpoint.as_deref(), "revocation") else {
            return;
        };
        let Ok(auth) = self.requester().request_auth(credentials, grant) else { return };
        // RFC 7009 §2.1: with the refresh token, the server should also revoke its access tokens.
        let secret = grant.refresh_token.as_ref().unwrap_or(&grant.access_token);
        let (form, header) =
            authenticate_request(Form::default().with("token", secret.clone()), &auth);
        if let Err(error) = self.http.post_form(&url, &form, header.as_ref()).await {
            tracing::debug!(%error, "could not revoke the token");
        }
    }
}

/// What to do with the stored token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TokenAction {
    /// There is none.
    None,
    /// Use it: it is fresh and was not rejected.
    Use,
    /// Obtain the next one.
    Refresh,
}

/// Decides what to do, after the credentials were read under the lock. A stored token other than `rejected` was
/// obtained by another process meanwhile.
fn token_action(
    stored: Option<&StoredGrant>,
    rejected: Option<&Authorization>,
    now: u64,
    leeway: Duration,
) -> TokenAction {
    let Some(grant) = stored else { return TokenAction::None };
    let token = Authorization::bearer(grant.access_token.reveal());
    if Some(&token) == rejected || grant.is_stale(now, leeway) {
        return TokenAction::Refresh;
    }
    TokenAction::Use
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored_credentials::tests::grant;

    #[test]
    fn newer_stored_token_is_used() {
        let stored = grant(1_000, Some(2_000));
        let (same, older) = (Authorization::bearer("acc3ss"), Authorization::bearer("older"));
        let check =
            |stored: Option<&StoredGrant>, rejected: Option<&Authorization>, now, expected| {
                assert_eq!(token_action(stored, rejected, now, Duration::ZERO), expected);
            };
        check(None, None, 1_500, TokenAction::None);
        check(Some(&stored), None, 1_500, TokenAction::Use);
        check(Some(&stored), None, 2_001, TokenAction::Refresh);
        check(Some(&stored), Some(&older), 1_500, TokenAction::Use);
        check(Some(&stored), Some(&older), 2_001, TokenAction::Refresh);
        check(Some(&stored), Some(&same), 1_500, TokenAction::Refresh);
    }
}
