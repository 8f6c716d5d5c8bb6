//! The environment a server gets: a short list of ours, and what its definition names.
//!
//! **Invariant:** a variable that is neither on the list nor in the definition does not reach the
//! server, unless the whole environment was asked for.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};

/// What programs need to find their files, speak the user's language and reach the network.
const PASSED_ON: &[&str] = &[
    "ALL_PROXY",
    "COLORTERM",
    "DOCKER_CERT_PATH",
    "DOCKER_CONFIG",
    "DOCKER_CONTEXT",
    "DOCKER_HOST",
    "DOCKER_TLS_VERIFY",
    "HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "LANG",
    "LANGUAGE",
    "LOGNAME",
    "NODE_EXTRA_CA_CERTS",
    "NO_PROXY",
    "PATH",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SHELL",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TEMP",
    "TERM",
    "TMP",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

/// Families of names that are passed on as a whole: locale settings, and where package managers get
/// their packages from (without their tokens, which have other names).
const PASSED_ON_PREFIXES: &[&str] =
    &["LC_", "npm_config_registry", "npm_config_cache", "UV_INDEX_URL", "PIP_INDEX_URL"];

/// How much of our environment a server gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Inheritance {
    /// The short list: what programs need to find their files and reach the network.
    #[default]
    Listed,
    /// The short list, and every variable whose name begins with one of these.
    ListedAnd(&'static [&'static str]),
    /// All of it, secrets included.
    Everything,
}

/// The variables of a server, from ours and its own. Its own win.
pub(crate) fn environment(
    ours: impl IntoIterator<Item = (OsString, OsString)>,
    own: &HashMap<String, String>,
    inheritance: Inheritance,
) -> Vec<(OsString, OsString)> {
    let mut variables: Vec<(OsString, OsString)> = ours
        .into_iter()
        .filter(|(name, _)| is_passed_on(name, inheritance))
        .filter(|(name, _)| name.to_str().is_none_or(|name| !own.contains_key(name)))
        .collect();
    variables.extend(own.iter().map(|(name, value)| (name.into(), value.into())));
    variables
}

fn is_passed_on(name: &OsStr, inheritance: Inheritance) -> bool {
    let more = match inheritance {
        Inheritance::Listed => &[],
        Inheritance::ListedAnd(prefixes) => prefixes,
        Inheritance::Everything => return true,
    };
    name.to_str().is_some_and(|name| {
        let mut prefixes = PASSED_ON_PREFIXES.iter().chain(more);
        PASSED_ON.contains(&name) || prefixes.any(|it| name.starts_with(it))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(inheritance: Inheritance, own: &[(&str, &str)], expected: &[&str]) {
        let ours = [("PATH", "/bin"), ("LC_ALL", "C"), ("AWS_SECRET_ACCESS_KEY", "x"), ("A", "1")];
        let own = own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut found: Vec<String> =
            environment(ours.map(|(n, v)| (n.into(), v.into())), &own.collect(), inheritance)
                .into_iter()
                .map(|(name, value)| format!("{}={}", name.display(), value.display()))
                .collect();
        found.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn only_what_is_listed_or_named_reaches_the_server() {
        check(Inheritance::Listed, &[], &["LC_ALL=C", "PATH=/bin"]);
        check(Inheritance::Listed, &[("TOKEN", "t")], &["LC_ALL=C", "PATH=/bin", "TOKEN=t"]);
        check(Inheritance::Listed, &[("PATH", "/opt")], &["LC_ALL=C", "PATH=/opt"]);
        check(
            Inheritance::ListedAnd(&["AWS_"]),
            &[],
            &["AWS_SECRET_ACCESS_KEY=x", "LC_ALL=C", "PATH=/bin"],
        );
        check(
            Inheritance::Everything,
            &[("A", "2")],
            &["A=2", "AWS_SECRET_ACCESS_KEY=x", "LC_ALL=C", "PATH=/bin"],
        );
    }
}
