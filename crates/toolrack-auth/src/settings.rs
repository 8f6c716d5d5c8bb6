//! What a user can set about logging in at one server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use toolrack_transport::{AuthError, BoxFuture};
use url::Url;

use crate::error::refused;
use crate::secret::Secret;
use crate::token_endpoint::SigningAlgorithm;

/// How to log in at one server. The default suits a person with a browser.
#[derive(Debug, Clone)]
pub struct AuthSettings {
    /// What the user calls the server, for hints such as `toolrack login <server>`; its URL if absent.
    pub server_name: Option<String>,
    /// What we call ourselves where people see it.
    pub client_name: String,
    /// Where our client metadata document is, for authorization servers that take its URL as a client id.
    pub client_metadata_url: Option<Url>,
    /// A client that somebody has registered for us.
    pub pre_registered: Option<PreRegisteredClient>,
    /// The scopes to ask for, instead of those the server names.
    pub scopes: Option<Vec<String>>,
    /// By what right we get tokens.
    pub grant: Grant,
    /// The protocol revision that discovery requests carry; servers of 2025-03-26 look at it.
    pub protocol_version: String,
    /// How long before its end a token counts as stale; never more than a tenth of its life.
    pub leeway: Duration,
    /// How requests to authorization servers travel.
    pub network: Network,
}

/// A client that exists already at an authorization server.
#[derive(Debug, Clone)]
pub struct PreRegisteredClient {
    /// Its name there.
    pub client_id: String,
    /// Its password there, if it has one.
    pub client_secret: Option<Secret>,
    /// The one authorization server that knows it. If absent, the first one it is used with.
    pub issuer: Option<String>,
}

/// By what right we get tokens.
#[derive(Debug, Clone)]
pub enum Grant {
    /// A person logs in with a browser.
    AuthorizationCode,
    /// The program itself is the client, registered beforehand.
    ClientCredentials {
        /// How it proves that.
        auth: ClientAuth,
    },
    /// A company's identity provider vouches for the user.
    EnterpriseManaged(IdentityProvider),
}

/// How a program proves which client it is.
#[derive(Debug, Clone)]
pub enum ClientAuth {
    /// By the client secret in [`PreRegistered`].
    Basic,
    /// By a signature.
    PrivateKeyJwt {
        /// The private key, as PEM with PKCS#8 inside.
        key: Secret,
        /// What it signs with.
        algorithm: SigningAlgorithm,
        /// Who the signed statement is for.
        audience: Audience,
    },
}

/// Who a signed statement is for. Authorization servers differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audience {
    /// The issuer.
    Issuer,
    /// The token endpoint.
    TokenEndpoint,
    /// Something else.
    Other(String),
}

/// A company's identity provider, as far as we need it.
#[derive(Debug, Clone)]
pub struct IdentityProvider {
    /// Where it exchanges tokens.
    pub token_endpoint: Url,
    /// Our name there.
    pub client_id: String,
    /// Our password there, if there is one.
    pub client_secret: Option<Secret>,
    /// Who knows the user's present ID token.
    pub id_token: Arc<dyn IdTokenSource>,
}

/// Whoever knows the user's present ID token from the company's identity provider.
pub trait IdTokenSource: Send + Sync + fmt::Debug {
    /// The token, fresh enough to be exchanged.
    fn id_token(&self) -> BoxFuture<'_, Result<Secret, AuthError>>;
}

/// An ID token that is known beforehand.
impl IdTokenSource for Secret {
    fn id_token(&self) -> BoxFuture<'_, Result<Secret, AuthError>> {
        Box::pin(async { Ok(self.clone()) })
    }
}

/// How requests to authorization servers travel.
#[derive(Debug, Clone, Default)]
pub struct Network {
    /// Certificates to trust beside the system's, as PEM.
    pub extra_roots: Vec<u8>,
    /// A proxy for everything. It resolves names itself, so it has to keep us from private addresses too.
    pub proxy: Option<Url>,
    /// Whether metadata may lead to private addresses though the server's URL is no such address.
    pub private_addresses: PrivateAddresses,
}

/// Whether metadata may lead to private addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PrivateAddresses {
    /// Only if the server's URL is a private address itself.
    #[default]
    Restricted,
    /// Yes: the authorization server lives in the company's network. This machine stays out of reach.
    Allowed,
}

impl Default for AuthSettings {
    fn default() -> Self {
        Self {
            server_name: None,
            client_name: "Toolrack".to_owned(),
            client_metadata_url: None,
            pre_registered: None,
            scopes: None,
            grant: Grant::AuthorizationCode,
            protocol_version: "2025-11-25".to_owned(),
            leeway: Duration::from_secs(10),
            network: Network::default(),
        }
    }
}

impl AuthSettings {
    /// What cannot work is said at once, and not at the first login.
    pub(crate) fn validate(&self) -> Result<(), AuthError> {
        let is_document = |it: &Url| it.scheme() == "https" && it.path().len() > 1;
        if self.client_metadata_url.as_ref().is_some_and(|it| !is_document(it)) {
            return Err(refused("a client metadata URL is https and has a path"));
        }
        let secret = self.pre_registered.as_ref().and_then(|it| it.client_secret.as_ref());
        match &self.grant {
            Grant::ClientCredentials { .. } | Grant::EnterpriseManaged(_)
                if self.pre_registered.is_none() =>
            {
                Err(refused("this grant needs a client that is registered already"))
            }
            Grant::ClientCredentials { auth: ClientAuth::Basic } if secret.is_none() => {
                Err(refused("client credentials need a client secret or a private key"))
            }
            Grant::AuthorizationCode
            | Grant::ClientCredentials { .. }
            | Grant::EnterpriseManaged(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(settings: AuthSettings, expected: Option<&str>) {
        let found = settings.validate().err().map(|it| it.to_string());
        assert_eq!(found.is_some(), expected.is_some(), "{found:?}");
        assert!(found.unwrap_or_default().contains(expected.unwrap_or_default()));
    }

    fn client(client_secret: Option<&str>) -> PreRegisteredClient {
        let client_secret = client_secret.map(Secret::from);
        PreRegisteredClient { client_id: "c".to_owned(), client_secret, issuer: None }
    }

    #[test]
    fn what_cannot_work_is_said_at_once() {
        let basic = || Grant::ClientCredentials { auth: ClientAuth::Basic };
        let with =
            |grant, pre_registered| AuthSettings { pre_registered, grant, ..Default::default() };
        check(AuthSettings::default(), None);
        check(with(basic(), Some(client(Some("s")))), None);
        check(with(basic(), Some(client(None))), Some("client secret"));
        check(with(basic(), None), Some("registered already"));
        let document = |url: &str| AuthSettings {
            client_metadata_url: Some(Url::parse(url).unwrap()),
            ..Default::default()
        };
        check(document("https://h/client.json"), None);
        check(document("https://h/"), Some("has a path"));
        check(document("http://h/client.json"), Some("https"));
    }

    #[test]
    fn settings_can_be_printed_without_their_secrets() {
        let settings =
            AuthSettings { pre_registered: Some(client(Some("s3cret"))), ..Default::default() };
        assert_eq!(format!("{settings:?}").find("s3cret"), None);
    }
}
