//! Random JSON text with unusual layout and protocol words.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Keys and values that parsers look for.
const WORDS: &[&str] = &[
    "tools",
    "resources",
    "resourceTemplates",
    "prompts",
    "contents",
    "content",
    "name",
    "title",
    "description",
    "inputSchema",
    "outputSchema",
    "annotations",
    "type",
    "text",
    "image",
    "audio",
    "resource",
    "resource_link",
    "tool_use",
    "tool_result",
    "data",
    "mimeType",
    "uri",
    "blob",
    "id",
    "input",
    "toolUseId",
    "structuredContent",
    "isError",
    "_meta",
    "nextCursor",
    "ttlMs",
    "cacheScope",
    "public",
    "resultType",
    "complete",
    "input_required",
    "inputRequests",
    "requestState",
    "method",
    "params",
    "elicitation/create",
    "sampling/createMessage",
    "roots/list",
    "mode",
    "form",
    "url",
    "message",
    "requestedSchema",
    "properties",
    "required",
    "string",
    "number",
    "integer",
    "boolean",
    "array",
    "object",
    "enum",
    "enumNames",
    "oneOf",
    "anyOf",
    "const",
    "items",
    "default",
    "minimum",
    "messages",
    "maxTokens",
    "role",
    "user",
    "assistant",
    "toolChoice",
    "supportedVersions",
    "capabilities",
    "protocolVersion",
    "serverInfo",
    "version",
    "io.modelcontextprotocol/serverInfo",
    "io.modelcontextprotocol/subscriptionId",
    "supported",
    "requiredCapabilities",
    "elicitations",
    "progressToken",
    "progress",
    "total",
    "requestId",
    "level",
    "info",
    "notifications",
    "completion",
    "values",
    "arguments",
];

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => select(WORDS).prop_map(|word| format!("\"{word}\"")),
        1 => select(&["\"\"", "\"\\u00e9\\n\"", "\"\\ud800\"", "\"é\"", "\"a b\""][..])
            .prop_map(str::to_owned),
    ]
}

fn space() -> impl Strategy<Value = &'static str> {
    select(&["", "", "", " ", "\n\t", "\r\n "][..])
}

/// Any JSON text.
pub(crate) fn text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        select(
            &[
                "null",
                "true",
                "false",
                "0",
                "-1",
                "1.50",
                "1e400",
                "-0.0E+1",
                "99999999999999999999"
            ][..]
        )
        .prop_map(str::to_owned),
        word(),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        prop_oneof![
            (vec(inner.clone(), 0..5), space())
                .prop_map(|(items, gap)| format!("[{gap}{}{gap}]", items.join(","))),
            object(inner),
        ]
    })
}

fn object(member: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    (vec((word(), member), 0..6), space()).prop_map(|(members, gap)| {
        let members: Vec<_> =
            members.into_iter().map(|(key, value)| format!("{key}{gap}:{value}")).collect();
        format!("{{{gap}{}}}", members.join(&format!(",{gap}")))
    })
}

/// Text of an object that any JSON parser accepts.
pub(crate) fn sound_object() -> impl Strategy<Value = String> {
    object(text()).prop_filter("sound", |text| {
        serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok()
    })
}
