//! Authorization code flow with PKCE: authorization URL, callback validation, code exchange.

use tokio_util::sync::CancellationToken;
use toolrack_transport::AuthError;
use url::{Url, form_urlencoded};

use crate::browser::{AuthorizationResponse, Browser, LoginOutcome, LoginRequest, PreparedLogin};
use crate::client_registration::{
    Client, ClientChoice, RegistrationRequest, choose_client, register,
};
use crate::discovery::Discovered;
use crate::error::{login_needed, refused, untrusted};
use crate::grants::{GrantSource, TokenRequester, code_form, now, scope_param};
use crate::pkce::{random_token, s256_challenge};
use crate::secret::Secret;
use crate::stored_credentials::{StoredCredentials, StoredGrant};
use crate::token_endpoint::{TokenKind, request_token};

/// Result of a login.
#[derive(Debug)]
pub(crate) struct LoginResult {
    /// The client at this issuer.
    pub(crate) client: Client,
    pub(crate) grant: StoredGrant,
}

/// One run of the flow.
#[derive(Debug)]
pub(crate) struct AuthorizationCodeFlow<'a> {
    pub(crate) requester: TokenRequester<'a>,
    pub(crate) browser: &'a dyn Browser,
    pub(crate) found: &'a Discovered,
    pub(crate) source: GrantSource,
    pub(crate) credentials: &'a StoredCredentials,
    /// Cancels the wait for the user.
    pub(crate) cancel: &'a CancellationToken,
}

impl AuthorizationCodeFlow<'_> {
    /// Opens the browser, validates the callback, and exchanges the code.
    pub(crate) async fn run(self) -> Result<LoginResult, AuthError> {
        let metadata = &self.found.metadata;
        metadata.require_s256()?;
        let endpoint = metadata.authorization_endpoint.as_deref();
        let endpoint = self.requester.http.endpoint(endpoint, "authorization")?;
        let registered = self.credentials.clients.get(&metadata.issuer);
        let preferred = registered.and_then(|client| client.redirect_uri.as_deref());
        // Before registration, which needs the redirect URI with its port.
        let login = self.browser.prepare(preferred).await?;
        let redirect_uri = login.redirect_uri().to_owned();
        let client = self.client(&redirect_uri, registered).await?;

        let (state, verifier) = (random_token()?, random_token()?);
        let url = self.authorization_url(endpoint, &client, &redirect_uri, (&state, &verifier));
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
        // The browser gets its page only now, so that it shows the real outcome.
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
            () = self.cancel.cancelled() => Err(login_needed("the login was cancelled")),
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
            .credentials
            .client_binding
            .as_ref()
            .filter(|binding| Some(binding.client_id.as_str()) == id);
        let binding = binding.map(|binding| binding.issuer.as_str());
        let redirect_and_now = (redirect_uri, now() / 1_000);
        match choose_client(settings, metadata, binding, registered, redirect_and_now)? {
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

    /// The authorization URL with its parameters.
    fn authorization_url(
        &self,
        mut url: Url,
        client: &Client,
        redirect_uri: &str,
        (state, verifier): (&Secret, &Secret),
    ) -> Url {
        let scopes = &self.source.scopes;
        let mut query = url.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", &client.id)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("state", state.reveal())
            .append_pair("code_challenge", &s256_challenge(verifier))
            .append_pair("code_challenge_method", "S256")
            // Protocol facts §20.3: sent even to an authorization server that does not know it.
            .append_pair("resource", &self.source.resource);
        if let Some(scope) = scope_param(scopes) {
            query.append_pair("scope", &scope);
        }
        if scopes.iter().any(|scope| scope == "offline_access") {
            // OpenID Connect Core §11: without consent, `offline_access` is ignored.
            query.append_pair("prompt", "consent");
        }
        drop(query);
        url
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

/// What a valid callback must contain.
///
/// **Invariant:** neither the code nor the error is read before state and issuer are valid.
#[derive(Debug, Clone)]
pub(crate) struct ExpectedCallback {
    pub(crate) state: Secret,
    /// The issuer, exactly as the authorization server writes it.
    pub(crate) issuer: String,
    /// Whether the authorization server advertises the `iss` parameter.
    pub(crate) sends_issuer: bool,
}

/// Parameters of a callback. Each may occur once.
#[derive(Debug, Default)]
struct CallbackParams {
    state: Option<String>,
    iss: Option<String>,
    code: Option<Secret>,
    error: Option<String>,
    description: Option<String>,
}

/// Validates state and issuer, and returns the code.
pub(crate) fn validate_callback(
    query: &str,
    expected: &ExpectedCallback,
) -> Result<Secret, AuthError> {
    let params = CallbackParams::parse(query)?;
    if params.state.as_deref() != Some(expected.state.reveal()) {
        return Err(untrusted("the redirect does not belong to this login"));
    }
    check_issuer(params.iss.as_deref(), expected)?;
    if let Some(error) = params.error {
        let description = params.description.map(|text| format!(": {text}")).unwrap_or_default();
        return Err(refused(format_args!("{error}{description}")));
    }
    params.code.ok_or_else(|| untrusted("the redirect has no code"))
}

/// Whether a callback has this state. Validates nothing else.
pub(crate) fn has_state(query: &str, state: &Secret) -> bool {
    CallbackParams::parse(query).is_ok_and(|params| params.state.as_deref() == Some(state.reveal()))
}

/// The table of RFC 9207 (protocol facts §20.2). Compared byte for byte, without normalization.
fn check_issuer(iss: Option<&str>, expected: &ExpectedCallback) -> Result<(), AuthError> {
    match (expected.sends_issuer, iss) {
        (_, Some(iss)) if iss == expected.issuer => Ok(()),
        (_, Some(_)) => Err(untrusted(format_args!(
            "the redirect comes from another issuer than {}",
            expected.issuer
        ))),
        (true, None) => Err(untrusted(format_args!(
            "the redirect does not name its issuer, though {} always does",
            expected.issuer
        ))),
        (false, None) => Ok(()),
    }
}

impl CallbackParams {
    fn parse(query: &str) -> Result<Self, AuthError> {
        let mut params = Self::default();
        // RFC 6749 §3.1: a response must not repeat a parameter. Which value counts would depend on
        // the parser.
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let value = value.into_owned();
            let is_repeated = match name.as_ref() {
                "state" => params.state.replace(value).is_some(),
                "iss" => params.iss.replace(value).is_some(),
                "code" => params.code.replace(Secret::new(value)).is_some(),
                "error" => params.error.replace(value).is_some(),
                "error_description" => params.description.replace(value).is_some(),
                _ => false,
            };
            if is_repeated {
                return Err(untrusted("the redirect repeats a parameter"));
            }
        }
        Ok(params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUER: &str = "https://a/t";
    const ISS: &str = "iss=https%3A%2F%2Fa%2Ft";

    /// Whether the issuer advertises the `iss` parameter.
    #[derive(Clone, Copy, PartialEq)]
    enum Promise {
        Given,
        Absent,
    }

    /// The code, or part of the error.
    #[track_caller]
    fn check(promise: Promise, query: &str, expected: Result<&str, &str>) {
        let expected_callback = ExpectedCallback {
            state: Secret::new("s1"),
            issuer: ISSUER.to_owned(),
            sends_issuer: promise == Promise::Given,
        };
        match (validate_callback(query, &expected_callback), expected) {
            (Ok(code), Ok(expected)) => assert_eq!(code.reveal(), expected),
            (Err(error), Err(expected)) => {
                let error = error.to_string();
                assert!(error.contains(expected), "{error}");
                assert!(!error.contains("EVIL"), "{error}");
            }
            (found, _) => panic!("{query}: {found:?}"),
        }
    }

    #[test]
    fn callback_issuer_table() {
        check(Promise::Given, &format!("code=c&state=s1&{ISS}"), Ok("c"));
        check(Promise::Given, "code=c&state=s1", Err("does not name its issuer"));
        check(Promise::Absent, &format!("code=c&state=s1&{ISS}"), Ok("c"));
        check(Promise::Absent, "code=c&state=s1", Ok("c"));
        for wrong in
            ["https%3A%2F%2Fevil", "https%3A%2F%2Fa%2Ft%2F", "https%3A%2F%2FA%2Ft", "", "%20"]
        {
            check(Promise::Given, &format!("code=c&state=s1&iss={wrong}"), Err("another issuer"));
            check(Promise::Absent, &format!("code=c&state=s1&iss={wrong}"), Err("another issuer"));
        }
        check(
            Promise::Absent,
            "code=c&state=s1&iss=https%3A%2F%2Fa%3A443%2Ft",
            Err("another issuer"),
        );
    }

    #[test]
    fn callback_state_is_checked_first() {
        check(Promise::Absent, "code=c&state=other", Err("does not belong"));
        check(Promise::Absent, "code=c&state=", Err("does not belong"));
        check(Promise::Absent, "code=c", Err("does not belong"));
        check(Promise::Absent, "error=EVIL&error_description=EVIL", Err("does not belong"));
    }

    #[test]
    fn callback_error_is_shown_only_from_the_right_issuer() {
        check(
            Promise::Absent,
            "state=s1&error=access_denied",
            Err("rejected the request: access_denied"),
        );
        check(
            Promise::Given,
            &format!("state=s1&error=access_denied&error_description=not%1Btoday&{ISS}"),
            Err("access_denied: not"),
        );
        check(Promise::Given, "state=s1&error=EVIL&error_description=EVIL", Err("does not name"));
        check(Promise::Absent, "state=s1&error=EVIL&iss=https%3A%2F%2Fevil", Err("another issuer"));
    }

    #[test]
    fn callback_parameters_may_not_repeat() {
        check(Promise::Absent, "code=c&code=d&state=s1", Err("repeats"));
        check(Promise::Absent, "code=c&state=s1&state=s1", Err("repeats"));
        check(Promise::Absent, &format!("code=c&state=s1&iss=EVIL&{ISS}"), Err("repeats"));
        check(Promise::Absent, "state=s1", Err("no code"));
    }

    #[test]
    fn has_state_checks_only_the_state() {
        assert!(has_state("state=s1&error=x", &Secret::new("s1")));
        assert!(!has_state("state=s2", &Secret::new("s1")));
        assert!(!has_state("code=c", &Secret::new("")));
    }
}
