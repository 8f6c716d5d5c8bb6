//! Fuzz targets of messages, sanitizing and redaction. docs/internal/fuzzing.md says how to run them.

#![expect(clippy::panic, reason = "a fuzz target fails by panicking")]

use std::fmt;

use bytes::Bytes;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::json_strings::{decode_literal, json_strings};
use crate::sanitize::replace_hidden;
use crate::{
    Message, Redactor, TruncatedMessage, sanitize_line, sanitize_text, split_batch, strip_hidden,
    strip_hidden_json, write_string,
};

type FuzzTarget = (&'static str, fn(&[u8]));

/// Name and function of every target.
pub const TARGETS: &[FuzzTarget] = &[
    ("json_rpc", json_rpc),
    ("json_string", json_string),
    ("sanitize", sanitize),
    ("redact", redact),
    ("redact_json", redact_json),
    ("hidden_text", hidden_text),
];

/// A message is classified as `serde_json` reads it, and the fast path agrees with the full parser.
fn json_rpc(line: &[u8]) {
    let message = Message::parse(line);
    if let Ok(Message::Success { result, .. }) = &message
        && serde_json::from_slice::<&RawValue>(result).is_ok()
    {
        // The fast path does not look into the result. If that is a value, nothing else may differ.
        assert_eq!(Message::parse_members(line).ok(), message.as_ref().ok().map(copy));
    }
    if let (Ok(message), Ok(value)) = (&message, serde_json::from_slice::<Value>(line)) {
        check_members(message, &value);
    }
    if let Some(messages) = split_batch(line) {
        let values: Vec<Option<Value>> =
            messages.iter().map(|message| serde_json::from_slice(message).ok()).collect();
        let whole: Option<Vec<Option<Value>>> = serde_json::from_slice(line).ok();
        if let Some(whole) = whole {
            let nulls = |values: Vec<Option<Value>>| -> Vec<Value> {
                values.into_iter().map(Option::unwrap_or_default).collect()
            };
            assert_eq!(nulls(values), nulls(whole));
        }
    }
    let (head, tail) = line.split_at(line.len() / 2);
    let _kind = TruncatedMessage::identify(head, tail);
}

fn copy<'a>(message: &Message<'a>) -> Message<'a> {
    match message {
        Message::Success { id, result } => Message::Success { id: id.clone(), result },
        other => panic!("{other:?} is not a success"),
    }
}

fn check_members(message: &Message<'_>, value: &Value) {
    let member = |name: &str| value.get(name).cloned();
    let parsed = |raw: &[u8]| serde_json::from_slice::<Value>(raw).ok();
    let id = |id: &crate::RequestId| serde_json::to_value(id).ok();
    // Ids are read leniently: `7.0` is `7`.
    let same_id = |found: Option<Value>| match (found, member("id")) {
        (Some(Value::Number(found)), Some(Value::Number(sent))) => found.as_f64() == sent.as_f64(),
        (found, sent) => found == sent,
    };
    match message {
        Message::Request { id: found, method, params } => {
            assert!(same_id(id(found)) && member("method") == Some(Value::from(method.as_str())));
            assert_eq!(params.and_then(parsed), member("params").filter(|value| !value.is_null()));
            assert!(member("result").is_none());
        }
        Message::Notification { method, params } => {
            assert_eq!(member("method"), Some(Value::from(method.as_str())));
            assert_eq!(params.and_then(parsed), member("params").filter(|value| !value.is_null()));
            assert!(member("id").is_none() && member("result").is_none());
        }
        Message::Success { id: found, result } => {
            let Some(result) = parsed(result) else { return };
            assert!(same_id(id(found)) && member("method").is_none_or(|value| value.is_null()));
            assert_eq!(Some(result), member("result"));
            assert!(member("error").is_none_or(|error| error.is_null()));
        }
        Message::Failure { id: found, error } => {
            let code = value.pointer("/error/code").and_then(Value::as_i64);
            assert_eq!(code, Some(error.code));
            assert!(found.as_ref().is_none_or(|found| same_id(id(found))));
            assert!(member("result").is_none());
        }
    }
}

/// A written string is the JSON of the text.
fn json_string(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut written = Vec::new();
    assert!(write_string(&mut written, &text).is_ok());
    assert_eq!(serde_json::from_slice::<String>(&written).ok().as_deref(), Some(&*text));
}

/// Sanitized text has no controls, is no longer than the text or the limit, and sanitizing it again changes nothing.
fn sanitize(data: &[u8]) {
    let [max_chars, text @ ..] = data else { return };
    let (max_chars, text) = (usize::from(*max_chars), String::from_utf8_lossy(text));
    let clean = sanitize_text(&text);
    assert!(clean.len() <= text.len());
    assert!(!clean.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t')), "{clean:?}");
    assert!(!clean.contains(['\u{202e}', '\u{200b}', '\u{e0041}', '\u{2066}']), "{clean:?}");
    assert_eq!(sanitize_text(&clean), clean, "{text:?}");
    let line = sanitize_line(&text, max_chars);
    assert!(line.chars().count() <= max_chars + 1, "{line:?}");
    assert!(!line.contains(char::is_control), "{line:?}");
    assert_eq!(sanitize_line(&line, max_chars + 1), line, "{text:?}");
}

/// A secret, and a text that contains it.
fn secret_and_text(data: &[u8]) -> Option<(String, String)> {
    let [at, n_bytes, rest @ ..] = data else { return None };
    let (secret, text) = rest.split_at_checked(usize::from(*n_bytes).min(64))?;
    let secret = String::from_utf8_lossy(secret).trim().to_owned();
    let mut text = String::from_utf8_lossy(text).into_owned();
    // Shorter ones are not redacted, and parts of the placeholder cannot be.
    if secret.len() < 6 || "[secret key]".contains(|c| secret.contains(c)) {
        return None;
    }
    let at = text.char_indices().map(|(at, _)| at).nth(usize::from(*at)).unwrap_or(text.len());
    text.insert_str(at, &secret);
    Some((secret, text))
}

/// A redacted text does not contain the secret, and redacting it again changes nothing.
fn redact(data: &[u8]) {
    let Some((secret, text)) = secret_and_text(data) else { return };
    let redactor = Redactor::default();
    redactor.add_secret("key", &secret);
    let redacted = redactor.redact(&text);
    assert!(!redacted.contains(&secret), "{redacted:?}");
    assert_eq!(redactor.redact(&redacted), redacted);
    // Hidden characters do not hide it either.
    let spread: String = secret.chars().flat_map(|character| [character, '\u{200b}']).collect();
    for text in [text.replace(&secret, &spread), text] {
        let line = redactor.redact_line(&text, usize::MAX);
        assert!(!line.contains(&secret), "{line:?}");
    }
}

/// Redacted JSON is valid, and no string of it contains the secret, however the server escapes it, and also if a string
/// is JSON. A string that only a lenient parser reads is redacted too.
fn redact_json(data: &[u8]) {
    let Some((secret, text)) = secret_and_text(data) else { return };
    let redactor = Redactor::default();
    redactor.add_secret("key", &secret);
    let plain = serde_json::json!({ &text: [text] }).to_string();
    let escaped = format!("[{}]", escape_all(&text));
    let lenient = format!("[\"\\ud800\u{1}\",{}", escaped.replacen('"', "\"\\udfff\u{2} ", 1));
    for json in [
        Value::from(plain.replace('/', "\\/")).to_string(),
        Value::from(escaped.as_str()).to_string(),
        lenient,
        plain,
        escaped,
        text,
    ] {
        let is_json = serde_json::from_str::<Value>(&json).is_ok();
        let redacted = redactor.redact_json(Bytes::from(json));
        let value = serde_json::from_slice::<Value>(&redacted);
        // Without a secret that has raw control characters, text that was not JSON may be.
        assert!(value.is_ok() || !is_json, "{redacted:?}");
        if let Ok(value) = value {
            assert_no_string_contains(&value, &secret);
        }
        for string in json_strings(&redacted) {
            let literal = String::from_utf8_lossy(string.literal());
            assert!(!decode_literal(&literal).contains(&secret), "{literal:?}");
        }
        assert_eq!(redactor.redact_json(redacted.clone()), redacted);
    }
}

/// A JSON string in which every character is an escape, as some servers write those outside of ASCII.
fn escape_all(text: &str) -> String {
    let units: Vec<String> = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    format!("\"{}\"", units.concat())
}

fn assert_no_string_contains(value: &Value, secret: &str) {
    match value {
        Value::String(text) => {
            assert!(!text.contains(secret), "{text:?}");
            if let Ok(value @ (Value::Array(_) | Value::Object(_))) = serde_json::from_str(text) {
                assert_no_string_contains(&value, secret);
            }
        }
        Value::Array(items) => {
            for item in items {
                assert_no_string_contains(item, secret);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                assert!(!name.contains(secret), "{name:?}");
                assert_no_string_contains(member, secret);
            }
        }
        _ => {}
    }
}

/// JSON with its members in order, also those of the same name.
#[derive(Debug, PartialEq)]
enum Json {
    Text(String),
    Other(Value),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// The strings of JSON lose their hidden text, and nothing else changes: a name without hidden characters stays, and one
/// with hidden characters does not become such a name.
fn hidden_text(json: &[u8]) {
    let stripped = strip_hidden_json(json);
    assert_ne!(stripped.as_deref(), Some(json));
    let stripped = stripped.unwrap_or_else(|| json.to_vec());
    assert_eq!(strip_hidden_json(&stripped), None, "{stripped:?}");
    let is_json = |json: &[u8]| serde_json::from_slice::<IgnoredAny>(json).is_ok();
    // Without raw control characters, text that was not JSON may be.
    assert!(is_json(&stripped) || !is_json(json), "{stripped:?}");
    if let Ok(mut expected) = serde_json::from_slice::<Json>(json) {
        strip_strings(&mut expected);
        assert_eq!(serde_json::from_slice(&stripped).ok(), Some(expected), "{stripped:?}");
    }
    for string in json_strings(&stripped) {
        let literal = String::from_utf8_lossy(string.literal());
        let text = decode_literal(&literal);
        assert_eq!(strip_hidden(&text), text);
    }
}

fn strip_strings(json: &mut Json) {
    match json {
        Json::Text(text) => *text = strip_hidden(text).into_owned(),
        Json::Other(_) => {}
        Json::Array(items) => items.iter_mut().for_each(strip_strings),
        Json::Object(members) => {
            for (name, member) in members {
                let replaced = replace_hidden(name);
                let is_hidden = strip_hidden(name) != *name;
                assert_eq!(is_hidden, replaced != *name, "{name:?}");
                assert!(!is_hidden || replaced.contains('\u{fffd}'), "{name:?}");
                *name = replaced.into_owned();
                strip_strings(member);
            }
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Other(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Other(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Other(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Other(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Other(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Json::Object(members))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_targets_hold() {
        toolrack_fuzz::check_targets(super::TARGETS);
    }
}
