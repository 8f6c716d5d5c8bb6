//! Registering as a client where nobody has done it for us (RFC 7591).

use serde::Deserialize;
use serde_json::json;
use toolrack_transport::AuthError;
use url::Url;

use crate::address_policy::shown;
use crate::client_identity::{Client, method_to_register};
use crate::error::{unreachable, unregistered};
use crate::http_client::{Http, Reply};
use crate::scopes as scope;
use crate::secret::Secret;

/// What a new client says about itself.
#[derive(Debug)]
pub(crate) struct Introducing<'a> {
    pub(crate) client_name: &'a str,
    pub(crate) redirect_uri: &'a str,
    pub(crate) scopes: &'a [String],
    /// The ways to prove who we are that the authorization server supports.
    pub(crate) supported: Option<&'a [String]>,
}

#[derive(Deserialize)]
struct Answer {
    client_id: String,
    client_secret: Option<String>,
    client_secret_expires_at: Option<u64>,
    token_endpoint_auth_method: Option<String>,
}

#[derive(Deserialize)]
struct Refusal {
    error: String,
    error_description: Option<String>,
}

/// Registers, and says who we are now.
pub(crate) async fn register(
    http: &Http,
    endpoint: &Url,
    introducing: &Introducing<'_>,
) -> Result<Client, AuthError> {
    let reply = http.post_json(endpoint, introducing.document()).await?;
    read(&reply, endpoint, introducing.redirect_uri)
}

impl Introducing<'_> {
    fn document(&self) -> String {
        let mut document = json!({
            "client_name": self.client_name,
            "redirect_uris": [self.redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": method_to_register(self.supported),
            // Protocol facts §20.7: a program on somebody's machine, whose redirects end there.
            "application_type": "native",
        });
        if let (Some(scope), Some(members)) =
            (scope::parameter(self.scopes), document.as_object_mut())
        {
            members.insert("scope".to_owned(), scope.into());
        }
        document.to_string()
    }
}

fn read(reply: &Reply, endpoint: &Url, redirect_uri: &str) -> Result<Client, AuthError> {
    let place = shown(endpoint);
    if reply.is_success() {
        let answer: Answer = serde_json::from_slice(&reply.body)
            .map_err(|_json| unreachable(format_args!("{place} answered without a client id")))?;
        return Ok(Client {
            id: answer.client_id,
            // An empty secret means none.
            secret: answer.client_secret.filter(|it| !it.is_empty()).map(Secret::new),
            auth_method: answer.token_endpoint_auth_method,
            redirect_uri: Some(redirect_uri.to_owned()),
            // Zero means never.
            secret_expires_at: answer.client_secret_expires_at.filter(|it| *it != 0),
        });
    }
    if reply.status >= 500 || reply.status == 429 {
        return Err(unreachable(format_args!("{place} answered {}", reply.status)));
    }
    let said = match serde_json::from_slice::<Refusal>(&reply.body) {
        Ok(Refusal { error, error_description: Some(text) }) => format!("{error}: {text}"),
        Ok(Refusal { error, error_description: None }) => error,
        Err(_) => format!("{place} answered {}", reply.status),
    };
    Err(unregistered(format_args!(
        "it does not register us with the redirect {redirect_uri} ({said})"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REDIRECT: &str = "http://127.0.0.1:1/callback";

    #[test]
    fn a_new_client_says_what_it_is() {
        let scopes = vec!["a".to_owned(), "b".to_owned()];
        let introducing = Introducing {
            client_name: "Toolrack",
            redirect_uri: REDIRECT,
            scopes: &scopes,
            supported: None,
        };
        let document: serde_json::Value = serde_json::from_str(&introducing.document()).unwrap();
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

    fn answer(status: u16, body: &str) -> Result<Client, AuthError> {
        let reply = Reply { status, body: body.as_bytes().to_vec(), challenges: Vec::new() };
        read(&reply, &Url::parse("https://a/register").unwrap(), REDIRECT)
    }

    #[test]
    fn what_comes_back_is_taken_as_it_is_meant() {
        let redirect_uri = Some(REDIRECT.to_owned());
        let plain = Client { redirect_uri, ..Client::public("c") };
        assert_eq!(answer(201, r#"{"client_id":"c","client_secret":""}"#), Ok(plain.clone()));
        let body = r#"{"client_id":"c","client_secret":"s","client_secret_expires_at":0,
            "token_endpoint_auth_method":"client_secret_post"}"#;
        let auth_method = Some("client_secret_post".to_owned());
        let secret = Some(Secret::new("s"));
        assert_eq!(answer(201, body), Ok(Client { secret, auth_method, ..plain }));
        assert!(matches!(answer(503, ""), Err(AuthError::Unreachable { .. })));
        assert!(matches!(answer(200, "{}"), Err(AuthError::Unreachable { .. })));
        let refusal = answer(400, r#"{"error":"invalid_redirect_uri"}"#).unwrap_err();
        assert!(matches!(refusal, AuthError::Unregistered { .. }), "{refusal:?}");
        let said = refusal.to_string();
        assert!(said.contains("invalid_redirect_uri") && said.contains(REDIRECT), "{said}");
    }
}
