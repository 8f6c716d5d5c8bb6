//! A person logs in: the authorization code flow with PKCE, from the URL to the token.

use tokio_util::sync::CancellationToken;
use toolrack_transport::AuthError;
use url::Url;

use crate::browser::{Browser, Errand, Landing, Outcome, Visit};
use crate::callback::{Expected, accept};
use crate::client_identity::{Client, Introduction, introduce};
use crate::discovery::Found;
use crate::error::login_needed;
use crate::grants::{Asker, Source, code_form, now};
use crate::pkce::{s256, unguessable};
use crate::registration::{Introducing, register};
use crate::scopes as scope;
use crate::secret::Secret;
use crate::stored_credentials::{GrantRecord, Record};
use crate::token_endpoint::{self as token, Kind};

/// What a login has brought.
#[derive(Debug)]
pub(crate) struct LoggedIn {
    /// Who we are at the issuer now.
    pub(crate) client: Client,
    pub(crate) grant: GrantRecord,
}

/// Everything one login is about.
#[derive(Debug)]
pub(crate) struct Login<'a> {
    pub(crate) asker: Asker<'a>,
    pub(crate) browser: &'a dyn Browser,
    pub(crate) found: &'a Found,
    pub(crate) source: Source,
    pub(crate) record: &'a Record,
    /// Ends the wait for the person.
    pub(crate) gone: &'a CancellationToken,
}

impl Login<'_> {
    /// Sends the person off, checks what comes back, and turns it into a token.
    pub(crate) async fn run(self) -> Result<LoggedIn, AuthError> {
        let metadata = &self.found.metadata;
        metadata.require_s256()?;
        let page = metadata.authorization_endpoint.as_deref();
        let page = self.asker.http.endpoint(page, "authorization")?;
        let registered = self.record.clients.get(&metadata.issuer);
        let wish = registered.and_then(|it| it.redirect_uri.as_deref());
        let visit = self.browser.prepare(wish).await?;
        let redirect_uri = visit.redirect_uri().to_owned();
        let client = self.client(&redirect_uri, registered).await?;

        let (state, verifier) = (unguessable()?, unguessable()?);
        let url = self.url(page, &client, &redirect_uri, (&state, &verifier));
        let errand = Errand::new(url, &metadata.issuer, &self.source.scopes, state.clone());
        let expected = Expected {
            state,
            issuer: metadata.issuer.clone(),
            names_itself: metadata.authorization_response_iss_parameter_supported,
        };
        let landing = self.landing(visit, errand).await?;
        let code = accept(landing.query().reveal(), &expected);
        let outcome = match code {
            Ok(code) => self.exchange(code, verifier, client, &redirect_uri).await,
            Err(error) => Err(error),
        };
        landing.conclude(told(&outcome)).await;
        outcome
    }

    async fn landing(
        &self,
        visit: Box<dyn Visit>,
        errand: Errand,
    ) -> Result<Box<dyn Landing>, AuthError> {
        tokio::select! {
            landing = visit.go(errand) => landing,
            () = self.gone.cancelled() => Err(login_needed("the login was given up")),
        }
    }

    async fn client(
        &self,
        redirect_uri: &str,
        registered: Option<&Client>,
    ) -> Result<Client, AuthError> {
        let (metadata, settings) = (&self.found.metadata, self.asker.settings);
        let id = settings.pre_registered.as_ref().map(|it| it.client_id.as_str());
        let bound = self.record.bound.as_ref().filter(|it| Some(it.client_id.as_str()) == id);
        let bound = bound.map(|it| it.issuer.as_str());
        let place = (redirect_uri, now() / 1_000);
        match introduce(settings, metadata, bound, registered, place)? {
            Introduction::Known(client) => Ok(client),
            Introduction::Register(endpoint) => {
                let endpoint = self.asker.http.endpoint(Some(&endpoint), "registration")?;
                let introducing = Introducing {
                    client_name: &settings.client_name,
                    redirect_uri,
                    scopes: &self.source.scopes,
                    supported: self.source.auth_methods.as_deref(),
                };
                register(self.asker.http, &endpoint, &introducing).await
            }
        }
    }

    /// The page, with everything it has to know.
    fn url(
        &self,
        mut page: Url,
        client: &Client,
        redirect_uri: &str,
        (state, verifier): (&Secret, &Secret),
    ) -> Url {
        let scopes = &self.source.scopes;
        let mut query = page.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", &client.id)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("state", state.reveal())
            .append_pair("code_challenge", &s256(verifier))
            .append_pair("code_challenge_method", "S256")
            .append_pair("resource", &self.source.resource);
        if let Some(scope) = scope::parameter(scopes) {
            query.append_pair("scope", &scope);
        }
        if scopes.iter().any(|it| it == "offline_access") {
            // OpenID Connect Core §11: without consent, the scope is ignored.
            query.append_pair("prompt", "consent");
        }
        drop(query);
        page
    }

    async fn exchange(
        &self,
        code: Secret,
        verifier: Secret,
        client: Client,
        redirect_uri: &str,
    ) -> Result<LoggedIn, AuthError> {
        let source = self.source.clone();
        let form = code_form(code, verifier, redirect_uri, &source.resource);
        let proof = source.proof(&client)?;
        let (http, endpoint) = (self.asker.http, &source.endpoint);
        let issued = token::request(http, endpoint, form, &proof, Kind::Bearer).await?;
        let grant = source.record(&client.id, issued, None);
        Ok(LoggedIn { client, grant })
    }
}

fn told(outcome: &Result<LoggedIn, AuthError>) -> Outcome {
    match outcome {
        Ok(_) => Outcome::Done,
        Err(error) => Outcome::Failed(error.to_string()),
    }
}
