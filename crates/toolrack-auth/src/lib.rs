//! OAuth for MCP servers over HTTP, by the rules of 2026-07-28 for every server, and the older ones where a
//! server publishes nothing.
//!
//! [`Authorizer`] implements the [`Credentials`](toolrack_transport::Credentials) of one server. It finds the
//! authorization server, registers, sends a person to the login page by way of a [`Browser`], keeps tokens in a
//! [`TokenStore`] and renews them, once for all tasks and all programs. [`StaticBearer`] is for tokens from the
//! configuration.
//!
//! **Invariant:** no token, code or client secret is in any error, log line or URL; what a server publishes is
//! checked before it is used; nothing waits without a limit.

#![warn(missing_docs)]

mod address_policy;
mod attempt_limiter;
mod authorization_code;
mod authorizer;
mod browser;
mod callback;
mod client_assertion;
mod client_identity;
mod discovery;
mod dns;
mod error;
mod grants;
mod http_client;
mod metadata;
mod pkce;
mod registration;
mod resource_indicator;
mod scopes;
mod secret;
mod settings;
mod static_bearer;
mod stored_credentials;
mod tls;
mod token_endpoint;
mod token_freshness;
mod token_store;
mod well_known;
mod www_authenticate;

pub use authorizer::{Authorizer, LoginStatus};
pub use browser::{
    AuthorizationResponse, Browser, LoginOutcome, LoginRequest, PastedRedirect, PreparedLogin,
    SystemBrowser, UrlOpener,
};
pub use client_assertion::SigningAlgorithm;
pub use secret::Secret;
pub use settings::{
    Audience, AuthSettings, ClientAuth, Grant, IdTokenSource, IdentityProvider, Network,
    PreRegisteredClient, PrivateAddresses,
};
pub use static_bearer::StaticBearer;
pub use stored_credentials::StoredCredentials;
pub use token_store::{
    FileTokenStore, MemoryTokenStore, RedactingTokenStore, StoreError, StoreLock, TokenStore,
};
