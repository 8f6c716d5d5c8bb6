//! Tool filter: `allow` and `deny` patterns of a server, and the glob matcher.
//!
//! Patterns match the names on the server, never public names. A glob library would add paths, braces and character
//! classes, which tool names do not need.
//!
//! **Invariant:** for every tool that is denied, the rule that denies it can be named.

use std::fmt;
use std::str::Chars;

use toolrack_config::McpServerConfig;

/// Filter of one server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ToolFilter {
    /// If not empty, only matching tools are allowed.
    pub(crate) allow: Vec<String>,
    /// Denied by the config.
    pub(crate) deny: Vec<String>,
    /// Denied with `set_denied_tools`.
    pub(crate) denied_at_runtime: Vec<String>,
}

/// Rule that denies a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterRule {
    /// The config has an `allow` list, and the tool matches none of its patterns.
    NotAllowed {
        /// The list.
        allow: Vec<String>,
    },
    /// A `deny` pattern of the config matches.
    Denied {
        /// The pattern.
        pattern: String,
    },
    /// A pattern of `set_denied_tools` matches.
    DeniedAtRuntime {
        /// The pattern.
        pattern: String,
    },
}

impl ToolFilter {
    pub(crate) fn new(config: &McpServerConfig, denied_at_runtime: Vec<String>) -> Self {
        Self { allow: config.allow.clone(), deny: config.deny.clone(), denied_at_runtime }
    }

    /// The rule that denies `tool`, if any.
    pub(crate) fn denied_by(&self, tool: &str) -> Option<FilterRule> {
        if !self.allow.is_empty() && first_match(&self.allow, tool).is_none() {
            return Some(FilterRule::NotAllowed { allow: self.allow.clone() });
        }
        if let Some(pattern) = first_match(&self.deny, tool) {
            return Some(FilterRule::Denied { pattern: pattern.to_owned() });
        }
        let pattern = first_match(&self.denied_at_runtime, tool)?;
        Some(FilterRule::DeniedAtRuntime { pattern: pattern.to_owned() })
    }

    /// The patterns that match none of `tools`. They are probably misspelled.
    pub(crate) fn unused_patterns(&self, tools: &[&str]) -> Vec<String> {
        let patterns = self.allow.iter().chain(&self.deny).chain(&self.denied_at_runtime);
        let is_unused = |pattern: &&String| !tools.iter().any(|tool| glob_matches(pattern, tool));
        patterns.filter(is_unused).cloned().collect()
    }
}

fn first_match<'a>(patterns: &'a [String], tool: &str) -> Option<&'a str> {
    patterns.iter().map(String::as_str).find(|pattern| glob_matches(pattern, tool))
}

impl fmt::Display for FilterRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilterRule::NotAllowed { allow } => {
                write!(f, "it is not in `allow` (`{}`)", allow.join("`, `"))
            }
            FilterRule::Denied { pattern } => write!(f, "it matches `deny = \"{pattern}\"`"),
            FilterRule::DeniedAtRuntime { pattern } => {
                write!(f, "it matches `{pattern}`, denied at runtime")
            }
        }
    }
}

/// Glob matcher: `*` matches any number of characters, `?` exactly one, everything else itself.
///
/// Backtracks only to the last `*`, so the worst case is the product of both lengths and not exponential.
pub(crate) fn glob_matches(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    let mut last_star: Option<(Chars<'_>, Chars<'_>)> = None;
    loop {
        let mut next_text = text.clone();
        let mut next_pattern = pattern.clone();
        match (next_pattern.next(), next_text.next()) {
            (Some('*'), _) => {
                pattern = next_pattern;
                last_star = Some((pattern.clone(), text.clone()));
                continue;
            }
            (Some(expected), Some(found)) if expected == '?' || expected == found => {
                (pattern, text) = (next_pattern, next_text);
                continue;
            }
            (None, None) => return true,
            _ => {}
        }
        // Mismatch: let the last star match one more character, and try the rest of the pattern again.
        let Some((after_star, mut start)) = last_star.take() else { return false };
        if start.next().is_none() {
            return false;
        }
        (pattern, text) = (after_star.clone(), start.clone());
        last_star = Some((after_star, start));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filter(allow: &[&str], deny: &[&str], denied_at_runtime: &[&str]) -> ToolFilter {
        let owned = |patterns: &[&str]| -> Vec<String> {
            patterns.iter().map(|pattern| (*pattern).to_owned()).collect()
        };
        let (allow, deny) = (owned(allow), owned(deny));
        ToolFilter { allow, deny, denied_at_runtime: owned(denied_at_runtime) }
    }

    #[track_caller]
    fn check(filter: &ToolFilter, tool: &str, expected: Option<&str>) {
        let rule = filter.denied_by(tool).map(|rule| rule.to_string());
        assert_eq!(rule.as_deref(), expected, "{tool}");
    }

    #[test]
    fn deny_wins_over_allow() {
        let open = filter(&[], &[], &[]);
        check(&open, "anything", None);
        let careful = filter(&["read_*", "write_note"], &["*_secret"], &["read_mail"]);
        check(&careful, "read_file", None);
        check(&careful, "write_note", None);
        check(&careful, "delete", Some("it is not in `allow` (`read_*`, `write_note`)"));
        check(&careful, "read_secret", Some("it matches `deny = \"*_secret\"`"));
        check(&careful, "read_mail", Some("it matches `read_mail`, denied at runtime"));
    }

    #[test]
    fn patterns_without_a_tool_are_found() {
        let filter = filter(&["read_*"], &["wirte_*", "read_b"], &["gone"]);
        assert_eq!(filter.unused_patterns(&["read_a", "read_b"]), ["wirte_*", "gone"]);
        assert_eq!(filter.unused_patterns(&[]), ["read_*", "wirte_*", "read_b", "gone"]);
    }

    #[test]
    fn new_config_keeps_tools_denied_at_runtime() {
        let allow = vec!["c".to_owned()];
        let config = McpServerConfig { allow, ..McpServerConfig::stdio("s", "x", &[]) };
        let old = filter(&[], &["a"], &["b"]);
        assert_eq!(ToolFilter::new(&config, old.denied_at_runtime), filter(&["c"], &[], &["b"]));
    }

    #[track_caller]
    fn check_glob(pattern: &str, matching: &[&str], others: &[&str]) {
        for text in matching {
            assert!(glob_matches(pattern, text), "`{pattern}` should match `{text}`");
        }
        for text in others {
            assert!(!glob_matches(pattern, text), "`{pattern}` should not match `{text}`");
        }
    }

    #[test]
    fn glob_supports_star_and_question_mark() {
        check_glob("read", &["read"], &["", "rea", "reads", "Read"]);
        check_glob("*", &["", "a", "anything"], &[]);
        check_glob("write_*", &["write_", "write_file"], &["write", "rewrite_file"]);
        check_glob("*_file", &["read_file", "_file", "a_file_file"], &["file", "read_files"]);
        check_glob("a*b*c", &["abc", "a-b-b-c", "aXbYc"], &["acb", "ab"]);
        check_glob("get-?", &["get-x", "get-ü"], &["get-", "get-xy"]);
        check_glob("*?", &["a", "ab"], &[""]);
        check_glob("", &[""], &["a"]);
        check_glob("[a]", &["[a]"], &["a"]);
    }

    /// Exponential reference implementation.
    fn reference(pattern: &[char], text: &[char]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (Some(('*', rest)), _) => (0..=text.len()).any(|cut| reference(rest, &text[cut..])),
            (Some(('?', rest)), Some((_, text))) => reference(rest, text),
            (Some((expected, rest)), Some((found, text))) => {
                expected == found && reference(rest, text)
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn glob_agrees_with_reference(pattern in "[ab*?]{0,7}", text in "[ab]{0,8}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            let expected = reference(&chars(&pattern), &chars(&text));
            prop_assert_eq!(glob_matches(&pattern, &text), expected);
        }
    }
}
