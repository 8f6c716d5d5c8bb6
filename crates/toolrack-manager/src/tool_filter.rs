//! Which tools of a server exist for everybody above us: first what is allowed, then what is denied.
//!
//! Patterns are matched against the names that the server gives, never against public names.
//!
//! **Invariant:** a tool that is kept out can be told by which rule.

use std::fmt;

use crate::glob;

/// What is let through for one server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    /// Only these, if there are any.
    allow: Vec<String>,
    /// Not these, from the config.
    deny: Vec<String>,
    /// Not these either, said while running.
    denied_tools: Vec<String>,
}

/// The rule that keeps a tool out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// There is a list of allowed tools, and it is not on it.
    NotAllowed {
        /// The list.
        allow: Vec<String>,
    },
    /// A pattern of the config denies it.
    Denied {
        /// The pattern.
        pattern: String,
    },
    /// It was denied while running, with `set_denied_tools`.
    DeniedTool {
        /// The pattern.
        pattern: String,
    },
}

impl Filter {
    pub(crate) fn new(allow: &[String], deny: &[String]) -> Self {
        Self { allow: allow.to_vec(), deny: deny.to_vec(), denied_tools: Vec::new() }
    }

    /// Replaces what was denied while running.
    pub(crate) fn set_denied_tools(&mut self, patterns: Vec<String>) {
        self.denied_tools = patterns;
    }

    /// The same patterns of the config, with what was denied while running taken over.
    pub(crate) fn heir(&self, allow: &[String], deny: &[String]) -> Self {
        Self { denied_tools: self.denied_tools.clone(), ..Self::new(allow, deny) }
    }

    /// The rule that keeps `tool` out, if one does.
    pub(crate) fn verdict(&self, tool: &str) -> Option<Rule> {
        if !self.allow.is_empty() && first_match(&self.allow, tool).is_none() {
            return Some(Rule::NotAllowed { allow: self.allow.clone() });
        }
        if let Some(pattern) = first_match(&self.deny, tool) {
            return Some(Rule::Denied { pattern: pattern.to_owned() });
        }
        let pattern = first_match(&self.denied_tools, tool)?;
        Some(Rule::DeniedTool { pattern: pattern.to_owned() })
    }

    /// The patterns that match none of `tools`, which are most likely misspelled.
    pub(crate) fn unused(&self, tools: &[&str]) -> Vec<String> {
        let patterns = self.allow.iter().chain(&self.deny).chain(&self.denied_tools);
        let is_unused = |pattern: &&String| !tools.iter().any(|tool| glob::matches(pattern, tool));
        patterns.filter(is_unused).cloned().collect()
    }
}

fn first_match<'a>(patterns: &'a [String], tool: &str) -> Option<&'a str> {
    patterns.iter().map(String::as_str).find(|pattern| glob::matches(pattern, tool))
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::NotAllowed { allow } => {
                write!(f, "it is not among the allowed `{}`", allow.join("`, `"))
            }
            Rule::Denied { pattern } => write!(f, "the rule `deny = \"{pattern}\"` matches it"),
            Rule::DeniedTool { pattern } => write!(f, "it was denied as `{pattern}`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(allow: &[&str], deny: &[&str], denied_tools: &[&str]) -> Filter {
        let owned = |it: &[&str]| it.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let mut filter = Filter::new(&owned(allow), &owned(deny));
        filter.set_denied_tools(owned(denied_tools));
        filter
    }

    #[track_caller]
    fn check(filter: &Filter, tool: &str, expected: Option<&str>) {
        let rule = filter.verdict(tool).map(|rule| rule.to_string());
        assert_eq!(rule.as_deref(), expected, "{tool}");
    }

    #[test]
    fn what_is_allowed_comes_first_and_what_is_denied_wins() {
        let open = filter(&[], &[], &[]);
        check(&open, "anything", None);
        let careful = filter(&["read_*", "write_note"], &["*_secret"], &["read_mail"]);
        check(&careful, "read_file", None);
        check(&careful, "write_note", None);
        check(&careful, "delete", Some("it is not among the allowed `read_*`, `write_note`"));
        check(&careful, "read_secret", Some("the rule `deny = \"*_secret\"` matches it"));
        check(&careful, "read_mail", Some("it was denied as `read_mail`"));
    }

    #[test]
    fn patterns_without_a_tool_are_found() {
        let filter = filter(&["read_*"], &["wirte_*", "read_b"], &["gone"]);
        assert_eq!(filter.unused(&["read_a", "read_b"]), ["wirte_*", "gone"]);
        assert_eq!(filter.unused(&[]), ["read_*", "wirte_*", "read_b", "gone"]);
    }

    #[test]
    fn a_new_config_keeps_what_was_denied_while_running() {
        let old = filter(&[], &["a"], &["b"]);
        assert_eq!(old.heir(&["c".to_owned()], &[]), filter(&["c"], &[], &["b"]));
    }
}
