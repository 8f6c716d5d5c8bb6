//! Diagnostics of a config file: collection, source positions, suggestions.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

/// Maximum number of errors, and of warnings: a file with more is no config.
const MAX_DIAGNOSTICS: usize = 500;

#[derive(Debug)]
pub(crate) struct Diagnostics<'t> {
    file: Arc<str>,
    text: &'t str,
    /// Byte offset of each line.
    starts: Vec<usize>,
    list: Vec<(usize, Diagnostic)>,
    n_errors: usize,
    n_warnings: usize,
}

impl<'t> Diagnostics<'t> {
    pub(crate) fn new(file: &str, text: &'t str) -> Self {
        // Some editors write a byte order mark, which no parser accepts.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let breaks =
            text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        let starts = std::iter::once(0).chain(breaks).collect();
        Self { file: Arc::from(file), text, starts, list: Vec::new(), n_errors: 0, n_warnings: 0 }
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

    pub(crate) fn error(&mut self, kind: DiagnosticKind, at: usize, field: &str, message: &str) {
        self.note(Severity::Error, kind, at, (field, message));
    }

    pub(crate) fn warn(&mut self, kind: DiagnosticKind, at: usize, field: &str, message: &str) {
        self.note(Severity::Warning, kind, at, (field, message));
    }

    /// Number of errors so far.
    pub(crate) fn n_errors(&self) -> usize {
        self.n_errors
    }

    /// Adds a suggestion to the last diagnostic about a field.
    pub(crate) fn suggest(&mut self, field: &str, suggestion: Option<&str>) {
        let last = self.list.last_mut().filter(|(_, diagnostic)| diagnostic.field == field);
        if let (Some((_, diagnostic)), Some(suggestion)) = (last, suggestion) {
            diagnostic.message = format!("{}; did you mean `{suggestion}`?", diagnostic.message);
            diagnostic.suggestion = Some(suggestion.to_owned());
        }
    }

    fn note(&mut self, severity: Severity, kind: DiagnosticKind, at: usize, words: (&str, &str)) {
        let count = match severity {
            Severity::Error => &mut self.n_errors,
            Severity::Warning => &mut self.n_warnings,
        };
        // Counted beyond the limit: `n_errors` decides whether the file is usable.
        *count += 1;
        if *count > MAX_DIAGNOSTICS {
            return;
        }
        let words = (words.0.to_owned(), words.1.to_owned());
        let diagnostic = Diagnostic::error(kind, self.file(), Some(self.position(at)), words);
        self.list.push((at, Diagnostic { severity, ..diagnostic }));
    }

    /// All diagnostics, in file order.
    pub(crate) fn into_vec(mut self) -> Vec<Diagnostic> {
        self.list.sort_by_key(|(at, _)| *at);
        self.list.into_iter().map(|(_, diagnostic)| diagnostic).collect()
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
        if !self.file.is_empty() {
            write!(f, "{}:", self.file)?;
        }
        if let Some(at) = self.at {
            write!(f, "{at}:")?;
        }
        if !self.file.is_empty() || self.at.is_some() {
            f.write_str(" ")?;
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
    fields: BTreeMap<String, Position>,
    table: Option<Map<String, Value>>,
}

impl SourceLocation {
    pub(crate) fn new(
        file: Arc<str>,
        path: String,
        at: Position,
        fields: BTreeMap<String, Position>,
        table: Option<Map<String, Value>>,
    ) -> Self {
        Self(Some(Arc::new(LocationData { file, path, at, fields, table })))
    }

    /// File name, as given by the caller. `None` for a server built in code.
    pub fn file(&self) -> Option<&str> {
        self.0.as_ref().map(|value| &*value.file)
    }

    /// The entry as `toolrack.toml` has it, with every key, as JSON. `None` for files of other tools.
    pub fn table(&self) -> Option<&Map<String, Value>> {
        self.0.as_ref()?.table.as_ref()
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
            if let Some(position) = written.fields.get(path) {
                return Some(*position);
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = path.split_at(end).0,
                None => return Some(written.at),
            }
        }
    }

    pub(crate) fn shared_file(&self) -> Arc<str> {
        self.0.as_ref().map_or_else(|| Arc::from(""), |value| Arc::clone(&value.file))
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
