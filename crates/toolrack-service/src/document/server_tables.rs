//! Server lists of a TOML document: `[[defaults.mcp]]` and the `[[agents.mcp]]` of each agent, as tables or inline.

use toml_edit::{ArrayOfTables, DocumentMut, Item, RawString, Table, TableLike, Value};

use super::entry::JsonMap;
use super::toml_json;

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
            (TablePos { agent, index }, scope.clone(), toml_json::table_to_json(table))
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
    toml_json::merge(&mut entry, row);
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
            document.entry("defaults").or_insert_with(implicit_table).as_table_like_mut()?
        }
        ConfigScope::Agent(id) => agent_mut(document, id)?,
    };
    if !owner.contains_key("mcp") {
        let list = Item::ArrayOfTables(ArrayOfTables::new());
        toml_json::keep_closing_space(owner, |owner| drop(owner.insert("mcp", list)));
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
            list.remove(pos.index);
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
        Item::Value(Value::Array(list)) => toml_json::push(list, table.into_inline_table().into()),
        _ => return None,
    }
    Some(())
}

/// A table without a header line of its own: only tables below it are written.
fn implicit_table() -> Item {
    let mut table = Table::new();
    table.set_implicit(true);
    Item::Table(table)
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
    let next = position.and_then(|removed| {
        let mut later = Vec::new();
        positions(document.as_table(), &mut later);
        // By position in the file and not in the tree: the next table may belong to another agent.
        later.into_iter().filter(|position| *position > removed).min()
    });
    let join = |below: &str| format!("{kept}{}", below.strip_prefix('\n').unwrap_or(below));
    match next.and_then(|position| table_at(document.as_table_mut(), position)) {
        Some(table) => {
            let below = table.decor().prefix().map(raw_text).unwrap_or_default();
            table.decor_mut().set_prefix(join(&below));
        }
        None => {
            let below = raw_text(document.trailing());
            document.set_trailing(join(&below));
        }
    }
}

/// Everything up to the last empty line.
fn detached_comments(comments: &str) -> String {
    let lines: Vec<&str> = comments.split_inclusive('\n').collect();
    let n_kept = lines.iter().rposition(|line| line.trim().is_empty()).map_or(0, |last| last + 1);
    lines.into_iter().take(n_kept).collect()
}

fn positions(table: &Table, found: &mut Vec<isize>) {
    found.extend(table.position().filter(|_| !table.is_implicit() && !table.is_dotted()));
    for (_, item) in table {
        match item {
            Item::Table(table) => positions(table, found),
            Item::ArrayOfTables(list) => list.iter().for_each(|table| positions(table, found)),
            _ => {}
        }
    }
}

fn table_at(table: &mut Table, position: isize) -> Option<&mut Table> {
    if table.position() == Some(position) && !table.is_implicit() && !table.is_dotted() {
        return Some(table);
    }
    table.iter_mut().find_map(|(_, item)| match item {
        Item::Table(table) => table_at(table, position),
        Item::ArrayOfTables(list) => list.iter_mut().find_map(|table| table_at(table, position)),
        _ => None,
    })
}

fn raw_text(raw: &RawString) -> String {
    raw.as_str().unwrap_or_default().to_owned()
}
