//! `McpConfig` from JSON, with all errors at once.
//!
//! **Invariant:** an error in one member does not keep the others from being read, and no message repeats a value,
//! because it may be a secret.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use toolrack_config::{join, suggest};
use uuid::Uuid;

use crate::error::{ErrorCode, ErrorDetail, ServiceError};
use crate::service::{
    EnvVarConfig, McpConfig, McpPackage, McpPackageType, McpSource, McpTransport,
};
use crate::validate::{self, IDENTIFIER_REQUIRED, TRANSPORT_REQUIRED};

const CONFIG_KEYS: &[&str] =
    &["id", "name", "enabled", "source", "package", "transport", "env_vars", "config"];
const PACKAGE_KEYS: &[&str] = &["package_type", "identifier", "version", "runtime_hint"];
const VARIABLE_KEYS: &[&str] = &["name", "value", "secret_ref", "is_secret", "required"];
const PACKAGE_TYPES: [(&str, McpPackageType); 5] = [
    ("npm", McpPackageType::Npm),
    ("pypi", McpPackageType::Pypi),
    ("docker", McpPackageType::Docker),
    ("binary", McpPackageType::Binary),
    ("http", McpPackageType::Http),
];

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
        if !document.is_object() {
            reader.type_error(String::new(), "an object", document);
            ServiceError::if_any(std::mem::take(&mut reader.details))?;
        }
        let config = reader.config(document);
        // Two errors of the validator in one member are both shown; only those of the
        // parser hide others.
        let n_parse_errors = reader.details.len();
        for detail in validate::find_errors(&config, None) {
            // One error per member is enough, and the parser's is closer to the cause.
            if !reader.details.iter().take(n_parse_errors).any(|earlier| overlaps(earlier, &detail))
            {
                reader.details.push(detail);
            }
        }
        ServiceError::if_any(reader.details)?;
        Ok(config)
    }
}

/// Whether one field contains the other.
fn overlaps(left: &ErrorDetail, right: &ErrorDetail) -> bool {
    let (Some(left), Some(right)) = (&left.field, &right.field) else { return false };
    let (short, long) = if left.len() < right.len() { (left, right) } else { (right, left) };
    long.strip_prefix(short.as_str())
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Reads a JSON document and collects errors.
#[derive(Default)]
struct JsonReader {
    details: Vec<ErrorDetail>,
}

/// An object in the document, with its path.
struct JsonObject<'v> {
    path: String,
    members: Option<&'v Map<String, Value>>,
}

impl<'v> JsonObject<'v> {
    fn get(&self, key: &str) -> Option<&'v Value> {
        // Many programs write `null` for a missing value.
        self.members.and_then(|members| members.get(key)).filter(|value| !value.is_null())
    }

    fn field(&self, key: &str) -> String {
        join(&self.path, key)
    }
}

impl JsonReader {
    fn config(&mut self, document: &Value) -> McpConfig {
        let object = self.object("", Some(document), CONFIG_KEYS);
        McpConfig {
            id: self.id(&object),
            name: self.text(&object, "name").unwrap_or_default(),
            enabled: self.flag(&object, "enabled").unwrap_or(true),
            source: self.source(object.get("source")),
            package: self.package(object.get("package")),
            transport: self.transport(object.get("transport")),
            env_vars: self.variables(object.get("env_vars")),
            config: self.extra_keys(object.get("config")),
        }
    }

    fn id(&mut self, object: &JsonObject<'_>) -> Uuid {
        let Some(text) = self.text(object, "id") else { return Uuid::nil() };
        text.parse().unwrap_or_else(|_malformed| {
            self.error(object.field("id"), "is not a valid UUID; omit it to have one assigned");
            Uuid::nil()
        })
    }

    fn source(&mut self, value: Option<&Value>) -> McpSource {
        let Some(value) = value else { return McpSource::default() };
        if value == "manual" {
            return McpSource::Manual;
        }
        let object =
            self.object("source", Some(value), &["type", "name", "version", "qualified_name"]);
        // Read all members for every type of source, so that a member with a wrong type is always reported.
        let mut member = |key| (self.text(&object, key), object.field(key));
        let (name, version) = (member("name"), member("version"));
        let qualified_name = member("qualified_name");
        match self.text(&object, "type").as_deref() {
            Some("official") => {
                McpSource::Official { name: self.required(name), version: self.required(version) }
            }
            Some("smithery") => {
                McpSource::Smithery { qualified_name: self.required(qualified_name) }
            }
            Some("manual") => McpSource::Manual,
            Some(_) | None => {
                self.error(object.field("type"), "must be `official`, `smithery` or `manual`");
                McpSource::Manual
            }
        }
    }

    fn package(&mut self, value: Option<&Value>) -> McpPackage {
        let is_missing = value.is_none();
        let object = self.object("package", value, PACKAGE_KEYS);
        if is_missing {
            self.error("package.identifier".to_owned(), IDENTIFIER_REQUIRED);
        }
        McpPackage {
            package_type: self.package_type(&object),
            identifier: self.text(&object, "identifier").unwrap_or_default(),
            version: self.text(&object, "version"),
            runtime_hint: self.text(&object, "runtime_hint"),
        }
    }

    fn package_type(&mut self, object: &JsonObject<'_>) -> McpPackageType {
        let name = self.text(object, "package_type");
        let found = PACKAGE_TYPES.iter().find(|(known, _)| name.as_deref() == Some(*known));
        match found {
            Some((_, kind)) => *kind,
            None => {
                if object.members.is_some() && !self.has_error(&object.field("package_type")) {
                    let message = "must be `npm`, `pypi`, `docker`, `binary` or `http`";
                    self.error(object.field("package_type"), message);
                }
                McpPackageType::Binary
            }
        }
    }

    fn transport(&mut self, value: Option<&Value>) -> McpTransport {
        let Some(value) = value else {
            self.error("transport".to_owned(), TRANSPORT_REQUIRED);
            return McpTransport::Stdio;
        };
        if value == "stdio" {
            return McpTransport::Stdio;
        }
        if value == "http" {
            return McpTransport::Http { url: String::new() };
        }
        let object = self.object("transport", Some(value), &["type", "url"]);
        let url = self.text(&object, "url").unwrap_or_default();
        match self.text(&object, "type").as_deref() {
            Some("stdio") => McpTransport::Stdio,
            Some("http") => McpTransport::Http { url },
            Some(_) | None => {
                if !self.has_error("transport") {
                    self.error(object.field("type"), "must be `stdio` or `http`");
                }
                McpTransport::Stdio
            }
        }
    }

    fn variables(&mut self, value: Option<&Value>) -> BTreeMap<String, EnvVarConfig> {
        let Some(value) = value else { return BTreeMap::new() };
        let Value::Object(members) = value else {
            self.type_error("env_vars".to_owned(), "an object", value);
            return BTreeMap::new();
        };
        members.iter().map(|(name, value)| (name.clone(), self.variable(name, value))).collect()
    }

    fn variable(&mut self, name: &str, value: &Value) -> EnvVarConfig {
        let path = join("env_vars", name);
        let mut variable = EnvVarConfig {
            name: name.to_owned(),
            value: None,
            secret_ref: None,
            is_secret: false,
            required: false,
        };
        if let Value::String(text) = value {
            variable.value = Some(text.clone());
            return variable;
        }
        let object = self.object(&path, Some(value), VARIABLE_KEYS);
        variable.name = self.text(&object, "name").unwrap_or(variable.name);
        variable.value = self.text(&object, "value");
        variable.secret_ref = self.text(&object, "secret_ref");
        variable.is_secret =
            self.flag(&object, "is_secret").unwrap_or(variable.secret_ref.is_some());
        variable.required = self.flag(&object, "required").unwrap_or(false);
        variable
    }

    fn extra_keys(&mut self, value: Option<&Value>) -> Value {
        match value {
            None => Value::Null,
            Some(Value::Object(members)) if members.is_empty() => Value::Null,
            Some(value @ Value::Object(_)) => value.clone(),
            Some(value) => {
                self.type_error("config".to_owned(), "an object", value);
                Value::Null
            }
        }
    }

    /// Reads an object, and reports unknown members.
    fn object<'v>(
        &mut self,
        path: &str,
        value: Option<&'v Value>,
        known: &[&str],
    ) -> JsonObject<'v> {
        let members = match value {
            Some(Value::Object(members)) => Some(members),
            Some(other) => {
                self.type_error(path.to_owned(), "an object", other);
                None
            }
            None => None,
        };
        for key in members.into_iter().flat_map(Map::keys) {
            if !known.contains(&key.as_str()) {
                let message = match suggest(key, known.iter().copied()) {
                    Some(near) => format!("is not a known key; did you mean `{near}`?"),
                    None => format!("is not a known key; known keys are `{}`", known.join("`, `")),
                };
                self.error(join(path, key), &message);
            }
        }
        JsonObject { path: path.to_owned(), members }
    }

    fn text(&mut self, object: &JsonObject<'_>, key: &str) -> Option<String> {
        match object.get(key)? {
            Value::String(text) => Some(text.clone()),
            other => {
                self.type_error(object.field(key), "a string", other);
                None
            }
        }
    }

    fn required(&mut self, (text, field): (Option<String>, String)) -> String {
        if text.is_none() && !self.has_error(&field) {
            self.error(field, "is required for this source");
        }
        text.unwrap_or_default()
    }

    fn flag(&mut self, object: &JsonObject<'_>, key: &str) -> Option<bool> {
        match object.get(key)? {
            Value::Bool(flag) => Some(*flag),
            other => {
                self.type_error(object.field(key), "`true` or `false`", other);
                None
            }
        }
    }

    fn type_error(&mut self, field: String, expected: &str, found: &Value) {
        self.error(field, &format!("must be {expected}, not {}", type_name(found)));
    }

    fn has_error(&self, field: &str) -> bool {
        self.details.iter().any(|detail| detail.field.as_deref() == Some(field))
    }

    fn error(&mut self, field: String, message: &str) {
        let detail = ErrorDetail::new(ErrorCode::ValidationError, message);
        self.details.push(if field.is_empty() { detail } else { detail.with_field(field) });
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        check(with("name", json!(3)), &[("name", "must be a string, not a number")]);
        check(
            with("enabled", json!("yes")),
            &[("enabled", "must be `true` or `false`, not a string")],
        );
        check(
            with("id", json!("7")),
            &[("id", "is not a valid UUID; omit it to have one assigned")],
        );
        check(
            with("packages", json!({})),
            &[("packages", "is not a known key; did you mean `package`?")],
        );
        check(
            with("package", json!({ "package_type": "gem", "identifier": "x" })),
            &[("package.package_type", "must be `npm`, `pypi`, `docker`, `binary` or `http`")],
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
            with("source", json!({ "type": "official", "name": "x" })),
            &[("source.version", "is required for this source")],
        );
        check(
            with("env_vars", json!({ "A": { "secretref": "x" }, "B": 3 })),
            &[
                ("env_vars.A.secretref", "is not a known key; did you mean `secret_ref`?"),
                ("env_vars.B", "must be an object, not a number"),
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
