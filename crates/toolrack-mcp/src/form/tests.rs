//! Form validation and defaults.

use super::*;
use crate::form::FieldErrorKind;
use crate::form::field::StringFormat;
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
fn form_fields_keep_order_and_type() {
    let form = form();
    let actual: Vec<String> = form
        .fields()
        .iter()
        .map(|field| {
            let kind = match &field.kind {
                FieldKind::Text { .. } => "text".to_owned(),
                FieldKind::Number { is_integer: false, .. } => "number".to_owned(),
                FieldKind::Number { is_integer: true, .. } => "integer".to_owned(),
                FieldKind::Boolean => "boolean".to_owned(),
                FieldKind::Choice { options } => format!("one of {}", shown(options)),
                FieldKind::MultiChoice { options, .. } => format!("any of {}", shown(options)),
                FieldKind::Other(raw) => format!("other {}", raw.get()),
            };
            format!("{}{} {kind}", field.display_name(), if field.required { "*" } else { "" })
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
    assert_eq!(actual, expected);
}

fn shown(options: &[Choice]) -> String {
    let options: Vec<_> =
        options.iter().map(|option| format!("{}={}", option.value, option.title)).collect();
    options.join(" ")
}

/// Conformance scenario `elicitation-sep1034-client-defaults`.
#[test]
fn defaults_fill_absent_fields_only() {
    let mut filled = content(r#"{"news":true}"#);
    form().fill_defaults(&mut filled);
    let expected = r#"{"news":true,"zip":"00","ratio":0.5,"color":"r","days":["mo"]}"#;
    assert_eq!(filled, content(expected));
}

#[track_caller]
fn check(json: &str, faults: &[(&str, FieldErrorKind)]) {
    let mut filled = content(r#"{"zip":"00","age":7}"#);
    filled.extend(content(json));
    let found = form().validate(&filled).err().unwrap_or_default();
    let found: Vec<_> = found.iter().map(|error| (error.field.as_str(), error.kind)).collect();
    assert_eq!(found, faults, "{json}");
}

#[test]
fn every_violation_is_found() {
    use FieldErrorKind::{
        Format, NotAnOption, TooFew, TooLarge, TooLong, TooMany, TooShort, TooSmall, UnknownField,
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
    check(r#"{"mail":"a"}"#, &[("mail", Format(StringFormat::Email))]);
    check(r#"{"age":-1}"#, &[("age", TooSmall)]);
    check(r#"{"age":151}"#, &[("age", TooLarge)]);
    check(r#"{"age":1.5}"#, &[("age", WrongType)]);
    check(r#"{"ratio":1.5,"color":"b"}"#, &[("ratio", TooLarge), ("color", NotAnOption)]);
    check(r#"{"days":[]}"#, &[("days", TooFew)]);
    check(r#"{"days":["mo","tu","we"]}"#, &[("days", TooMany)]);
    check(r#"{"days":["su"]}"#, &[("days", NotAnOption)]);
    check(r#"{"days":"mo"}"#, &[("days", WrongType)]);
    check(r#"{"new":1}"#, &[("new", UnknownField)]);
}

#[test]
fn required_fields_are_enforced() {
    let found = form().validate(&FormContent::new()).unwrap_err();
    let actual: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(actual, ["`zip`: required", "`age`: required"]);
}

#[test]
fn duplicate_form_field_is_one_field() {
    let json =
        r#"{"properties":{"a":{"type":"string"},"b":{"type":"string"},"a":{"type":"boolean"}}}"#;
    let form: FormSchema = serde_json::from_str(json).unwrap();
    let names: Vec<_> = form.fields().iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(matches!(form.fields()[0].kind, FieldKind::Boolean));
}
