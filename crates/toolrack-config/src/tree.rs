//! Document tree with source positions, for TOML, JSONC and YAML.
//!
//! **Invariant:** no tree is deeper than [`MAX_DEPTH`], so recursion cannot exhaust the stack. Aliases of YAML are
//! expanded only while the tree stays below [`MAX_NODES`], so that nested ones cannot fill the memory.

use std::collections::HashMap;
use std::sync::Arc;

use jsonc_parser::ast;
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, CommentCollectionStrategy, ParseOptions, parse_to_ast};
use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Number, Value as Json};
use toml::de::{DeTable, DeValue};

use crate::diagnostics::{DiagnosticKind, Diagnostics};

/// Maximum nesting. Valid config files need five levels.
pub(crate) const MAX_DEPTH: usize = 100;

/// A value and its byte offset.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) at: usize,
    pub(crate) value: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Flag(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// Shared, because every server entry keeps its own table.
    Table(Arc<Vec<Member>>),
    /// No key takes a date.
    Date(String),
    /// A value that cannot be represented.
    Other(&'static str),
}

/// A key with its position, and its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Member {
    pub(crate) key: String,
    pub(crate) at: usize,
    pub(crate) value: Node,
}

/// Syntax of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Format {
    Toml,
    Jsonc,
    Yaml,
}

/// Parses a text as far as possible and reports syntax errors.
pub(crate) fn read(format: Format, diagnostics: &Diagnostics<'_>) -> Node {
    match format {
        Format::Toml => read_toml(diagnostics),
        Format::Jsonc => read_jsonc(diagnostics),
        Format::Yaml => read_yaml(diagnostics),
    }
}

impl Node {
    pub(crate) fn empty_table() -> Self {
        Self { at: 0, value: Value::Table(Arc::default()) }
    }

    /// Members of a table; empty for anything else.
    pub(crate) fn members(&self) -> &[Member] {
        match &self.value {
            Value::Table(members) => members,
            _ => &[],
        }
    }

    /// Value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.members().iter().rfind(|member| member.key == key).map(|rfind| &rfind.value)
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn is_table(&self) -> bool {
        matches!(self.value, Value::Table(_))
    }

    /// A JSON value, which has no positions.
    fn from_json(value: &Json, depth: usize) -> Self {
        let value = match value {
            _ if depth > MAX_DEPTH => Value::Other("nested too deeply"),
            Json::Null => Value::Null,
            Json::Bool(flag) => Value::Flag(*flag),
            Json::Number(number) => json_number(&number.to_string()),
            Json::String(text) => Value::Text(text.clone()),
            Json::Array(items) => {
                Value::List(items.iter().map(|item| Self::from_json(item, depth + 1)).collect())
            }
            Json::Object(members) => return Self::from_json_object(members, depth),
        };
        Self { at: 0, value }
    }

    /// A JSON object, which has no positions.
    pub(crate) fn from_json_object(members: &Map<String, Json>, depth: usize) -> Self {
        let member = |(key, value): (&String, &Json)| Member {
            key: key.clone(),
            at: 0,
            value: Self::from_json(value, depth + 1),
        };
        Self { at: 0, value: Value::Table(Arc::new(members.iter().map(member).collect())) }
    }

    /// The value as JSON. JSON has neither infinity nor dates: they are text.
    pub(crate) fn to_json(&self) -> Json {
        match &self.value {
            Value::Null | Value::Other(_) => Json::Null,
            Value::Flag(flag) => Json::from(*flag),
            Value::Integer(number) => Json::from(*number),
            Value::Float(number) => Number::from_f64(*number)
                .map_or_else(|| Json::from(number.to_string()), Json::Number),
            Value::Text(text) | Value::Date(text) => Json::from(text.as_str()),
            Value::List(nodes) => nodes.iter().map(Node::to_json).collect(),
            Value::Table(_) => Json::Object(self.to_json_object()),
        }
    }

    /// The members of a table as JSON.
    pub(crate) fn to_json_object(&self) -> Map<String, Json> {
        let members = self.members().iter();
        members.map(|member| (member.key.clone(), member.value.to_json())).collect()
    }

    /// Type name, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "null",
            Value::Flag(_) => "a boolean",
            Value::Integer(_) => "an integer",
            Value::Float(_) => "a float",
            Value::Text(_) => "a string",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
            Value::Date(_) => "a date",
            Value::Other(what) => what,
        }
    }
}

/// Keeps the last of duplicate keys, as other tools do, and reports them.
fn drop_duplicates(members: Vec<Member>, diagnostics: &Diagnostics<'_>) -> Vec<Member> {
    let mut last: HashMap<String, usize> = HashMap::with_capacity(members.len());
    for (index, member) in members.iter().enumerate() {
        if last.insert(member.key.clone(), index).is_some() {
            let message = format!("duplicate key `{}`; the last one is used", member.key);
            diagnostics.warn(DiagnosticKind::Duplicate, member.at, &member.key, &message);
        }
    }
    let counts = |index: usize, key: &str| last.get(key) == Some(&index);
    let numbered = members.into_iter().enumerate();
    numbered
        .filter(|(index, numbered)| counts(*index, &numbered.key))
        .map(|(_, numbered)| numbered)
        .collect()
}

// TOML: reports all syntax errors and reads the rest.

fn read_toml(diagnostics: &Diagnostics<'_>) -> Node {
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
    toml_table(table.get_ref(), 0, 0)
}

fn toml_table(table: &DeTable<'_>, at: usize, depth: usize) -> Node {
    if depth > MAX_DEPTH {
        return Node { at, value: Value::Other("nested too deeply") };
    }
    let mut members: Vec<Member> = table
        .iter()
        .map(|(key, value)| Member {
            key: key.get_ref().to_string(),
            at: key.span().start,
            value: toml_node(value.get_ref(), value.span().start, depth + 1),
        })
        .collect();
    // The library sorts by name; diagnostics follow the order of the file.
    members.sort_by_key(|member| member.at);
    Node { at, value: Value::Table(members.into()) }
}

fn toml_node(value: &DeValue<'_>, at: usize, depth: usize) -> Node {
    let value = match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or(Value::Other("a number out of range"), Value::Integer),
        DeValue::Float(number) => {
            number.as_str().parse().map_or(Value::Other("a number out of range"), Value::Float)
        }
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Datetime(date) => Value::Date(date.to_string()),
        DeValue::Array(_) if depth > MAX_DEPTH => Value::Other("nested too deeply"),
        DeValue::Array(array) => Value::List(
            array
                .iter()
                .map(|element| toml_node(element.get_ref(), element.span().start, depth + 1))
                .collect(),
        ),
        DeValue::Table(table) => return toml_table(table, at, depth),
    };
    Node { at, value }
}

// JSONC: JSON with comments and trailing commas, as editors write it.

/// The leniency of the tools whose files we read: comments and trailing commas.
const JSONC_OPTIONS: ParseOptions = ParseOptions {
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

fn read_jsonc(diagnostics: &Diagnostics<'_>) -> Node {
    let collect = CollectOptions { comments: CommentCollectionStrategy::Off, tokens: false };
    match parse_to_ast(diagnostics.text(), &collect, &JSONC_OPTIONS) {
        Ok(document) => match document.value {
            Some(value) => jsonc_node(value, diagnostics, 0),
            None => Node::empty_table(),
        },
        Err(error) => {
            let message = format!("not valid JSON: {}", error.kind());
            diagnostics.error(DiagnosticKind::Syntax, error.range().start, "", &message);
            Node::empty_table()
        }
    }
}

fn jsonc_node(value: ast::Value<'_>, diagnostics: &Diagnostics<'_>, depth: usize) -> Node {
    let at = value.start();
    let value = match value {
        _ if depth > MAX_DEPTH => Value::Other("nested too deeply"),
        ast::Value::StringLit(text) => Value::Text(text.value.into_owned()),
        ast::Value::NumberLit(number) => json_number(number.value),
        ast::Value::BooleanLit(flag) => Value::Flag(flag.value),
        ast::Value::NullKeyword(_) => Value::Null,
        ast::Value::Array(array) => Value::List(
            array
                .elements
                .into_iter()
                .map(|element| jsonc_node(element, diagnostics, depth + 1))
                .collect(),
        ),
        ast::Value::Object(object) => {
            let member = |property: ast::ObjectProp<'_>| Member {
                at: property.start(),
                key: property.name.into_string(),
                value: jsonc_node(property.value, diagnostics, depth + 1),
            };
            let members = object.properties.into_iter().map(member).collect();
            Value::Table(drop_duplicates(members, diagnostics).into())
        }
    };
    Node { at, value }
}

fn json_number(text: &str) -> Value {
    match (text.parse(), text.parse()) {
        (Ok(integer), _) => Value::Integer(integer),
        (_, Ok(float)) => Value::Float(float),
        _ => Value::Other("a number out of range"),
    }
}

// YAML: built on parser events.

/// Maximum number of values, expanded aliases included.
const MAX_NODES: usize = 200_000;

fn read_yaml(diagnostics: &Diagnostics<'_>) -> Node {
    let mut builder = YamlBuilder::default();
    for event in Parser::new_from_str(diagnostics.text()) {
        let taken = match event {
            Ok((Event::DocumentEnd, _)) => break,
            Ok((event, span)) => {
                let at = diagnostics.offset(span.start.line(), span.start.col());
                builder.take(event, at, diagnostics).map_err(|message| (at, message.to_owned()))
            }
            Err(error) => {
                let at = diagnostics.offset(error.marker().line(), error.marker().col());
                Err((at, error.info().to_owned()))
            }
        };
        if let Err((at, message)) = taken {
            diagnostics.error(
                DiagnosticKind::Syntax,
                at,
                "",
                &format!("not valid YAML: {message}"),
            );
            return Node::empty_table();
        }
    }
    builder.root.unwrap_or_else(Node::empty_table)
}

/// Open collections, innermost last.
#[derive(Default)]
struct YamlBuilder {
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    n_nodes: usize,
    root: Option<Node>,
}

struct Open {
    at: usize,
    anchor: usize,
    body: Body,
}

enum Body {
    List(Vec<Node>),
    /// Members so far, and the key of the next value.
    Table(Vec<Member>, Option<(String, usize)>),
}

impl YamlBuilder {
    fn take(
        &mut self,
        event: Event<'_>,
        at: usize,
        diagnostics: &Diagnostics<'_>,
    ) -> Result<(), &'static str> {
        match event {
            Event::SequenceStart(anchor, _) => self.begin(at, anchor, Body::List(Vec::new())),
            Event::MappingStart(anchor, _) => self.begin(at, anchor, Body::Table(Vec::new(), None)),
            Event::SequenceEnd | Event::MappingEnd => self.end(diagnostics),
            Event::Scalar(text, style, anchor, tag) => {
                // A quoted `"8080"` and `!!str 8080` are text.
                let quoted = style != ScalarStyle::Plain || tag.is_some();
                let value =
                    if quoted { Value::Text(text.into_owned()) } else { yaml_scalar(&text) };
                self.put(Node { at, value }, anchor)
            }
            Event::Alias(anchor) => {
                let known = self.anchors.get(&anchor).ok_or("an unknown alias")?;
                // Positions stay those of the anchor, where the reader has to look.
                let copy = known.clone();
                // Counted before the next alias: a few lines of nested aliases expand to billions
                // of values otherwise.
                self.n_nodes += size(&copy);
                self.put(copy, 0)
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, at: usize, anchor: usize, body: Body) -> Result<(), &'static str> {
        if self.open.len() >= MAX_DEPTH {
            return Err("nested too deeply");
        }
        self.open.push(Open { at, anchor, body });
        Ok(())
    }

    fn end(&mut self, diagnostics: &Diagnostics<'_>) -> Result<(), &'static str> {
        let Some(Open { at, anchor, body }) = self.open.pop() else { return Ok(()) };
        let value = match body {
            Body::List(nodes) => Value::List(nodes),
            Body::Table(members, _) => Value::Table(drop_duplicates(members, diagnostics).into()),
        };
        self.put(Node { at, value }, anchor)
    }

    fn put(&mut self, node: Node, anchor: usize) -> Result<(), &'static str> {
        self.n_nodes += 1;
        if self.n_nodes > MAX_NODES {
            return Err("too many values");
        }
        // `begin` limits the text; an alias may add a deep tree at a deep place.
        if self.open.len() + depth(&node) > MAX_DEPTH {
            return Err("nested too deeply");
        }
        if anchor > 0 {
            // The anchor keeps a copy of its own, which takes memory too.
            self.n_nodes += size(&node);
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|last_mut| &mut last_mut.body) {
            None => self.root = Some(node),
            Some(Body::List(nodes)) => nodes.push(node),
            Some(Body::Table(members, next)) => match next.take() {
                Some((key, at)) => members.push(Member { key, at, value: node }),
                None => *next = Some((yaml_key(&node), node.at)),
            },
        }
        Ok(())
    }
}

/// Unquoted scalars by YAML's core schema.
fn yaml_scalar(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Flag(true),
        "false" | "False" | "FALSE" => Value::Flag(false),
        _ => match (text.parse(), text.parse::<f64>()) {
            (Ok(integer), _) => Value::Integer(integer),
            // Rust also parses `inf`, `infinity` and `nan`, which are words in a config file.
            (_, Ok(float)) if text.contains(|value: char| value.is_ascii_digit()) => {
                Value::Float(float)
            }
            _ => Value::Text(text.to_owned()),
        },
    }
}

/// Keys are names, so a number or boolean becomes text.
fn yaml_key(node: &Node) -> String {
    match &node.value {
        Value::Text(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Flag(flag) => flag.to_string(),
        Value::Null => "null".to_owned(),
        Value::List(_) | Value::Table(_) | Value::Date(_) | Value::Other(_) => {
            node.kind().to_owned()
        }
    }
}

fn size(node: &Node) -> usize {
    1 + match &node.value {
        Value::List(nodes) => nodes.iter().map(size).sum(),
        Value::Table(members) => members.iter().map(|member| size(&member.value)).sum(),
        _ => 0,
    }
}

fn depth(node: &Node) -> usize {
    match &node.value {
        Value::List(nodes) => 1 + nodes.iter().map(depth).max().unwrap_or(0),
        Value::Table(members) => {
            1 + members.iter().map(|member| depth(&member.value)).max().unwrap_or(0)
        }
        _ => 0,
    }
}
