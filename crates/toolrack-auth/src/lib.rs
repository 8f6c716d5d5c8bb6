//! OAuth for MCP servers over HTTP (authorization of 2026-07-28, with fallbacks for servers that publish nothing).
//!
//! [`Authorizer`] implements [`Credentials`](toolrack_transport::Credentials) for one server. It discovers the
//! authorization server, registers a client, logs the user in through a [`Browser`], stores tokens in a
//! [`TokenStore`] and refreshes them, once for all tasks and processes. [`StaticBearer`] is a configured token.
//!
//! | module | what it holds |
//! |---|---|
//! | `authorizer` | [`Authorizer`], [`StaticBearer`], [`LoginStatus`] |
//! | `authorizer::flow` | 401 and 403 handling, login, logout; token refresh under the lock that processes share |
//! | `authorizer::token_cache` | the token that is sent with every request |
//! | `settings` | [`AuthSettings`] and its parts |
//! | `www_authenticate` | `WWW-Authenticate` parser |
//! | `discovery` | resource and server metadata, resource indicator |
//! | `client_registration` | client selection and dynamic registration |
//! | `authorization_code` | authorization code flow, callback validation, PKCE |
//! | `browser` | [`Browser`], [`SystemBrowser`], [`PastedRedirect`] |
//! | `grants`, `token_endpoint` | token requests per grant, scopes, client authentication, responses |
//! | `attempt_limiter` | limits on repeated logins and step-ups |
//! | `stored_credentials`, `token_store` | stored credentials; token store in files or memory |
//! | `http_client`, `address_policy` | requests to authorization servers; SSRF protection |
//! | `secret`, `error` | strings that cannot be printed; error constructors |
//!
//! Start with `authorizer`, then `authorizer::flow`.
//!
//! # Invariants
//!
//! - No token, code or client secret is in any error, log line, page or URL.
//! - Metadata is used only if its issuer is, byte for byte, the one it was requested for, and only for a resource
//!   that covers the server.
//! - Neither the code nor the error of a callback is read before state and issuer are valid.
//! - A client id or token of one authorization server is never sent to another.
//! - A URL from metadata leads to a private address only if the URL from the config does.
//! - A refresh happens under the store lock, after reading the stored credentials, and completes even if its caller
//!   is dropped.
//! - A login is lost only if the authorization server says that it has ended.
//! - A credentials file is replaced atomically and readable by its owner only.
//! - A server that keeps rejecting requests gets a bounded number of attempts.
//! - The callback port is open on 127.0.0.1 only, during one login. Every wait has a limit.

#![warn(missing_docs)]

mod address_policy;
mod attempt_limiter;
mod authorization_code;
mod authorizer;
mod browser;
mod client_registration;
mod discovery;
mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod grants;
mod http_client;
mod secret;
mod settings;
mod stored_credentials;
mod token_endpoint;
mod token_store;
mod www_authenticate;

pub use authorizer::{Authorizer, LoginStatus, StaticBearer};
pub use browser::{
    AuthorizationResponse, Browser, LoginFuture, LoginRequest, PastedRedirect, PreparedLogin,
    SystemBrowser, UrlOpener,
};
pub use secret::Secret;
pub use settings::{
    Audience, AuthSettings, ClientAuth, Grant, IdTokenSource, IdentityProvider, Network,
    PreRegisteredClient,
};
pub use stored_credentials::StoredCredentials;
pub use token_endpoint::SigningAlgorithm;
pub use token_store::{
    FileTokenStore, MemoryTokenStore, StoreError, StoreLock, TokenStore, remove_server_tokens,
};
