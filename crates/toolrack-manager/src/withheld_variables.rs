//! Hint for a server that failed because a variable of ours was not passed to it.
//!
//! A server from a config file inherits only an allowlist of our environment, so a token that works in a terminal is
//! missing there.

use toolrack_client::ConnectError;
use toolrack_config::{McpServerConfig, McpTransport};
use toolrack_stdio::withheld_variables;
use toolrack_transport::CloseReason;

use crate::connector::env_inheritance;

/// Variables that well-known servers need, by a part of their command or package.
const KNOWN_VARIABLES: [(&str, &str); 16] = [
    ("airtable", "AIRTABLE_API_KEY"),
    ("brave-search", "BRAVE_API_KEY"),
    ("exa", "EXA_API_KEY"),
    ("figma", "FIGMA_API_KEY"),
    ("firecrawl", "FIRECRAWL_API_KEY"),
    ("github", "GITHUB_PERSONAL_ACCESS_TOKEN"),
    ("github", "GITHUB_TOKEN"),
    ("gitlab", "GITLAB_PERSONAL_ACCESS_TOKEN"),
    ("google-maps", "GOOGLE_MAPS_API_KEY"),
    ("linear", "LINEAR_API_KEY"),
    ("notion", "NOTION_TOKEN"),
    ("sentry", "SENTRY_ACCESS_TOKEN"),
    ("slack", "SLACK_BOT_TOKEN"),
    ("stripe", "STRIPE_SECRET_KEY"),
    ("supabase", "SUPABASE_ACCESS_TOKEN"),
    ("tavily", "TAVILY_API_KEY"),
];

/// What to do about a withheld variable that the failure names or that the server is known to need.
pub(crate) fn hint(config: &McpServerConfig, output: &[String]) -> Option<String> {
    let (program, env) = match &config.transport {
        McpTransport::Stdio { command, args, env, .. } => {
            (format!("{command} {}", args.join(" ")), env)
        }
        McpTransport::Package { package, env, .. } => (package.identifier.clone(), env),
        _ => return None,
    };
    let mut withheld = withheld_variables(env_inheritance(config));
    withheld.retain(|name| !env.contains_key(name));
    let (name, verb) = choose(&withheld, &program, output)?;
    Some(format!(
        "`{name}`, {verb}, is set here but not passed to it; add `env = {{ {name} = \"${{{name}}}\" }}` to its \
         entry, or `inherit_env = true` to pass everything"
    ))
}

/// The withheld variable that explains the failure, and how we know.
fn choose<'a>(
    withheld: &'a [String],
    program: &str,
    output: &[String],
) -> Option<(&'a str, &'static str)> {
    let is_named = |name: &&String| output.iter().any(|line| names_variable(line, name));
    if let Some(name) = withheld.iter().filter(is_named).min() {
        return Some((name, "which the server names"));
    }
    let is_known = |name: &&String| {
        KNOWN_VARIABLES.iter().any(|(part, known)| program.contains(part) && known == name)
    };
    withheld.iter().find(is_known).map(|name| (name.as_str(), "which such servers need"))
}

/// Whether a line contains the name of a variable as a word. Names without `_` are also words of the language.
fn names_variable(line: &str, name: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    name.contains('_')
        && line.match_indices(name).any(|(start, _)| {
            let before = line.get(..start).and_then(|text| text.chars().next_back());
            let after = line.get(start + name.len()..).and_then(|text| text.chars().next());
            !before.is_some_and(is_part) && !after.is_some_and(is_part)
        })
}

/// What a server wrote before it failed.
pub(crate) fn output_of_connect_error(error: &ConnectError) -> Vec<String> {
    match error {
        ConnectError::Exited { exit, sample } => {
            exit.stderr.iter().chain(sample).cloned().collect()
        }
        ConnectError::TimedOut { stats, .. } => stats.stderr.clone(),
        ConnectError::Refused { source, .. } => vec![source.message.clone()],
        _ => Vec::new(),
    }
}

/// What a server wrote before its connection was lost.
pub(crate) fn output_of_close_reason(reason: &CloseReason) -> &[String] {
    match reason {
        CloseReason::Exited(exit) => &exit.stderr,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(withheld: &[&str], program: &str, output: &str, expected: Option<&str>) {
        let withheld: Vec<String> = withheld.iter().map(|name| (*name).to_owned()).collect();
        let chosen = choose(&withheld, program, &[output.to_owned()]);
        assert_eq!(chosen.map(|(name, _)| name), expected, "{output}");
    }

    #[test]
    fn variable_is_found_as_a_word_of_the_output_or_in_the_known_list() {
        let set = &["API_KEY", "GITHUB_TOKEN", "MY_GITHUB_TOKEN", "PAGER"];
        check(set, "node x.js", "Error: GITHUB_TOKEN is not set", Some("GITHUB_TOKEN"));
        check(set, "node x.js", "set $MY_GITHUB_TOKEN first", Some("MY_GITHUB_TOKEN"));
        check(set, "node x.js", "OTHER_GITHUB_TOKENS", None);
        // A word of the language, which says nothing about a variable.
        check(set, "node x.js", "PAGER", None);
        check(set, "npx -y @modelcontextprotocol/server-github", "boom", Some("GITHUB_TOKEN"));
        check(&["API_KEY"], "npx -y @modelcontextprotocol/server-github", "boom", None);
        check(&[], "npx -y @modelcontextprotocol/server-github", "GITHUB_TOKEN", None);
    }
}
