//! Content blocks, valid and malformed.

use super::*;

/// Reads a block, copies it, and writes it again.
#[track_caller]
fn check(json: &str, kind: &str, expected: &str) {
    let raw: &RawValue = serde_json::from_str(json).unwrap();
    let content = Content::parse(raw);
    assert_eq!(name(&content), kind, "{json}");
    assert_eq!(serde_json::to_string(&content.into_owned()).unwrap(), expected);
}

fn name(content: &Content<'_>) -> &'static str {
    match content {
        Content::Text { .. } => "text",
        Content::Image { .. } => "image",
        Content::Audio { .. } => "audio",
        Content::Resource { .. } => "resource",
        Content::ResourceLink(_) => "link",
        Content::ToolUse { .. } => "use",
        Content::ToolResult { .. } => "result",
        Content::Unknown(_) => "unknown",
    }
}

#[track_caller]
fn check_same(json: &str, kind: &str) {
    check(json, kind, json);
}

/// Protocol facts §8.3.
#[test]
fn every_block_type_round_trips() {
    check_same(r#"{"type":"text","text":"a\nb"}"#, "text");
    check_same(
        r#"{"type":"text","text":"","annotations":{"priority" : 1},"_meta":{"k":[ ]}}"#,
        "text",
    );
    check_same(r#"{"type":"image","data":"AAEC","mimeType":"image/png"}"#, "image");
    check_same(r#"{"type":"audio","data":"AAEC","mimeType":"audio/wav","_meta":{}}"#, "audio");
    check_same(r#"{"type":"resource","resource":{"uri":"a:","text":"x"}}"#, "resource");
    check_same(
        r#"{"type":"resource","resource":{"uri":"a:","mimeType":"m/t","blob":"AA=="}}"#,
        "resource",
    );
    check_same(r#"{"type":"resource_link","uri":"a:","name":"n","size":3}"#, "link");
    check_same(r#"{"type":"tool_use","id":"1","name":"t","input":{ "a": 1 }}"#, "use");
    check_same(
        r#"{"type":"tool_result","toolUseId":"1","content":[{"type":"text","text":"x"}],"structuredContent":null,"isError":true}"#,
        "result",
    );
}

#[test]
fn unknown_members_are_ignored() {
    check(
        r#"{"new":{"type":1},"text":"a","type":"text"}"#,
        "text",
        r#"{"type":"text","text":"a"}"#,
    );
}

#[test]
fn unknown_blocks_are_kept_as_written() {
    for json in [
        r#"{"type":"video","data": "AA"}"#,
        r#"{"type":"text"}"#,
        r#"{"type":"text","text":5}"#,
        r#"{"type":"image","data":"AA"}"#,
        r#"{"type":"resource","resource":{"uri":"a:"}}"#,
        r#"{"type":"resource_link","uri":"a:"}"#,
        r#"{"type":"tool_use","id":"1"}"#,
        r#"{"type":"tool_result","toolUseId":"1"}"#,
        r#"{"text":"a"}"#,
        r#""text""#,
        "[ 1 ]",
        "null",
    ] {
        check_same(json, "unknown");
    }
}

#[test]
fn nested_tool_results_are_not_read() {
    let inner = r#"{"type":"tool_result","toolUseId":"2","content":[]}"#;
    let json =
        format!(r#"{{"type":"tool_result","toolUseId":"1","content":[{inner}],"isError":false}}"#);
    check_same(&json, "result");
    let raw: &RawValue = serde_json::from_str(&json).unwrap();
    let Content::ToolResult { content, .. } = Content::parse(raw) else { panic!("no result") };
    assert_eq!(content.iter().map(name).collect::<Vec<_>>(), ["unknown"]);
}

#[test]
fn plain_text_is_borrowed() {
    let raw: &RawValue = serde_json::from_str(r#"{"type":"text","text":"abc"}"#).unwrap();
    let Content::Text { text, .. } = Content::parse(raw) else { panic!("no text") };
    assert!(matches!(text, Cow::Borrowed("abc")));
}

#[test]
fn placeholders_describe_the_block() {
    let shown = |json: &str| {
        let raw: &RawValue = serde_json::from_str(json).unwrap();
        Content::parse(raw).placeholder()
    };
    let actual = [
        shown(r#"{"type":"text","text":"a"}"#),
        shown(r#"{"type":"image","data":"AAECAw==","mimeType":"image/png"}"#),
        shown(r#"{"type":"audio","data":"","mimeType":"audio/wav"}"#),
        shown(r#"{"type":"resource","resource":{"uri":"a:","text":"x"}}"#),
        shown(r#"{"type":"resource_link","uri":"b:","name":"n"}"#),
        shown("[1]"),
    ];
    let expected = [
        None,
        Some("[image: image/png, 4 bytes]"),
        Some("[audio: audio/wav, 0 bytes]"),
        Some("[resource: a:]"),
        Some("[resource link: b:]"),
        Some("[unknown content: 3 bytes]"),
    ];
    assert_eq!(actual, expected.map(|text| text.map(str::to_owned)));
}
