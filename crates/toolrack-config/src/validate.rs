//! Validation rules for names and texts, applied when a file is read and again after interpolation.

use url::Url;

use crate::diagnostics::{DiagnosticKind, Severity};
use crate::interpolate::{Part, has_references, parts};

/// Purpose of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextRule {
    /// A program or folder.
    Command,
    /// A program without arguments; may mistakenly contain them.
    LoneCommand,
    /// An argument.
    Any,
    /// An environment variable.
    Value,
    Url,
    Header,
}

/// Names with another meaning on the command line or on disk.
const RESERVED: [&str; 3] = ["toolrack", ".", ".."];

/// Maximum length of a name.
const MAX_NAME_BYTES: usize = 128;

/// Violation of the naming rules for servers.
pub(crate) fn server_name(name: &str) -> Option<(DiagnosticKind, &'static str)> {
    if name.trim().is_empty() {
        return Some((DiagnosticKind::Missing, "is required and must not be empty"));
    }
    if RESERVED.contains(&name) {
        return Some((DiagnosticKind::Reserved, "is reserved; choose another name"));
    }
    if name.trim() != name {
        return Some((DiagnosticKind::Invalid, "has surrounding spaces; remove them"));
    }
    if name.contains(|value: char| value.is_control() || matches!(value, '/' | '\\')) {
        return Some((DiagnosticKind::Invalid, "must not contain slashes or control characters"));
    }
    let long = name.len() > MAX_NAME_BYTES;
    long.then_some((DiagnosticKind::Invalid, "is longer than 128 bytes; choose a shorter one"))
}

/// Whether the header name is valid.
pub(crate) fn header_name(name: &str) -> bool {
    let letter = |value: char| value.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(value);
    !name.is_empty() && name.chars().all(letter)
}

/// Whether the variable name is valid.
pub(crate) fn variable_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

/// All problems of a text in a file.
pub(crate) fn text(text: &str, rule: TextRule) -> Vec<(Severity, String)> {
    let mut problems = Vec::new();
    for part in parts(text) {
        match part {
            Part::Invalid(message) => problems.push((Severity::Error, message)),
            // The text is not shown: it may be a password that looks like this.
            Part::Verbatim(_) => {
                let message = "contains a `${` that is not a reference and is passed on verbatim; write `$${` to make this explicit";
                problems.push((Severity::Warning, message.to_owned()));
            }
            Part::Literal(_) | Part::Reference { .. } => {}
        }
    }
    let message = match rule {
        // Text around references can be checked before interpolation.
        TextRule::Url if has_references(text) => user(&outline(text)),
        _ if has_references(text) => None,
        _ => value(text, rule),
    };
    problems.extend(message.map(|message| (Severity::Error, message.to_owned())));
    // Not for arguments, where spaces may be meant.
    if rule != TextRule::Any && text.trim() != text && !text.trim().is_empty() {
        problems.push((Severity::Warning, "has surrounding spaces".to_owned()));
    }
    // A path may contain spaces; a bare program name hardly does.
    if rule == TextRule::LoneCommand && text.trim().contains(' ') && !text.contains(['/', '\\']) {
        let message = "contains a space, and no shell splits it; put arguments into `args`";
        problems.push((Severity::Warning, message.to_owned()));
    }
    problems
}

/// Problem of a resolved value. The message does not contain the value, which may be secret.
pub(crate) fn value(value: &str, rule: TextRule) -> Option<&'static str> {
    match rule {
        TextRule::Command | TextRule::LoneCommand if value.trim().is_empty() => {
            Some("must not be empty")
        }
        TextRule::Url => url(value),
        // A line break would let a value add headers of its own.
        TextRule::Header if value.contains(|value: char| value.is_control() && value != '\t') => {
            Some("must not contain line breaks or other control characters")
        }
        TextRule::Header if !value.is_ascii() => Some("must be plain ASCII to be sent as a header"),
        _ if value.contains('\0') => Some("must not contain the NUL character"),
        _ => None,
    }
}

fn url(text: &str) -> Option<&'static str> {
    match Url::parse(text) {
        Err(_malformed) if text.trim().is_empty() => Some("must not be empty"),
        Err(_malformed) if !text.contains("://") => {
            Some("is not a valid URL; write the full URL, such as `https://example.com/mcp`")
        }
        Err(_malformed) => Some("is not a valid URL; check host, port and special characters"),
        // A Unix socket.
        Ok(url) if url.scheme() == "unix" && text.starts_with("unix:/") => None,
        Ok(url) if !matches!(url.scheme(), "http" | "https") => {
            Some("must start with `https://` or `http://`")
        }
        Ok(_) => user(text),
    }
}

/// URLs are shown and logged in many places, and the credentials in them are never sent.
fn user(text: &str) -> Option<&'static str> {
    let url = Url::parse(text).ok()?;
    let has_user = !url.username().is_empty() || url.password().is_some();
    has_user.then_some(
        "must not contain credentials; send them in a header, such as `Authorization: Basic …`",
    )
}

/// The template with a placeholder for each reference.
fn outline(text: &str) -> String {
    let piece = |part| match part {
        Part::Literal(text) | Part::Verbatim(text) => text,
        Part::Reference { .. } | Part::Invalid(_) => "x",
    };
    parts(text).into_iter().map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn name(text: &str, expected: Option<DiagnosticKind>) {
        assert_eq!(server_name(text).map(|server_name| server_name.0), expected, "{text:?}");
    }

    #[test]
    fn server_names_are_checked() {
        name("git-hub 2", None);
        name("io.github.user", None);
        name("", Some(DiagnosticKind::Missing));
        name("  ", Some(DiagnosticKind::Missing));
        name(" a", Some(DiagnosticKind::Invalid));
        name("a/b", Some(DiagnosticKind::Invalid));
        name("a\nb", Some(DiagnosticKind::Invalid));
        name("toolrack", Some(DiagnosticKind::Reserved));
        name("..", Some(DiagnosticKind::Reserved));
        name(&"x".repeat(129), Some(DiagnosticKind::Invalid));
    }

    #[track_caller]
    fn check(text: &str, rule: TextRule, expected: &str) {
        let lines: Vec<_> = super::text(text, rule)
            .into_iter()
            .map(|(severity, _)| match severity {
                Severity::Error => 'w',
                Severity::Warning => 'o',
            })
            .collect();
        assert_eq!(lines.into_iter().collect::<String>(), expected, "{text:?}");
    }

    #[test]
    fn texts_have_rules() {
        check("npx", TextRule::LoneCommand, "");
        check("", TextRule::Command, "w");
        check("npx -y server", TextRule::LoneCommand, "o");
        check("/opt/my server/run", TextRule::LoneCommand, "");
        check(" npx", TextRule::Command, "o");
        check("https://example.com/mcp", TextRule::Url, "");
        check("example.com/mcp", TextRule::Url, "w");
        check("ftp://example.com", TextRule::Url, "w");
        check("https://", TextRule::Url, "w");
        check("${BASE}/mcp", TextRule::Url, "");
        check("https://${HOST}:${PORT}/mcp", TextRule::Url, "");
        check("https://example.com/${PATH:-a@b}/c@d", TextRule::Url, "");
        check("unix:/run/a@b.sock:/mcp", TextRule::Url, "");
        for user in ["name:pass", "name", ":pass", "name:${PASS}", "${NAME}", "${NAME}:${PASS}"] {
            check(&format!("https://{user}@example.com/mcp"), TextRule::Url, "w");
        }
        check("a\nb", TextRule::Header, "w");
        check("Bearer ${TOKEN}", TextRule::Header, "");
        check("${keyring:x}", TextRule::Header, "w");
        check("${v%.*}", TextRule::Any, "o");
        check("a\0b", TextRule::Any, "w");
        check(" spaces are fine ", TextRule::Any, "");
    }

    #[test]
    fn header_and_variable_names_are_checked() {
        assert!(header_name("X-Api_Key") && !header_name("X Api") && !header_name(""));
        assert!(!header_name("Ä") && !header_name("a:b"));
        assert!(variable_name("A.b") && !variable_name("A=b") && !variable_name(""));
    }
}
