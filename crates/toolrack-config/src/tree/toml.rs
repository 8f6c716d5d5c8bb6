//! TOML parser that reports all syntax errors and reads the rest.

use ::toml::de::{DeTable, DeValue};

use super::{MAX_DEPTH, Member, Node, Value};
use crate::diagnostics::DiagnosticKind;
use crate::diagnostics::Diagnostics;

pub(super) fn read(diagnostics: &mut Diagnostics<'_>) -> Node {
    let text = diagnostics.text();
    // Recovers after an error, so that one run reports all of them and the other entries
    // are still read.
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let at = error.span().map_or(0, |span| span.start);
        diagnostics.error(
            DiagnosticKind::Syntax,
            at,
            "",
            &format!("not valid TOML: {}", error.message()),
        );
    }
    members(table.get_ref(), 0, 0)
}

fn members(table: &DeTable<'_>, at: usize, depth: usize) -> Node {
    if depth > MAX_DEPTH {
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
    // The library sorts by name; diagnostics follow the order of the file.
    members.sort_by_key(|member| member.at);
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
        DeValue::Array(_) if depth > MAX_DEPTH => Value::Other("nested too deeply"),
        DeValue::Array(array) => Value::List(
            array
                .iter()
                .map(|array| node(array.get_ref(), array.span().start, depth + 1))
                .collect(),
        ),
        DeValue::Table(table) => return members(table, at, depth),
    };
    Node { at, value }
}
