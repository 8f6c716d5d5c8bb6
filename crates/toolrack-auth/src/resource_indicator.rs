//! Which resource a token is for: the server's canonical URI, and whether a server may call itself something else.

use url::Url;

/// The resource indicator of a server that publishes none (protocol facts §20.3): no fragment, and no slash
/// that stands for an empty path.
pub(crate) fn canonical_resource(server: &Url) -> String {
    let mut url = server.clone();
    url.set_fragment(None);
    let text = url.as_str();
    match (url.path(), url.query()) {
        ("/", None) => text.trim_end_matches('/').to_owned(),
        _ => text.to_owned(),
    }
}

/// True if a description of `resource` speaks for `server`: the same origin, and a path at or above the server's.
/// The query is left out of it.
pub(crate) fn resource_covers(resource: &str, server: &Url) -> bool {
    let Ok(resource) = Url::parse(resource) else { return false };
    let fits = resource.origin() == server.origin() && resource.fragment().is_none();
    fits && resource.username().is_empty() && is_path_prefix(resource.path(), server.path())
}

/// True for equal paths, and for one that ends where a segment of the other ends.
fn is_path_prefix(prefix: &str, path: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_canonical_form_is_lower_case_and_bare() {
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
    fn a_resource_covers_its_own_origin_and_paths_below() {
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
