//! TOML into a tree. What is wrong with the syntax is noted, all of it, and the rest is read.

use ::toml::de::{DeTable, DeValue};

use super::{DEEPEST, Member, Node, Value};
use crate::diagnostic::FaultKind;
use crate::diagnostics::Notes;

pub(super) fn read(notes: &mut Notes<'_>) -> Node {
    let text = notes.text();
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let at = error.span().map_or(0, |it| it.start);
        notes.error(FaultKind::Syntax, at, "", &format!("not valid TOML: {}", error.message()));
    }
    members(table.get_ref(), 0, 0)
}

fn members(table: &DeTable<'_>, at: usize, depth: usize) -> Node {
    if depth > DEEPEST {
        return Node { at, value: Value::Other("nested too deeply") };
    }
    let mut members: Vec<Member> = table
        .iter()
        .map(|(key, value)| Member {
            key: key.get_ref().to_string(),
            at: key.span().start,
            value: node(value.get_ref(), value.span().start, depth + 1),
        })
        .collect();
    // The library sorts by name; people expect the order of the file.
    members.sort_by_key(|it| it.at);
    Node { at, value: Value::Table(members) }
}

fn node(value: &DeValue<'_>, at: usize, depth: usize) -> Node {
    let value = match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or(Value::Other("a number out of range"), Value::Integer),
        DeValue::Float(number) => {
            number.as_str().parse().map_or(Value::Other("a number out of range"), Value::Float)
        }
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Datetime(_) => Value::Other("a date"),
        DeValue::Array(_) if depth > DEEPEST => Value::Other("nested too deeply"),
        DeValue::Array(array) => Value::List(
            array.iter().map(|it| node(it.get_ref(), it.span().start, depth + 1)).collect(),
        ),
        DeValue::Table(table) => return members(table, at, depth),
    };
    Node { at, value }
}
