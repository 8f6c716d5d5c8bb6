//! Getting a token where there is none: who lets people in, what to ask for, and by whose hand.

use tokio::time::Instant;
use toolrack_transport::AuthError;

use super::{Core, Unasked};
use crate::authorization_code::Login;
use crate::client_identity as client;
use crate::discovery::{Found, discover};
use crate::grants::{Source, check_profile};
use crate::scopes::{self as scope, Voices};
use crate::settings::Grant;
use crate::stored_credentials::{Bound, GrantRecord, Record};
use crate::www_authenticate::Demand;

impl Core {
    /// Gets a token by the grant, from the authorization server that was found.
    pub(super) async fn authorize(
        &self,
        found: &Found,
        demand: &Demand,
        unasked: Unasked,
    ) -> Result<(), AuthError> {
        check_profile(found, &self.settings)?;
        let record = self.store.load(&self.key).await?.unwrap_or_default();
        let source = Source::found(&self.http, found, self.scopes(found, demand, &record))?;
        let issuer = source.issuer.clone();
        let (known, grant) = match &self.settings.grant {
            Grant::AuthorizationCode => {
                let Some(browser) = self.browser.as_deref() else {
                    return Err(self.login_hint("nobody is logged in"));
                };
                if unasked == Unasked::Yes && !self.attempts().log_in(Instant::now()) {
                    return Err(self.login_hint("the server asks for a login again and again"));
                }
                let (asker, gone) = (self.asker(), &self.gone);
                let login = Login { asker, browser, found, source, record: &record, gone };
                let logged_in = login.run().await?;
                (Some(logged_in.client), logged_in.grant)
            }
            Grant::ClientCredentials { .. } | Grant::EnterpriseManaged(_) => {
                if let Some(registered) = &self.settings.pre_registered {
                    let bound =
                        record.bound.as_ref().filter(|it| it.client_id == registered.client_id);
                    let bound = bound.map(|it| it.issuer.as_str());
                    client::check_binding(registered, bound, &issuer)?;
                }
                (None, self.asker().without_person(source).await?)
            }
        };
        let mut hold = self.store.hold(&self.key).await?;
        let mut record = hold.load().await?.unwrap_or_default();
        if self.settings.pre_registered.is_some() {
            record.bound = Some(Bound { client_id: grant.client_id.clone(), issuer });
        } else if let Some(known) = known.filter(|it| it.redirect_uri.is_some()) {
            record.clients.insert(issuer, known);
        }
        self.present.adopt(&grant);
        record.wanted.clear();
        record.grant = Some(grant);
        Ok(hold.save(Some(&record)).await?)
    }

    fn scopes(&self, found: &Found, demand: &Demand, record: &Record) -> Vec<String> {
        // What another authorization server granted means nothing to this one.
        let same =
            |it: &&GrantRecord| it.issuer == found.metadata.issuer && it.resource == found.resource;
        let held = self.usable(record).filter(same);
        let held = held.map(|it| scope::union(&it.requested, &it.granted)).unwrap_or_default();
        let before = scope::union(&held, &record.wanted);
        scope::select(Voices {
            settings: self.settings.scopes.as_deref(),
            challenge: demand.scopes.as_deref(),
            resource: found.scopes.as_deref(),
            issuer: found.metadata.scopes_supported.as_deref(),
            before: &before,
        })
    }

    pub(super) async fn discover(&self, demand: &Demand) -> Result<Found, AuthError> {
        let record = self.store.load(&self.key).await?.unwrap_or_default();
        let mut liked: Vec<String> = record.clients.into_keys().collect();
        liked.extend(record.grant.map(|it| it.issuer));
        liked.extend(self.settings.pre_registered.as_ref().and_then(|it| it.issuer.clone()));
        discover(&self.http, &self.server, demand, &self.settings.protocol_version, &liked).await
    }
}
