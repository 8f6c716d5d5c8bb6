//! Token requests per grant type, refresh included, and scope selection.

pub(crate) use toolrack_platform::unix_time_ms as now;
use toolrack_transport::AuthError;
use url::Url;

use crate::client_registration::{AuthMethod, Client, auth_method};
use crate::discovery::Discovered;
use crate::error::{refused, untrusted};
use crate::http_client::{Form, HttpClient};
use crate::secret::Secret;
use crate::settings::{Audience, AuthSettings, ClientAuth, Grant, IdentityProvider};
use crate::stored_credentials::{StoredCredentials, StoredGrant};
use crate::token_endpoint::{
    TokenError, TokenKind, TokenRequestAuth, TokenResponse, request_token, sign_assertion,
};

const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";
const ID_JAG_PROFILE: &str = "urn:ietf:params:oauth:grant-profile:id-jag";
const ID_TOKEN: &str = "urn:ietf:params:oauth:token-type:id_token";
const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// What all token requests of one grant have in common.
#[derive(Debug, Clone)]
pub(crate) struct GrantSource {
    pub(crate) issuer: String,
    pub(crate) resource: String,
    pub(crate) scopes: Vec<String>,
    pub(crate) endpoint: Url,
    pub(crate) revocation_endpoint: Option<String>,
    pub(crate) auth_methods: Option<Vec<String>>,
}

/// Sends token requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenRequester<'a> {
    pub(crate) http: &'a HttpClient,
    pub(crate) settings: &'a AuthSettings,
    /// HTTP client for the identity provider, if the grant needs one.
    pub(crate) provider: Option<&'a HttpClient>,
}

impl GrantSource {
    /// From the result of discovery, for the selected scopes.
    pub(crate) fn from_discovery(
        http: &HttpClient,
        found: &Discovered,
        scopes: Vec<String>,
    ) -> Result<Self, AuthError> {
        let metadata = &found.metadata;
        Ok(Self {
            issuer: metadata.issuer.clone(),
            resource: found.resource.clone(),
            scopes,
            endpoint: http.endpoint(metadata.token_endpoint.as_deref(), "token")?,
            revocation_endpoint: metadata.revocation_endpoint.clone(),
            auth_methods: metadata.token_endpoint_auth_methods_supported.clone(),
        })
    }

    /// From a stored grant.
    fn from_stored(http: &HttpClient, grant: &StoredGrant) -> Result<Self, AuthError> {
        Ok(Self {
            issuer: grant.issuer.clone(),
            resource: grant.resource.clone(),
            scopes: grant.requested.clone(),
            endpoint: http.endpoint(Some(&grant.token_endpoint), "token")?,
            revocation_endpoint: grant.revocation_endpoint.clone(),
            auth_methods: grant.auth_methods.clone(),
        })
    }

    pub(crate) fn request_auth(&self, client: &Client) -> Result<TokenRequestAuth, AuthError> {
        let method = auth_method(client, self.auth_methods.as_deref())?;
        Ok(TokenRequestAuth::Client(client.clone(), method))
    }

    /// The grant to store for a new token. Fields missing in the response keep their previous value.
    pub(crate) fn into_stored_grant(
        self,
        client_id: &str,
        issued: TokenResponse,
        old: Option<&StoredGrant>,
    ) -> StoredGrant {
        // RFC 6749 §6: without a new refresh token in the response, the old one stays valid.
        let previous = || old.and_then(|grant| grant.refresh_token.clone());
        let granted = old.map_or(&self.scopes, |grant| &grant.granted).clone();
        let received_at = now();
        StoredGrant {
            client_id: client_id.to_owned(),
            token_endpoint: self.endpoint.to_string(),
            requested: self.scopes,
            granted: issued.scopes.unwrap_or(granted),
            access_token: issued.access_token,
            refresh_token: issued.refresh_token.or_else(previous),
            received_at,
            expires_at: issued.lifetime.map(|lifetime| received_at.saturating_add(lifetime)),
            issuer: self.issuer,
            resource: self.resource,
            revocation_endpoint: self.revocation_endpoint,
            auth_methods: self.auth_methods,
        }
    }
}

/// Token request for an authorization code.
pub(crate) fn code_form(
    code: Secret,
    verifier: Secret,
    redirect_uri: &str,
    resource: &str,
) -> Form {
    Form::default()
        .with("grant_type", "authorization_code")
        .with("code", code)
        .with("redirect_uri", redirect_uri)
        .with("code_verifier", verifier)
        .with("resource", resource)
}

impl TokenRequester<'_> {
    /// Obtains the next token of a grant without the user. `None` if that is impossible.
    pub(crate) async fn refresh(
        &self,
        credentials: &StoredCredentials,
    ) -> Result<Option<StoredGrant>, TokenError> {
        let Some(grant) = &credentials.grant else { return Ok(None) };
        // These grants have no refresh token; a new request needs no user.
        if !matches!(self.settings.grant, Grant::AuthorizationCode) {
            let source = GrantSource::from_stored(self.http, grant).map_err(TokenError::Other)?;
            return self.request_unattended(source).await.map(Some);
        }
        let Some(refresh_token) = grant.refresh_token.clone() else { return Ok(None) };
        let source = GrantSource::from_stored(self.http, grant).map_err(TokenError::Other)?;
        let auth = self.request_auth(credentials, grant).map_err(TokenError::Other)?;
        // No `scope`: the new token then has the scopes of the old one (RFC 6749 §6).
        let form = Form::default()
            .with("grant_type", "refresh_token")
            .with("refresh_token", refresh_token)
            .with("resource", grant.resource.as_str());
        let issued =
            request_token(self.http, &source.endpoint, form, &auth, TokenKind::Bearer).await?;
        Ok(Some(source.into_stored_grant(&grant.client_id, issued, Some(grant))))
    }

    /// Obtains a token with client credentials or through the identity provider.
    pub(crate) async fn request_unattended(
        &self,
        source: GrantSource,
    ) -> Result<StoredGrant, TokenError> {
        let Some(registered) = &self.settings.pre_registered else {
            return Err(TokenError::Other(refused("no client is configured")));
        };
        let client = Client::pre_registered(registered);
        let (form, auth) = match &self.settings.grant {
            Grant::AuthorizationCode => {
                return Err(TokenError::Other(refused("this grant needs an interactive login")));
            }
            Grant::ClientCredentials { auth } => {
                let form = Form::default()
                    .with("grant_type", "client_credentials")
                    .with("resource", source.resource.as_str())
                    .with_option("scope", scope_param(&source.scopes));
                (form, program_auth(&source, &client, auth).map_err(TokenError::Other)?)
            }
            Grant::EnterpriseManaged(identity_provider) => {
                let assertion = self.exchange_id_token(&source, identity_provider).await?;
                let form = Form::default()
                    .with("grant_type", JWT_BEARER)
                    .with("assertion", assertion)
                    .with_option("scope", scope_param(&source.scopes));
                (form, source.request_auth(&client).map_err(TokenError::Other)?)
            }
        };
        let issued =
            request_token(self.http, &source.endpoint, form, &auth, TokenKind::Bearer).await?;
        Ok(source.into_stored_grant(&client.id, issued, None))
    }

    /// Protocol facts §20.8: the identity provider exchanges the user's ID token for an assertion for this
    /// server.
    async fn exchange_id_token(
        &self,
        source: &GrantSource,
        identity_provider: &IdentityProvider,
    ) -> Result<Secret, TokenError> {
        let Some(provider) = self.provider else {
            return Err(TokenError::Other(refused("no identity provider is configured")));
        };
        let id_token = identity_provider.id_token.id_token().await.map_err(TokenError::Other)?;
        let form = Form::default()
            .with("grant_type", TOKEN_EXCHANGE)
            .with("requested_token_type", ID_JAG)
            .with("audience", source.issuer.as_str())
            .with("resource", source.resource.as_str())
            .with("subject_token", id_token)
            .with("subject_token_type", ID_TOKEN)
            .with_option("scope", scope_param(&source.scopes));
        let secret = identity_provider.client_secret.clone();
        let client = Client { secret, ..Client::public(&identity_provider.client_id) };
        let auth = TokenRequestAuth::Client(
            client.clone(),
            auth_method(&client, None).map_err(TokenError::Other)?,
        );
        let endpoint = &identity_provider.token_endpoint;
        let issued = request_token(provider, endpoint, form, &auth, TokenKind::Exchange).await?;
        if issued.issued_token_type.as_deref() != Some(ID_JAG) {
            let error = untrusted("the identity provider returned the wrong token type");
            return Err(TokenError::Other(error));
        }
        Ok(issued.access_token)
    }

    /// Client authentication for a grant.
    pub(crate) fn request_auth(
        &self,
        credentials: &StoredCredentials,
        grant: &StoredGrant,
    ) -> Result<TokenRequestAuth, AuthError> {
        GrantSource::from_stored(self.http, grant)?.request_auth(&self.client(credentials, grant))
    }

    /// The client that the grant was issued to.
    fn client(&self, credentials: &StoredCredentials, grant: &StoredGrant) -> Client {
        if let Some(registered) = &self.settings.pre_registered
            && registered.client_id == grant.client_id
        {
            return Client::pre_registered(registered);
        }
        let registered_client =
            credentials.clients.get(&grant.issuer).filter(|client| client.id == grant.client_id);
        registered_client.cloned().unwrap_or_else(|| Client::public(&grant.client_id))
    }
}

/// Client authentication of a program, if the authorization server supports it (protocol facts §20.8).
fn program_auth(
    source: &GrantSource,
    client: &Client,
    auth: &ClientAuth,
) -> Result<TokenRequestAuth, AuthError> {
    let supported = source.auth_methods.as_deref();
    let supports =
        |name: &str| supported.is_some_and(|list| list.iter().any(|method| method == name));
    match auth {
        // If nothing is listed, the default is basic (RFC 8414 §2).
        ClientAuth::Basic if supported.is_none() || supports("client_secret_basic") => {
            Ok(TokenRequestAuth::Client(client.clone(), AuthMethod::Basic))
        }
        ClientAuth::PrivateKeyJwt { key, algorithm, audience } if supports("private_key_jwt") => {
            let audience = match audience {
                Audience::Issuer => source.issuer.as_str(),
                Audience::TokenEndpoint => source.endpoint.as_str(),
                Audience::Other(other) => other,
            };
            let assertion = sign_assertion(key, *algorithm, &client.id, audience, now() / 1_000)?;
            Ok(TokenRequestAuth::Assertion(assertion))
        }
        ClientAuth::Basic | ClientAuth::PrivateKeyJwt { .. } => Err(refused(format_args!(
            "{} does not support the configured client authentication",
            source.issuer
        ))),
    }
}

/// Fails early if the server lists its grant profiles and this one is missing.
pub(crate) fn check_profile(found: &Discovered, settings: &AuthSettings) -> Result<(), AuthError> {
    let supported = found.metadata.authorization_grant_profiles_supported.as_deref();
    let is_unsupported =
        supported.is_some_and(|list| !list.iter().any(|profile| profile == ID_JAG_PROFILE));
    match settings.grant {
        Grant::EnterpriseManaged(_) if is_unsupported => Err(refused(format_args!(
            "{} does not support enterprise-managed authorization",
            found.metadata.issuer
        ))),
        _ => Ok(()),
    }
}

/// Scope for which some authorization servers issue refresh tokens.
const OFFLINE_ACCESS: &str = "offline_access";

/// Inputs of scope selection.
///
/// **Invariant:** no scope is requested unless the user, the server or an earlier grant names it, except
/// `offline_access`, and that only if the authorization server lists it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ScopeInputs<'a> {
    /// From the settings.
    pub(crate) settings: Option<&'a [String]>,
    /// From the server's challenge.
    pub(crate) challenge: Option<&'a [String]>,
    /// Listed by the protected resource metadata.
    pub(crate) resource: Option<&'a [String]>,
    /// Listed by the authorization server.
    pub(crate) issuer: Option<&'a [String]>,
    /// Requested or granted before, at the same authorization server for the same resource.
    pub(crate) previous: &'a [String],
}

/// The scopes to request, in a stable order. Empty means: omit the parameter.
///
/// Protocol facts §20.2 step 8: the challenge, else all that the resource lists, else none. Previous scopes are
/// kept, because a new token replaces the old one entirely (§20.4).
pub(crate) fn select_scopes(inputs: ScopeInputs<'_>) -> Vec<String> {
    let first = match inputs.previous {
        // The resource's list is a fallback for the first login; later it would only widen the grant.
        [] => inputs.settings.or(inputs.challenge).or(inputs.resource).unwrap_or_default(),
        _ => inputs.challenge.unwrap_or_default(),
    };
    let mut scopes = union_scopes(inputs.previous, first);
    let has_offline_access =
        inputs.issuer.is_some_and(|list| list.iter().any(|scope| scope == OFFLINE_ACCESS));
    // Not alone: an omitted parameter means the default scopes of the authorization server (RFC
    // 6749 §3.3), which it would replace.
    if has_offline_access && !scopes.is_empty() {
        scopes = union_scopes(&scopes, &[OFFLINE_ACCESS.to_owned()]);
    }
    // A server may list it although its authorization server does not know it. A configured one
    // stays.
    if inputs.issuer.is_some() && !has_offline_access && inputs.settings.is_none() {
        scopes.retain(|scope| scope != OFFLINE_ACCESS);
    }
    scopes
}

/// All scopes of both lists, without duplicates, in order of appearance.
pub(crate) fn union_scopes(one: &[String], other: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for scope in one.iter().chain(other) {
        if !all.contains(scope) {
            all.push(scope.clone());
        }
    }
    all
}

/// Value of the parameter `scope`, if there are any.
pub(crate) fn scope_param(scopes: &[String]) -> Option<String> {
    if scopes.is_empty() { None } else { Some(scopes.join(" ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored_credentials::tests::grant;

    fn source(methods: Option<&[&str]>) -> GrantSource {
        GrantSource {
            issuer: "https://a".to_owned(),
            resource: "https://h/mcp".to_owned(),
            scopes: vec!["asked".to_owned()],
            endpoint: Url::parse("https://a/token").unwrap(),
            revocation_endpoint: None,
            auth_methods: methods.map(|list| list.iter().map(|&name| name.to_owned()).collect()),
        }
    }

    fn issued(refresh_token: Option<&str>, scopes: Option<&str>) -> TokenResponse {
        TokenResponse {
            access_token: Secret::new("new"),
            refresh_token: refresh_token.map(Secret::from),
            lifetime: None,
            scopes: scopes.map(|scope| vec![scope.to_owned()]),
            issued_token_type: None,
        }
    }

    #[test]
    fn refresh_keeps_fields_missing_in_the_response() {
        let mut old = grant(0, None);
        old.granted = vec!["had".to_owned()];
        let check = |issued, old: Option<&StoredGrant>, token: Option<&str>, granted: &str| {
            let new = source(None).into_stored_grant("c", issued, old);
            assert_eq!(new.refresh_token, token.map(Secret::from));
            assert_eq!(new.granted, [granted]);
        };
        check(issued(None, None), Some(&old), Some("r3fresh"), "had");
        check(issued(Some("next"), Some("now")), Some(&old), Some("next"), "now");
        check(issued(None, None), None, None, "asked");
    }

    #[test]
    fn program_uses_only_supported_auth_methods() {
        let client = Client::public("c");
        let key = ring::signature::Ed25519KeyPair::generate_pkcs8(&ring::rand::SystemRandom::new());
        let body = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, key.unwrap());
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n");
        let signed = ClientAuth::PrivateKeyJwt {
            key: Secret::new(pem),
            algorithm: crate::SigningAlgorithm::EdDsa,
            audience: Audience::Issuer,
        };
        let check = |auth: &ClientAuth, methods, expected| {
            assert_eq!(program_auth(&source(methods), &client, auth).is_ok(), expected);
        };
        check(&ClientAuth::Basic, None, true);
        check(&ClientAuth::Basic, Some(&["client_secret_basic"]), true);
        check(&ClientAuth::Basic, Some(&["private_key_jwt"]), false);
        check(&signed, Some(&["private_key_jwt"]), true);
        check(&signed, Some(&["client_secret_basic"]), false);
        check(&signed, None, false);
    }
}

#[cfg(test)]
mod scope_tests {
    use super::*;

    fn list(text: &str) -> Vec<String> {
        text.split_ascii_whitespace().map(str::to_owned).collect()
    }

    /// `-` means absent; the order is settings, challenge, resource, issuer, previous.
    #[track_caller]
    fn check(inputs: [&str; 5], expected: &str) {
        let lists = inputs.map(|text| if text == "-" { None } else { Some(list(text)) });
        let [settings, challenge, resource, issuer, previous] = &lists;
        let selected = select_scopes(ScopeInputs {
            settings: settings.as_deref(),
            challenge: challenge.as_deref(),
            resource: resource.as_deref(),
            issuer: issuer.as_deref(),
            previous: previous.as_deref().unwrap_or_default(),
        });
        assert_eq!(selected, list(expected));
    }

    #[test]
    fn scope_sources_have_precedence() {
        check(["-", "-", "-", "-", "-"], "");
        check(["-", "-", "r1 r2", "-", "-"], "r1 r2");
        check(["-", "c", "r1 r2", "-", "-"], "c");
        check(["s", "c", "r1 r2", "-", "-"], "s");
    }

    #[test]
    fn previous_scopes_are_kept_and_listed_ones_ignored() {
        check(["-", "write", "r1 r2", "-", "basic"], "basic write");
        check(["-", "basic", "r1", "-", "basic extra"], "basic extra");
        check(["-", "-", "r1", "-", "basic"], "basic");
        check(["s", "write", "-", "-", "s"], "s write");
    }

    #[test]
    fn offline_access_must_be_listed_by_the_issuer() {
        check(["-", "c", "-", "c offline_access", "-"], "c offline_access");
        check(["-", "-", "-", "offline_access", "-"], "");
        check(["-", "c", "-", "c", "-"], "c");
        check(["-", "-", "r offline_access", "r", "-"], "r");
        check(["-", "c offline_access", "-", "-", "-"], "c offline_access");
        check(["s offline_access", "-", "-", "s", "-"], "s offline_access");
    }

    #[test]
    fn empty_scopes_omit_the_parameter() {
        assert_eq!(scope_param(&[]), None);
        assert_eq!(scope_param(&list("a b")), Some("a b".to_owned()));
    }
}
