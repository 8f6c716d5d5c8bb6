//! OAuth state of one server: 401 and 403 handling, login, logout, and obtaining a first token.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolrack_transport::{AuthError, Authorization, CachedCredential};
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

/// State behind an [`Authorizer`](super::Authorizer).
#[derive(Debug)]
pub(super) struct AuthFlow {
    pub(super) server: Url,
    /// Key of the server in the store.
    pub(super) key: String,
    pub(super) settings: AuthSettings,
    pub(super) http: HttpClient,
    pub(super) provider: Option<HttpClient>,
    pub(super) store: Arc<dyn TokenStore>,
    pub(super) browser: Option<Arc<dyn Browser>>,
    pub(super) cancel: CancellationToken,
    pub(super) token_cache: TokenCache,
    pub(super) attempts: Mutex<AttemptLimiter>,
    /// Single permit. Every operation that may change the token holds it, so that many concurrent 401 responses
    /// cause one request.
    pub(super) permit: Semaphore,
}

/// What caused a login: a challenge from the server, or the user.
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
            permit: Semaphore::new(1),
        }
    }

    pub(super) fn at_hand(&self) -> CachedCredential {
        self.token_cache.credential(self.settings.leeway)
    }

    pub(super) async fn obtain(&self) -> Result<Option<Authorization>, AuthError> {
        let _guard = self.lock_flow().await?;
        // Read after the permit: another task may have obtained the token during the wait.
        let mut credential = self.at_hand();
        if credential == CachedCredential::Obtain {
            let credentials = self.store.load(&self.key).await?.unwrap_or_default();
            match self.usable_grant(&credentials) {
                Some(grant) if grant.is_stale(now(), self.settings.leeway) => {
                    self.refresh(None).await?;
                }
                Some(grant) => self.token_cache.set(grant),
                // Without a login the request goes out without a token; a challenge starts the
                // login.
                None => self.token_cache.clear(),
            }
            credential = self.at_hand();
        }
        match credential {
            CachedCredential::Ready(token) => Ok(Some(token)),
            CachedCredential::None => Ok(None),
            // The token was stale on arrival. The server may still accept it; if not, it sends a challenge.
            CachedCredential::Obtain => Ok(self.token_cache.token()),
        }
    }

    /// 401: uses a token that has changed meanwhile, else refreshes it, else logs in.
    pub(super) async fn handle_unauthorized(
        &self,
        sent: Option<Authorization>,
        challenge: BearerChallenge,
        operation: Operation,
    ) -> Result<(), AuthError> {
        let _guard = self.lock_flow().await?;
        // Of many concurrent 401 responses, only the first finds the token that it sent.
        if self.token_changed(sent.as_ref()).await? {
            return Ok(());
        }
        let now_and_lifetime = (Instant::now(), self.token_cache.lifetime());
        // First in the condition, because the rejection must be counted in any case.
        if self.token_cache.record_rejection()
            && self.attempts().is_exhausted(&operation, sent.as_ref(), now_and_lifetime)
        {
            return Err(forbidden("the server rejects a token that was just issued"));
        }
        let found = self.discover(&challenge).await?;
        // The server may now name another authorization server, which must not see the refresh
        // token.
        if self.grant_matches(&found).await? {
            self.refresh(sent.as_ref()).await?;
        } else {
            self.token_cache.clear();
        }
        // The refresh brought no other token, so only a login can help.
        if self.token_cache.token().is_none_or(|token| Some(&token) == sent.as_ref()) {
            self.authorize(&found, &challenge, LoginTrigger::Challenge).await?;
        }
        self.record_token(&operation);
        Ok(())
    }

    /// 403 with `insufficient_scope`: requests the previous scopes and the missing ones together.
    pub(super) async fn step_up(
        &self,
        sent: Option<Authorization>,
        challenge: BearerChallenge,
        operation: Operation,
    ) -> Result<(), AuthError> {
        let _guard = self.lock_flow().await?;
        if self.token_changed(sent.as_ref()).await? {
            return Ok(());
        }
        let missing = challenge.scopes.clone().unwrap_or_default();
        let scope_list = missing.join(" ");
        if !self.attempts().allow_step_up(&operation) {
            return Err(forbidden(format_args!(
                "the server keeps requesting more scopes: {scope_list}"
            )));
        }
        // Another login would bring the same scopes again.
        if !missing.is_empty()
            && self
                .token_cache
                .granted_scopes()
                .is_some_and(|granted| missing.iter().all(|scope| granted.contains(scope)))
        {
            return Err(forbidden(format_args!(
                "the server requests scopes that are already granted: {scope_list}"
            )));
        }
        if self.lacks_browser() {
            self.save_pending_scopes(&missing).await?;
            return Err(self.login_needed_error(format_args!(
                "the server requests more scopes ({scope_list})"
            )));
        }
        let found = self.discover(&challenge).await?;
        self.authorize(&found, &challenge, LoginTrigger::Challenge).await
    }

    pub(super) async fn login(&self) -> Result<LoginStatus, AuthError> {
        let _guard = self.lock_flow().await?;
        self.attempts().reset();
        let response = self.http.probe(&self.settings.protocol_version).await?;
        let challenge = BearerChallenge::from_headers(&response.challenges);
        let found = self.discover(&challenge).await?;
        self.authorize(&found, &challenge, LoginTrigger::User).await?;
        self.status().await
    }

    pub(super) async fn logout(&self) -> Result<(), AuthError> {
        let _guard = self.lock_flow().await?;
        let mut lock = self.store.lock(&self.key).await?;
        let credentials = lock.load().await?.unwrap_or_default();
        lock.save(None).await?;
        // Revocation is a network request; it does not need the lock.
        drop(lock);
        self.token_cache.clear();
        self.attempts().reset();
        self.revoke(&credentials).await;
        Ok(())
    }

    pub(super) async fn status(&self) -> Result<LoginStatus, AuthError> {
        let credentials = self.store.load(&self.key).await?.unwrap_or_default();
        let Some(grant) = self.usable_grant(&credentials) else {
            return Ok(LoginStatus::LoggedOut);
        };
        let is_interactive = matches!(self.settings.grant, Grant::AuthorizationCode);
        Ok(LoginStatus::LoggedIn {
            issuer: grant.issuer.clone(),
            client_id: grant.client_id.clone(),
            scopes: grant.granted.clone(),
            expires_at: grant.expires_at,
            renewable: !is_interactive || grant.refresh_token.is_some(),
        })
    }

    fn login_needed_error(&self, reason: impl std::fmt::Display) -> AuthError {
        let name = self.settings.server_name.as_deref().unwrap_or(&self.key);
        login_needed(format_args!("{reason}; run `toolrack login {name}`"))
    }

    /// Whether a login needs a browser and there is none.
    fn lacks_browser(&self) -> bool {
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

    async fn lock_flow(&self) -> Result<SemaphorePermit<'_>, AuthError> {
        self.permit.acquire().await.map_err(|_closed| unreachable("the program is shutting down"))
    }

    // No statement leaves it inconsistent, so a poisoned lock is safe to use.
    fn attempts(&self) -> MutexGuard<'_, AttemptLimiter> {
        self.attempts.lock()
    }

    /// Obtains a token with the configured grant from the discovered authorization server.
    async fn authorize(
        &self,
        found: &Discovered,
        challenge: &BearerChallenge,
        trigger: LoginTrigger,
    ) -> Result<(), AuthError> {
        check_profile(found, &self.settings)?;
        let credentials = self.store.load(&self.key).await?.unwrap_or_default();
        let source = GrantSource::from_discovery(
            &self.http,
            found,
            self.scopes(found, challenge, &credentials),
        )?;
        let issuer = source.issuer.clone();
        let (client, grant) = match &self.settings.grant {
            Grant::AuthorizationCode => {
                let Some(browser) = self.browser.as_deref() else {
                    return Err(self.login_needed_error("not logged in"));
                };
                if trigger == LoginTrigger::Challenge
                    && !self.attempts().allow_login(Instant::now())
                {
                    return Err(self.login_needed_error("the server keeps requesting a login"));
                }
                let (requester, cancel) = (self.requester(), &self.cancel);
                let login = AuthorizationCodeFlow {
                    requester,
                    browser,
                    found,
                    source,
                    credentials: &credentials,
                    cancel,
                };
                let logged_in = login.run().await?;
                (Some(logged_in.client), logged_in.grant)
            }
            Grant::ClientCredentials { .. } | Grant::EnterpriseManaged(_) => {
                if let Some(registered) = &self.settings.pre_registered {
                    let binding = credentials
                        .client_binding
                        .as_ref()
                        .filter(|binding| binding.client_id == registered.client_id);
                    let binding = binding.map(|binding| binding.issuer.as_str());
                    check_binding(registered, binding, &issuer)?;
                }
                (None, self.requester().request_unattended(source).await?)
            }
        };
        // The lock is taken only now: a user may take minutes to log in, and other processes must not wait for
        // that. So the credentials are read again.
        let mut lock = self.store.lock(&self.key).await?;
        let mut credentials = lock.load().await?.unwrap_or_default();
        if self.settings.pre_registered.is_some() {
            credentials.client_binding =
                Some(ClientBinding { client_id: grant.client_id.clone(), issuer });
        } else if let Some(client) = client.filter(|client| client.redirect_uri.is_some()) {
            credentials.clients.insert(issuer, client);
        }
        // Before saving: if that fails, this process can still use the token.
        self.token_cache.set(&grant);
        credentials.pending_scopes.clear();
        credentials.grant = Some(grant);
        Ok(lock.save(Some(&credentials)).await?)
    }

    fn scopes(
        &self,
        found: &Discovered,
        challenge: &BearerChallenge,
        credentials: &StoredCredentials,
    ) -> Vec<String> {
        // Scopes granted by another authorization server mean nothing to this one.
        let is_same_issuer = |grant: &&StoredGrant| {
            grant.issuer == found.metadata.issuer && grant.resource == found.resource
        };
        let granted = self.usable_grant(credentials).filter(is_same_issuer);
        let granted =
            granted.map(|grant| union_scopes(&grant.requested, &grant.granted)).unwrap_or_default();
        let previous = union_scopes(&granted, &credentials.pending_scopes);
        select_scopes(ScopeInputs {
            settings: self.settings.scopes.as_deref(),
            challenge: challenge.scopes.as_deref(),
            resource: found.scopes.as_deref(),
            issuer: found.metadata.scopes_supported.as_deref(),
            previous: &previous,
        })
    }

    async fn discover(&self, challenge: &BearerChallenge) -> Result<Discovered, AuthError> {
        let credentials = self.store.load(&self.key).await?.unwrap_or_default();
        // Known authorization servers first: a new one would need a registration and a login.
        let mut preferred: Vec<String> = credentials.clients.into_keys().collect();
        preferred.extend(credentials.grant.map(|grant| grant.issuer));
        preferred
            .extend(self.settings.pre_registered.as_ref().and_then(|client| client.issuer.clone()));
        discover(&self.http, &self.server, challenge, &self.settings.protocol_version, &preferred)
            .await
    }
}
