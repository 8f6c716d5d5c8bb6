//! Between the values of a TOML document and plain JSON, changing only what differs.

use serde_json::Value as Json;
use toml_edit::{Array, InlineTable, Item, TableLike, Value};

use super::entry::Row;

/// The keys that come first in what we write, in this order. Others follow by name.
const ORDER: [&str; 21] = [
    "type",
    "name",
    "id",
    "enabled",
    "transport",
    "command",
    "identifier",
    "version",
    "url",
    "args",
    "package",
    "secret_ref",
    "value",
    "secret",
    "required",
    "env",
    "headers",
    "cwd",
    "runtime_hint",
    "qualified_name",
    "source",
];

/// A table as JSON.
pub(super) fn row(table: &dyn TableLike) -> Row {
    table.iter().filter_map(|(key, item)| Some((key.to_owned(), json(item)?))).collect()
}

/// Makes a table say what `row` says. What it says already stays as it is written.
pub(super) fn merge(table: &mut dyn TableLike, row: &Row) {
    let keys: Vec<String> = table.iter().map(|(key, _)| key.to_owned()).collect();
    keeping_end(table, |table| {
        for key in keys.iter().filter(|it| !row.contains_key(*it)) {
            table.remove(key);
        }
        for (key, value) in ordered(row) {
            set(table, key, value);
        }
    });
}

/// Changes a table so that the space before its closing brace stays there, if it is one on a single line.
pub(super) fn keeping_end(table: &mut dyn TableLike, change: impl FnOnce(&mut dyn TableLike)) {
    let suffix = last_value(table).and_then(|it| Some(it.decor().suffix()?.as_str()?.to_owned()));
    let end = suffix.filter(|it| !it.is_empty() && it.chars().all(|it| it == ' '));
    if let (Some(_), Some(last)) = (&end, last_value(table)) {
        last.decor_mut().set_suffix("");
    }
    change(table);
    if let (Some(end), Some(last)) = (end, last_value(table)) {
        last.decor_mut().set_suffix(end);
    }
}

fn set(table: &mut dyn TableLike, key: &str, wanted: &Json) {
    let Some(item) = table.get_mut(key) else {
        table.insert(key, Item::Value(toml(wanted)));
        return;
    };
    if json(item).as_ref() == Some(wanted) {
        return;
    }
    match (item, wanted) {
        (item, Json::Object(row)) if item.is_table_like() => {
            if let Some(table) = item.as_table_like_mut() {
                merge(table, row);
            }
        }
        (Item::Value(Value::Array(array)), Json::Array(items)) => replace_items(array, items),
        (Item::Value(old), wanted) => replace(old, wanted),
        (item, wanted) => *item = Item::Value(toml(wanted)),
    }
}

/// Adds to a list in the way of the items that it has: on a line of its own if the last one is.
pub(super) fn push(array: &mut Array, mut value: Value) {
    let before = array.iter().last().and_then(|it| it.decor().prefix()?.as_str());
    if let Some((_, indent)) = before.and_then(|it| it.rsplit_once('\n')) {
        value.decor_mut().set_prefix(format!("\n{indent}"));
        array.push_formatted(value);
    } else {
        array.push(value);
    }
}

fn replace_items(array: &mut Array, items: &[Json]) {
    while array.len() > items.len() {
        array.remove(array.len() - 1);
    }
    for (old, wanted) in array.iter_mut().zip(items) {
        if plain(old) != *wanted {
            replace(old, wanted);
        }
    }
    for wanted in items.iter().skip(array.len()) {
        push(array, toml(wanted));
    }
}

/// Another value in the same place, with the comments and spaces around it.
fn replace(old: &mut Value, wanted: &Json) {
    let decor = old.decor().clone();
    *old = toml(wanted);
    *old.decor_mut() = decor;
}

fn last_value(table: &mut dyn TableLike) -> Option<&mut Value> {
    table.iter_mut().last().and_then(|(_, item)| item.as_value_mut())
}

fn ordered(row: &Row) -> Vec<(&str, &Json)> {
    let rank = |key: &str| ORDER.iter().position(|it| *it == key).unwrap_or(ORDER.len());
    let mut members: Vec<(&str, &Json)> = row.iter().map(|(key, it)| (key.as_str(), it)).collect();
    members.sort_by_key(|(key, _)| (rank(key), *key));
    members
}

fn json(item: &Item) -> Option<Json> {
    match item {
        Item::None => None,
        Item::Value(value) => Some(plain(value)),
        Item::Table(table) => Some(Json::Object(row(table))),
        Item::ArrayOfTables(list) => {
            Some(list.iter().map(|table| Json::Object(row(table))).collect())
        }
    }
}

fn plain(value: &Value) -> Json {
    match value {
        Value::String(text) => Json::from(text.value().as_str()),
        Value::Integer(number) => Json::from(*number.value()),
        // JSON has no infinity and no dates; as text they are at least seen.
        Value::Float(number) => serde_json::Number::from_f64(*number.value())
            .map_or_else(|| Json::from(number.value().to_string()), Json::Number),
        Value::Boolean(flag) => Json::from(*flag.value()),
        Value::Datetime(date) => Json::from(date.value().to_string()),
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::InlineTable(table) => Json::Object(row(table)),
    }
}

/// A value as we write it. What TOML cannot say has been refused before.
fn toml(value: &Json) -> Value {
    match value {
        Json::Null => Value::from(""),
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => Value::from(number),
            (None, number) => Value::from(number.unwrap_or_default()),
        },
        Json::String(text) => on_one_line(text),
        Json::Array(items) => Value::Array(items.iter().map(toml).collect()),
        Json::Object(row) => {
            let mut table = InlineTable::new();
            for (key, value) in ordered(row) {
                table.insert(key, toml(value));
            }
            Value::InlineTable(table)
        }
    }
}

/// A text in quotes. The library would spread one with line breaks over several lines, whose ends are then those
/// of the file.
fn on_one_line(text: &str) -> Value {
    let quoted = Json::from(text).to_string().replace('\u{7f}', "\\u007F");
    match quoted.parse() {
        Ok(value) if text.contains(['\n', '\r']) => value,
        _ => Value::from(text),
    }
}
