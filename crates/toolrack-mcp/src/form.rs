//! The form of an elicitation: flat, ordered fields of a few kinds.
//!
//! **Invariant:** fields keep the order in which the server wrote them.

pub(crate) mod check;
pub(crate) mod field;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Number;
use serde_json::value::RawValue;

use self::check::FieldFault;
use self::field::Field;
use crate::serde_lenient::{Ordered, or_default};

/// A form to be filled in.
#[derive(Debug, Clone)]
pub struct FormSchema {
    fields: Vec<Field>,
}

/// What was filled in, by field name.
pub type FormContent = BTreeMap<String, FieldValue>;

/// What can be filled in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FieldValue {
    /// Yes or no.
    Boolean(bool),
    /// A number, whole or not.
    Number(Number),
    /// Text, or the value of the option chosen.
    Text(String),
    /// The values of the options chosen, since 2025-11-25.
    List(Vec<String>),
}

impl FormSchema {
    /// The fields, in the server's order.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Fills every field that has a default and was left out.
    pub fn fill_defaults(&self, content: &mut FormContent) {
        for field in &self.fields {
            if content.contains_key(&field.name) {
                continue;
            }
            if let Some(default) = field.kind.default_value() {
                content.insert(field.name.clone(), default);
            }
        }
    }

    /// Finds every reason why `content` is not what the server asked for.
    pub fn validate(&self, content: &FormContent) -> Result<(), Vec<FieldFault>> {
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
