//! Where servers and authorization servers publish what they are, in the order to look.

use url::Url;

/// Where the description of `server` can be, best first: named by the challenge, for its path, for its origin.
pub(crate) fn resource_metadata_urls(server: &Url, named: Option<&str>) -> Vec<Url> {
    let mut urls = Vec::new();
    urls.extend(named.and_then(|it| server.join(it).ok()));
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

/// Where the metadata of `issuer` can be (protocol facts §20.2 step 4).
pub(crate) fn server_metadata_urls(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_end_matches('/');
    let (oauth, openid) =
        ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration");
    let mut paths = vec![format!("{oauth}{path}"), format!("{openid}{path}")];
    if !path.is_empty() {
        paths.push(format!("{path}{openid}"));
    }
    paths.iter().map(|it| with_path(issuer, it)).collect()
}

/// The origin of a URL, written as an issuer: without a slash at its end.
pub(crate) fn origin_issuer(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// The same origin, another path, nothing behind it.
pub(crate) fn with_path(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(path);
    url.set_query(None);
    url.set_fragment(None);
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(urls: Vec<Url>, expected: &[&str]) {
        assert_eq!(urls.iter().map(Url::as_str).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_server_is_described_where_it_says_then_at_its_path_then_at_its_root() {
        let urls_for =
            |server: &str, named| resource_metadata_urls(&Url::parse(server).unwrap(), named);
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
    fn an_issuer_is_described_in_this_order() {
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
    fn an_origin_has_no_slash() {
        let origin = |it: &str| origin_issuer(&Url::parse(it).unwrap());
        assert_eq!(origin("http://localhost:80/mcp"), "http://localhost");
        assert_eq!(origin("https://h:8443/x?y"), "https://h:8443");
    }
}
