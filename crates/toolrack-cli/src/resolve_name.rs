//! From a name that was typed to a server and what is behind it.
//!
//! **Invariant:** pure. Nothing is started to find out which server is meant.

use crate::error::Failure;
use crate::server_selection::{Kind, Servers};
use crate::suggest::{meant, near};
use crate::suggested_command::word;

/// Between a server and its tool where a person types.
const TYPED: [&str; 2] = [".", "/"];
/// Between a server and its tool in public names.
const PUBLIC: [&str; 2] = ["__", "_"];

/// A server and something that it has, under the name that the server gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meant {
    pub(crate) server: String,
    pub(crate) item: String,
}

impl Meant {
    fn new(server: &str, item: &str) -> Self {
        Self { server: server.to_owned(), item: item.to_owned() }
    }
}

/// What `server.tool` or `server/tool` means, if there is such a server. The longest name of a server wins.
pub(crate) fn plain(typed: &str, servers: &Servers) -> Option<Meant> {
    match servers.kind {
        Kind::Typed => Some(Meant::new(servers.names().next()?, typed)),
        Kind::Configured => split(typed, servers, &TYPED),
    }
}

/// What a public name may mean: a server and what is behind it.
pub(crate) fn public(typed: &str, servers: &Servers) -> Option<Meant> {
    let typed = typed.strip_prefix("mcp__").unwrap_or(typed);
    split(typed, servers, &PUBLIC)
}

fn split(typed: &str, servers: &Servers, separators: &[&str]) -> Option<Meant> {
    let behind = |name: &str| {
        let rest = typed.strip_prefix(name)?;
        separators.iter().find_map(|it| rest.strip_prefix(it)).filter(|it| !it.is_empty())
    };
    let found = servers.names().filter_map(|name| Some((name, behind(name)?)));
    found.max_by_key(|(name, _)| name.len()).map(|(name, rest)| Meant::new(name, rest))
}

/// What the only server there is makes of a name.
pub(crate) fn alone(typed: &str, servers: &Servers) -> Option<Meant> {
    servers.only().map(|it| Meant::new(&it.name, typed))
}

/// A tool that was typed without its server must be that of one server alone. What cannot be ruled out is said: the
/// `silent` servers, whose tools nobody knows, may have a tool of that name too.
pub(crate) fn bare(
    typed: &str,
    owners: &[&str],
    silent: &[&str],
) -> Result<Option<String>, Failure> {
    match owners {
        [owner] if !silent.is_empty() => Ok(Some(format!(
            "note: `{typed}` is taken for `{owner}.{typed}`; the tools of {} are not known",
            silent.join(", ")
        ))),
        [] | [_] => Ok(None),
        [first, ..] => {
            let spellings: Vec<String> = owners.iter().map(|it| format!("{it}.{typed}")).collect();
            let message =
                format!("several servers have a tool `{typed}`: `{}`", spellings.join("`, `"));
            let first = word(&format!("{first}.{typed}"));
            let hint = format!("say which one is meant, as in `toolrack call {first}`");
            Err(Failure::usage(message, hint))
        }
    }
}

/// Nothing of this name is known. `spellings` are names that would have worked.
pub(crate) fn unknown<'a>(
    what: &str,
    typed: &str,
    servers: &Servers,
    spellings: impl Iterator<Item = &'a str>,
) -> Failure {
    if servers.configs.is_empty() {
        return Servers::nobody();
    }
    let close = meant(&near(typed, spellings));
    let start = TYPED.iter().find_map(|it| typed.split_once(it)).map(|(start, _)| start);
    let server = start.map(|it| near(it, servers.names())).unwrap_or_default();
    let message = match (close.is_empty(), start) {
        (true, Some(start)) => {
            format!("there is no server `{start}` in the config{}", meant(&server))
        }
        _ => format!("there is no {what} `{typed}`{close}"),
    };
    let names: Vec<&str> = servers.names().collect();
    let hint = format!("write `server.{what}`; the servers are: {}", names.join(", "));
    Failure::unknown(message, hint)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use toolrack_config::{McpServerConfig, Names};

    use super::*;

    fn servers(kind: Kind, names: &[&str]) -> Servers {
        let configs = names.iter().map(|it| McpServerConfig::stdio(*it, "x", &[])).collect();
        Servers { configs, names: Names::default(), dir: PathBuf::new(), kind }
    }

    #[track_caller]
    fn check(found: Option<Meant>, expected: Option<(&str, &str)>) {
        assert_eq!(found, expected.map(|(server, item)| Meant::new(server, item)));
    }

    #[test]
    fn names_begin_with_a_server() {
        let both = servers(Kind::Configured, &["git", "git.hub", "my_server"]);
        check(plain("git.log", &both), Some(("git", "log")));
        check(plain("git/log", &both), Some(("git", "log")));
        check(plain("git.hub.log", &both), Some(("git.hub", "log")));
        check(plain("git_log", &both), None);
        check(plain("git.", &both), None);
        check(plain("svn.log", &both), None);
        check(public("git_log", &both), Some(("git", "log")));
        check(public("mcp__git__log", &both), Some(("git", "log")));
        check(public("my_server_do_it", &both), Some(("my_server", "do_it")));
        check(public("svn_log", &both), None);
    }

    #[test]
    fn a_typed_server_takes_names_as_they_are() {
        let typed = servers(Kind::Typed, &["npx"]);
        check(plain("a.b/c", &typed), Some(("npx", "a.b/c")));
        check(alone("x", &typed), Some(("npx", "x")));
        check(alone("x", &servers(Kind::Configured, &["a", "b"])), None);
    }

    #[track_caller]
    fn check_bare(owners: &[&str], silent: &[&str], expected: Result<Option<&str>, &str>) {
        let found = bare("echo", owners, silent).map_err(|it| it.faults()[0].message.clone());
        assert_eq!(found, expected.map(|it| it.map(str::to_owned)).map_err(str::to_owned));
    }

    #[test]
    fn a_tool_without_its_server_is_that_of_one_server_alone() {
        check_bare(&[], &["c"], Ok(None));
        check_bare(&["a"], &[], Ok(None));
        let note = "note: `echo` is taken for `a.echo`; the tools of b, c are not known";
        check_bare(&["a"], &["b", "c"], Ok(Some(note)));
        let several = "several servers have a tool `echo`: `a.echo`, `b.echo`";
        check_bare(&["a", "b"], &["c"], Err(several));
    }

    #[track_caller]
    fn check_unknown(typed: &str, expected: &str) {
        let known = ["git.log", "git_log", "git.show"];
        let servers = servers(Kind::Configured, &["git", "mail"]);
        let failure = unknown("tool", typed, &servers, known.into_iter());
        assert_eq!(failure.faults()[0].message, expected);
    }

    #[test]
    fn what_may_have_been_meant_is_said() {
        check_unknown(
            "git.lgo",
            "there is no tool `git.lgo`; did you mean `git.log` or `git_log`?",
        );
        check_unknown(
            "gti.xxxxxxxx",
            "there is no server `gti` in the config; did you mean `git`?",
        );
        check_unknown("zzz", "there is no tool `zzz`");
    }
}
