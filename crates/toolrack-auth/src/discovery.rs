//! From a server's URL to the authorization server that lets people in, and nothing on trust.
//!
//! **Invariant:** metadata is used only if its issuer is, letter for letter, the one it was looked up for, and
//! only for a resource that covers the server.

use crate::resource_indicator::canonical_resource;
use crate::resource_indicator::resource_covers;
use crate::well_known::origin_issuer;
use crate::well_known::resource_metadata_urls;
use crate::well_known::server_metadata_urls;
use crate::well_known::with_path;
use serde::de::DeserializeOwned;
use toolrack_transport::AuthError;
use url::Url;

use crate::address_policy::display_url;
use crate::error::{unreachable, untrusted};
use crate::http_client::{HttpClient, HttpResponse};
use crate::metadata::{ResourceMetadata, ServerMetadata, authorization_servers};
use crate::www_authenticate::BearerChallenge;

/// Who lets people into a server, and what for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Discovered {
    /// The resource, exactly as published if it is.
    pub(crate) resource: String,
    /// The scopes that the resource lists.
    pub(crate) scopes: Option<Vec<String>>,
    pub(crate) metadata: ServerMetadata,
}

/// Looks for the authorization server of `server`. Of several, one in `liked` is preferred.
pub(crate) async fn discover(
    http: &HttpClient,
    server: &Url,
    challenge: &BearerChallenge,
    protocol_version: &str,
    preferred: &[String],
) -> Result<Discovered, AuthError> {
    let fetcher = MetadataFetcher { http, protocol_version };
    match fetcher.resource_metadata(server, challenge.resource_metadata.as_deref()).await? {
        Some(metadata_doc) => {
            if !resource_covers(&metadata_doc.resource, server) {
                return Err(untrusted(format_args!(
                    "the server's description is about another resource: {}",
                    metadata_doc.resource
                )));
            }
            let issuer = choose_issuer(authorization_servers(&metadata_doc)?, preferred);
            let metadata = fetcher.issuer_metadata(issuer).await?;
            let ResourceMetadata { resource, scopes_supported: scopes, .. } = metadata_doc;
            Ok(Discovered { resource, scopes, metadata })
        }
        None => {
            let metadata = fetcher.origin_metadata(server).await?;
            Ok(Discovered { resource: canonical_resource(server), scopes: None, metadata })
        }
    }
}

/// The first that is liked, or the first.
fn choose_issuer<'a>(servers: &'a [String], preferred: &[String]) -> &'a str {
    let found = servers.iter().find(|issuer| preferred.contains(issuer));
    found.or(servers.first()).map(String::as_str).unwrap_or_default()
}

/// How to ask.
struct MetadataFetcher<'a> {
    http: &'a HttpClient,
    protocol_version: &'a str,
}

impl MetadataFetcher<'_> {
    /// The server's description of itself, if there is one that can be read.
    async fn resource_metadata(
        &self,
        server: &Url,
        servers: Option<&str>,
    ) -> Result<Option<ResourceMetadata>, AuthError> {
        for url in resource_metadata_urls(server, servers) {
            if let Some(metadata_doc) = self.fetch(&url).await? {
                return Ok(Some(metadata_doc));
            }
        }
        Ok(None)
    }

    /// The metadata of an issuer that a resource has named.
    async fn issuer_metadata(&self, issuer: &str) -> Result<ServerMetadata, AuthError> {
        let url = Url::parse(issuer).map_err(|_syntax| {
            untrusted("the server names an authorization server that is no URL")
        })?;
        match self.find_metadata(&url, |found| found == issuer).await? {
            Some(metadata) => Ok(metadata),
            None => Err(unreachable(format_args!("{} publishes no metadata", display_url(&url)))),
        }
    }

    /// What a server of 2025-03-26 has at its own origin, published or not.
    async fn origin_metadata(&self, server: &Url) -> Result<ServerMetadata, AuthError> {
        let origin = origin_issuer(server);
        let base = with_path(server, "/");
        // Nobody has published this issuer; the origin with and without its slash are one and the same.
        let is_own = |issuer: &str| issuer.strip_suffix('/').unwrap_or(issuer) == origin;
        let published = self.find_metadata(&base, is_own).await?;
        Ok(published.unwrap_or_else(|| ServerMetadata::assumed(&origin)))
    }

    /// The first metadata whose issuer is right. If there are only others, that is an error and not an absence.
    async fn find_metadata(
        &self,
        issuer: &Url,
        matches: impl Fn(&str) -> bool,
    ) -> Result<Option<ServerMetadata>, AuthError> {
        let mut mismatch = None;
        for url in server_metadata_urls(issuer) {
            match self.fetch::<ServerMetadata>(&url).await? {
                Some(metadata) if matches(&metadata.issuer) => return Ok(Some(metadata)),
                Some(metadata) => mismatch = Some((url, metadata.issuer)),
                None => {}
            }
        }
        match mismatch {
            Some((url, other)) => Err(untrusted(format_args!(
                "the metadata at {} is that of another issuer: {other}",
                display_url(&url)
            ))),
            None => Ok(None),
        }
    }

    /// A document, if it is there and can be read. No answer at all is an error, because it says nothing.
    async fn fetch<T: DeserializeOwned>(&self, url: &Url) -> Result<Option<T>, AuthError> {
        let response: HttpResponse = self.http.get(url, self.protocol_version).await?;
        if response.is_success() {
            return Ok(serde_json::from_slice(&response.body).ok());
        }
        if response.is_not_found() {
            return Ok(None);
        }
        Err(unreachable(format_args!("{} answered {}", display_url(url), response.status)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authorization_server_that_knows_us_is_preferred() {
        let check = |servers: &[&str], preferred: &[&str], expected: &str| {
            let own = |it: &[&str]| it.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
            assert_eq!(choose_issuer(&own(servers), &own(preferred)), expected);
        };
        check(&["https://a", "https://b"], &[], "https://a");
        check(&["https://a", "https://b"], &["https://b", "https://c"], "https://b");
        check(&["https://a"], &["https://a/"], "https://a");
    }
}
