//! Tools of the demo server. All but `countdown` return at once.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::jsonrpc::{Params, Response, RpcError, error_code};
use crate::plan::splitmix64;
use crate::revision::Revision;

/// Outcome of a tool call.
#[derive(Debug)]
pub(super) enum ToolOutcome {
    Immediate(Response),
    Countdown(Countdown),
}

/// Validated arguments of `countdown`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Countdown {
    pub(super) from: u32,
    pub(super) every: Duration,
}

pub(super) fn call(params: &Params<'_>, revision: Revision) -> Result<ToolOutcome, RpcError> {
    let arguments = params.arguments.map_or("{}", RawValue::get);
    let name = params.name.as_deref().unwrap_or_default();
    let outcome = match name {
        "greet" => greet(arguments),
        "add" => add(arguments, revision),
        "dice" => dice(arguments),
        "word_count" => word_count(arguments),
        "countdown" => match countdown(arguments) {
            Ok(countdown) => return Ok(ToolOutcome::Countdown(countdown)),
            Err(message) => Err(message),
        },
        _ => return Err(RpcError::new(error_code::INVALID_PARAMS, format!("no tool `{name}`"))),
    };
    // Invalid arguments are a tool error, so that a model can read the reason and try again.
    Ok(ToolOutcome::Immediate(outcome.unwrap_or_else(|message| Response::tool_error(&message))))
}

fn greet(arguments: &str) -> Result<Response, String> {
    #[derive(Deserialize)]
    struct Arguments {
        name: String,
    }
    let Arguments { name } = parse_arguments(arguments)?;
    Ok(Response::text(&format!("Hello, {name}!")))
}

fn add(arguments: &str, revision: Revision) -> Result<Response, String> {
    #[derive(Deserialize)]
    struct Arguments {
        a: f64,
        b: f64,
    }
    let Arguments { a, b } = parse_arguments(arguments)?;
    let sum = a + b;
    Ok(if revision >= Revision::R2025_06_18 {
        Response::structured(&sum.to_string(), &json!({ "sum": sum }))
    } else {
        Response::text(&sum.to_string())
    })
}

fn dice(arguments: &str) -> Result<Response, String> {
    #[derive(Deserialize)]
    struct Arguments {
        sides: Option<u64>,
        rolls: Option<u64>,
        seed: Option<u64>,
    }
    let Arguments { sides, rolls, seed } = parse_arguments(arguments)?;
    let sides = check_range("sides", sides.unwrap_or(6), 1, 1000)?;
    let rolls = check_range("rolls", rolls.unwrap_or(1), 1, 100)?;
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) ^ clock_seed());
    let rolled: Vec<String> = (0..rolls)
        .map(|roll| (splitmix64(seed.wrapping_add(splitmix64(roll))) % sides + 1).to_string())
        .collect();
    Ok(Response::text(&rolled.join(" ")))
}

fn word_count(arguments: &str) -> Result<Response, String> {
    #[derive(Deserialize)]
    struct Arguments {
        text: String,
    }
    let Arguments { text } = parse_arguments(arguments)?;
    let (lines, words) = (text.lines().count(), text.split_whitespace().count());
    let characters = text.chars().count();
    Ok(Response::text(&format!("{lines} lines, {words} words, {characters} characters")))
}

fn countdown(arguments: &str) -> Result<Countdown, String> {
    #[derive(Deserialize)]
    struct Arguments {
        from: Option<u64>,
        every_ms: Option<u64>,
    }
    let Arguments { from, every_ms } = parse_arguments(arguments)?;
    let from = check_range("from", from.unwrap_or(3), 0, 1000)?;
    let every = check_range("every_ms", every_ms.unwrap_or(1000), 0, 60_000)?;
    Ok(Countdown {
        from: u32::try_from(from).unwrap_or(u32::MAX),
        every: Duration::from_millis(every),
    })
}

fn parse_arguments<'a, T: Deserialize<'a>>(arguments: &'a str) -> Result<T, String> {
    serde_json::from_str(arguments).map_err(|error| format!("arguments: {error}"))
}

fn check_range(name: &str, value: u64, least: u64, most: u64) -> Result<u64, String> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(format!("`{name}` is {value}; it must be {least} to {most}"))
}

fn clock_seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::from(since.subsec_nanos()) ^ since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demo_tools_return_readable_text() {
        let check = |name: &str, arguments: &str, expected: &Response| {
            let text = format!(r#"{{"name":"{name}","arguments":{arguments}}}"#);
            let raw: &RawValue = serde_json::from_str(&text).expect("JSON");
            let params = Params::parse(Some(raw)).expect("params");
            let Ok(ToolOutcome::Immediate(response)) = call(&params, Revision::R2025_03_26) else {
                panic!("{name} {arguments}");
            };
            assert_eq!(&response, expected, "{name} {arguments}");
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
        let roll = |seed: u64| dice(&format!(r#"{{"sides":6,"rolls":100,"seed":{seed}}}"#));
        assert_eq!(roll(1), roll(1));
        assert_ne!(roll(1), roll(2));
        for side in 1..=6 {
            let Ok(Response::Complete(text)) = roll(3) else { panic!("no dice") };
            assert!(text.contains(&side.to_string()), "{side} in {text}");
        }
    }
}
