//! Asking a token endpoint, and what its answers mean.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;
use serde_json::{Value, json};
use toolrack_transport::AuthError;
use url::{Url, form_urlencoded};

use crate::address_policy::display_url;
use crate::client_registration::{AuthMethod, Client};
use crate::error::{refused, unreachable, untrusted};
use crate::http_client::{Form, HttpClient, HttpResponse};
use crate::pkce::random_token;
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

// FOLDED client_assertion.rs
// DOC Signed statements of who we are, for token endpoints that want no password (RFC 7523 §2.2).

/// How long a statement holds. It is used at once.
const LIFETIME_SECONDS: u64 = 120;

/// What a private key signs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SigningAlgorithm {
    /// ECDSA on P-256.
    Es256,
    /// ECDSA on P-384.
    Es384,
    /// RSA with SHA-256.
    Rs256,
    /// Ed25519.
    EdDsa,
}

impl SigningAlgorithm {
    /// Reads the name that JSON Web Tokens use.
    pub fn parse(name: &str) -> Option<Self> {
        let all = [Self::Es256, Self::Es384, Self::Rs256, Self::EdDsa];
        all.into_iter().find(|it| it.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Rs256 => "RS256",
            Self::EdDsa => "EdDSA",
        }
    }
}

/// A statement that we are `client_id`, for `audience`, made at `now` (seconds since 1970).
pub(crate) fn sign_assertion(
    key: &Secret,
    algorithm: SigningAlgorithm,
    client_id: &str,
    audience: &str,
    now: u64,
) -> Result<Secret, AuthError> {
    let header = json!({ "alg": algorithm.name(), "typ": "JWT" });
    let claims = json!({
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "jti": random_token()?.reveal(),
        "iat": now,
        "exp": now + LIFETIME_SECONDS,
    });
    let encode = |it: &serde_json::Value| URL_SAFE_NO_PAD.encode(it.to_string());
    let text = format!("{}.{}", encode(&header), encode(&claims));
    let signature = signature(key, algorithm, text.as_bytes())?;
    Ok(Secret::new(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))))
}

fn signature(key: &Secret, algorithm: SigningAlgorithm, text: &[u8]) -> Result<Vec<u8>, AuthError> {
    let key = PrivateKeyDer::from_pem_slice(key.reveal().as_bytes())
        .map_err(|_pem| refused("the private key is no PEM text"))?;
    match algorithm {
        SigningAlgorithm::Es256 => ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING, &key, text),
        SigningAlgorithm::Es384 => ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING, &key, text),
        SigningAlgorithm::Rs256 => rsa(&key, text),
        SigningAlgorithm::EdDsa => {
            let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8(&key)?);
            Ok(pair.map_err(invalid_key)?.sign(text).as_ref().to_vec())
        }
    }
}

fn ecdsa(
    algorithm: &'static EcdsaSigningAlgorithm,
    key: &PrivateKeyDer<'_>,
    text: &[u8],
) -> Result<Vec<u8>, AuthError> {
    let random = SystemRandom::new();
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8(key)?, &random).map_err(invalid_key)?;
    let signature = pair.sign(&random, text).map_err(|_unspecified| signing_failed())?;
    Ok(signature.as_ref().to_vec())
}

fn rsa(key: &PrivateKeyDer<'_>, text: &[u8]) -> Result<Vec<u8>, AuthError> {
    let pair = match key {
        PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
        other => RsaKeyPair::from_pkcs8(pkcs8(other)?),
    };
    let pair = pair.map_err(invalid_key)?;
    let mut signature = vec![0; pair.public().modulus_len()];
    pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text, &mut signature)
        .map_err(|_unspecified| signing_failed())?;
    Ok(signature)
}

fn pkcs8<'a>(key: &'a PrivateKeyDer<'_>) -> Result<&'a [u8], AuthError> {
    match key {
        PrivateKeyDer::Pkcs8(key) => Ok(key.secret_pkcs8_der()),
        _ => Err(refused(
            "the private key is not PKCS#8; `openssl pkcs8 -topk8 -nocrypt` converts it",
        )),
    }
}

fn invalid_key(reason: ring::error::KeyRejected) -> AuthError {
    refused(format_args!("the private key does not fit its algorithm: {reason}"))
}

fn signing_failed() -> AuthError {
    refused("the private key does not sign")
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod assertion_tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, KeyPair as _, UnparsedPublicKey};

    use super::*;

    fn pem(der: &[u8]) -> Secret {
        let body = base64::engine::general_purpose::STANDARD.encode(der);
        Secret::new(format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n"))
    }

    #[test]
    fn a_statement_is_signed_and_says_what_it_must() {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let der = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, der.as_ref(), &random).unwrap();
        let signed =
            sign_assertion(&pem(der.as_ref()), SigningAlgorithm::Es256, "me", "https://a", 1_000)
                .unwrap();

        let parts: Vec<&str> = signed.reveal().split('.').collect();
        let decode = |it: &str| URL_SAFE_NO_PAD.decode(it).unwrap();
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, pair.public_key().as_ref());
        public.verify(format!("{}.{}", parts[0], parts[1]).as_bytes(), &decode(parts[2])).unwrap();

        let mut claims: serde_json::Value = serde_json::from_slice(&decode(parts[1])).unwrap();
        assert_eq!(claims["jti"].take().as_str().map(str::len), Some(43));
        let expected = json!({
            "iss": "me", "sub": "me", "aud": "https://a", "jti": null, "iat": 1_000, "exp": 1_120,
        });
        assert_eq!(claims, expected);
    }

    #[test]
    fn ed25519_signs_too_and_other_keys_are_refused() {
        let der = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let try_with =
            |key: &Secret, algorithm| sign_assertion(key, algorithm, "me", "a", 0).is_ok();
        assert!(try_with(&pem(der.as_ref()), SigningAlgorithm::EdDsa));
        assert!(!try_with(&pem(der.as_ref()), SigningAlgorithm::Es256));
        assert!(!try_with(&pem(der.as_ref()), SigningAlgorithm::Rs256));
        assert!(!try_with(&Secret::new("no key"), SigningAlgorithm::EdDsa));
    }

    #[test]
    fn algorithms_go_by_their_usual_names() {
        assert_eq!(SigningAlgorithm::parse("ES256"), Some(SigningAlgorithm::Es256));
        assert_eq!(SigningAlgorithm::parse("EdDSA"), Some(SigningAlgorithm::EdDsa));
        assert_eq!(SigningAlgorithm::parse("none"), None);
    }
}
