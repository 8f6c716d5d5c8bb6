//! What an [`Authorizer`](super::Authorizer) does when it takes time, one thing at a time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolrack_transport::{AtHand, AuthError, Authorization};
use url::Url;

use super::LoginStatus;
use super::token_cache::TokenCache;
use crate::attempt_limiter::{AttemptLimiter, Operation};
use crate::authorization_code::AuthorizationCodeFlow;
use crate::browser::Browser;
use crate::client_registration::check_binding;
use crate::discovery::{Discovered, canonical_resource, discover};
use crate::error::{forbidden, login_needed, unreachable};
use crate::grants::{
    GrantSource, ScopeInputs, TokenRequester, check_profile, now, select_scopes, union_scopes,
};
use crate::http_client::HttpClient;
use crate::settings::{AuthSettings, Grant};
use crate::stored_credentials::{ClientBinding, StoredCredentials, StoredGrant};
use crate::token_store::TokenStore;
use crate::www_authenticate::BearerChallenge;

/// What an authorizer is made of.
#[derive(Debug)]
pub(super) struct AuthFlow {
    pub(super) server: Url,
    /// What the store knows the server by.
    pub(super) key: String,
    pub(super) settings: AuthSettings,
    pub(super) http: HttpClient,
    pub(super) provider: Option<HttpClient>,
    pub(super) store: Arc<dyn TokenStore>,
    pub(super) browser: Option<Arc<dyn Browser>>,
    pub(super) cancel: CancellationToken,
    pub(super) token_cache: TokenCache,
    pub(super) attempts: Mutex<AttemptLimiter>,
    /// Whoever changes something takes the one permit, so that a crowd of callers causes one request.
    pub(super) permits: Semaphore,
}

/// Whether a login happens because a server said no, and not because somebody asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoginTrigger {
    Challenge,
    User,
}

impl AuthFlow {
    pub(super) fn new(
        server: &Url,
        settings: AuthSettings,
        store: Arc<dyn TokenStore>,
        browser: Option<Arc<dyn Browser>>,
        cancel: CancellationToken,
    ) -> Self {
        let provider = match &settings.grant {
            Grant::EnterpriseManaged(identity_provider) => {
                Some(HttpClient::new(&identity_provider.token_endpoint, settings.network.clone()))
            }
            Grant::AuthorizationCode | Grant::ClientCredentials { .. } => None,
        };
        Self {
            server: server.clone(),
            key: canonical_resource(server),
            http: HttpClient::new(server, settings.network.clone()),
            settings,
            provider,
            store,
            browser,
            cancel,
            token_cache: TokenCache::default(),
            attempts: Mutex::default(),
            permits: Semaphore::new(1),
        }
    }

    pub(super) fn at_hand(&self) -> AtHand {
        self.token_cache.credential(self.settings.leeway)
    }

    pub(super) async fn obtain(&self) -> Result<Option<Authorization>, AuthError> {
        let _permit = self.acquire_permit().await?;
        let mut ready = self.at_hand();
        if ready == AtHand::Ask {
            let record = self.store.load(&self.key).await?.unwrap_or_default();
            match self.usable_grant(&record) {
                Some(grant) if grant.is_stale(now(), self.settings.leeway) => {
                    self.refresh(None).await?;
                }
                Some(grant) => self.token_cache.set(grant),
                None => self.token_cache.clear(),
            }
            ready = self.at_hand();
        }
        match ready {
            AtHand::Ready(token) => Ok(Some(token)),
            AtHand::Nothing => Ok(None),
            // It was stale when it came; the server may think otherwise, and will say so if not.
            AtHand::Ask => Ok(self.token_cache.token()),
        }
    }

    /// 401: somebody may have done what is needed already; else the token is renewed, else somebody logs in.
    pub(super) async fn handle_unauthorized(
        &self,
        sent: Option<Authorization>,
        challenge: BearerChallenge,
        operation: Operation,
    ) -> Result<(), AuthError> {
        let _permit = self.acquire_permit().await?;
        if self.token_changed(sent.as_ref()).await? {
            return Ok(());
        }
        let when = (Instant::now(), self.token_cache.lifetime());
        if self.token_cache.record_rejection()
            && self.attempts().is_exhausted(&operation, sent.as_ref(), when)
        {
            return Err(forbidden("the server refuses the token that it has just asked for"));
        }
        let found = self.discover(&challenge).await?;
        if self.grant_matches(&found).await? {
            self.refresh(sent.as_ref()).await?;
        } else {
            self.token_cache.clear();
        }
        if self.token_cache.token().is_none_or(|token| Some(&token) == sent.as_ref()) {
            self.authorize(&found, &challenge, LoginTrigger::Challenge).await?;
        }
        self.record_token(&operation);
        Ok(())
    }

    /// 403 with `insufficient_scope`: asks for what was held and what is wanted, together.
    pub(super) async fn step_up(
        &self,
        sent: Option<Authorization>,
        challenge: BearerChallenge,
        operation: Operation,
    ) -> Result<(), AuthError> {
        let _permit = self.acquire_permit().await?;
        if self.token_changed(sent.as_ref()).await? {
            return Ok(());
        }
        let wanted = challenge.scopes.clone().unwrap_or_default();
        let scope_list = wanted.join(" ");
        if !self.attempts().allow_step_up(&operation) {
            return Err(forbidden(format_args!(
                "the server keeps asking for more scopes: {scope_list}"
            )));
        }
        if !wanted.is_empty()
            && self
                .token_cache
                .granted_scopes()
                .is_some_and(|granted| wanted.iter().all(|scope| granted.contains(scope)))
        {
            return Err(forbidden(format_args!(
                "the server asks for scopes that were granted: {scope_list}"
            )));
        }
        if self.needs_browser() {
            self.save_pending_scopes(&wanted).await?;
            return Err(
                self.login_hint(format_args!("the server asks for more scopes ({scope_list})"))
            );
        }
        let found = self.discover(&challenge).await?;
        self.authorize(&found, &challenge, LoginTrigger::Challenge).await
    }

    pub(super) async fn login(&self) -> Result<LoginStatus, AuthError> {
        let _permit = self.acquire_permit().await?;
        self.attempts().reset();
        let response = self.http.probe(&self.settings.protocol_version).await?;
        let challenge = BearerChallenge::from_headers(&response.challenges);
        let found = self.discover(&challenge).await?;
        self.authorize(&found, &challenge, LoginTrigger::User).await?;
        self.status().await
    }

    pub(super) async fn logout(&self) -> Result<(), AuthError> {
        let _permit = self.acquire_permit().await?;
        let mut lock = self.store.lock(&self.key).await?;
        let record = lock.load().await?.unwrap_or_default();
        lock.save(None).await?;
        drop(lock);
        self.token_cache.clear();
        self.attempts().reset();
        self.revoke(&record).await;
        Ok(())
    }

    pub(super) async fn status(&self) -> Result<LoginStatus, AuthError> {
        let record = self.store.load(&self.key).await?.unwrap_or_default();
        let Some(grant) = self.usable_grant(&record) else { return Ok(LoginStatus::LoggedOut) };
        let needs_person = matches!(self.settings.grant, Grant::AuthorizationCode);
        Ok(LoginStatus::LoginResult {
            issuer: grant.issuer.clone(),
            client_id: grant.client_id.clone(),
            scopes: grant.granted.clone(),
            expires_at: grant.expires_at,
            renewable: !needs_person || grant.refresh_token.is_some(),
        })
    }

    fn login_hint(&self, why: impl std::fmt::Display) -> AuthError {
        let name = self.settings.server_name.as_deref().unwrap_or(&self.key);
        login_needed(format_args!("{why}; run `toolrack login {name}`"))
    }

    /// True if a login needs a person and there is no way to reach one.
    fn needs_browser(&self) -> bool {
        matches!(self.settings.grant, Grant::AuthorizationCode) && self.browser.is_none()
    }

    pub(super) fn requester(&self) -> TokenRequester<'_> {
        TokenRequester {
            http: &self.http,
            settings: &self.settings,
            provider: self.provider.as_ref(),
        }
    }

    fn record_token(&self, operation: &Operation) {
        if let Some(token) = self.token_cache.token() {
            self.attempts().record_token(operation, token, Instant::now());
        }
    }

    async fn acquire_permit(&self) -> Result<SemaphorePermit<'_>, AuthError> {
        self.permits.acquire().await.map_err(|_closed| unreachable("the program is ending"))
    }

    // It is consistent between statements, so a panic elsewhere cannot have torn it.
    fn attempts(&self) -> MutexGuard<'_, AttemptLimiter> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gets a token by the grant, from the authorization server that was found.
    async fn authorize(
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

    async fn discover(&self, challenge: &BearerChallenge) -> Result<Discovered, AuthError> {
        let record = self.store.load(&self.key).await?.unwrap_or_default();
        let mut preferred: Vec<String> = record.clients.into_keys().collect();
        preferred.extend(record.grant.map(|grant| grant.issuer));
        preferred
            .extend(self.settings.pre_registered.as_ref().and_then(|client| client.issuer.clone()));
        discover(&self.http, &self.server, challenge, &self.settings.protocol_version, &preferred)
            .await
    }
}
