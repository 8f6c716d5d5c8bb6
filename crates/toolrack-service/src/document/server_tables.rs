//! Server lists of a TOML document: `[[defaults.mcp]]` and the `[[agents.mcp]]` of each agent, as tables or inline;
//! conversion between TOML and JSON, and format-preserving merge of JSON into TOML tables.

use serde_json::Value as Json;
use toml_edit::{
    Array, ArrayOfTables, DocumentMut, InlineTable, Item, RawString, Table, TableLike, Value,
};

use super::entry::JsonMap;

/// Which agents have a server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigScope {
    /// All agents: `[[defaults.mcp]]`.
    Defaults,
    /// One agent: its `[[agents.mcp]]`.
    Agent(String),
}

/// Position of an entry: the index of its agent (none for the defaults) and its index in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TablePos {
    agent: Option<usize>,
    index: usize,
}

/// All entries as JSON, each with its position and scope.
pub(super) fn rows(document: &DocumentMut) -> Vec<(TablePos, ConfigScope, JsonMap)> {
    let mut found = Vec::new();
    let mut collect = |agent: Option<usize>, scope: ConfigScope, owner: &dyn TableLike| {
        let list = owner.get("mcp").map(tables).unwrap_or_default();
        found.extend(list.into_iter().enumerate().map(|(index, table)| {
            (TablePos { agent, index }, scope.clone(), table_to_json(table))
        }));
    };
    if let Some(defaults) = document.get("defaults").and_then(Item::as_table_like) {
        collect(None, ConfigScope::Defaults, defaults);
    }
    let agents = document.get("agents").map(tables).unwrap_or_default();
    for (index, agent) in agents.into_iter().enumerate() {
        let id = agent.get("id").and_then(Item::as_str).unwrap_or_default();
        collect(Some(index), ConfigScope::Agent(id.to_owned()), agent);
    }
    found
}

/// The table of an entry.
pub(super) fn row_mut(document: &mut DocumentMut, pos: TablePos) -> Option<&mut dyn TableLike> {
    tables_mut(list_mut(document, pos)?).into_iter().nth(pos.index)
}

/// Appends an entry to the list of its scope, which is created if needed. `None` if the document has something other
/// than a list there, which a valid config has not.
pub(super) fn push(document: &mut DocumentMut, scope: &ConfigScope, row: &JsonMap) -> Option<()> {
    let mut entry = Table::new();
    merge(&mut entry, row);
    if document.as_table().is_empty() {
        // The document holds only comments, which the editor would print below the entry.
        let comments = raw_text(document.trailing());
        let gap = match comments.as_str() {
            "" => "",
            text if text.ends_with("\n\n") => "",
            text if text.ends_with('\n') => "\n",
            _ => "\n\n",
        };
        entry.decor_mut().set_prefix(format!("{comments}{gap}"));
        document.set_trailing("");
    }
    let owner = match scope {
        ConfigScope::Defaults => {
            // Without a header line of its own: only tables below it are written.
            let mut implicit = Table::new();
            implicit.set_implicit(true);
            document.entry("defaults").or_insert(Item::Table(implicit)).as_table_like_mut()?
        }
        ConfigScope::Agent(id) => agent_mut(document, id)?,
    };
    if !owner.contains_key("mcp") {
        let list = Item::ArrayOfTables(ArrayOfTables::new());
        keep_closing_space(owner, |owner| drop(owner.insert("mcp", list)));
    }
    append(owner.get_mut("mcp")?, entry)
}

/// Removes an entry and the comment directly above it.
pub(super) fn remove(document: &mut DocumentMut, pos: TablePos) {
    match list_mut(document, pos) {
        Some(Item::ArrayOfTables(list)) if pos.index < list.len() => {
            let removed = list.remove(pos.index);
            let above = removed.decor().prefix().map(raw_text).unwrap_or_default();
            keep_comments(document, removed.position(), &above);
        }
        Some(Item::Value(Value::Array(list))) if pos.index < list.len() => {
            remove_inline(list, pos.index);
        }
        _ => {}
    }
}

fn list_mut(document: &mut DocumentMut, pos: TablePos) -> Option<&mut Item> {
    let owner = match pos.agent {
        None => document.get_mut("defaults")?.as_table_like_mut()?,
        Some(index) => tables_mut(document.get_mut("agents")?).into_iter().nth(index)?,
    };
    owner.get_mut("mcp")
}

/// The table of an agent; a new one is appended to the list.
fn agent_mut<'a>(document: &'a mut DocumentMut, id: &str) -> Option<&'a mut dyn TableLike> {
    let agents = document.entry("agents").or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
    if !tables(agents).iter().any(|table| is_agent(*table, id)) {
        let mut agent = Table::new();
        agent.insert("id", toml_edit::value(id));
        append(agents, agent)?;
    }
    tables_mut(agents).into_iter().find(|table| is_agent(*table, id))
}

fn append(list: &mut Item, table: Table) -> Option<()> {
    match list {
        Item::ArrayOfTables(list) => list.push(table),
        Item::Value(Value::Array(list)) => push_formatted(list, table.into_inline_table().into()),
        _ => return None,
    }
    Some(())
}

fn is_agent(table: &dyn TableLike, id: &str) -> bool {
    table.get("id").and_then(Item::as_str) == Some(id)
}

/// The tables of a list, written as `[[…]]` or inline.
fn tables(item: &Item) -> Vec<&dyn TableLike> {
    match item {
        Item::ArrayOfTables(list) => list.iter().map(|table| table as &dyn TableLike).collect(),
        Item::Value(Value::Array(list)) => {
            let inline = list.iter().filter_map(Value::as_inline_table);
            inline.map(|table| table as &dyn TableLike).collect()
        }
        _ => Vec::new(),
    }
}

fn tables_mut(item: &mut Item) -> Vec<&mut dyn TableLike> {
    match item {
        Item::ArrayOfTables(list) => {
            list.iter_mut().map(|table| table as &mut dyn TableLike).collect()
        }
        Item::Value(Value::Array(list)) => {
            let inline = list.iter_mut().filter_map(Value::as_inline_table_mut);
            inline.map(|table| table as &mut dyn TableLike).collect()
        }
        _ => Vec::new(),
    }
}

/// Moves comments that do not stand directly above a removed entry to the next table, or to the end of the file.
fn keep_comments(document: &mut DocumentMut, position: Option<isize>, above: &str) {
    let kept = detached_comments(above);
    if !kept.contains('#') {
        return;
    }
    // By position in the file and not in the tree: the next table may belong to another agent.
    let mut next: Option<isize> = None;
    each_table(document.as_table_mut(), &mut |table| {
        let later = table.position().filter(|at| position.is_some_and(|removed| *at > removed));
        next = next.into_iter().chain(later).min();
    });
    let join = |below: &str| format!("{kept}{}", below.strip_prefix('\n').unwrap_or(below));
    if next.is_none() {
        let below = raw_text(document.trailing());
        document.set_trailing(join(&below));
        return;
    }
    each_table(document.as_table_mut(), &mut |table| {
        if table.position() == next {
            let below = table.decor().prefix().map(raw_text).unwrap_or_default();
            table.decor_mut().set_prefix(join(&below));
        }
    });
}

/// Everything up to the last empty line.
fn detached_comments(comments: &str) -> String {
    let lines: Vec<&str> = comments.split_inclusive('\n').collect();
    let n_kept = lines.iter().rposition(|line| line.trim().is_empty()).map_or(0, |last| last + 1);
    lines.into_iter().take(n_kept).collect()
}

/// Visits every table that has a header line.
fn each_table(table: &mut Table, visit: &mut dyn FnMut(&mut Table)) {
    if !table.is_implicit() && !table.is_dotted() {
        visit(table);
    }
    for (_, item) in table.iter_mut() {
        match item {
            Item::Table(table) => each_table(table, visit),
            Item::ArrayOfTables(list) => {
                list.iter_mut().for_each(|table| each_table(table, visit));
            }
            _ => {}
        }
    }
}

fn raw_text(raw: &RawString) -> String {
    raw.as_str().unwrap_or_default().to_owned()
}

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
fn keep_closing_space(table: &mut dyn TableLike, change: impl FnOnce(&mut dyn TableLike)) {
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
fn push_formatted(array: &mut Array, mut value: Value) {
    let before = array.iter().last().and_then(|item| item.decor().prefix()?.as_str());
    if let Some((_, indent)) = before.and_then(|prefix| prefix.rsplit_once('\n')) {
        let indent = indent.to_owned();
        // Behind the last comma stands the comment of the entry before it, and others may follow.
        let trailing = raw_text(array.trailing());
        let comments = trailing.rsplit_once('\n').filter(|(comments, _)| comments.contains('#'));
        let (comments, closing) =
            comments.map_or(("", trailing.as_str()), |(comments, closing)| {
                (comments, trailing.get(trailing.len() - closing.len() - 1..).unwrap_or_default())
            });
        value.decor_mut().set_prefix(format!("{comments}\n{indent}"));
        let closing = closing.to_owned();
        array.set_trailing(closing);
        array.push_formatted(value);
    } else {
        array.push(value);
    }
}

/// Removes an item with the comment on its line. The comment in front of its line belongs to the item before.
fn remove_inline(array: &mut Array, index: usize) {
    let removed = array.remove(index);
    let above = removed.decor().prefix().map(raw_text).unwrap_or_default();
    let Some((comment, _)) = above.split_once('\n').filter(|(comment, _)| comment.contains('#'))
    else {
        return;
    };
    let without_first_line = |text: String| {
        text.find('\n').and_then(|at| text.get(at..)).map_or_else(|| "\n".to_owned(), str::to_owned)
    };
    match array.get_mut(index) {
        Some(next) => {
            let rest = without_first_line(next.decor().prefix().map(raw_text).unwrap_or_default());
            next.decor_mut().set_prefix(format!("{comment}{rest}"));
        }
        None => {
            let rest = without_first_line(raw_text(array.trailing()));
            array.set_trailing(format!("{comment}{rest}"));
        }
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
        push_formatted(array, json_to_toml(wanted));
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
