//! Lists with random malformed entries.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::value::RawValue;
use toolrack_mcp::{ListPage, Prompt, RequestResult as _, Resource, Tool, ToolCallResult};

use crate::json;

/// Malformed entries.
const MALFORMED: &[&str] = &[
    "null",
    "7",
    "\"name\"",
    "[]",
    "{}",
    r#"{"inputSchema":{}}"#,
    r#"{"name":7,"inputSchema":{}}"#,
    r#"{"name":"a","inputSchema":""}"#,
    r#"{"name":"a","inputSchema":[]}"#,
    r#"{"name":"a","inputSchema":{"type":"array"}}"#,
    r#"{"name":"a","inputSchema":{"properties":{"x":5}}}"#,
    r#"{"name":"a","name":"b","inputSchema":{}}"#,
];

#[derive(Debug, Clone)]
enum Entry {
    Sound { name: String, schema: String },
    Malformed(&'static str),
}

fn entry() -> impl Strategy<Value = Entry> {
    prop_oneof![
        3 => (any::<String>(), json::sound_object())
            .prop_map(|(name, within)| Entry::Sound { name, schema: format!(r#"{{"x":{within}}}"#) }),
        1 => select(MALFORMED).prop_map(Entry::Malformed),
    ]
}

impl Entry {
    fn text(&self) -> String {
        match self {
            Self::Sound { name, schema } => {
                let name = serde_json::to_string(name).unwrap();
                format!(r#"{{"name":{name},"inputSchema": {schema},"outputSchema":{schema} }}"#)
            }
            Self::Malformed(text) => (*text).to_owned(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn valid_entries_survive_in_order_and_byte_for_byte(entries in vec(entry(), 0..12)) {
        let list: Vec<_> = entries.iter().map(Entry::text).collect();
        let json = format!(r#"{{"tools":[{}],"nextCursor":""}}"#, list.join(","));
        let page: ListPage<Tool> = ListPage::decode(json.as_bytes()).unwrap();

        let kept: Vec<_> = page
            .items
            .iter()
            .map(|tool| {
                let output = tool.output_schema.as_deref().map(RawValue::get);
                (tool.name.as_str(), tool.input_schema.get(), output)
            })
            .collect();
        let sound: Vec<_> = entries
            .iter()
            .filter_map(|entry| match entry {
                Entry::Sound { name, schema } => {
                    Some((name.as_str(), schema.as_str(), Some(schema.as_str())))
                }
                Entry::Malformed(_) => None,
            })
            .collect();
        prop_assert_eq!(kept, sound);

        let skipped: Vec<_> = page.skipped.iter().map(|entry| entry.index).collect();
        let malformed: Vec<_> = (0..entries.len())
            .filter(|&index| matches!(entries[index], Entry::Malformed(_)))
            .collect();
        prop_assert_eq!(skipped, malformed);
        prop_assert_eq!(page.next_cursor.as_deref(), Some(""));
    }

    #[test]
    fn other_lists_lose_only_malformed_entries(sound in vec(any::<bool>(), 0..12)) {
        let list = |good: &str| {
            let entries: Vec<_> = sound.iter().map(|&is_valid| if is_valid { good } else { "{}" }).collect();
            entries.join(",")
        };
        let n_sound = sound.iter().filter(|is_valid| **is_valid).count();
        let expected = (n_sound, sound.len() - n_sound);
        let json = format!(r#"{{"resources":[{}]}}"#, list(r#"{"uri":"a:","name":"a"}"#));
        let page: ListPage<Resource> = ListPage::decode(json.as_bytes()).unwrap();
        prop_assert_eq!((page.items.len(), page.skipped.len()), expected);
        let json = format!(r#"{{"prompts":[{}]}}"#, list(r#"{"name":"a"}"#));
        let page: ListPage<Prompt> = ListPage::decode(json.as_bytes()).unwrap();
        prop_assert_eq!((page.items.len(), page.skipped.len()), expected);
    }

    #[test]
    fn no_content_block_is_lost(blocks in vec(json::sound_object(), 0..8)) {
        let json = format!(
            r#"{{"content":[{}],"structuredContent":[{}]}}"#,
            blocks.join(","),
            blocks.join(" , "),
        );
        let result = ToolCallResult::parse(json.as_bytes()).unwrap();
        prop_assert_eq!(result.content.len(), blocks.len());
        let structured = result.structured_content.as_deref().map(RawValue::get);
        let expected = format!("[{}]", blocks.join(" , "));
        prop_assert_eq!(structured, Some(expected.as_str()));
        for (block, written) in result.content.iter().zip(&blocks) {
            if let toolrack_mcp::Content::Unknown(raw) = block {
                prop_assert_eq!(raw.get(), written);
            }
        }
    }
}
