//! Forms, filled in well and badly.

use super::*;
use crate::form::check::FieldFaultKind;
use crate::form::field::TextFormat;
use crate::form::field::{Choice, FieldKind};

/// Every kind of field of protocol facts §12.3.
const FORM: &str = r#"{"type":"object","required":["zip","age"],"properties":{
    "zip":{"type":"string","title":"ZIP","minLength":2,"maxLength":3,"default":"00"},
    "mail":{"type":"string","format":"email"},
    "age":{"type":"integer","minimum":0,"maximum":150},
    "ratio":{"type":"number","default":0.5,"maximum":1},
    "news":{"type":"boolean","default":false},
    "color":{"type":"string","enum":["r","g"],"enumNames":["Red"],"default":"r"},
    "size":{"type":"string","oneOf":[{"const":"s","title":"Small"},{"const":"l","title":"Large"}]},
    "days":{"type":"array","items":{"type":"string","enum":["mo","tu","we"]},
        "minItems":1,"maxItems":2,"default":["mo"]},
    "tags":{"type":"array","items":{"anyOf":[{"const":"a","title":"A"}]}},
    "nested":{"type":"object","properties":{}},
    "odd":7}}"#;

fn form() -> FormSchema {
    serde_json::from_str(FORM).unwrap()
}

fn content(json: &str) -> FormContent {
    serde_json::from_str(json).unwrap()
}

#[test]
fn fields_keep_their_order_and_kind() {
    let form = form();
    let said: Vec<String> = form
        .fields()
        .iter()
        .map(|it| {
            let kind = match &it.kind {
                FieldKind::Text { .. } => "text".to_owned(),
                FieldKind::Number { .. } => "number".to_owned(),
                FieldKind::Integer { .. } => "integer".to_owned(),
                FieldKind::Boolean { .. } => "boolean".to_owned(),
                FieldKind::Choice { options, .. } => format!("one of {}", shown(options)),
                FieldKind::MultiChoice { options, .. } => format!("any of {}", shown(options)),
                FieldKind::Other(raw) => format!("other {}", raw.get()),
            };
            format!("{}{} {kind}", it.display_name(), if it.required { "*" } else { "" })
        })
        .collect();
    let expected = [
        "ZIP* text",
        "mail text",
        "age* integer",
        "ratio number",
        "news boolean",
        "color one of r=Red g=g",
        "size one of s=Small l=Large",
        "days any of mo=mo tu=tu we=we",
        "tags any of a=A",
        r#"nested other {"type":"object","properties":{}}"#,
        "odd other 7",
    ];
    assert_eq!(said, expected);
}

fn shown(options: &[Choice]) -> String {
    let options: Vec<_> = options.iter().map(|it| format!("{}={}", it.value, it.title)).collect();
    options.join(" ")
}

/// Conformance scenario `elicitation-sep1034-client-defaults`.
#[test]
fn defaults_fill_what_was_left_out_and_nothing_else() {
    let mut filled = content(r#"{"news":true}"#);
    form().fill_defaults(&mut filled);
    let expected = r#"{"news":true,"zip":"00","ratio":0.5,"color":"r","days":["mo"]}"#;
    assert_eq!(filled, content(expected));
}

#[track_caller]
fn check(json: &str, faults: &[(&str, FieldFaultKind)]) {
    let mut filled = content(r#"{"zip":"00","age":7}"#);
    filled.extend(content(json));
    let found = form().validate(&filled).err().unwrap_or_default();
    let found: Vec<_> = found.iter().map(|it| (it.field.as_str(), it.kind)).collect();
    assert_eq!(found, faults, "{json}");
}

#[test]
fn every_fault_is_found() {
    use FieldFaultKind::{
        Format, NotAnOption, TooFew, TooLarge, TooLong, TooMany, TooShort, TooSmall, Unlisted,
        WrongType,
    };
    check("{}", &[]);
    check(
        r#"{"mail":"a@b.c","age":1.0,"ratio":-3,"news":false,"color":"g","size":"s",
            "days":["mo","tu"],"tags":[],"nested":"x","odd":[]}"#,
        &[],
    );
    check(r#"{"zip":"é"}"#, &[("zip", TooShort)]);
    check(r#"{"zip":"éééé"}"#, &[("zip", TooLong)]);
    check(
        r#"{"zip":5,"age":"5","news":"no"}"#,
        &[("zip", WrongType), ("age", WrongType), ("news", WrongType)],
    );
    check(r#"{"mail":"a"}"#, &[("mail", Format(TextFormat::Email))]);
    check(r#"{"age":-1}"#, &[("age", TooSmall)]);
    check(r#"{"age":151}"#, &[("age", TooLarge)]);
    check(r#"{"age":1.5}"#, &[("age", WrongType)]);
    check(r#"{"ratio":1.5,"color":"b"}"#, &[("ratio", TooLarge), ("color", NotAnOption)]);
    check(r#"{"days":[]}"#, &[("days", TooFew)]);
    check(r#"{"days":["mo","tu","we"]}"#, &[("days", TooMany)]);
    check(r#"{"days":["su"]}"#, &[("days", NotAnOption)]);
    check(r#"{"days":"mo"}"#, &[("days", WrongType)]);
    check(r#"{"new":1}"#, &[("new", Unlisted)]);
}

#[test]
fn required_fields_cannot_be_left_out() {
    let found = form().validate(&FormContent::new()).unwrap_err();
    let said: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(said, ["`zip`: required", "`age`: required"]);
}

#[test]
fn a_field_that_comes_twice_is_one_field() {
    let json =
        r#"{"properties":{"a":{"type":"string"},"b":{"type":"string"},"a":{"type":"boolean"}}}"#;
    let form: FormSchema = serde_json::from_str(json).unwrap();
    let names: Vec<_> = form.fields().iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(matches!(form.fields()[0].kind, FieldKind::Boolean { .. }));
}
