//! Typed table reader, driven by the key table. Checks types, not meaning.
//!
//! **Invariant:** an error in one key does not prevent reading the others.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use crate::diagnostics::{DiagnosticKind, Diagnostics, Severity};
use crate::duration;
use crate::keys::{KeyType, SECRET, TableKeys, UnknownKeys};
use crate::server::EnvValue;
use crate::suggest::suggest;
use crate::tree::{Member, Node, Value};

/// Where a table and its fields are.
#[derive(Debug, Clone)]
pub(crate) struct Place<'d> {
    pub(crate) diagnostics: &'d Diagnostics<'d>,
    /// Path to the table, such as `defaults.mcp[0]`.
    pub(crate) path: Rc<str>,
    pub(crate) at: usize,
    fields: Rc<Locations>,
}

/// Position of each key and of its parts, such as `args[1]`. A key with an invalid value has a position and no value.
pub(crate) type Locations = BTreeMap<Cow<'static, str>, usize>;

/// A table with typed values.
#[derive(Debug)]
pub(crate) struct TableReader<'d, 'n> {
    pub(crate) node: &'n Node,
    pub(crate) place: Place<'d>,
    /// Values by field, each of the type that its [`KeyType`] names.
    values: Vec<(&'static str, Box<dyn Any>)>,
    /// Tables by field; one for [`KeyType::Table`].
    tables: BTreeMap<&'static str, Vec<TableReader<'d, 'n>>>,
}

/// Reads a table. Anything else is reported and read as an empty table.
pub(crate) fn read<'d, 'n>(
    diagnostics: &'d Diagnostics<'d>,
    scope: &TableKeys,
    path: &str,
    node: &'n Node,
) -> TableReader<'d, 'n> {
    let place = Place { diagnostics, path: path.into(), at: node.at, fields: Rc::default() };
    let (values, tables) = (Vec::new(), BTreeMap::new());
    let mut fields = TableReader { node, place, values, tables };
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
            fields.place.locations().insert(member.key.clone().into(), member.at);
            if !scope.ignored.contains(&member.key.as_str()) {
                report_unknown_key(diagnostics, scope, &join(path, &member.key), member);
            }
        }
    }
    // In the order of the key table: the first of several aliases wins.
    for key in scope.keys {
        let mut members = node.members().iter().filter(is_set);
        let Some(member) = members.rfind(|member| member.key == key.name) else { continue };
        // Before the value is read: a key with an invalid value must not be reported as
        // missing as well.
        let locations = fields.place.locations();
        locations.entry(key.field.into()).or_insert(member.at);
        let (table, node) = (Path::Table(path), &member.value);
        let path = Path::Key(&table, &member.key);
        let mut reader = Reader { diagnostics, locations, name: key.field };
        match key.kind {
            KeyType::Table(scope) => {
                let table = read(diagnostics, scope, &path.to_string(), node);
                fields.tables.insert(key.field, vec![table]);
            }
            KeyType::Tables(scope) => {
                fields.tables.insert(key.field, reader.tables(scope, &path, node));
            }
            kind => {
                if let Some(value) = reader.value(kind, &path, node)
                    && fields.values.iter().all(|(field, _)| *field != key.field)
                {
                    fields.values.push((key.field, value));
                }
            }
        }
    }
    fields
}

fn report_unknown_key(
    diagnostics: &Diagnostics<'_>,
    scope: &TableKeys,
    path: &str,
    member: &Member,
) {
    let names = scope.keys.iter().map(|key| key.name).chain(scope.ignored.iter().copied());
    let near = diagnostics.count_unknown_key().then(|| suggest(&member.key, names)).flatten();
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
        (_, true) => [path, ".", key].concat(),
        (_, false) => format!("{path}.{key:?}"),
    }
}

/// Path of an item of a list.
pub(crate) fn join_index(list: &str, index: usize) -> String {
    // Not `format!`, which costs more than the rest of reading an argument.
    [list, "[", &index.to_string(), "]"].concat()
}

/// Path to a value. It is written only into diagnostics.
enum Path<'p> {
    Table(&'p str),
    Key(&'p Path<'p>, &'p str),
    Index(&'p Path<'p>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Table(path) => f.write_str(path),
            Path::Key(table, key) => f.write_str(&join(&table.to_string(), key)),
            Path::Index(list, index) => write!(f, "{list}[{index}]"),
        }
    }
}

struct Reader<'d, 'r> {
    diagnostics: &'d Diagnostics<'d>,
    locations: &'r mut Locations,
    name: &'static str,
}

impl<'d> Reader<'d, '_> {
    /// The value of a key that is not a table.
    fn value(&mut self, kind: KeyType, path: &Path<'_>, node: &Node) -> Option<Box<dyn Any>> {
        match kind {
            KeyType::Template => boxed(self.text(path, node)),
            KeyType::Text => boxed(self.full_text(path, node)),
            KeyType::Flag => match node.value {
                Value::Flag(flag) => boxed(Some(flag)),
                _ => self.wrong(path, node, "`true` or `false`"),
            },
            KeyType::Time => boxed(self.time(path, node)),
            KeyType::TimeOrNever => boxed(self.time_or_never(path, node)),
            KeyType::Seconds => boxed(self.number(path, node, Duration::from_secs(1))),
            KeyType::Millis => boxed(self.number(path, node, Duration::from_millis(1))),
            KeyType::Count => boxed(self.count(path, node)),
            KeyType::Word(words) => boxed(self.word(words, path, node)),
            KeyType::Templates => boxed(self.list(path, node, Self::text)),
            KeyType::Texts => boxed(self.list(path, node, Self::full_text)),
            KeyType::TemplateMap => boxed(self.map(path, node, Self::text)),
            KeyType::ScalarMap => boxed(self.map(path, node, Self::scalar)),
            KeyType::EnvMap => boxed(self.map(path, node, Self::env)),
            KeyType::ScalarEnvMap => boxed(self.map(path, node, |reader, path, node| {
                reader.scalar(path, node).map(EnvValue::Text)
            })),
            KeyType::FreeTable if !node.is_table() => self.wrong(path, node, "a table"),
            KeyType::FreeTable | KeyType::Table(_) | KeyType::Tables(_) => None,
        }
    }

    fn wrong<T>(&mut self, path: &Path<'_>, node: &Node, wanted: &str) -> Option<T> {
        let message = format!("must be {wanted}, not {}", node.kind());
        self.diagnostics.error(DiagnosticKind::WrongType, node.at, &path.to_string(), &message);
        None
    }

    fn invalid<T>(&mut self, path: &Path<'_>, node: &Node, message: &str) -> Option<T> {
        self.diagnostics.error(DiagnosticKind::Invalid, node.at, &path.to_string(), message);
        None
    }

    fn text(&mut self, path: &Path<'_>, node: &Node) -> Option<String> {
        match &node.value {
            Value::Text(text) => Some(text.clone()),
            Value::Integer(number) => {
                self.wrong(path, node, &format!("a string; write `\"{number}\"`"))
            }
            Value::Flag(flag) => self.wrong(path, node, &format!("a string; write `\"{flag}\"`")),
            _ => self.wrong(path, node, "a string"),
        }
    }

    fn scalar(&mut self, path: &Path<'_>, node: &Node) -> Option<String> {
        match &node.value {
            // Other tools accept `"PORT": 8080` in `env`.
            Value::Integer(number) => Some(number.to_string()),
            Value::Float(number) => Some(number.to_string()),
            Value::Flag(flag) => Some(flag.to_string()),
            _ => self.text(path, node),
        }
    }

    fn full_text(&mut self, path: &Path<'_>, node: &Node) -> Option<String> {
        let text = self.text(path, node)?;
        if text.trim().is_empty() {
            self.invalid(path, node, "must not be empty")
        } else {
            Some(text)
        }
    }

    fn time(&mut self, path: &Path<'_>, node: &Node) -> Option<Duration> {
        match &node.value {
            Value::Text(text) => match duration::parse_duration(text) {
                Ok(time) => Some(time),
                Err(message) => self.invalid(path, node, message),
            },
            Value::Integer(number) => {
                let wanted =
                    format!("a duration with a unit; write `\"{number}s\"` or `\"{number}ms\"`");
                self.wrong(path, node, &wanted)
            }
            _ => self.wrong(path, node, "a duration such as `\"90s\"`"),
        }
    }

    /// `Some(None)` is "never".
    fn time_or_never(&mut self, path: &Path<'_>, node: &Node) -> Option<Option<Duration>> {
        match &node.value {
            Value::Text(text) if text.trim() == "never" => Some(None),
            Value::Text(_) | Value::Integer(_) => self.time(path, node).map(Some),
            _ => self.wrong(path, node, "a duration such as `\"10m\"`, or `\"never\"`"),
        }
    }

    /// A bare number in the unit of its tool. Zero and below mean "no limit" in most tools; we have no such
    /// setting and use our default.
    fn number(&mut self, path: &Path<'_>, node: &Node, unit: Duration) -> Option<Duration> {
        let number = match node.value {
            #[expect(clippy::cast_precision_loss, reason = "nobody waits that long")]
            Value::Integer(number) => number as f64,
            Value::Float(number) => number,
            Value::Text(_) => return self.time(path, node),
            _ => return self.wrong(path, node, "a number"),
        };
        match duration::from_number(number, unit) {
            Ok(time) => Some(time),
            Err(message) => {
                // A warning only: the file works in its own tool, and the rest of the server
                // can be imported.
                let message = format!("{message}; using the default");
                self.diagnostics.warn(
                    DiagnosticKind::Invalid,
                    node.at,
                    &path.to_string(),
                    &message,
                );
                None
            }
        }
    }

    fn count(&mut self, path: &Path<'_>, node: &Node) -> Option<usize> {
        let Value::Integer(number) = node.value else {
            return self.wrong(path, node, "an integer");
        };
        match usize::try_from(number) {
            Ok(number) if number > 0 => Some(number),
            _ => self.invalid(path, node, "must be positive"),
        }
    }

    fn word(&mut self, words: &[&str], path: &Path<'_>, node: &Node) -> Option<String> {
        let text = self.text(path, node)?;
        if words.contains(&text.as_str()) {
            return Some(text);
        }
        let listed = words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
        let message = format!("`{text}` is not one of {listed}");
        self.diagnostics.error(DiagnosticKind::Invalid, node.at, &path.to_string(), &message);
        self.diagnostics.suggest(&path.to_string(), suggest(&text, words.iter().copied()));
        None
    }

    fn list<T>(
        &mut self,
        path: &Path<'_>,
        node: &Node,
        mut each: impl FnMut(&mut Self, &Path<'_>, &Node) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Value::List(nodes) = &node.value else {
            return self.wrong(path, node, "a list of strings");
        };
        let mut items = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            // Each item has a place of its own: diagnostics after interpolation look it up
            // by this name.
            self.locations.insert(join_index(self.name, index).into(), node.at);
            // An invalid item is reported and left out; the others are still checked.
            items.extend(each(self, &Path::Index(path, index), node));
        }
        Some(items)
    }

    fn map<T>(
        &mut self,
        path: &Path<'_>,
        node: &Node,
        mut each: impl FnMut(&mut Self, &Path<'_>, &Node) -> Option<T>,
    ) -> Option<Vec<(String, T)>> {
        let Value::Table(members) = &node.value else {
            return self.wrong(path, node, "a table of strings");
        };
        let mut items = Vec::with_capacity(members.len());
        for member in members.iter() {
            self.locations.insert(join(self.name, &member.key).into(), member.at);
            let value = each(self, &Path::Key(path, &member.key), &member.value);
            items.extend(value.map(|value| (member.key.clone(), value)));
        }
        Some(items)
    }

    fn env(&mut self, path: &Path<'_>, node: &Node) -> Option<EnvValue> {
        if !node.is_table() {
            return self.text(path, node).map(EnvValue::Text);
        }
        let mut fields = read(self.diagnostics, &SECRET, &path.to_string(), node);
        let required = fields.take("required").unwrap_or(true);
        match (fields.take("secret_ref"), fields.take("value")) {
            (Some(_), Some(_)) => {
                let message = "has both `secret_ref` and `value`; remove one of them";
                self.diagnostics.error(
                    DiagnosticKind::Conflict,
                    node.at,
                    &path.to_string(),
                    message,
                );
                None
            }
            (Some(secret_ref), None) => Some(EnvValue::Secret { secret_ref, required }),
            (None, Some(value)) => Some(EnvValue::Text(value)),
            // An invalid value was reported already.
            (None, None) if fields.place.has("secret_ref") || fields.place.has("value") => None,
            // As in spec 004, an optional variable without a value is empty.
            (None, None) if !required => Some(EnvValue::Text(String::new())),
            (None, None) => {
                let message = "must have `secret_ref`, the name of a secret";
                self.diagnostics.error(
                    DiagnosticKind::Missing,
                    node.at,
                    &path.to_string(),
                    message,
                );
                None
            }
        }
    }

    fn tables<'n>(
        &mut self,
        scope: &TableKeys,
        path: &Path<'_>,
        node: &'n Node,
    ) -> Vec<TableReader<'d, 'n>> {
        let Value::List(nodes) = &node.value else {
            let wanted = format!("a list of tables; write `[[{path}]]`");
            return self.wrong(path, node, &wanted).unwrap_or_default();
        };
        let path = path.to_string();
        let each = |(index, node): (usize, &'n Node)| {
            read(self.diagnostics, scope, &format!("{path}[{index}]"), node)
        };
        nodes.iter().enumerate().map(each).collect()
    }
}

fn boxed<T: Any>(value: Option<T>) -> Option<Box<dyn Any>> {
    Some(Box::new(value?))
}

impl Place<'_> {
    /// The positions of all fields, to change them.
    pub(crate) fn locations(&mut self) -> &mut Locations {
        Rc::make_mut(&mut self.fields)
    }

    /// Every field and its position.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&Cow<'static, str>, usize)> {
        self.fields.iter().map(|(field, at)| (field, *at))
    }

    /// Whether the field is present, even with an invalid value.
    pub(crate) fn has(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    /// Position of a field, or of the table.
    pub(crate) fn location(&self, field: &str) -> usize {
        self.fields.get(field).copied().unwrap_or(self.at)
    }

    /// Path to a field.
    pub(crate) fn field(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    /// Reports an error in a field.
    pub(crate) fn error(&self, kind: DiagnosticKind, field: &str, message: &str) {
        self.report(Severity::Error, kind, field, message);
    }

    /// Reports a warning about a field.
    pub(crate) fn warn(&self, kind: DiagnosticKind, field: &str, message: &str) {
        self.report(Severity::Warning, kind, field, message);
    }

    pub(crate) fn report(
        &self,
        severity: Severity,
        kind: DiagnosticKind,
        field: &str,
        message: &str,
    ) {
        let (at, path) = (self.location(field), self.field(field));
        self.diagnostics.report(severity, kind, at, (&path, message));
    }
}

impl<'d, 'n> TableReader<'d, 'n> {
    /// Takes the value of a field, if its key has this type.
    pub(crate) fn take<T: Any>(&mut self, field: &str) -> Option<T> {
        let is_asked = |(known, value): &(&str, Box<dyn Any>)| *known == field && value.is::<T>();
        let index = self.values.iter().position(is_asked)?;
        Some(*self.values.swap_remove(index).1.downcast().ok()?)
    }

    pub(crate) fn table(&mut self, field: &str) -> Option<TableReader<'d, 'n>> {
        self.tables.remove(field)?.pop()
    }

    pub(crate) fn tables(&mut self, field: &str) -> Vec<TableReader<'d, 'n>> {
        self.tables.remove(field).unwrap_or_default()
    }
}
