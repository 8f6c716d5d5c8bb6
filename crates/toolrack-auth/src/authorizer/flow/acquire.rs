//! Getting a token where there is none: who lets people in, what to ask for, and by whose hand.

use crate::client_identity::check_binding;
use crate::scopes::select_scopes;
use crate::scopes::union_scopes;
use tokio::time::Instant;
use toolrack_transport::AuthError;

use super::{AuthFlow, LoginTrigger};
use crate::authorization_code::AuthorizationCodeFlow;
use crate::discovery::{Discovered, discover};
use crate::grants::{GrantSource, check_profile};
use crate::scopes::ScopeInputs;
use crate::settings::Grant;
use crate::stored_credentials::{ClientBinding, StoredCredentials, StoredGrant};
use crate::www_authenticate::BearerChallenge;

impl AuthFlow {
    /// Gets a token by the grant, from the authorization server that was found.
    pub(super) async fn authorize(
        &self,
        found: &Discovered,
        challenge: &BearerChallenge,
        trigger: LoginTrigger,
    ) -> Result<(), AuthError> {
        check_profile(found, &self.settings)?;
        let record = self.store.load(&self.key).await?.unwrap_or_default();
        let source =
            GrantSource::from_discovery(&self.http, found, self.scopes(found, challenge, &record))?;
        let issuer = source.issuer.clone();
        let (client, grant) = match &self.settings.grant {
            Grant::AuthorizationCode => {
                let Some(browser) = self.browser.as_deref() else {
                    return Err(self.login_hint("nobody is logged in"));
                };
                if trigger == LoginTrigger::Challenge
                    && !self.attempts().allow_login(Instant::now())
                {
                    return Err(self.login_hint("the server asks for a login again and again"));
                }
                let (requester, cancel) = (self.requester(), &self.cancel);
                let login = AuthorizationCodeFlow {
                    requester,
                    browser,
                    found,
                    source,
                    record: &record,
                    cancel,
                };
                let logged_in = login.run().await?;
                (Some(logged_in.client), logged_in.grant)
            }
            Grant::ClientCredentials { .. } | Grant::EnterpriseManaged(_) => {
                if let Some(registered) = &self.settings.pre_registered {
                    let bound = record
                        .client_binding
                        .as_ref()
                        .filter(|binding| binding.client_id == registered.client_id);
                    let bound = bound.map(|binding| binding.issuer.as_str());
                    check_binding(registered, bound, &issuer)?;
                }
                (None, self.requester().request_unattended(source).await?)
            }
        };
        let mut lock = self.store.lock(&self.key).await?;
        let mut record = lock.load().await?.unwrap_or_default();
        if self.settings.pre_registered.is_some() {
            record.client_binding =
                Some(ClientBinding { client_id: grant.client_id.clone(), issuer });
        } else if let Some(client) = client.filter(|client| client.redirect_uri.is_some()) {
            record.clients.insert(issuer, client);
        }
        self.token_cache.set(&grant);
        record.pending_scopes.clear();
        record.grant = Some(grant);
        Ok(lock.save(Some(&record)).await?)
    }

    fn scopes(
        &self,
        found: &Discovered,
        challenge: &BearerChallenge,
        record: &StoredCredentials,
    ) -> Vec<String> {
        // What another authorization server granted means nothing to this one.
        let same = |grant: &&StoredGrant| {
            grant.issuer == found.metadata.issuer && grant.resource == found.resource
        };
        let held = self.usable_grant(record).filter(same);
        let held =
            held.map(|grant| union_scopes(&grant.requested, &grant.granted)).unwrap_or_default();
        let previous = union_scopes(&held, &record.pending_scopes);
        select_scopes(ScopeInputs {
            settings: self.settings.scopes.as_deref(),
            challenge: challenge.scopes.as_deref(),
            resource: found.scopes.as_deref(),
            issuer: found.metadata.scopes_supported.as_deref(),
            previous: &previous,
        })
    }

    pub(super) async fn discover(
        &self,
        challenge: &BearerChallenge,
    ) -> Result<Discovered, AuthError> {
        let record = self.store.load(&self.key).await?.unwrap_or_default();
        let mut preferred: Vec<String> = record.clients.into_keys().collect();
        preferred.extend(record.grant.map(|grant| grant.issuer));
        preferred
            .extend(self.settings.pre_registered.as_ref().and_then(|client| client.issuer.clone()));
        discover(&self.http, &self.server, challenge, &self.settings.protocol_version, &preferred)
            .await
    }
}
