//! YAML parser, built on parser events.
//!
//! **Invariant:** aliases are expanded only while the tree stays below [`MAX_NODES`], so that nested aliases
//! cannot fill the memory.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle};

use super::{MAX_DEPTH, Member, Node, Value};
use crate::diagnostics::DiagnosticKind;
use crate::diagnostics::Diagnostics;

/// Maximum number of values, expanded aliases included.
const MAX_NODES: usize = 200_000;

pub(super) fn read(diagnostics: &mut Diagnostics<'_>) -> Node {
    let mut builder = Builder::default();
    for event in Parser::new_from_str(diagnostics.text()) {
        let taken = match event {
            Ok((Event::DocumentEnd, _)) => break,
            Ok((event, span)) => {
                let at = offset(diagnostics, span.start);
                builder.take(event, at).map_err(|message| (at, message.to_owned()))
            }
            Err(error) => Err((offset(diagnostics, *error.marker()), error.info().to_owned())),
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
    let root = builder.root.unwrap_or_else(Node::empty_table);
    without_duplicates(root, diagnostics)
}

fn offset(diagnostics: &Diagnostics<'_>, marker: Marker) -> usize {
    diagnostics.offset(marker.line(), marker.col())
}

/// Open collections, innermost last.
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
    /// Members so far, and the key of the next value.
    Table(Vec<Member>, Option<(String, usize)>),
}

impl Builder {
    fn take(&mut self, event: Event<'_>, at: usize) -> Result<(), &'static str> {
        match event {
            Event::SequenceStart(anchor, _) => self.begin(at, anchor, Body::List(Vec::new())),
            Event::MappingStart(anchor, _) => self.begin(at, anchor, Body::Table(Vec::new(), None)),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Scalar(text, style, anchor, tag) => {
                // A quoted `"8080"` and `!!str 8080` are text.
                let quoted = style != ScalarStyle::Plain || tag.is_some();
                let value = if quoted { Value::Text(text.into_owned()) } else { plain(&text) };
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
                None => *next = Some((key_of(&node), node.at)),
            },
        }
        Ok(())
    }
}

/// Unquoted scalars by YAML's core schema.
fn plain(text: &str) -> Value {
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
fn key_of(node: &Node) -> String {
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

fn without_duplicates(node: Node, diagnostics: &mut Diagnostics<'_>) -> Node {
    let value = match node.value {
        Value::Table(members) => {
            let inner = |item: Member, diagnostics: &mut Diagnostics<'_>| Member {
                value: without_duplicates(item.value, diagnostics),
                ..item
            };
            let members = members.into_iter().map(|member| inner(member, diagnostics)).collect();
            Value::Table(super::drop_duplicates(members, diagnostics))
        }
        Value::List(list) => Value::List(
            list.into_iter().map(|list| without_duplicates(list, diagnostics)).collect(),
        ),
        value => value,
    };
    Node { value, ..node }
}
