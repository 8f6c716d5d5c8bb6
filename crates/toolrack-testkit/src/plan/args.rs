//! Parser for fault arguments, with errors that show an example.

use std::time::Duration;

use super::fault::{FAULTS, HTTP_FAULTS, fault_name};
use crate::quantity::{self, Times};

/// Names and their values; the first is the default.
pub(super) type Choices<T, const N: usize> = [(&'static str, T); N];

/// Remaining arguments of one fault.
pub(super) struct Args<'a> {
    name: &'a str,
    left: std::vec::IntoIter<&'a str>,
}

impl<'a> Args<'a> {
    pub(super) fn new(name: &'a str, text: &'a str) -> Self {
        let items: Vec<&str> =
            text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
        Self { name, left: items.into_iter() }
    }

    pub(super) fn time(&mut self, absent: Duration) -> Result<Duration, String> {
        self.left.next().map_or(Ok(absent), quantity::time)
    }

    pub(super) fn count(&mut self, absent: u64) -> Result<u64, String> {
        match self.left.next().map_or(Ok(absent), quantity::count)? {
            0 => Err(format!("`{}` needs at least 1", self.name)),
            count => Ok(count),
        }
    }

    pub(super) fn times(&mut self, absent: u64) -> Result<Times, String> {
        self.left.next().map_or(Ok(Times::Count(absent)), quantity::times)
    }

    pub(super) fn bytes(&mut self) -> Result<u64, String> {
        self.left.next().map_or_else(|| Err(self.wants("a size")), quantity::bytes)
    }

    pub(super) fn optional_time(&mut self) -> Result<Option<Duration>, String> {
        self.left.next().map(quantity::time).transpose()
    }

    pub(super) fn optional_bytes(&mut self) -> Result<Option<u64>, String> {
        self.left.next().map(quantity::bytes).transpose()
    }

    /// A size; `None` for the given word.
    pub(super) fn bytes_or(&mut self, word: &str) -> Result<Option<u64>, String> {
        match self.left.next() {
            Some(text) if text == word => Ok(None),
            Some(text) => quantity::bytes(text).map(Some),
            None => Err(self.wants("a size")),
        }
    }

    pub(super) fn integer(&mut self, absent: i64) -> Result<i64, String> {
        self.left.next().map_or(Ok(absent), |text| {
            text.parse().map_err(|_not_digits| format!("`{text}` is not an integer"))
        })
    }

    pub(super) fn code(&mut self, absent: u8) -> Result<i32, String> {
        self.left.next().map_or(Ok(i32::from(absent)), |text| {
            text.parse()
                .map(|code: u8| i32::from(code))
                .map_err(|_not_a_byte| format!("`{text}` is not an exit code; codes are 0 to 255"))
        })
    }

    pub(super) fn text(&mut self) -> Result<String, String> {
        self.left.next().map_or_else(|| Err(self.wants("an argument")), |text| Ok(text.to_owned()))
    }

    pub(super) fn word<T: Copy, const N: usize>(
        &mut self,
        words: &Choices<T, N>,
    ) -> Result<T, String> {
        let Some(text) = self.left.next() else {
            return words.first().map(|(_, words)| *words).ok_or_else(|| self.wants("an argument"));
        };
        let found = words.iter().find_map(|(word, item)| (*word == text).then_some(*item));
        found.ok_or_else(|| {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            format!("`{}` has no option `{text}`; expected one of {}", self.name, known.join(", "))
        })
    }

    pub(super) fn words<T: Copy, const N: usize>(
        &mut self,
        words: &Choices<T, N>,
    ) -> Result<Vec<T>, String> {
        let mut all = Vec::new();
        while self.left.len() > 0 {
            all.push(self.word(words)?);
        }
        if all.is_empty() { Err(self.wants("an argument")) } else { Ok(all) }
    }

    pub(super) fn done(&mut self) -> Result<(), String> {
        match self.left.next() {
            None => Ok(()),
            Some(extra) => Err(format!("`{}` does not take `{extra}`", self.name)),
        }
    }

    fn wants(&self, what: &str) -> String {
        let example =
            FAULTS.iter().chain(HTTP_FAULTS).find(|(example, _)| fault_name(example) == self.name);
        let example = example.map_or(self.name, |(example, _)| example);
        format!("`{}` needs {what}, as in `{example}`", self.name)
    }
}
