//! Which client we are at an authorization server, and how we prove it there.
//!
//! **Invariant:** a client id that one authorization server gave us is never shown to another.

use serde::{Deserialize, Serialize};
use toolrack_transport::AuthError;

use crate::error::{unregistered, untrusted};
use crate::metadata::ServerMetadata;
use crate::secret::Secret;
use crate::settings::{AuthSettings, PreRegisteredClient};
use crate::stored_credentials::exposed_option;

/// A client as one authorization server knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Client {
    pub(crate) id: String,
    #[serde(default, with = "exposed_option", skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<Secret>,
    /// The way to prove it that was agreed when it was registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) auth_method: Option<String>,
    /// Where it was registered to be sent back to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) redirect_uri: Option<String>,
    /// When its secret ends, in seconds since 1970. `None` for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret_expires_at: Option<u64>,
}

/// How to become a client of an authorization server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ClientChoice {
    /// As somebody it knows.
    Use(Client),
    /// By registering at this endpoint.
    Register(String),
}

/// How a client proves who it is at the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthMethod {
    Basic,
    Post,
    None,
}

impl Client {
    /// A client without a secret.
    pub(crate) fn public(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            secret: None,
            auth_method: None,
            redirect_uri: None,
            secret_expires_at: None,
        }
    }

    pub(crate) fn pre_registered(client: &PreRegisteredClient) -> Self {
        Self { secret: client.client_secret.clone(), ..Self::public(&client.client_id) }
    }

    fn is_usable(&self, redirect_uri: &str, now: u64) -> bool {
        let fits = self.redirect_uri.as_deref() == Some(redirect_uri);
        fits && self.secret_expires_at.is_none_or(|end| now < end)
    }
}

/// Chooses who to be: registered beforehand, by metadata document, by an earlier registration, by a new one.
///
/// `bound` is the issuer that a pre-registered client without an issuer was first used with; `registered` is what
/// this very issuer gave us before.
pub(crate) fn choose_client(
    settings: &AuthSettings,
    metadata: &ServerMetadata,
    binding: Option<&str>,
    registered: Option<&Client>,
    (redirect_uri, now): (&str, u64),
) -> Result<ClientChoice, AuthError> {
    if let Some(client) = &settings.pre_registered {
        check_binding(client, binding, &metadata.issuer)?;
        return Ok(ClientChoice::Use(Client::pre_registered(client)));
    }
    if let Some(url) = &settings.client_metadata_url
        && metadata.client_id_metadata_document_supported
    {
        return Ok(ClientChoice::Use(Client::public(url.as_str())));
    }
    if let Some(client) = registered.filter(|client| client.is_usable(redirect_uri, now)) {
        return Ok(ClientChoice::Use(client.clone()));
    }
    match &metadata.registration_endpoint {
        Some(endpoint) => Ok(ClientChoice::Register(endpoint.clone())),
        None => {
            let issuer = &metadata.issuer;
            Err(unregistered(format_args!("{issuer} registers no clients by itself")))
        }
    }
}

/// Credentials that were made for one issuer are an error at another (protocol facts §20.5).
pub(crate) fn check_binding(
    client: &PreRegisteredClient,
    binding: Option<&str>,
    issuer: &str,
) -> Result<(), AuthError> {
    match client.issuer.as_deref().or(binding) {
        Some(own) if own != issuer => Err(untrusted(format_args!(
            "the configured client belongs to {own}, but the server now names {issuer}"
        ))),
        Some(_) | None => Ok(()),
    }
}

/// How to prove who we are (protocol facts §20.4): as registered, else the first of basic, post and none that is
/// supported; where nothing is said, basic with a secret and none without.
pub(crate) fn auth_method(
    client: &Client,
    supported: Option<&[String]>,
) -> Result<AuthMethod, AuthError> {
    if client.secret.is_none() {
        return Ok(AuthMethod::None);
    }
    match client.auth_method.as_deref() {
        Some("client_secret_basic") => return Ok(AuthMethod::Basic),
        Some("client_secret_post") => return Ok(AuthMethod::Post),
        Some("none") => return Ok(AuthMethod::None),
        Some(_) | None => {}
    }
    let Some(supported) = supported else { return Ok(AuthMethod::Basic) };
    let candidates = [
        ("client_secret_basic", AuthMethod::Basic),
        ("client_secret_post", AuthMethod::Post),
        ("none", AuthMethod::None),
    ];
    let found =
        candidates.into_iter().find(|(name, _)| supported.iter().any(|method| method == name));
    found
        .map(|(_, method)| method)
        .ok_or_else(|| untrusted("the authorization server supports no way to use a client secret"))
}

/// The way to ask for when registering: a program on somebody's machine keeps no secrets, so none if possible.
pub(crate) fn auth_method_to_register(supported: Option<&[String]>) -> &'static str {
    let Some(supported) = supported else { return "none" };
    let candidates = ["none", "client_secret_basic", "client_secret_post"];
    candidates
        .into_iter()
        .find(|name| supported.iter().any(|method| method == name))
        .unwrap_or("none")
}

#[cfg(test)]
mod tests;
