//! The ways in which the OAuth server can misbehave, or be merely different.

use std::fmt;

/// Writes the enum, its names on the command line and the list of all, so that they cannot drift apart.
macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// One way in which the OAuth server can misbehave, or be merely different.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Fault {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Fault {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// What it is called on a command line.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}

faults! {
    /// The challenge names no description.
    NoHint = "no-hint",
    /// The challenge names no scope.
    NoScopeHint = "no-scope-hint",
    /// The description lists scopes.
    ScopesListed = "scopes-listed",
    /// There is no description at all, as in 2025-03-26.
    NoDescription = "no-description",
    /// The description is only at the root.
    DescriptionAtRoot = "description-at-root",
    /// The description is on another origin, which is legal.
    DescriptionElsewhere = "description-elsewhere",
    /// The challenge leads to a private address.
    DescriptionPrivate = "description-private",
    /// The description is no JSON.
    DescriptionGarbage = "description-garbage",
    /// The description names no authorization server.
    NoServers = "no-servers",
    /// The description is about another resource.
    ResourceOther = "resource-other",
    /// The resource is published as its origin, without a slash.
    ResourceOrigin = "resource-origin",
    /// The authorization server is at a private address.
    ServerPrivate = "server-private",
    /// The authorization server is not reached by https.
    ServerPlain = "server-plain",
    /// There is no metadata.
    NoMetadata = "no-metadata",
    /// There is only `OpenID` metadata.
    OpenIdOnly = "openid-only",
    /// The metadata cannot be had at the moment.
    MetadataDown = "metadata-down",
    /// The metadata is a redirect.
    MetadataRedirect = "metadata-redirect",
    /// The metadata is longer than anybody should read.
    MetadataHuge = "metadata-huge",
    /// The metadata is that of another issuer.
    IssuerOther = "issuer-other",
    /// The issuer has a slash at its end.
    IssuerSlash = "issuer-slash",
    /// The metadata has a slash more at the end of its issuer than the resource has.
    IssuerNormalized = "issuer-normalized",
    /// The metadata lists only `plain`.
    NoS256 = "no-s256",
    /// The metadata does not speak of PKCE.
    NoPkceWord = "no-pkce-word",
    /// The token endpoint is not reached by https.
    TokenPlain = "token-plain",
    /// The token endpoint is at a private address.
    TokenPrivate = "token-private",
    /// The registration endpoint is at a private address.
    RegistrationPrivate = "registration-private",
    /// The authorization page is a script.
    PageScript = "page-script",
    /// There is no registration.
    NoRegistration = "no-registration",
    /// Registrations are refused.
    RegistrationRefused = "registration-refused",
    /// URLs of client metadata documents are taken as client ids.
    Documents = "documents",
    /// Clients prove themselves by the header.
    BasicOnly = "basic-only",
    /// Clients prove themselves in the body.
    PostOnly = "post-only",
    /// Clients sign.
    SignedOnly = "signed-only",
    /// `offline_access` is listed.
    Offline = "offline",
    /// The issuer promises to name itself, and does.
    IssPromised = "iss-promised",
    /// The issuer names itself without a promise.
    IssUnpromised = "iss-unpromised",
    /// The issuer promises to name itself, and does not.
    IssMissing = "iss-missing",
    /// The redirect names another issuer.
    IssWrong = "iss-wrong",
    /// The redirect names the issuer with a slash at its end.
    IssSlash = "iss-slash",
    /// The redirect has another state.
    StateWrong = "state-wrong",
    /// The person says no.
    AccessDenied = "access-denied",
    /// Tokens are not bearer tokens.
    TokenType = "token-type",
    /// Refreshing does not work at the moment.
    RefreshDown = "refresh-down",
    /// Refreshing gives no new refresh token, and the old one stays good.
    RefreshKeeps = "refresh-keeps",
    /// There are no refresh tokens.
    NoRefresh = "no-refresh",
    /// Refusals quote what they refuse.
    Quoting = "quoting",
    /// Calls of tools need one more scope.
    StepUp = "step-up",
    /// Calls of tools always need more scopes.
    ScopeLoop = "scope-loop",
    /// Calls of tools are forbidden, and nothing helps.
    Forbidden = "forbidden",
    /// No token is good enough.
    AlwaysUnauthorized = "always-unauthorized",
    /// The resource has moved to the second authorization server.
    Migrated = "migrated",
    /// The identity provider gives another token than it was asked for.
    ExchangeOther = "exchange-other",
}

impl Fault {
    /// Reads a name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|value| value.name() == name)
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
    fn every_fault_goes_by_its_name() {
        for fault in Fault::ALL {
            assert_eq!(Fault::parse(fault.name()), Some(*fault));
        }
        assert_eq!(Fault::parse("nothing"), None);
    }
}
