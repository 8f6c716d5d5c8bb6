//! What servers and authorization servers publish about themselves, and what makes us refuse it.

use serde::Deserialize;
use toolrack_transport::AuthError;

use crate::error::untrusted;

/// A protected resource's description of itself (RFC 9728).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct ResourceMetadata {
    /// The resource, exactly as published: this very string goes into requests.
    pub(crate) resource: String,
    #[serde(default)]
    pub(crate) authorization_servers: Vec<String>,
    pub(crate) scopes_supported: Option<Vec<String>>,
}

/// An authorization server's description of itself (RFC 8414 and its `OpenID` sibling).
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub(crate) struct ServerMetadata {
    pub(crate) issuer: String,
    pub(crate) authorization_endpoint: Option<String>,
    pub(crate) token_endpoint: Option<String>,
    pub(crate) registration_endpoint: Option<String>,
    pub(crate) revocation_endpoint: Option<String>,
    pub(crate) scopes_supported: Option<Vec<String>>,
    pub(crate) code_challenge_methods_supported: Option<Vec<String>>,
    pub(crate) token_endpoint_auth_methods_supported: Option<Vec<String>>,
    pub(crate) authorization_grant_profiles_supported: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) authorization_response_iss_parameter_supported: bool,
    #[serde(default)]
    pub(crate) client_id_metadata_document_supported: bool,
    #[serde(skip)]
    pub(crate) provenance: Provenance,
}

/// How we know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Provenance {
    /// Somebody has published it.
    #[default]
    Published,
    /// A server of 2025-03-26 has these endpoints without publishing anything.
    Assumed,
}

impl ServerMetadata {
    /// What a server without any metadata has, by the rules of 2025-03-26.
    pub(crate) fn assumed(origin: &str) -> Self {
        Self {
            issuer: origin.to_owned(),
            authorization_endpoint: Some(format!("{origin}/authorize")),
            token_endpoint: Some(format!("{origin}/token")),
            registration_endpoint: Some(format!("{origin}/register")),
            provenance: Provenance::Assumed,
            ..Self::default()
        }
    }

    /// Protocol facts §20.2 step 6: no word about S256, no authorization.
    pub(crate) fn require_s256(&self) -> Result<(), AuthError> {
        let methods = self.code_challenge_methods_supported.as_deref();
        // Where nothing is published nothing can be looked up; those servers were to support it always.
        let promised = methods.is_some_and(|it| it.iter().any(|method| method == "S256"));
        if promised || self.provenance == Provenance::Assumed {
            return Ok(());
        }
        Err(untrusted(format_args!("{} does not say that it supports PKCE with S256", self.issuer)))
    }
}

/// The authorization servers of a resource, or why its description cannot be used.
pub(crate) fn authorization_servers(metadata: &ResourceMetadata) -> Result<&[String], AuthError> {
    match metadata.authorization_servers.as_slice() {
        [] => Err(untrusted("the server's description names no authorization server")),
        named => Ok(named),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s256_must_be_promised() {
        let check = |methods: Option<&[&str]>, expected: bool| {
            let methods = methods.map(|it| it.iter().map(|&it| it.to_owned()).collect());
            let metadata =
                ServerMetadata { code_challenge_methods_supported: methods, ..Default::default() };
            assert_eq!(metadata.require_s256().is_ok(), expected);
        };
        check(Some(&["plain", "S256"]), true);
        check(Some(&["plain"]), false);
        check(Some(&["s256"]), false);
        check(Some(&[]), false);
        check(None, false);
        assert!(ServerMetadata::assumed("https://h").require_s256().is_ok());
    }

    #[test]
    fn an_issuer_is_required_and_strange_members_are_not_in_the_way() {
        let read = |text: &str| serde_json::from_str::<ServerMetadata>(text).is_ok();
        assert!(read(r#"{"issuer":"https://a","jwks_uri":7,"scopes_supported":["a"]}"#));
        assert!(!read(r#"{"token_endpoint":"https://a/token"}"#));
        assert!(!read(r#"{"issuer":7}"#));
    }

    #[test]
    fn a_resource_names_an_authorization_server() {
        let read = |text: &str| serde_json::from_str::<ResourceMetadata>(text).unwrap();
        let named = read(r#"{"resource":"https://h","authorization_servers":["https://a/"]}"#);
        assert_eq!(authorization_servers(&named).unwrap(), ["https://a/"]);
        assert!(authorization_servers(&read(r#"{"resource":"https://h"}"#)).is_err());
    }
}
