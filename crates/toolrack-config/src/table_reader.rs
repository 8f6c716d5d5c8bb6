//! Reading a table by its list of keys: types are checked here, meaning is not.
//!
//! **Invariant:** whatever is wrong with one key, the others are read.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::diagnostic::FaultKind;
use crate::diagnostics::{Notes, nearest};
use crate::duration;
use crate::keys::{Key, Kind, SECRET, Scope, Strangers};
use crate::server::EnvValue;
use crate::tree::{Node, Value};

/// A table that has been read.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    /// The way to the table, such as `defaults.mcp[0]`.
    pub(crate) path: String,
    pub(crate) at: usize,
    /// Where each key is, and each part of it, such as `args[1]`. A key whose value is wrong has a place
    /// and no value.
    pub(crate) places: BTreeMap<String, usize>,
    values: BTreeMap<&'static str, Read>,
}

/// A value of the right type.
#[derive(Debug)]
enum Read {
    Text(String),
    Flag(bool),
    Time(Option<Duration>),
    Count(usize),
    Texts(Vec<String>),
    Map(Vec<(String, String)>),
    Env(Vec<(String, EnvValue)>),
    Table(Fields),
    Tables(Vec<Fields>),
}

/// Reads a table. Anything but a table is noted, and read as an empty one.
pub(crate) fn read(notes: &mut Notes<'_>, scope: &Scope, path: &str, node: &Node) -> Fields {
    let mut fields = Fields { path: path.to_owned(), at: node.at, ..Fields::default() };
    if !node.is_table() {
        let message = format!("must be a table, not {}", node.kind());
        notes.error(FaultKind::WrongType, node.at, path, &message);
    }
    for member in node.members() {
        // Other tools write `null` for what is not there.
        if member.value.value == Value::Null && scope.strangers == Strangers::NotTakenOver {
            continue;
        }
        fields.places.insert(member.key.clone(), member.at);
        let path = join(path, &member.key);
        match scope.key(&member.key) {
            None => stranger(notes, scope, &path, (&member.key, member.at)),
            Some(key) => {
                let mut reader = Reader { notes, places: &mut fields.places, name: key.name };
                if let Some(value) = reader.value(key, &path, &member.value) {
                    fields.values.insert(key.name, value);
                }
            }
        }
    }
    fields
}

fn stranger(notes: &mut Notes<'_>, scope: &Scope, path: &str, (key, at): (&str, usize)) {
    let near = nearest(key, scope.keys.iter().map(|it| it.name));
    match scope.strangers {
        Strangers::WarnIfNear if near.is_none() => return,
        Strangers::Warn | Strangers::WarnIfNear => {
            notes.warn(FaultKind::UnknownKey, at, path, "is not a key we know and has no effect");
        }
        Strangers::NotTakenOver => {
            notes.warn(
                FaultKind::Unsupported,
                at,
                path,
                "has no counterpart here and is not taken over",
            );
        }
    }
    notes.nearest(path, near);
}

/// One more step of a path such as `env.TOKEN.secret_ref`. Names that would be mistaken for steps are quoted.
pub fn join(path: &str, key: &str) -> String {
    let plain = !key.is_empty() && !key.contains(['.', '[', ']', '"', ' ', '\n']);
    match (path, plain) {
        ("", true) => key.to_owned(),
        ("", false) => format!("{key:?}"),
        (_, true) => format!("{path}.{key}"),
        (_, false) => format!("{path}.{key:?}"),
    }
}

struct Reader<'r, 't> {
    notes: &'r mut Notes<'t>,
    places: &'r mut BTreeMap<String, usize>,
    name: &'static str,
}

impl Reader<'_, '_> {
    fn value(&mut self, key: &Key, path: &str, node: &Node) -> Option<Read> {
        match key.kind {
            Kind::Template => self.text(path, node).map(Read::Text),
            Kind::Text => self.full_text(path, node).map(Read::Text),
            Kind::Flag => match node.value {
                Value::Flag(flag) => Some(Read::Flag(flag)),
                _ => self.wrong(path, node, "`true` or `false`"),
            },
            Kind::Time | Kind::TimeOrNever => self.time(key.kind, path, node).map(Read::Time),
            Kind::Seconds => self.number(path, node, Duration::from_secs(1)).map(Read::Time),
            Kind::Millis => self.number(path, node, Duration::from_millis(1)).map(Read::Time),
            Kind::Count => self.count(path, node).map(Read::Count),
            Kind::Word(words) => self.word(words, path, node).map(Read::Text),
            Kind::Templates => self.list(path, node, Self::text).map(Read::Texts),
            Kind::Texts => self.list(path, node, Self::full_text).map(Read::Texts),
            Kind::TemplateMap => self.map(path, node, Self::text).map(Read::Map),
            Kind::ScalarMap => self.map(path, node, Self::scalar).map(Read::Map),
            Kind::EnvMap => self.map(path, node, Self::env).map(Read::Env),
            Kind::Table(scope) => Some(Read::Table(read(self.notes, scope, path, node))),
            Kind::Tables(scope) => self.tables(scope, path, node).map(Read::Tables),
            Kind::Ignored => None,
        }
    }

    fn wrong<T>(&mut self, path: &str, node: &Node, wanted: &str) -> Option<T> {
        let message = format!("must be {wanted}, not {}", node.kind());
        self.notes.error(FaultKind::WrongType, node.at, path, &message);
        None
    }

    fn invalid<T>(&mut self, path: &str, node: &Node, message: &str) -> Option<T> {
        self.notes.error(FaultKind::Invalid, node.at, path, message);
        None
    }

    fn text(&mut self, path: &str, node: &Node) -> Option<String> {
        match &node.value {
            Value::Text(text) => Some(text.clone()),
            Value::Integer(number) => {
                self.wrong(path, node, &format!("text; write `\"{number}\"`"))
            }
            Value::Flag(flag) => self.wrong(path, node, &format!("text; write `\"{flag}\"`")),
            _ => self.wrong(path, node, "text"),
        }
    }

    fn scalar(&mut self, path: &str, node: &Node) -> Option<String> {
        match &node.value {
            Value::Integer(number) => Some(number.to_string()),
            Value::Float(number) => Some(number.to_string()),
            Value::Flag(flag) => Some(flag.to_string()),
            _ => self.text(path, node),
        }
    }

    fn full_text(&mut self, path: &str, node: &Node) -> Option<String> {
        let text = self.text(path, node)?;
        if text.trim().is_empty() {
            self.invalid(path, node, "must not be empty")
        } else {
            Some(text)
        }
    }

    fn time(&mut self, kind: Kind, path: &str, node: &Node) -> Option<Option<Duration>> {
        let never = matches!(kind, Kind::TimeOrNever);
        match &node.value {
            Value::Text(text) if never && text.trim() == "never" => Some(None),
            Value::Text(text) => match duration::parse(text) {
                Ok(time) => Some(Some(time)),
                Err(fault) => self.invalid(path, node, fault.complaint()),
            },
            Value::Integer(number) => {
                let wanted =
                    format!("a time with its unit; write `\"{number}s\"` or `\"{number}ms\"`");
                self.wrong(path, node, &wanted)
            }
            _ if never => self.wrong(path, node, "a time, as in `\"10m\"`, or `\"never\"`"),
            _ => self.wrong(path, node, "a time, as in `\"90s\"`"),
        }
    }

    /// A bare number in the unit of its tool. Zero and less mean "no limit" to most of them, which we
    /// do not have, so our own default holds.
    fn number(&mut self, path: &str, node: &Node, unit: Duration) -> Option<Option<Duration>> {
        let number = match node.value {
            #[expect(clippy::cast_precision_loss, reason = "nobody waits that long")]
            Value::Integer(number) => number as f64,
            Value::Float(number) => number,
            Value::Text(_) => return self.time(Kind::Time, path, node),
            _ => return self.wrong(path, node, "a number"),
        };
        match duration::counted(number, unit) {
            Ok(time) => Some(Some(time)),
            Err(fault) => {
                let message = format!("{}; our own default holds", fault.complaint());
                self.notes.warn(FaultKind::Invalid, node.at, path, &message);
                None
            }
        }
    }

    fn count(&mut self, path: &str, node: &Node) -> Option<usize> {
        let Value::Integer(number) = node.value else {
            return self.wrong(path, node, "a whole number");
        };
        match usize::try_from(number) {
            Ok(number) if number > 0 => Some(number),
            _ => self.invalid(path, node, "must be above zero"),
        }
    }

    fn word(&mut self, words: &[&str], path: &str, node: &Node) -> Option<String> {
        let text = self.text(path, node)?;
        if words.contains(&text.as_str()) {
            return Some(text);
        }
        let listed = words.iter().map(|it| format!("`{it}`")).collect::<Vec<_>>().join(", ");
        let message = format!("`{text}` is not one of {listed}");
        self.notes.error(FaultKind::Invalid, node.at, path, &message);
        self.notes.nearest(path, nearest(&text, words.iter().copied()));
        None
    }

    fn list<T>(
        &mut self,
        path: &str,
        node: &Node,
        mut each: impl FnMut(&mut Self, &str, &Node) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Value::List(nodes) = &node.value else {
            return self.wrong(path, node, "a list of texts");
        };
        let mut items = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            self.places.insert(format!("{}[{index}]", self.name), node.at);
            items.extend(each(self, &format!("{path}[{index}]"), node));
        }
        Some(items)
    }

    fn map<T>(
        &mut self,
        path: &str,
        node: &Node,
        mut each: impl FnMut(&mut Self, &str, &Node) -> Option<T>,
    ) -> Option<Vec<(String, T)>> {
        let Value::Table(members) = &node.value else {
            return self.wrong(path, node, "a table of texts");
        };
        let mut items = Vec::with_capacity(members.len());
        for member in members {
            self.places.insert(join(self.name, &member.key), member.at);
            let value = each(self, &join(path, &member.key), &member.value);
            items.extend(value.map(|it| (member.key.clone(), it)));
        }
        Some(items)
    }

    fn env(&mut self, path: &str, node: &Node) -> Option<EnvValue> {
        if !node.is_table() {
            return self.text(path, node).map(EnvValue::Text);
        }
        let mut fields = read(self.notes, &SECRET, path, node);
        let required = fields.flag("required").unwrap_or(true);
        match (fields.text("secret_ref"), fields.text("value")) {
            (Some(_), Some(_)) => {
                let message = "has both `secret_ref` and `value`; keep the one that is meant";
                self.notes.error(FaultKind::Conflict, node.at, path, message);
                None
            }
            (Some(secret_ref), None) => Some(EnvValue::Secret { secret_ref, required }),
            (None, Some(value)) => Some(EnvValue::Text(value)),
            (None, None) if fields.has("secret_ref") || fields.has("value") || !required => None,
            (None, None) => {
                let message = "must have `secret_ref`, the name of a secret";
                self.notes.error(FaultKind::Missing, node.at, path, message);
                None
            }
        }
    }

    fn tables(&mut self, scope: &Scope, path: &str, node: &Node) -> Option<Vec<Fields>> {
        let Value::List(nodes) = &node.value else {
            return self.wrong(path, node, &format!("a list of tables; write `[[{path}]]`"));
        };
        let each = |(index, node): (usize, &Node)| {
            read(self.notes, scope, &format!("{path}[{index}]"), node)
        };
        Some(nodes.iter().enumerate().map(each).collect())
    }
}

impl Fields {
    /// Whether the key is there, even with a value that is wrong.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.places.contains_key(key)
    }

    /// Where a key is, or the table if it is not there.
    pub(crate) fn place(&self, key: &str) -> usize {
        self.places.get(key).copied().unwrap_or(self.at)
    }

    pub(crate) fn field(&self, key: &str) -> String {
        join(&self.path, key)
    }

    pub(crate) fn text(&mut self, key: &str) -> Option<String> {
        match self.values.remove(key) {
            Some(Read::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn flag(&mut self, key: &str) -> Option<bool> {
        match self.values.remove(key) {
            Some(Read::Flag(flag)) => Some(flag),
            _ => None,
        }
    }

    /// `Some(None)` is "never".
    pub(crate) fn time_or_never(&mut self, key: &str) -> Option<Option<Duration>> {
        match self.values.remove(key) {
            Some(Read::Time(time)) => Some(time),
            _ => None,
        }
    }

    pub(crate) fn time(&mut self, key: &str) -> Option<Duration> {
        self.time_or_never(key).flatten()
    }

    pub(crate) fn count(&mut self, key: &str) -> Option<usize> {
        match self.values.remove(key) {
            Some(Read::Count(count)) => Some(count),
            _ => None,
        }
    }

    pub(crate) fn texts(&mut self, key: &str) -> Option<Vec<String>> {
        match self.values.remove(key) {
            Some(Read::Texts(texts)) => Some(texts),
            _ => None,
        }
    }

    pub(crate) fn map(&mut self, key: &str) -> Vec<(String, String)> {
        match self.values.remove(key) {
            Some(Read::Map(map)) => map,
            _ => Vec::new(),
        }
    }

    pub(crate) fn env(&mut self, key: &str) -> Vec<(String, EnvValue)> {
        match self.values.remove(key) {
            Some(Read::Env(env)) => env,
            _ => Vec::new(),
        }
    }

    pub(crate) fn table(&mut self, key: &str) -> Option<Fields> {
        match self.values.remove(key) {
            Some(Read::Table(fields)) => Some(fields),
            _ => None,
        }
    }

    pub(crate) fn tables(&mut self, key: &str) -> Vec<Fields> {
        match self.values.remove(key) {
            Some(Read::Tables(tables)) => tables,
            _ => Vec::new(),
        }
    }
}
