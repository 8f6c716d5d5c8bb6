//! Document tree with source positions, for TOML, JSONC and YAML.
//!
//! **Invariant:** no tree is deeper than [`MAX_DEPTH`], so recursion cannot exhaust the stack.

mod jsonc;
mod toml;
mod yaml;

use std::collections::HashMap;

use crate::diagnostics::DiagnosticKind;
use crate::diagnostics::Diagnostics;

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
    Table(Vec<Member>),
    /// A type that no key takes, such as a date.
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
pub(crate) fn read(format: Format, diagnostics: &mut Diagnostics<'_>) -> Node {
    match format {
        Format::Toml => toml::read(diagnostics),
        Format::Jsonc => jsonc::read(diagnostics),
        Format::Yaml => yaml::read(diagnostics),
    }
}

impl Node {
    pub(crate) fn empty_table() -> Self {
        Self { at: 0, value: Value::Table(Vec::new()) }
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
            Value::Other(what) => what,
        }
    }
}

/// Keeps the last of duplicate keys, as other tools do, and reports them.
fn drop_duplicates(members: Vec<Member>, diagnostics: &mut Diagnostics<'_>) -> Vec<Member> {
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
