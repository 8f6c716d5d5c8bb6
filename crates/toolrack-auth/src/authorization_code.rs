//! A person logs in: the authorization code flow with PKCE, from the URL to the token.

use crate::scopes::scope_param;
use crate::token_endpoint::request_token;
use tokio_util::sync::CancellationToken;
use toolrack_transport::AuthError;
use url::Url;

use crate::browser::{AuthorizationResponse, Browser, LoginOutcome, LoginRequest, PreparedLogin};
use crate::callback::{ExpectedCallback, validate_callback};
use crate::client_identity::{Client, ClientChoice, choose_client};
use crate::discovery::Discovered;
use crate::error::login_needed;
use crate::grants::{GrantSource, TokenRequester, code_form, now};
use crate::pkce::{random_token, s256_challenge};
use crate::registration::{RegistrationRequest, register};
use crate::secret::Secret;
use crate::stored_credentials::{StoredCredentials, StoredGrant};
use crate::token_endpoint::TokenKind;

/// What a login has brought.
#[derive(Debug)]
pub(crate) struct LoginResult {
    /// Who we are at the issuer now.
    pub(crate) client: Client,
    pub(crate) grant: StoredGrant,
}

/// Everything one login is about.
#[derive(Debug)]
pub(crate) struct AuthorizationCodeFlow<'a> {
    pub(crate) requester: TokenRequester<'a>,
    pub(crate) browser: &'a dyn Browser,
    pub(crate) found: &'a Discovered,
    pub(crate) source: GrantSource,
    pub(crate) record: &'a StoredCredentials,
    /// Ends the wait for the person.
    pub(crate) cancel: &'a CancellationToken,
}

impl AuthorizationCodeFlow<'_> {
    /// Sends the person off, checks what comes back, and turns it into a token.
    pub(crate) async fn run(self) -> Result<LoginResult, AuthError> {
        let metadata = &self.found.metadata;
        metadata.require_s256()?;
        let page = metadata.authorization_endpoint.as_deref();
        let page = self.requester.http.endpoint(page, "authorization")?;
        let registered = self.record.clients.get(&metadata.issuer);
        let preferred = registered.and_then(|client| client.redirect_uri.as_deref());
        let login = self.browser.prepare(preferred).await?;
        let redirect_uri = login.redirect_uri().to_owned();
        let client = self.client(&redirect_uri, registered).await?;

        let (state, verifier) = (random_token()?, random_token()?);
        let url = self.authorization_url(page, &client, &redirect_uri, (&state, &verifier));
        let request = LoginRequest::new(url, &metadata.issuer, &self.source.scopes, state.clone());
        let expected = ExpectedCallback {
            state,
            issuer: metadata.issuer.clone(),
            sends_issuer: metadata.authorization_response_iss_parameter_supported,
        };
        let response = self.wait_for_response(login, request).await?;
        let code = validate_callback(response.query().reveal(), &expected);
        let outcome = match code {
            Ok(code) => self.exchange_code(code, verifier, client, &redirect_uri).await,
            Err(error) => Err(error),
        };
        response.finish(outcome_for(&outcome)).await;
        outcome
    }

    async fn wait_for_response(
        &self,
        login: Box<dyn PreparedLogin>,
        request: LoginRequest,
    ) -> Result<Box<dyn AuthorizationResponse>, AuthError> {
        tokio::select! {
            response = login.run(request) => response,
            () = self.cancel.cancelled() => Err(login_needed("the login was given up")),
        }
    }

    async fn client(
        &self,
        redirect_uri: &str,
        registered: Option<&Client>,
    ) -> Result<Client, AuthError> {
        let (metadata, settings) = (&self.found.metadata, self.requester.settings);
        let id = settings.pre_registered.as_ref().map(|client| client.client_id.as_str());
        let binding = self
            .record
            .client_binding
            .as_ref()
            .filter(|binding| Some(binding.client_id.as_str()) == id);
        let binding = binding.map(|binding| binding.issuer.as_str());
        let redirect = (redirect_uri, now() / 1_000);
        match choose_client(settings, metadata, binding, registered, redirect)? {
            ClientChoice::Use(client) => Ok(client),
            ClientChoice::Register(endpoint) => {
                let endpoint = self.requester.http.endpoint(Some(&endpoint), "registration")?;
                let registration = RegistrationRequest {
                    client_name: &settings.client_name,
                    redirect_uri,
                    scopes: &self.source.scopes,
                    supported: self.source.auth_methods.as_deref(),
                };
                register(self.requester.http, &endpoint, &registration).await
            }
        }
    }

    /// The page, with everything it has to know.
    fn authorization_url(
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
            .append_pair("code_challenge", &s256_challenge(verifier))
            .append_pair("code_challenge_method", "S256")
            .append_pair("resource", &self.source.resource);
        if let Some(scope) = scope_param(scopes) {
            query.append_pair("scope", &scope);
        }
        if scopes.iter().any(|scope| scope == "offline_access") {
            // OpenID Connect Core §11: without consent, the scope is ignored.
            query.append_pair("prompt", "consent");
        }
        drop(query);
        page
    }

    async fn exchange_code(
        &self,
        code: Secret,
        verifier: Secret,
        client: Client,
        redirect_uri: &str,
    ) -> Result<LoginResult, AuthError> {
        let source = self.source.clone();
        let form = code_form(code, verifier, redirect_uri, &source.resource);
        let auth = source.request_auth(&client)?;
        let (http, endpoint) = (self.requester.http, &source.endpoint);
        let issued = request_token(http, endpoint, form, &auth, TokenKind::Bearer).await?;
        let grant = source.into_stored_grant(&client.id, issued, None);
        Ok(LoginResult { client, grant })
    }
}

fn outcome_for(outcome: &Result<LoginResult, AuthError>) -> LoginOutcome {
    match outcome {
        Ok(_) => LoginOutcome::Success,
        Err(error) => LoginOutcome::Failed(error.to_string()),
    }
}
