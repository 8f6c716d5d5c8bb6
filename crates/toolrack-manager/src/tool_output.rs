//! What a tool answered, as the text that an agent reads: joined, cleaned, and not longer than allowed.
//!
//! **Invariant:** a text is cut on the border of a character, and says that and how much was cut.

use std::borrow::Cow;

use toolrack_client::McpToolResult;
use toolrack_mcp::{
    Content, DecodeError, OnlyText, ResourceBody, ResourceContents, ToolCallResult,
};
use toolrack_transport::RawJson;
use toolrack_transport::clean_text;

/// Reads the answer to a call. A text that is embedded as a resource is text. Blocks that are no text are shown as one
/// line each; they are whole in the raw result. An answer without any block is shown as its structured content.
pub fn read(raw: &RawJson, max_output_bytes: usize) -> Result<McpToolResult, DecodeError> {
    let bytes = raw.as_bytes();
    if let Some(only) = OnlyText::find(bytes)
        && let Some(Ok(text)) = bytes.get(only.text).map(std::str::from_utf8)
    {
        return Ok(McpToolResult { content: fit(text, max_output_bytes), is_error: only.is_error });
    }
    let result = ToolCallResult::parse(bytes)?;
    let content = fit(&shown(&result), max_output_bytes);
    Ok(McpToolResult { content, is_error: result.is_error })
}

/// Whether the tool ran and failed, as far as that can be told without reading everything.
pub(crate) fn is_error(raw: &RawJson) -> bool {
    match OnlyText::find(raw.as_bytes()) {
        Some(only) => only.is_error,
        None => ToolCallResult::parse(raw.as_bytes()).is_ok_and(|result| result.is_error),
    }
}

fn shown(result: &ToolCallResult<'_>) -> String {
    if let (true, Some(structured)) = (result.content.is_empty(), &result.structured_content) {
        return structured.get().to_owned();
    }
    let blocks: Vec<Cow<'_, str>> = result.content.iter().filter_map(line).collect();
    blocks.join("\n")
}

/// A block as text, or as the line that stands for it.
fn line<'a>(block: &'a Content<'_>) -> Option<Cow<'a, str>> {
    match block {
        Content::Text { text, .. }
        | Content::Resource {
            resource: ResourceContents { body: ResourceBody::Text(text), .. },
            ..
        } => Some(Cow::Borrowed(text)),
        other => other.placeholder().map(Cow::Owned),
    }
}

/// Cuts first, so that cleaning costs no more than what is kept.
fn fit(text: &str, max_output_bytes: usize) -> String {
    let end = text.floor_char_boundary(max_output_bytes);
    let (kept, cut) = text.split_at(end);
    let cleaned = clean_text(kept);
    if cut.is_empty() {
        return cleaned.into_owned();
    }
    format!("{cleaned}\n[… cut here: {} of {} bytes are left out]", cut.len(), text.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(result: Value, max_output_bytes: usize, expected: &str, outcome: Result<(), ()>) {
        let raw = RawJson::new(result.to_string());
        let read = read(&raw, max_output_bytes).unwrap();
        assert_eq!(
            (read.content.as_str(), read.is_error),
            (expected, outcome.is_err()),
            "{result}"
        );
        assert_eq!(is_error(&raw), outcome.is_err());
    }

    #[test]
    fn text_is_joined_and_other_blocks_are_named() {
        let blocks = json!([
            {"type": "text", "text": "first\nline"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "text", "text": "\u{1b}[1mlast"},
        ]);
        let shown = "first\nline\n[image: image/png, 3 bytes]\nlast";
        check(json!({"content": blocks}), 1000, shown, Ok(()));
        check(
            json!({"content": [{"type": "text", "text": "no"}], "isError": true}),
            9,
            "no",
            Err(()),
        );
        check(json!({"content": []}), 1000, "", Ok(()));
    }

    #[test]
    fn embedded_text_is_text() {
        let text = json!({"uri": "file:///a", "text": "\u{1b}[1mwords"});
        let bytes = json!({"uri": "file:///b", "blob": "AAAA"});
        let blocks = json!([
            {"type": "resource", "resource": text},
            {"type": "resource", "resource": bytes},
            {"type": "resource_link", "uri": "file:///c", "name": "c"},
        ]);
        let shown = "words\n[resource: file:///b]\n[resource link: file:///c]";
        check(json!({"content": blocks}), 1000, shown, Ok(()));
    }

    #[test]
    fn structured_content_is_shown_if_there_is_nothing_else() {
        let structured = json!({"n": 7});
        check(json!({"content": [], "structuredContent": structured}), 1000, "{\"n\":7}", Ok(()));
        check(
            json!({"structuredContent": structured, "isError": true}),
            1000,
            "{\"n\":7}",
            Err(()),
        );
        let text = json!([{"type": "text", "text": "seven"}]);
        check(json!({"content": text, "structuredContent": structured}), 1000, "seven", Ok(()));
    }

    #[test]
    fn long_text_is_cut_and_says_so() {
        let text = |it: &str| json!({"content": [{"type": "text", "text": it}]});
        check(text("12345"), 5, "12345", Ok(()));
        check(text("123456"), 5, "12345\n[… cut here: 1 of 6 bytes are left out]", Ok(()));
        check(text("1234ü"), 5, "1234\n[… cut here: 2 of 6 bytes are left out]", Ok(()));
        check(text("abc"), 0, "\n[… cut here: 3 of 3 bytes are left out]", Ok(()));
    }

    proptest! {
        #[test]
        fn what_is_kept_is_never_more_than_allowed(text in any::<String>(), limit in 0_usize..64) {
            let shown = fit(&text, limit);
            let kept = shown.split("\n[… cut here").next().unwrap_or_default();
            prop_assert!(text.len() <= limit || kept.len() <= limit);
        }
    }
}
