//! No input makes a parser panic.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::value::RawValue;
use toolrack_mcp::{
    CompleteResult, Content, DiscoverResult, Elicitation, EmptyResult, FormContent, FormSchema,
    GetPromptResult, InitializeResult, InputRequest, InputRequired, ListPage, Method, Prompt,
    ReadResourceResult, RequestResult, Resource, ResourceTemplate, ResultType, Revision,
    SamplingCapability, SamplingParams, ServerNotification, Tool, ToolCallResult, UrlElicitation,
    check_sampling, subscription_id,
};

use crate::json;

/// Passes `bytes` to every parser of the crate and counts the successes.
fn show(bytes: &[u8]) -> usize {
    let mut understood = [
        ListPage::<Tool>::decode(bytes).is_ok(),
        ListPage::<Resource>::decode(bytes).is_ok(),
        ListPage::<ResourceTemplate>::decode(bytes).is_ok(),
        ListPage::<Prompt>::decode(bytes).is_ok(),
        ReadResourceResult::decode(bytes).is_ok(),
        InitializeResult::decode(bytes).is_ok(),
        DiscoverResult::decode(bytes).is_ok(),
        GetPromptResult::decode(bytes).is_ok(),
        CompleteResult::decode(bytes).is_ok(),
        EmptyResult::decode(bytes).is_ok(),
        InputRequired::parse(bytes).is_ok(),
        Elicitation::parse(bytes).is_ok(),
        subscription_id(bytes).is_some(),
        matches!(ResultType::read(bytes), ResultType::InputRequired | ResultType::Task),
    ]
    .into_iter()
    .filter(|passed| *passed)
    .count();
    if let Ok(result) = ToolCallResult::parse(bytes) {
        understood += result.text().len().min(1);
    }
    if let Ok(params) = SamplingParams::decode(bytes) {
        understood += usize::from(check_sampling(&params, SamplingCapability::default()).is_ok());
    }
    if let Ok(form) = serde_json::from_slice::<FormSchema>(bytes) {
        let mut content: FormContent = serde_json::from_slice(bytes).unwrap_or_default();
        form.fill_defaults(&mut content);
        understood += usize::from(form.validate(&content).is_ok());
    }
    if let Ok(raw) = serde_json::from_slice::<&RawValue>(bytes) {
        understood += usize::from(Content::parse(raw).placeholder().is_none());
    }
    for method in Method::ALL {
        let name = method.as_str();
        understood += usize::from(ServerNotification::parse(name, bytes).is_ok());
        understood += usize::from(InputRequest::parse(name, bytes).is_ok());
    }
    understood += usize::from(serde_json::from_slice::<UrlElicitation>(bytes).is_ok());
    if let Ok(text) = str::from_utf8(bytes) {
        understood += usize::from(Revision::parse(text).is_some());
    }
    understood
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_do_not_panic(bytes in vec(any::<u8>(), 0..200)) {
        show(&bytes);
    }

    #[test]
    fn json_does_not_panic(text in json::text()) {
        show(text.as_bytes());
    }

    #[test]
    fn broken_json_does_not_panic(
        text in json::sound_object(), place in any::<Index>(), byte in any::<u8>(),
    ) {
        let mut bytes = text.into_bytes();
        let place = place.index(bytes.len());
        show(&bytes[..place]);
        bytes[place] = byte;
        show(&bytes);
    }
}

/// Deep nesting must not exhaust the stack of a recursive parser.
#[test]
fn depth_does_not_exhaust_the_stack() {
    const DEPTH: usize = 5_000;
    let arrays = format!("{}{}", "[".repeat(DEPTH), "]".repeat(DEPTH));
    let objects = format!("{}1{}", r#"{"a":"#.repeat(DEPTH), "}".repeat(DEPTH));
    let result = r#"{"type":"tool_result","toolUseId":"1","content":["#;
    let results = format!("{}{}", result.repeat(DEPTH), "]}".repeat(DEPTH));
    for deep in [&arrays, &objects, &results] {
        show(deep.as_bytes());
        for member in [
            "tools",
            "content",
            "contents",
            "structuredContent",
            "_meta",
            "inputRequests",
            "messages",
            "requestedSchema",
            "properties",
            "capabilities",
            "nextCursor",
            "data",
        ] {
            show(format!(r#"{{"{member}":{deep}}}"#).as_bytes());
            show(format!(r#"{{"{member}":[{deep}]}}"#).as_bytes());
        }
    }
}

/// Guards against vacuous properties above.
#[test]
fn readers_accept_valid_input() {
    assert!(show(br#"{"tools":[],"content":[{"type":"text","text":"a"}]}"#) > show(b"{}"));
    assert!(show(b"{}") > show(b"7"));
}
