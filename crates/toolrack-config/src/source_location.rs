//! Where something was written: file, line and column, for messages about it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A place in a file, as editors count: from one, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The first line is 1.
    pub line: usize,
    /// The first character of a line is 1.
    pub column: usize,
}

/// Where a server was written, and each field of it.
///
/// Any two are equal: moving an entry down a line does not make it another server.
#[derive(Debug, Clone, Default)]
pub struct Origin(Option<Arc<Written>>);

#[derive(Debug)]
struct Written {
    file: Arc<str>,
    path: String,
    at: Position,
    fields: BTreeMap<String, Position>,
}

impl Origin {
    pub(crate) fn new(
        file: Arc<str>,
        path: String,
        at: Position,
        fields: BTreeMap<String, Position>,
    ) -> Self {
        Self(Some(Arc::new(Written { file, path, at, fields })))
    }

    /// The file, as it was named by whoever read it. None for a server that was built in code.
    pub fn file(&self) -> Option<&str> {
        self.0.as_ref().map(|it| &*it.file)
    }

    /// Where the entry begins.
    pub fn at(&self) -> Option<Position> {
        self.0.as_ref().map(|it| it.at)
    }

    /// The way to the entry within its file, such as `defaults.mcp[0]`. Empty for one built in code.
    pub fn path(&self) -> &str {
        self.0.as_ref().map_or("", |it| &it.path)
    }

    /// Where a field of the entry is, such as `headers.Authorization`; the nearest place known above it
    /// if it is not known.
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
        self.0.as_ref().map_or_else(|| Arc::from(""), |it| Arc::clone(&it.file))
    }
}

impl PartialEq for Origin {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Origin {}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}
