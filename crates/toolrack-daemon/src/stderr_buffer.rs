//! The last lines that each server wrote to its error output, or that were said when it was installed.
//!
//! **Invariant:** memory is bounded: so many lines for a server, and so many servers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;

/// Lines that are kept for a server. The oldest goes.
pub(crate) const MAX_LINES: usize = 500;
/// Servers whose lines are kept. Of more, nothing is.
const MAX_SERVERS: usize = 256;

/// A line of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct LogLine {
    /// Counts the lines of a server.
    pub(crate) number: u64,
    /// Milliseconds since 1970.
    pub(crate) time_ms: u64,
    /// What was said, without anything that a terminal would obey.
    #[schema(value_type = String)]
    pub(crate) line: Arc<str>,
}

/// The last lines of all servers.
#[derive(Debug, Default)]
pub(crate) struct Logbook {
    servers: BTreeMap<Arc<str>, Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    n_lines: u64,
    lines: VecDeque<LogLine>,
}

impl Logbook {
    pub(crate) fn add(&mut self, server: &Arc<str>, time_ms: u64, line: Arc<str>) {
        if !self.servers.contains_key(server) && self.servers.len() >= MAX_SERVERS {
            return;
        }
        let pages = self.servers.entry(Arc::clone(server)).or_default();
        pages.lines.push_back(LogLine { number: pages.n_lines, time_ms, line });
        pages.n_lines += 1;
        if pages.lines.len() > MAX_LINES {
            pages.lines.pop_front();
        }
    }

    /// The last lines of a server behind a number, at most so many, oldest first.
    pub(crate) fn tail(&self, server: &str, after: Option<u64>, limit: usize) -> Vec<LogLine> {
        let Some(pages) = self.servers.get(server) else { return Vec::new() };
        let is_wanted = |it: &&LogLine| after.is_none_or(|after| it.number > after);
        let mut lines: Vec<LogLine> =
            pages.lines.iter().rev().filter(is_wanted).take(limit).cloned().collect();
        lines.reverse();
        lines
    }

    /// Forgets servers that are gone.
    pub(crate) fn keep(&mut self, is_known: impl Fn(&str) -> bool) {
        self.servers.retain(|name, _| is_known(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept() {
        let mut book = Logbook::default();
        let server: Arc<str> = "s".into();
        for number in 0..MAX_LINES as u64 + 2 {
            book.add(&server, number, number.to_string().into());
        }
        let numbers = |lines: Vec<LogLine>| lines.iter().map(|it| it.number).collect::<Vec<_>>();
        assert_eq!(numbers(book.tail("s", None, 3)), [499, 500, 501]);
        assert_eq!(numbers(book.tail("s", Some(499), 9)), [500, 501]);
        assert_eq!(book.tail("s", None, 9999).len(), MAX_LINES);
        assert_eq!(book.tail("other", None, 9), Vec::new());
        book.keep(|_| false);
        assert_eq!(book.tail("s", None, 9), Vec::new());
    }
}
