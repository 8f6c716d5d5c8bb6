//! Tools, resource and prompt of the demo server.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::protocol::{Params, Revision, RpcError, without_nulls};

pub(crate) const INSTRUCTIONS: &str = "A demo: try `greet`, then `countdown`.";
const README_URI: &str = "demo://readme";
const README: &str = "\
This is the demo server of Toolrack. Its tools greet, add, roll dice, count words, and count down \
slowly enough to watch the progress or to cancel.
";

pub(crate) fn capabilities() -> Value {
    json!({ "tools": {}, "resources": {}, "prompts": {} })
}

/// Result of a list or a read.
pub(crate) fn read(method: &str, params: &Params, revision: Revision) -> Result<Value, RpcError> {
    Ok(match method {
        "tools/list" => json!({ "tools": tools(revision) }),
        "resources/list" => json!({ "resources": [
            { "uri": README_URI, "name": "readme", "mimeType": "text/plain" },
        ]}),
        "resources/templates/list" => json!({ "resourceTemplates": [] }),
        "resources/read" => return read_resource(&params.uri, revision),
        "prompts/list" => json!({ "prompts": [
            { "name": "introduce", "description": "Introduces somebody", "arguments": [
                { "name": "name", "description": "Who is introduced", "required": true },
            ]},
        ]}),
        "prompts/get" => return prompt(params),
        other => {
            let message = format!("no method `{other}`");
            return Err(RpcError::new(RpcError::METHOD_NOT_FOUND, message));
        }
    })
}

fn read_resource(uri: &str, revision: Revision) -> Result<Value, RpcError> {
    if uri == README_URI {
        let item = json!({ "uri": uri, "mimeType": "text/plain", "text": README });
        return Ok(json!({ "contents": [item] }));
    }
    let is_modern = revision.is_modern();
    let code = if is_modern { RpcError::INVALID_PARAMS } else { RpcError::RESOURCE_NOT_FOUND };
    let error = RpcError::new(code, format!("no resource `{uri}`; there is `{README_URI}`"));
    Err(RpcError { data: Some(json!({ "uri": uri })), ..error })
}

fn prompt(params: &Params) -> Result<Value, RpcError> {
    if params.name != "introduce" {
        return Err(RpcError::invalid_params("no such prompt; there is `introduce`"));
    }
    let Ok(name) = argument::<String>(&params.arguments, "name") else {
        return Err(RpcError::invalid_params("the argument `name` is missing"));
    };
    let content = text_block(format!("Introduce {name} in two sentences."));
    Ok(json!({ "messages": [{ "role": "user", "content": content }] }))
}

fn tools(revision: Revision) -> Vec<Value> {
    let integer = |minimum: u32, maximum: u32, description: &str| {
        let kind = "integer";
        json!({ "type": kind, "minimum": minimum, "maximum": maximum, "description": description })
    };
    let text = |description: &str| json!({ "type": "string", "description": description });
    let number = json!({ "type": "number" });
    let dice = json!({
        "sides": integer(1, 1000, "Sides of each die (6)"),
        "rolls": integer(1, 100, "How many dice (1)"),
        "seed": { "type": "integer", "minimum": 0, "description": "A number to start from" },
    });
    let countdown = json!({
        "from": integer(0, 1000, "Where to start (3)"),
        "every_ms": integer(0, 60_000, "Milliseconds for each step (1000)"),
    });
    let (name, numbers) =
        (json!({ "name": text("Whom to greet") }), json!({ "a": number, "b": number }));
    let counted = json!({ "text": text("The text to count in") });
    let rows: [(&str, &str, Value, &[&str]); 5] = [
        ("greet", "Greets somebody", name, &["name"]),
        ("add", "Adds two numbers", numbers, &["a", "b"]),
        ("dice", "Rolls dice; the same seed rolls the same", dice, &[]),
        ("countdown", "Counts down to zero, telling its progress", countdown, &[]),
        ("word_count", "Counts lines, words and characters", counted, &["text"]),
    ];
    let hints = (revision >= Revision::R2025_03_26)
        .then(|| json!({ "readOnlyHint": true, "openWorldHint": false }));
    let tool = |(name, description, properties, required): (&str, &str, Value, &[&str])| {
        let required = (!required.is_empty()).then_some(required);
        let schema = json!({ "type": "object", "properties": properties, "required": required });
        without_nulls(json!({
            "name": name,
            "description": description,
            "inputSchema": without_nulls(schema),
            "annotations": hints,
        }))
    };
    rows.into_iter().map(tool).collect()
}

/// Outcome of a tool call.
#[derive(Debug, PartialEq)]
pub(crate) enum ToolOutcome {
    Result(Value),
    /// The result comes after the last step.
    Countdown(Countdown),
}

/// Steps of the tool `countdown`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Countdown {
    pub(crate) n_steps: u64,
    pub(crate) every: Duration,
}

impl ToolOutcome {
    fn text(text: impl Into<String>) -> Self {
        Self::Result(text_result(text))
    }
}

pub(crate) fn text_result(text: impl Into<String>) -> Value {
    json!({ "content": [text_block(text.into())] })
}

pub(crate) fn tool_error(reason: String) -> Value {
    json!({ "content": [text_block(reason)], "isError": true })
}

fn text_block(text: String) -> Value {
    json!({ "type": "text", "text": text })
}

pub(crate) fn call_tool(params: &Params, revision: Revision) -> Result<ToolOutcome, RpcError> {
    let arguments = &params.arguments;
    let outcome = match params.name.as_str() {
        "greet" => argument(arguments, "name")
            .map(|name: String| ToolOutcome::text(format!("Hello, {name}!"))),
        "add" => add(arguments, revision),
        "dice" => dice(arguments),
        "countdown" => countdown(arguments),
        "word_count" => word_count(arguments),
        name => return Err(RpcError::invalid_params(format!("no tool `{name}`"))),
    };
    // Invalid arguments are a tool error, so that a model can read the reason and try again.
    Ok(outcome.unwrap_or_else(|reason| ToolOutcome::Result(tool_error(reason))))
}

/// The sum, with structured content where the revision has it.
fn add(arguments: &Value, revision: Revision) -> Result<ToolOutcome, String> {
    let sum = argument::<f64>(arguments, "a")? + argument::<f64>(arguments, "b")?;
    let structure = (revision >= Revision::R2025_06_18).then(|| json!({ "sum": sum }));
    Ok(ToolOutcome::Result(without_nulls(json!({
        "content": [text_block(sum.to_string())],
        "structuredContent": structure,
    }))))
}

fn dice(arguments: &Value) -> Result<ToolOutcome, String> {
    let sides = in_range(arguments, "sides", 6, (1, 1000))?;
    let rolls = in_range(arguments, "rolls", 1, (1, 100))?;
    let seed: Option<u64> = argument(arguments, "seed")?;
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(()));
    let rolled: Vec<String> = (0..rolls)
        .map(|roll| (splitmix64(seed.wrapping_add(splitmix64(roll))) % sides + 1).to_string())
        .collect();
    Ok(ToolOutcome::text(rolled.join(" ")))
}

fn splitmix64(number: u64) -> u64 {
    let state = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

fn countdown(arguments: &Value) -> Result<ToolOutcome, String> {
    let n_steps = in_range(arguments, "from", 3, (0, 1000))?;
    let every = Duration::from_millis(in_range(arguments, "every_ms", 1000, (0, 60_000))?);
    Ok(ToolOutcome::Countdown(Countdown { n_steps, every }))
}

fn word_count(arguments: &Value) -> Result<ToolOutcome, String> {
    let text: String = argument(arguments, "text")?;
    let (lines, words) = (text.lines().count(), text.split_whitespace().count());
    let characters = text.chars().count();
    Ok(ToolOutcome::text(format!("{lines} lines, {words} words, {characters} characters")))
}

/// An argument. A missing one counts as `null`, so `Option` types are optional.
fn argument<T: DeserializeOwned>(arguments: &Value, name: &str) -> Result<T, String> {
    let given = arguments.get(name);
    T::deserialize(given.unwrap_or(&Value::Null)).map_err(|error| match given {
        Some(_) => format!("arguments: `{name}`: {error}"),
        None => format!("arguments: `{name}` is missing"),
    })
}

/// An optional argument between `least` and `most`.
fn in_range(
    arguments: &Value,
    name: &str,
    absent: u64,
    (least, most): (u64, u64),
) -> Result<u64, String> {
    let value = argument::<Option<u64>>(arguments, name)?.unwrap_or(absent);
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(format!("`{name}` is {value}; it must be {least} to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demo_tools_return_readable_text() {
        let check = |name: &str, arguments: Value, expected: ToolOutcome| {
            let params = Params { name: name.to_owned(), arguments, ..Params::default() };
            assert_eq!(call_tool(&params, Revision::R2025_03_26), Ok(expected), "{params:?}");
        };
        let error = |reason: &str| ToolOutcome::Result(tool_error(reason.to_owned()));
        check("greet", json!({ "name": "Ada" }), ToolOutcome::text("Hello, Ada!"));
        check("greet", json!({}), error("arguments: `name` is missing"));
        check("add", json!({ "a": 1, "b": 0.5 }), ToolOutcome::text("1.5"));
        let counted = ToolOutcome::text("2 lines, 3 words, 13 characters");
        check("word_count", json!({ "text": "one two\nthree" }), counted);
        check("dice", json!({ "rolls": 3, "seed": 7, "sides": 1 }), ToolOutcome::text("1 1 1"));
        check("dice", json!({ "sides": 0 }), error("`sides` is 0; it must be 1 to 1000"));
        let four = Countdown { n_steps: 4, every: Duration::from_secs(1) };
        check("countdown", json!({ "from": 4 }), ToolOutcome::Countdown(four));
        let too_many = error("`from` is 5000; it must be 0 to 1000");
        check("countdown", json!({ "from": 5000 }), too_many);
    }

    #[test]
    fn dice_are_fair_and_repeatable_by_seed() {
        let roll = |seed: u64| dice(&json!({ "sides": 6, "rolls": 100, "seed": seed }));
        assert_eq!(roll(1), roll(1));
        assert_ne!(roll(1), roll(2));
        let Ok(ToolOutcome::Result(rolled)) = roll(3) else { panic!("no dice") };
        let text = rolled["content"][0]["text"].to_string();
        for side in 1..=6 {
            assert!(text.contains(&side.to_string()), "{side} in {text}");
        }
    }
}
