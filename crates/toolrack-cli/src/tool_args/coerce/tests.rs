//! Tests: arguments as typed, and the object or the errors they lead to.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::tool_args::KeyValue;

fn typed(words: &[&str]) -> TypedArguments {
    let read = |word: &&str| {
        let pair = KeyValue::parse(word).unwrap();
        (pair.path.clone(), pair.read().unwrap())
    };
    TypedArguments { members: words.iter().map(read).collect(), ..TypedArguments::default() }
}

fn outcome(schema: &Value, typed: TypedArguments) -> Result<Value, Vec<String>> {
    let shaped = build_arguments(typed, Schema::new(schema));
    shaped.map(Value::Object).map_err(|error_details| {
        error_details.into_iter().map(|error_detail| error_detail.message).collect()
    })
}

#[track_caller]
fn check(schema: &Value, words: &[&str], expected: Value) {
    assert_eq!(outcome(schema, typed(words)), Ok(expected), "{words:?}");
}

#[track_caller]
fn check_faults(schema: &Value, words: &[&str], expected: &[&str]) {
    let error_details = outcome(schema, typed(words)).unwrap_err();
    assert_eq!(error_details, expected, "{words:?}");
}

fn everything() -> Value {
    json!({
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "count": {"type": "integer"},
            "ratio": {"type": "number"},
            "deep": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "sizes": {"type": "array", "items": {"type": "integer"}},
            "level": {"enum": ["low", "high", 3]},
            "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "either": {"type": ["string", "integer"]},
            "place": {"$ref": "#/$defs/place"},
            "dotted.name": {"type": "integer"},
            "free": {},
        },
        "$defs": {"place": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}},
            "required": ["city"],
        }},
    })
}

#[test]
fn text_is_coerced_to_the_schema() {
    let schema = &everything();
    check(schema, &[], json!({}));
    check(schema, &["text=5", "free=5"], json!({"text": "5", "free": "5"}));
    check(schema, &["count=5", "ratio=2.5"], json!({"count": 5, "ratio": 2.5}));
    check(schema, &["ratio=2"], json!({"ratio": 2}));
    check(schema, &["count=18446744073709551615"], json!({"count": u64::MAX}));
    check(schema, &["deep=yes"], json!({"deep": true}));
    check(schema, &["level=low"], json!({"level": "low"}));
    check(schema, &["level=3"], json!({"level": 3}));
    check(schema, &["maybe=null"], json!({"maybe": null}));
    check(schema, &["maybe=4"], json!({"maybe": 4}));
    check(schema, &["either=4"], json!({"either": "4"}));
    check(schema, &["either:=4"], json!({"either": 4}));
    check(schema, &["dotted.name=1"], json!({"dotted.name": 1}));
}

#[test]
fn lists_are_json_repeated_or_comma_separated() {
    let schema = &everything();
    check(schema, &["tags=a"], json!({"tags": ["a"]}));
    check(schema, &["tags=a, b"], json!({"tags": ["a, b"]}));
    check(schema, &["tags=a", "tags=b"], json!({"tags": ["a", "b"]}));
    check(schema, &[r#"tags=["a","b"]"#], json!({"tags": ["a", "b"]}));
    check(schema, &["sizes=1,2, 3"], json!({"sizes": [1, 2, 3]}));
    check(schema, &["sizes=1", "sizes=2"], json!({"sizes": [1, 2]}));
}

#[test]
fn objects_are_given_by_member_or_as_json() {
    let schema = &everything();
    check(schema, &["place.city=Ulm", "place.zip=7"], json!({"place": {"city": "Ulm", "zip": 7}}));
    check(schema, &[r#"place={"city": "Ulm"}"#], json!({"place": {"city": "Ulm"}}));
    check_faults(
        schema,
        &["place=Ulm"],
        &["invalid value for `place`: expected object, got `Ulm`"],
    );
    check_faults(schema, &["place.zip=7"], &["missing argument `place.city`"]);
    check_faults(
        schema,
        &["place.ctiy=Ulm"],
        &["missing argument `place.city`", "unknown argument `place.ctiy`; did you mean `city`?"],
    );
}

#[test]
fn all_errors_are_reported_at_once() {
    let schema = &json!({
        "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["query"],
    });
    check_faults(
        schema,
        &["limit=ten", "qurey=x"],
        &[
            "invalid value for `limit`: expected integer, got `ten`",
            "missing argument `query`",
            "unknown argument `qurey`; did you mean `query`?",
        ],
    );
    check_faults(
        schema,
        &["query=a", "query=b"],
        &["`query` is given more than once, but is not a list"],
    );
    check_faults(
        schema,
        &["query:=1"],
        &["invalid value for `query`: expected string, got integer"],
    );
    check_faults(schema, &["query=a", "query.x=b"], &["`query.x` is given more than once"]);
    let level = &everything();
    check_faults(
        level,
        &["level=mid"],
        &[r#"invalid value for `level`: expected "low" | "high" | 3, got `mid`"#],
    );
}

#[test]
fn unchecked_arguments_are_sent() {
    let schema = &json!({"properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let sent = outcome(schema, TypedArguments { is_unchecked: true, ..typed(&["n=ten", "m=1"]) });
    assert_eq!(sent, Ok(json!({"n": "ten", "m": "1"})));
}

#[test]
fn signature_is_one_line() {
    let schema = json!({
        "properties": {"b": {"type": "integer"}, "a": {}, "c": {"type": "string"}},
        "required": ["c"],
    });
    assert_eq!(signature(Schema::new(&schema)), "c: string, a?: any, b?: integer");
}

proptest! {
    #[test]
    fn numbers_and_text_round_trip(count in any::<i64>(), text in any::<String>()) {
        let mut all = typed(&[&format!("count={count}")]);
        all.members.push(("text".to_owned(), ArgValue::Text(text.clone())));
        let schema = everything();
        let sent = build_arguments(all, Schema::new(&schema)).unwrap();
        prop_assert_eq!(Value::Object(sent), json!({"count": count, "text": text}));
    }

    #[test]
    fn any_name_is_accepted(name in "[^=:]{1,12}", text in "[^@]{0,6}") {
        let members = vec![(name, ArgValue::Text(text))];
        let all = TypedArguments { members, ..TypedArguments::default() };
        let schema = everything();
        let _outcome = build_arguments(all, Schema::new(&schema));
    }
}
