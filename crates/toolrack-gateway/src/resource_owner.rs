//! Which servers are asked for a resource: only those that have claimed its URI.
//!
//! A URI can be private (`file:///home/ada/taxes.pdf`), and a server that gets it by mistake learns it and may answer it.
//! So a server is asked only if it lists the URI, has a template for it, or is the only one with its scheme.
//!
//! Schemes that many servers share say nothing about the owner: listing one `file:` URI, or the template
//! `file:///{+path}`, claims no other file, unless no other server has resources.

use std::collections::BTreeMap;

/// Schemes that belong to no server.
const SHARED_SCHEMES: [&str; 6] = ["file", "http", "https", "ftp", "data", "urn"];

/// URIs and URI templates of one server that has resources.
#[derive(Debug, Default)]
pub(crate) struct Claims<'a> {
    pub(crate) server: &'a str,
    pub(crate) uris: Vec<&'a str>,
    pub(crate) templates: Vec<&'a str>,
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

/// The servers to ask for a URI, the likeliest first. `n_unknown` is the number of servers that may have
/// resources and have not listed them.
pub(crate) fn find_owners(
    uri: &str,
    claims: &[Claims<'_>],
    n_unknown: usize,
) -> Result<Vec<String>, NoOwner> {
    // A completion refers to a template by its own text. Of servers that list the same URI the first one wins.
    let lists = |claim: &&Claims<'_>| claim.uris.contains(&uri) || claim.templates.contains(&uri);
    if let Some(claim) = claims.iter().find(lists) {
        return Ok(vec![claim.server.to_owned()]);
    }
    let mut by_length = BTreeMap::<usize, Vec<String>>::new();
    for claim in claims {
        let templates = claim.templates.iter().filter(|template| names_more_than_scheme(template));
        let lengths = templates.filter(|template| template_matches(template, uri));
        if let Some(length) = lengths.map(|template| fixed_prefix(template).len()).max() {
            by_length.entry(length).or_default().push(claim.server.to_owned());
        }
    }
    if let Some(servers) = by_length.into_values().next_back() {
        return Ok(servers);
    }
    let Some(scheme) = scheme(uri) else { return Err(NoOwner::Unclaimed) };
    let has_scheme = |claim: &&Claims<'_>| {
        let templates = claim.templates.iter().map(|template| fixed_prefix(template));
        claim.uris.iter().copied().chain(templates).any(|text| {
            self::scheme(text).is_some_and(|claimed| claimed.eq_ignore_ascii_case(scheme))
        })
    };
    let claimants = claims.iter().filter(has_scheme).map(|claim| claim.server.to_owned());
    let claimants: Vec<String> = claimants.collect();
    let is_shared = SHARED_SCHEMES.iter().any(|shared| shared.eq_ignore_ascii_case(scheme));
    match claimants.len() {
        0 => Err(NoOwner::Unclaimed),
        1 if is_shared && claims.len() > 1 => Err(NoOwner::Unclaimed),
        1 if n_unknown > 0 => Err(NoOwner::Incomplete),
        1 => Ok(claimants),
        _ => Err(NoOwner::Ambiguous(claimants)),
    }
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

/// Whether a template claims less than a whole scheme.
fn names_more_than_scheme(template: &str) -> bool {
    let prefix = fixed_prefix(template);
    scheme(prefix).is_some_and(|scheme| {
        prefix.get(scheme.len() + 1..).is_some_and(|rest| !rest.trim_matches('/').is_empty())
    })
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

    #[test]
    fn only_owners_are_asked() {
        let claim = |server, uris: &[&'static str], templates: &[&'static str]| Claims {
            server,
            uris: uris.to_vec(),
            templates: templates.to_vec(),
        };
        let unclaimed = || Err(NoOwner::Unclaimed);
        let owners = |names: &[&str]| Ok(names.iter().map(|&name| name.to_owned()).collect());
        let ambiguous = |names: &[&str]| {
            Err(NoOwner::Ambiguous(names.iter().map(|&name| name.to_owned()).collect()))
        };
        let check = |claims: &[Claims<'_>], uri: &str, expected: Result<Vec<String>, NoOwner>| {
            assert_eq!(find_owners(uri, claims, 0), expected, "{uri} {claims:?}");
        };
        let notes = || claim("notes", &["note://1"], &["note://tag/{tag}"]);
        let files = || claim("files", &["file:///data/a"], &["file:///data/{+path}"]);
        let evil = || claim("evil", &["file:///x"], &["file:///{+path}", "{+any}", "f{x}"]);

        // Listed, also as a template.
        check(&[notes(), files()], "note://1", owners(&["notes"]));
        check(&[notes(), files()], "note://tag/{tag}", owners(&["notes"]));
        check(&[claim("a", &["u:1"], &[]), claim("b", &["u:1"], &[])], "u:1", owners(&["a"]));
        // Template: the longest prefix wins; of equal ones all are asked, in their order.
        check(&[evil(), files()], "file:///data/b", owners(&["files"]));
        let closer = claim("closer", &[], &["file:///data/deep/{x}"]);
        check(&[files(), closer], "file:///data/deep/b", owners(&["closer"]));
        let same = |server| claim(server, &[], &["t://e/{x}"]);
        check(&[same("a"), same("b")], "t://e/1", owners(&["a", "b"]));
        // Scheme of one server only.
        check(&[notes(), files()], "note://2", owners(&["notes"]));
        check(&[notes(), files()], "NOTE://2", owners(&["notes"]));
        check(&[notes(), claim("b", &["note://9"], &[])], "note://2", ambiguous(&["notes", "b"]));
        check(&[claim("a", &[], &["db://{x}"]), files()], "db://1", owners(&["a"]));
        // A shared scheme is claimed by nobody while several servers have resources.
        check(&[notes(), evil()], "file:///home/ada/secret", unclaimed());
        check(&[evil(), files()], "file:///home/ada/secret", ambiguous(&["evil", "files"]));
        check(&[evil(), files()], "FILE:///home/ada/secret", ambiguous(&["evil", "files"]));
        let web = claim("web", &["https://e.org/1"], &["https://{host}/"]);
        check(&[web, notes()], "https://intranet/", unclaimed());
        check(&[evil()], "file:///home/ada/secret", owners(&["evil"]));
        // Nobody's.
        check(&[notes(), evil()], "secret://1", unclaimed());
        check(&[evil()], "secret://1", unclaimed());
        check(&[evil()], "no uri", unclaimed());
        check(&[], "note://1", unclaimed());
    }

    #[test]
    fn scheme_is_not_claimed_while_servers_are_unknown() {
        let claims =
            [Claims { server: "a", uris: vec!["note://1"], templates: vec!["note://t/{x}"] }];
        let find = |uri| find_owners(uri, &claims, 1);
        assert_eq!(find("note://2"), Err(NoOwner::Incomplete));
        assert_eq!(find("note://1"), Ok(vec!["a".to_owned()]));
        assert_eq!(find("note://t/1"), Ok(vec!["a".to_owned()]));
        assert_eq!(find("other://1"), Err(NoOwner::Unclaimed));
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
