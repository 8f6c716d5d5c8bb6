//! Fuzz targets of list pages and results. docs/internal/fuzzing.md says how to run them.

#![expect(clippy::panic, reason = "a fuzz target fails by panicking")]

use serde_json::Value;

use crate::{
    Content, DiscoverResult, GetPromptResult, InitializeResult, ListEntry, ListPage, Prompt,
    ReadResourceResult, RequestResult as _, Resource, ResourceTemplate, Tool, ToolCallResult,
};

type FuzzTarget = (&'static str, fn(&[u8]));

/// Name and function of every target.
pub const TARGETS: &[FuzzTarget] = &[("list_page", list_page), ("call_result", call_result)];

/// Malformed entries that are described, and one for all others.
const MAX_SKIPPED: usize = 102;

/// No entry is lost: each is an item or skipped, and the descriptions are bounded.
fn list_page(raw: &[u8]) {
    check_page::<Tool>(raw);
    check_page::<Resource>(raw);
    check_page::<ResourceTemplate>(raw);
    check_page::<Prompt>(raw);
}

fn check_page<T: ListEntry>(raw: &[u8]) {
    let Ok(page) = ListPage::<T>::decode(raw) else { return };
    assert_eq!(page.n_bytes, raw.len());
    assert!(page.skipped.len() <= MAX_SKIPPED);
    let Ok(value) = serde_json::from_slice::<Value>(raw) else { return };
    let Some(entries) = value.get(T::MEMBER).and_then(Value::as_array) else { return };
    // The cursor is skipped under the index after the last entry.
    let n_skipped = page.skipped.iter().filter(|entry| entry.index < entries.len()).count();
    assert!(page.items.len() + n_skipped <= entries.len());
    if n_skipped < MAX_SKIPPED - 2 {
        assert_eq!(page.items.len() + n_skipped, entries.len());
    }
    let cursor = value.get("nextCursor").and_then(Value::as_str);
    assert_eq!(page.next_cursor.as_deref(), cursor);
}

/// Content is forwarded as JSON, and text stays the same.
fn call_result(raw: &[u8]) {
    let (initialized, discovered) = (InitializeResult::decode(raw), DiscoverResult::decode(raw));
    let (resource, prompt) = (ReadResourceResult::decode(raw), GetPromptResult::decode(raw));
    drop((initialized, discovered, resource, prompt));
    let Ok(result) = ToolCallResult::decode(raw) else { return };
    let Ok(value) = serde_json::from_slice::<Value>(raw) else { return };
    let sent = value.get("content").and_then(Value::as_array).cloned().unwrap_or_default();
    let texts = |contents: &[Value]| -> Vec<Value> {
        let is_text = |content: &&Value| content.get("type") == Some(&Value::from("text"));
        let text = |content: &Value| content.get("text").cloned();
        contents.iter().filter(is_text).filter_map(text).filter(Value::is_string).collect()
    };
    let written: Result<Vec<Value>, _> = result.content.iter().map(to_value).collect();
    let written = written.unwrap_or_else(|error| panic!("content is not JSON: {error}"));
    assert!(written.len() <= sent.len().max(1), "{written:?}");
    let (written, sent) = (texts(&written), texts(&sent));
    assert!(written.iter().all(|text| sent.contains(text)), "{written:?} {sent:?}");
}

fn to_value(content: &Content<'_>) -> Result<Value, serde_json::Error> {
    serde_json::to_value(content)
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_targets_hold() {
        toolrack_fuzz::check_targets(super::TARGETS);
    }
}
