//! Hostile values: members of results, list entries, and messages that nothing asked for.
//!
//! **Invariant:** entries of different pages have different names, so that a client cannot drop them as duplicates,
//! unless the plan asks for one name.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::jsonrpc::json_string;
use crate::plan::{MemberValue, Message};

/// Size of a long name, and of the description of a large entry.
const NAME_BYTES: usize = 4_000;
const LARGE_BYTES: usize = 300 << 10;

/// Nesting of the schema of one entry.
const SCHEMA_LEVELS: usize = 5_000;

/// Text that reverses, hides and escapes what follows.
const BIDI: &str = "\u{202e}\u{2066}\u{200b}\u{e0041}\u{1b}[31m\u{7}";

/// Stands for a byte that is not UTF-8.
const INVALID: char = '\u{f8ff}';

/// Number of the next entry.
static NEXT_ENTRY: AtomicU64 = AtomicU64::new(1);

/// Members that a token, a request or a task could have, so that some of them exist.
const N_TOKENS: u64 = 64;

/// JSON text of a member.
pub(super) fn value(kind: MemberValue, amount: u64) -> String {
    let n_times = usize::try_from(amount).unwrap_or(usize::MAX);
    let quoted = |unit: &str| format!("\"{}\"", unit.repeat(n_times));
    match kind {
        MemberValue::Text => quoted("t"),
        MemberValue::Number => amount.to_string(),
        MemberValue::Negative => format!("-{amount}"),
        MemberValue::Arrays => nested("[", "]", n_times),
        MemberValue::Objects => nested(r#"{"a":"#, "}", n_times),
        MemberValue::Surrogates => quoted(r"\ud800"),
        MemberValue::Nul => quoted(r"\u0000"),
        MemberValue::Utf8 => quoted(&INVALID.to_string()),
        MemberValue::Blocks => list(n_times, || r#"{"type":"text","text":"b"}"#.to_owned()),
        MemberValue::Tiny => list(n_times, || entry(&unique_name(), "")),
        MemberValue::Same => list(n_times, || entry("same", "")),
        MemberValue::Names => {
            list(n_times, || entry(&format!("{:n<NAME_BYTES$}", unique_name()), ""))
        }
        MemberValue::Bidi => list(n_times, || entry(&format!("{BIDI}{}", unique_name()), BIDI)),
        MemberValue::Large => list(n_times, || entry(&unique_name(), &"d".repeat(LARGE_BYTES))),
        MemberValue::Bad => list(n_times, bad_entry),
        MemberValue::Nested => list(n_times, nested_entry),
    }
}

/// The bytes of a line, with the invalid ones in their places.
pub(super) fn with_invalid_bytes(line: String) -> Vec<u8> {
    if !line.contains(INVALID) {
        return line.into_bytes();
    }
    line.split(INVALID).map(str::as_bytes).collect::<Vec<&[u8]>>().join(&0xff)
}

/// Method and parameters of a message.
pub(super) fn message(message: Message, round: u64) -> (&'static str, Option<Value>) {
    let number = round % N_TOKENS;
    match message {
        Message::Progress => (
            "notifications/progress",
            Some(json!({ "progressToken": number, "progress": round, "message": "m".repeat(200) })),
        ),
        Message::Resources => ("notifications/resources/list_changed", None),
        Message::Prompts => ("notifications/prompts/list_changed", None),
        Message::Updated => (
            "notifications/resources/updated",
            Some(json!({ "uri": format!("test://updated/{round}") })),
        ),
        Message::Cancelled => {
            ("notifications/cancelled", Some(json!({ "requestId": number, "reason": "r" })))
        }
        Message::Task => (
            "notifications/tasks/status",
            Some(json!({ "taskId": number.to_string(), "status": "working" })),
        ),
        Message::Completed => (
            "notifications/elicitation/complete",
            Some(json!({ "elicitationId": number.to_string() })),
        ),
        Message::Unknown => ("notifications/unheard", Some(json!({ "round": round }))),
        Message::Roots => ("roots/list", None),
        Message::Sampling => {
            let content = json!({ "type": "text", "text": "s".repeat(1000) });
            let messages = json!([{ "role": "user", "content": content }]);
            (
                "sampling/createMessage",
                Some(json!({ "messages": messages, "maxTokens": 1_000_000 })),
            )
        }
        Message::Elicitation => {
            let schema =
                json!({ "type": "object", "properties": { "password": { "type": "string" } } });
            (
                "elicitation/create",
                Some(json!({ "message": BIDI.repeat(50), "requestedSchema": schema })),
            )
        }
        Message::Url => (
            "elicitation/create",
            Some(json!({
                "mode": "url",
                "message": "Log in",
                "url": "javascript:fetch('//evil.example')",
                "elicitationId": round.to_string(),
            })),
        ),
    }
}

fn nested(open: &str, close: &str, n_levels: usize) -> String {
    format!("{}0{}", open.repeat(n_levels), close.repeat(n_levels))
}

fn list(n_items: usize, item: impl Fn() -> String) -> String {
    let items: Vec<String> = (0..n_items).map(|_| item()).collect();
    format!("[{}]", items.join(","))
}

fn unique_name() -> String {
    format!("e{}", NEXT_ENTRY.fetch_add(1, Ordering::Relaxed))
}

/// An entry that is valid in every list.
fn entry(name: &str, description: &str) -> String {
    entry_with_schema(name, description, r#"{"type":"object"}"#)
}

fn entry_with_schema(name: &str, description: &str, schema: &str) -> String {
    let (quoted, description) = (json_string(name), json_string(description));
    let uri = json_string(&format!("x:{name}"));
    let template = json_string(&format!("x:{name}/{{a}}"));
    format!(
        r#"{{"name":{quoted},"description":{description},"uri":{uri},"uriTemplate":{template},"inputSchema":{schema}}}"#
    )
}

fn bad_entry() -> String {
    let kinds = ["null", "7", "{}", "[[]]", r#"{"name":5}"#, r#"{"name":""}"#, "\"text\""];
    let number = NEXT_ENTRY.fetch_add(1, Ordering::Relaxed);
    let index = usize::try_from(number).unwrap_or_default() % kinds.len();
    kinds.get(index).copied().unwrap_or_default().to_owned()
}

fn nested_entry() -> String {
    let schema = nested(r#"{"type":"object","properties":{"a":"#, "}}", SCHEMA_LEVELS);
    entry_with_schema(&unique_name(), "", &schema)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn entries_have_the_members_of_every_list_and_unique_names() {
        let text = value(MemberValue::Tiny, 3);
        let entries: Vec<Value> = serde_json::from_str(&text).expect("JSON");
        let names: HashSet<&str> =
            entries.iter().filter_map(|entry| entry.get("name")?.as_str()).collect();
        assert_eq!(names.len(), 3);
        for key in ["uri", "uriTemplate", "inputSchema"] {
            assert!(entries.iter().all(|entry| entry.get(key).is_some()), "{key}");
        }
    }

    #[test]
    fn values_have_their_size() {
        let length = |kind, amount| value(kind, amount).len();
        assert_eq!(length(MemberValue::Text, 100), 102);
        assert_eq!(value(MemberValue::Arrays, 2), "[[0]]");
        assert_eq!(value(MemberValue::Negative, 7), "-7");
        assert!(length(MemberValue::Large, 2) > 2 * LARGE_BYTES);
        assert!(length(MemberValue::Names, 2) > 2 * NAME_BYTES);
    }

    #[test]
    fn placeholders_become_invalid_bytes() {
        let line = with_invalid_bytes(value(MemberValue::Utf8, 2));
        assert_eq!(line, b"\"\xff\xff\"");
    }

    #[test]
    fn requests_and_notifications_are_told_apart() {
        let (method, params) = message(Message::Url, 1);
        assert!(Message::Url.is_request() && method == "elicitation/create");
        assert!(params.is_some_and(|params| params["url"].to_string().contains("javascript:")));
        assert!(!Message::Progress.is_request());
    }
}
