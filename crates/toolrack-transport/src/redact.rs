//! Values that must not be seen, taken out of whatever a server writes for people.
//!
//! A server knows its own secrets and may print them, most of all when it fails. Whoever hands it a secret lets
//! the mask learn it, and what the server then writes to its error output, or instead of a message, is cleaned
//! before anybody keeps or logs it. What it answers is cleaned as JSON before it leaves us.
//!
//! **Invariant:** `Debug` shows how many values there are and none of them. JSON that is cleaned stays JSON.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;
use memchr::memmem;

/// A shorter value is left alone: it would be found in words that have nothing to do with it.
const SHORTEST: usize = 6;

/// Values that must not be seen. All clones know the same ones.
#[derive(Clone, Default)]
pub struct Mask {
    /// Values by name.
    values: Arc<RwLock<BTreeMap<String, Value>>>,
}

/// A value, in each of its spellings.
struct Value {
    plain: String,
    /// As it stands within a string of JSON, and within a string of JSON that is quoted in another one: many tools
    /// answer with JSON as text.
    quoted: Vec<String>,
}

impl Value {
    fn new(value: &str) -> Self {
        let (plain, mut quoted) = (value.trim().to_owned(), Vec::new());
        let once = escaped(&plain);
        if once != plain {
            quoted.push(escaped(&once));
        }
        quoted.push(once);
        Self { plain, quoted }
    }
}

impl Mask {
    /// Remembers the value that stands under `name`, and forgets the one that stood there before.
    pub fn learn(&self, name: &str, value: &str) {
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        values.insert(name.to_owned(), Value::new(value));
    }

    /// Whether there is nothing to hide yet.
    pub fn is_empty(&self) -> bool {
        self.values().is_empty()
    }

    /// The text with the name of each value in place of the value.
    pub fn clean<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let values = self.values();
        let spellings = values.iter().flat_map(|(name, value)| {
            let all = value.quoted.iter().chain([&value.plain]);
            all.filter(|_| is_long_enough(value)).map(move |it| (name, it))
        });
        let mut known: Vec<_> = spellings.filter(|(_, it)| text.contains(it.as_str())).collect();
        let mut cleaned = Cow::Borrowed(text);
        // The longest first, because one value may be a part of another.
        known.sort_by_key(|(_, spelling)| Reverse(spelling.len()));
        for (name, spelling) in known {
            cleaned = Cow::Owned(cleaned.replace(spelling.as_str(), &stand_in(name)));
        }
        cleaned
    }

    /// The same for JSON, which stays JSON: only what stands within its strings is looked at. Text without any of the
    /// values is not copied, and costs nothing if there are none.
    #[must_use]
    pub fn clean_json(&self, text: Bytes) -> Bytes {
        let values = self.values();
        let spellings = values.iter().flat_map(|(name, value)| {
            value.quoted.iter().filter(|_| is_long_enough(value)).map(move |it| (name, it))
        });
        let is_there = |it: &str| memmem::find(&text, it.as_bytes()).is_some();
        let mut known: Vec<_> = spellings.filter(|(_, it)| is_there(it)).collect();
        if known.is_empty() {
            return text;
        }
        known.sort_by_key(|(_, spelling)| Reverse(spelling.len()));
        let known: Vec<_> =
            known.into_iter().map(|(name, it)| (it.as_bytes(), escaped(&stand_in(name)))).collect();
        replaced(&text, &known).map_or(text, Bytes::from)
    }

    fn values(&self) -> RwLockReadGuard<'_, BTreeMap<String, Value>> {
        self.values.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_long_enough(value: &Value) -> bool {
    value.plain.len() >= SHORTEST
}

fn stand_in(name: &str) -> String {
    format!("[secret {name}]")
}

/// How a text stands between the quotes of a JSON string.
fn escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default().to_owned()
}

/// The JSON with something else in place of each of these, which are as they stand within strings. `None` if no
/// string has one.
fn replaced(text: &[u8], known: &[(&[u8], String)]) -> Option<Vec<u8>> {
    let mut cleaned = Vec::new();
    // What is before the first of these is written, and the walk is at the second.
    let (mut written, mut at) = (0, 0);
    let mut is_within = false;
    while let Some(rest) = text.get(at..).filter(|it| !it.is_empty()) {
        let found = known.iter().filter(|_| is_within).find(|(it, _)| rest.starts_with(it));
        if let Some((spelling, instead)) = found {
            cleaned.extend_from_slice(text.get(written..at)?);
            cleaned.extend_from_slice(instead.as_bytes());
            at += spelling.len();
            written = at;
            continue;
        }
        match rest.first() {
            Some(b'"') => is_within = !is_within,
            // What is escaped is passed over together with its mark, so that nothing is found that begins in between.
            Some(b'\\') => at += 1,
            _ => {}
        }
        at += 1;
    }
    cleaned.extend_from_slice(text.get(written..)?);
    (written > 0).then_some(cleaned)
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_values = self.values().len();
        f.debug_struct("Mask").field("n_values", &n_values).finish()
    }
}

/// Two masks are the same if what one learns the other knows.
impl PartialEq for Mask {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.values, &other.values)
    }
}

impl Eq for Mask {}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let mask = Mask::default();
        mask.learn("short", "abc");
        mask.learn("token", "s3cr3t");
        mask.learn("longer", "s3cr3t-and-more\n");
        assert_eq!(mask.clean(text), expected);
        assert_eq!(format!("{mask:?}"), "Mask { n_values: 3 }");
    }

    #[test]
    fn values_give_way_to_their_names() {
        check("nothing here", "nothing here");
        check("abc stays", "abc stays");
        check("key=s3cr3t; s3cr3t!", "key=[secret token]; [secret token]!");
        check("s3cr3t-and-more s3cr3t", "[secret longer] [secret token]");
    }

    #[track_caller]
    fn check_json(text: &'static str, expected: &str) {
        let mask = Mask::default();
        mask.learn("short", "abc");
        mask.learn("token", "n3cr3t");
        mask.learn("longer", "n3cr3t-and-more\n");
        mask.learn("pin", "123456");
        mask.learn("odd\"name", "a \"quoted\"\nline");
        let cleaned = mask.clean_json(Bytes::from_static(text.as_bytes()));
        assert_eq!(cleaned, expected);
        if text == expected {
            assert_eq!(cleaned.as_ptr(), text.as_ptr(), "it is not copied");
        }
        serde_json::from_slice::<serde_json::Value>(&cleaned).unwrap();
    }

    #[test]
    fn json_is_cleaned_and_stays_json() {
        check_json(r#"{"a":"abc"}"#, r#"{"a":"abc"}"#);
        check_json(r#"{"n3cr3t":["x n3cr3t"]}"#, r#"{"[secret token]":["x [secret token]"]}"#);
        check_json(r#""n3cr3t-and-more n3cr3t""#, r#""[secret longer] [secret token]""#);
        // As the server had to write it, and as text in text.
        check_json(r#"["a \"quoted\"\nline"]"#, r#"["[secret odd\"name]"]"#);
        check_json(
            r#"["{\"a\":\"a \\\"quoted\\\"\\nline\"}"]"#,
            r#"["{\"a\":\"[secret odd\"name]\"}"]"#,
        );
        // Neither a number nor the letter of an escape becomes something that is no JSON.
        check_json(r#"{"a":123456}"#, r#"{"a":123456}"#);
        check_json(r#"["123456",123456]"#, r#"["[secret pin]",123456]"#);
        check_json(r#"["\n3cr3t"]"#, r#"["\n3cr3t"]"#);
        check_json(r#"["\\n3cr3t"]"#, r#"["\\[secret token]"]"#);
    }

    #[test]
    fn text_that_quotes_json_is_cleaned_too() {
        let mask = Mask::default();
        mask.learn("key", "first\nsecond");
        assert_eq!(mask.clean("first\nsecond"), "[secret key]");
        assert_eq!(mask.clean(r#"in {"a":"first\nsecond"}"#), r#"in {"a":"[secret key]"}"#);
    }

    #[test]
    fn without_values_nothing_is_looked_at() {
        let text = Bytes::from_static(b"\xff no UTF-8");
        assert_eq!(Mask::default().clean_json(text.clone()), text);
        assert!(Mask::default().is_empty());
    }

    #[test]
    fn a_new_value_takes_the_place_of_the_old_one() {
        let mask = Mask::default();
        let clone = mask.clone();
        mask.learn("token", "first-value");
        mask.learn("token", "second-value");
        assert_eq!(clone.clean("first-value second-value"), "first-value [secret token]");
        assert_eq!(mask, clone);
        assert_ne!(mask, Mask::default());
    }
}
