//! Asking a token endpoint, and what its answers mean.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;
use toolrack_transport::AuthError;
use url::{Url, form_urlencoded};

use crate::address_policy::display_url;
use crate::client_identity::{AuthMethod, Client};
use crate::error::{refused, unreachable, untrusted};
use crate::http_client::{Form, HttpClient, HttpResponse};
use crate::secret::{Secret, redact_secrets};

const JWT_BEARER_ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// How a token request says who sends it.
#[derive(Debug, Clone)]
pub(crate) enum TokenRequestAuth {
    /// As this client, in this way.
    Client(Client, AuthMethod),
    /// By a signed statement that says it all.
    Assertion(Secret),
}

/// A token, as it came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TokenResponse {
    pub(crate) access_token: Secret,
    pub(crate) refresh_token: Option<Secret>,
    /// In milliseconds.
    pub(crate) lifetime: Option<u64>,
    /// `None` if the answer says nothing, which means: as asked.
    pub(crate) scopes: Option<Vec<String>>,
    /// What kind of token it is, in an exchange.
    pub(crate) issued_token_type: Option<String>,
}

/// Why there is no token. What comes next depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenError {
    /// The grant is over: this code or refresh token will never work again.
    InvalidGrant(String),
    /// The authorization server does not know us any more.
    InvalidClient(String),
    /// Anything else, which may be different next time.
    Other(AuthError),
}

/// Which types of token an answer may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// One to be sent to servers.
    Bearer,
    /// One to be handed on to another authorization server.
    Exchange,
}

/// Sends one token request.
pub(crate) async fn request_token(
    http: &HttpClient,
    endpoint: &Url,
    form: Form,
    proof: &TokenRequestAuth,
    kind: TokenKind,
) -> Result<TokenResponse, TokenError> {
    let (form, header) = authenticate_request(form, proof);
    let response =
        http.post_form(endpoint, &form, header.as_ref()).await.map_err(TokenError::Other)?;
    let mut secrets = form.secrets();
    if let TokenRequestAuth::Client(Client { secret: Some(secret), .. }, _) = proof {
        secrets.push(secret);
    }
    parse_response(&response, kind, endpoint, &secrets)
}

/// Adds who we are, in the body or as the header that is returned.
pub(crate) fn authenticate_request(form: Form, proof: &TokenRequestAuth) -> (Form, Option<Secret>) {
    match proof {
        TokenRequestAuth::Assertion(statement) => {
            let form = form.with("client_assertion_type", JWT_BEARER_ASSERTION);
            (form.with("client_assertion", statement.clone()), None)
        }
        // The name goes into the body too, which is allowed (RFC 6749 §4.1.3): servers on the Python SDK look for it
        // nowhere else.
        TokenRequestAuth::Client(client, AuthMethod::Basic) => {
            (form.with("client_id", client.id.as_str()), Some(basic(client)))
        }
        TokenRequestAuth::Client(client, AuthMethod::Post) => {
            let form = form.with("client_id", client.id.as_str());
            (form.with_option("client_secret", client.secret.clone()), None)
        }
        TokenRequestAuth::Client(client, AuthMethod::None) => {
            (form.with("client_id", client.id.as_str()), None)
        }
    }
}

/// RFC 6749 §2.3.1: both halves are form-encoded first.
fn basic(client: &Client) -> Secret {
    let encode = |it: &str| form_urlencoded::byte_serialize(it.as_bytes()).collect::<String>();
    let secret = client.secret.as_ref().map(Secret::reveal).unwrap_or_default();
    let pair = Secret::new(format!("{}:{}", encode(&client.id), encode(secret)));
    Secret::new(format!("Basic {}", STANDARD.encode(pair.reveal())))
}

#[derive(Deserialize)]
struct TokenResponseBody {
    access_token: String,
    token_type: Option<String>,
    refresh_token: Option<String>,
    expires_in: Option<Value>,
    scope: Option<String>,
    issued_token_type: Option<String>,
}

#[derive(Deserialize)]
struct ErrorBody {
    error: String,
    error_description: Option<String>,
}

/// What an answer means. Nothing of `secrets` is in what it says.
fn parse_response(
    response: &HttpResponse,
    kind: TokenKind,
    endpoint: &Url,
    secrets: &[&Secret],
) -> Result<TokenResponse, TokenError> {
    let url = display_url(endpoint);
    if !response.is_success() {
        return Err(parse_error(response, &url, secrets));
    }
    let answer: TokenResponseBody = serde_json::from_slice(&response.body).map_err(|_json| {
        TokenError::Other(unreachable(format_args!("{url} answered without a token")))
    })?;
    let token_type = answer.token_type.unwrap_or_default();
    let fits = kind == TokenKind::Exchange || token_type.eq_ignore_ascii_case("bearer");
    // A token that could break out of its header is none.
    if !fits
        || answer.access_token.is_empty()
        || !answer.access_token.bytes().all(|it| it.is_ascii_graphic())
    {
        let fault = untrusted(format_args!("{url} gave something that is no bearer token"));
        return Err(TokenError::Other(fault));
    }
    Ok(TokenResponse {
        access_token: Secret::new(answer.access_token),
        refresh_token: answer.refresh_token.filter(|it| !it.is_empty()).map(Secret::new),
        lifetime: answer.expires_in.as_ref().and_then(parse_expires_in),
        scopes: answer.scope.map(|it| it.split_ascii_whitespace().map(str::to_owned).collect()),
        issued_token_type: answer.issued_token_type,
    })
}

fn parse_error(response: &HttpResponse, url: &str, secrets: &[&Secret]) -> TokenError {
    let status = response.status;
    let transient = status >= 500 || status == 429 || status == 408;
    if transient {
        return TokenError::Other(unreachable(format_args!("{url} answered {status}")));
    }
    let Ok(error_body) = serde_json::from_slice::<ErrorBody>(&response.body) else {
        return TokenError::Other(refused(format_args!("{url} answered {status}")));
    };
    let description = error_body.error_description.map(|it| format!(": {it}")).unwrap_or_default();
    let text = redact_secrets(&format!("{}{description}", error_body.error), secrets);
    match error_body.error.as_str() {
        "invalid_grant" => TokenError::InvalidGrant(text),
        "invalid_client" | "unauthorized_client" => TokenError::InvalidClient(text),
        "temporarily_unavailable" | "server_error" => TokenError::Other(unreachable(text)),
        _ => TokenError::Other(refused(text)),
    }
}

/// Seconds, as a number or as text, some servers' fractions included.
fn parse_expires_in(value: &Value) -> Option<u64> {
    let seconds = match value {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => text.trim().parse().ok()?,
        _ => return None,
    };
    // Ten years are as good as for ever.
    let seconds = std::time::Duration::try_from_secs_f64(seconds.clamp(0.0, 315_360_000.0)).ok()?;
    u64::try_from(seconds.as_millis()).ok()
}

impl From<TokenError> for AuthError {
    fn from(fault: TokenError) -> Self {
        match fault {
            TokenError::InvalidGrant(text) | TokenError::InvalidClient(text) => refused(text),
            TokenError::Other(error) => error,
        }
    }
}

#[cfg(test)]
mod tests;
