//! The tools of the demo server. All but `countdown` are done at once.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::jsonrpc::error_code;
use crate::jsonrpc::{Answer, Params, Refusal};
use crate::plan::scatter;
use crate::revision::Revision;

/// What a call comes to.
#[derive(Debug)]
pub(super) enum Done {
    Now(Answer),
    Counting(Countdown),
}

/// A call of `countdown` within its limits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Countdown {
    pub(super) from: u32,
    pub(super) every: Duration,
}

pub(super) fn call(params: &Params<'_>, revision: Revision) -> Result<Done, Refusal> {
    let arguments = params.arguments.map_or("{}", RawValue::get);
    let name = params.name.as_deref().unwrap_or_default();
    let outcome = match name {
        "greet" => greet(arguments),
        "add" => add(arguments, revision),
        "dice" => dice(arguments),
        "word_count" => word_count(arguments),
        "countdown" => match countdown(arguments) {
            Ok(countdown) => return Ok(Done::Counting(countdown)),
            Err(why) => Err(why),
        },
        _ => return Err(Refusal::new(error_code::INVALID_PARAMS, format!("no tool `{name}`"))),
    };
    // Wrong arguments are told as the tool's own failure, so that a model can read why and try again.
    Ok(Done::Now(outcome.unwrap_or_else(|why| Answer::tool_failure(&why))))
}

fn greet(arguments: &str) -> Result<Answer, String> {
    #[derive(Deserialize)]
    struct Arguments {
        name: String,
    }
    let Arguments { name } = read(arguments)?;
    Ok(Answer::text(&format!("Hello, {name}!")))
}

fn add(arguments: &str, revision: Revision) -> Result<Answer, String> {
    #[derive(Deserialize)]
    struct Arguments {
        a: f64,
        b: f64,
    }
    let Arguments { a, b } = read(arguments)?;
    let sum = a + b;
    Ok(if revision >= Revision::R2025_06_18 {
        Answer::structured(&sum.to_string(), &json!({ "sum": sum }))
    } else {
        Answer::text(&sum.to_string())
    })
}

fn dice(arguments: &str) -> Result<Answer, String> {
    #[derive(Deserialize)]
    struct Arguments {
        sides: Option<u64>,
        rolls: Option<u64>,
        seed: Option<u64>,
    }
    let Arguments { sides, rolls, seed } = read(arguments)?;
    let sides = within("sides", sides.unwrap_or(6), 1, 1000)?;
    let rolls = within("rolls", rolls.unwrap_or(1), 1, 100)?;
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) ^ clock_seed());
    let rolled: Vec<String> = (0..rolls)
        .map(|roll| (scatter(seed.wrapping_add(scatter(roll))) % sides + 1).to_string())
        .collect();
    Ok(Answer::text(&rolled.join(" ")))
}

fn word_count(arguments: &str) -> Result<Answer, String> {
    #[derive(Deserialize)]
    struct Arguments {
        text: String,
    }
    let Arguments { text } = read(arguments)?;
    let (lines, words) = (text.lines().count(), text.split_whitespace().count());
    let characters = text.chars().count();
    Ok(Answer::text(&format!("{lines} lines, {words} words, {characters} characters")))
}

fn countdown(arguments: &str) -> Result<Countdown, String> {
    #[derive(Deserialize)]
    struct Arguments {
        from: Option<u64>,
        every_ms: Option<u64>,
    }
    let Arguments { from, every_ms } = read(arguments)?;
    let from = within("from", from.unwrap_or(3), 0, 1000)?;
    let every = within("every_ms", every_ms.unwrap_or(1000), 0, 60_000)?;
    Ok(Countdown {
        from: u32::try_from(from).unwrap_or(u32::MAX),
        every: Duration::from_millis(every),
    })
}

fn read<'a, T: Deserialize<'a>>(arguments: &'a str) -> Result<T, String> {
    serde_json::from_str(arguments).map_err(|fault| format!("arguments: {fault}"))
}

fn within(name: &str, value: u64, least: u64, most: u64) -> Result<u64, String> {
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
    fn tools_answer_in_words_a_person_understands() {
        let check = |name: &str, arguments: &str, expected: &Answer| {
            let text = format!(r#"{{"name":"{name}","arguments":{arguments}}}"#);
            let raw: &RawValue = serde_json::from_str(&text).expect("JSON");
            let params = Params::read(Some(raw)).expect("params");
            let Ok(Done::Now(answer)) = call(&params, Revision::R2025_03_26) else {
                panic!("{name} {arguments}");
            };
            assert_eq!(&answer, expected, "{name} {arguments}");
        };
        check("greet", r#"{"name":"Ada"}"#, &Answer::text("Hello, Ada!"));
        check("add", r#"{"a":1,"b":0.5}"#, &Answer::text("1.5"));
        check(
            "word_count",
            r#"{"text":"one two\nthree"}"#,
            &Answer::text("2 lines, 3 words, 13 characters"),
        );
        check("dice", r#"{"rolls":3,"seed":7,"sides":1}"#, &Answer::text("1 1 1"));
        check(
            "dice",
            r#"{"sides":0}"#,
            &Answer::tool_failure("`sides` is 0; it must be 1 to 1000"),
        );
        check(
            "countdown",
            r#"{"from":5000}"#,
            &Answer::tool_failure("`from` is 5000; it must be 0 to 1000"),
        );
    }

    #[test]
    fn dice_are_fair_enough_and_repeat_by_seed() {
        let roll = |seed: u64| dice(&format!(r#"{{"sides":6,"rolls":100,"seed":{seed}}}"#));
        assert_eq!(roll(1), roll(1));
        assert_ne!(roll(1), roll(2));
        for side in 1..=6 {
            let Ok(Answer::Complete(text)) = roll(3) else { panic!("no dice") };
            assert!(text.contains(&side.to_string()), "{side} in {text}");
        }
    }
}
