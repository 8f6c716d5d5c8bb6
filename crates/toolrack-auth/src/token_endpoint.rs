//! Token endpoint: client authentication, client assertions (RFC 7523), and the meaning of responses.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use toolrack_transport::AuthError;
use url::{Url, form_urlencoded};

use crate::address_policy::display_url;
use crate::authorization_code::random_token;
use crate::client_registration::{AuthMethod, Client};
use crate::error::{refused, unreachable, untrusted};
use crate::http_client::{ErrorBody, FORM, Form, HttpClient, HttpResponse};
use crate::secret::{Secret, redact_secrets};

const JWT_BEARER_ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Client authentication of a token request.
#[derive(Debug, Clone)]
pub(crate) enum TokenRequestAuth {
    /// As this client, with this method.
    Client(Client, AuthMethod),
    /// With a signed assertion.
    Assertion(Secret),
}

/// Successful token response.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct TokenResponse {
    pub(crate) access_token: Secret,
    pub(crate) token_type: Option<String>,
    pub(crate) refresh_token: Option<Secret>,
    /// In milliseconds.
    #[serde(default, rename = "expires_in", deserialize_with = "parse_expires_in")]
    pub(crate) lifetime: Option<u64>,
    /// Absent means: as requested.
    pub(crate) scope: Option<String>,
    /// Type of the token, in a token exchange.
    pub(crate) issued_token_type: Option<String>,
}

/// Why there is no token. The reaction depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenError {
    /// `invalid_grant`: this code or refresh token will never work again.
    InvalidGrant(String),
    /// `invalid_client`: the authorization server no longer knows the client.
    InvalidClient(String),
    /// Any other error, which may be temporary.
    Other(AuthError),
}

/// Token types that a response may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// A token to send to servers.
    Bearer,
    /// A token to pass to another authorization server.
    Exchange,
}

/// Sends one token request.
pub(crate) async fn request_token(
    http: &HttpClient,
    endpoint: &Url,
    form: Form,
    auth: &TokenRequestAuth,
    kind: TokenKind,
) -> Result<TokenResponse, TokenError> {
    let (form, header) = authenticate_request(form, auth);
    let response = http.post(endpoint, FORM, form.encode(), header.as_ref()).await?;
    let mut secrets = form.secrets();
    if let TokenRequestAuth::Client(Client { secret: Some(secret), .. }, _) = auth {
        secrets.push(secret);
    }
    parse_response(&response, kind, endpoint, &secrets)
}

/// Adds client authentication, to the form or as the returned header.
pub(crate) fn authenticate_request(form: Form, auth: &TokenRequestAuth) -> (Form, Option<Secret>) {
    match auth {
        TokenRequestAuth::Assertion(statement) => {
            // Protocol facts §20.8: without `client_id`, because the assertion names the client.
            let form = form.with("client_assertion_type", JWT_BEARER_ASSERTION);
            (form.with("client_assertion", statement.clone()), None)
        }
        // `client_id` goes into the body too, which is allowed (RFC 6749 §4.1.3): servers built on the Python
        // SDK look for it nowhere else.
        TokenRequestAuth::Client(client, method) => {
            let form = form.with("client_id", client.id.as_str());
            match method {
                AuthMethod::Basic => (form, Some(basic(client))),
                AuthMethod::Post => {
                    (form.with_option("client_secret", client.secret.clone()), None)
                }
                AuthMethod::None => (form, None),
            }
        }
    }
}

/// RFC 6749 §2.3.1: both parts are form-encoded first.
fn basic(client: &Client) -> Secret {
    let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let secret = client.secret.as_ref().map(Secret::reveal).unwrap_or_default();
    let pair = Secret::new(format!("{}:{}", encode(&client.id), encode(secret)));
    Secret::new(format!("Basic {}", STANDARD.encode(pair.reveal())))
}

/// Parses the response. Error texts contain none of `secrets`.
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
    let issued: TokenResponse = serde_json::from_slice(&response.body)
        .map_err(|_json| unreachable(format_args!("{url} responded without a token")))?;
    let token_type = issued.token_type.as_deref().unwrap_or_default();
    // In a token exchange the type is `N_A` (RFC 8693 §2.2.1).
    let is_expected_type = kind == TokenKind::Exchange || token_type.eq_ignore_ascii_case("bearer");
    // Only visible ASCII: a token with a line break could inject headers.
    let token = issued.access_token.reveal();
    let is_valid = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_expected_type || !is_valid {
        return Err(untrusted(format_args!("{url} did not return a valid bearer token")).into());
    }
    Ok(issued)
}

fn parse_error(response: &HttpResponse, url: &str, secrets: &[&Secret]) -> TokenError {
    let status = response.status;
    // Before the body is read: an outage must not look like `invalid_grant`, which ends the login.
    let transient = status >= 500 || status == 429 || status == 408;
    if transient {
        return unreachable(format_args!("{url} responded with status {status}")).into();
    }
    let Ok(body) = serde_json::from_slice::<ErrorBody>(&response.body) else {
        return refused(format_args!("{url} responded with status {status}")).into();
    };
    let text = redact_secrets(&body.text(), secrets);
    match body.error.as_str() {
        "invalid_grant" => TokenError::InvalidGrant(text),
        "invalid_client" | "unauthorized_client" => TokenError::InvalidClient(text),
        "temporarily_unavailable" | "server_error" => unreachable(text).into(),
        _ => refused(text).into(),
    }
}

/// Seconds, as a number or a string; some servers send fractions.
fn parse_expires_in<'de, D: Deserializer<'de>>(value: D) -> Result<Option<u64>, D::Error> {
    let seconds: Option<f64> = match Value::deserialize(value)? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    // Ten years count as forever. Without the limit, 1e300 would not fit into a `Duration`.
    let seconds = seconds.map(|seconds| seconds.clamp(0.0, 315_360_000.0));
    let lifetime = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    Ok(lifetime.and_then(|lifetime| u64::try_from(lifetime.as_millis()).ok()))
}

impl From<AuthError> for TokenError {
    fn from(error: AuthError) -> Self {
        Self::Other(error)
    }
}

impl From<TokenError> for AuthError {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::InvalidGrant(text) | TokenError::InvalidClient(text) => refused(text),
            TokenError::Other(error) => error,
        }
    }
}

/// Lifetime of an assertion. It is used at once.
const LIFETIME_SECONDS: u64 = 120;

/// Signing algorithm of a private key. Serializes to its name in JSON Web Tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum SigningAlgorithm {
    /// ECDSA on P-256.
    Es256,
    /// ECDSA on P-384.
    Es384,
    /// RSA with SHA-256.
    Rs256,
    /// Ed25519.
    #[serde(rename = "EdDSA")]
    EdDsa,
}

/// Signs an assertion that we are `client_id`, for `audience`, at `now` (seconds since 1970).
pub(crate) fn sign_assertion(
    key: &Secret,
    algorithm: SigningAlgorithm,
    client_id: &str,
    audience: &str,
    now: u64,
) -> Result<Secret, AuthError> {
    let header = json!({ "alg": algorithm, "typ": "JWT" });
    let claims = json!({
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        // RFC 7523 §3: lets the authorization server reject a replayed assertion.
        "jti": random_token()?.reveal(),
        "iat": now,
        "exp": now + LIFETIME_SECONDS,
    });
    let encode = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let text = format!("{}.{}", encode(&header), encode(&claims));
    let signature = signature(key, algorithm, text.as_bytes())?;
    Ok(Secret::new(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))))
}

fn signature(key: &Secret, algorithm: SigningAlgorithm, text: &[u8]) -> Result<Vec<u8>, AuthError> {
    let key = PrivateKeyDer::from_pem_slice(key.reveal().as_bytes())
        .map_err(|_pem| refused("the private key is not valid PEM"))?;
    let pkcs8 = || match &key {
        PrivateKeyDer::Pkcs8(key) => Ok(key.secret_pkcs8_der()),
        _ => Err(refused(
            "the private key is not PKCS#8; `openssl pkcs8 -topk8 -nocrypt` converts it",
        )),
    };
    let random = SystemRandom::new();
    // RFC 7518 §3.4: the fixed-length form, not ASN.1.
    let ecdsa = |algorithm: &'static EcdsaSigningAlgorithm| {
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8()?, &random).map_err(invalid_key)?;
        Ok(pair.sign(&random, text).map_err(signing_failed)?.as_ref().to_vec())
    };
    match algorithm {
        SigningAlgorithm::Es256 => ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING),
        SigningAlgorithm::Es384 => ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING),
        SigningAlgorithm::Rs256 => {
            let pair = match &key {
                PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
                _ => RsaKeyPair::from_pkcs8(pkcs8()?),
            };
            let pair = pair.map_err(invalid_key)?;
            let mut signature = vec![0; pair.public().modulus_len()];
            pair.sign(&RSA_PKCS1_SHA256, &random, text, &mut signature).map_err(signing_failed)?;
            Ok(signature)
        }
        SigningAlgorithm::EdDsa => {
            // Unchecked, because OpenSSL writes keys without the public part that `from_pkcs8`
            // requires.
            let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8()?);
            Ok(pair.map_err(invalid_key)?.sign(text).as_ref().to_vec())
        }
    }
}

fn invalid_key(reason: ring::error::KeyRejected) -> AuthError {
    refused(format_args!("the private key does not match its algorithm: {reason}"))
}

fn signing_failed(_unspecified: ring::error::Unspecified) -> AuthError {
    refused("signing with the private key failed")
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod assertion_tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, KeyPair as _, UnparsedPublicKey};

    use super::*;

    fn pem(der: &[u8]) -> Secret {
        let body = STANDARD.encode(der);
        Secret::new(format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n"))
    }

    #[test]
    fn client_assertion_is_signed_with_required_claims() {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let der = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, der.as_ref(), &random).unwrap();
        let signed =
            sign_assertion(&pem(der.as_ref()), SigningAlgorithm::Es256, "me", "https://a", 1_000)
                .unwrap();

        let parts: Vec<&str> = signed.reveal().split('.').collect();
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, pair.public_key().as_ref());
        public.verify(format!("{}.{}", parts[0], parts[1]).as_bytes(), &decode(parts[2])).unwrap();

        let mut claims: Value = serde_json::from_slice(&decode(parts[1])).unwrap();
        assert_eq!(claims["jti"].take().as_str().map(str::len), Some(43));
        let expected = json!({
            "iss": "me", "sub": "me", "aud": "https://a", "jti": null, "iat": 1_000, "exp": 1_120,
        });
        assert_eq!(claims, expected);
    }

    #[test]
    fn ed25519_signs_and_mismatched_keys_are_rejected() {
        let der = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let try_with =
            |key: &Secret, algorithm| sign_assertion(key, algorithm, "me", "a", 0).is_ok();
        assert!(try_with(&pem(der.as_ref()), SigningAlgorithm::EdDsa));
        assert!(!try_with(&pem(der.as_ref()), SigningAlgorithm::Es256));
        assert!(!try_with(&pem(der.as_ref()), SigningAlgorithm::Rs256));
        assert!(!try_with(&Secret::new("no key"), SigningAlgorithm::EdDsa));
    }
}
