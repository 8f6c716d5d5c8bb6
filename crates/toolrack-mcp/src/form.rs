//! Elicitation form: flat, ordered fields.
//!
//! **Invariant:** fields keep the order in which the server wrote them. A duplicate name keeps its first position and its
//! last schema.

pub(crate) mod field;

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Number;
use serde_json::value::RawValue;

use crate::form::field::{Choice, Field, FieldKind, StringFormat};
use crate::serde_lenient::or_default;

/// Schema of a form.
#[derive(Debug, Clone)]
pub struct FormSchema {
    fields: Vec<Field>,
}

/// Form values by field name.
pub type FormContent = BTreeMap<String, FieldValue>;

/// A form value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FieldValue {
    /// A boolean.
    Boolean(bool),
    /// A number.
    Number(Number),
    /// A string, or the value of the selected option.
    Text(String),
    /// Values of the selected options, since 2025-11-25.
    List(Vec<String>),
}

impl FormSchema {
    /// Fields in the server's order.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Sets every absent field that has a default.
    pub fn fill_defaults(&self, content: &mut FormContent) {
        // SEP-1034: a client that accepts for the user sends the defaults of omitted fields.
        for field in &self.fields {
            if let Some(default) = &field.default {
                content.entry(field.name.clone()).or_insert_with(|| default.clone());
            }
        }
    }

    /// All violations of the schema in `content`.
    pub fn validate(&self, content: &FormContent) -> Result<(), Vec<FieldError>> {
        let mut errors = Vec::new();
        for field in &self.fields {
            let kind = match content.get(&field.name) {
                None => field.required.then_some(FieldErrorKind::Missing),
                Some(value) => field.kind.error(value),
            };
            errors.extend(kind.map(|kind| FieldError { field: field.name.clone(), kind }));
        }
        let listed: BTreeSet<&str> = self.fields.iter().map(|field| &*field.name).collect();
        for name in content.keys().filter(|name| !listed.contains(name.as_str())) {
            let kind = FieldErrorKind::UnknownField;
            errors.push(FieldError { field: name.clone(), kind });
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

impl<'de> Deserialize<'de> for FormSchema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Members {
            properties: IndexMap<String, Box<RawValue>>,
            #[serde(default, deserialize_with = "or_default")]
            required: BTreeSet<String>,
        }
        let Members { properties, required } = Members::deserialize(deserializer)?;
        let fields = properties.into_iter();
        let fields = fields.map(|(name, schema)| Field::read(name, &required, schema));
        Ok(Self { fields: fields.collect() })
    }
}

/// An invalid field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}`: {kind}")]
pub struct FieldError {
    /// Field name.
    pub field: String,
    /// The violation.
    pub kind: FieldErrorKind,
}

/// Kinds of violations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldErrorKind {
    /// Required, but absent.
    #[error("required")]
    Missing,
    /// Not a field of the form.
    #[error("not in the form")]
    UnknownField,
    /// Wrong type.
    #[error("wrong type")]
    WrongType,
    /// Too short.
    #[error("too short")]
    TooShort,
    /// Too long.
    #[error("too long")]
    TooLong,
    /// Wrong string format.
    #[error("not a valid {0}")]
    Format(StringFormat),
    /// Below the minimum.
    #[error("too small")]
    TooSmall,
    /// Above the maximum.
    #[error("too large")]
    TooLarge,
    /// Not among the options.
    #[error("not among the options")]
    NotAnOption,
    /// Too few options selected.
    #[error("too few chosen")]
    TooFew,
    /// Too many options selected.
    #[error("too many chosen")]
    TooMany,
}

impl FieldKind {
    /// The first violation of a value.
    fn error(&self, value: &FieldValue) -> Option<FieldErrorKind> {
        match (self, value) {
            (Self::Text { min_length, max_length, format, .. }, FieldValue::Text(text)) => {
                // JSON Schema counts characters, not bytes.
                let errors = (FieldErrorKind::TooShort, FieldErrorKind::TooLong);
                let wrong_format = || format.filter(|format| !format.matches(text));
                range_error(text.chars().count() as u64, *min_length, *max_length, errors)
                    .or_else(|| wrong_format().map(FieldErrorKind::Format))
            }
            (Self::Number { is_integer, minimum, maximum }, FieldValue::Number(number)) => {
                if *is_integer && !is_whole(number) {
                    return Some(FieldErrorKind::WrongType);
                }
                let errors = (FieldErrorKind::TooSmall, FieldErrorKind::TooLarge);
                range_error(number.as_f64()?, *minimum, *maximum, errors)
            }
            (Self::Choice { options }, FieldValue::Text(text)) => {
                (!is_option(options, text)).then_some(FieldErrorKind::NotAnOption)
            }
            (Self::MultiChoice { options, min_items, max_items }, FieldValue::List(list)) => {
                if list.iter().any(|value| !is_option(options, value)) {
                    return Some(FieldErrorKind::NotAnOption);
                }
                let errors = (FieldErrorKind::TooFew, FieldErrorKind::TooMany);
                range_error(list.len() as u64, *min_items, *max_items, errors)
            }
            (Self::Boolean, FieldValue::Boolean(_)) | (Self::Other(_), _) => None,
            _ => Some(FieldErrorKind::WrongType),
        }
    }
}

fn range_error<T: PartialOrd>(
    value: T,
    least: Option<T>,
    most: Option<T>,
    (below, above): (FieldErrorKind, FieldErrorKind),
) -> Option<FieldErrorKind> {
    if least.is_some_and(|least| value < least) {
        return Some(below);
    }
    most.is_some_and(|most| value > most).then_some(above)
}

/// JSON Schema treats `1.0` as an integer.
fn is_whole(number: &Number) -> bool {
    number.is_i64()
        || number.is_u64()
        || number.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn is_option(options: &[Choice], value: &str) -> bool {
    options.iter().any(|option| option.value == value)
}

#[cfg(test)]
mod tests;
