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
use std::ops::Range;
use std::sync::Arc;
use std::{fmt, iter};

use bytes::Bytes;
use memchr::memmem;
use parking_lot::RwLock;

use crate::json_strings::{
    JsonString, decode_literal, encode_literal, json_strings, rewrite_strings, to_literal_offsets,
};
use crate::sanitize::sanitize_line;

/// Shorter secrets are not redacted: they would match parts of unrelated words.
const MIN_SECRET_BYTES: usize = 6;

/// How often a string is decoded in search of a secret: many tools return JSON as text, which may contain JSON as text.
const MAX_DECODINGS: usize = 3;

/// The bytes of one vectorized pass before the next check for an early exit.
const CHUNK_BYTES: usize = 256;

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
        let once = encode_literal(&plain);
        let twice = (once != plain).then(|| encode_literal(&once));
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

    /// Replaces each secret within the strings of a JSON text, which stays valid JSON, however the server escapes
    /// it. Text without secrets is not copied, and the call is free if there are none.
    #[must_use]
    pub fn redact_json(&self, text: Bytes) -> Bytes {
        let secrets = self.secrets.read();
        let known = secrets
            .iter()
            .filter_map(|(name, secret)| Some((name, secret, secret.plain.as_deref()?)));
        if known.clone().next().is_none() {
            return text;
        }
        // One search for each secret, however many strings there are. The strings are decoded one by one only if
        // a secret is found.
        let decodings = decodings(&text);
        let is_present = |secret: &Secret, plain: &str| {
            let is_in = |text: &[u8], part: &str| memmem::find(text, part.as_bytes()).is_some();
            is_in(&text, plain)
                || secret.escaped.iter().any(|encoding| is_in(&text, encoding))
                || decodings.iter().any(|decoded| is_in(decoded.as_bytes(), plain))
        };
        let found: Vec<Replacement<'_>> = known
            .filter(|(_, secret, plain)| is_present(secret, plain))
            .map(|(name, _, plain)| (plain, encode_literal(&placeholder(name))))
            .collect();
        if found.is_empty() {
            return text;
        }
        let redacted = rewrite_strings(&text, |string| redact_literal(string.literal(), &found));
        redacted.map_or(text, Bytes::from)
    }
}

/// A secret, and the text that replaces it.
type Replacement<'s> = (&'s str, String);

fn placeholder(name: &str) -> String {
    format!("[secret {name}]")
}

/// The texts of all strings that a server may have escaped in its own way: decoded once, twice and so on. Empty if it
/// escapes as we do, because then the encodings of a secret are in the JSON itself.
fn decodings(json: &[u8]) -> Vec<String> {
    // A server may escape more than needed, `\/` or everything outside of ASCII, or control characters not at all.
    let is_unusual = |at: usize| matches!(json.get(at + 1), Some(b'u' | b'/'));
    let has_control = |bytes: &[u8]| bytes.iter().min().is_some_and(|least| *least < b' ');
    if !memchr::memchr_iter(b'\\', json).any(is_unusual)
        && !json.trim_ascii_end().chunks(CHUNK_BYTES).any(has_control)
    {
        return Vec::new();
    }
    let mut texts = String::new();
    for literal in json_strings(json).map(JsonString::literal) {
        if literal.contains(&b'\\') {
            texts.push_str(&decode_literal(&String::from_utf8_lossy(literal)));
            // Separates the texts, also when they are decoded again.
            texts.push('"');
        }
    }
    let again = |texts: &String| texts.contains('\\').then(|| decode_literal(texts).into_owned());
    iter::successors(Some(texts), again).take(MAX_DECODINGS).collect()
}

/// A literal without its secrets; its other parts keep their spelling. `None` if there is no secret.
fn redact_literal(literal: &[u8], found: &[Replacement<'_>]) -> Option<String> {
    let literal = String::from_utf8_lossy(literal);
    let places = find_in_literal(&literal, found, MAX_DECODINGS);
    let (mut redacted, mut copied) = (String::new(), 0);
    for (place, placeholder) in &places {
        redacted.push_str(literal.get(copied..place.start)?);
        redacted.push_str(placeholder);
        copied = place.end;
    }
    redacted.push_str(literal.get(copied..)?);
    (!places.is_empty()).then_some(redacted)
}

/// The places of secrets in a literal, in order, each with what replaces it. The secrets are in the text of the literal,
/// or in that text decoded again.
fn find_in_literal<'f>(
    literal: &str,
    found: &'f [Replacement<'_>],
    n_decodings: usize,
) -> Vec<(Range<usize>, &'f str)> {
    let text = decode_literal(literal);
    let mut places: Vec<(Range<usize>, &str)> = Vec::new();
    for (secret, placeholder) in found {
        let matches = text.match_indices(secret);
        places.extend(matches.map(|(at, _)| (at..at + secret.len(), placeholder.as_str())));
    }
    if n_decodings > 1 && text.contains('\\') {
        places.extend(find_in_literal(&text, found, n_decodings - 1));
    }
    // The longest first, because one secret may be a part of another. Secrets that overlap are replaced together.
    places.sort_by_key(|(place, _)| (place.start, Reverse(place.end)));
    places.dedup_by(|(next, _), (place, _)| {
        let is_overlapping = next.start < place.end;
        if is_overlapping {
            place.end = place.end.max(next.end);
        }
        is_overlapping
    });
    let offsets = places.iter_mut().flat_map(|(place, _)| [&mut place.start, &mut place.end]);
    to_literal_offsets(literal, offsets);
    places
}

/// The encodings that are present, each with the placeholder of its secret.
fn replacements<'s>(
    encodings: impl Iterator<Item = (&'s String, &'s String)>,
    is_present: impl Fn(&str) -> bool,
) -> Vec<(&'s str, String)> {
    let present = encodings.filter(|(_, encoding)| is_present(encoding));
    let mut found: Vec<_> =
        present.map(|(name, encoding)| (encoding.as_str(), placeholder(name))).collect();
    // Longest first, because one secret may be a part of another.
    found.sort_by_key(|(encoding, _)| Reverse(encoding.len()));
    found
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
        assert_eq!(redacted(r#"["abc\/d\u00e9f"#), r#"["[secret key]"#, "no end");
        // What a strict parser rejects: a lone surrogate, a control character.
        assert_eq!(redacted(r#"["\ud800 abc\/d\u00e9f!"]"#), r#"["\ud800 [secret key]!"]"#);
        assert_eq!(redacted("[\"\u{1}abc\\/d\\u00e9f\"]"), "[\"\u{1}[secret key]\"]");
        redactor.add_secret("lines", "first\nsecond\nthird");
        assert_eq!(redacted("[\"first\nsecond\nthird\"]"), r#"["[secret lines]"]"#);
        assert_eq!(redacted("[\"first\nsecond\\nthird\"]"), r#"["[secret lines]"]"#);
    }

    #[test]
    fn escapes_do_not_hide_a_secret_in_json_as_text() {
        let redactor = Redactor::default();
        redactor.add_secret("key", "abc/d\u{e9}f");
        redactor.add_secret("path", r"C:\new\temp");
        let check = |text: &'static str, expected: &str| {
            assert_eq!(redactor.redact_json(Bytes::from_static(text.as_bytes())), expected);
        };
        check(r#"["{\"k\":\"abc\\/d\u00e9f\"}"]"#, r#"["{\"k\":\"[secret key]\"}"]"#);
        check(r#"["{\"k\":\"abc/d\\u00e9f\",1}"]"#, r#"["{\"k\":\"[secret key]\",1}"]"#);
        check(
            r#"["[\"{\\\"k\\\":\\\"abc\\\\\/d\\\\u00e9f\\\"}\"]"]"#,
            r#"["[\"{\\\"k\\\":\\\"[secret key]\\\"}\"]"]"#,
        );
        check(r#"["C:\\new\\temp\\x\/y"]"#, r#"["[secret path]\\x\/y"]"#);
        check(r#"["{\"a\":\"C:\\\\new\\\\temp\"}"]"#, r#"["{\"a\":\"[secret path]\"}"]"#);
    }

    #[test]
    fn overlapping_secrets_are_replaced_together() {
        let redactor = Redactor::default();
        redactor.add_secret("first", "abcdef");
        redactor.add_secret("second", "defghi");
        let text = Bytes::from_static(br#"["abcdefghi","defghi"]"#);
        assert_eq!(redactor.redact_json(text), r#"["[secret first]","[secret second]"]"#);
    }

    #[test]
    fn json_without_a_secret_is_not_copied() {
        let redactor = Redactor::default();
        let check = |redactor: &Redactor, text: &'static str| {
            let redacted = redactor.redact_json(Bytes::from_static(text.as_bytes()));
            assert_eq!(redacted.as_ptr(), text.as_ptr(), "{text}");
        };
        check(&redactor, r#"["n3cr3t \/ \u00e9"]"#);
        redactor.add_secret("short", "abc");
        check(&redactor, r#"["abc \/ \u00e9"]"#);
        redactor.add_secret("token", "n3cr3t");
        check(&redactor, r#"["plain","a\nb"]"#);
        check(&redactor, r#"["\/ \u00e9",123456]"#);
        redactor.add_secret("pin", "123456");
        check(&redactor, r#"["\/ \u00e9",123456]"#);
    }

    /// Each secret is sought in the JSON and in these texts, so their number and size bound the work.
    #[test]
    fn search_for_secrets_does_not_depend_on_the_number_of_strings() {
        for string in [r#""\/aaaaa","#, r#""\\\/a","#, r#""\u005cu005cu002f","#] {
            let json = string.repeat(10_000);
            let decodings = decodings(json.as_bytes());
            assert!(decodings.len() <= MAX_DECODINGS);
            assert!(decodings.iter().all(|texts| texts.len() <= json.len()), "{string}");
        }
        assert!(decodings(&br#""plain\n\t\"","#.repeat(10_000)).is_empty());
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
