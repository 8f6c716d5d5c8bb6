//! Fuzz targets of messages, sanitizing and redaction. docs/internal/fuzzing.md says how to run them.

#![expect(clippy::panic, reason = "a fuzz target fails by panicking")]

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::{
    Message, Redactor, TruncatedMessage, sanitize_line, sanitize_text, split_batch, write_string,
};

type FuzzTarget = (&'static str, fn(&[u8]));

/// Name and function of every target.
pub const TARGETS: &[FuzzTarget] = &[
    ("json_rpc", json_rpc),
    ("json_string", json_string),
    ("sanitize", sanitize),
    ("redact", redact),
    ("redact_json", redact_json),
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
    let line = redactor.redact_line(&text, usize::MAX);
    let visible = sanitize_line(&secret, usize::MAX);
    assert!(!line.contains(&secret), "{line:?}");
    assert!(visible != secret || !line.contains(&visible), "{line:?}");
}

/// Redacted JSON is valid, and no string of it contains the secret, however the server escapes it.
fn redact_json(data: &[u8]) {
    let Some((secret, text)) = secret_and_text(data) else { return };
    let redactor = Redactor::default();
    redactor.add_secret("key", &secret);
    for json in [serde_json::json!({ &text: [text] }).to_string(), escape_all(&text), text] {
        let is_json = serde_json::from_str::<Value>(&json).is_ok();
        let redacted = redactor.redact_json(Bytes::from(json));
        let value = serde_json::from_slice::<Value>(&redacted);
        assert_eq!(is_json, value.is_ok(), "{redacted:?}");
        if let Ok(value) = value {
            assert_no_string_contains(&value, &secret);
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
        Value::String(text) => assert!(!text.contains(secret), "{text:?}"),
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

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_targets_hold() {
        toolrack_fuzz::check_targets(super::TARGETS);
    }
}
