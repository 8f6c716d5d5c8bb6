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
mod client_registration;
mod discovery;
mod error;
mod grants;
mod http_client;
mod pkce;
mod secret;
mod settings;
mod stored_credentials;
mod token_endpoint;
mod token_store;
mod www_authenticate;

pub use authorizer::StaticBearer;
pub use authorizer::{Authorizer, LoginStatus};
pub use browser::{
    AuthorizationResponse, Browser, LoginOutcome, LoginRequest, PastedRedirect, PreparedLogin,
    SystemBrowser, UrlOpener,
};
pub use secret::Secret;
pub use settings::{
    Audience, AuthSettings, ClientAuth, Grant, IdTokenSource, IdentityProvider, Network,
    PreRegisteredClient, PrivateAddresses,
};
pub use stored_credentials::StoredCredentials;
pub use token_endpoint::SigningAlgorithm;
pub use token_store::{
    FileTokenStore, MemoryTokenStore, RedactingTokenStore, StoreError, StoreLock, TokenStore,
};
