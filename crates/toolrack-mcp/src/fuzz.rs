//! Fuzz targets of list pages and results. docs/internal/fuzzing.md says how to run them.

#![expect(clippy::panic, reason = "a fuzz target fails by panicking")]

use serde_json::Value;
use url::Url;

use crate::{
    Content, DiscoverResult, GetPromptResult, InitializeResult, ListEntry, ListPage, Prompt,
    ReadResourceResult, RequestResult as _, Resource, ResourceTemplate, Tool, ToolCallResult,
    WebUrl, n_skipped,
};

type FuzzTarget = (&'static str, fn(&[u8]));

/// Name and function of every target.
pub const TARGETS: &[FuzzTarget] =
    &[("list_page", list_page), ("call_result", call_result), ("web_url", web_url)];

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
    let cursor = value.get("nextCursor").filter(|cursor| !cursor.is_null());
    assert_eq!(page.next_cursor.as_deref(), cursor.and_then(Value::as_str));
    let is_cursor_skipped = cursor.is_some_and(|cursor| !cursor.is_string());
    let n_parts = entries.len() + usize::from(is_cursor_skipped);
    assert_eq!(page.items.len() + n_skipped(&page.skipped), n_parts);
}

/// Content is forwarded as JSON, and text stays the same.
fn call_result(raw: &[u8]) {
    let (initialized, discovered) = (InitializeResult::decode(raw), DiscoverResult::decode(raw));
    let (resource, prompt) = (ReadResourceResult::decode(raw), GetPromptResult::decode(raw));
    drop((initialized, discovered, resource, prompt));
    let Ok(result) = ToolCallResult::decode(raw) else { return };
    let Ok(value) = serde_json::from_slice::<Value>(raw) else { return };
    let Some(sent) = value.get("content").and_then(Value::as_array) else { return };
    let texts = |contents: &[Value]| -> Vec<Value> {
        let is_text = |content: &&Value| content.get("type") == Some(&Value::from("text"));
        let text = |content: &Value| content.get("text").cloned();
        contents.iter().filter(is_text).filter_map(text).filter(Value::is_string).collect()
    };
    let written: Result<Vec<Value>, _> = result.content.iter().map(to_value).collect();
    let written = written.unwrap_or_else(|error| panic!("content is not JSON: {error}"));
    assert_eq!(written.len(), sent.len(), "{written:?}");
    assert_eq!(texts(&written), texts(sent));
}

/// An address that may be shown is one of the web, in ASCII, and names the host that a browser opens.
fn web_url(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(address) = WebUrl::parse(text) else { return };
    let shown = address.as_str();
    assert!(shown.is_ascii() && !shown.contains(char::is_whitespace), "{shown:?}");
    assert!(shown.starts_with("https://") || shown.starts_with("http://"), "{shown:?}");
    let host = |text: &str| Url::parse(text).ok().and_then(|url| Some(url.host_str()?.to_owned()));
    let expected = host(text).unwrap_or_default();
    assert!(!expected.is_empty());
    assert_eq!(host(shown).as_ref(), Some(&expected));
    // As a person reads it: up to the first slash, without a user name.
    let authority = shown.split('/').nth(2).unwrap_or_default();
    let port = authority.strip_prefix(&*expected).map(|rest| rest.trim_start_matches(':'));
    assert!(port.is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit())), "{shown:?}");
    assert_eq!(WebUrl::parse(shown), Ok(address.clone()));
    let is_encoded = expected.split('.').any(|label| label.starts_with("xn--"));
    assert_eq!(address.host_note().is_some(), is_encoded, "{shown:?}");
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
