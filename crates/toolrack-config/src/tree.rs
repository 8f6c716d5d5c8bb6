//! A document as a tree with places, whatever format it was written in.
//!
//! **Invariant:** no tree is deeper than [`DEEPEST`], so nothing that walks one can exhaust the stack.

mod jsonc;
mod toml;
mod yaml;

use std::collections::HashMap;

use crate::diagnostic::FaultKind;
use crate::diagnostics::Notes;

/// How deep a document may be nested. Sound config files need five.
pub(crate) const DEEPEST: usize = 100;

/// A value and the byte at which it begins.
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
    /// Something that no config key takes, such as a date.
    Other(&'static str),
}

/// One key of a table, with the place of the key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Member {
    pub(crate) key: String,
    pub(crate) at: usize,
    pub(crate) value: Node,
}

/// What a text is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Format {
    Toml,
    Jsonc,
    Yaml,
}

/// Reads a text as far as it can be read, and notes what is wrong with it.
pub(crate) fn read(format: Format, notes: &mut Notes<'_>) -> Node {
    match format {
        Format::Toml => toml::read(notes),
        Format::Jsonc => jsonc::read(notes),
        Format::Yaml => yaml::read(notes),
    }
}

impl Node {
    pub(crate) fn empty_table() -> Self {
        Self { at: 0, value: Value::Table(Vec::new()) }
    }

    /// The members of a table; none for anything else.
    pub(crate) fn members(&self) -> &[Member] {
        match &self.value {
            Value::Table(members) => members,
            _ => &[],
        }
    }

    /// The value of a key, if this is a table that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.members().iter().rfind(|it| it.key == key).map(|it| &it.value)
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

    /// What it is, for people.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "null",
            Value::Flag(_) => "a boolean",
            Value::Integer(_) => "an integer",
            Value::Float(_) => "a fraction",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
            Value::Other(what) => what,
        }
    }
}

/// Keeps the last of several members with the same key, as the tools do whose files these are, and says so.
fn drop_doubles(members: Vec<Member>, notes: &mut Notes<'_>) -> Vec<Member> {
    let mut last: HashMap<String, usize> = HashMap::with_capacity(members.len());
    for (index, member) in members.iter().enumerate() {
        if last.insert(member.key.clone(), index).is_some() {
            let message = format!("`{}` is here twice; only this one counts", member.key);
            notes.warn(FaultKind::Duplicate, member.at, &member.key, &message);
        }
    }
    let counts = |index: usize, key: &str| last.get(key) == Some(&index);
    let numbered = members.into_iter().enumerate();
    numbered.filter(|(index, it)| counts(*index, &it.key)).map(|(_, it)| it).collect()
}
