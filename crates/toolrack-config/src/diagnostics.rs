//! Diagnostics of a config file: collection, source positions, suggestions.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::table_reader::Place;
use crate::tree::Node;

/// Maximum number of errors, and of warnings: a file with more is no config.
const MAX_DIAGNOSTICS: usize = 500;

/// Collects diagnostics. Shared by everything that reads a file, so it is changed through `&self`.
#[derive(Debug)]
pub(crate) struct Diagnostics<'t> {
    file: Arc<str>,
    text: &'t str,
    /// Byte offset of each line.
    starts: Vec<usize>,
    list: RefCell<Vec<(usize, Diagnostic)>>,
    n_errors: Cell<usize>,
    n_warnings: Cell<usize>,
    n_unknown_keys: Cell<usize>,
}

impl<'t> Diagnostics<'t> {
    pub(crate) fn new(file: &str, text: &'t str) -> Self {
        // Some editors write a byte order mark, which no parser accepts.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let breaks =
            text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        let starts = std::iter::once(0).chain(breaks).collect();
        let (list, n_errors, n_warnings, n_unknown_keys) = Default::default();
        Self { file: Arc::from(file), text, starts, list, n_errors, n_warnings, n_unknown_keys }
    }

    pub(crate) fn text(&self) -> &'t str {
        self.text
    }

    pub(crate) fn file(&self) -> Arc<str> {
        Arc::clone(&self.file)
    }

    /// Line and column of a byte offset.
    pub(crate) fn position(&self, at: usize) -> Position {
        let line = self.starts.partition_point(|start| *start <= at).max(1);
        let start = self.starts.get(line - 1).copied().unwrap_or(0);
        let before = self.text.get(start..at).map_or(0, |value| value.chars().count());
        Position { line, column: before + 1 }
    }

    /// Byte offset of a line (from 1) and column (from 0).
    pub(crate) fn offset(&self, line: usize, column: usize) -> usize {
        let start = self.starts.get(line.saturating_sub(1)).copied().unwrap_or(self.text.len());
        let rest = self.text.get(start..).unwrap_or_default();
        start + rest.char_indices().nth(column).map_or(rest.len(), |(at, _)| at)
    }

    pub(crate) fn error(&self, kind: DiagnosticKind, at: usize, field: &str, message: &str) {
        self.report(Severity::Error, kind, at, (field, message));
    }

    pub(crate) fn warn(&self, kind: DiagnosticKind, at: usize, field: &str, message: &str) {
        self.report(Severity::Warning, kind, at, (field, message));
    }

    /// Counts an unknown key. Returns whether a similar name is worth a search, which costs more than reading the key.
    pub(crate) fn count_unknown_key(&self) -> bool {
        self.n_unknown_keys.update(|count| count + 1);
        self.n_unknown_keys.get() <= MAX_DIAGNOSTICS
    }

    /// Number of errors so far.
    pub(crate) fn n_errors(&self) -> usize {
        self.n_errors.get()
    }

    /// Adds a suggestion to the last diagnostic about a field.
    pub(crate) fn suggest(&self, field: &str, suggestion: Option<&str>) {
        let mut list = self.list.borrow_mut();
        let newest = list.last_mut().filter(|(_, diagnostic)| diagnostic.field == field);
        if let (Some((_, diagnostic)), Some(suggestion)) = (newest, suggestion) {
            diagnostic.message = format!("{}; did you mean `{suggestion}`?", diagnostic.message);
            diagnostic.suggestion = Some(suggestion.to_owned());
        }
    }

    pub(crate) fn report(
        &self,
        severity: Severity,
        kind: DiagnosticKind,
        at: usize,
        (field, message): (&str, &str),
    ) {
        let count = match severity {
            Severity::Error => &self.n_errors,
            Severity::Warning => &self.n_warnings,
        };
        // Counted beyond the limit: `n_errors` decides whether the file is usable.
        count.update(|count| count + 1);
        if count.get() > MAX_DIAGNOSTICS {
            return;
        }
        let words = (field.to_owned(), message.to_owned());
        let diagnostic = Diagnostic::error(kind, self.file(), Some(self.position(at)), words);
        self.list.borrow_mut().push((at, Diagnostic { severity, ..diagnostic }));
    }

    /// All diagnostics, in file order.
    pub(crate) fn into_vec(self) -> Vec<Diagnostic> {
        let mut list = self.list.into_inner();
        list.sort_by_key(|(at, _)| *at);
        list.into_iter().map(|(_, diagnostic)| diagnostic).collect()
    }
}

/// An error or warning at one place of a config file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// Kind of problem.
    pub kind: DiagnosticKind,
    /// File name, as given by the caller.
    pub file: Arc<str>,
    /// Position. `None` for a config built in code.
    pub at: Option<Position>,
    /// Field, such as `defaults.mcp[0].timeout`. Empty for the whole file.
    pub field: String,
    /// Message, one line.
    pub message: String,
    /// Suggested word.
    pub suggestion: Option<String>,
    /// Advice of the [`Lookup`](crate::Lookup), which replaces the general one.
    pub advice: Option<String>,
}

impl Diagnostic {
    /// An error, by its field and message.
    pub fn error(
        kind: DiagnosticKind,
        file: Arc<str>,
        at: Option<Position>,
        (field, message): (String, String),
    ) -> Self {
        let severity = Severity::Error;
        Self { severity, kind, file, at, field, message, suggestion: None, advice: None }
    }
}

/// Error or warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The file is usable; something has no effect or an unusual one.
    Warning,
    /// The file is not usable.
    Error,
}

/// Kind of problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DiagnosticKind {
    /// Syntax error.
    Syntax,
    /// Unknown key.
    UnknownKey,
    /// Wrong type.
    WrongType,
    /// Invalid value.
    Invalid,
    /// Required, but absent.
    Missing,
    /// Duplicate.
    Duplicate,
    /// Mutually exclusive values.
    Conflict,
    /// Reserved name.
    Reserved,
    /// A secret that other users of the machine can read.
    Exposed,
    /// A `${…}` without a value.
    Unresolved,
    /// A feature of another tool without a counterpart here.
    Unsupported,
}

/// A value with the diagnostics of its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed<T> {
    /// The valid part. Incomplete if there are errors.
    pub value: T,
    /// All diagnostics, in file order.
    pub diagnostics: Vec<Diagnostic>,
}

impl<T> Parsed<T> {
    /// Whether there are errors.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// The value and its warnings, or all diagnostics if there is an error.
    pub fn accept(self) -> Result<(T, Vec<Diagnostic>), Vec<Diagnostic>> {
        if self.has_errors() { Err(self.diagnostics) } else { Ok((self.value, self.diagnostics)) }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&*self.file, self.at) {
            ("", None) => {}
            ("", Some(at)) => write!(f, "{at}: ")?,
            (file, None) => write!(f, "{file}: ")?,
            (file, Some(at)) => write!(f, "{file}:{at}: ")?,
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Diagnostic {}

/// Position in a file; lines and columns start at 1, columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

/// Source position of a server and of its fields.
///
/// All values are equal: moving an entry in the file does not change the server.
#[derive(Debug, Clone, Default)]
pub struct SourceLocation(Option<Arc<LocationData>>);

struct LocationData {
    file: Arc<str>,
    path: String,
    at: Position,
    fields: Vec<(Cow<'static, str>, Position)>,
    table: Option<Node>,
}

impl SourceLocation {
    pub(crate) fn new(place: &Place<'_>, table: Option<Node>) -> Self {
        let diagnostics = place.diagnostics;
        let position =
            |(field, at): (&Cow<'static, str>, usize)| (field.clone(), diagnostics.position(at));
        Self(Some(Arc::new(LocationData {
            file: diagnostics.file(),
            path: place.path.to_string(),
            at: diagnostics.position(place.at),
            fields: place.fields().map(position).collect(),
            table,
        })))
    }

    /// File name, as given by the caller. `None` for a server built in code.
    pub fn file(&self) -> Option<Arc<str>> {
        self.0.as_ref().map(|written| Arc::clone(&written.file))
    }

    /// The entry as `toolrack.toml` has it, with every key, as JSON. `None` for files of other tools.
    pub fn table(&self) -> Option<Map<String, Value>> {
        self.0.as_ref()?.table.as_ref().map(Node::to_json_object)
    }

    /// Start of the entry.
    pub fn at(&self) -> Option<Position> {
        self.0.as_ref().map(|value| value.at)
    }

    /// Path within the file, such as `defaults.mcp[0]`. Empty for a server built in code.
    pub fn path(&self) -> &str {
        self.0.as_ref().map_or("", |value| &value.path)
    }

    /// Position of a field, such as `headers.Authorization`, or of its closest known
    /// parent.
    pub fn field(&self, field: &str) -> Option<Position> {
        let written = self.0.as_ref()?;
        let mut path = field;
        loop {
            if let Some((_, position)) = written.fields.iter().find(|(field, _)| field == path) {
                return Some(*position);
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = path.split_at(end).0,
                None => return Some(written.at),
            }
        }
    }
}

impl PartialEq for SourceLocation {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for SourceLocation {}

/// Omits the table, which may contain secrets.
impl fmt::Debug for LocationData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} {}", self.file, self.at, self.path)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_start_at_one() {
        let diagnostics = Diagnostics::new("f", "\u{feff}ab\nüx\n");
        let locations = [0, 2, 3, 5, 6, 7, 99].map(|value| diagnostics.position(value).to_string());
        assert_eq!(locations, ["1:1", "1:3", "2:1", "2:2", "2:3", "3:1", "3:1"]);
        assert_eq!(
            [diagnostics.offset(2, 1), diagnostics.offset(2, 9), diagnostics.offset(9, 9)],
            [5, 7, 7]
        );
    }
}
