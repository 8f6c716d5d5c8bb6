//! Conversion between TOML and JSON values, and format-preserving merge of JSON into TOML tables.

use serde_json::Value as Json;
use toml_edit::{Array, InlineTable, Item, TableLike, Value};

use super::entry::JsonMap;

/// Keys that are written first, in this order. Others follow by name.
const KEY_ORDER: [&str; 21] = [
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

/// Converts a table to JSON.
pub(super) fn table_to_json(table: &dyn TableLike) -> JsonMap {
    table.iter().filter_map(|(key, item)| Some((key.to_owned(), item_to_json(item)?))).collect()
}

/// Changes a table to hold exactly `row`. Values that do not change keep their formatting.
pub(super) fn merge(table: &mut dyn TableLike, row: &JsonMap) {
    let keys: Vec<String> = table.iter().map(|(key, _)| key.to_owned()).collect();
    keep_closing_space(table, |table| {
        for key in keys.iter().filter(|key| !row.contains_key(*key)) {
            table.remove(key);
        }
        for (key, value) in in_key_order(row) {
            set_key(table, key, value);
        }
    });
}

/// Changes a table and keeps the space before the closing brace of an inline table, which belongs to its last value.
pub(super) fn keep_closing_space(
    table: &mut dyn TableLike,
    change: impl FnOnce(&mut dyn TableLike),
) {
    let suffix =
        last_value(table).and_then(|value| Some(value.decor().suffix()?.as_str()?.to_owned()));
    let end = suffix.filter(|suffix| !suffix.is_empty() && suffix.chars().all(|char| char == ' '));
    if let (Some(_), Some(last)) = (&end, last_value(table)) {
        last.decor_mut().set_suffix("");
    }
    change(table);
    if let (Some(end), Some(last)) = (end, last_value(table)) {
        last.decor_mut().set_suffix(end);
    }
}

fn set_key(table: &mut dyn TableLike, key: &str, wanted: &Json) {
    let Some(item) = table.get_mut(key) else {
        table.insert(key, Item::Value(json_to_toml(wanted)));
        return;
    };
    // Compared by value, so that `0x10` or a literal string keeps its spelling.
    if item_to_json(item).as_ref() == Some(wanted) {
        return;
    }
    match (item, wanted) {
        (item, Json::Object(row)) if item.is_table_like() => {
            if let Some(table) = item.as_table_like_mut() {
                merge(table, row);
            }
        }
        (Item::Value(Value::Array(array)), Json::Array(items)) => merge_array(array, items),
        (Item::Value(old), wanted) => replace_value(old, wanted),
        (item, wanted) => *item = Item::Value(json_to_toml(wanted)),
    }
}

/// Appends to an array in the style of its items: on a new line if the last item is.
pub(super) fn push(array: &mut Array, mut value: Value) {
    let before = array.iter().last().and_then(|item| item.decor().prefix()?.as_str());
    if let Some((_, indent)) = before.and_then(|prefix| prefix.rsplit_once('\n')) {
        value.decor_mut().set_prefix(format!("\n{indent}"));
        array.push_formatted(value);
    } else {
        array.push(value);
    }
}

fn merge_array(array: &mut Array, items: &[Json]) {
    // From the end: the items in front keep their comments.
    while array.len() > items.len() {
        array.remove(array.len() - 1);
    }
    for (old, wanted) in array.iter_mut().zip(items) {
        if value_to_json(old) != *wanted {
            replace_value(old, wanted);
        }
    }
    for wanted in items.iter().skip(array.len()) {
        push(array, json_to_toml(wanted));
    }
}

/// Replaces a value and keeps the comments and spaces around it.
fn replace_value(old: &mut Value, wanted: &Json) {
    let decor = old.decor().clone();
    *old = json_to_toml(wanted);
    *old.decor_mut() = decor;
}

fn last_value(table: &mut dyn TableLike) -> Option<&mut Value> {
    table.iter_mut().last().and_then(|(_, item)| item.as_value_mut())
}

fn in_key_order(row: &JsonMap) -> Vec<(&str, &Json)> {
    let rank =
        |key: &str| KEY_ORDER.iter().position(|first| *first == key).unwrap_or(KEY_ORDER.len());
    let mut members: Vec<(&str, &Json)> =
        row.iter().map(|(key, value)| (key.as_str(), value)).collect();
    members.sort_by_key(|(key, _)| (rank(key), *key));
    members
}

fn item_to_json(item: &Item) -> Option<Json> {
    match item {
        Item::None => None,
        Item::Value(value) => Some(value_to_json(value)),
        Item::Table(table) => Some(Json::Object(table_to_json(table))),
        Item::ArrayOfTables(list) => {
            Some(list.iter().map(|table| Json::Object(table_to_json(table))).collect())
        }
    }
}

fn value_to_json(value: &Value) -> Json {
    match value {
        Value::String(text) => Json::from(text.value().as_str()),
        Value::Integer(number) => Json::from(*number.value()),
        // JSON has neither infinity nor dates: shown as text.
        Value::Float(number) => serde_json::Number::from_f64(*number.value())
            .map_or_else(|| Json::from(number.value().to_string()), Json::Number),
        Value::Boolean(flag) => Json::from(*flag.value()),
        Value::Datetime(date) => Json::from(date.value().to_string()),
        Value::Array(items) => items.iter().map(value_to_json).collect(),
        Value::InlineTable(table) => Json::Object(table_to_json(table)),
    }
}

/// Converts a value that `check_representable` has accepted.
fn json_to_toml(value: &Json) -> Value {
    match value {
        Json::Null => Value::from(""),
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => Value::from(number),
            (None, number) => Value::from(number.unwrap_or_default()),
        },
        Json::String(text) => single_line_string(text),
        Json::Array(items) => Value::Array(items.iter().map(json_to_toml).collect()),
        Json::Object(row) => {
            let mut table = InlineTable::new();
            for (key, value) in in_key_order(row) {
                table.insert(key, json_to_toml(value));
            }
            Value::InlineTable(table)
        }
    }
}

/// A string on one line. `toml_edit` would write line breaks as a multi-line string, whose content then depends on the
/// line endings of the file.
fn single_line_string(text: &str) -> Value {
    let quoted = Json::from(text).to_string().replace('\u{7f}', "\\u007F");
    match quoted.parse() {
        Ok(value) if text.contains(['\n', '\r']) => value,
        _ => Value::from(text),
    }
}
