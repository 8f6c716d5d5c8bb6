//! The lists of servers in a document: `[[defaults.mcp]]` and the `[[agents.mcp]]` of each agent, however they
//! are written.

use toml_edit::{ArrayOfTables, DocumentMut, Item, RawString, Table, TableLike, Value};

use super::entry::Row;
use super::toml_json;

/// Whose server it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Every agent's: `[[defaults.mcp]]`.
    Defaults,
    /// One agent's: its `[[agents.mcp]]`.
    Agent(String),
}

/// Where an entry stands: in the defaults or in the agent of this number, and at which row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot {
    agent: Option<usize>,
    row: usize,
}

/// Every entry with its place.
pub(super) fn rows(document: &DocumentMut) -> Vec<(Spot, Place, Row)> {
    let mut found = Vec::new();
    let mut gather = |agent: Option<usize>, place: Place, owner: &dyn TableLike| {
        let list = owner.get("mcp").map(tables).unwrap_or_default();
        found.extend(
            list.into_iter()
                .enumerate()
                .map(|(row, table)| (Spot { agent, row }, place.clone(), toml_json::row(table))),
        );
    };
    if let Some(defaults) = document.get("defaults").and_then(Item::as_table_like) {
        gather(None, Place::Defaults, defaults);
    }
    let agents = document.get("agents").map(tables).unwrap_or_default();
    for (index, agent) in agents.into_iter().enumerate() {
        let id = agent.get("id").and_then(Item::as_str).unwrap_or_default();
        gather(Some(index), Place::Agent(id.to_owned()), agent);
    }
    found
}

/// One entry, to be changed.
pub(super) fn row_mut(document: &mut DocumentMut, spot: Spot) -> Option<&mut dyn TableLike> {
    tables_mut(list_mut(document, spot)?).into_iter().nth(spot.row)
}

/// Adds an entry at the end of the list of its place, which is made if it is not there. `None` if the document
/// has something else in that place, which a sound one has not.
pub(super) fn push(document: &mut DocumentMut, place: &Place, row: &Row) -> Option<()> {
    let mut entry = Table::new();
    toml_json::merge(&mut entry, row);
    if document.as_table().is_empty() {
        // All there is are comments, which would otherwise end up below the entry.
        let comments = text_of(document.trailing());
        let gap = match comments.as_str() {
            "" => "",
            it if it.ends_with("\n\n") => "",
            it if it.ends_with('\n') => "\n",
            _ => "\n\n",
        };
        entry.decor_mut().set_prefix(format!("{comments}{gap}"));
        document.set_trailing("");
    }
    let owner = match place {
        Place::Defaults => document.entry("defaults").or_insert_with(unseen).as_table_like_mut()?,
        Place::Agent(id) => agent_mut(document, id)?,
    };
    if !owner.contains_key("mcp") {
        let list = Item::ArrayOfTables(ArrayOfTables::new());
        toml_json::keeping_end(owner, |owner| drop(owner.insert("mcp", list)));
    }
    append(owner.get_mut("mcp")?, entry)
}

/// Takes an entry away, with the comment that stands right above it.
pub(super) fn remove(document: &mut DocumentMut, spot: Spot) {
    match list_mut(document, spot) {
        Some(Item::ArrayOfTables(list)) if spot.row < list.len() => {
            let gone = list.remove(spot.row);
            let above = gone.decor().prefix().map(text_of).unwrap_or_default();
            leave_comments(document, gone.position(), &above);
        }
        Some(Item::Value(Value::Array(list))) if spot.row < list.len() => {
            list.remove(spot.row);
        }
        _ => {}
    }
}

fn list_mut(document: &mut DocumentMut, spot: Spot) -> Option<&mut Item> {
    let owner = match spot.agent {
        None => document.get_mut("defaults")?.as_table_like_mut()?,
        Some(index) => tables_mut(document.get_mut("agents")?).into_iter().nth(index)?,
    };
    owner.get_mut("mcp")
}

/// The table of an agent, at the end of the others if it is new.
fn agent_mut<'a>(document: &'a mut DocumentMut, id: &str) -> Option<&'a mut dyn TableLike> {
    let agents = document.entry("agents").or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
    if !tables(agents).iter().any(|it| is_agent(*it, id)) {
        let mut agent = Table::new();
        agent.insert("id", toml_edit::value(id));
        append(agents, agent)?;
    }
    tables_mut(agents).into_iter().find(|it| is_agent(*it, id))
}

fn append(list: &mut Item, table: Table) -> Option<()> {
    match list {
        Item::ArrayOfTables(list) => list.push(table),
        Item::Value(Value::Array(list)) => toml_json::push(list, table.into_inline_table().into()),
        _ => return None,
    }
    Some(())
}

/// A table whose heading is not written, because only tables below it are.
fn unseen() -> Item {
    let mut table = Table::new();
    table.set_implicit(true);
    Item::Table(table)
}

fn is_agent(table: &dyn TableLike, id: &str) -> bool {
    table.get("id").and_then(Item::as_str) == Some(id)
}

/// The tables of a list, whether they stand below their own headings or in brackets.
fn tables(item: &Item) -> Vec<&dyn TableLike> {
    match item {
        Item::ArrayOfTables(list) => list.iter().map(|it| it as &dyn TableLike).collect(),
        Item::Value(Value::Array(list)) => {
            let inline = list.iter().filter_map(Value::as_inline_table);
            inline.map(|it| it as &dyn TableLike).collect()
        }
        _ => Vec::new(),
    }
}

fn tables_mut(item: &mut Item) -> Vec<&mut dyn TableLike> {
    match item {
        Item::ArrayOfTables(list) => list.iter_mut().map(|it| it as &mut dyn TableLike).collect(),
        Item::Value(Value::Array(list)) => {
            let inline = list.iter_mut().filter_map(Value::as_inline_table_mut);
            inline.map(|it| it as &mut dyn TableLike).collect()
        }
        _ => Vec::new(),
    }
}

/// Leaves comments that do not stand right above an entry that is gone to whatever comes next.
fn leave_comments(document: &mut DocumentMut, position: Option<isize>, above: &str) {
    let kept = apart(above);
    if !kept.contains('#') {
        return;
    }
    let next = position.and_then(|gone| {
        let mut later = Vec::new();
        positions(document.as_table(), &mut later);
        later.into_iter().filter(|it| *it > gone).min()
    });
    let join = |below: &str| format!("{kept}{}", below.strip_prefix('\n').unwrap_or(below));
    match next.and_then(|it| table_at(document.as_table_mut(), it)) {
        Some(table) => {
            let below = table.decor().prefix().map(text_of).unwrap_or_default();
            table.decor_mut().set_prefix(join(&below));
        }
        None => {
            let below = text_of(document.trailing());
            document.set_trailing(join(&below));
        }
    }
}

/// Everything down to the last empty line.
fn apart(comments: &str) -> String {
    let lines: Vec<&str> = comments.split_inclusive('\n').collect();
    let n_kept = lines.iter().rposition(|it| it.trim().is_empty()).map_or(0, |it| it + 1);
    lines.into_iter().take(n_kept).collect()
}

fn positions(table: &Table, into: &mut Vec<isize>) {
    into.extend(table.position().filter(|_| !table.is_implicit() && !table.is_dotted()));
    for (_, item) in table {
        match item {
            Item::Table(table) => positions(table, into),
            Item::ArrayOfTables(list) => list.iter().for_each(|it| positions(it, into)),
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
        Item::ArrayOfTables(list) => list.iter_mut().find_map(|it| table_at(it, position)),
        _ => None,
    })
}

fn text_of(raw: &RawString) -> String {
    raw.as_str().unwrap_or_default().to_owned()
}
