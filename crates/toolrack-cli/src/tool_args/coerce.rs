//! Arguments in the shape that a tool's schema asks for, or everything that is wrong with them.
//!
//! **Invariant:** pure, and every fault is told at once. Text stays the text that was typed wherever text is allowed.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};
use toolrack_service::{ErrorCode, ServiceFault};

use super::schema::{Kind, Others, Schema};
use super::{Argument, Said};
use crate::suggest::{meant, near};

/// Objects in objects are compared with their schema so far.
const DEEPEST: usize = 16;

/// Whether arguments are compared with the schema before they are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    Yes,
    No,
}

/// Puts single arguments into `given`, the object that was given as a whole.
pub(crate) fn shape(
    given: Map<String, Value>,
    arguments: Vec<Argument>,
    schema: Schema<'_>,
    check: Check,
) -> Result<Map<String, Value>, Vec<ServiceFault>> {
    let mut shaper = Shaper { faults: Vec::new(), check };
    let mut object = given;
    for (path, said) in grouped(arguments) {
        let steps = steps(&path, schema);
        let place = steps.iter().try_fold(schema, |it, step| it.property(step));
        let Some(value) = shaper.value(&path, said, place) else { continue };
        if put(&mut object, &steps, value).is_err() {
            shaper.complain(&path, format!("`{path}` is given twice"));
        }
    }
    if check == Check::Yes {
        shaper.compare(&object, schema, "", 0);
    }
    if shaper.faults.is_empty() { Ok(object) } else { Err(shaper.faults) }
}

/// What a tool takes, in one line: `query: string, limit?: integer`.
pub(crate) fn signature(schema: Schema<'_>) -> String {
    let required = schema.required();
    let mut names = schema.names();
    names.sort_by_key(|it| !required.contains(it));
    let parts: Vec<String> = names
        .into_iter()
        .map(|name| {
            let words = schema.property(name).map_or_else(|| "any".to_owned(), Schema::words);
            let mark = if required.contains(&name) { "" } else { "?" };
            format!("{name}{mark}: {words}")
        })
        .collect();
    parts.join(", ")
}

/// Everything that was said of the same place, in the order in which places were named first.
fn grouped(arguments: Vec<Argument>) -> Vec<(String, Vec<Said>)> {
    let mut groups: Vec<(String, Vec<Said>)> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for Argument { path, said } in arguments {
        let at = *places.entry(path.clone()).or_insert(groups.len());
        match groups.get_mut(at) {
            Some((_, all)) => all.push(said),
            None => groups.push((path, vec![said])),
        }
    }
    groups
}

/// The steps to a place. A name with dots that the schema knows is one step.
fn steps(path: &str, schema: Schema<'_>) -> Vec<String> {
    if schema.property(path).is_some() {
        return vec![path.to_owned()];
    }
    path.split('.').map(str::to_owned).collect()
}

/// Puts a value at its place, making the objects on the way.
fn put(object: &mut Map<String, Value>, steps: &[String], value: Value) -> Result<(), Value> {
    match steps {
        [] => Err(value),
        [last] => match object.get(last) {
            Some(_) => Err(value),
            None => {
                object.insert(last.clone(), value);
                Ok(())
            }
        },
        [first, rest @ ..] => {
            let next = object.entry(first.clone()).or_insert_with(|| Value::Object(Map::new()));
            match next {
                Value::Object(inner) => put(inner, rest, value),
                _ => Err(value),
            }
        }
    }
}

struct Shaper {
    faults: Vec<ServiceFault>,
    check: Check,
}

impl Shaper {
    /// The value of one place. `None` if there is none, which has been complained about.
    fn value(&mut self, path: &str, said: Vec<Said>, place: Option<Schema<'_>>) -> Option<Value> {
        let is_list = place.is_some_and(|it| it.kinds().contains(&Kind::Array));
        let mut said = said.into_iter();
        let (first, second) = (said.next()?, said.next());
        let Some(second) = second else {
            return match (first, place) {
                (Said::Json(value), _) => Some(value),
                (Said::Text(text), Some(place)) => self.coerced(path, text, place),
                (Said::Text(text), None) => Some(Value::String(text)),
            };
        };
        if !is_list {
            self.complain(path, format!("`{path}` is given twice, and it is no list"));
            return None;
        }
        let items = place.and_then(Schema::items);
        let all = [first, second].into_iter().chain(said);
        all.map(|it| match (it, items) {
            (Said::Json(value), _) => Some(value),
            (Said::Text(text), Some(items)) => self.coerced(path, text, items),
            (Said::Text(text), None) => Some(Value::String(text)),
        })
        .collect::<Option<Vec<Value>>>()
        .map(Value::Array)
    }

    fn coerced(&mut self, path: &str, text: String, place: Schema<'_>) -> Option<Value> {
        match coerce(&text, place) {
            Ok(value) => Some(value),
            Err(_why) if self.check == Check::No => Some(Value::String(text)),
            Err(why) => {
                self.complain(path, format!("`{path}` {why}"));
                None
            }
        }
    }

    /// Compares an object with its schema: what is missing, what is unknown, what is of another kind.
    fn compare(
        &mut self,
        object: &Map<String, Value>,
        schema: Schema<'_>,
        path: &str,
        depth: usize,
    ) {
        if depth == DEEPEST {
            return;
        }
        let full =
            |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let is_blamed = |it: &Self, name: &str| {
            it.faults.iter().any(|fault| fault.field.as_deref() == Some(name))
        };
        for name in schema.required() {
            let name_in_full = full(name);
            if !object.contains_key(name) && !is_blamed(self, &name_in_full) {
                self.complain(&name_in_full, format!("`{name_in_full}` is missing"));
            }
        }
        for (name, value) in object {
            let name_in_full = full(name);
            match schema.property(name) {
                Some(place) => self.compare_value(value, place, &name_in_full, depth),
                None if schema.others() == Others::Odd => {
                    let meant = meant(&near(name, schema.names().into_iter()));
                    self.complain(
                        &name_in_full,
                        format!("there is no argument `{name_in_full}`{meant}"),
                    );
                }
                None => {}
            }
        }
    }

    fn compare_value(&mut self, value: &Value, place: Schema<'_>, path: &str, depth: usize) {
        if let Value::Object(inner) = value {
            self.compare(inner, place, path, depth + 1);
        }
        let kinds = place.kinds();
        let kind = Kind::of(value);
        if !kinds.is_empty() && !kinds.iter().any(|it| kind.passes_for(*it)) {
            self.complain(
                path,
                format!("`{path}` is {} instead of {}", kind.word(), place.words()),
            );
        }
    }

    fn complain(&mut self, path: &str, message: String) {
        self.faults.push(ServiceFault::new(ErrorCode::ValidationError, message).at(path));
    }
}

/// The value that a text stands for. The error says what it is not.
fn coerce(text: &str, place: Schema<'_>) -> Result<Value, String> {
    if let Some(choices) = place.choices() {
        return chosen(text, &choices)
            .ok_or_else(|| format!("is `{text}` and not one of: {}", place.words()));
    }
    let kinds = place.kinds();
    if kinds.is_empty() || kinds.contains(&Kind::String) {
        return Ok(Value::String(text.to_owned()));
    }
    let found = kinds.iter().find_map(|kind| as_kind(text, *kind, place));
    found.ok_or_else(|| format!("is `{text}` and not of type {}", place.words()))
}

fn chosen(text: &str, choices: &[&Value]) -> Option<Value> {
    let is_text = |it: &&&Value| it.as_str() == Some(text);
    let is_written = |it: &&&Value| !it.is_string() && it.to_string() == text;
    let found = choices.iter().find(is_text).or_else(|| choices.iter().find(is_written));
    found.map(|it| (**it).clone())
}

fn as_kind(text: &str, kind: Kind, place: Schema<'_>) -> Option<Value> {
    match kind {
        Kind::String => Some(Value::String(text.to_owned())),
        Kind::Boolean => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Some(Value::Bool(true)),
            "false" | "no" | "off" | "0" => Some(Value::Bool(false)),
            _ => None,
        },
        Kind::Integer => integer(text).map(Value::Number),
        Kind::Number => {
            let decimal = || text.parse().ok().and_then(Number::from_f64);
            integer(text).or_else(decimal).map(Value::Number)
        }
        Kind::Array => match json(text).filter(Value::is_array) {
            Some(list) => Some(list),
            None if text.starts_with('[') => None,
            None => entries(text, place.items()),
        },
        Kind::Object => json(text).filter(Value::is_object),
        Kind::Null => matches!(text, "null" | "").then_some(Value::Null),
    }
}

/// A list that was typed as text. Commas part numbers and truths; in words they may be commas.
fn entries(text: &str, items: Option<Schema<'_>>) -> Option<Value> {
    let Some(items) = items else {
        return Some(Value::Array(vec![Value::String(text.to_owned())]));
    };
    let is_word =
        |it: &Kind| !matches!(it, Kind::Boolean | Kind::Integer | Kind::Number | Kind::Null);
    let kinds = items.kinds();
    let parts: Vec<&str> = if kinds.is_empty() || kinds.iter().any(is_word) {
        vec![text]
    } else {
        text.split(',').map(str::trim).collect()
    };
    parts
        .into_iter()
        .map(|it| coerce(it, items).ok())
        .collect::<Option<Vec<Value>>>()
        .map(Value::Array)
}

fn integer(text: &str) -> Option<Number> {
    let signed = text.parse::<i64>().ok().map(Number::from);
    signed.or_else(|| text.parse::<u64>().ok().map(Number::from))
}

fn json(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests;
