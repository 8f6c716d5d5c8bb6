//! What is kept, and how it is renewed.
//!
//! **Invariant:** a refresh happens under the lock, after a look at what is kept: who finds a newer token uses it,
//! and nobody overwrites or removes a token that they have not read.

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
    /// True if there is another token than the one that was refused, here or in the store.
    pub(super) async fn token_changed(
        &self,
        refused: Option<&Authorization>,
    ) -> Result<bool, AuthError> {
        if self.token_cache.token().is_some_and(|token| Some(&token) != refused) {
            return Ok(true);
        }
        let record = self.store.load(&self.key).await?.unwrap_or_default();
        let grant = self.usable_grant(&record);
        if token_action(grant, refused, now(), self.settings.leeway) != TokenAction::Use {
            return Ok(false);
        }
        if let Some(grant) = grant {
            self.token_cache.set(grant);
        }
        Ok(true)
    }

    /// Gets the next token under the lock, or takes the one that somebody else has got meanwhile. Afterwards there
    /// is a token at hand, or nothing if only a person can help.
    pub(super) async fn refresh(&self, refused: Option<&Authorization>) -> Result<(), AuthError> {
        let mut lock = self.store.lock(&self.key).await?;
        let mut record = lock.load().await?.unwrap_or_default();
        let grant = self.usable_grant(&record).cloned();
        match (token_action(grant.as_ref(), refused, now(), self.settings.leeway), grant) {
            (TokenAction::Use, Some(grant)) => self.token_cache.set(&grant),
            (TokenAction::Refresh, Some(grant)) => match self.requester().refresh(&record).await {
                Ok(Some(next)) => {
                    self.token_cache.set(&next);
                    record.grant = Some(next);
                    lock.save(Some(&record)).await?;
                }
                Ok(None) => self.token_cache.clear(),
                Err(TokenError::Other(error)) => return Err(error),
                Err(error) => {
                    self.token_cache.clear();
                    self.discard_grant(lock, &grant, &error).await?;
                }
            },
            _ => self.token_cache.clear(),
        }
        Ok(())
    }

    /// Clears a grant that is over, if it is still the one that is kept.
    async fn discard_grant(
        &self,
        mut lock: Box<dyn StoreLock>,
        expired: &StoredGrant,
        error: &TokenError,
    ) -> Result<(), AuthError> {
        let mut record = lock.load().await?.unwrap_or_default();
        if record.grant.as_ref().is_none_or(|kept| kept.refresh_token != expired.refresh_token) {
            // Somebody who does not ask for the lock has been faster.
            if let Some(grant) = self.usable_grant(&record) {
                self.token_cache.set(grant);
            }
            return Ok(());
        }
        tracing::info!(server = %self.key, "the login is over");
        record.grant = None;
        if matches!(error, TokenError::InvalidClient(_)) {
            record.clients.remove(&expired.issuer);
        }
        record.pending_scopes = union_scopes(&record.pending_scopes, &expired.requested);
        Ok(lock.save(Some(&record)).await?)
    }

    /// True if what is kept comes from the authorization server that was found, for the same resource.
    pub(super) async fn grant_matches(&self, found: &Discovered) -> Result<bool, AuthError> {
        let record = self.store.load(&self.key).await?.unwrap_or_default();
        Ok(self.usable_grant(&record).is_some_and(|grant| {
            grant.issuer == found.metadata.issuer && grant.resource == found.resource
        }))
    }

    /// The grant that is kept, if it is for this server and for the client that the settings name.
    pub(super) fn usable_grant<'a>(
        &self,
        record: &'a StoredCredentials,
    ) -> Option<&'a StoredGrant> {
        let grant = record.grant.as_ref()?;
        let is_same_client = self.settings.pre_registered.as_ref().is_none_or(|client| {
            client.client_id == grant.client_id
                && client.issuer.as_ref().is_none_or(|own| *own == grant.issuer)
        });
        (is_same_client && resource_covers(&grant.resource, &self.server)).then_some(grant)
    }

    /// Remembers what nobody is there to grant, for the next login.
    pub(super) async fn save_pending_scopes(&self, wanted: &[String]) -> Result<(), AuthError> {
        let mut lock = self.store.lock(&self.key).await?;
        let mut record = lock.load().await?.unwrap_or_default();
        record.pending_scopes = union_scopes(&record.pending_scopes, wanted);
        Ok(lock.save(Some(&record)).await?)
    }

    /// Tells the authorization server that nobody needs the token any more. A courtesy, so faults do not matter.
    pub(super) async fn revoke(&self, record: &StoredCredentials) {
        let Some(grant) = &record.grant else { return };
        let Ok(url) = self.http.endpoint(grant.revocation_endpoint.as_deref(), "revocation") else {
            return;
        };
        let Ok(auth) = self.requester().request_auth(record, grant) else { return };
        let secret = grant.refresh_token.as_ref().unwrap_or(&grant.access_token);
        let (form, header) =
            authenticate_request(Form::default().with("token", secret.clone()), &auth);
        if let Err(error) = self.http.post_form(&url, &form, header.as_ref()).await {
            tracing::debug!(%error, "the token was not revoked");
        }
    }
}

// FOLDED token_freshness.rs
// DOC Whether what is kept can be used as it is, has to be renewed, or helps nobody.

/// What to do with the token that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenAction {
    /// There is none.
    None,
    /// Use it: it is fresh, and nobody has refused it.
    Use,
    /// Get the next one.
    Refresh,
}

/// Decides after the record was read under the lock. `refused` is what the server did not take; another token than
/// that was got by somebody else meanwhile.
pub(crate) fn token_action(
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
    fn who_finds_a_newer_token_uses_it() {
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
