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

mod address;
mod assertion;
mod attempts;
mod authorizer;
mod bearer;
mod browser;
mod challenge;
mod client;
mod discovery;
mod fault;
mod grant;
mod http;
mod login;
mod metadata;
mod random;
mod record;
mod redirect;
mod registration;
mod renewal;
mod resolver;
mod resource;
mod scope;
mod secret;
mod settings;
mod store;
mod tls;
mod token;
mod well_known;

pub use assertion::Algorithm;
pub use authorizer::{Authorizer, Status};
pub use bearer::StaticBearer;
pub use browser::{
    Browser, Errand, Landing, Opener, Outcome, PastedRedirect, SystemBrowser, Visit,
};
pub use record::Record;
pub use secret::Secret;
pub use settings::{
    Audience, AuthSettings, ClientProof, Enterprise, Grant, IdTokenSource, Network, PreRegistered,
    PrivateAddresses,
};
pub use store::{
    DiscreetTokenStore, FileTokenStore, Hold, MemoryTokenStore, StoreError, TokenStore,
};
