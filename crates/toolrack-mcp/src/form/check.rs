//! Whether a form is filled in as its server asked.

use std::collections::BTreeSet;

use serde_json::Number;

use super::{FieldValue, FormContent};
use crate::form::field::TextFormat;
use crate::form::field::{Choice, Field, FieldKind};

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}`: {kind}")]
pub struct FieldFault {
    /// The field's name.
    pub field: String,
    /// What is wrong.
    pub kind: FieldFaultKind,
}

/// What can be wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldFaultKind {
    /// It must be filled in.
    #[error("required")]
    Missing,
    /// The form has no such field.
    #[error("not in the form")]
    Unlisted,
    /// A value of another type belongs there.
    #[error("wrong type")]
    WrongType,
    /// Too few characters.
    #[error("too short")]
    TooShort,
    /// Too many characters.
    #[error("too long")]
    TooLong,
    /// Not of the form it must have.
    #[error("not a valid {0}")]
    Format(TextFormat),
    /// Below the minimum.
    #[error("too small")]
    TooSmall,
    /// Above the maximum.
    #[error("too large")]
    TooLarge,
    /// Not among the options.
    #[error("not among the options")]
    NotAnOption,
    /// Too few options chosen.
    #[error("too few chosen")]
    TooFew,
    /// Too many options chosen.
    #[error("too many chosen")]
    TooMany,
}

pub(super) fn check(fields: &[Field], content: &FormContent) -> Result<(), Vec<FieldFault>> {
    let mut faults = Vec::new();
    for field in fields {
        let kind = match content.get(&field.name) {
            None => field.required.then_some(FieldFaultKind::Missing),
            Some(value) => field.kind.fault(value),
        };
        faults.extend(kind.map(|kind| FieldFault { field: field.name.clone(), kind }));
    }
    let listed: BTreeSet<&str> = fields.iter().map(|it| it.name.as_str()).collect();
    let unlisted = content.keys().filter(|it| !listed.contains(it.as_str()));
    faults.extend(
        unlisted.map(|it| FieldFault { field: it.clone(), kind: FieldFaultKind::Unlisted }),
    );
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

impl FieldKind {
    /// The first thing wrong with a value. `None` is fine.
    fn fault(&self, value: &FieldValue) -> Option<FieldFaultKind> {
        match (self, value) {
            (Self::Text { min_length, max_length, format, .. }, FieldValue::Text(text)) => {
                text_fault(text, *min_length, *max_length, *format)
            }
            (Self::Number { minimum, maximum, .. }, FieldValue::Number(number)) => {
                range_fault(number, *minimum, *maximum)
            }
            (Self::Integer { minimum, maximum, .. }, FieldValue::Number(number)) => {
                if is_whole(number) {
                    range_fault(number, *minimum, *maximum)
                } else {
                    Some(FieldFaultKind::WrongType)
                }
            }
            (Self::Choice { options, .. }, FieldValue::Text(text)) => {
                (!is_option(options, text)).then_some(FieldFaultKind::NotAnOption)
            }
            (Self::MultiChoice { options, min_items, max_items, .. }, FieldValue::List(list)) => {
                if list.iter().any(|it| !is_option(options, it)) {
                    return Some(FieldFaultKind::NotAnOption);
                }
                let limits = (*min_items, *max_items);
                let faults = (FieldFaultKind::TooFew, FieldFaultKind::TooMany);
                count_fault(list.len(), limits, faults)
            }
            (Self::Boolean { .. }, FieldValue::Boolean(_)) | (Self::Other(_), _) => None,
            _ => Some(FieldFaultKind::WrongType),
        }
    }
}

fn text_fault(
    text: &str,
    min_length: Option<u64>,
    max_length: Option<u64>,
    format: Option<TextFormat>,
) -> Option<FieldFaultKind> {
    // JSON Schema counts characters, not bytes.
    let faults = (FieldFaultKind::TooShort, FieldFaultKind::TooLong);
    count_fault(text.chars().count(), (min_length, max_length), faults).or_else(|| {
        let format = format.filter(|it| !it.matches(text))?;
        Some(FieldFaultKind::Format(format))
    })
}

fn count_fault(
    count: usize,
    (least, most): (Option<u64>, Option<u64>),
    (too_few, too_many): (FieldFaultKind, FieldFaultKind),
) -> Option<FieldFaultKind> {
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    if least.is_some_and(|least| count < least) {
        return Some(too_few);
    }
    most.is_some_and(|most| count > most).then_some(too_many)
}

fn range_fault(
    number: &Number,
    minimum: Option<f64>,
    maximum: Option<f64>,
) -> Option<FieldFaultKind> {
    let number = number.as_f64()?;
    if minimum.is_some_and(|least| number < least) {
        return Some(FieldFaultKind::TooSmall);
    }
    maximum.is_some_and(|most| number > most).then_some(FieldFaultKind::TooLarge)
}

/// JSON Schema takes `1.0` for an integer.
fn is_whole(number: &Number) -> bool {
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|it| it.fract() == 0.0)
}

fn is_option(options: &[Choice], value: &str) -> bool {
    options.iter().any(|it| it.value == value)
}
