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
    for key in keys.iter().filter(|it| !row.contains_key(*it)) {
        table.remove(key);
    }
    for (key, value) in ordered(row) {
        set(table, key, value);
    }
}

/// Makes one key of a table say something.
pub(super) fn set(table: &mut dyn TableLike, key: &str, wanted: &Json) {
    let Some(item) = table.get_mut(key) else {
        let trailing = last_value(table).map(take_trailing).unwrap_or_default();
        let mut value = toml(wanted);
        if !trailing.is_empty() {
            value.decor_mut().set_suffix(trailing);
        }
        table.insert(key, Item::Value(value));
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

/// Adds to a list in the way of the items that it has.
pub(super) fn push(array: &mut Array, mut value: Value) {
    let before = array.iter().last().and_then(|it| it.decor().prefix()?.as_str());
    match before {
        Some(prefix) if array.len() > 1 && prefix.trim().is_empty() => {
            value.decor_mut().set_prefix(prefix.to_owned());
        }
        Some(prefix) if prefix.contains('\n') && prefix.trim().is_empty() => {
            value.decor_mut().set_prefix(prefix.to_owned());
        }
        _ => {}
    }
    array.push_formatted(value);
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

/// The value after which the next key of a table on one line would stand.
fn last_value(table: &mut dyn TableLike) -> Option<&mut Value> {
    table.iter_mut().last().and_then(|(_, item)| item.as_value_mut())
}

/// Takes the spaces after the last value on a line, so that they stand after the next one.
fn take_trailing(value: &mut Value) -> String {
    let suffix = value.decor().suffix().and_then(|it| it.as_str()).unwrap_or_default().to_owned();
    let spaces = !suffix.is_empty() && suffix.chars().all(|it| it == ' ');
    if spaces {
        value.decor_mut().set_suffix("");
        return suffix;
    }
    String::new()
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
        Json::String(text) => Value::from(text.as_str()),
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
