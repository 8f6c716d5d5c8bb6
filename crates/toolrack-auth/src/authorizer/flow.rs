//! What an [`Authorizer`](super::Authorizer) does when it takes time, one thing at a time.

mod acquire;
mod refresh;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolrack_transport::{AtHand, AuthError, Authorization};
use url::Url;

use super::Status;
use super::token_cache::Present;
use crate::attempt_limiter::{Attempts, Operation};
use crate::browser::Browser;
use crate::error::{forbidden, login_needed, unreachable};
use crate::grants::{Asker, now};
use crate::http_client::Http;
use crate::resource_indicator as resource;
use crate::settings::{AuthSettings, Grant};
use crate::token_store::TokenStore;
use crate::www_authenticate::Demand;

/// What an authorizer is made of.
#[derive(Debug)]
pub(super) struct Core {
    server: Url,
    /// What the store knows the server by.
    key: String,
    settings: AuthSettings,
    http: Http,
    provider: Option<Http>,
    store: Arc<dyn TokenStore>,
    browser: Option<Arc<dyn Browser>>,
    gone: CancellationToken,
    present: Present,
    attempts: Mutex<Attempts>,
    /// Whoever changes something takes the one permit, so that a crowd of callers causes one request.
    turn: Semaphore,
}

/// Whether a login happens because a server said no, and not because somebody asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unasked {
    Yes,
    No,
}

impl Core {
    pub(super) fn new(
        server: &Url,
        settings: AuthSettings,
        store: Arc<dyn TokenStore>,
        browser: Option<Arc<dyn Browser>>,
        gone: CancellationToken,
    ) -> Self {
        let provider = match &settings.grant {
            Grant::EnterpriseManaged(it) => {
                Some(Http::new(&it.token_endpoint, settings.network.clone()))
            }
            Grant::AuthorizationCode | Grant::ClientCredentials { .. } => None,
        };
        Self {
            server: server.clone(),
            key: resource::canonical(server),
            http: Http::new(server, settings.network.clone()),
            settings,
            provider,
            store,
            browser,
            gone,
            present: Present::default(),
            attempts: Mutex::default(),
            turn: Semaphore::new(1),
        }
    }

    pub(super) fn at_hand(&self) -> AtHand {
        self.present.hand_out(self.settings.leeway)
    }

    pub(super) async fn obtain(&self) -> Result<Option<Authorization>, AuthError> {
        let _turn = self.take_turn().await?;
        let mut ready = self.at_hand();
        if ready == AtHand::Ask {
            let record = self.store.load(&self.key).await?.unwrap_or_default();
            match self.usable(&record) {
                Some(grant) if grant.is_stale(now(), self.settings.leeway) => {
                    self.renew(None).await?;
                }
                Some(grant) => self.present.adopt(grant),
                None => self.present.let_go(),
            }
            ready = self.at_hand();
        }
        match ready {
            AtHand::Ready(token) => Ok(Some(token)),
            AtHand::Nothing => Ok(None),
            // It was stale when it came; the server may think otherwise, and will say so if not.
            AtHand::Ask => Ok(self.present.token()),
        }
    }

    /// 401: somebody may have done what is needed already; else the token is renewed, else somebody logs in.
    pub(super) async fn unauthorized(
        &self,
        sent: Option<Authorization>,
        demand: Demand,
        operation: Operation,
    ) -> Result<(), AuthError> {
        let _turn = self.take_turn().await?;
        if self.is_overtaken(sent.as_ref()).await? {
            return Ok(());
        }
        let when = (Instant::now(), self.present.lifetime());
        if self.present.is_useless() && self.attempts().is_in_vain(&operation, sent.as_ref(), when)
        {
            return Err(forbidden("the server refuses the token that it has just asked for"));
        }
        let found = self.discover(&demand).await?;
        if self.is_still_for(&found).await? {
            self.renew(sent.as_ref()).await?;
        } else {
            self.present.let_go();
        }
        if self.present.token().is_none_or(|it| Some(&it) == sent.as_ref()) {
            self.authorize(&found, &demand, Unasked::Yes).await?;
        }
        self.note(&operation);
        Ok(())
    }

    /// 403 with `insufficient_scope`: asks for what was held and what is wanted, together.
    pub(super) async fn step_up(
        &self,
        sent: Option<Authorization>,
        demand: Demand,
        operation: Operation,
    ) -> Result<(), AuthError> {
        let _turn = self.take_turn().await?;
        if self.is_overtaken(sent.as_ref()).await? {
            return Ok(());
        }
        let wanted = demand.scopes.clone().unwrap_or_default();
        let named = wanted.join(" ");
        if !self.attempts().step_up(&operation) {
            return Err(forbidden(format_args!(
                "the server keeps asking for more scopes: {named}"
            )));
        }
        if !wanted.is_empty()
            && self.present.granted().is_some_and(|it| wanted.iter().all(|x| it.contains(x)))
        {
            return Err(forbidden(format_args!(
                "the server asks for scopes that were granted: {named}"
            )));
        }
        if self.is_alone() {
            self.remember_wanted(&wanted).await?;
            return Err(self.login_hint(format_args!("the server asks for more scopes ({named})")));
        }
        let found = self.discover(&demand).await?;
        self.authorize(&found, &demand, Unasked::Yes).await
    }

    pub(super) async fn login(&self) -> Result<Status, AuthError> {
        let _turn = self.take_turn().await?;
        self.attempts().forget();
        let reply = self.http.knock(&self.settings.protocol_version).await?;
        let demand = Demand::read(&reply.challenges);
        let found = self.discover(&demand).await?;
        self.authorize(&found, &demand, Unasked::No).await?;
        self.status().await
    }

    pub(super) async fn logout(&self) -> Result<(), AuthError> {
        let _turn = self.take_turn().await?;
        let mut hold = self.store.hold(&self.key).await?;
        let record = hold.load().await?.unwrap_or_default();
        hold.save(None).await?;
        drop(hold);
        self.present.let_go();
        self.attempts().forget();
        self.revoke(&record).await;
        Ok(())
    }

    pub(super) async fn status(&self) -> Result<Status, AuthError> {
        let record = self.store.load(&self.key).await?.unwrap_or_default();
        let Some(grant) = self.usable(&record) else { return Ok(Status::LoggedOut) };
        let needs_person = matches!(self.settings.grant, Grant::AuthorizationCode);
        Ok(Status::LoggedIn {
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
    fn is_alone(&self) -> bool {
        matches!(self.settings.grant, Grant::AuthorizationCode) && self.browser.is_none()
    }

    fn asker(&self) -> Asker<'_> {
        Asker { http: &self.http, settings: &self.settings, provider: self.provider.as_ref() }
    }

    fn note(&self, operation: &Operation) {
        if let Some(token) = self.present.token() {
            self.attempts().got(operation, token, Instant::now());
        }
    }

    async fn take_turn(&self) -> Result<SemaphorePermit<'_>, AuthError> {
        self.turn.acquire().await.map_err(|_closed| unreachable("the program is ending"))
    }

    // It is consistent between statements, so a panic elsewhere cannot have torn it.
    fn attempts(&self) -> MutexGuard<'_, Attempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
