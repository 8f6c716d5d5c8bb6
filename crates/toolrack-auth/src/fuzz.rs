//! Fuzz targets of OAuth: challenges, metadata and redirects. docs/internal/fuzzing.md says how to run them.

#![expect(clippy::panic, reason = "a fuzz target fails by panicking")]

use std::net::{IpAddr, Ipv4Addr};

use url::{Host, Url, form_urlencoded};

use crate::Secret;
use crate::address_policy::{AddressPolicy, display_url};
use crate::authorization_code::validate_callback;
use crate::browser::{callback_query, pasted_query};
use crate::discovery::{
    ResourceMetadata, ServerMetadata, canonical_resource, resource_covers, resource_metadata_urls,
    server_metadata_urls,
};
use crate::www_authenticate::BearerChallenge;

type FuzzTarget = (&'static str, fn(&[u8]));

/// Name and function of every target.
pub const TARGETS: &[FuzzTarget] = &[
    ("www_authenticate", www_authenticate),
    ("oauth_metadata", oauth_metadata),
    ("oauth_callback", oauth_callback),
];

/// A challenge that is written in the notation of RFC 9110 is read as the same challenge.
fn www_authenticate(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let values: Vec<String> = text.lines().map(str::to_owned).collect();
    let challenge = BearerChallenge::from_headers(&values);
    assert!(challenge.scopes.as_ref().is_none_or(|scopes| !scopes.is_empty()));
    let mut written = "Bearer realm=\"x\"".to_owned();
    let scopes = challenge.scopes.as_ref().map(|scopes| scopes.join(" "));
    for (name, value) in [
        ("resource_metadata", challenge.resource_metadata.as_ref()),
        ("scope", scopes.as_ref()),
        ("error", challenge.error.as_ref()),
    ] {
        let quoted = value.map(|value| value.replace('\\', "\\\\").replace('"', "\\\""));
        written.extend(quoted.map(|value| format!(", {name}=\"{value}\"")));
    }
    assert_eq!(BearerChallenge::from_headers(&[written]), challenge);
}

/// Metadata leads to public addresses over TLS only, and to its own origin.
fn oauth_metadata(data: &[u8]) {
    let mut urls = Vec::new();
    if let Ok(metadata) = serde_json::from_slice::<ServerMetadata>(data) {
        urls.push(metadata.issuer);
        urls.extend(metadata.authorization_endpoint);
        urls.extend(metadata.token_endpoint);
        urls.extend(metadata.registration_endpoint);
        urls.extend(metadata.revocation_endpoint);
    }
    if let Ok(metadata) = serde_json::from_slice::<ResourceMetadata>(data) {
        urls.push(metadata.resource);
        urls.extend(metadata.authorization_servers);
    }
    urls.extend(std::str::from_utf8(data).map(str::to_owned));
    let Ok(server) = Url::parse("https://mcp.example/a/b") else { return };
    for text in urls {
        if resource_covers(&text, &server) {
            assert!(Url::parse(&text).is_ok_and(|url| url.origin() == server.origin()), "{text:?}");
        }
        for url in resource_metadata_urls(&server, Some(&text)).iter().skip(1) {
            assert_eq!(url.origin(), server.origin());
        }
        let Ok(url) = Url::parse(&text) else { continue };
        check_url(&url);
    }
}

fn check_url(url: &Url) {
    for metadata in server_metadata_urls(url) {
        assert_eq!(metadata.host_str(), url.host_str(), "{url}");
        assert_eq!((metadata.query(), metadata.fragment()), (None, None));
    }
    assert!(!canonical_resource(url).contains('#'), "{url}");
    // The host or path may contain the same text, so the password is not searched for.
    let mut other = url.clone();
    if url.password().is_some() && other.set_password(Some("another")).is_ok() {
        assert_eq!(display_url(&other), display_url(url));
    }
    let Ok(public) = Url::parse("https://mcp.example/") else { return };
    if AddressPolicy::for_server(&public).check(url).is_err() {
        return;
    }
    assert_eq!(url.scheme(), "https", "{url}");
    assert!(url.username().is_empty() && url.password().is_none(), "{url}");
    let address = match url.host() {
        Some(Host::Ipv4(address)) => IpAddr::V4(address),
        Some(Host::Ipv6(address)) => IpAddr::V6(address),
        Some(Host::Domain(name)) => return assert_ne!(name, "localhost"),
        None => panic!("{url} has no host"),
    };
    assert!(is_public(address), "{url}");
}

/// Addresses that no policy for a public server may allow, by the words of the standard library.
fn is_public(address: IpAddr) -> bool {
    let is_public_v4 = |address: Ipv4Addr| {
        !(address.is_private()
            || address.is_loopback()
            || address.is_link_local()
            || address.is_unspecified()
            || address.is_broadcast()
            || address.is_multicast())
    };
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => {
            !(address.is_loopback()
                || address.is_unspecified()
                || address.is_multicast()
                || address.is_unique_local()
                || address.is_unicast_link_local())
                && address.to_ipv4_mapped().is_none_or(is_public_v4)
        }
    }
}

/// A code is taken only from a redirect with our state, and only if nothing is repeated.
fn oauth_callback(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let metadata = ServerMetadata::assumed("https://issuer.example");
    let state = Secret::new("st4te");
    let check = |query: &str| {
        let Ok(code) = validate_callback(query, &state, &metadata) else { return };
        let values = |name: &str| -> Vec<String> {
            let pairs = form_urlencoded::parse(query.as_bytes());
            pairs.filter(|(key, _)| key == name).map(|(_, value)| value.into_owned()).collect()
        };
        assert_eq!(values("state"), ["st4te"]);
        assert_eq!(values("code"), [code.reveal()]);
        assert!(values("error").is_empty());
        assert!(values("iss").iter().all(|iss| iss == "https://issuer.example"));
    };
    check(&text);
    if let Ok(query) = callback_query(&text, "/callback") {
        assert!(text.starts_with("GET /callback"));
        check(query);
    }
    let redirect = "http://127.0.0.1:4000/callback";
    if let Ok(query) = pasted_query(&Secret::new(&*text), redirect) {
        let pasted = text.trim().trim_matches(['"', '\'', '<', '>']);
        let is_ours = Url::parse(pasted).is_ok_and(|url| url.port() == Some(4000));
        assert!(pasted.starts_with('?') || is_ours, "{pasted:?}");
        check(query.reveal());
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_targets_hold() {
        toolrack_fuzz::check_targets(super::TARGETS);
    }
}
