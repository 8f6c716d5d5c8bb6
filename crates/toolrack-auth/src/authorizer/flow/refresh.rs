//! What is kept, and how it is renewed.
//!
//! **Invariant:** a refresh happens under the lock, after a look at what is kept: who finds a newer token uses it,
//! and nobody overwrites or removes a token that they have not read.

use toolrack_transport::{AuthError, Authorization};

use super::Core;
use crate::discovery::Found;
use crate::grants::now;
use crate::http_client::Form;
use crate::stored_credentials::{GrantRecord, Record};
use crate::token_endpoint::{self as token, TokenFault};
use crate::token_freshness::{Renewal, renewal};
use crate::token_store::Hold;
use crate::{resource_indicator as resource, scopes as scope};

impl Core {
    /// True if there is another token than the one that was refused, here or in the store.
    pub(super) async fn is_overtaken(
        &self,
        refused: Option<&Authorization>,
    ) -> Result<bool, AuthError> {
        if self.present.token().is_some_and(|it| Some(&it) != refused) {
            return Ok(true);
        }
        let record = self.store.load(&self.key).await?.unwrap_or_default();
        let grant = self.usable(&record);
        if renewal(grant, refused, now(), self.settings.leeway) != Renewal::Use {
            return Ok(false);
        }
        if let Some(grant) = grant {
            self.present.adopt(grant);
        }
        Ok(true)
    }

    /// Gets the next token under the lock, or takes the one that somebody else has got meanwhile. Afterwards there
    /// is a token at hand, or nothing if only a person can help.
    pub(super) async fn renew(&self, refused: Option<&Authorization>) -> Result<(), AuthError> {
        let mut hold = self.store.hold(&self.key).await?;
        let mut record = hold.load().await?.unwrap_or_default();
        let grant = self.usable(&record).cloned();
        match (renewal(grant.as_ref(), refused, now(), self.settings.leeway), grant) {
            (Renewal::Use, Some(grant)) => self.present.adopt(&grant),
            (Renewal::Renew, Some(grant)) => match self.asker().next(&record).await {
                Ok(Some(next)) => {
                    self.present.adopt(&next);
                    record.grant = Some(next);
                    hold.save(Some(&record)).await?;
                }
                Ok(None) => self.present.let_go(),
                Err(TokenFault::Other(error)) => return Err(error),
                Err(fault) => {
                    self.present.let_go();
                    self.bury(hold, &grant, &fault).await?;
                }
            },
            _ => self.present.let_go(),
        }
        Ok(())
    }

    /// Clears a grant that is over, if it is still the one that is kept.
    async fn bury(
        &self,
        mut hold: Box<dyn Hold>,
        over: &GrantRecord,
        fault: &TokenFault,
    ) -> Result<(), AuthError> {
        let mut record = hold.load().await?.unwrap_or_default();
        if record.grant.as_ref().is_none_or(|kept| kept.refresh_token != over.refresh_token) {
            // Somebody who does not ask for the lock has been faster.
            if let Some(grant) = self.usable(&record) {
                self.present.adopt(grant);
            }
            return Ok(());
        }
        tracing::info!(server = %self.key, "the login is over");
        record.grant = None;
        if matches!(fault, TokenFault::ClientUnknown(_)) {
            record.clients.remove(&over.issuer);
        }
        record.wanted = scope::union(&record.wanted, &over.requested);
        Ok(hold.save(Some(&record)).await?)
    }

    /// True if what is kept comes from the authorization server that was found, for the same resource.
    pub(super) async fn is_still_for(&self, found: &Found) -> Result<bool, AuthError> {
        let record = self.store.load(&self.key).await?.unwrap_or_default();
        Ok(self
            .usable(&record)
            .is_some_and(|it| it.issuer == found.metadata.issuer && it.resource == found.resource))
    }

    /// The grant that is kept, if it is for this server and for the client that the settings name.
    pub(super) fn usable<'a>(&self, record: &'a Record) -> Option<&'a GrantRecord> {
        let grant = record.grant.as_ref()?;
        let fits = self.settings.pre_registered.as_ref().is_none_or(|it| {
            it.client_id == grant.client_id
                && it.issuer.as_ref().is_none_or(|own| *own == grant.issuer)
        });
        (fits && resource::covers(&grant.resource, &self.server)).then_some(grant)
    }

    /// Remembers what nobody is there to grant, for the next login.
    pub(super) async fn remember_wanted(&self, wanted: &[String]) -> Result<(), AuthError> {
        let mut hold = self.store.hold(&self.key).await?;
        let mut record = hold.load().await?.unwrap_or_default();
        record.wanted = scope::union(&record.wanted, wanted);
        Ok(hold.save(Some(&record)).await?)
    }

    /// Tells the authorization server that nobody needs the token any more. A courtesy, so faults do not matter.
    pub(super) async fn revoke(&self, record: &Record) {
        let Some(grant) = &record.grant else { return };
        let Ok(url) = self.http.endpoint(grant.revocation_endpoint.as_deref(), "revocation") else {
            return;
        };
        let Ok(proof) = self.asker().proof(record, grant) else { return };
        let secret = grant.refresh_token.as_ref().unwrap_or(&grant.access_token);
        let (form, header) = token::prove(Form::default().with("token", secret.clone()), &proof);
        if let Err(error) = self.http.post_form(&url, &form, header.as_ref()).await {
            tracing::debug!(%error, "the token was not revoked");
        }
    }
}
