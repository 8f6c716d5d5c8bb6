//! Which servers are asked for a resource: only those that have claimed its URI.
//!
//! A URI can be private (`file:///home/ada/taxes.pdf`), and a server that gets it by mistake learns it and may answer it.
//! So a server is asked only if it lists the URI, has a template for it, or is the only one with its scheme. While a
//! server that has resources has not listed all of them, only a URI that another one lists is asked for.
//!
//! Schemes that many servers share say nothing about the owner: listing one `file:` URI claims no other file, unless no
//! other server has resources. A template claims a part of such a scheme only if its text before the first variable names
//! a host, or for `file:` a folder two levels below the root, and only up to its last `/`: neither `file:///{+path}` nor
//! `file:///h{+path}` claims anything. Two servers with an equal claim are not asked.

use std::collections::BTreeMap;

use toolrack_client::List;
use toolrack_mcp::{Resource, ResourceTemplate};

use crate::list_cache::ServerList;

/// Schemes that belong to no server.
const SHARED_SCHEMES: [&str; 6] = ["file", "http", "https", "ftp", "data", "urn"];

/// Lists of one server that has or may have resources. `None` if the server has not listed them yet.
#[derive(Debug)]
pub(crate) struct Claims<'a> {
    pub(crate) server: &'a str,
    pub(crate) resources: Option<&'a List<Resource>>,
    pub(crate) templates: Option<&'a List<ResourceTemplate>>,
}

impl<'a> Claims<'a> {
    fn is_complete(&self) -> bool {
        self.resources.is_some() && self.templates.is_some()
    }

    fn uris(&self) -> impl Iterator<Item = &'a str> {
        let resources = self.resources.into_iter().flat_map(|list| &list.items);
        resources.map(|resource| resource.uri.as_str())
    }

    fn templates(&self) -> impl Iterator<Item = &'a str> {
        let templates = self.templates.into_iter().flat_map(|list| &list.items);
        templates.map(|template| template.uri_template.as_str())
    }
}

/// The list of a server.
pub(crate) fn list_of<'a, T>(server: &str, lists: &'a [ServerList<T>]) -> Option<&'a List<T>> {
    lists.iter().find(|(listed, _)| listed == server).map(|(_, list)| &**list)
}

/// The server that lists a URI. Of several the first one wins.
pub(crate) fn server_that_lists<'a>(
    uri: &str,
    lists: &'a [ServerList<Resource>],
) -> Option<&'a str> {
    let mut lists = lists.iter();
    let found = lists.find(|(_, list)| list.items.iter().any(|resource| resource.uri == uri));
    found.map(|(server, _)| server.as_str())
}

/// Why no server is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoOwner {
    /// No server has claimed the URI.
    Unclaimed,
    /// These servers may have it, and none has claimed it more closely than the others.
    Ambiguous(Vec<String>),
    /// One server has claimed the scheme, but the claims of another are not known yet.
    Incomplete,
}

impl NoOwner {
    /// What happened, and what to do.
    pub(crate) fn describe(&self) -> (String, &'static str) {
        const ENDPOINT: &str =
            "list resources and templates, or use the endpoint of its server (`/mcp/server/NAME`)";
        match self {
            NoOwner::Unclaimed => {
                ("no server lists it or has a template for it".to_owned(), ENDPOINT)
            }
            NoOwner::Ambiguous(servers) => {
                (format!("several servers could have it: {}", servers.join(", ")), ENDPOINT)
            }
            NoOwner::Incomplete => (
                "no server lists it, and some have not listed their resources yet".to_owned(),
                "try again in a few seconds, or use the endpoint of its server (`/mcp/server/NAME`)",
            ),
        }
    }
}

/// The servers to ask for a URI, the likeliest first.
pub(crate) fn find_owners(uri: &str, claims: &[Claims<'_>]) -> Result<Vec<String>, NoOwner> {
    // A completion refers to a template by its own text.
    let lists = |claim: &&Claims<'_>| claim.uris().chain(claim.templates()).any(|text| text == uri);
    if let Some(claim) = claims.iter().find(lists) {
        return Ok(vec![claim.server.to_owned()]);
    }
    let Some(scheme) = scheme(uri) else { return Err(NoOwner::Unclaimed) };
    let is_complete = claims.iter().all(Claims::is_complete);
    let mut by_length = BTreeMap::<usize, Vec<String>>::new();
    for claim in claims {
        let templates = claim.templates().filter(|template| template_matches(template, uri));
        if let Some(length) = templates.filter_map(claimed_bytes).max() {
            by_length.entry(length).or_default().push(claim.server.to_owned());
        }
    }
    if let Some(servers) = by_length.into_values().next_back() {
        return match servers.len() {
            _ if !is_complete => Err(NoOwner::Incomplete),
            2.. if is_shared(scheme) => Err(NoOwner::Ambiguous(servers)),
            _ => Ok(servers),
        };
    }
    let has_scheme = |claim: &&Claims<'_>| {
        claim.uris().chain(claim.templates().map(fixed_prefix)).any(|text| {
            self::scheme(text).is_some_and(|claimed| claimed.eq_ignore_ascii_case(scheme))
        })
    };
    let claimants = claims.iter().filter(has_scheme).map(|claim| claim.server.to_owned());
    let claimants: Vec<String> = claimants.collect();
    match claimants.len() {
        0 => Err(NoOwner::Unclaimed),
        1 if is_shared(scheme) && claims.len() > 1 => Err(NoOwner::Unclaimed),
        1 if !is_complete => Err(NoOwner::Incomplete),
        1 => Ok(claimants),
        _ => Err(NoOwner::Ambiguous(claimants)),
    }
}

fn is_shared(scheme: &str) -> bool {
    SHARED_SCHEMES.iter().any(|shared| shared.eq_ignore_ascii_case(scheme))
}

/// The scheme of a URI, without its colon (RFC 3986 §3.1).
fn scheme(uri: &str) -> Option<&str> {
    let (scheme, _) = uri.split_once(':')?;
    let is_valid = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    is_valid.then_some(scheme)
}

/// The part of a template before its first variable.
fn fixed_prefix(template: &str) -> &str {
    template.split('{').next().unwrap_or_default()
}

/// Length of the part of a URI that a template claims. `None` if it claims a whole scheme or more.
fn claimed_bytes(template: &str) -> Option<usize> {
    let prefix = fixed_prefix(template);
    let scheme = scheme(prefix)?;
    if is_shared(scheme) {
        return claimed_folder(prefix, scheme).map(str::len);
    }
    let rest = prefix.get(scheme.len() + 1..)?;
    (!rest.trim_matches('/').is_empty()).then_some(prefix.len())
}

/// The folder of a shared scheme that a template claims. A part of a name claims nothing: otherwise a few dozen templates
/// of one letter each claim every file.
fn claimed_folder<'a>(prefix: &'a str, scheme: &str) -> Option<&'a str> {
    let folder = prefix.get(..=prefix.rfind('/')?)?;
    let path = folder.get(scheme.len() + 1..)?;
    let (host, path) = match path.strip_prefix("//") {
        Some(authority) => authority.split_once('/')?,
        None => ("", path),
    };
    let n_folders = path.split('/').filter(|segment| !segment.is_empty()).count();
    let is_file = scheme.eq_ignore_ascii_case("file");
    let is_narrow = if is_file { n_folders >= 2 } else { !host.is_empty() };
    is_narrow.then_some(folder)
}

/// Whether a URI has all fixed parts of a template in their order. A variable matches any text.
fn template_matches(template: &str, uri: &str) -> bool {
    let prefix = fixed_prefix(template);
    let Some(mut rest) = uri.strip_prefix(prefix) else { return false };
    let mut parts = template.get(prefix.len()..).unwrap_or_default().split('{').skip(1).peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        // Without its closing brace the template is malformed, and matches nothing.
        let Some((_, fixed)) = part.split_once('}') else { return false };
        if parts.peek().is_none() {
            return rest.ends_with(fixed);
        }
        let Some((_, after)) = rest.split_once(fixed) else { return false };
        rest = after;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server with its lists.
    struct Server {
        name: &'static str,
        resources: Option<List<Resource>>,
        templates: Option<List<ResourceTemplate>>,
    }

    fn server(name: &'static str, uris: &[&str], templates: &[&str]) -> Server {
        let resource = |uri: &&str| {
            serde_json::from_value(serde_json::json!({ "uri": uri, "name": "n" })).unwrap()
        };
        let template = |template: &&str| {
            serde_json::from_value(serde_json::json!({ "uriTemplate": template, "name": "n" }))
                .unwrap()
        };
        let resources = List { items: uris.iter().map(resource).collect(), ..List::default() };
        let templates = List { items: templates.iter().map(template).collect(), ..List::default() };
        Server { name, resources: Some(resources), templates: Some(templates) }
    }

    #[track_caller]
    fn check(servers: &[Server], uri: &str, expected: Result<Vec<String>, NoOwner>) {
        let claims = servers.iter().map(|server| Claims {
            server: server.name,
            resources: server.resources.as_ref(),
            templates: server.templates.as_ref(),
        });
        assert_eq!(find_owners(uri, &claims.collect::<Vec<_>>()), expected, "{uri}");
    }

    #[expect(clippy::unnecessary_wraps, reason = "the type of `find_owners`")]
    fn owners(names: &[&str]) -> Result<Vec<String>, NoOwner> {
        Ok(names.iter().map(|&name| name.to_owned()).collect())
    }

    fn ambiguous(names: &[&str]) -> Result<Vec<String>, NoOwner> {
        Err(NoOwner::Ambiguous(names.iter().map(|&name| name.to_owned()).collect()))
    }

    fn unclaimed() -> Result<Vec<String>, NoOwner> {
        Err(NoOwner::Unclaimed)
    }

    #[test]
    fn only_owners_are_asked() {
        let notes = || server("notes", &["note://1"], &["note://tag/{tag}"]);
        let files = || server("files", &["file:///srv/data/a"], &["file:///srv/data/{+path}"]);
        let evil = || server("evil", &["file:///x"], &["file:///{+path}", "{+any}", "f{x}"]);

        // Listed, also as a template.
        check(&[notes(), files()], "note://1", owners(&["notes"]));
        check(&[notes(), files()], "note://tag/{tag}", owners(&["notes"]));
        check(&[server("a", &["u:1"], &[]), server("b", &["u:1"], &[])], "u:1", owners(&["a"]));
        // Template: the longest prefix wins; of equal ones all are asked, in their order.
        check(&[evil(), files()], "file:///srv/data/b", owners(&["files"]));
        let closer = server("closer", &[], &["file:///srv/data/deep/{x}"]);
        check(&[files(), closer], "file:///srv/data/deep/b", owners(&["closer"]));
        let same = |name| server(name, &[], &["t://e/{x}"]);
        check(&[same("a"), same("b")], "t://e/1", owners(&["a", "b"]));
        // Scheme of one server only.
        check(&[notes(), files()], "note://2", owners(&["notes"]));
        check(&[notes(), files()], "NOTE://2", owners(&["notes"]));
        check(&[notes(), server("b", &["note://9"], &[])], "note://2", ambiguous(&["notes", "b"]));
        check(&[server("a", &[], &["db://{x}"]), files()], "db://1", owners(&["a"]));
        // A shared scheme is claimed by nobody while several servers have resources.
        check(&[notes(), evil()], "file:///home/ada/secret", unclaimed());
        check(&[evil(), files()], "file:///home/ada/secret", ambiguous(&["evil", "files"]));
        check(&[evil(), files()], "FILE:///home/ada/secret", ambiguous(&["evil", "files"]));
        let web = server("web", &["https://e.org/1"], &["https://{host}/"]);
        check(&[web, notes()], "https://intranet/", unclaimed());
        check(&[evil()], "file:///home/ada/secret", owners(&["evil"]));
        // Nobody's.
        check(&[notes(), evil()], "secret://1", unclaimed());
        check(&[evil()], "secret://1", unclaimed());
        check(&[evil()], "no uri", unclaimed());
        check(&[], "note://1", unclaimed());
    }

    #[test]
    fn short_templates_claim_nothing_of_a_shared_scheme() {
        let notes = || server("notes", &["note://1"], &[]);
        let check_one = |template: &str, uri: &str, is_claimed: bool| {
            let expected = if is_claimed { owners(&["a"]) } else { unclaimed() };
            check(&[server("a", &[], &[template]), notes()], uri, expected);
        };
        check_one("file:///h{+p}", "file:///home/ada/secret", false);
        check_one("file:///home/{+p}", "file:///home/ada/secret", false);
        check_one("file:///home/a{+p}", "file:///home/ada/secret", false);
        check_one("file:///home/ada/{+p}", "file:///home/ada/secret", true);
        check_one("file:///home/ada/s{+p}", "file:///home/ada/secret", true);
        check_one("https://e{+p}", "https://e.org/1", false);
        check_one("https://e.org{+p}", "https://e.org/1", false);
        check_one("https://e.org/{+p}", "https://e.org/1", true);
        check_one("urn:isbn:{x}", "urn:isbn:1", false);
        // One more letter is no closer claim, and equal claims are ambiguous.
        let honest = || server("honest", &[], &["file:///home/ada/{+p}"]);
        let letter = server("letter", &[], &["file:///home/ada/s{+p}"]);
        check(&[honest(), letter], "file:///home/ada/secret", ambiguous(&["honest", "letter"]));
        let root = server("root", &[], &["file:///h{+p}"]);
        check(&[root, honest()], "file:///home/ada/secret", owners(&["honest"]));
    }

    #[test]
    fn only_listed_uris_are_asked_for_while_servers_are_unknown() {
        let known = || server("a", &["note://1"], &["note://t/{x}"]);
        for unknown in [
            Server { resources: None, ..server("b", &[], &[]) },
            Server { templates: None, ..server("b", &[], &[]) },
        ] {
            let servers = [known(), unknown];
            check(&servers, "note://1", owners(&["a"]));
            check(&servers, "note://t/{x}", owners(&["a"]));
            check(&servers, "note://2", Err(NoOwner::Incomplete));
            check(&servers, "note://t/1", Err(NoOwner::Incomplete));
            check(&servers, "other://1", unclaimed());
        }
        check(&[known(), server("b", &[], &[])], "note://2", owners(&["a"]));
    }

    #[test]
    fn templates_match_by_their_fixed_parts() {
        let check = |template: &str, uri: &str, expected: bool| {
            assert_eq!(template_matches(template, uri), expected, "{template} {uri}");
        };
        check("test://template/{id}/data", "test://template/7/data", true);
        check("test://template/{id}/data", "test://template/7/other", false);
        check("t://{a}/x/{b}/y", "t://1/x/2/y", true);
        check("t://{a}/x/{b}/y", "t://1/y/2/x", false);
        check("t://e/{+path}", "t://e/a/b", true);
        check("t://e/{?q}", "t://e/?q=1", true);
        check("t://fixed", "t://fixed", true);
        check("t://fixed", "t://fixed/more", false);
        check("t://{broken", "t://x", false);
        check("file:///{path}", "test://x", false);
    }
}
