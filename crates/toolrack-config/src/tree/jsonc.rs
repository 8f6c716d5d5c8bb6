//! JSONC parser: JSON with comments and trailing commas, as editors write it.

use jsonc_parser::ast;
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, CommentCollectionStrategy, ParseOptions, parse_to_ast};

use super::{MAX_DEPTH, Member, Node, Value};
use crate::diagnostics::DiagnosticKind;
use crate::diagnostics::Diagnostics;

/// The leniency of the tools whose files we read: comments and trailing commas.
const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

pub(super) fn read(diagnostics: &mut Diagnostics<'_>) -> Node {
    let collect = CollectOptions { comments: CommentCollectionStrategy::Off, tokens: false };
    match parse_to_ast(diagnostics.text(), &collect, &OPTIONS) {
        Ok(document) => match document.value {
            Some(value) => node(value, diagnostics, 0),
            None => Node::empty_table(),
        },
        Err(error) => {
            let message = format!("not valid JSON: {}", error.kind());
            diagnostics.error(DiagnosticKind::Syntax, error.range().start, "", &message);
            Node::empty_table()
        }
    }
}

fn node(value: ast::Value<'_>, diagnostics: &mut Diagnostics<'_>, depth: usize) -> Node {
    let at = value.start();
    let value = match value {
        _ if depth > MAX_DEPTH => Value::Other("nested too deeply"),
        ast::Value::StringLit(text) => Value::Text(text.value.into_owned()),
        ast::Value::NumberLit(number) => number_of(number.value),
        ast::Value::BooleanLit(flag) => Value::Flag(flag.value),
        ast::Value::NullKeyword(_) => Value::Null,
        ast::Value::Array(array) => Value::List(
            array
                .elements
                .into_iter()
                .map(|element| node(element, diagnostics, depth + 1))
                .collect(),
        ),
        ast::Value::Object(object) => Value::Table(members(object, diagnostics, depth)),
    };
    Node { at, value }
}

fn members(
    object: ast::Object<'_>,
    diagnostics: &mut Diagnostics<'_>,
    depth: usize,
) -> Vec<Member> {
    let mut members: Vec<Member> = Vec::new();
    for property in object.properties {
        let at = property.start();
        let key = property.name.into_string();
        let value = node(property.value, diagnostics, depth + 1);
        members.push(Member { key, at, value });
    }
    super::drop_duplicates(members, diagnostics)
}

fn number_of(text: &str) -> Value {
    match (text.parse(), text.parse()) {
        (Ok(integer), _) => Value::Integer(integer),
        (_, Ok(float)) => Value::Float(float),
        _ => Value::Other("a number out of range"),
    }
}
