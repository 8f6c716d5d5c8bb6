//! Faults and variants of the OAuth server.

use std::fmt;

/// Generates the enum, the command-line names and the list of all variants, so that they cannot diverge.
macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// One fault or variant of the OAuth server.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Fault {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Fault {
            /// All faults.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Name on the command line.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}

faults! {
    /// The challenge has no `resource_metadata`.
    NoHint = "no-hint",
    /// The challenge has no scope.
    NoScopeHint = "no-scope-hint",
    /// The resource metadata lists scopes.
    ScopesListed = "scopes-listed",
    /// There is no resource metadata, as in 2025-03-26.
    NoDescription = "no-description",
    /// The resource metadata is only at the root.
    DescriptionAtRoot = "description-at-root",
    /// The resource metadata is on another origin, which is legal.
    DescriptionElsewhere = "description-elsewhere",
    /// The challenge points to a private address.
    DescriptionPrivate = "description-private",
    /// The resource metadata is not JSON.
    DescriptionGarbage = "description-garbage",
    /// The resource metadata names no authorization server.
    NoServers = "no-servers",
    /// The resource metadata is for another resource.
    ResourceOther = "resource-other",
    /// The resource identifier is the origin, without a slash.
    ResourceOrigin = "resource-origin",
    /// The authorization server is at a private address.
    ServerPrivate = "server-private",
    /// The authorization server does not use https.
    ServerPlain = "server-plain",
    /// There is no authorization server metadata.
    NoMetadata = "no-metadata",
    /// There is only `OpenID` metadata.
    OpenIdOnly = "openid-only",
    /// The metadata request fails with a 500.
    MetadataDown = "metadata-down",
    /// The metadata is a redirect.
    MetadataRedirect = "metadata-redirect",
    /// The metadata is over any reasonable size limit.
    MetadataHuge = "metadata-huge",
    /// The metadata is for another issuer.
    IssuerOther = "issuer-other",
    /// The issuer has a trailing slash.
    IssuerSlash = "issuer-slash",
    /// The issuer in the metadata has one more trailing slash than in the resource metadata.
    IssuerNormalized = "issuer-normalized",
    /// The metadata lists only the PKCE method `plain`.
    NoS256 = "no-s256",
    /// The metadata does not mention PKCE.
    NoPkceWord = "no-pkce-word",
    /// The token endpoint does not use https.
    TokenPlain = "token-plain",
    /// The token endpoint is at a private address.
    TokenPrivate = "token-private",
    /// The registration endpoint is at a private address.
    RegistrationPrivate = "registration-private",
    /// The authorization endpoint is a `javascript:` URL.
    PageScript = "page-script",
    /// There is no dynamic client registration.
    NoRegistration = "no-registration",
    /// Registrations are rejected.
    RegistrationRefused = "registration-refused",
    /// URLs of client metadata documents are accepted as client ids.
    Documents = "documents",
    /// Clients authenticate with `client_secret_basic`.
    BasicOnly = "basic-only",
    /// Clients authenticate with `client_secret_post`.
    PostOnly = "post-only",
    /// Clients authenticate with `private_key_jwt`.
    SignedOnly = "signed-only",
    /// `offline_access` is listed.
    Offline = "offline",
    /// The metadata promises `iss`, and the redirect has it.
    IssPromised = "iss-promised",
    /// The redirect has `iss` without a promise.
    IssUnpromised = "iss-unpromised",
    /// The metadata promises `iss`, and the redirect lacks it.
    IssMissing = "iss-missing",
    /// The redirect has the `iss` of another issuer.
    IssWrong = "iss-wrong",
    /// The redirect has an `iss` with a trailing slash.
    IssSlash = "iss-slash",
    /// The redirect has a wrong `state`.
    StateWrong = "state-wrong",
    /// The user denies access.
    AccessDenied = "access-denied",
    /// Tokens are not bearer tokens.
    TokenType = "token-type",
    /// Refresh requests fail with a 503.
    RefreshDown = "refresh-down",
    /// A refresh returns no new refresh token, and the old one stays valid.
    RefreshKeeps = "refresh-keeps",
    /// There are no refresh tokens.
    NoRefresh = "no-refresh",
    /// Error descriptions quote the rejected value.
    Quoting = "quoting",
    /// Tool calls need one more scope.
    StepUp = "step-up",
    /// Tool calls always need more scopes.
    ScopeLoop = "scope-loop",
    /// Tool calls are forbidden, with any scope.
    Forbidden = "forbidden",
    /// Every token is rejected.
    AlwaysUnauthorized = "always-unauthorized",
    /// The resource has migrated to the second authorization server.
    Migrated = "migrated",
    /// The identity provider returns a token of another type than requested.
    ExchangeOther = "exchange-other",
}

impl Fault {
    /// Parses a name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|fault| fault.name() == name)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_parses_from_its_name() {
        for fault in Fault::ALL {
            assert_eq!(Fault::parse(fault.name()), Some(*fault));
        }
        assert_eq!(Fault::parse("nothing"), None);
    }
}
