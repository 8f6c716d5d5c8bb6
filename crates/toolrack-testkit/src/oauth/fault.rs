//! Faults and variants of the OAuth server.

/// One fault or variant of the OAuth server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The challenge has no `resource_metadata`.
    NoHint,
    /// The challenge has no scope.
    NoScopeHint,
    /// The resource metadata lists scopes.
    ScopesListed,
    /// There is no resource metadata, as in 2025-03-26.
    NoDescription,
    /// The resource metadata is only at the root.
    DescriptionAtRoot,
    /// The resource metadata is on another origin, which is legal.
    DescriptionElsewhere,
    /// The challenge points to a private address.
    DescriptionPrivate,
    /// The resource metadata names no authorization server.
    NoServers,
    /// The resource metadata is for another resource.
    ResourceOther,
    /// The resource identifier is the origin, without a slash.
    ResourceOrigin,
    /// The authorization server is at a private address.
    ServerPrivate,
    /// The authorization server does not use https.
    ServerPlain,
    /// There is no authorization server metadata.
    NoMetadata,
    /// There is only `OpenID` metadata.
    OpenIdOnly,
    /// The metadata request fails with a 500.
    MetadataDown,
    /// The metadata is a redirect.
    MetadataRedirect,
    /// The metadata is over any reasonable size limit.
    MetadataHuge,
    /// The metadata is for another issuer.
    IssuerOther,
    /// The issuer has a trailing slash.
    IssuerSlash,
    /// The issuer in the metadata has one more trailing slash than in the resource metadata.
    IssuerNormalized,
    /// The metadata lists only the PKCE method `plain`.
    NoS256,
    /// The metadata does not mention PKCE.
    NoPkceWord,
    /// The token endpoint does not use https.
    TokenPlain,
    /// The token endpoint is at a private address.
    TokenPrivate,
    /// The registration endpoint is at a private address.
    RegistrationPrivate,
    /// The authorization endpoint is a `javascript:` URL.
    PageScript,
    /// There is no dynamic client registration.
    NoRegistration,
    /// Registrations are rejected.
    RegistrationRefused,
    /// URLs of client metadata documents are accepted as client ids.
    Documents,
    /// Clients authenticate with `client_secret_basic`.
    BasicOnly,
    /// Clients authenticate with `client_secret_post`.
    PostOnly,
    /// Clients authenticate with `private_key_jwt`.
    SignedOnly,
    /// `offline_access` is listed.
    Offline,
    /// The metadata promises `iss`, and the redirect has it.
    IssPromised,
    /// The redirect has `iss` without a promise.
    IssUnpromised,
    /// The metadata promises `iss`, and the redirect lacks it.
    IssMissing,
    /// The redirect has the `iss` of another issuer.
    IssWrong,
    /// The redirect has an `iss` with a trailing slash.
    IssSlash,
    /// The redirect has a wrong `state`.
    StateWrong,
    /// The user denies access.
    AccessDenied,
    /// Tokens are not bearer tokens.
    TokenType,
    /// Refresh requests fail with a 503.
    RefreshDown,
    /// A refresh returns no new refresh token, and the old one stays valid.
    RefreshKeeps,
    /// There are no refresh tokens.
    NoRefresh,
    /// Error descriptions quote the rejected value.
    Quoting,
    /// Tool calls need one more scope.
    StepUp,
    /// Tool calls always need more scopes.
    ScopeLoop,
    /// Tool calls are forbidden, with any scope.
    Forbidden,
    /// Every token is rejected.
    AlwaysUnauthorized,
    /// The resource has migrated to the second authorization server.
    Migrated,
    /// The identity provider returns a token of another type than requested.
    ExchangeOther,
}
