//! Typed table reader, driven by the key table. Checks types, not meaning.
//!
//! **Invariant:** an error in one key does not prevent reading the others.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::diagnostics::DiagnosticKind;
use crate::diagnostics::Diagnostics;
use crate::duration;
use crate::keys::{Key, KeyType, SECRET, TableKeys, UnknownKeys};
use crate::server::EnvValue;
use crate::suggest::suggest;
use crate::tree::{Member, Node, Value};

/// A table with typed values.
#[derive(Debug)]
pub(crate) struct TableReader<'n> {
    /// Path to the table, such as `defaults.mcp[0]`.
    pub(crate) path: String,
    pub(crate) node: &'n Node,
    /// Position of each key and of its parts, such as `args[1]`. A key with an invalid value has a position
    /// and no value.
    pub(crate) locations: BTreeMap<String, usize>,
    values: BTreeMap<&'static str, FieldValue<'n>>,
}

/// A typed value.
#[derive(Debug)]
enum FieldValue<'n> {
    Text(String),
    Flag(bool),
    Time(Option<Duration>),
    Count(usize),
    Texts(Vec<String>),
    Map(Vec<(String, String)>),
    Env(Vec<(String, EnvValue)>),
    Table(TableReader<'n>),
    Tables(Vec<TableReader<'n>>),
}

/// Reads a table. Anything else is reported and read as an empty table.
pub(crate) fn read<'n>(
    diagnostics: &mut Diagnostics<'_>,
    scope: &TableKeys,
    path: &str,
    node: &'n Node,
) -> TableReader<'n> {
    let mut fields = TableReader {
        path: path.to_owned(),
        node,
        locations: BTreeMap::new(),
        values: BTreeMap::new(),
    };
    if !node.is_table() {
        let message = format!("must be a table, not {}", node.kind());
        diagnostics.error(DiagnosticKind::WrongType, node.at, path, &message);
    }
    // Other tools write `null` for an absent value.
    let is_set = |member: &&Member| {
        member.value.value != Value::Null || scope.unknown_keys != UnknownKeys::NotImported
    };
    for member in node.members().iter().filter(is_set) {
        if scope.keys.iter().all(|key| key.name != member.key) {
            fields.locations.insert(member.key.clone(), member.at);
            report_unknown_key(diagnostics, scope, &join(path, &member.key), member);
        }
    }
    // In the order of the key table: the first of several aliases wins.
    for key in scope.keys {
        let mut members = node.members().iter().filter(is_set);
        let Some(member) = members.rfind(|member| member.key == key.name) else { continue };
        // Before the value is read: a key with an invalid value must not be reported as
        // missing as well.
        fields.locations.entry(key.field.to_owned()).or_insert(member.at);
        let mut reader = Reader { diagnostics, locations: &mut fields.locations, name: key.field };
        if let Some(value) = reader.value(key, &join(path, &member.key), &member.value) {
            fields.values.entry(key.field).or_insert(value);
        }
    }
    fields
}

fn report_unknown_key(
    diagnostics: &mut Diagnostics<'_>,
    scope: &TableKeys,
    path: &str,
    member: &Member,
) {
    let near = suggest(&member.key, scope.keys.iter().map(|key| key.name));
    let (kind, message) = match scope.unknown_keys {
        // Other programs keep their own keys in these tables.
        UnknownKeys::WarnIfSimilar if near.is_none() => return,
        UnknownKeys::Warn | UnknownKeys::WarnIfSimilar => {
            (DiagnosticKind::UnknownKey, "is an unknown key and has no effect")
        }
        UnknownKeys::NotImported => {
            (DiagnosticKind::Unsupported, "is not supported and was not imported")
        }
    };
    diagnostics.warn(kind, member.at, path, message);
    diagnostics.suggest(path, near);
}

/// Appends a key to a path such as `env.TOKEN.secret_ref`. Keys with special characters are quoted.
pub fn join(path: &str, key: &str) -> String {
    // These characters have a meaning in paths, or would break the one line of a message.
    let plain = !key.is_empty() && !key.contains(['.', '[', ']', '"', ' ', '\n']);
    match (path, plain) {
        ("", true) => key.to_owned(),
        ("", false) => format!("{key:?}"),
        (_, true) => format!("{path}.{key}"),
        (_, false) => format!("{path}.{key:?}"),
    }
}

struct Reader<'r, 't> {
    diagnostics: &'r mut Diagnostics<'t>,
    locations: &'r mut BTreeMap<String, usize>,
    name: &'static str,
}

impl Reader<'_, '_> {
    fn value<'n>(&mut self, key: &Key, path: &str, node: &'n Node) -> Option<FieldValue<'n>> {
        match key.kind {
            KeyType::Template => self.text(path, node).map(FieldValue::Text),
            KeyType::Text => self.full_text(path, node).map(FieldValue::Text),
            KeyType::Flag => match node.value {
                Value::Flag(flag) => Some(FieldValue::Flag(flag)),
                _ => self.wrong(path, node, "`true` or `false`"),
            },
            KeyType::Time | KeyType::TimeOrNever => {
                self.time(key.kind, path, node).map(FieldValue::Time)
            }
            KeyType::Seconds => {
                self.number(path, node, Duration::from_secs(1)).map(FieldValue::Time)
            }
            KeyType::Millis => {
                self.number(path, node, Duration::from_millis(1)).map(FieldValue::Time)
            }
            KeyType::Count => self.count(path, node).map(FieldValue::Count),
            KeyType::Word(words) => self.word(words, path, node).map(FieldValue::Text),
            KeyType::Templates => self.list(path, node, Self::text).map(FieldValue::Texts),
            KeyType::Texts => self.list(path, node, Self::full_text).map(FieldValue::Texts),
            KeyType::TemplateMap => self.map(path, node, Self::text).map(FieldValue::Map),
            KeyType::ScalarMap => self.map(path, node, Self::scalar).map(FieldValue::Map),
            KeyType::EnvMap => self.map(path, node, Self::env).map(FieldValue::Env),
            KeyType::Table(scope) => {
                Some(FieldValue::Table(read(self.diagnostics, scope, path, node)))
            }
            KeyType::Tables(scope) => self.tables(scope, path, node).map(FieldValue::Tables),
            KeyType::Ignored => None,
        }
    }

    fn wrong<T>(&mut self, path: &str, node: &Node, wanted: &str) -> Option<T> {
        let message = format!("must be {wanted}, not {}", node.kind());
        self.diagnostics.error(DiagnosticKind::WrongType, node.at, path, &message);
        None
    }

    fn invalid<T>(&mut self, path: &str, node: &Node, message: &str) -> Option<T> {
        self.diagnostics.error(DiagnosticKind::Invalid, node.at, path, message);
        None
    }

    fn text(&mut self, path: &str, node: &Node) -> Option<String> {
        match &node.value {
            Value::Text(text) => Some(text.clone()),
            Value::Integer(number) => {
                self.wrong(path, node, &format!("a string; write `\"{number}\"`"))
            }
            Value::Flag(flag) => self.wrong(path, node, &format!("a string; write `\"{flag}\"`")),
            _ => self.wrong(path, node, "a string"),
        }
    }

    fn scalar(&mut self, path: &str, node: &Node) -> Option<String> {
        match &node.value {
            // Other tools accept `"PORT": 8080` in `env`.
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

    fn time(&mut self, kind: KeyType, path: &str, node: &Node) -> Option<Option<Duration>> {
        let never = matches!(kind, KeyType::TimeOrNever);
        match &node.value {
            Value::Text(text) if never && text.trim() == "never" => Some(None),
            Value::Text(text) => match duration::parse_duration(text) {
                Ok(time) => Some(Some(time)),
                Err(message) => self.invalid(path, node, message),
            },
            Value::Integer(number) => {
                let wanted =
                    format!("a duration with a unit; write `\"{number}s\"` or `\"{number}ms\"`");
                self.wrong(path, node, &wanted)
            }
            _ if never => self.wrong(path, node, "a duration such as `\"10m\"`, or `\"never\"`"),
            _ => self.wrong(path, node, "a duration such as `\"90s\"`"),
        }
    }

    /// A bare number in the unit of its tool. Zero and below mean "no limit" in most tools; we have no such
    /// setting and use our default.
    fn number(&mut self, path: &str, node: &Node, unit: Duration) -> Option<Option<Duration>> {
        let number = match node.value {
            #[expect(clippy::cast_precision_loss, reason = "nobody waits that long")]
            Value::Integer(number) => number as f64,
            Value::Float(number) => number,
            Value::Text(_) => return self.time(KeyType::Time, path, node),
            _ => return self.wrong(path, node, "a number"),
        };
        match duration::from_number(number, unit) {
            Ok(time) => Some(Some(time)),
            Err(message) => {
                // A warning only: the file works in its own tool, and the rest of the server
                // can be imported.
                let message = format!("{message}; using the default");
                self.diagnostics.warn(DiagnosticKind::Invalid, node.at, path, &message);
                None
            }
        }
    }

    fn count(&mut self, path: &str, node: &Node) -> Option<usize> {
        let Value::Integer(number) = node.value else {
            return self.wrong(path, node, "an integer");
        };
        match usize::try_from(number) {
            Ok(number) if number > 0 => Some(number),
            _ => self.invalid(path, node, "must be positive"),
        }
    }

    fn word(&mut self, words: &[&str], path: &str, node: &Node) -> Option<String> {
        let text = self.text(path, node)?;
        if words.contains(&text.as_str()) {
            return Some(text);
        }
        let listed = words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
        let message = format!("`{text}` is not one of {listed}");
        self.diagnostics.error(DiagnosticKind::Invalid, node.at, path, &message);
        self.diagnostics.suggest(path, suggest(&text, words.iter().copied()));
        None
    }

    fn list<T>(
        &mut self,
        path: &str,
        node: &Node,
        mut each: impl FnMut(&mut Self, &str, &Node) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Value::List(nodes) = &node.value else {
            return self.wrong(path, node, "a list of strings");
        };
        let mut items = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            // Each item has a place of its own: diagnostics after interpolation look it up
            // by this name.
            self.locations.insert(format!("{}[{index}]", self.name), node.at);
            // An invalid item is reported and left out; the others are still checked.
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
            return self.wrong(path, node, "a table of strings");
        };
        let mut items = Vec::with_capacity(members.len());
        for member in members {
            self.locations.insert(join(self.name, &member.key), member.at);
            let value = each(self, &join(path, &member.key), &member.value);
            items.extend(value.map(|value| (member.key.clone(), value)));
        }
        Some(items)
    }

    fn env(&mut self, path: &str, node: &Node) -> Option<EnvValue> {
        if !node.is_table() {
            return self.text(path, node).map(EnvValue::Text);
        }
        let mut fields = read(self.diagnostics, &SECRET, path, node);
        let required = fields.flag("required").unwrap_or(true);
        match (fields.text("secret_ref"), fields.text("value")) {
            (Some(_), Some(_)) => {
                let message = "has both `secret_ref` and `value`; remove one of them";
                self.diagnostics.error(DiagnosticKind::Conflict, node.at, path, message);
                None
            }
            (Some(secret_ref), None) => Some(EnvValue::Secret { secret_ref, required }),
            (None, Some(value)) => Some(EnvValue::Text(value)),
            // An invalid value was reported already, and an optional variable may stay unset.
            (None, None) if fields.has("secret_ref") || fields.has("value") || !required => None,
            (None, None) => {
                let message = "must have `secret_ref`, the name of a secret";
                self.diagnostics.error(DiagnosticKind::Missing, node.at, path, message);
                None
            }
        }
    }

    fn tables<'n>(
        &mut self,
        scope: &TableKeys,
        path: &str,
        node: &'n Node,
    ) -> Option<Vec<TableReader<'n>>> {
        let Value::List(nodes) = &node.value else {
            return self.wrong(path, node, &format!("a list of tables; write `[[{path}]]`"));
        };
        let each = |(index, node): (usize, &'n Node)| {
            read(self.diagnostics, scope, &format!("{path}[{index}]"), node)
        };
        Some(nodes.iter().enumerate().map(each).collect())
    }
}

impl<'n> TableReader<'n> {
    /// Whether the key is present, even with an invalid value.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.locations.contains_key(key)
    }

    /// Position of a key, or of the table.
    pub(crate) fn location(&self, key: &str) -> usize {
        self.locations.get(key).copied().unwrap_or(self.node.at)
    }

    pub(crate) fn field(&self, key: &str) -> String {
        join(&self.path, key)
    }

    /// Reports an error in a key.
    pub(crate) fn error(
        &self,
        diagnostics: &mut Diagnostics<'_>,
        kind: DiagnosticKind,
        key: &str,
        message: &str,
    ) {
        diagnostics.error(kind, self.location(key), &self.field(key), message);
    }

    pub(crate) fn text(&mut self, key: &str) -> Option<String> {
        let Some(FieldValue::Text(text)) = self.values.remove(key) else { return None };
        Some(text)
    }

    pub(crate) fn flag(&mut self, key: &str) -> Option<bool> {
        let Some(FieldValue::Flag(flag)) = self.values.remove(key) else { return None };
        Some(flag)
    }

    /// `Some(None)` is "never".
    pub(crate) fn time_or_never(&mut self, key: &str) -> Option<Option<Duration>> {
        let Some(FieldValue::Time(time)) = self.values.remove(key) else { return None };
        Some(time)
    }

    pub(crate) fn time(&mut self, key: &str) -> Option<Duration> {
        self.time_or_never(key).flatten()
    }

    pub(crate) fn count(&mut self, key: &str) -> Option<usize> {
        let Some(FieldValue::Count(count)) = self.values.remove(key) else { return None };
        Some(count)
    }

    pub(crate) fn texts(&mut self, key: &str) -> Option<Vec<String>> {
        let Some(FieldValue::Texts(texts)) = self.values.remove(key) else { return None };
        Some(texts)
    }

    pub(crate) fn map(&mut self, key: &str) -> Vec<(String, String)> {
        let Some(FieldValue::Map(map)) = self.values.remove(key) else { return Vec::new() };
        map
    }

    pub(crate) fn env(&mut self, key: &str) -> Vec<(String, EnvValue)> {
        match self.values.remove(key) {
            Some(FieldValue::Env(env)) => env,
            Some(FieldValue::Map(map)) => {
                map.into_iter().map(|(name, text)| (name, EnvValue::Text(text))).collect()
            }
            _ => Vec::new(),
        }
    }

    pub(crate) fn table(&mut self, key: &str) -> Option<TableReader<'n>> {
        let Some(FieldValue::Table(fields)) = self.values.remove(key) else { return None };
        Some(fields)
    }

    pub(crate) fn tables(&mut self, key: &str) -> Vec<TableReader<'n>> {
        let Some(FieldValue::Tables(tables)) = self.values.remove(key) else { return Vec::new() };
        tables
    }
}
