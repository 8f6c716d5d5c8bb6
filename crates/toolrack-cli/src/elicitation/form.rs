//! One field of a form: how it is asked for, and what the typed text means.

use std::fmt::Write as _;

use serde_json::Number;
use toolrack_mcp::{Choice, Field, FieldKind, FieldValue, FormContent, FormSchema};
use toolrack_transport::plain_text;

const MOST_CHARS: usize = 200;

/// What goes into the form; nothing, if the field is left out.
pub(super) type Answer = Option<FieldValue>;

/// The text before the place where the answer is typed.
pub(super) fn prompt(field: &Field) -> String {
    let mut text = format!("  {}", plain_text(field.display_name(), MOST_CHARS));
    if let Some(description) = &field.description {
        add(&mut text, format_args!(" ({})", plain_text(description, MOST_CHARS)));
    }
    if let FieldKind::Choice { options, .. } | FieldKind::MultiChoice { options, .. } = &field.kind
    {
        for (at, option) in options.iter().enumerate() {
            add(
                &mut text,
                format_args!("\n    {}. {}", at + 1, plain_text(&option.title, MOST_CHARS)),
            );
        }
        text.push_str("\n   ");
    }
    match (field.kind.default_value(), field.required) {
        (Some(default), _) => add(&mut text, format_args!(" [{}]", shown(&default))),
        (None, true) => {}
        (None, false) => text.push_str(" [leave out]"),
    }
    let kind = match &field.kind {
        FieldKind::Boolean { .. } => " y/n",
        FieldKind::Number { .. } => " number",
        FieldKind::Integer { .. } => " whole number",
        FieldKind::MultiChoice { .. } => " numbers, separated by commas",
        _ => "",
    };
    text.push_str(kind);
    text.push_str(": ");
    text
}

/// What the typed text means. An empty one is the default, or leaves the field out. The error says what is wrong.
pub(super) fn read(form: &FormSchema, field: &Field, typed: &str) -> Result<Answer, String> {
    let answer = match typed {
        "" => field.kind.default_value(),
        typed => Some(value(&field.kind, typed)?),
    };
    let mut content = FormContent::new();
    if let Some(value) = &answer {
        content.insert(field.name.clone(), value.clone());
    }
    let faults = form.validate(&content).err().unwrap_or_default();
    match faults.into_iter().find(|it| it.field == field.name) {
        Some(fault) => Err(plain_text(&fault.kind.to_string(), MOST_CHARS)),
        None => Ok(answer),
    }
}

fn value(kind: &FieldKind, typed: &str) -> Result<FieldValue, String> {
    match kind {
        FieldKind::Boolean { .. } => match typed.to_ascii_lowercase().as_str() {
            "y" | "yes" | "true" => Ok(FieldValue::Boolean(true)),
            "n" | "no" | "false" => Ok(FieldValue::Boolean(false)),
            _ => Err("type y or n".to_owned()),
        },
        FieldKind::Integer { .. } => {
            let number = typed.parse::<i64>().map(Number::from);
            number.map(FieldValue::Number).map_err(|_no_number| "type a whole number".to_owned())
        }
        FieldKind::Number { .. } => {
            let number = typed.parse::<Number>();
            number.map(FieldValue::Number).map_err(|_no_number| "type a number".to_owned())
        }
        FieldKind::Choice { options, .. } => chosen(options, typed).map(FieldValue::Text),
        FieldKind::MultiChoice { options, .. } => {
            let all: Result<Vec<String>, String> =
                typed.split(',').map(|it| chosen(options, it.trim())).collect();
            all.map(FieldValue::List)
        }
        FieldKind::Text { .. } | FieldKind::Other(_) => Ok(FieldValue::Text(typed.to_owned())),
    }
}

/// An option by its number, its value or its title.
fn chosen(options: &[Choice], typed: &str) -> Result<String, String> {
    let numbered = typed.parse::<usize>().ok().and_then(|it| options.get(it.checked_sub(1)?));
    let named = || options.iter().find(|it| it.value == typed || it.title == typed);
    let option = named().or(numbered);
    option
        .map(|it| it.value.clone())
        .ok_or_else(|| format!("type a number from 1 to {}", options.len()))
}

fn shown(value: &FieldValue) -> String {
    let text = match value {
        FieldValue::Text(text) => text.clone(),
        FieldValue::List(list) => list.join(", "),
        FieldValue::Boolean(true) => "y".to_owned(),
        FieldValue::Boolean(false) => "n".to_owned(),
        FieldValue::Number(number) => number.to_string(),
    };
    plain_text(&text, MOST_CHARS)
}

fn add(text: &mut String, more: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    text.write_fmt(more).unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form() -> FormSchema {
        serde_json::from_str(
            r#"{"properties": {
                "name": {"type": "string", "description": "Your \u001b[1mname", "minLength": 2},
                "age": {"type": "integer", "minimum": 1, "default": 30},
                "ok": {"type": "boolean", "default": true},
                "size": {"type": "string", "enum": ["s", "m"]},
                "ratio": {"type": "number"}
            }, "required": ["name", "size"]}"#,
        )
        .unwrap()
    }

    fn field<'a>(form: &'a FormSchema, name: &str) -> &'a Field {
        form.fields().iter().find(|it| it.name == name).unwrap()
    }

    #[track_caller]
    fn check(name: &str, typed: &str, expected: Result<&str, &str>) {
        let form = form();
        let answer = read(&form, field(&form, name), typed);
        let answer = answer.map(|it| serde_json::to_string(&it).unwrap());
        let expected = expected.map(str::to_owned).map_err(str::to_owned);
        assert_eq!(answer, expected, "{name}: {typed:?}");
    }

    #[test]
    fn answers_are_read_by_the_kind_of_their_field() {
        check("name", "Ada", Ok("\"Ada\""));
        check("name", "A", Err("too short"));
        check("name", "", Err("required"));
        check("age", "", Ok("30"));
        check("age", "7", Ok("7"));
        check("age", "0", Err("too small"));
        check("age", "old", Err("type a whole number"));
        check("ok", "", Ok("true"));
        check("ok", "N", Ok("false"));
        check("ok", "maybe", Err("type y or n"));
        check("size", "2", Ok("\"m\""));
        check("size", "s", Ok("\"s\""));
        check("size", "3", Err("type a number from 1 to 2"));
        check("ratio", "", Ok("null"));
        check("ratio", "0.5", Ok("0.5"));
    }

    #[test]
    fn a_field_is_asked_for_in_one_line() {
        let form = form();
        let asked = |name: &str| prompt(field(&form, name));
        assert_eq!(asked("name"), "  name (Your name): ");
        assert_eq!(asked("age"), "  age [30] whole number: ");
        assert_eq!(asked("ok"), "  ok [y] y/n: ");
        assert_eq!(asked("size"), "  size\n    1. s\n    2. m\n   : ");
        assert_eq!(asked("ratio"), "  ratio [leave out] number: ");
    }
}
