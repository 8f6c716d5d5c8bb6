//! The text being read, and what has been noted about it so far.

use std::sync::Arc;

use crate::diagnostic::{Fault, FaultKind, Severity};
use crate::source_location::Position;

/// More errors than this are not worth listing, nor are more warnings; a file that has them is no config.
const MOST_FAULTS: usize = 500;

#[derive(Debug)]
pub(crate) struct Notes<'t> {
    file: Arc<str>,
    text: &'t str,
    /// Where each line begins.
    starts: Vec<usize>,
    faults: Vec<(usize, Fault)>,
    n_errors: usize,
    n_warnings: usize,
}

impl<'t> Notes<'t> {
    pub(crate) fn new(file: &str, text: &'t str) -> Self {
        // Some editors begin a file with an invisible mark, which no format wants to see.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let breaks = text.bytes().enumerate().filter(|(_, it)| *it == b'\n').map(|(at, _)| at + 1);
        let starts = std::iter::once(0).chain(breaks).collect();
        Self { file: Arc::from(file), text, starts, faults: Vec::new(), n_errors: 0, n_warnings: 0 }
    }

    pub(crate) fn text(&self) -> &'t str {
        self.text
    }

    pub(crate) fn file(&self) -> Arc<str> {
        Arc::clone(&self.file)
    }

    /// Line and column of a byte.
    pub(crate) fn position(&self, at: usize) -> Position {
        let line = self.starts.partition_point(|it| *it <= at).max(1);
        let start = self.starts.get(line - 1).copied().unwrap_or(0);
        let before = self.text.get(start..at).map_or(0, |it| it.chars().count());
        Position { line, column: before + 1 }
    }

    /// The byte at a line, counted from one, and a column, counted from zero.
    pub(crate) fn offset(&self, line: usize, column: usize) -> usize {
        let start = self.starts.get(line.saturating_sub(1)).copied().unwrap_or(self.text.len());
        let rest = self.text.get(start..).unwrap_or_default();
        start + rest.char_indices().nth(column).map_or(rest.len(), |(at, _)| at)
    }

    pub(crate) fn error(&mut self, kind: FaultKind, at: usize, field: &str, message: &str) {
        self.note(Severity::Error, kind, at, (field, message));
    }

    pub(crate) fn warn(&mut self, kind: FaultKind, at: usize, field: &str, message: &str) {
        self.note(Severity::Warning, kind, at, (field, message));
    }

    /// How many errors there are so far.
    pub(crate) fn n_errors(&self) -> usize {
        self.n_errors
    }

    /// Adds to the note just made about a field what was probably meant.
    pub(crate) fn nearest(&mut self, field: &str, nearest: Option<&str>) {
        let last = self.faults.last_mut().filter(|(_, fault)| fault.field == field);
        if let (Some((_, fault)), Some(nearest)) = (last, nearest) {
            fault.message = format!("{}; did you mean `{nearest}`?", fault.message);
            fault.nearest = Some(nearest.to_owned());
        }
    }

    fn note(&mut self, severity: Severity, kind: FaultKind, at: usize, words: (&str, &str)) {
        let count = match severity {
            Severity::Error => &mut self.n_errors,
            Severity::Warning => &mut self.n_warnings,
        };
        *count += 1;
        if *count > MOST_FAULTS {
            return;
        }
        let fault = Fault {
            severity,
            kind,
            file: self.file(),
            at: Some(self.position(at)),
            field: words.0.to_owned(),
            message: words.1.to_owned(),
            nearest: None,
            advice: None,
        };
        self.faults.push((at, fault));
    }

    /// Everything noted, in the order of the file.
    pub(crate) fn into_faults(mut self) -> Vec<Fault> {
        self.faults.sort_by_key(|(at, _)| *at);
        self.faults.into_iter().map(|(_, fault)| fault).collect()
    }
}

/// The nearest of some words, if it is near enough to have been meant.
pub fn nearest<'w>(word: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    // Comparing costs the product of the lengths, and no key of ours is that long.
    if word.len() > 40 {
        return None;
    }
    let word = word.to_lowercase().replace('-', "_");
    // A third of the word may be wrong; of very long ones, no more than three letters.
    let most = (word.chars().count() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|it| (strsim::damerau_levenshtein(&word, &it.to_lowercase().replace('-', "_")), it))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, it)| it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let notes = Notes::new("f", "\u{feff}ab\nüx\n");
        let places = [0, 2, 3, 5, 6, 7, 99].map(|it| notes.position(it).to_string());
        assert_eq!(places, ["1:1", "1:3", "2:1", "2:2", "2:3", "3:1", "3:1"]);
        assert_eq!([notes.offset(2, 1), notes.offset(2, 9), notes.offset(9, 9)], [5, 7, 7]);
    }

    #[track_caller]
    fn check(word: &str, expected: Option<&str>) {
        assert_eq!(nearest(word, ["command", "url", "headers", "max_timeout"]), expected);
    }

    #[test]
    fn near_misses_are_recognized() {
        check("comand", Some("command"));
        check("Headers", Some("headers"));
        check("max-timeout", Some("max_timeout"));
        check("urll", Some("url"));
        check("routing", None);
        check("mcp", None);
    }
}
