//! Registering as a client where nobody has done it for us (RFC 7591).

use crate::scopes::scope_param;
use serde::Deserialize;
use serde_json::json;
use toolrack_transport::AuthError;
use url::Url;

use crate::address_policy::display_url;
use crate::client_identity::{Client, auth_method_to_register};
use crate::error::{unreachable, unregistered};
use crate::http_client::{HttpClient, HttpResponse};
use crate::secret::Secret;

/// What a new client says about itself.
#[derive(Debug)]
pub(crate) struct RegistrationRequest<'a> {
    pub(crate) client_name: &'a str,
    pub(crate) redirect_uri: &'a str,
    pub(crate) scopes: &'a [String],
    /// The ways to prove who we are that the authorization server supports.
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

/// Registers, and says who we are now.
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
            // Protocol facts §20.7: a program on somebody's machine, whose redirects end there.
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
            .map_err(|_json| unreachable(format_args!("{url} answered without a client id")))?;
        return Ok(Client {
            id: body.client_id,
            // An empty secret means none.
            secret: body.client_secret.filter(|it| !it.is_empty()).map(Secret::new),
            auth_method: body.token_endpoint_auth_method,
            redirect_uri: Some(redirect_uri.to_owned()),
            // Zero means never.
            secret_expires_at: body.client_secret_expires_at.filter(|it| *it != 0),
        });
    }
    if response.status >= 500 || response.status == 429 {
        return Err(unreachable(format_args!("{url} answered {}", response.status)));
    }
    let text = match serde_json::from_slice::<RegistrationErrorBody>(&response.body) {
        Ok(RegistrationErrorBody { error, error_description: Some(text) }) => {
            format!("{error}: {text}")
        }
        Ok(RegistrationErrorBody { error, error_description: None }) => error,
        Err(_) => format!("{url} answered {}", response.status),
    };
    Err(unregistered(format_args!(
        "it does not register us with the redirect {redirect_uri} ({text})"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REDIRECT: &str = "http://127.0.0.1:1/callback";

    #[test]
    fn a_new_client_says_what_it_is() {
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
    fn what_comes_back_is_taken_as_it_is_meant() {
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
