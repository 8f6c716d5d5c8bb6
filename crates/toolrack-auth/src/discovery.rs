//! Authorization server discovery: protected resource metadata (RFC 9728), authorization server metadata (RFC
//! 8414), and the resource indicator (RFC 8707).
//!
//! **Invariant:** metadata is used only if its issuer is, byte for byte, the one it was requested for, and only
//! for a resource that covers the server.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toolrack_transport::AuthError;
use url::Url;

use crate::address_policy::display_url;
use crate::error::{unreachable, untrusted};
use crate::http_client::HttpClient;
use crate::www_authenticate::BearerChallenge;

/// Result of discovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Discovered {
    /// The resource identifier, exactly as published if it is.
    pub(crate) resource: String,
    /// The scopes that the resource lists.
    pub(crate) scopes: Option<Vec<String>>,
    pub(crate) metadata: ServerMetadata,
}

/// Finds the authorization server of `server`. If several are listed, one in `preferred` is taken first.
pub(crate) async fn discover(
    http: &HttpClient,
    server: &Url,
    challenge: &BearerChallenge,
    preferred: &[String],
) -> Result<Discovered, AuthError> {
    for url in resource_metadata_urls(server, challenge.resource_metadata.as_deref()) {
        let Some(published) = fetch::<ResourceMetadata>(http, &url).await? else { continue };
        // RFC 9728 §3.3: otherwise a server could make us request a token for another one.
        if !resource_covers(&published.resource, server) {
            return Err(untrusted(format_args!(
                "the protected resource metadata is for another resource: {}",
                published.resource
            )));
        }
        let metadata = issuer_metadata(http, choose_issuer(&published, preferred)?).await?;
        let ResourceMetadata { resource, scopes_supported: scopes, .. } = published;
        return Ok(Discovered { resource, scopes, metadata });
    }
    let metadata = origin_metadata(http, server).await?;
    Ok(Discovered { resource: canonical_resource(server), scopes: None, metadata })
}

/// The first preferred authorization server of a resource, or its first. None is an error.
fn choose_issuer<'a>(
    metadata: &'a ResourceMetadata,
    preferred: &[String],
) -> Result<&'a str, AuthError> {
    let servers = &metadata.authorization_servers;
    let found = servers.iter().find(|issuer| preferred.contains(issuer)).or(servers.first());
    found
        .map(String::as_str)
        .ok_or_else(|| untrusted("the protected resource metadata names no authorization server"))
}

/// The metadata of an issuer that the resource names.
async fn issuer_metadata(http: &HttpClient, issuer: &str) -> Result<ServerMetadata, AuthError> {
    let url = Url::parse(issuer)
        .map_err(|_syntax| untrusted("the server's authorization server is not a valid URL"))?;
    let published = find_metadata(http, &url, |found| found == issuer).await?;
    published
        .ok_or_else(|| unreachable(format_args!("{} publishes no metadata", display_url(&url))))
}

/// The metadata at the server's own origin, published or assumed (2025-03-26).
async fn origin_metadata(http: &HttpClient, server: &Url) -> Result<ServerMetadata, AuthError> {
    let origin = server.origin().ascii_serialization();
    // The issuer is derived from the origin, which is the same with and without a trailing slash.
    let is_own = |issuer: &str| issuer.strip_suffix('/').unwrap_or(issuer) == origin;
    let published = find_metadata(http, &with_path(server, "/"), is_own).await?;
    Ok(published.unwrap_or_else(|| ServerMetadata::assumed(&origin)))
}

/// The first metadata with a matching issuer. If there is only metadata with other issuers, that is an error.
async fn find_metadata(
    http: &HttpClient,
    issuer: &Url,
    matches: impl Fn(&str) -> bool,
) -> Result<Option<ServerMetadata>, AuthError> {
    let mut mismatch = None;
    for url in server_metadata_urls(issuer) {
        match fetch::<ServerMetadata>(http, &url).await? {
            Some(metadata) if matches(&metadata.issuer) => return Ok(Some(metadata)),
            Some(metadata) => mismatch = Some((url, metadata.issuer)),
            None => {}
        }
    }
    match mismatch {
        Some((url, other)) => Err(untrusted(format_args!(
            "the metadata at {} has another issuer: {other}",
            display_url(&url)
        ))),
        None => Ok(None),
    }
}

/// Fetches a document. `None` if it is absent or malformed. An unreachable server is an error, because the
/// document may exist.
async fn fetch<T: DeserializeOwned>(http: &HttpClient, url: &Url) -> Result<Option<T>, AuthError> {
    let response = http.get(url).await?;
    if response.is_success() {
        // Protocol facts §20.2 step 3: a document that does not parse is ignored.
        return Ok(serde_json::from_slice(&response.body).ok());
    }
    if response.is_not_found() {
        return Ok(None);
    }
    let url = display_url(url);
    Err(unreachable(format_args!("{url} responded with status {}", response.status)))
}

/// Whether a list in metadata is present and contains `name`.
pub(crate) fn lists(list: Option<&[String]>, name: &str) -> bool {
    list.is_some_and(|list| list.iter().any(|listed| listed == name))
}

/// Protected resource metadata (RFC 9728).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct ResourceMetadata {
    /// The resource, exactly as published: this string is sent in requests.
    pub(crate) resource: String,
    #[serde(default)]
    pub(crate) authorization_servers: Vec<String>,
    pub(crate) scopes_supported: Option<Vec<String>>,
}

/// Authorization server metadata (RFC 8414 and `OpenID` Connect Discovery).
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub(crate) struct ServerMetadata {
    pub(crate) issuer: String,
    pub(crate) authorization_endpoint: Option<String>,
    pub(crate) token_endpoint: Option<String>,
    pub(crate) registration_endpoint: Option<String>,
    pub(crate) revocation_endpoint: Option<String>,
    pub(crate) scopes_supported: Option<Vec<String>>,
    pub(crate) code_challenge_methods_supported: Option<Vec<String>>,
    pub(crate) token_endpoint_auth_methods_supported: Option<Vec<String>>,
    pub(crate) authorization_grant_profiles_supported: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) authorization_response_iss_parameter_supported: bool,
    #[serde(default)]
    pub(crate) client_id_metadata_document_supported: bool,
}

impl ServerMetadata {
    /// Default endpoints of a server without metadata (2025-03-26).
    pub(crate) fn assumed(origin: &str) -> Self {
        Self {
            issuer: origin.to_owned(),
            authorization_endpoint: Some(format!("{origin}/authorize")),
            token_endpoint: Some(format!("{origin}/token")),
            registration_endpoint: Some(format!("{origin}/register")),
            // A server without metadata cannot advertise S256; 2025-03-26 requires it.
            code_challenge_methods_supported: Some(vec!["S256".to_owned()]),
            ..Self::default()
        }
    }

    /// Protocol facts §20.2 step 6: no authorization unless S256 is advertised.
    pub(crate) fn require_s256(&self) -> Result<(), AuthError> {
        if lists(self.code_challenge_methods_supported.as_deref(), "S256") {
            return Ok(());
        }
        Err(untrusted(format_args!("{} does not advertise PKCE with S256", self.issuer)))
    }
}

/// URLs of the protected resource metadata, in order: from the challenge, for the path, for the origin.
pub(crate) fn resource_metadata_urls(server: &Url, from_challenge: Option<&str>) -> Vec<Url> {
    let mut urls = Vec::new();
    urls.extend(from_challenge.and_then(|reference| server.join(reference).ok()));
    let path = server.path().trim_end_matches('/');
    let base = "/.well-known/oauth-protected-resource";
    let mut for_path = with_path(server, &format!("{base}{path}"));
    for_path.set_query(server.query());
    for url in [for_path, with_path(server, base)] {
        if !urls.contains(&url) {
            urls.push(url);
        }
    }
    urls
}

/// URLs of the metadata of `issuer`, in order (protocol facts §20.2 step 4).
pub(crate) fn server_metadata_urls(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_end_matches('/');
    let (oauth, openid) =
        ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration");
    let mut paths = vec![format!("{oauth}{path}"), format!("{openid}{path}")];
    if !path.is_empty() {
        paths.push(format!("{path}{openid}"));
    }
    paths.iter().map(|path| with_path(issuer, path)).collect()
}

/// The same origin with another path, without query and fragment.
fn with_path(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(path);
    url.set_query(None);
    url.set_fragment(None);
    url
}

/// Resource indicator of a server that publishes none (protocol facts §20.3): no fragment, and no slash for an
/// empty path.
pub(crate) fn canonical_resource(server: &Url) -> String {
    let mut url = server.clone();
    url.set_fragment(None);
    let text = url.as_str();
    match (url.path(), url.query()) {
        ("/", None) => text.trim_end_matches('/').to_owned(),
        _ => text.to_owned(),
    }
}

/// Whether metadata of `resource` applies to `server`: same origin, and a path at or above the server's.
/// Queries are ignored.
pub(crate) fn resource_covers(resource: &str, server: &Url) -> bool {
    let Ok(resource) = Url::parse(resource) else { return false };
    let matches = resource.origin() == server.origin() && resource.fragment().is_none();
    // The resource's path equals the server's, or ends at one of its segment boundaries.
    let below = server.path().strip_prefix(resource.path().trim_end_matches('/'));
    let is_below = below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    matches && resource.username().is_empty() && is_below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_authorization_server_is_preferred() {
        let check = |servers: &[&str], preferred: &[&str], expected: &str| {
            let own =
                |list: &[&str]| list.iter().map(|&issuer| issuer.to_owned()).collect::<Vec<_>>();
            let metadata = ResourceMetadata {
                resource: String::new(),
                authorization_servers: own(servers),
                scopes_supported: None,
            };
            assert_eq!(choose_issuer(&metadata, &own(preferred)).unwrap(), expected);
        };
        check(&["https://a", "https://b"], &[], "https://a");
        check(&["https://a", "https://b"], &["https://b", "https://c"], "https://b");
        check(&["https://a"], &["https://a/"], "https://a");
    }
}

#[cfg(test)]
mod metadata_tests {
    use super::*;

    #[test]
    fn s256_must_be_advertised() {
        let check = |methods: Option<&[&str]>, expected: bool| {
            let methods = methods.map(|list| list.iter().map(|&name| name.to_owned()).collect());
            let metadata =
                ServerMetadata { code_challenge_methods_supported: methods, ..Default::default() };
            assert_eq!(metadata.require_s256().is_ok(), expected);
        };
        check(Some(&["plain", "S256"]), true);
        check(Some(&["plain"]), false);
        check(Some(&["s256"]), false);
        check(Some(&[]), false);
        check(None, false);
        assert!(ServerMetadata::assumed("https://h").require_s256().is_ok());
    }

    #[test]
    fn metadata_requires_issuer_and_ignores_unknown_members() {
        let read = |text: &str| serde_json::from_str::<ServerMetadata>(text).is_ok();
        assert!(read(r#"{"issuer":"https://a","jwks_uri":7,"scopes_supported":["a"]}"#));
        assert!(!read(r#"{"token_endpoint":"https://a/token"}"#));
        assert!(!read(r#"{"issuer":7}"#));
    }

    #[test]
    fn resource_must_name_an_authorization_server() {
        let read = |text: &str| serde_json::from_str::<ResourceMetadata>(text).unwrap();
        let metadata = read(r#"{"resource":"https://h","authorization_servers":["https://a/"]}"#);
        assert_eq!(choose_issuer(&metadata, &[]).unwrap(), "https://a/");
        assert!(choose_issuer(&read(r#"{"resource":"https://h"}"#), &[]).is_err());
    }
}

#[cfg(test)]
mod well_known_tests {
    use super::*;

    #[track_caller]
    fn check(urls: Vec<Url>, expected: &[&str]) {
        assert_eq!(urls.iter().map(Url::as_str).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn resource_metadata_url_order() {
        let urls_for = |server: &str, from_challenge| {
            resource_metadata_urls(&Url::parse(server).unwrap(), from_challenge)
        };
        check(
            urls_for("https://h/a/mcp", None),
            &[
                "https://h/.well-known/oauth-protected-resource/a/mcp",
                "https://h/.well-known/oauth-protected-resource",
            ],
        );
        check(urls_for("https://h/", None), &["https://h/.well-known/oauth-protected-resource"]);
        check(
            urls_for("https://h/mcp", Some("https://else/prm")),
            &[
                "https://else/prm",
                "https://h/.well-known/oauth-protected-resource/mcp",
                "https://h/.well-known/oauth-protected-resource",
            ],
        );
        check(
            urls_for("https://h", Some("/.well-known/oauth-protected-resource")),
            &["https://h/.well-known/oauth-protected-resource"],
        );
        check(
            urls_for("https://h/mcp?t=1", Some("https://[bad")),
            &[
                "https://h/.well-known/oauth-protected-resource/mcp?t=1",
                "https://h/.well-known/oauth-protected-resource",
            ],
        );
    }

    #[test]
    fn server_metadata_url_order() {
        let urls_for = |issuer: &str| server_metadata_urls(&Url::parse(issuer).unwrap());
        check(
            urls_for("https://a"),
            &[
                "https://a/.well-known/oauth-authorization-server",
                "https://a/.well-known/openid-configuration",
            ],
        );
        check(
            urls_for("https://a/t/"),
            &[
                "https://a/.well-known/oauth-authorization-server/t",
                "https://a/.well-known/openid-configuration/t",
                "https://a/t/.well-known/openid-configuration",
            ],
        );
    }

    #[test]
    fn origin_issuer_has_no_trailing_slash() {
        let origin = |url: &str| Url::parse(url).unwrap().origin().ascii_serialization();
        assert_eq!(origin("http://localhost:80/mcp"), "http://localhost");
        assert_eq!(origin("https://h:8443/x?y"), "https://h:8443");
    }
}

#[cfg(test)]
mod resource_tests {
    use super::*;

    #[test]
    fn canonical_resource_is_normalized() {
        let check = |url: &str, expected: &str| {
            assert_eq!(canonical_resource(&Url::parse(url).unwrap()), expected);
        };
        check("HTTPS://Host.Example/Mcp", "https://host.example/Mcp");
        check("https://h/", "https://h");
        check("https://h:8443", "https://h:8443");
        check("https://h:443/mcp#part", "https://h/mcp");
        check("https://h/mcp/", "https://h/mcp/");
        check("https://h/?t=1", "https://h/?t=1");
    }

    #[test]
    fn resource_covers_its_origin_and_subpaths() {
        let check = |resource: &str, server: &str, expected: bool| {
            let server = Url::parse(server).unwrap();
            assert_eq!(resource_covers(resource, &server), expected, "{resource} {server}");
        };
        check("https://h/mcp", "https://h/mcp", true);
        check("https://H:443/mcp", "https://h/mcp", true);
        check("https://h", "https://h/mcp", true);
        check("https://h/", "https://h/mcp", true);
        check("https://h/mcp/", "https://h/mcp", true);
        check("https://h/mcp?tenant=1", "https://h/mcp?tenant=2", true);
        check("https://h/mc", "https://h/mcp", false);
        check("https://h/mcp/deeper", "https://h/mcp", false);
        check("http://h/mcp", "https://h/mcp", false);
        check("https://h:8443/mcp", "https://h/mcp", false);
        check("https://evil/mcp", "https://h/mcp", false);
        check("https://u@h/mcp", "https://h/mcp", false);
        check("https://h/mcp#x", "https://h/mcp", false);
        check("/mcp", "https://h/mcp", false);
        check("", "https://h/mcp", false);
    }
}
