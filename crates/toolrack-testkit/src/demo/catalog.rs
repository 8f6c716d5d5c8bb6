//! What the demo server says of itself: its greeting, its lists, its one resource and its one prompt.

use serde_json::{Value, json};

use super::complete;
use crate::error_code;
use crate::jsonrpc::{Answer, Params, Refusal};
use crate::revision::{Era, Revision, Speaks};

const README_URI: &str = "demo://readme";
const README: &str = "\
This is the demo server of Toolrack. Its tools greet, add, roll dice, count words, and count down \
slowly enough to watch the progress or to cancel.
";
const INSTRUCTIONS: &str = "A demo: try `greet`, then `countdown`.";

pub(super) fn initialize(revision: Revision) -> Answer {
    let mut info = json!({ "name": "toolrack-demo", "version": env!("CARGO_PKG_VERSION") });
    if let (true, Some(members)) = (revision >= Revision::R2025_06_18, info.as_object_mut()) {
        members.insert("title".to_owned(), json!("Toolrack demo"));
    }
    complete(&json!({
        "protocolVersion": revision.text(),
        "capabilities": capabilities(),
        "serverInfo": info,
        "instructions": INSTRUCTIONS,
    }))
}

pub(super) fn discover() -> Answer {
    cacheable(&json!({
        "supportedVersions": Speaks::Dual.supported(),
        "capabilities": capabilities(),
        "instructions": INSTRUCTIONS,
    }))
}

/// The lists and what they list; every other method is unknown.
pub(super) fn read(
    method: &str,
    params: &Params<'_>,
    revision: Revision,
) -> Result<Answer, Refusal> {
    match method {
        "tools/list" => Ok(cacheable(&json!({ "tools": tools(revision) }))),
        "resources/list" => Ok(cacheable(&json!({ "resources": [
            { "uri": README_URI, "name": "readme", "mimeType": "text/plain" },
        ]}))),
        "resources/templates/list" => Ok(cacheable(&json!({ "resourceTemplates": [] }))),
        "resources/read" => read_resource(params, revision),
        "prompts/list" => Ok(cacheable(&json!({ "prompts": [
            { "name": "introduce", "description": "Introduces somebody", "arguments": [
                { "name": "name", "description": "Who is introduced", "required": true },
            ]},
        ]}))),
        "prompts/get" => get_prompt(params),
        other => Err(Refusal::unknown_method(other)),
    }
}

fn capabilities() -> Value {
    json!({ "tools": {}, "resources": {}, "prompts": {} })
}

fn cacheable(members: &Value) -> Answer {
    Answer::Cacheable(Answer::members_of(members))
}

fn tools(revision: Revision) -> Vec<Value> {
    let integer = |minimum: u32, maximum: u32, description: &str| {
        let kind = "integer";
        json!({ "type": kind, "minimum": minimum, "maximum": maximum, "description": description })
    };
    let text = |what: &str| json!({ "type": "string", "description": what });
    let number = json!({ "type": "number" });
    let rows = [
        ("greet", "Greets somebody", json!({ "name": text("Whom to greet") }), vec!["name"]),
        ("add", "Adds two numbers", json!({ "a": number, "b": number }), vec!["a", "b"]),
        (
            "dice",
            "Rolls dice; the same seed rolls the same",
            json!({
                "sides": integer(1, 1000, "Sides of each die (6)"),
                "rolls": integer(1, 100, "How many dice (1)"),
                "seed": { "type": "integer", "minimum": 0, "description": "A number to start from" },
            }),
            Vec::new(),
        ),
        (
            "countdown",
            "Counts down to zero, telling its progress",
            json!({
                "from": integer(0, 1000, "Where to start (3)"),
                "every_ms": integer(0, 60_000, "Milliseconds for each step (1000)"),
            }),
            Vec::new(),
        ),
        (
            "word_count",
            "Counts lines, words and characters",
            json!({ "text": text("The text to count in") }),
            vec!["text"],
        ),
    ];
    let tool = |(name, description, properties, required): (&str, &str, Value, Vec<&str>)| {
        let mut schema = json!({ "type": "object", "properties": properties });
        if let (false, Some(members)) = (required.is_empty(), schema.as_object_mut()) {
            members.insert("required".to_owned(), json!(required));
        }
        let mut tool = json!({ "name": name, "description": description, "inputSchema": schema });
        if let (true, Some(members)) = (revision >= Revision::R2025_03_26, tool.as_object_mut()) {
            let hints = json!({ "readOnlyHint": true, "openWorldHint": false });
            members.insert("annotations".to_owned(), hints);
        }
        tool
    };
    rows.into_iter().map(tool).collect()
}

fn read_resource(params: &Params<'_>, revision: Revision) -> Result<Answer, Refusal> {
    let uri = params.uri.as_deref().unwrap_or_default();
    if uri == README_URI {
        let item = json!({ "uri": uri, "mimeType": "text/plain", "text": README });
        return Ok(cacheable(&json!({ "contents": [item] })));
    }
    let code = match revision.era() {
        Era::Legacy => error_code::RESOURCE_NOT_FOUND,
        Era::Modern => error_code::INVALID_PARAMS,
    };
    let message = format!("no resource `{uri}`; there is `{README_URI}`");
    Err(Refusal { code, message, data: Some(json!({ "uri": uri })) })
}

fn get_prompt(params: &Params<'_>) -> Result<Answer, Refusal> {
    let refused = |why: &str| Err(Refusal::new(error_code::INVALID_PARAMS, why));
    if params.name.as_deref() != Some("introduce") {
        return refused("no such prompt; there is `introduce`");
    }
    let arguments: Value = params
        .arguments
        .and_then(|arguments| serde_json::from_str(arguments.get()).ok())
        .unwrap_or_default();
    let Some(name) = arguments.get("name").and_then(Value::as_str) else {
        return refused("the argument `name` is missing");
    };
    let content = json!({ "type": "text", "text": format!("Introduce {name} in two sentences.") });
    Ok(complete(&json!({ "messages": [{ "role": "user", "content": content }] })))
}
