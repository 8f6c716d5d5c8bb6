//! Fuzz targets of config files, references and durations. docs/internal/fuzzing.md says how to run them.

use crate::duration::to_text;
use crate::interpolate::{Part, escaped, has_references, has_secret, parts};
use crate::{
    Dialect, Severity, VariableSource, detect, diff, interpolate, parse_duration, read, read_as,
    read_server, without_secrets,
};

type FuzzTarget = (&'static str, fn(&[u8]));

/// Name and function of every target.
pub const TARGETS: &[FuzzTarget] =
    &[("config", config), ("interpolate", interpolation), ("duration", duration)];

const DIALECTS: [Dialect; 13] = [
    Dialect::Toolrack,
    Dialect::McpServers,
    Dialect::ClaudeCode,
    Dialect::ClaudeDesktop,
    Dialect::Cursor,
    Dialect::Windsurf,
    Dialect::LmStudio,
    Dialect::Cline,
    Dialect::VsCode,
    Dialect::Zed,
    Dialect::Codex,
    Dialect::OpenCode,
    Dialect::Goose,
];

/// Every text is read, with positions within it; what is read can be written and read again.
fn config(data: &[u8]) {
    let [dialect, text @ ..] = data else { return };
    let text = String::from_utf8_lossy(text);
    let dialect = DIALECTS.get(usize::from(*dialect)).copied();
    let parsed = match dialect {
        Some(dialect) => read_as(dialect, "a", &text),
        None => read("a", &text),
    };
    assert_eq!(parsed.value.dialect, dialect.unwrap_or_else(|| detect("a", &text)));
    let n_lines = text.matches('\n').count() + 1;
    for diagnostic in &parsed.diagnostics {
        assert!(diagnostic.at.is_some_and(|at| (1..=n_lines).contains(&at.line)), "{diagnostic}");
        assert!(!diagnostic.message.is_empty());
    }
    if parsed.has_errors() {
        return;
    }
    for entry in parsed.value.entries() {
        let again = read_server(&entry.to_table());
        let errors: Vec<_> = again
            .diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.severity == Severity::Error)
            .collect();
        assert!(errors.is_empty(), "{errors:?}");
        let again = again.value.map(|entry| entry.to_table());
        assert_eq!(again, Some(entry.to_table()));
    }
    let resolved = parsed.value.resolve("main");
    assert!(diff(&resolved, &resolved).is_empty());
    for config in resolved {
        let _resolved =
            interpolate(&config, &|_source: VariableSource, name: &str| Ok(Some(name.to_owned())));
    }
}

/// Escaped text is text again, and no part of a text is lost.
fn interpolation(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let literal = |parts: Vec<Part<'_>>| -> Option<String> {
        let texts = parts.into_iter().map(|part| match part {
            Part::Literal(text) => Some(text.to_owned()),
            _ => None,
        });
        texts.collect()
    };
    assert_eq!(literal(parts(&escaped(&text))).as_deref(), Some(&*text));
    assert!(!has_references(&escaped(&text)));
    assert!(!has_secret(&text) || has_references(&text));
    for part in parts(&text) {
        match part {
            Part::Literal(part) | Part::Verbatim(part) => assert!(text.contains(part)),
            Part::Reference { name, .. } => assert!(!name.is_empty() && text.contains(name)),
            Part::Invalid(message) => assert!(!message.is_empty()),
        }
    }
    let clean = without_secrets(&text);
    assert_eq!(without_secrets(&clean), clean);
}

/// A duration is written as text that means the same.
fn duration(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(duration) = parse_duration(&text) else { return };
    assert_eq!(parse_duration(&to_text(duration)), Ok(duration), "{text:?}");
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_targets_hold() {
        toolrack_fuzz::check_targets(super::TARGETS);
    }
}
