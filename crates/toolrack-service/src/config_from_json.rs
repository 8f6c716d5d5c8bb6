//! A config as somebody wrote it in JSON, and every reason why it cannot be taken.
//!
//! **Invariant:** whatever is wrong with one member, the others are read, and no value is repeated in a message,
//! because people put secrets there.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::error::{ErrorCode, ServiceError, ServiceFault};
use crate::service::{
    EnvVarConfig, McpConfig, McpPackage, McpPackageType, McpSource, McpTransport,
};
use crate::validate::{self, IDENTIFIER_REQUIRED, TRANSPORT_REQUIRED};
use toolrack_config::{join, nearest};

const CONFIG: &[&str] =
    &["id", "name", "enabled", "source", "package", "transport", "env_vars", "config"];
const PACKAGE: &[&str] = &["package_type", "identifier", "version", "runtime_hint"];
const VARIABLE: &[&str] = &["name", "value", "secret_ref", "is_secret", "required"];
const KINDS: [(&str, McpPackageType); 5] = [
    ("npm", McpPackageType::Npm),
    ("pypi", McpPackageType::Pypi),
    ("docker", McpPackageType::Docker),
    ("binary", McpPackageType::Binary),
    ("http", McpPackageType::Http),
];

impl McpConfig {
    /// Reads a config from JSON, and says everything that is wrong with it at once.
    ///
    /// A variable may be given as its value alone, and need not repeat its name; a transport that needs no URL may
    /// be given as its word alone.
    ///
    /// # Errors
    ///
    /// With every fault of the document, each with the member it is about.
    pub fn from_json(document: &Value) -> Result<Self, ServiceError> {
        let mut desk = Desk::default();
        if !document.is_object() {
            desk.wrong(String::new(), "an object", document);
            ServiceError::unless_empty(std::mem::take(&mut desk.faults))?;
        }
        let config = desk.config(document);
        let known = desk.faults.len();
        for fault in validate::faults(&config, None) {
            // One complaint about a member is enough, and the first one is nearer to its cause.
            if !desk.faults.iter().take(known).any(|it| covers(it, &fault)) {
                desk.faults.push(fault);
            }
        }
        ServiceError::unless_empty(desk.faults)?;
        Ok(config)
    }
}

fn covers(known: &ServiceFault, other: &ServiceFault) -> bool {
    let (Some(known), Some(other)) = (&known.field, &other.field) else { return false };
    let (short, long) = if known.len() < other.len() { (known, other) } else { (other, known) };
    long.strip_prefix(short.as_str()).is_some_and(|it| it.is_empty() || it.starts_with(['.', '[']))
}

/// Where a document is read, and what was found wrong so far.
#[derive(Default)]
struct Desk {
    faults: Vec<ServiceFault>,
}

/// One object of the document: where it is, and its members.
struct Table<'v> {
    path: String,
    members: Option<&'v Map<String, Value>>,
}

impl<'v> Table<'v> {
    fn get(&self, key: &str) -> Option<&'v Value> {
        // Many programs write `null` for what is not there.
        self.members.and_then(|it| it.get(key)).filter(|it| !it.is_null())
    }

    fn field(&self, key: &str) -> String {
        join(&self.path, key)
    }
}

impl Desk {
    fn config(&mut self, document: &Value) -> McpConfig {
        let table = self.table("", Some(document), CONFIG);
        McpConfig {
            id: self.id(&table),
            name: self.text(&table, "name").unwrap_or_default(),
            enabled: self.flag(&table, "enabled").unwrap_or(true),
            source: self.source(table.get("source")),
            package: self.package(table.get("package")),
            transport: self.transport(table.get("transport")),
            env_vars: self.variables(table.get("env_vars")),
            config: self.rest(table.get("config")),
        }
    }

    fn id(&mut self, table: &Table<'_>) -> Uuid {
        let Some(text) = self.text(table, "id") else { return Uuid::nil() };
        text.parse().unwrap_or_else(|_malformed| {
            self.fault(table.field("id"), "is no UUID; leave it out to have one assigned");
            Uuid::nil()
        })
    }

    fn source(&mut self, value: Option<&Value>) -> McpSource {
        let Some(value) = value else { return McpSource::default() };
        if value == "manual" {
            return McpSource::Manual;
        }
        let table =
            self.table("source", Some(value), &["type", "name", "version", "qualified_name"]);
        // Looked at whatever the source is, so that what is no text is never taken for something.
        let mut member = |key| (self.text(&table, key), table.field(key));
        let (name, version) = (member("name"), member("version"));
        let qualified_name = member("qualified_name");
        match self.text(&table, "type").as_deref() {
            Some("official") => {
                McpSource::Official { name: self.needed(name), version: self.needed(version) }
            }
            Some("smithery") => McpSource::Smithery { qualified_name: self.needed(qualified_name) },
            Some("manual") => McpSource::Manual,
            Some(_) | None => {
                self.fault(table.field("type"), "must be `official`, `smithery` or `manual`");
                McpSource::Manual
            }
        }
    }

    fn package(&mut self, value: Option<&Value>) -> McpPackage {
        let missing = value.is_none();
        let table = self.table("package", value, PACKAGE);
        if missing {
            self.fault("package.identifier".to_owned(), IDENTIFIER_REQUIRED);
        }
        McpPackage {
            package_type: self.package_type(&table),
            identifier: self.text(&table, "identifier").unwrap_or_default(),
            version: self.text(&table, "version"),
            runtime_hint: self.text(&table, "runtime_hint"),
        }
    }

    fn package_type(&mut self, table: &Table<'_>) -> McpPackageType {
        let word = self.text(table, "package_type");
        let found = KINDS.iter().find(|(known, _)| word.as_deref() == Some(*known));
        match found {
            Some((_, kind)) => *kind,
            None => {
                if table.members.is_some() && !self.has_fault(&table.field("package_type")) {
                    let message = "must be `npm`, `pypi`, `docker`, `binary` or `http`";
                    self.fault(table.field("package_type"), message);
                }
                McpPackageType::Binary
            }
        }
    }

    fn transport(&mut self, value: Option<&Value>) -> McpTransport {
        let Some(value) = value else {
            self.fault("transport".to_owned(), TRANSPORT_REQUIRED);
            return McpTransport::Stdio;
        };
        if value == "stdio" {
            return McpTransport::Stdio;
        }
        if value == "http" {
            return McpTransport::Http { url: String::new() };
        }
        let table = self.table("transport", Some(value), &["type", "url"]);
        let url = self.text(&table, "url").unwrap_or_default();
        match self.text(&table, "type").as_deref() {
            Some("stdio") => McpTransport::Stdio,
            Some("http") => McpTransport::Http { url },
            Some(_) | None => {
                if !self.has_fault("transport") {
                    self.fault(table.field("type"), "must be `stdio` or `http`");
                }
                McpTransport::Stdio
            }
        }
    }

    fn variables(&mut self, value: Option<&Value>) -> BTreeMap<String, EnvVarConfig> {
        let Some(value) = value else { return BTreeMap::new() };
        let Value::Object(members) = value else {
            self.wrong("env_vars".to_owned(), "an object", value);
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
        let table = self.table(&path, Some(value), VARIABLE);
        variable.name = self.text(&table, "name").unwrap_or(variable.name);
        variable.value = self.text(&table, "value");
        variable.secret_ref = self.text(&table, "secret_ref");
        variable.is_secret =
            self.flag(&table, "is_secret").unwrap_or(variable.secret_ref.is_some());
        variable.required = self.flag(&table, "required").unwrap_or(false);
        variable
    }

    fn rest(&mut self, value: Option<&Value>) -> Value {
        match value {
            None => Value::Null,
            Some(Value::Object(members)) if members.is_empty() => Value::Null,
            Some(value @ Value::Object(_)) => value.clone(),
            Some(value) => {
                self.wrong("config".to_owned(), "an object", value);
                Value::Null
            }
        }
    }

    /// An object and its members, after a word about those that nobody knows.
    fn table<'v>(&mut self, path: &str, value: Option<&'v Value>, known: &[&str]) -> Table<'v> {
        let members = match value {
            Some(Value::Object(members)) => Some(members),
            Some(other) => {
                self.wrong(path.to_owned(), "an object", other);
                None
            }
            None => None,
        };
        for key in members.into_iter().flat_map(Map::keys) {
            if !known.contains(&key.as_str()) {
                let message = match nearest(key, known.iter().copied()) {
                    Some(near) => format!("is not a key we know; did you mean `{near}`?"),
                    None => format!("is not a key we know; there is `{}`", known.join("`, `")),
                };
                self.fault(join(path, key), &message);
            }
        }
        Table { path: path.to_owned(), members }
    }

    fn text(&mut self, table: &Table<'_>, key: &str) -> Option<String> {
        match table.get(key)? {
            Value::String(text) => Some(text.clone()),
            other => {
                self.wrong(table.field(key), "text", other);
                None
            }
        }
    }

    fn needed(&mut self, (text, field): (Option<String>, String)) -> String {
        if text.is_none() && !self.has_fault(&field) {
            self.fault(field, "is required for this source");
        }
        text.unwrap_or_default()
    }

    fn flag(&mut self, table: &Table<'_>, key: &str) -> Option<bool> {
        match table.get(key)? {
            Value::Bool(flag) => Some(*flag),
            other => {
                self.wrong(table.field(key), "`true` or `false`", other);
                None
            }
        }
    }

    fn wrong(&mut self, field: String, wanted: &str, found: &Value) {
        self.fault(field, &format!("must be {wanted}, not {}", kind(found)));
    }

    fn has_fault(&self, field: &str) -> bool {
        self.faults.iter().any(|it| it.field.as_deref() == Some(field))
    }

    fn fault(&mut self, field: String, message: &str) {
        let fault = ServiceFault::new(ErrorCode::ValidationError, message);
        self.faults.push(if field.is_empty() { fault } else { fault.at(field) });
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a flag",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(document: Value, expected: &[(&str, &str)]) {
        let faults = match McpConfig::from_json(&document) {
            Ok(_) => Vec::new(),
            Err(error) => error.faults().to_vec(),
        };
        let found: Vec<(&str, &str)> = faults
            .iter()
            .map(|it| (it.field.as_deref().unwrap_or_default(), it.message.as_str()))
            .collect();
        assert_eq!(found, expected);
        assert!(faults.iter().all(|it| it.code == ErrorCode::ValidationError));
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
    fn what_is_missing_is_said_in_the_words_of_the_contract() {
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
    fn every_wrong_member_is_named_with_what_it_takes() {
        check(json!([1]), &[("", "must be an object, not a list")]);
        check(with("name", json!(3)), &[("name", "must be text, not a number")]);
        check(with("enabled", json!("yes")), &[("enabled", "must be `true` or `false`, not text")]);
        check(with("id", json!("7")), &[("id", "is no UUID; leave it out to have one assigned")]);
        check(
            with("packages", json!({})),
            &[("packages", "is not a key we know; did you mean `package`?")],
        );
        check(
            with("package", json!({ "package_type": "gem", "identifier": "x" })),
            &[("package.package_type", "must be `npm`, `pypi`, `docker`, `binary` or `http`")],
        );
        check(with("transport", json!("smoke")), &[("transport", "must be an object, not text")]);
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
                ("env_vars.A.secretref", "is not a key we know; did you mean `secret_ref`?"),
                ("env_vars.B", "must be an object, not a number"),
            ],
        );
    }

    #[test]
    fn a_config_is_what_its_own_json_says() {
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
