//! Who is at the other ends of the standard streams: a person or a program. Looked at once.

use std::io::{IsTerminal, stderr, stdin, stdout};

/// Who is at the other end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Person,
    Program,
}

/// The three standard streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terminal {
    pub(crate) input: End,
    pub(crate) output: End,
    pub(crate) talk: End,
    /// How wide the terminal is on which data is shown, if it is one and says so.
    pub(crate) columns: Option<usize>,
}

impl Terminal {
    pub(crate) fn look() -> Self {
        Self {
            input: end(&stdin()),
            output: end(&stdout()),
            talk: end(&stderr()),
            columns: columns(),
        }
    }

    /// Whether somebody can be asked something and be heard.
    pub(crate) fn has_person(&self) -> bool {
        self.input == End::Person && self.talk == End::Person
    }
}

fn end(stream: &impl IsTerminal) -> End {
    if stream.is_terminal() { End::Person } else { End::Program }
}

fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stdout()).ok()?;
    (size.ws_col > 0).then(|| usize::from(size.ws_col))
}
