//! OAuth state of one server: 401 and 403 handling, login, logout, and token refresh, which all tasks and all
//! processes of a user share.
//!
//! Authorization servers may rotate refresh tokens: each one works once. Two processes that refresh with the same
//! one would invalidate the login. `grants` has the token request itself.
//!
//! **Invariant:** a refresh happens under the store lock, after the stored credentials were read under that
//! lock: a process that finds a newer token uses it, and no process overwrites or removes a token that it has
//! not read.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolrack_transport::{AuthError, Authorization, CachedCredential};
use url::Url;

use super::LoginStatus;
use super::token_cache::TokenCache;
use crate::attempt_limiter::{AttemptLimiter, Operation};
use crate::authorization_code::log_in;
use crate::browser::Browser;
use crate::client_registration::check_binding;
use crate::discovery::{Discovered, canonical_resource, discover, resource_covers};
use crate::error::{forbidden, login_needed, unreachable};
use crate::grants::{TokenRequester, check_profile, now, select_scopes, union_scopes};
use crate::http_client::{FORM, Form};
use crate::settings::AuthSettings;
use crate::stored_credentials::{ClientBinding, GrantSource, StoredCredentials, StoredGrant};
use crate::token_endpoint::{TokenError, authenticate_request};
use crate::token_store::{StoreLock, TokenStore};
use crate::www_authenticate::BearerChallenge;

/// State behind an [`Authorizer`](super::Authorizer).
#[derive(Debug)]
pub(super) struct AuthFlow {
    server: Url,
    /// Key of the server in the store.
    key: String,
    requester: TokenRequester,
    store: Arc<dyn TokenStore>,
    browser: Option<Arc<dyn Browser>>,
    token_cache: TokenCache,
    attempts: Mutex<AttemptLimiter>,
    /// Single permit. Every operation that may change the token holds it, so that many concurrent 401 responses
    /// cause one request.
    permit: Semaphore,
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
        Self {
            server: server.clone(),
            key: canonical_resource(server),
            requester: TokenRequester::new(server, settings, cancel),
            store,
            browser,
            token_cache: TokenCache::default(),
            attempts: Mutex::default(),
            permit: Semaphore::new(1),
        }
    }

    pub(super) fn cached(&self) -> CachedCredential {
        self.token_cache.credential(self.settings().leeway)
    }

    pub(super) async fn obtain(&self) -> Result<Option<Authorization>, AuthError> {
        let _guard = self.lock_flow().await?;
        // Read after the permit: another task may have obtained the token during the wait.
        let mut credential = self.cached();
        if credential == CachedCredential::Obtain {
            let credentials = self.load().await?;
            match self.configured_grant(&credentials) {
                Some(grant) if !grant.is_usable(None, now(), self.settings().leeway) => {
                    self.refresh(None).await?;
                }
                Some(grant) => self.token_cache.set(grant),
                // Without a login the request goes out without a token; a challenge starts the
                // login.
                None => self.token_cache.clear(),
            }
            credential = self.cached();
        }
        match credential {
            CachedCredential::Ready(token) => Ok(Some(token)),
            CachedCredential::None => Ok(None),
            // The token was stale on arrival. The server may still accept it; if not, it sends a challenge.
            CachedCredential::Obtain => Ok(self.token_cache.token()),
        }
    }

    /// Handles a 401 or 403 response. `Ok` if the request should be sent again.
    pub(super) async fn handle_challenge(
        &self,
        status: u16,
        sent: Option<Authorization>,
        challenge: BearerChallenge,
        operation: Operation,
    ) -> Result<(), AuthError> {
        let is_step_up = status == 403 && challenge.is_insufficient_scope();
        if status != 401 && !is_step_up {
            return Err(forbidden(format_args!("the server responded with status {status}")));
        }
        let _guard = self.lock_flow().await?;
        // Of many concurrent responses, only the first finds the token that it sent.
        if self.token_changed(sent.as_ref()).await? {
            return Ok(());
        }
        if is_step_up {
            return self.step_up(&challenge, &operation).await;
        }
        self.replace_token(sent.as_ref(), &challenge, &operation).await
    }

    /// 401: refreshes the token, else logs in.
    async fn replace_token(
        &self,
        sent: Option<&Authorization>,
        challenge: &BearerChallenge,
        operation: &Operation,
    ) -> Result<(), AuthError> {
        let lifetime = self.token_cache.grant().and_then(|grant| grant.lifetime());
        let now_and_lifetime = (Instant::now(), lifetime);
        // First in the condition, because the rejection must be counted in any case.
        if self.token_cache.record_rejection()
            && self.attempts.lock().is_exhausted(operation, sent, now_and_lifetime)
        {
            return Err(forbidden("the server rejects a token that was just issued"));
        }
        let found = self.discover(challenge).await?;
        // The server may now name another authorization server, which must not see the refresh
        // token.
        if self.grant_from(&found, &self.load().await?).is_some() {
            self.refresh(sent).await?;
        } else {
            self.token_cache.clear();
        }
        // The refresh brought no other token, so only a login can help.
        if self.token_cache.token().is_none_or(|token| Some(&token) == sent) {
            self.authorize(&found, challenge, LoginTrigger::Challenge).await?;
        }
        if let Some(token) = self.token_cache.token() {
            self.attempts.lock().record_token(operation, token, Instant::now());
        }
        Ok(())
    }

    /// 403 with `insufficient_scope`: requests the previous scopes and the missing ones together.
    async fn step_up(
        &self,
        challenge: &BearerChallenge,
        operation: &Operation,
    ) -> Result<(), AuthError> {
        let missing = challenge.scopes.as_deref().unwrap_or_default();
        let scope_list = missing.join(" ");
        if !self.attempts.lock().allow_step_up(operation) {
            return Err(forbidden(format_args!(
                "the server keeps requesting more scopes: {scope_list}"
            )));
        }
        let granted = self.token_cache.grant().map(|grant| grant.granted).unwrap_or_default();
        // Another login would bring the same scopes again.
        if !missing.is_empty() && missing.iter().all(|scope| granted.contains(scope)) {
            return Err(forbidden(format_args!(
                "the server requests scopes that are already granted: {scope_list}"
            )));
        }
        if self.settings().grant.needs_user() && self.browser.is_none() {
            // The next login requests them: no user is there to grant them now.
            let lock = self.store.lock(&self.key).await?;
            let mut credentials = self.load().await?;
            credentials.pending_scopes = union_scopes(&credentials.pending_scopes, missing);
            self.save(&lock, &credentials).await?;
            return Err(login_needed(format_args!(
                "the server requests more scopes ({scope_list})"
            )));
        }
        let found = self.discover(challenge).await?;
        self.authorize(&found, challenge, LoginTrigger::Challenge).await
    }

    pub(super) async fn login(&self) -> Result<LoginStatus, AuthError> {
        let _guard = self.lock_flow().await?;
        *self.attempts.lock() = AttemptLimiter::default();
        let challenge = self.requester.http.probe().await?;
        let found = self.discover(&challenge).await?;
        self.authorize(&found, &challenge, LoginTrigger::User).await?;
        self.status().await
    }

    pub(super) async fn logout(&self) -> Result<(), AuthError> {
        let _guard = self.lock_flow().await?;
        let lock = self.store.lock(&self.key).await?;
        let credentials = self.load().await?;
        self.store.save(&lock, None).await?;
        // Revocation is a network request; it does not need the lock.
        drop(lock);
        self.token_cache.clear();
        *self.attempts.lock() = AttemptLimiter::default();
        self.revoke(&credentials).await;
        Ok(())
    }

    pub(super) async fn status(&self) -> Result<LoginStatus, AuthError> {
        let credentials = self.load().await?;
        let Some(grant) = self.configured_grant(&credentials) else {
            return Ok(LoginStatus::LoggedOut);
        };
        Ok(LoginStatus::LoggedIn {
            issuer: grant.source.issuer.clone(),
            client_id: grant.client_id.clone(),
            scopes: grant.granted.clone(),
            expires_at: grant.expires_at,
            renewable: !self.settings().grant.needs_user() || grant.refresh_token.is_some(),
        })
    }

    fn settings(&self) -> &AuthSettings {
        &self.requester.settings
    }

    async fn lock_flow(&self) -> Result<SemaphorePermit<'_>, AuthError> {
        self.permit.acquire().await.map_err(|_closed| unreachable("the program is shutting down"))
    }

    /// The stored credentials. To change them, read them under the lock.
    async fn load(&self) -> Result<StoredCredentials, AuthError> {
        let credentials = self.store.load(&self.key).await?.unwrap_or_default();
        credentials.add_secrets_to(&self.settings().redactor, &self.key);
        Ok(credentials)
    }

    async fn save(
        &self,
        lock: &StoreLock,
        credentials: &StoredCredentials,
    ) -> Result<(), AuthError> {
        // Before saving: another process may use the secret as soon as it is stored.
        credentials.add_secrets_to(&self.settings().redactor, &self.key);
        Ok(self.store.save(lock, Some(credentials)).await?)
    }

    /// Obtains a token with the configured grant from the discovered authorization server.
    async fn authorize(
        &self,
        found: &Discovered,
        challenge: &BearerChallenge,
        trigger: LoginTrigger,
    ) -> Result<(), AuthError> {
        let (requester, settings) = (&self.requester, self.settings());
        check_profile(found, settings)?;
        let credentials = self.load().await?;
        let scopes = self.scopes(found, challenge, &credentials);
        let source = GrantSource::from_discovery(&requester.http, found, scopes)?;
        let issuer = source.issuer.clone();
        let (client, grant) = if settings.grant.needs_user() {
            let Some(browser) = self.browser.as_deref() else {
                return Err(login_needed("not logged in"));
            };
            if trigger == LoginTrigger::Challenge
                && !self.attempts.lock().allow_login(Instant::now())
            {
                return Err(login_needed("the server keeps requesting a login"));
            }
            let (client, grant) = log_in(requester, browser, found, source, &credentials).await?;
            (Some(client), grant)
        } else {
            if let Some(registered) = &settings.pre_registered {
                check_binding(registered, &credentials, &issuer)?;
            }
            (None, requester.request_unattended(source).await?)
        };
        // The lock is taken only now: a user may take minutes to log in, and other processes must not wait for
        // that. So the credentials are read again.
        let lock = self.store.lock(&self.key).await?;
        let mut credentials = self.load().await?;
        if settings.pre_registered.is_some() {
            credentials.client_binding =
                Some(ClientBinding { client_id: grant.client_id.clone(), issuer });
        } else if let Some(client) = client.filter(|client| client.redirect_uri.is_some()) {
            credentials.clients.insert(issuer, client);
        }
        // Before saving: if that fails, this process can still use the token.
        self.token_cache.set(&grant);
        credentials.pending_scopes.clear();
        credentials.grant = Some(grant);
        self.save(&lock, &credentials).await
    }

    fn scopes(
        &self,
        found: &Discovered,
        challenge: &BearerChallenge,
        credentials: &StoredCredentials,
    ) -> Vec<String> {
        // Scopes granted by another authorization server mean nothing to this one.
        let granted = self.grant_from(found, credentials);
        let granted = granted.map(|grant| union_scopes(&grant.source.requested, &grant.granted));
        let previous = union_scopes(&granted.unwrap_or_default(), &credentials.pending_scopes);
        let settings = self.settings().scopes.as_deref();
        select_scopes(settings, challenge.scopes.as_deref(), found, &previous)
    }

    async fn discover(&self, challenge: &BearerChallenge) -> Result<Discovered, AuthError> {
        let credentials = self.load().await?;
        // Known authorization servers first: a new one would need a registration and a login.
        let mut preferred: Vec<String> = credentials.clients.into_keys().collect();
        preferred.extend(credentials.grant.map(|grant| grant.source.issuer));
        let configured = self.settings().pre_registered.as_ref();
        preferred.extend(configured.and_then(|client| client.issuer.clone()));
        discover(&self.requester.http, &self.server, challenge, &preferred).await
    }

    /// Whether there is a token other than the rejected one, in the cache or in the store.
    async fn token_changed(&self, rejected: Option<&Authorization>) -> Result<bool, AuthError> {
        if self.token_cache.token().is_some_and(|token| Some(&token) != rejected) {
            return Ok(true);
        }
        // Without the lock: reading is safe, and a newer token saves the wait for it.
        let credentials = self.load().await?;
        let (stored, leeway) = (self.configured_grant(&credentials), self.settings().leeway);
        let newer = stored.filter(|grant| grant.is_usable(rejected, now(), leeway));
        if let Some(grant) = newer {
            self.token_cache.set(grant);
        }
        Ok(newer.is_some())
    }

    /// Refreshes the token under the lock, or takes the newer one of another process.
    /// Afterwards the cache has a token, or is empty if the user must log in again.
    async fn refresh(&self, rejected: Option<&Authorization>) -> Result<(), AuthError> {
        // Held during the token request: other processes wait here, and then find the new token.
        let lock = self.store.lock(&self.key).await?;
        // Read again under the lock: another process may have used up the refresh token meanwhile.
        let mut credentials = self.load().await?;
        let Some(grant) = self.configured_grant(&credentials).cloned() else {
            self.token_cache.clear();
            return Ok(());
        };
        if grant.is_usable(rejected, now(), self.settings().leeway) {
            self.token_cache.set(&grant);
            return Ok(());
        }
        match self.requester.refresh(&credentials, &grant).await {
            Ok(Some(next)) => {
                // Before saving: if that fails, this process can still use the token.
                self.token_cache.set(&next);
                credentials.grant = Some(next);
                self.save(&lock, &credentials).await?;
            }
            Ok(None) => self.token_cache.clear(),
            // May be temporary, so the stored grant stays.
            Err(TokenError::Other(error)) => return Err(error),
            Err(error) => {
                self.token_cache.clear();
                self.discard_grant(&lock, &grant, &error).await?;
            }
        }
        Ok(())
    }

    /// Removes an expired grant, if it is still the stored one.
    async fn discard_grant(
        &self,
        lock: &StoreLock,
        expired: &StoredGrant,
        error: &TokenError,
    ) -> Result<(), AuthError> {
        let mut credentials = self.load().await?;
        let stored = credentials.grant.as_ref();
        if stored.is_none_or(|stored| stored.refresh_token != expired.refresh_token) {
            // A program that ignores the lock has stored a newer grant.
            if let Some(grant) = self.configured_grant(&credentials) {
                self.token_cache.set(grant);
            }
            return Ok(());
        }
        tracing::info!(server = %self.key, "the login has expired");
        credentials.grant = None;
        // The registration goes too, so that the next login registers anew.
        if matches!(error, TokenError::InvalidClient(_)) {
            credentials.clients.remove(&expired.source.issuer);
        }
        // The next login requests the scopes of the lost grant again.
        credentials.pending_scopes =
            union_scopes(&credentials.pending_scopes, &expired.source.requested);
        self.save(lock, &credentials).await
    }

    /// The stored grant, if it is from the discovered authorization server and for the same resource.
    fn grant_from<'a>(
        &self,
        found: &Discovered,
        credentials: &'a StoredCredentials,
    ) -> Option<&'a StoredGrant> {
        self.configured_grant(credentials).filter(|grant| {
            grant.source.issuer == found.metadata.issuer && grant.source.resource == found.resource
        })
    }

    /// The stored grant, if it is for this server and for the configured client.
    fn configured_grant<'a>(&self, credentials: &'a StoredCredentials) -> Option<&'a StoredGrant> {
        let grant = credentials.grant.as_ref()?;
        // After a change of the configured client, the token of the old client must not be sent.
        let is_same_client = self.settings().pre_registered.as_ref().is_none_or(|client| {
            client.client_id == grant.client_id
                && client.issuer.as_ref().is_none_or(|issuer| *issuer == grant.source.issuer)
        });
        (is_same_client && resource_covers(&grant.source.resource, &self.server)).then_some(grant)
    }

    /// Revokes the token at the authorization server. Best effort: the local copy is already gone.
    async fn revoke(&self, credentials: &StoredCredentials) {
        let (Some(grant), http) = (&credentials.grant, &self.requester.http) else { return };
        let endpoint = grant.source.revocation_endpoint.as_deref();
        let Ok(url) = http.endpoint(endpoint, "revocation") else { return };
        let Ok(auth) = self.requester.request_auth(credentials, grant) else { return };
        // RFC 7009 §2.1: with the refresh token, the server should also revoke its access tokens.
        let secret = grant.refresh_token.as_ref().unwrap_or(&grant.access_token);
        let (form, header) =
            authenticate_request(Form::default().with("token", secret.clone()), &auth);
        if let Err(error) = http.post(&url, FORM, form.encode(), header.as_ref()).await {
            tracing::debug!(%error, "could not revoke the token");
        }
    }
}
