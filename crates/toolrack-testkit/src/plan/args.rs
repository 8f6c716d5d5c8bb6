//! Parser for fault arguments, with errors that show an example.

use serde::Deserialize;

use super::fault::{examples, fault_name};
use crate::quantity;

/// Parser of one argument.
type Parse<T> = fn(&str) -> Result<T, String>;

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

    pub(super) fn optional<T>(&mut self, parse: Parse<T>) -> Result<Option<T>, String> {
        self.left.next().map(parse).transpose()
    }

    pub(super) fn or<T>(&mut self, absent: T, parse: Parse<T>) -> Result<T, String> {
        Ok(self.optional(parse)?.unwrap_or(absent))
    }

    pub(super) fn required<T>(&mut self, what: &str, parse: Parse<T>) -> Result<T, String> {
        self.optional(parse)?.ok_or_else(|| self.wants(what))
    }

    pub(super) fn bytes(&mut self) -> Result<u64, String> {
        self.required("a size", quantity::bytes)
    }

    pub(super) fn count(&mut self, absent: u64) -> Result<u64, String> {
        match self.or(absent, quantity::count)? {
            0 => Err(format!("`{}` needs at least 1", self.name)),
            count => Ok(count),
        }
    }

    pub(super) fn word<T: Deserialize<'a> + Default>(&mut self) -> Result<T, String> {
        let Some(text) = self.left.next() else { return Ok(T::default()) };
        quantity::word(text).map_err(|error| format!("`{}`: {error}", self.name))
    }

    pub(super) fn words<T: Deserialize<'a> + Default>(&mut self) -> Result<Vec<T>, String> {
        if self.left.len() == 0 {
            return Err(self.wants("an argument"));
        }
        (0..self.left.len()).map(|_| self.word()).collect()
    }

    pub(super) fn done(&mut self) -> Result<(), String> {
        match self.left.next() {
            None => Ok(()),
            Some(extra) => Err(format!("`{}` does not take `{extra}`", self.name)),
        }
    }

    fn wants(&self, what: &str) -> String {
        let example = examples().find(|example| fault_name(example) == self.name);
        format!("`{}` needs {what}, as in `{}`", self.name, example.unwrap_or(self.name))
    }
}
