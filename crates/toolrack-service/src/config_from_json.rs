//! `McpConfig` from JSON, with all errors at once.
//!
//! The document is converted to a table of the config file, so that both have the same types, keys and rules.
//!
//! **Invariant:** an error in one member does not keep the others from being read, and no message repeats a value that
//! may be a secret.

use serde_json::{Map, Value, json};
use toolrack_config::{join, suggest};
use uuid::Uuid;

use crate::document::entry::{self, JsonMap, put};
use crate::error::{ErrorDetail, ServiceError};
use crate::service::{McpConfig, McpTransport};
use crate::validate::{self, IDENTIFIER_REQUIRED, TRANSPORT_REQUIRED, invalid};

const CONFIG_KEYS: &[&str] =
    &["id", "name", "enabled", "source", "package", "transport", "env_vars", "config"];
const PACKAGE_KEYS: &[&str] = &["package_type", "identifier", "version", "runtime_hint"];
const VARIABLE_KEYS: &[&str] = &["name", "value", "secret_ref", "is_secret", "required"];

impl McpConfig {
    /// Reads a config from JSON and reports all errors at once.
    ///
    /// Short forms: a variable may be its value as a string, and need not repeat its name; a transport without a URL
    /// may be its type as a string.
    ///
    /// # Errors
    ///
    /// Every error in the document, each with its field.
    pub fn from_json(document: &Value) -> Result<Self, ServiceError> {
        let mut reader = JsonReader::default();
        let members = reader.object("", Some(document), CONFIG_KEYS);
        let Some(members) = members else { return Err(wrong_type("", document).into()) };
        let (row, transport) = reader.table(members);
        let config = McpConfig { transport, ..entry::read(&row) };
        let more = validate::find_table_errors(&row, &config, None);
        ServiceError::if_any(validate::merge(reader.details, more))?;
        Ok(config)
    }
}

/// Converts a JSON document to a table of the config file, and collects errors.
#[derive(Default)]
struct JsonReader {
    details: Vec<ErrorDetail>,
}

impl JsonReader {
    /// The table, and the transport, which need not fit the package.
    fn table(&mut self, document: &JsonMap) -> (JsonMap, McpTransport) {
        let rest = document.get("config").unwrap_or(&Value::Null);
        self.details.extend(entry::check_rest(rest));
        let mut row = rest.as_object().cloned().unwrap_or_default();
        let more = row.remove("package");
        let mut package = more.and_then(|more| more.as_object().cloned()).unwrap_or_default();
        put(&mut package, "args", row.remove("args"));
        match self.object("package", get(document, "package"), PACKAGE_KEYS) {
            Some(given) => {
                put(&mut package, "type", given.get("package_type").cloned());
                for key in ["identifier", "version", "runtime_hint"] {
                    put(&mut package, key, given.get(key).cloned());
                }
            }
            // One error for the package is enough.
            None => put(&mut package, "type", Some(json!("binary"))),
        }
        if get(document, "package").is_none() {
            self.details.push(invalid("package.identifier", IDENTIFIER_REQUIRED));
        }
        let (transport, url) = self.transport(get(document, "transport"));
        put(&mut package, "url", url);
        for key in ["name", "enabled"] {
            put(&mut row, key, document.get(key).cloned());
        }
        // In the spelling of the config file, if it is a UUID at all.
        let id = get(document, "id");
        let parsed = id.and_then(Value::as_str).and_then(|id| Uuid::parse_str(id).ok());
        put(&mut row, "id", parsed.map(|id| json!(id)).or_else(|| id.cloned()));
        put(&mut row, "source", self.source(get(document, "source")));
        put(&mut row, "env", self.variables(get(document, "env_vars")));
        package.retain(|_, value| !value.is_null());
        row.insert("package".to_owned(), Value::Object(package));
        row.retain(|_, value| !value.is_null());
        (row, transport)
    }

    fn source(&mut self, value: Option<&Value>) -> Option<Value> {
        let value = value.filter(|value| **value != "manual")?;
        let required: &[&str] = match value.get("type").and_then(Value::as_str) {
            Some("official") => &["name", "version"],
            Some("smithery") => &["qualified_name"],
            Some(_) => &[],
            None => &["type"],
        };
        for key in required.iter().filter(|key| value.get(key).is_none_or(Value::is_null)) {
            self.details.push(invalid(join("source", key), "is required for this source"));
        }
        Some(value.clone())
    }

    fn transport(&mut self, value: Option<&Value>) -> (McpTransport, Option<Value>) {
        let Some(value) = value else {
            self.details.push(invalid("transport", TRANSPORT_REQUIRED));
            return (McpTransport::Stdio, None);
        };
        let (kind, url) = if value == "stdio" || value == "http" {
            (Some(value), None)
        } else {
            match self.object("transport", Some(value), &["type", "url"]) {
                Some(object) => (object.get("type"), get(object, "url")),
                None => return (McpTransport::Stdio, None),
            }
        };
        match kind.and_then(Value::as_str) {
            Some("stdio") => {
                // Not used, and still checked: a document with a wrong type is not what its author thinks.
                if url.is_some_and(|url| !url.is_string()) {
                    self.details.push(invalid("transport.url", "must be a string"));
                }
                (McpTransport::Stdio, None)
            }
            Some("http") => {
                let text = url.and_then(Value::as_str).unwrap_or_default().to_owned();
                (McpTransport::Http { url: text }, url.cloned())
            }
            _ => {
                self.details.push(invalid("transport.type", "must be `stdio` or `http`"));
                (McpTransport::Stdio, None)
            }
        }
    }

    /// The table `env`.
    fn variables(&mut self, value: Option<&Value>) -> Option<Value> {
        let members = match value? {
            Value::Object(members) => members,
            // The config reader reports the wrong type.
            other => return Some(other.clone()),
        };
        let each = members.iter().map(|(name, value)| (name.clone(), self.variable(name, value)));
        Some(Value::Object(each.collect()))
    }

    fn variable(&mut self, name: &str, value: &Value) -> Value {
        let path = join("env_vars", name);
        if !value.is_object() {
            return self.secret_text(&path, value);
        }
        let given = self.object(&path, Some(value), VARIABLE_KEYS).cloned().unwrap_or_default();
        if get(&given, "name").is_some_and(|given| given != name) {
            self.details.push(invalid(join(&path, "name"), "differs from its key"));
        }
        let mut table = JsonMap::new();
        for (theirs, ours) in
            [("value", "value"), ("secret_ref", "secret_ref"), ("is_secret", "secret")]
        {
            put(&mut table, ours, get(&given, theirs).cloned());
        }
        if let Some(value) = get(&given, "value") {
            table.insert("value".to_owned(), self.secret_text(&join(&path, "value"), value));
        }
        // In the file, a variable without a value is required unless it says otherwise.
        put(&mut table, "required", get(&given, "required").cloned().or(Some(json!(false))));
        Value::Object(table)
    }

    /// A value that may be a secret. The config reader quotes numbers in its messages, so they are reported here.
    fn secret_text(&mut self, path: &str, value: &Value) -> Value {
        let kind = match value {
            Value::Number(_) => "a number",
            Value::Bool(_) => "a boolean",
            other => return other.clone(),
        };
        self.details.push(invalid(path, &format!("must be a string, not {kind}")));
        Value::from("")
    }

    /// Reads an object, and reports unknown members.
    fn object<'v>(
        &mut self,
        path: &str,
        value: Option<&'v Value>,
        known: &[&str],
    ) -> Option<&'v JsonMap> {
        let members = match value? {
            Value::Object(members) => members,
            other => {
                self.details.push(wrong_type(path, other));
                return None;
            }
        };
        for key in members.keys().filter(|key| !known.contains(&key.as_str())) {
            let message = match suggest(key, known.iter().copied()) {
                Some(near) => format!("is not a known key; did you mean `{near}`?"),
                None => format!("is not a known key; known keys are `{}`", known.join("`, `")),
            };
            self.details.push(invalid(join(path, key), &message));
        }
        Some(members)
    }
}

/// A member; many programs write `null` for a missing value.
fn get<'v>(object: &'v Map<String, Value>, key: &str) -> Option<&'v Value> {
    object.get(key).filter(|value| !value.is_null())
}

fn wrong_type(path: &str, value: &Value) -> ErrorDetail {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    invalid(path, &format!("must be an object, not {found}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    #[track_caller]
    fn check(document: Value, expected: &[(&str, &str)]) {
        let details = match McpConfig::from_json(&document) {
            Ok(_) => Vec::new(),
            Err(error) => error.details().to_vec(),
        };
        let found: Vec<(&str, &str)> = details
            .iter()
            .map(|detail| (detail.field.as_deref().unwrap_or_default(), detail.message.as_str()))
            .collect();
        assert_eq!(found, expected);
        assert!(details.iter().all(|detail| detail.code == ErrorCode::ValidationError));
    }

    fn good() -> Value {
        json!({
            "name": "demo",
            "package": { "package_type": "binary", "identifier": "demo-server" },
            "transport": { "type": "stdio" },
        })
    }

    fn with(key: &str, value: Value) -> Value {
        let mut document = good();
        document[key] = value;
        document
    }

    #[test]
    fn missing_members_use_the_messages_of_spec_004() {
        check(good(), &[]);
        check(
            json!({}),
            &[
                ("package.identifier", "Package identifier required"),
                ("transport", "Transport required"),
                ("name", "Name is required"),
            ],
        );
        check(with("name", json!(" \t")), &[("name", "Name is required")]);
        check(with("name", Value::Null), &[("name", "Name is required")]);
        check(
            with("package", json!({ "package_type": "npm", "identifier": "" })),
            &[("package.identifier", "Package identifier required")],
        );
        check(with("transport", Value::Null), &[("transport", "Transport required")]);
        check(
            with("env_vars", json!({ "TOKEN": { "required": true } })),
            &[("env_vars.TOKEN", "Missing required credentials")],
        );
    }

    #[test]
    fn wrong_members_are_reported_with_the_expected_type() {
        check(json!([1]), &[("", "must be an object, not an array")]);
        check(
            with("name", json!(3)),
            &[("name", "must be a string; write `\"3\"`, not an integer")],
        );
        check(
            with("enabled", json!("yes")),
            &[("enabled", "must be `true` or `false`, not a string")],
        );
        check(
            with("id", json!("7")),
            &[("id", "is not a valid UUID; remove it, and `toolrack` assigns one")],
        );
        check(
            with("packages", json!({})),
            &[("packages", "is not a known key; did you mean `package`?")],
        );
        check(
            with("package", json!({ "package_type": "gem", "identifier": "x" })),
            &[(
                "package.package_type",
                "`gem` is not one of `npm`, `pypi`, `docker`, `binary`, `http`",
            )],
        );
        check(
            with("transport", json!("smoke")),
            &[("transport", "must be an object, not a string")],
        );
        check(
            with("transport", json!({ "type": "smoke" })),
            &[("transport.type", "must be `stdio` or `http`")],
        );
        check(
            with("transport", json!({ "type": "stdio", "url": {} })),
            &[("transport.url", "must be a string")],
        );
        check(
            with("source", json!({ "type": "official", "name": "x" })),
            &[("source.version", "is required for this source")],
        );
        check(
            with("env_vars", json!({ "A": { "secretref": "x" }, "B": 3 })),
            &[
                ("env_vars.A.secretref", "is not a known key; did you mean `secret_ref`?"),
                ("env_vars.B", "must be a string, not a number"),
            ],
        );
    }

    #[test]
    fn config_round_trips_through_json() {
        let document = json!({
            "id": "6f2c1e9a-8a1b-4c3d-9e4f-0123456789ab",
            "name": "demo",
            "enabled": false,
            "source": { "type": "smithery", "qualified_name": "@a/b" },
            "package": { "package_type": "npm", "identifier": "@a/b", "version": "1.2.3" },
            "transport": { "type": "stdio" },
            "env_vars": { "A": { "name": "A", "value": "1", "is_secret": false, "required": false } },
            "config": { "args": ["x"], "timeout": "5s" },
        });
        let config = McpConfig::from_json(&document).unwrap();
        assert_eq!(serde_json::to_value(&config).unwrap(), document);
        let short = with("env_vars", json!({ "A": "1", "B": { "secret_ref": "b" } }));
        let config = McpConfig::from_json(&short).unwrap();
        assert_eq!(config.env_vars["A"].value.as_deref(), Some("1"));
        assert!(config.env_vars["B"].is_secret && config.env_vars["B"].name == "B");
    }
}
