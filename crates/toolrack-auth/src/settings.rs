//! OAuth settings of one server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use toolrack_transport::{AuthError, BoxFuture, Redactor};
use url::Url;

use crate::error::refused;
use crate::secret::Secret;
use crate::token_endpoint::SigningAlgorithm;

/// OAuth settings. The default suits a user with a browser.
#[derive(Debug, Clone)]
pub struct AuthSettings {
    /// Client name shown to users.
    pub client_name: String,
    /// URL of the client metadata document, for authorization servers that accept it as client id.
    pub client_metadata_url: Option<Url>,
    /// A client registered in advance.
    pub pre_registered: Option<PreRegisteredClient>,
    /// Scopes to request instead of those the server names.
    pub scopes: Option<Vec<String>>,
    /// Grant type.
    pub grant: Grant,
    /// Protocol version sent with discovery requests; servers of 2025-03-26 read it.
    pub protocol_version: String,
    /// How long before its expiry a token counts as stale; at most a tenth of its lifetime.
    pub leeway: Duration,
    /// Network settings for requests to authorization servers.
    pub network: Network,
    /// Learns every stored token and client secret.
    pub redactor: Redactor,
}

/// A client registered in advance at an authorization server.
#[derive(Debug, Clone)]
pub struct PreRegisteredClient {
    /// Client id.
    pub client_id: String,
    /// Client secret, if there is one.
    pub client_secret: Option<Secret>,
    /// The authorization server of the client. If absent, the first one it is used with.
    pub issuer: Option<String>,
}

/// How tokens are obtained.
#[derive(Debug, Clone)]
pub enum Grant {
    /// The user logs in with a browser.
    AuthorizationCode,
    /// The program itself is the client.
    ClientCredentials {
        /// Client authentication.
        auth: ClientAuth,
    },
    /// The user's identity provider issues an assertion (enterprise-managed authorization).
    EnterpriseManaged(IdentityProvider),
}

/// Client authentication of a program.
#[derive(Debug, Clone)]
pub enum ClientAuth {
    /// The client secret in [`PreRegisteredClient`].
    Basic,
    /// A signed assertion (`private_key_jwt`).
    PrivateKeyJwt {
        /// Private key, PKCS#8 in PEM.
        key: Secret,
        /// Signing algorithm.
        algorithm: SigningAlgorithm,
        /// Audience of the assertion.
        audience: Audience,
    },
}

/// Audience of a client assertion. Authorization servers differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audience {
    /// The issuer.
    Issuer,
    /// The token endpoint.
    TokenEndpoint,
    /// Another value.
    Other(String),
}

/// The user's identity provider.
#[derive(Debug, Clone)]
pub struct IdentityProvider {
    /// Endpoint for token exchange.
    pub token_endpoint: Url,
    /// Our client id there.
    pub client_id: String,
    /// Our client secret there, if there is one.
    pub client_secret: Option<Secret>,
    /// Source of the user's ID token.
    pub id_token: Arc<dyn IdTokenSource>,
}

/// Source of the user's ID token from the identity provider.
pub trait IdTokenSource: Send + Sync + fmt::Debug {
    /// A current ID token.
    fn id_token(&self) -> BoxFuture<'_, Result<Secret, AuthError>>;
}

/// A fixed ID token.
impl IdTokenSource for Secret {
    fn id_token(&self) -> BoxFuture<'_, Result<Secret, AuthError>> {
        Box::pin(async { Ok(self.clone()) })
    }
}

/// Network settings for requests to authorization servers.
#[derive(Debug, Clone, Default)]
pub struct Network {
    /// PEM certificates trusted in addition to the system's.
    pub extra_roots: Vec<u8>,
    /// Proxy for all requests. It resolves host names itself, so it must enforce the address policy too.
    pub proxy: Option<Url>,
    /// Whether metadata may lead to private addresses although the server's URL is not one, because the authorization
    /// server is in a private network. Loopback stays forbidden.
    pub allow_private_addresses: bool,
}

impl Default for AuthSettings {
    fn default() -> Self {
        Self {
            client_name: "Toolrack".to_owned(),
            client_metadata_url: None,
            pre_registered: None,
            scopes: None,
            grant: Grant::AuthorizationCode,
            protocol_version: "2025-11-25".to_owned(),
            leeway: Duration::from_secs(10),
            network: Network::default(),
            redactor: Redactor::default(),
        }
    }
}

impl Grant {
    /// Whether a new token may need the user.
    pub(crate) fn needs_user(&self) -> bool {
        matches!(self, Self::AuthorizationCode)
    }
}

impl AuthSettings {
    /// Rejects settings that cannot work, before the first login.
    pub(crate) fn validate(&self) -> Result<(), AuthError> {
        // Protocol facts §20.6: the URL is the client id, which must be https with a path.
        let is_document = |url: &Url| url.scheme() == "https" && url.path().len() > 1;
        if self.client_metadata_url.as_ref().is_some_and(|url| !is_document(url)) {
            return Err(refused("a client metadata URL must be https and have a path"));
        }
        let secret = self.pre_registered.as_ref().and_then(|client| client.client_secret.as_ref());
        if !self.grant.needs_user() && self.pre_registered.is_none() {
            return Err(refused("this grant needs a pre-registered client"));
        }
        let is_basic = matches!(self.grant, Grant::ClientCredentials { auth: ClientAuth::Basic });
        if is_basic && secret.is_none() {
            return Err(refused("client credentials need a client secret or a private key"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(settings: AuthSettings, expected: Option<&str>) {
        let found = settings.validate().err().map(|error| error.to_string());
        assert_eq!(found.is_some(), expected.is_some(), "{found:?}");
        assert!(found.unwrap_or_default().contains(expected.unwrap_or_default()));
    }

    fn client(client_secret: Option<&str>) -> PreRegisteredClient {
        let client_secret = client_secret.map(Secret::from);
        PreRegisteredClient { client_id: "c".to_owned(), client_secret, issuer: None }
    }

    #[test]
    fn invalid_settings_are_rejected_early() {
        let basic = || Grant::ClientCredentials { auth: ClientAuth::Basic };
        let with =
            |grant, pre_registered| AuthSettings { pre_registered, grant, ..Default::default() };
        check(AuthSettings::default(), None);
        check(with(basic(), Some(client(Some("s")))), None);
        check(with(basic(), Some(client(None))), Some("client secret"));
        check(with(basic(), None), Some("pre-registered"));
        let document = |url: &str| AuthSettings {
            client_metadata_url: Some(Url::parse(url).unwrap()),
            ..Default::default()
        };
        check(document("https://h/client.json"), None);
        check(document("https://h/"), Some("have a path"));
        check(document("http://h/client.json"), Some("https"));
    }

    #[test]
    fn settings_debug_hides_secrets() {
        let settings =
            AuthSettings { pre_registered: Some(client(Some("s3cret"))), ..Default::default() };
        assert_eq!(format!("{settings:?}").find("s3cret"), None);
    }
}
