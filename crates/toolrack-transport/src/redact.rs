//! Redactor: replaces secret values in server output with their names.
//!
//! A server knows its own secrets and may print them, especially when it fails. Code that passes a secret to a server
//! adds it to the redactor. Stderr and unreadable lines are redacted as text before they are kept or logged;
//! results are redacted as JSON before they leave the process.
//!
//! **Invariant:** `Debug` shows the number of secrets and none of them. Redacted JSON is still valid JSON.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use memchr::memmem;
use parking_lot::RwLock;

use crate::sanitize::sanitize_line;

/// Shorter secrets are not redacted: they would match parts of unrelated words.
const MIN_SECRET_BYTES: usize = 6;

/// Set of secrets to redact. Clones share the set.
#[derive(Clone, Default)]
pub struct Redactor {
    /// Secrets by name.
    secrets: Arc<RwLock<BTreeMap<String, Secret>>>,
}

/// A secret in all its encodings. A short one has none.
#[derive(Default)]
struct Secret {
    plain: Option<String>,
    /// Escaped for a JSON string, and for a JSON string within a JSON string: many tools return JSON as text.
    escaped: Vec<String>,
}

impl Secret {
    fn new(value: &str) -> Self {
        // Trimmed, because a secret that was read from a file often ends with a line break.
        let plain = value.trim().to_owned();
        if plain.len() < MIN_SECRET_BYTES {
            return Self::default();
        }
        let once = escape_json(&plain);
        let twice = (once != plain).then(|| escape_json(&once));
        Self { plain: Some(plain), escaped: twice.into_iter().chain([once]).collect() }
    }
}

impl Redactor {
    /// Adds a secret, and removes the previous one of the same name.
    pub fn add_secret(&self, name: &str, value: &str) {
        let mut secrets = self.secrets.write();
        secrets.insert(name.to_owned(), Secret::new(value));
    }

    /// Whether there are no secrets.
    pub fn is_empty(&self) -> bool {
        self.secrets.read().is_empty()
    }

    /// Replaces each secret in the text by its name.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let secrets = self.secrets.read();
        let encodings = secrets.iter().flat_map(|(name, secret)| {
            secret.escaped.iter().chain(&secret.plain).map(move |encoding| (name, encoding))
        });
        let mut redacted = Cow::Borrowed(text);
        for (encoding, placeholder) in replacements(encodings, |encoding| text.contains(encoding)) {
            redacted = Cow::Owned(redacted.replace(encoding, &placeholder));
        }
        redacted
    }

    /// Redacts text of a server and sanitizes it to one line of at most `max_chars` characters.
    pub fn redact_line(&self, text: &str, max_chars: usize) -> String {
        // Before and after: a secret may contain characters that sanitizing changes, and may be split by such ones.
        let sanitized = sanitize_line(&self.redact(text), usize::MAX);
        sanitize_line(&self.redact(&sanitized), max_chars)
    }

    /// Replaces each secret within the strings of a JSON text, which stays valid JSON. Text without secrets is
    /// not copied, and the call is free if there are none.
    #[must_use]
    pub fn redact_json(&self, text: Bytes) -> Bytes {
        let secrets = self.secrets.read();
        let encodings = secrets.iter().flat_map(|(name, secret)| {
            // Within a JSON string only the escaped forms can occur.
            secret.escaped.iter().map(move |encoding| (name, encoding))
        });
        let mut found =
            replacements(encodings, |encoding| memmem::find(&text, encoding.as_bytes()).is_some());
        for (_, placeholder) in &mut found {
            *placeholder = escape_json(placeholder);
        }
        let redacted = replace_in_strings(&text, &found).filter(|_| !found.is_empty());
        let redacted = redacted.map_or(text, Bytes::from);
        // A server may escape more than needed: `\/`, or everything outside of ASCII.
        let is_escaped = [r"\u", r"\/"]
            .iter()
            .any(|escape| memmem::find(&redacted, escape.as_bytes()).is_some());
        if secrets.is_empty() || !is_escaped {
            return redacted;
        }
        drop(secrets);
        self.redact_decoded_strings(&redacted).map_or(redacted, Bytes::from)
    }

    /// Redacts the strings of a JSON text that contain a secret once their escapes are decoded. `None` if there is
    /// none.
    fn redact_decoded_strings(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut replaced = Vec::new();
        // Input before `copied` is in the output.
        let (mut copied, mut at) = (0, 0);
        while let Some(start) = text.get(at..).and_then(|rest| memchr::memchr(b'"', rest)) {
            let start = at + start;
            let end = start + string_length(text.get(start..)?)?;
            let string = text.get(start..end)?;
            at = end;
            let decoded = memchr::memchr(b'\\', string)
                .and_then(|_| serde_json::from_slice::<String>(string).ok());
            if let Some(decoded) = decoded
                && let Cow::Owned(redacted) = self.redact(&decoded)
            {
                replaced.extend_from_slice(text.get(copied..start)?);
                replaced
                    .extend_from_slice(serde_json::Value::from(redacted).to_string().as_bytes());
                copied = end;
            }
        }
        replaced.extend_from_slice(text.get(copied..)?);
        (copied > 0).then_some(replaced)
    }
}

/// The encodings that are present, each with the placeholder of its secret.
fn replacements<'s>(
    encodings: impl Iterator<Item = (&'s String, &'s String)>,
    is_present: impl Fn(&str) -> bool,
) -> Vec<(&'s str, String)> {
    let present = encodings.filter(|(_, encoding)| is_present(encoding));
    let mut found: Vec<_> =
        present.map(|(name, encoding)| (encoding.as_str(), format!("[secret {name}]"))).collect();
    // Longest first, because one secret may be a part of another.
    found.sort_by_key(|(encoding, _)| Reverse(encoding.len()));
    found
}

/// The text as it appears between the quotes of a JSON string.
fn escape_json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default().to_owned()
}

/// Applies the replacements, which are escaped already, within the strings of a JSON text. `None` if there is no
/// match.
fn replace_in_strings(text: &[u8], replacements: &[(&str, String)]) -> Option<Vec<u8>> {
    let mut replaced = Vec::new();
    // Input before `copied` is in the output; the scan is at `at`.
    let (mut copied, mut at) = (0, 0);
    let mut in_string = false;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        // Only within strings: a secret of digits can also be part of a number, and a placeholder
        // there would not be JSON.
        let found = replacements
            .iter()
            .filter(|_| in_string)
            .find(|(encoding, _)| rest.starts_with(encoding.as_bytes()));
        if let Some((encoding, replacement)) = found {
            replaced.extend_from_slice(text.get(copied..at)?);
            replaced.extend_from_slice(replacement.as_bytes());
            at += encoding.len();
            copied = at;
            continue;
        }
        match rest.first() {
            Some(b'"') => in_string = !in_string,
            // Skip an escape as a whole: a match that began within it would leave the start of an escape.
            Some(b'\\') if rest.get(1) == Some(&b'u') => at += 5,
            Some(b'\\') => at += 1,
            _ => {}
        }
        at += 1;
    }
    replaced.extend_from_slice(text.get(copied..)?);
    (copied > 0).then_some(replaced)
}

/// Length of the JSON string at the start of the text, with its quotes. `None` if it does not end.
fn string_length(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text.get(at) == Some(&b'"') {
            return Some(at + 1);
        }
        at += 2;
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_secrets = self.secrets.read().len();
        f.debug_struct("Redactor").field("n_secrets", &n_secrets).finish()
    }
}

/// Redactors are equal if they share their set of secrets.
impl PartialEq for Redactor {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.secrets, &other.secrets)
    }
}

impl Eq for Redactor {}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let redactor = Redactor::default();
        redactor.add_secret("short", "abc");
        redactor.add_secret("token", "s3cr3t");
        redactor.add_secret("longer", "s3cr3t-and-more\n");
        assert_eq!(redactor.redact(text), expected);
        assert_eq!(format!("{redactor:?}"), "Redactor { n_secrets: 3 }");
    }

    #[test]
    fn secrets_are_replaced_by_their_names() {
        check("nothing here", "nothing here");
        check("abc stays", "abc stays");
        check("key=s3cr3t; s3cr3t!", "key=[secret token]; [secret token]!");
        check("s3cr3t-and-more s3cr3t", "[secret longer] [secret token]");
    }

    #[track_caller]
    fn check_json(text: &'static str, expected: &str) {
        let redactor = Redactor::default();
        redactor.add_secret("short", "abc");
        redactor.add_secret("token", "n3cr3t");
        redactor.add_secret("longer", "n3cr3t-and-more\n");
        redactor.add_secret("pin", "123456");
        redactor.add_secret("odd\"name", "a \"quoted\"\nline");
        let redacted = redactor.redact_json(Bytes::from_static(text.as_bytes()));
        assert_eq!(redacted, expected);
        if text == expected {
            assert_eq!(redacted.as_ptr(), text.as_ptr(), "not copied");
        }
        serde_json::from_slice::<serde_json::Value>(&redacted).unwrap();
    }

    #[test]
    fn redacted_json_is_valid() {
        check_json(r#"{"a":"abc"}"#, r#"{"a":"abc"}"#);
        check_json(r#"{"n3cr3t":["x n3cr3t"]}"#, r#"{"[secret token]":["x [secret token]"]}"#);
        check_json(r#""n3cr3t-and-more n3cr3t""#, r#""[secret longer] [secret token]""#);
        // Escaped once, and escaped twice (JSON as text within JSON).
        check_json(r#"["a \"quoted\"\nline"]"#, r#"["[secret odd\"name]"]"#);
        check_json(
            r#"["{\"a\":\"a \\\"quoted\\\"\\nline\"}"]"#,
            r#"["{\"a\":\"[secret odd\"name]\"}"]"#,
        );
        // Numbers and escape sequences stay intact.
        check_json(r#"{"a":123456}"#, r#"{"a":123456}"#);
        check_json(r#"["123456",123456]"#, r#"["[secret pin]",123456]"#);
        check_json(r#"["\n3cr3t"]"#, r#"["\n3cr3t"]"#);
        check_json(r#"["\\n3cr3t"]"#, r#"["\\[secret token]"]"#);
    }

    #[test]
    fn escapes_do_not_hide_a_secret_in_json() {
        let redactor = Redactor::default();
        redactor.add_secret("key", "abc/d\u{e9}f");
        let redacted = |text: &'static str| {
            let redacted = redactor.redact_json(Bytes::from_static(text.as_bytes()));
            String::from_utf8(redacted.to_vec()).unwrap()
        };
        // PHP escapes slashes, Python everything outside of ASCII.
        assert_eq!(redacted(r#"{"a":["x abc\/d\u00e9f"]}"#), r#"{"a":["x [secret key]"]}"#);
        assert_eq!(redacted(r#"["\u0061bc/d\u00E9f", 1]"#), r#"["[secret key]", 1]"#);
        assert_eq!(redacted(r#"{"abc\/d\u00e9f":"\u00e9"}"#), r#"{"[secret key]":"\u00e9"}"#);
        assert_eq!(redacted(r#"["a\/b","\u00e9"]"#), r#"["a\/b","\u00e9"]"#, "not changed");
        redactor.add_secret("hex", "00e9xyz");
        assert_eq!(redacted(r#"["\u00e9xyz"]"#), r#"["\u00e9xyz"]"#, "an escape is not cut");
        assert_eq!(redacted(r#"["abc\/d\u00e9f"#), r#"["abc\/d\u00e9f"#, "not JSON");
    }

    #[test]
    fn secrets_in_quoted_json_are_redacted() {
        let redactor = Redactor::default();
        redactor.add_secret("key", "first\nsecond");
        assert_eq!(redactor.redact("first\nsecond"), "[secret key]");
        assert_eq!(redactor.redact(r#"in {"a":"first\nsecond"}"#), r#"in {"a":"[secret key]"}"#);
    }

    #[test]
    fn escape_within_a_secret_does_not_hide_it() {
        let redactor = Redactor::default();
        redactor.add_secret("key", "s3cr3t");
        redactor.add_secret("tab", "first\tsecond");
        let line = |text: &str, max_chars| redactor.redact_line(text, max_chars);
        assert_eq!(line("a s3c\u{1b}[1mr3t b", 50), "a [secret key] b");
        assert_eq!(line("a s3cr\u{200b}3t b", 50), "a [secret key] b");
        assert_eq!(line("a first\tsecond b", 50), "a [secret tab] b");
        assert_eq!(line("a s3cr3t b", 6), "a [sec…", "redacted before the cut");
    }

    #[test]
    fn without_secrets_text_is_unchanged() {
        let text = Bytes::from_static(b"\xff no UTF-8");
        assert_eq!(Redactor::default().redact_json(text.clone()), text);
        assert!(Redactor::default().is_empty());
    }

    #[test]
    fn new_secret_replaces_the_old_one_of_its_name() {
        let redactor = Redactor::default();
        let clone = redactor.clone();
        redactor.add_secret("token", "first-value");
        redactor.add_secret("token", "second-value");
        assert_eq!(clone.redact("first-value second-value"), "first-value [secret token]");
        assert_eq!(redactor, clone);
        assert_ne!(redactor, Redactor::default());
    }
}
