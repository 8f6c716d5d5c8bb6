//! Secrets in the arguments of a program: where they stand, as far as names tell.
//!
//! **Invariant:** what only refers to something else is no secret.

use std::ops::Range;

use crate::redacted_config::{is_reference, is_secret_name};

/// A secret in an argument: what it is called, and where in the argument it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) name: String,
    pub(crate) range: Range<usize>,
}

/// For each argument the secret that it is or ends with: what follows `--token`, and the end of `--token=x`, of
/// `NAME=x` for `docker -e` and of `Authorization: x` for `--header`.
pub(crate) fn named(args: &[String]) -> Vec<Option<Spot>> {
    let mut awaited: Option<String> = None;
    let each = args.iter().map(|arg| {
        let flag = awaited.take().filter(|_| !arg.starts_with('-'));
        if is_reference(arg) {
            return None;
        }
        if let Some(flag) = flag {
            return Some(Spot { name: flag, range: 0..arg.len() });
        }
        let is_flag = arg.starts_with('-') && !arg.contains('=') && is_secret_name(arg);
        awaited = is_flag.then(|| arg.clone());
        let mut names = ['=', ':'].into_iter().filter_map(|it| Some(arg.split_once(it)?.0));
        // An address has secrets of its own.
        let name = names.find(|it| is_secret_name(it) && !it.contains("://"))?;
        Some(Spot { name: name.to_owned(), range: name.len() + 1..arg.len() })
    });
    each.collect()
}

/// The secrets in an argument that is an address, or ends with one: its password, and what its query calls secret.
pub(crate) fn in_url(arg: &str) -> Vec<Spot> {
    if is_reference(arg) {
        return Vec::new();
    }
    let Some((before, rest)) = arg.split_once("://") else { return Vec::new() };
    let start = before.len() + "://".len();
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = path.split(['/', '#']).next().unwrap_or_default();
    let userinfo = authority.rsplit_once('@').map_or("", |(userinfo, _)| userinfo);
    let password = userinfo.split_once(':').map(|(user, password)| Spot {
        name: "password".to_owned(),
        range: start + user.len() + 1..start + user.len() + 1 + password.len(),
    });
    let mut at = start + path.len() + 1;
    let query = query.split('#').next().unwrap_or_default();
    let members = query.split('&').filter_map(|member| {
        let here = at;
        at += member.len() + 1;
        let (name, _) = member.split_once('=').filter(|(name, _)| is_secret_name(name))?;
        Some(Spot { name: name.to_owned(), range: here + name.len() + 1..here + member.len() })
    });
    password.into_iter().chain(members).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names and values of secrets, one after the other.
    fn told<'a>(arg: &str, spots: impl IntoIterator<Item = &'a Spot>) -> String {
        let each = spots.into_iter().map(|it| format!("{}→{}", it.name, &arg[it.range.clone()]));
        each.collect::<Vec<_>>().join(", ")
    }

    #[track_caller]
    fn check(args: &[&str], expected: &[&str]) {
        let args: Vec<String> = args.iter().map(|&it| it.to_owned()).collect();
        let spots = named(&args);
        let found = args.iter().zip(&spots).map(|(arg, spot)| told(arg, spot));
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn secrets_are_found_by_the_names_before_them() {
        check(&["-y", "server", "/work"], &["", "", ""]);
        check(&["--token", "s3cret", "x"], &["", "--token→s3cret", ""]);
        check(&["--token=s3cret", "--token=${T}"], &["--token→s3cret", ""]);
        check(&["--token", "${T}", "x"], &["", "", ""]);
        check(&["--auth", "--verbose", "x"], &["", "", ""]);
        check(&["-e", "API_KEY=s3cret"], &["", "API_KEY→s3cret"]);
        check(&["Authorization: Bearer s3cret"], &["Authorization→ Bearer s3cret"]);
        check(&["https://token@h/?token=s3cret"], &[""]);
    }

    #[track_caller]
    fn check_url(arg: &str, expected: &str) {
        assert_eq!(told(arg, &in_url(arg)), expected);
    }

    #[test]
    fn addresses_have_passwords_and_queries() {
        check_url("postgresql://u:s3cret@h:5432/db", "password→s3cret");
        check_url("--dsn=postgresql://u:s3cret@h", "password→s3cret");
        check_url("https://h/mcp?a=1&api_key=s3cret&b=2#x", "api_key→s3cret");
        check_url("https://u:p@h?token=s3cret", "password→p, token→s3cret");
        check_url("https://u@h:80/a:b@c?x=1", "");
        check_url("https://u:${P}@h", "");
        check_url("u:p@h", "");
    }
}
