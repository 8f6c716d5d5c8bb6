//! Coerces and validates arguments against a tool's schema.
//!
//! **Invariant:** pure; reports all errors at once. Text stays unchanged wherever the schema allows
//! a string.

use serde_json::{Map, Number, Value};
use toolrack_config::{did_you_mean, similar_names};
use toolrack_service::{ErrorCode, ErrorDetail};

use super::schema::{JsonType, Schema};
use super::{ArgValue, TypedArguments};

/// Maximum depth of validation.
const MAX_DEPTH: usize = 16;

/// The object to send: the members added to the object, coerced and validated.
pub(crate) fn build_arguments(
    TypedArguments { mut object, members, is_unchecked }: TypedArguments,
    schema: Schema<'_>,
) -> Result<Map<String, Value>, Vec<ErrorDetail>> {
    let mut builder = ArgumentBuilder { error_details: Vec::new(), is_unchecked };
    for (path, values) in group_by_path(members) {
        // Names with dots exist, and the schema knows them.
        let steps: Vec<&str> = match schema.property(&path) {
            Some(_) => vec![&path],
            None => path.split('.').collect(),
        };
        let place = steps.iter().try_fold(schema, |place, step| place.property(step));
        let Some(value) = builder.value(&path, values, place) else { continue };
        if !insert_at(&mut object, &steps, value) {
            builder.report(&path, format!("`{path}` is given more than once"));
        }
    }
    if !is_unchecked {
        builder.validate(&object, schema, "", 0);
    }
    if builder.error_details.is_empty() { Ok(object) } else { Err(builder.error_details) }
}

/// The parameters on one line: `query: string, limit?: integer`.
pub(crate) fn signature(schema: Schema<'_>) -> String {
    let required = schema.required();
    let mut names = schema.property_names();
    names.sort_by_key(|name| !required.contains(name));
    let parts: Vec<String> = names
        .into_iter()
        .map(|name| {
            let words = schema.property(name).map_or_else(|| "any".to_owned(), Schema::describe);
            let mark = if required.contains(&name) { "" } else { "?" };
            format!("{name}{mark}: {words}")
        })
        .collect();
    parts.join(", ")
}

/// Groups the values by path, in the order of first use.
fn group_by_path(members: Vec<(String, ArgValue)>) -> Vec<(String, Vec<ArgValue>)> {
    let mut groups: Vec<(String, Vec<ArgValue>)> = Vec::new();
    for (path, value) in members {
        match groups.iter_mut().find(|(known, _)| *known == path) {
            Some((_, values)) => values.push(value),
            None => groups.push((path, vec![value])),
        }
    }
    groups
}

/// Inserts a value at a path, and creates objects on the way. Returns whether the place was free:
/// neither of two values wins silently, because both were typed.
fn insert_at(object: &mut Map<String, Value>, steps: &[&str], value: Value) -> bool {
    let Some((first, rest)) = steps.split_first() else { return false };
    if rest.is_empty() {
        let is_free = !object.contains_key(*first);
        if is_free {
            object.insert((*first).to_owned(), value);
        }
        return is_free;
    }
    match object.entry(*first).or_insert_with(|| Value::Object(Map::new())) {
        Value::Object(inner) => insert_at(inner, rest, value),
        _ => false,
    }
}

struct ArgumentBuilder {
    error_details: Vec<ErrorDetail>,
    is_unchecked: bool,
}

impl ArgumentBuilder {
    /// The value at a path. `None` if it is invalid, which has been reported.
    fn value(
        &mut self,
        path: &str,
        mut values: Vec<ArgValue>,
        place: Option<Schema<'_>>,
    ) -> Option<Value> {
        if values.len() == 1 {
            return self.coerce_or_report(path, values.pop()?, place);
        }
        if !place.is_some_and(|place| place.types().contains(&JsonType::Array)) {
            self.report(path, format!("`{path}` is given more than once, but is not a list"));
            return None;
        }
        let items = place.and_then(Schema::items);
        let values = values.into_iter().map(|value| self.coerce_or_report(path, value, items));
        values.collect::<Option<Vec<Value>>>().map(Value::Array)
    }

    fn coerce_or_report(
        &mut self,
        path: &str,
        value: ArgValue,
        place: Option<Schema<'_>>,
    ) -> Option<Value> {
        let (text, place) = match (value, place) {
            (ArgValue::Json(value), _) => return Some(value),
            (ArgValue::Text(text), None) => return Some(Value::String(text)),
            (ArgValue::Text(text), Some(place)) => (text, place),
        };
        match coerce(&text, place) {
            Ok(value) => Some(value),
            // `--no-check` is for schemas that are wrong, so the server decides.
            Err(_why) if self.is_unchecked => Some(Value::String(text)),
            Err(reason) => {
                self.report(path, format!("invalid value for `{path}`: {reason}"));
                None
            }
        }
    }

    /// Validates an object: missing, unknown and mistyped members.
    fn validate(
        &mut self,
        object: &Map<String, Value>,
        schema: Schema<'_>,
        path: &str,
        depth: usize,
    ) {
        if depth == MAX_DEPTH {
            return;
        }
        let full =
            |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let is_reported = |builder: &Self, name: &str| {
            builder.error_details.iter().any(|detail| detail.field.as_deref() == Some(name))
        };
        for name in schema.required() {
            let full_name = full(name);
            if !object.contains_key(name) && !is_reported(self, &full_name) {
                self.report(&full_name, format!("missing argument `{full_name}`"));
            }
        }
        for (name, value) in object {
            let full_name = full(name);
            match schema.property(name) {
                Some(place) => {
                    if let Value::Object(inner) = value {
                        self.validate(inner, place, &full_name, depth + 1);
                    }
                    let (types, found) = (place.types(), JsonType::from_value(value));
                    if !types.is_empty() && !types.iter().any(|wanted| found.satisfies(*wanted)) {
                        let (expected, found) = (place.describe(), found.as_str());
                        self.report(
                            &full_name,
                            format!(
                                "invalid value for `{full_name}`: expected {expected}, got {found}"
                            ),
                        );
                    }
                }
                None if !schema.allows_extra_properties() => {
                    let suggestion = did_you_mean(&similar_names(name, schema.property_names()));
                    self.report(&full_name, format!("unknown argument `{full_name}`{suggestion}"));
                }
                None => {}
            }
        }
    }

    fn report(&mut self, path: &str, message: String) {
        self.error_details
            .push(ErrorDetail::new(ErrorCode::ValidationError, message).with_field(path));
    }
}

/// Converts text to a type that the schema allows. The error is the message for the user.
fn coerce(text: &str, place: Schema<'_>) -> Result<Value, String> {
    let types = place.types();
    let found = match place.allowed_values() {
        Some(choices) => match_choice(text, &choices),
        // Text first: `id=007` must stay `"007"` if the tool accepts a string.
        None if types.is_empty() || types.contains(&JsonType::String) => {
            Some(Value::String(text.to_owned()))
        }
        None => types.iter().find_map(|json_type| as_type(text, *json_type, place)),
    };
    found.ok_or_else(|| format!("expected {}, got `{text}`", place.describe()))
}

fn match_choice(text: &str, choices: &[&Value]) -> Option<Value> {
    // A string before a number of the same spelling, as typed text is text.
    let is_text = |choice: &&&Value| choice.as_str() == Some(text);
    let is_written = |choice: &&&Value| !choice.is_string() && choice.to_string() == text;
    let found = choices.iter().find(is_text).or_else(|| choices.iter().find(is_written));
    found.map(|choice| (**choice).clone())
}

fn as_type(text: &str, json_type: JsonType, place: Schema<'_>) -> Option<Value> {
    let json = || serde_json::from_str::<Value>(text).ok();
    match json_type {
        JsonType::String => Some(Value::String(text.to_owned())),
        JsonType::Boolean => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Some(Value::Bool(true)),
            "false" | "no" | "off" | "0" => Some(Value::Bool(false)),
            _ => None,
        },
        JsonType::Integer => integer(text).map(Value::Number),
        JsonType::Number => {
            let decimal = || text.parse().ok().and_then(Number::from_f64);
            integer(text).or_else(decimal).map(Value::Number)
        }
        JsonType::Array => match json().filter(Value::is_array) {
            Some(list) => Some(list),
            // Meant as JSON and invalid: as a list of one text it would hide the mistake.
            None if text.starts_with('[') => None,
            None => parse_list(text, place.items()),
        },
        JsonType::Object => json().filter(Value::is_object),
        JsonType::Null => matches!(text, "null" | "").then_some(Value::Null),
    }
}

/// Parses a list. Commas separate numbers and booleans; in strings they may be part of the text.
fn parse_list(text: &str, items: Option<Schema<'_>>) -> Option<Value> {
    let Some(items) = items else {
        return Some(Value::Array(vec![Value::String(text.to_owned())]));
    };
    let types = items.types();
    let is_separable =
        |item: &JsonType| !matches!(item, JsonType::String | JsonType::Array | JsonType::Object);
    if types.is_empty() || !types.iter().all(is_separable) {
        return Some(Value::Array(vec![coerce(text, items).ok()?]));
    }
    let parts = text.split(',').map(|part| coerce(part.trim(), items).ok());
    parts.collect::<Option<Vec<Value>>>().map(Value::Array)
}

fn integer(text: &str) -> Option<Number> {
    let signed = text.parse::<i64>().ok().map(Number::from);
    // As integers, because a float would lose digits of large ids.
    signed.or_else(|| text.parse::<u64>().ok().map(Number::from))
}

#[cfg(test)]
mod tests;
