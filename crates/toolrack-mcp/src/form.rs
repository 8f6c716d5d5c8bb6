//! Elicitation form: flat, ordered fields.
//!
//! **Invariant:** fields keep the order in which the server wrote them.

pub(crate) mod check;
pub(crate) mod field;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Number;
use serde_json::value::RawValue;

use self::check::FieldError;
use self::field::Field;
use crate::serde_lenient::{Ordered, or_default};

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
            if content.contains_key(&field.name) {
                continue;
            }
            if let Some(default) = field.kind.default_value() {
                content.insert(field.name.clone(), default);
            }
        }
    }

    /// All violations of the schema in `content`.
    pub fn validate(&self, content: &FormContent) -> Result<(), Vec<FieldError>> {
        check::check(&self.fields, content)
    }
}

impl<'de> Deserialize<'de> for FormSchema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Members {
            properties: Ordered<Box<RawValue>>,
            #[serde(default, deserialize_with = "or_default")]
            required: BTreeSet<String>,
        }
        let Members { properties, required } = Members::deserialize(deserializer)?;
        let fields =
            properties.0.into_iter().map(|(name, schema)| Field::read(name, &required, schema));
        Ok(Self { fields: fields.collect() })
    }
}

#[cfg(test)]
mod tests;
