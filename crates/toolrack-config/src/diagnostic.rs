//! What is wrong with a file, where, and what to do about it.

use std::fmt;
use std::sync::Arc;

use crate::source_location::Position;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Whether the file can be used all the same.
    pub severity: Severity,
    /// What sort of thing it is.
    pub kind: FaultKind,
    /// The file, as it was named by whoever read it.
    pub file: Arc<str>,
    /// Where in the file. None if it is about something that was built in code.
    pub at: Option<Position>,
    /// The field, such as `defaults.mcp[0].timeout`. Empty if it is about the file.
    pub field: String,
    /// What is wrong and what to do, in one line.
    pub message: String,
    /// What was probably meant.
    pub nearest: Option<String>,
    /// What to do, if whoever has the values that configs refer to knows better than the message.
    pub advice: Option<String>,
}

/// Whether a file can be used all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// It can; something in it has no effect or an odd one.
    Warning,
    /// It cannot.
    Error,
}

/// What sort of thing is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// The text is not of its format.
    Syntax,
    /// A key that nobody reads.
    UnknownKey,
    /// A value of another type than the key takes.
    WrongType,
    /// A value of the right type that means nothing.
    Invalid,
    /// Something that has to be there is not.
    Missing,
    /// Something that may be there once is there twice.
    Duplicate,
    /// Two things that exclude each other.
    Conflict,
    /// A name that is ours.
    Reserved,
    /// A secret where other users of the machine can read it.
    Exposed,
    /// A `${…}` whose value is not to be had.
    Unresolved,
    /// Something of another tool that has no counterpart here and is left out.
    Unsupported,
}

/// What was read, and everything that is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading<T> {
    /// What is sound. Incomplete if there are errors.
    pub value: T,
    /// Everything that is wrong, in the order of the file.
    pub faults: Vec<Fault>,
}

impl<T> Reading<T> {
    /// Whether anything is wrong beyond warnings.
    pub fn has_errors(&self) -> bool {
        self.faults.iter().any(|it| it.severity == Severity::Error)
    }

    /// The value with its warnings, or, if there is an error, everything that is wrong.
    pub fn accept(self) -> Result<(T, Vec<Fault>), Vec<Fault>> {
        if self.has_errors() { Err(self.faults) } else { Ok((self.value, self.faults)) }
    }
}

impl fmt::Display for Fault {
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

impl std::error::Error for Fault {}
