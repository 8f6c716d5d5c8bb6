//! From a server's URL to the authorization server that lets people in, and nothing on trust.
//!
//! **Invariant:** metadata is used only if its issuer is, letter for letter, the one it was looked up for, and
//! only for a resource that covers the server.

use serde::de::DeserializeOwned;
use toolrack_transport::AuthError;
use url::Url;

use crate::address_policy::shown;
use crate::error::{unreachable, untrusted};
use crate::http_client::{Http, Reply};
use crate::metadata::{ResourceMetadata, ServerMetadata, authorization_servers};
use crate::www_authenticate::Demand;
use crate::{resource_indicator as resource, well_known};

/// Who lets people into a server, and what for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// The resource, exactly as published if it is.
    pub(crate) resource: String,
    /// The scopes that the resource lists.
    pub(crate) scopes: Option<Vec<String>>,
    pub(crate) metadata: ServerMetadata,
}

/// Looks for the authorization server of `server`. Of several, one in `liked` is preferred.
pub(crate) async fn discover(
    http: &Http,
    server: &Url,
    demand: &Demand,
    protocol_version: &str,
    liked: &[String],
) -> Result<Found, AuthError> {
    let search = Search { http, protocol_version };
    match search.resource(server, demand.resource_metadata.as_deref()).await? {
        Some(described) => {
            if !resource::covers(&described.resource, server) {
                return Err(untrusted(format_args!(
                    "the server's description is about another resource: {}",
                    described.resource
                )));
            }
            let issuer = choose(authorization_servers(&described)?, liked);
            let metadata = search.published(issuer).await?;
            let ResourceMetadata { resource, scopes_supported: scopes, .. } = described;
            Ok(Found { resource, scopes, metadata })
        }
        None => {
            let metadata = search.at_origin(server).await?;
            Ok(Found { resource: resource::canonical(server), scopes: None, metadata })
        }
    }
}

/// The first that is liked, or the first.
fn choose<'a>(named: &'a [String], liked: &[String]) -> &'a str {
    let known = named.iter().find(|it| liked.contains(it));
    known.or(named.first()).map(String::as_str).unwrap_or_default()
}

/// How to ask.
struct Search<'a> {
    http: &'a Http,
    protocol_version: &'a str,
}

impl Search<'_> {
    /// The server's description of itself, if there is one that can be read.
    async fn resource(
        &self,
        server: &Url,
        named: Option<&str>,
    ) -> Result<Option<ResourceMetadata>, AuthError> {
        for url in well_known::resource_metadata(server, named) {
            if let Some(described) = self.read(&url).await? {
                return Ok(Some(described));
            }
        }
        Ok(None)
    }

    /// The metadata of an issuer that a resource has named.
    async fn published(&self, issuer: &str) -> Result<ServerMetadata, AuthError> {
        let url = Url::parse(issuer).map_err(|_syntax| {
            untrusted("the server names an authorization server that is no URL")
        })?;
        match self.metadata(&url, |it| it == issuer).await? {
            Some(metadata) => Ok(metadata),
            None => Err(unreachable(format_args!("{} publishes no metadata", shown(&url)))),
        }
    }

    /// What a server of 2025-03-26 has at its own origin, published or not.
    async fn at_origin(&self, server: &Url) -> Result<ServerMetadata, AuthError> {
        let origin = well_known::origin(server);
        let base = well_known::at(server, "/");
        // Nobody has published this issuer; the origin with and without its slash are one and the same.
        let is_own = |issuer: &str| issuer.strip_suffix('/').unwrap_or(issuer) == origin;
        let published = self.metadata(&base, is_own).await?;
        Ok(published.unwrap_or_else(|| ServerMetadata::assumed(&origin)))
    }

    /// The first metadata whose issuer is right. If there are only others, that is an error and not an absence.
    async fn metadata(
        &self,
        issuer: &Url,
        is_right: impl Fn(&str) -> bool,
    ) -> Result<Option<ServerMetadata>, AuthError> {
        let mut wrong = None;
        for url in well_known::server_metadata(issuer) {
            match self.read::<ServerMetadata>(&url).await? {
                Some(metadata) if is_right(&metadata.issuer) => return Ok(Some(metadata)),
                Some(metadata) => wrong = Some((url, metadata.issuer)),
                None => {}
            }
        }
        match wrong {
            Some((url, other)) => Err(untrusted(format_args!(
                "the metadata at {} is that of another issuer: {other}",
                shown(&url)
            ))),
            None => Ok(None),
        }
    }

    /// A document, if it is there and can be read. No answer at all is an error, because it says nothing.
    async fn read<T: DeserializeOwned>(&self, url: &Url) -> Result<Option<T>, AuthError> {
        let reply: Reply = self.http.get(url, self.protocol_version).await?;
        if reply.is_success() {
            return Ok(serde_json::from_slice(&reply.body).ok());
        }
        if reply.is_absent() {
            return Ok(None);
        }
        Err(unreachable(format_args!("{} answered {}", shown(url), reply.status)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authorization_server_that_knows_us_is_preferred() {
        let check = |named: &[&str], liked: &[&str], expected: &str| {
            let own = |it: &[&str]| it.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
            assert_eq!(choose(&own(named), &own(liked)), expected);
        };
        check(&["https://a", "https://b"], &[], "https://a");
        check(&["https://a", "https://b"], &["https://b", "https://c"], "https://b");
        check(&["https://a"], &["https://a/"], "https://a");
    }
}
