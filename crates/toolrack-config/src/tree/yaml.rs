//! YAML into a tree, from the parser's events.
//!
//! **Invariant:** aliases are copied only as long as the whole tree stays below [`MOST_NODES`], so a few
//! lines that refer to one another cannot fill the memory.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle};

use super::{DEEPEST, Member, Node, Value};
use crate::diagnostic::FaultKind;
use crate::diagnostics::Notes;

/// How many values a document may have, copies included.
const MOST_NODES: usize = 200_000;

pub(super) fn read(notes: &mut Notes<'_>) -> Node {
    let mut builder = Builder::default();
    for event in Parser::new_from_str(notes.text()) {
        let taken = match event {
            Ok((Event::DocumentEnd, _)) => break,
            Ok((event, span)) => {
                let at = offset(notes, span.start);
                builder.take(event, at).map_err(|complaint| (at, complaint.to_owned()))
            }
            Err(error) => Err((offset(notes, *error.marker()), error.info().to_owned())),
        };
        if let Err((at, complaint)) = taken {
            notes.error(FaultKind::Syntax, at, "", &format!("not valid YAML: {complaint}"));
            return Node::empty_table();
        }
    }
    let root = builder.root.unwrap_or_else(Node::empty_table);
    without_doubles(root, notes)
}

fn offset(notes: &Notes<'_>, marker: Marker) -> usize {
    notes.offset(marker.line(), marker.col())
}

/// The values that are not complete yet, innermost last.
#[derive(Default)]
struct Builder {
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
    /// The members so far, and the key whose value is next.
    Table(Vec<Member>, Option<(String, usize)>),
}

impl Builder {
    fn take(&mut self, event: Event<'_>, at: usize) -> Result<(), &'static str> {
        match event {
            Event::SequenceStart(anchor, _) => self.begin(at, anchor, Body::List(Vec::new())),
            Event::MappingStart(anchor, _) => self.begin(at, anchor, Body::Table(Vec::new(), None)),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Scalar(text, style, anchor, tag) => {
                let quoted = style != ScalarStyle::Plain || tag.is_some();
                let value = if quoted { Value::Text(text.into_owned()) } else { plain(&text) };
                self.put(Node { at, value }, anchor)
            }
            Event::Alias(anchor) => {
                let known = self.anchors.get(&anchor).ok_or("an alias of nothing")?;
                // Places stay those of the original, which is where a reader has to look.
                let copy = known.clone();
                self.n_nodes += size(&copy);
                self.put(copy, 0)
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, at: usize, anchor: usize, body: Body) -> Result<(), &'static str> {
        if self.open.len() >= DEEPEST {
            return Err("nested too deeply");
        }
        self.open.push(Open { at, anchor, body });
        Ok(())
    }

    fn end(&mut self) -> Result<(), &'static str> {
        let Some(Open { at, anchor, body }) = self.open.pop() else { return Ok(()) };
        let value = match body {
            Body::List(nodes) => Value::List(nodes),
            Body::Table(members, _) => Value::Table(members),
        };
        self.put(Node { at, value }, anchor)
    }

    fn put(&mut self, node: Node, anchor: usize) -> Result<(), &'static str> {
        self.n_nodes += 1;
        if self.n_nodes > MOST_NODES {
            return Err("too many values");
        }
        if self.open.len() + depth(&node) > DEEPEST {
            return Err("nested too deeply");
        }
        if anchor > 0 {
            self.n_nodes += size(&node);
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|it| &mut it.body) {
            None => self.root = Some(node),
            Some(Body::List(nodes)) => nodes.push(node),
            Some(Body::Table(members, next)) => match next.take() {
                Some((key, at)) => members.push(Member { key, at, value: node }),
                None => *next = Some((key_of(&node), node.at)),
            },
        }
        Ok(())
    }
}

/// How YAML's core schema reads a word without quotes.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Flag(true),
        "false" | "False" | "FALSE" => Value::Flag(false),
        _ => match (text.parse(), text.parse::<f64>()) {
            (Ok(integer), _) => Value::Integer(integer),
            (_, Ok(float)) if text.contains(|it: char| it.is_ascii_digit()) => Value::Float(float),
            _ => Value::Text(text.to_owned()),
        },
    }
}

/// Keys are names here, so a number or a word is one too.
fn key_of(node: &Node) -> String {
    match &node.value {
        Value::Text(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Flag(flag) => flag.to_string(),
        Value::Null => "null".to_owned(),
        Value::List(_) | Value::Table(_) | Value::Other(_) => node.kind().to_owned(),
    }
}

fn size(node: &Node) -> usize {
    1 + match &node.value {
        Value::List(nodes) => nodes.iter().map(size).sum(),
        Value::Table(members) => members.iter().map(|it| size(&it.value)).sum(),
        _ => 0,
    }
}

fn depth(node: &Node) -> usize {
    match &node.value {
        Value::List(nodes) => 1 + nodes.iter().map(depth).max().unwrap_or(0),
        Value::Table(members) => 1 + members.iter().map(|it| depth(&it.value)).max().unwrap_or(0),
        _ => 0,
    }
}

fn without_doubles(node: Node, notes: &mut Notes<'_>) -> Node {
    let value = match node.value {
        Value::Table(members) => {
            let inner = |it: Member, notes: &mut Notes<'_>| Member {
                value: without_doubles(it.value, notes),
                ..it
            };
            let members = members.into_iter().map(|it| inner(it, notes)).collect();
            Value::Table(super::drop_doubles(members, notes))
        }
        Value::List(list) => {
            Value::List(list.into_iter().map(|it| without_doubles(it, notes)).collect())
        }
        value => value,
    };
    Node { value, ..node }
}
