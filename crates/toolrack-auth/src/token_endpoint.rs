//! Asking a token endpoint, and what its answers mean.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;
use toolrack_transport::AuthError;
use url::{Url, form_urlencoded};

use crate::address_policy::shown;
use crate::client_identity::{Client, Method};
use crate::error::{refused, unreachable, untrusted};
use crate::http_client::{Form, Http, Reply};
use crate::secret::{Secret, scrub};

const ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// How a token request says who sends it.
#[derive(Debug, Clone)]
pub(crate) enum Proof {
    /// As this client, in this way.
    Client(Client, Method),
    /// By a signed statement that says it all.
    Assertion(Secret),
}

/// A token, as it came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Issued {
    pub(crate) access_token: Secret,
    pub(crate) refresh_token: Option<Secret>,
    /// In milliseconds.
    pub(crate) lifetime: Option<u64>,
    /// `None` if the answer says nothing, which means: as asked.
    pub(crate) scopes: Option<Vec<String>>,
    /// What kind of token it is, in an exchange.
    pub(crate) exchanged_as: Option<String>,
}

/// Why there is no token. What comes next depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenFault {
    /// The grant is over: this code or refresh token will never work again.
    GrantOver(String),
    /// The authorization server does not know us any more.
    ClientUnknown(String),
    /// Anything else, which may be different next time.
    Other(AuthError),
}

/// Which types of token an answer may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One to be sent to servers.
    Bearer,
    /// One to be handed on to another authorization server.
    Exchange,
}

/// Sends one token request.
pub(crate) async fn request(
    http: &Http,
    endpoint: &Url,
    form: Form,
    proof: &Proof,
    kind: Kind,
) -> Result<Issued, TokenFault> {
    let (form, header) = prove(form, proof);
    let reply =
        http.post_form(endpoint, &form, header.as_ref()).await.map_err(TokenFault::Other)?;
    let mut secrets = form.secrets();
    if let Proof::Client(Client { secret: Some(secret), .. }, _) = proof {
        secrets.push(secret);
    }
    read(&reply, kind, endpoint, &secrets)
}

/// Adds who we are, in the body or as the header that is returned.
pub(crate) fn prove(form: Form, proof: &Proof) -> (Form, Option<Secret>) {
    match proof {
        Proof::Assertion(statement) => {
            let form = form.with("client_assertion_type", ASSERTION);
            (form.with("client_assertion", statement.clone()), None)
        }
        // The name goes into the body too, which is allowed (RFC 6749 §4.1.3): servers on the Python SDK look for it
        // nowhere else.
        Proof::Client(client, Method::Basic) => {
            (form.with("client_id", client.id.as_str()), Some(basic(client)))
        }
        Proof::Client(client, Method::Post) => {
            let form = form.with("client_id", client.id.as_str());
            (form.with_option("client_secret", client.secret.clone()), None)
        }
        Proof::Client(client, Method::None) => (form.with("client_id", client.id.as_str()), None),
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
struct Answer {
    access_token: String,
    token_type: Option<String>,
    refresh_token: Option<String>,
    expires_in: Option<Value>,
    scope: Option<String>,
    issued_token_type: Option<String>,
}

#[derive(Deserialize)]
struct Refusal {
    error: String,
    error_description: Option<String>,
}

/// What an answer means. Nothing of `secrets` is in what it says.
fn read(
    reply: &Reply,
    kind: Kind,
    endpoint: &Url,
    secrets: &[&Secret],
) -> Result<Issued, TokenFault> {
    let place = shown(endpoint);
    if !reply.is_success() {
        return Err(read_refusal(reply, &place, secrets));
    }
    let answer: Answer = serde_json::from_slice(&reply.body).map_err(|_json| {
        TokenFault::Other(unreachable(format_args!("{place} answered without a token")))
    })?;
    let token_type = answer.token_type.unwrap_or_default();
    let fits = kind == Kind::Exchange || token_type.eq_ignore_ascii_case("bearer");
    // A token that could break out of its header is none.
    if !fits
        || answer.access_token.is_empty()
        || !answer.access_token.bytes().all(|it| it.is_ascii_graphic())
    {
        let fault = untrusted(format_args!("{place} gave something that is no bearer token"));
        return Err(TokenFault::Other(fault));
    }
    Ok(Issued {
        access_token: Secret::new(answer.access_token),
        refresh_token: answer.refresh_token.filter(|it| !it.is_empty()).map(Secret::new),
        lifetime: answer.expires_in.as_ref().and_then(milliseconds),
        scopes: answer.scope.map(|it| it.split_ascii_whitespace().map(str::to_owned).collect()),
        exchanged_as: answer.issued_token_type,
    })
}

fn read_refusal(reply: &Reply, place: &str, secrets: &[&Secret]) -> TokenFault {
    let status = reply.status;
    let transient = status >= 500 || status == 429 || status == 408;
    if transient {
        return TokenFault::Other(unreachable(format_args!("{place} answered {status}")));
    }
    let Ok(refusal) = serde_json::from_slice::<Refusal>(&reply.body) else {
        return TokenFault::Other(refused(format_args!("{place} answered {status}")));
    };
    let description = refusal.error_description.map(|it| format!(": {it}")).unwrap_or_default();
    let said = scrub(&format!("{}{description}", refusal.error), secrets);
    match refusal.error.as_str() {
        "invalid_grant" => TokenFault::GrantOver(said),
        "invalid_client" | "unauthorized_client" => TokenFault::ClientUnknown(said),
        "temporarily_unavailable" | "server_error" => TokenFault::Other(unreachable(said)),
        _ => TokenFault::Other(refused(said)),
    }
}

/// Seconds, as a number or as text, some servers' fractions included.
fn milliseconds(value: &Value) -> Option<u64> {
    let seconds = match value {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => text.trim().parse().ok()?,
        _ => return None,
    };
    // Ten years are as good as for ever.
    let seconds = std::time::Duration::try_from_secs_f64(seconds.clamp(0.0, 315_360_000.0)).ok()?;
    u64::try_from(seconds.as_millis()).ok()
}

impl From<TokenFault> for AuthError {
    fn from(fault: TokenFault) -> Self {
        match fault {
            TokenFault::GrantOver(said) | TokenFault::ClientUnknown(said) => refused(said),
            TokenFault::Other(error) => error,
        }
    }
}

#[cfg(test)]
mod tests;
