//! Variables of a server: `NAME = "text"`, `NAME = { secret_ref = "…" }`, and what neither can say.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::entry::Row;
use crate::model::EnvVarConfig;

/// What the `env` of an entry says.
pub(super) fn read(row: &Row) -> BTreeMap<String, EnvVarConfig> {
    row.iter().map(|(name, value)| (name.clone(), variable(name, value))).collect()
}

/// The `env` that says the same. Variables that are the same as before stay as they are.
pub(super) fn write(variables: &BTreeMap<String, EnvVarConfig>, present: &Row) -> Row {
    let each = variables.iter().map(|(name, config)| {
        let value = present.get(name).filter(|it| variable(name, it) == *config);
        (name.clone(), value.cloned().unwrap_or_else(|| written(config)))
    });
    each.collect()
}

fn variable(name: &str, value: &Value) -> EnvVarConfig {
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let flag = |key: &str| value.get(key).and_then(Value::as_bool);
    let secret_ref = text("secret_ref");
    let own_value = value.as_str().map(str::to_owned).or_else(|| text("value"));
    EnvVarConfig {
        name: name.to_owned(),
        is_secret: secret_ref.is_some() || flag("secret").unwrap_or(false),
        // A secret that is named is wanted unless the file says otherwise.
        required: flag("required").unwrap_or(value.is_object() && own_value.is_none()),
        value: own_value,
        secret_ref,
    }
}

fn written(config: &EnvVarConfig) -> Value {
    match (&config.secret_ref, &config.value) {
        (Some(secret_ref), _) => json!({ "secret_ref": secret_ref, "required": config.required }),
        (None, Some(value)) if !config.is_secret && !config.required => json!(value),
        (None, value) => {
            let mut table = Row::new();
            if let Some(value) = value {
                table.insert("value".to_owned(), json!(value));
            }
            if config.is_secret {
                table.insert("secret".to_owned(), json!(true));
            }
            if config.required || value.is_none() {
                table.insert("required".to_owned(), json!(config.required));
            }
            Value::Object(table)
        }
    }
}
