//! Client identity at an authorization server: selection, authentication method, and dynamic registration (RFC
//! 7591).
//!
//! **Invariant:** a client id issued by one authorization server is never sent to another.

use serde::{Deserialize, Serialize};
use serde_json::json;
use toolrack_transport::AuthError;
use url::Url;

use crate::address_policy::display_url;
use crate::discovery::ServerMetadata;
use crate::error::{unreachable, unregistered, untrusted};
use crate::grants::scope_param;
use crate::http_client::{HttpClient, HttpResponse};
use crate::secret::Secret;
use crate::settings::{AuthSettings, PreRegisteredClient};
use crate::stored_credentials::exposed_option;

/// A client as one authorization server knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Client {
    pub(crate) id: String,
    #[serde(default, with = "exposed_option", skip_serializing_if = "Option::is_none")]
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

/// Which client to use.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ClientChoice {
    /// This one.
    Use(Client),
    /// A new one, registered at this endpoint.
    Register(String),
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
        Self {
            id: id.to_owned(),
            secret: None,
            auth_method: None,
            redirect_uri: None,
            secret_expires_at: None,
        }
    }

    pub(crate) fn pre_registered(client: &PreRegisteredClient) -> Self {
        Self { secret: client.client_secret.clone(), ..Self::public(&client.client_id) }
    }

    fn is_usable(&self, redirect_uri: &str, now: u64) -> bool {
        // Authorization servers may compare redirect URIs exactly, so another port needs another
        // client.
        let matches = self.redirect_uri.as_deref() == Some(redirect_uri);
        matches && self.secret_expires_at.is_none_or(|end| now < end)
    }
}

/// Selects the client: pre-registered, by metadata document, by an earlier registration, or by a new one.
///
/// `binding` is the issuer that a pre-registered client without an issuer was first used with; `registered` is
/// the earlier registration at this issuer.
pub(crate) fn choose_client(
    settings: &AuthSettings,
    metadata: &ServerMetadata,
    binding: Option<&str>,
    registered: Option<&Client>,
    (redirect_uri, now): (&str, u64),
) -> Result<ClientChoice, AuthError> {
    if let Some(client) = &settings.pre_registered {
        check_binding(client, binding, &metadata.issuer)?;
        return Ok(ClientChoice::Use(Client::pre_registered(client)));
    }
    if let Some(url) = &settings.client_metadata_url
        && metadata.client_id_metadata_document_supported
    {
        return Ok(ClientChoice::Use(Client::public(url.as_str())));
    }
    if let Some(client) = registered.filter(|client| client.is_usable(redirect_uri, now)) {
        return Ok(ClientChoice::Use(client.clone()));
    }
    match &metadata.registration_endpoint {
        Some(endpoint) => Ok(ClientChoice::Register(endpoint.clone())),
        None => {
            let issuer = &metadata.issuer;
            Err(unregistered(format_args!("{issuer} does not support dynamic client registration")))
        }
    }
}

/// A client registered for one issuer is an error at another (protocol facts §20.5).
pub(crate) fn check_binding(
    client: &PreRegisteredClient,
    binding: Option<&str>,
    issuer: &str,
) -> Result<(), AuthError> {
    match client.issuer.as_deref().or(binding) {
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
    if client.secret.is_none() {
        return Ok(AuthMethod::None);
    }
    match client.auth_method.as_deref() {
        Some("client_secret_basic") => return Ok(AuthMethod::Basic),
        Some("client_secret_post") => return Ok(AuthMethod::Post),
        Some("none") => return Ok(AuthMethod::None),
        Some(_) | None => {}
    }
    let Some(supported) = supported else { return Ok(AuthMethod::Basic) };
    let candidates = [
        ("client_secret_basic", AuthMethod::Basic),
        ("client_secret_post", AuthMethod::Post),
        ("none", AuthMethod::None),
    ];
    let found =
        candidates.into_iter().find(|(name, _)| supported.iter().any(|method| method == name));
    found
        .map(|(_, method)| method)
        .ok_or_else(|| untrusted("the authorization server supports no client secret method"))
}

/// Method to request at registration: a native app cannot keep a secret, so none if possible.
pub(crate) fn auth_method_to_register(supported: Option<&[String]>) -> &'static str {
    let Some(supported) = supported else { return "none" };
    let candidates = ["none", "client_secret_basic", "client_secret_post"];
    candidates
        .into_iter()
        .find(|name| supported.iter().any(|method| method == name))
        .unwrap_or("none")
}

/// Metadata of a new client.
#[derive(Debug)]
pub(crate) struct RegistrationRequest<'a> {
    pub(crate) client_name: &'a str,
    pub(crate) redirect_uri: &'a str,
    pub(crate) scopes: &'a [String],
    /// Authentication methods that the authorization server supports.
    pub(crate) supported: Option<&'a [String]>,
}

#[derive(Deserialize)]
struct RegistrationResponse {
    client_id: String,
    client_secret: Option<String>,
    client_secret_expires_at: Option<u64>,
    token_endpoint_auth_method: Option<String>,
}

#[derive(Deserialize)]
struct RegistrationErrorBody {
    error: String,
    error_description: Option<String>,
}

/// Registers a client.
pub(crate) async fn register(
    http: &HttpClient,
    endpoint: &Url,
    request: &RegistrationRequest<'_>,
) -> Result<Client, AuthError> {
    let response = http.post_json(endpoint, request.document()).await?;
    parse_registration(&response, endpoint, request.redirect_uri)
}

impl RegistrationRequest<'_> {
    fn document(&self) -> String {
        let mut document = json!({
            "client_name": self.client_name,
            "redirect_uris": [self.redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": auth_method_to_register(self.supported),
            // Protocol facts §20.7: an app on the user's machine with loopback redirects.
            "application_type": "native",
        });
        if let (Some(scope), Some(members)) = (scope_param(self.scopes), document.as_object_mut()) {
            members.insert("scope".to_owned(), scope.into());
        }
        document.to_string()
    }
}

fn parse_registration(
    response: &HttpResponse,
    endpoint: &Url,
    redirect_uri: &str,
) -> Result<Client, AuthError> {
    let url = display_url(endpoint);
    if response.is_success() {
        let body: RegistrationResponse = serde_json::from_slice(&response.body)
            .map_err(|_json| unreachable(format_args!("{url} responded without a client id")))?;
        return Ok(Client {
            id: body.client_id,
            // An empty secret means none.
            secret: body.client_secret.filter(|secret| !secret.is_empty()).map(Secret::new),
            auth_method: body.token_endpoint_auth_method,
            redirect_uri: Some(redirect_uri.to_owned()),
            // Zero means never.
            secret_expires_at: body.client_secret_expires_at.filter(|seconds| *seconds != 0),
        });
    }
    if response.status >= 500 || response.status == 429 {
        return Err(unreachable(format_args!("{url} responded with status {}", response.status)));
    }
    let text = match serde_json::from_slice::<RegistrationErrorBody>(&response.body) {
        Ok(RegistrationErrorBody { error, error_description: Some(text) }) => {
            format!("{error}: {text}")
        }
        Ok(RegistrationErrorBody { error, error_description: None }) => error,
        Err(_) => format!("{url} responded with status {}", response.status),
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

    const REDIRECT: &str = "http://127.0.0.1:1/callback";

    #[test]
    fn registration_request_document() {
        let scopes = vec!["a".to_owned(), "b".to_owned()];
        let request = RegistrationRequest {
            client_name: "Toolrack",
            redirect_uri: REDIRECT,
            scopes: &scopes,
            supported: None,
        };
        let document: serde_json::Value = serde_json::from_str(&request.document()).unwrap();
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
        let response =
            HttpResponse { status, body: body.as_bytes().to_vec(), challenges: Vec::new() };
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
