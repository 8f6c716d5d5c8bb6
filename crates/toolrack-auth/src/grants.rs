//! Token requests per grant type, refresh included, and scope selection.

use tokio_util::sync::CancellationToken;
pub(crate) use toolrack_platform::unix_time_ms as now;
use toolrack_transport::AuthError;
use url::Url;

use crate::client_registration::{AuthMethod, Client, auth_method};
use crate::discovery::{Discovered, lists};
use crate::error::{refused, untrusted};
use crate::http_client::{Form, HttpClient};
use crate::secret::Secret;
use crate::settings::{Audience, AuthSettings, ClientAuth, Grant, IdentityProvider};
use crate::stored_credentials::{GrantSource, StoredCredentials, StoredGrant};
use crate::token_endpoint::{
    TokenError, TokenKind, TokenRequestAuth, TokenResponse, request_token, sign_assertion,
};
use crate::www_authenticate::split_scopes;

const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";
const ID_JAG_PROFILE: &str = "urn:ietf:params:oauth:grant-profile:id-jag";
const ID_TOKEN: &str = "urn:ietf:params:oauth:token-type:id_token";
const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// Sends token requests.
#[derive(Debug)]
pub(crate) struct TokenRequester {
    pub(crate) http: HttpClient,
    pub(crate) settings: AuthSettings,
    /// Cancels the wait for the user.
    pub(crate) cancel: CancellationToken,
}

impl GrantSource {
    /// From the result of discovery, for the selected scopes.
    pub(crate) fn from_discovery(
        http: &HttpClient,
        found: &Discovered,
        requested: Vec<String>,
    ) -> Result<Self, AuthError> {
        let metadata = &found.metadata;
        let token_endpoint = http.endpoint(metadata.token_endpoint.as_deref(), "token")?;
        Ok(Self {
            issuer: metadata.issuer.clone(),
            resource: found.resource.clone(),
            requested,
            token_endpoint: token_endpoint.into(),
            revocation_endpoint: metadata.revocation_endpoint.clone(),
            auth_methods: metadata.token_endpoint_auth_methods_supported.clone(),
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
        let refresh_token = issued.refresh_token.filter(|token| !token.reveal().is_empty());
        // RFC 6749 §6: without a new refresh token in the response, the old one stays valid.
        let previous = || old.and_then(|grant| grant.refresh_token.clone());
        let granted = old.map_or(&self.requested, |grant| &grant.granted).clone();
        let received_at = now();
        StoredGrant {
            source: self,
            client_id: client_id.to_owned(),
            granted: issued.scope.as_deref().map_or(granted, split_scopes),
            access_token: issued.access_token,
            refresh_token: refresh_token.or_else(previous),
            received_at,
            expires_at: issued.lifetime.map(|lifetime| received_at.saturating_add(lifetime)),
        }
    }
}

impl TokenRequester {
    pub(crate) fn new(server: &Url, settings: AuthSettings, cancel: CancellationToken) -> Self {
        Self { http: HttpClient::new(server, &settings), settings, cancel }
    }

    /// Sends one token request of a grant.
    pub(crate) async fn request(
        &self,
        source: &GrantSource,
        form: Form,
        auth: &TokenRequestAuth,
    ) -> Result<TokenResponse, TokenError> {
        let endpoint = self.http.endpoint(Some(&source.token_endpoint), "token")?;
        request_token(&self.http, &endpoint, form, auth, TokenKind::Bearer).await
    }

    /// Obtains the next token of a grant without the user. `None` if that is impossible.
    pub(crate) async fn refresh(
        &self,
        credentials: &StoredCredentials,
        grant: &StoredGrant,
    ) -> Result<Option<StoredGrant>, TokenError> {
        // These grants have no refresh token; a new request needs no user.
        if !self.settings.grant.needs_user() {
            return self.request_unattended(grant.source.clone()).await.map(Some);
        }
        let Some(refresh_token) = grant.refresh_token.clone() else { return Ok(None) };
        let auth = self.request_auth(credentials, grant)?;
        // No `scope`: the new token then has the scopes of the old one (RFC 6749 §6).
        let form = Form::default()
            .with("grant_type", "refresh_token")
            .with("refresh_token", refresh_token)
            .with("resource", grant.source.resource.as_str());
        let issued = self.request(&grant.source, form, &auth).await?;
        Ok(Some(grant.source.clone().into_stored_grant(&grant.client_id, issued, Some(grant))))
    }

    /// Obtains a token with client credentials or through the identity provider.
    pub(crate) async fn request_unattended(
        &self,
        source: GrantSource,
    ) -> Result<StoredGrant, TokenError> {
        let Some(registered) = &self.settings.pre_registered else {
            return Err(refused("no client is configured").into());
        };
        let client = Client::pre_registered(registered);
        let (form, auth) = match &self.settings.grant {
            Grant::AuthorizationCode => {
                return Err(refused("this grant needs an interactive login").into());
            }
            Grant::ClientCredentials { auth } => {
                let form = Form::default()
                    .with("grant_type", "client_credentials")
                    .with("resource", source.resource.as_str());
                (form, program_auth(&source, &client, auth)?)
            }
            Grant::EnterpriseManaged(identity_provider) => {
                let assertion = self.exchange_id_token(&source, identity_provider).await?;
                let form =
                    Form::default().with("grant_type", JWT_BEARER).with("assertion", assertion);
                (form, source.request_auth(&client)?)
            }
        };
        let form = form.with_option("scope", scope_param(&source.requested));
        let issued = self.request(&source, form, &auth).await?;
        Ok(source.into_stored_grant(&client.id, issued, None))
    }

    /// Protocol facts §20.8: the identity provider exchanges the user's ID token for an assertion for this
    /// server.
    async fn exchange_id_token(
        &self,
        source: &GrantSource,
        identity_provider: &IdentityProvider,
    ) -> Result<Secret, TokenError> {
        let form = Form::default()
            .with("grant_type", TOKEN_EXCHANGE)
            .with("requested_token_type", ID_JAG)
            .with("audience", source.issuer.as_str())
            .with("resource", source.resource.as_str())
            .with("subject_token", identity_provider.id_token.id_token().await?)
            .with("subject_token_type", ID_TOKEN)
            .with_option("scope", scope_param(&source.requested));
        let secret = identity_provider.client_secret.clone();
        let client = Client { secret, ..Client::public(&identity_provider.client_id) };
        let method = auth_method(&client, None)?;
        let auth = TokenRequestAuth::Client(client, method);
        let endpoint = &identity_provider.token_endpoint;
        let http = HttpClient::new(endpoint, &self.settings);
        let issued = request_token(&http, endpoint, form, &auth, TokenKind::Exchange).await?;
        if issued.issued_token_type.as_deref() != Some(ID_JAG) {
            return Err(untrusted("the identity provider returned the wrong token type").into());
        }
        Ok(issued.access_token)
    }

    /// Client authentication for a grant, as the client that it was issued to.
    pub(crate) fn request_auth(
        &self,
        credentials: &StoredCredentials,
        grant: &StoredGrant,
    ) -> Result<TokenRequestAuth, AuthError> {
        let id = &grant.client_id;
        let configured =
            self.settings.pre_registered.as_ref().filter(|client| client.client_id == *id);
        let client = match configured {
            Some(configured) => Client::pre_registered(configured),
            None => {
                let registered = credentials.clients.get(&grant.source.issuer);
                let registered = registered.filter(|client| client.id == *id);
                registered.cloned().unwrap_or_else(|| Client::public(id))
            }
        };
        grant.source.request_auth(&client)
    }
}

/// Client authentication of a program, if the authorization server supports it (protocol facts §20.8).
fn program_auth(
    source: &GrantSource,
    client: &Client,
    auth: &ClientAuth,
) -> Result<TokenRequestAuth, AuthError> {
    let supported = source.auth_methods.as_deref();
    match auth {
        // If nothing is listed, the default is basic (RFC 8414 §2).
        ClientAuth::Basic if supported.is_none() || lists(supported, "client_secret_basic") => {
            Ok(TokenRequestAuth::Client(client.clone(), AuthMethod::Basic))
        }
        ClientAuth::PrivateKeyJwt { key, algorithm, audience }
            if lists(supported, "private_key_jwt") =>
        {
            let audience = match audience {
                Audience::Issuer => &source.issuer,
                Audience::TokenEndpoint => &source.token_endpoint,
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
    let is_unsupported = supported.is_some() && !lists(supported, ID_JAG_PROFILE);
    if matches!(settings.grant, Grant::EnterpriseManaged(_)) && is_unsupported {
        let issuer = &found.metadata.issuer;
        let reason = format_args!("{issuer} does not support enterprise-managed authorization");
        return Err(refused(reason));
    }
    Ok(())
}

/// Scope for which some authorization servers issue refresh tokens.
const OFFLINE_ACCESS: &str = "offline_access";

/// The scopes to request, in a stable order. Empty means: omit the parameter. `previous` were requested or granted
/// before, at the same authorization server for the same resource.
///
/// Protocol facts §20.2 step 8: the challenge, else all that the resource lists, else none. Previous scopes are
/// kept, because a new token replaces the old one entirely (§20.4).
///
/// **Invariant:** no scope is requested unless the user, the server or an earlier grant names it, except
/// `offline_access`, and that only if the authorization server lists it.
pub(crate) fn select_scopes(
    settings: Option<&[String]>,
    challenge: Option<&[String]>,
    found: &Discovered,
    previous: &[String],
) -> Vec<String> {
    let issuer = found.metadata.scopes_supported.as_deref();
    let added = match previous {
        // The resource's list is a fallback for the first login; later it would only widen the grant.
        [] => settings.or(challenge).or(found.scopes.as_deref()).unwrap_or_default().to_vec(),
        // The settings may name scopes that they did not name at the previous login.
        _ => union_scopes(settings.unwrap_or_default(), challenge.unwrap_or_default()),
    };
    let mut scopes = union_scopes(previous, &added);
    let has_offline_access = lists(issuer, OFFLINE_ACCESS);
    // Not alone: an omitted parameter means the default scopes of the authorization server (RFC
    // 6749 §3.3), which it would replace.
    if has_offline_access && !scopes.is_empty() {
        scopes = union_scopes(&scopes, &[OFFLINE_ACCESS.to_owned()]);
    }
    // A server may list it although its authorization server does not know it. A configured one
    // stays.
    if issuer.is_some() && !has_offline_access && settings.is_none() {
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
            requested: vec!["asked".to_owned()],
            auth_methods: methods.map(|list| list.iter().map(|&name| name.to_owned()).collect()),
            ..grant(0, None).source
        }
    }

    fn issued(refresh_token: Option<&str>, scopes: Option<&str>) -> TokenResponse {
        TokenResponse {
            access_token: Secret::new("new"),
            refresh_token: refresh_token.map(Secret::from),
            lifetime: None,
            scope: scopes.map(str::to_owned),
            token_type: None,
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
        check(issued(Some(""), None), Some(&old), Some("r3fresh"), "had");
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
    use crate::discovery::ServerMetadata;

    fn list(text: &str) -> Vec<String> {
        text.split_ascii_whitespace().map(str::to_owned).collect()
    }

    /// `-` means absent; the order is settings, challenge, resource, issuer, previous.
    #[track_caller]
    fn check(inputs: [&str; 5], expected: &str) {
        let lists = inputs.map(|text| if text == "-" { None } else { Some(list(text)) });
        let [settings, challenge, resource, issuer, previous] = &lists;
        let metadata = ServerMetadata { scopes_supported: issuer.clone(), ..Default::default() };
        let found = Discovered { resource: String::new(), scopes: resource.clone(), metadata };
        let previous = previous.as_deref().unwrap_or_default();
        let selected = select_scopes(settings.as_deref(), challenge.as_deref(), &found, previous);
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
        check(["s added", "-", "r1", "-", "s"], "s added");
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
