//! Authorization code flow with PKCE (RFC 7636): authorization URL, callback validation, code exchange.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use toolrack_transport::AuthError;
use url::{Url, form_urlencoded};

use crate::browser::{Browser, LoginRequest};
use crate::client_registration::{Client, choose_client, register};
use crate::discovery::{Discovered, ServerMetadata};
use crate::error::{login_needed, refused, unreachable, untrusted};
use crate::grants::{TokenRequester, now, scope_param};
use crate::http_client::Form;
use crate::secret::Secret;
use crate::stored_credentials::{GrantSource, StoredCredentials, StoredGrant};

/// Logs the user in: opens the browser, validates the callback, and exchanges the code. Returns the client at this
/// issuer and its grant.
pub(crate) async fn log_in(
    requester: &TokenRequester,
    browser: &dyn Browser,
    found: &Discovered,
    source: GrantSource,
    credentials: &StoredCredentials,
) -> Result<(Client, StoredGrant), AuthError> {
    let (metadata, TokenRequester { http, settings, .. }) = (&found.metadata, requester);
    metadata.require_s256()?;
    let endpoint = http.endpoint(metadata.authorization_endpoint.as_deref(), "authorization")?;
    let registered = credentials.clients.get(&metadata.issuer);
    let preferred = registered.and_then(|client| client.redirect_uri.as_deref());
    // Before registration, which needs the redirect URI with its port.
    let login = browser.prepare(preferred).await?;
    let redirect_uri = login.redirect_uri.clone();
    let now = now() / 1_000;
    let client = match choose_client(settings, metadata, credentials, &redirect_uri, now)? {
        Some(client) => client,
        None => {
            let endpoint = metadata.registration_endpoint.as_deref();
            register(http, endpoint, &settings.client_name, &redirect_uri, &source).await?
        }
    };
    let (state, verifier) = (random_token()?, random_token()?);
    let request = LoginRequest {
        url: authorization_url(endpoint, &client, &source, &redirect_uri, (&state, &verifier)),
        issuer: metadata.issuer.clone(),
        scopes: source.requested.clone(),
        state: state.clone(),
    };
    let response = requester.cancel.run_until_cancelled((login.run)(request)).await;
    let response = response.ok_or_else(|| login_needed("the login was cancelled"))??;
    let exchange = async {
        let form = Form::default()
            .with("grant_type", "authorization_code")
            .with("code", validate_callback(response.query.reveal(), &state, metadata)?)
            .with("redirect_uri", redirect_uri)
            .with("code_verifier", verifier)
            .with("resource", source.resource.as_str());
        let issued = requester.request(&source, form, &source.request_auth(&client)?).await?;
        Ok(source.into_stored_grant(&client.id, issued, None))
    };
    let grant: Result<StoredGrant, AuthError> = exchange.await;
    // The browser gets its page only now, so that it shows the real outcome.
    (response.finish)(grant.as_ref().map(drop).map_err(AuthError::clone)).await;
    Ok((client, grant?))
}

/// The authorization URL with its parameters.
fn authorization_url(
    mut url: Url,
    client: &Client,
    source: &GrantSource,
    redirect_uri: &str,
    (state, verifier): (&Secret, &Secret),
) -> Url {
    let mut query = url.query_pairs_mut();
    query
        .append_pair("response_type", "code")
        .append_pair("client_id", &client.id)
        .append_pair("redirect_uri", redirect_uri)
        .append_pair("state", state.reveal())
        .append_pair("code_challenge", &s256_challenge(verifier))
        .append_pair("code_challenge_method", "S256")
        // Protocol facts §20.3: sent even to an authorization server that does not know it.
        .append_pair("resource", &source.resource);
    if let Some(scope) = scope_param(&source.requested) {
        query.append_pair("scope", &scope);
    }
    if source.requested.iter().any(|scope| scope == "offline_access") {
        // OpenID Connect Core §11: without consent, `offline_access` is ignored.
        query.append_pair("prompt", "consent");
    }
    drop(query);
    url
}

/// 256 random bits as 43 URL-safe characters: a `state` or a code verifier.
pub(crate) fn random_token() -> Result<Secret, AuthError> {
    let mut bytes = [0_u8; 32];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_unspecified| unreachable("the system random number generator failed"))?;
    Ok(Secret::new(URL_SAFE_NO_PAD.encode(bytes)))
}

/// The S256 challenge of a verifier (RFC 7636 §4.2).
fn s256_challenge(verifier: &Secret) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.reveal().as_bytes()))
}

/// Validates state and issuer of a callback, and returns the code.
///
/// **Invariant:** neither the code nor the error is read before state and issuer are valid.
pub(crate) fn validate_callback(
    query: &str,
    state: &Secret,
    metadata: &ServerMetadata,
) -> Result<Secret, AuthError> {
    let mut params = callback_params(query)?;
    if params.get("state").map(String::as_str) != Some(state.reveal()) {
        return Err(untrusted("the redirect does not belong to this login"));
    }
    check_issuer(params.get("iss").map(String::as_str), metadata)?;
    if let Some(error) = params.get("error") {
        let description = params.get("error_description").map(|text| format!(": {text}"));
        return Err(refused(format_args!("{error}{}", description.unwrap_or_default())));
    }
    let code = params.remove("code").map(Secret::new);
    code.ok_or_else(|| untrusted("the redirect has no code"))
}

/// The table of RFC 9207 (protocol facts §20.2). Compared byte for byte, without normalization.
fn check_issuer(iss: Option<&str>, metadata: &ServerMetadata) -> Result<(), AuthError> {
    let issuer = &metadata.issuer;
    match (metadata.authorization_response_iss_parameter_supported, iss) {
        (_, Some(iss)) if iss == issuer => Ok(()),
        (_, Some(_)) => {
            Err(untrusted(format_args!("the redirect comes from another issuer than {issuer}")))
        }
        (true, None) => Err(untrusted(format_args!(
            "the redirect does not name its issuer, though {issuer} always does"
        ))),
        (false, None) => Ok(()),
    }
}

/// The parameters of a callback by name.
pub(crate) fn callback_params(query: &str) -> Result<HashMap<String, String>, AuthError> {
    let single = ["state", "iss", "code", "error", "error_description"];
    let mut params = HashMap::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()).into_owned() {
        // RFC 6749 §3.1: a response must not repeat a parameter. Which value counts would depend on
        // the parser.
        if single.contains(&name.as_str()) && params.insert(name, value).is_some() {
            return Err(untrusted("the redirect repeats a parameter"));
        }
    }
    Ok(params)
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
        let metadata = ServerMetadata {
            issuer: ISSUER.to_owned(),
            authorization_response_iss_parameter_supported: promise == Promise::Given,
            ..ServerMetadata::default()
        };
        match (validate_callback(query, &Secret::new("s1"), &metadata), expected) {
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
    fn s256_challenge_matches_the_rfc() {
        let verifier = Secret::new("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
        assert_eq!(s256_challenge(&verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn random_tokens_are_unique_and_long_enough() {
        let (one, other) = (random_token().unwrap(), random_token().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.reveal().len(), 43);
    }
}
