//! Client identity at an authorization server: selection, authentication method, and dynamic registration (RFC
//! 7591).
//!
//! **Invariant:** a client id issued by one authorization server is never sent to another.

use serde::{Deserialize, Serialize};
use serde_json::json;
use toolrack_transport::AuthError;
use url::Url;

use crate::address_policy::display_url;
use crate::discovery::{ServerMetadata, lists};
use crate::error::{unreachable, unregistered, untrusted};
use crate::grants::scope_param;
use crate::http_client::{ErrorBody, HttpClient, HttpResponse};
use crate::secret::Secret;
use crate::settings::{AuthSettings, PreRegisteredClient};
use crate::stored_credentials::{GrantSource, StoredCredentials, expose};

/// A client as one authorization server knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Client {
    pub(crate) id: String,
    #[serde(default, serialize_with = "expose", skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<Secret>,
    /// Token endpoint authentication method agreed at registration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) auth_method: Option<String>,
    /// Registered redirect URI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) redirect_uri: Option<String>,
    /// Expiry of the secret in seconds since 1970. `None` for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret_expires_at: Option<u64>,
}

/// Client authentication method at the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthMethod {
    Basic,
    Post,
    None,
}

impl Client {
    /// A client without a secret.
    pub(crate) fn public(id: &str) -> Self {
        Self { id: id.to_owned(), ..Self::default() }
    }

    pub(crate) fn pre_registered(client: &PreRegisteredClient) -> Self {
        Self { secret: client.client_secret.clone(), ..Self::public(&client.client_id) }
    }
}

/// Selects the client: pre-registered, by metadata document, or by an earlier registration. `None` if a new one has to
/// be registered.
pub(crate) fn choose_client(
    settings: &AuthSettings,
    metadata: &ServerMetadata,
    credentials: &StoredCredentials,
    redirect_uri: &str,
    now: u64,
) -> Result<Option<Client>, AuthError> {
    let issuer = &metadata.issuer;
    if let Some(client) = &settings.pre_registered {
        check_binding(client, credentials, issuer)?;
        return Ok(Some(Client::pre_registered(client)));
    }
    if let Some(url) = &settings.client_metadata_url
        && metadata.client_id_metadata_document_supported
    {
        return Ok(Some(Client::public(url.as_str())));
    }
    let registered = credentials.clients.get(issuer).filter(|client| {
        // Authorization servers may compare redirect URIs exactly, so another port needs another client.
        client.redirect_uri.as_deref() == Some(redirect_uri)
            && client.secret_expires_at.is_none_or(|end| now < end)
    });
    if registered.is_none() && metadata.registration_endpoint.is_none() {
        let reason = format_args!("{issuer} does not support dynamic client registration");
        return Err(unregistered(reason));
    }
    Ok(registered.cloned())
}

/// A client registered for one issuer is an error at another (protocol facts §20.5). A client without a configured
/// issuer belongs to the first one that it was used with.
pub(crate) fn check_binding(
    client: &PreRegisteredClient,
    credentials: &StoredCredentials,
    issuer: &str,
) -> Result<(), AuthError> {
    let binding = credentials.client_binding.as_ref();
    let binding = binding.filter(|binding| binding.client_id == client.client_id);
    match client.issuer.as_ref().or(binding.map(|binding| &binding.issuer)) {
        Some(own) if own != issuer => Err(untrusted(format_args!(
            "the configured client belongs to {own}, but the server now names {issuer}"
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Client authentication method (protocol facts §20.4): as registered, else the first of basic, post and none
/// that is supported; if nothing is listed, basic with a secret and none without.
pub(crate) fn auth_method(
    client: &Client,
    supported: Option<&[String]>,
) -> Result<AuthMethod, AuthError> {
    let methods = [
        ("client_secret_basic", AuthMethod::Basic),
        ("client_secret_post", AuthMethod::Post),
        ("none", AuthMethod::None),
    ];
    if client.secret.is_none() {
        return Ok(AuthMethod::None);
    }
    let agreed = client.auth_method.as_deref();
    if let Some((_, method)) = methods.iter().find(|(name, _)| agreed == Some(name)) {
        return Ok(*method);
    }
    if supported.is_none() {
        return Ok(AuthMethod::Basic);
    }
    let found = methods.iter().find(|(name, _)| lists(supported, name));
    found
        .map(|(_, method)| *method)
        .ok_or_else(|| untrusted("the authorization server supports no client secret method"))
}

/// Method to request at registration: a native app cannot keep a secret, so none if possible.
fn auth_method_to_register(supported: Option<&[String]>) -> &'static str {
    let candidates = ["none", "client_secret_basic", "client_secret_post"];
    candidates.into_iter().find(|name| lists(supported, name)).unwrap_or("none")
}

#[derive(Deserialize)]
struct RegistrationResponse {
    client_id: String,
    client_secret: Option<Secret>,
    client_secret_expires_at: Option<u64>,
    token_endpoint_auth_method: Option<String>,
}

/// Registers a client for a grant.
pub(crate) async fn register(
    http: &HttpClient,
    endpoint: Option<&str>,
    client_name: &str,
    redirect_uri: &str,
    source: &GrantSource,
) -> Result<Client, AuthError> {
    let endpoint = http.endpoint(endpoint, "registration")?;
    let document = registration_document(client_name, redirect_uri, source);
    let response = http.post(&endpoint, "application/json", document, None).await?;
    parse_registration(&response, &endpoint, redirect_uri)
}

fn registration_document(client_name: &str, redirect_uri: &str, source: &GrantSource) -> String {
    let mut document = json!({
        "client_name": client_name,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": auth_method_to_register(source.auth_methods.as_deref()),
        // Protocol facts §20.7: an app on the user's machine with loopback redirects.
        "application_type": "native",
    });
    if let (Some(scope), Some(members)) = (scope_param(&source.requested), document.as_object_mut())
    {
        members.insert("scope".to_owned(), scope.into());
    }
    document.to_string()
}

fn parse_registration(
    response: &HttpResponse,
    endpoint: &Url,
    redirect_uri: &str,
) -> Result<Client, AuthError> {
    let (url, status) = (display_url(endpoint), response.status);
    if response.is_success() {
        let body: RegistrationResponse = serde_json::from_slice(&response.body)
            .map_err(|_json| unreachable(format_args!("{url} responded without a client id")))?;
        return Ok(Client {
            id: body.client_id,
            // An empty secret means none.
            secret: body.client_secret.filter(|secret| !secret.reveal().is_empty()),
            auth_method: body.token_endpoint_auth_method,
            redirect_uri: Some(redirect_uri.to_owned()),
            // Zero means never.
            secret_expires_at: body.client_secret_expires_at.filter(|seconds| *seconds != 0),
        });
    }
    if status >= 500 || status == 429 {
        return Err(unreachable(format_args!("{url} responded with status {status}")));
    }
    let text = match serde_json::from_slice::<ErrorBody>(&response.body) {
        Ok(body) => body.text(),
        Err(_) => format!("{url} responded with status {status}"),
    };
    Err(unregistered(format_args!(
        "registration with the redirect {redirect_uri} was rejected ({text})"
    )))
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod registration_tests {
    use super::*;
    use crate::stored_credentials::tests::grant;

    const REDIRECT: &str = "http://127.0.0.1:1/callback";

    #[test]
    fn registration_request_document() {
        let requested = vec!["a".to_owned(), "b".to_owned()];
        let source = GrantSource { requested, ..grant(0, None).source };
        let document = registration_document("Toolrack", REDIRECT, &source);
        let document: serde_json::Value = serde_json::from_str(&document).unwrap();
        let expected = json!({
            "client_name": "Toolrack",
            "redirect_uris": [REDIRECT],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "application_type": "native",
            "scope": "a b",
        });
        assert_eq!(document, expected);
    }

    fn parse(status: u16, body: &str) -> Result<Client, AuthError> {
        let response = HttpResponse { status, body: body.as_bytes().to_vec() };
        parse_registration(&response, &Url::parse("https://a/register").unwrap(), REDIRECT)
    }

    #[test]
    fn registration_response_is_parsed() {
        let redirect_uri = Some(REDIRECT.to_owned());
        let plain = Client { redirect_uri, ..Client::public("c") };
        assert_eq!(parse(201, r#"{"client_id":"c","client_secret":""}"#), Ok(plain.clone()));
        let body = r#"{"client_id":"c","client_secret":"s","client_secret_expires_at":0,
            "token_endpoint_auth_method":"client_secret_post"}"#;
        let auth_method = Some("client_secret_post".to_owned());
        let secret = Some(Secret::new("s"));
        assert_eq!(parse(201, body), Ok(Client { secret, auth_method, ..plain }));
        assert!(matches!(parse(503, ""), Err(AuthError::Unreachable { .. })));
        assert!(matches!(parse(200, "{}"), Err(AuthError::Unreachable { .. })));
        let error = parse(400, r#"{"error":"invalid_redirect_uri"}"#).unwrap_err();
        assert!(matches!(error, AuthError::Unregistered { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("invalid_redirect_uri") && text.contains(REDIRECT), "{text}");
    }
}
