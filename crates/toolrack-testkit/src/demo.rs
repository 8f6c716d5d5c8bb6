//! Demo server: a small, correct MCP server of both eras, for first steps and for tests. It is the scripted server
//! without a plan, and with content of its own.
//!
//! **Invariant:** slow tools run on a timer, so a slow call never delays a fast one; a cancelled call is never
//! answered.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, BufRead, Write};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::splitmix64;
use crate::jsonrpc::{Arguments, Params, Response, RpcError, RpcResult, insert, text_block};
use crate::revision::{Revision, SupportedRevisions};
use crate::scripted::{
    self, Content, PendingRequest, ServerInfo, SlowCall, ToolOutcome, ToolResult,
};

/// Serves one client until the end of input.
///
/// Fails only if the input cannot be read; a closed output is not an error.
pub fn serve(input: impl BufRead, output: impl Write + Send + 'static) -> io::Result<()> {
    scripted::serve_content(SupportedRevisions::Dual, Demo, input, output)
}

/// Content of the demo server.
#[derive(Debug)]
struct Demo;

const README_URI: &str = "demo://readme";
const README: &str = "\
This is the demo server of Toolrack. Its tools greet, add, roll dice, count words, and count down \
slowly enough to watch the progress or to cancel.
";

impl Content for Demo {
    fn info(&self) -> ServerInfo {
        ServerInfo {
            name: "toolrack-demo",
            title: Some("Toolrack demo"),
            instructions: Some("A demo: try `greet`, then `countdown`."),
        }
    }

    fn capabilities(&self, _revision: Revision) -> Value {
        json!({ "tools": {}, "resources": {}, "prompts": {} })
    }

    fn call_tool(&self, pending: &PendingRequest, params: &Params<'_>) -> ToolResult {
        let outcome = match params.name() {
            "countdown" => countdown(pending, params),
            "greet" | "add" | "dice" | "word_count" => {
                call(params.name(), &params.arguments(), pending.revision).map(ToolOutcome::from)
            }
            name => return Err(RpcError::invalid_params(format!("no tool `{name}`"))),
        };
        // Invalid arguments are a tool error, so that a model can read the reason and try again.
        outcome.or_else(|rpc_error| Ok(Response::tool_error(&rpc_error.message).into()))
    }

    fn read(&self, pending: &PendingRequest, method: &str, params: &Params<'_>) -> RpcResult {
        Ok(match method {
            "tools/list" => Response::cacheable(&json!({ "tools": tools(pending.revision) })),
            "resources/list" => Response::cacheable(&json!({ "resources": [
                { "uri": README_URI, "name": "readme", "mimeType": "text/plain" },
            ]})),
            "resources/templates/list" => Response::cacheable(&json!({ "resourceTemplates": [] })),
            "resources/read" => {
                let uri = params.uri.as_deref().unwrap_or_default();
                if uri != README_URI {
                    let message = format!("no resource `{uri}`; there is `{README_URI}`");
                    return Err(RpcError::resource_not_found(pending.era(), uri, message));
                }
                let item = json!({ "uri": uri, "mimeType": "text/plain", "text": README });
                Response::cacheable(&json!({ "contents": [item] }))
            }
            "prompts/list" => Response::cacheable(&json!({ "prompts": [
                { "name": "introduce", "description": "Introduces somebody", "arguments": [
                    { "name": "name", "description": "Who is introduced", "required": true },
                ]},
            ]})),
            "prompts/get" if params.name() != "introduce" => {
                return Err(RpcError::invalid_params("no such prompt; there is `introduce`"));
            }
            "prompts/get" => {
                let Ok(name) = params.arguments().get::<String>("name") else {
                    return Err(RpcError::invalid_params("the argument `name` is missing"));
                };
                let text = format!("Introduce {name} in two sentences.");
                Response::prompt(vec![text_block(text)])
            }
            other => return Err(RpcError::unknown_method(other)),
        })
    }
}

fn tools(revision: Revision) -> Vec<Value> {
    let integer = |minimum: u32, maximum: u32, description: &str| {
        let kind = "integer";
        json!({ "type": kind, "minimum": minimum, "maximum": maximum, "description": description })
    };
    let text = |what: &str| json!({ "type": "string", "description": what });
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
    let tool = |(name, description, properties, required): (&str, &str, Value, &[&str])| {
        let mut schema = json!({ "type": "object", "properties": properties });
        insert(&mut schema, "required", (!required.is_empty()).then(|| json!(required)));
        let mut tool = json!({ "name": name, "description": description, "inputSchema": schema });
        let hints = json!({ "readOnlyHint": true, "openWorldHint": false });
        insert(&mut tool, "annotations", (revision >= Revision::R2025_03_26).then_some(hints));
        tool
    };
    rows.into_iter().map(tool).collect()
}

/// Calls a tool that returns at once.
fn call(name: &str, arguments: &Arguments, revision: Revision) -> RpcResult {
    Ok(match name {
        "greet" => Response::text(&format!("Hello, {}!", arguments.get::<String>("name")?)),
        "add" => Response::sum(arguments.get("a")?, arguments.get("b")?, revision),
        "dice" => return dice(arguments),
        _ => {
            let text: String = arguments.get("text")?;
            let (lines, words) = (text.lines().count(), text.split_whitespace().count());
            let characters = text.chars().count();
            Response::text(&format!("{lines} lines, {words} words, {characters} characters"))
        }
    })
}

fn dice(arguments: &Arguments) -> RpcResult {
    let sides = in_range(arguments, "sides", 6, (1, 1000))?;
    let rolls = in_range(arguments, "rolls", 1, (1, 100))?;
    let seed: Option<u64> = arguments.get("seed")?;
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(()));
    let rolled: Vec<String> = (0..rolls)
        .map(|roll| (splitmix64(seed.wrapping_add(splitmix64(roll))) % sides + 1).to_string())
        .collect();
    Ok(Response::text(&rolled.join(" ")))
}

fn countdown(pending: &PendingRequest, params: &Params<'_>) -> ToolResult {
    let (n_steps, every) = countdown_steps(&params.arguments())?;
    let message = move |step| format!("{}…", n_steps - step);
    let notification = pending.progress_line(params, n_steps, message);
    let (rest, text) = (Duration::from_millis(1), "Lift-off!".to_owned());
    Ok(ToolOutcome::Slow(SlowCall { n_steps, every, rest, notification, text }))
}

/// Number and interval of the steps.
fn countdown_steps(arguments: &Arguments) -> Result<(u64, Duration), RpcError> {
    let from = in_range(arguments, "from", 3, (0, 1000))?;
    let every = in_range(arguments, "every_ms", 1000, (0, 60_000))?;
    Ok((from, Duration::from_millis(every)))
}

/// An optional argument between `least` and `most`.
fn in_range(
    arguments: &Arguments,
    name: &str,
    absent: u64,
    (least, most): (u64, u64),
) -> Result<u64, RpcError> {
    let value = arguments.get::<Option<u64>>(name)?.unwrap_or(absent);
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(RpcError::invalid_params(format!("`{name}` is {value}; it must be {least} to {most}")))
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    #[test]
    fn demo_tools_return_readable_text() {
        let check = |name: &str, arguments: &str, expected: &Response| {
            let text = format!(r#"{{"name":"{name}","arguments":{arguments}}}"#);
            let raw: &RawValue = serde_json::from_str(&text).expect("JSON");
            let params = Params::parse(Some(raw)).expect("params");
            let arguments = params.arguments();
            let response = if name == "countdown" {
                countdown_steps(&arguments).map(|_| Response::empty())
            } else {
                call(name, &arguments, Revision::R2025_03_26)
            };
            let response =
                response.unwrap_or_else(|rpc_error| Response::tool_error(&rpc_error.message));
            assert_eq!(&response, expected, "{name} {text}");
        };
        check("greet", r#"{"name":"Ada"}"#, &Response::text("Hello, Ada!"));
        check("add", r#"{"a":1,"b":0.5}"#, &Response::text("1.5"));
        check(
            "word_count",
            r#"{"text":"one two\nthree"}"#,
            &Response::text("2 lines, 3 words, 13 characters"),
        );
        check("dice", r#"{"rolls":3,"seed":7,"sides":1}"#, &Response::text("1 1 1"));
        check(
            "dice",
            r#"{"sides":0}"#,
            &Response::tool_error("`sides` is 0; it must be 1 to 1000"),
        );
        check(
            "countdown",
            r#"{"from":5000}"#,
            &Response::tool_error("`from` is 5000; it must be 0 to 1000"),
        );
    }

    #[test]
    fn dice_are_fair_and_repeatable_by_seed() {
        let roll = |seed: u64| dice(&Arguments(json!({ "sides": 6, "rolls": 100, "seed": seed })));
        assert_eq!(roll(1), roll(1));
        assert_ne!(roll(1), roll(2));
        for side in 1..=6 {
            let Ok(Response::Complete(text)) = roll(3) else { panic!("no dice") };
            assert!(text.contains(&side.to_string()), "{side} in {text}");
        }
    }
}
