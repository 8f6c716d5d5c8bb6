//! Conversion between [`McpConfig`] and an entry of the config file.
//!
//! `command` is a binary, `url` an HTTP endpoint, `package` any kind. Arguments are always `config.args`, further keys
//! of a package are in `config.package`, and all other keys of the entry in `config`.
//!
//! **Invariant:** an entry that is written reads back as the same config.

use serde::Deserialize as _;
use serde_json::{Map, Value, json};
use toolrack_config::ServerEntry;
use uuid::Uuid;

use crate::error::{ErrorCode, ErrorDetail, ServiceError};
use crate::service::{
    EnvVarConfig, McpConfig, McpPackage, McpPackageType, McpSource, McpTransport,
};
use crate::validate;

/// A JSON object: an entry of the file.
pub(crate) type JsonMap = Map<String, Value>;

/// Keys of an entry that have a field in [`McpConfig`].
const CONFIG_FIELDS: [&str; 9] =
    ["name", "id", "enabled", "transport", "command", "url", "package", "env", "source"];
/// Keys of a package that have a field, and `args`, which is `config.args`.
const PACKAGE_FIELDS: [&str; 6] = ["type", "identifier", "version", "runtime_hint", "url", "args"];

/// The keys that name the server of an entry. If it has several, the first counts.
const FORMS: [&str; 3] = ["package", "command", "url"];

/// Reads an entry. The id is nil if it has none.
pub(crate) fn read(row: &JsonMap) -> McpConfig {
    let text = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default();
    let (package, transport) = read_package(row);
    let source = row.get("source").and_then(|source| McpSource::deserialize(source).ok());
    let env = row.get("env").and_then(Value::as_object).into_iter().flatten();
    McpConfig {
        id: Uuid::parse_str(text("id")).unwrap_or_default(),
        name: text("name").to_owned(),
        enabled: row.get("enabled").and_then(Value::as_bool).unwrap_or(true),
        source: source.unwrap_or_default(),
        package,
        transport,
        env_vars: env.map(|(name, value)| (name.clone(), read_variable(name, value))).collect(),
        config: read_rest(row),
    }
}

/// Writes a config as an entry, keeping the form of `present` where it can hold the config.
///
/// # Errors
///
/// Everything that an entry cannot represent.
pub(crate) fn write(config: &McpConfig, present: &JsonMap) -> Result<JsonMap, ServiceError> {
    let mut details = check_rest(&config.config);
    details.extend(validate::check_transport(config));
    ServiceError::if_any(details)?;
    let old = read(present);
    let mut row = present.clone();
    row.insert("name".to_owned(), json!(config.name));
    // Always: from the first change on, the entry keeps its id even if it is renamed by hand.
    row.insert("id".to_owned(), json!(config.id));
    // Unchanged values keep their form, such as an explicit `enabled = true`.
    if config.enabled != old.enabled {
        put(&mut row, "enabled", (!config.enabled).then_some(json!(false)));
    }
    if config.source != old.source {
        let source = (config.source != McpSource::Manual).then(|| json!(config.source));
        put(&mut row, "source", source);
    }
    if config.env_vars != old.env_vars {
        let present = row.get("env").and_then(Value::as_object).cloned().unwrap_or_default();
        // Variables that do not change keep their form.
        let variable = |(name, variable): (&String, &EnvVarConfig)| {
            let value = present.get(name).filter(|value| read_variable(name, value) == *variable);
            (name.clone(), value.cloned().unwrap_or_else(|| write_variable(variable)))
        };
        let env: JsonMap = config.env_vars.iter().map(variable).collect();
        put(&mut row, "env", (!env.is_empty()).then_some(Value::Object(env)));
    }
    write_package(&mut row, config);
    write_rest(&mut row, config);
    Ok(row)
}

fn read_package(row: &JsonMap) -> (McpPackage, McpTransport) {
    let text =
        |table: &JsonMap, key: &str| table.get(key).and_then(Value::as_str).map(str::to_owned);
    let nothing = JsonMap::new();
    let table = row.get("package").and_then(Value::as_object).unwrap_or(&nothing);
    let (package_type, identifier) = match form(row) {
        Some("package") => {
            let kind = table.get("type").and_then(|kind| McpPackageType::deserialize(kind).ok());
            (kind.unwrap_or(McpPackageType::Binary), text(table, "identifier"))
        }
        Some("url") => (McpPackageType::Http, text(row, "url")),
        _ => (McpPackageType::Binary, text(row, "command")),
    };
    let package = McpPackage {
        package_type,
        identifier: identifier.unwrap_or_default(),
        version: text(table, "version"),
        runtime_hint: text(table, "runtime_hint"),
    };
    let transport = match package_type {
        McpPackageType::Http => {
            let url = text(table, "url").unwrap_or_else(|| package.identifier.clone());
            McpTransport::Http { url }
        }
        _ => McpTransport::Stdio,
    };
    (package, transport)
}

/// All keys without a field of their own; null if there are none.
fn read_rest(row: &JsonMap) -> Value {
    let mut rest: JsonMap = JsonMap::new();
    for (key, value) in row.iter().filter(|(key, _)| !CONFIG_FIELDS.contains(&key.as_str())) {
        rest.insert(key.clone(), value.clone());
    }
    if let Some(package) = row.get("package").and_then(Value::as_object) {
        put(&mut rest, "args", package.get("args").cloned());
        let others = package.iter().filter(|(key, _)| !PACKAGE_FIELDS.contains(&key.as_str()));
        let others: JsonMap = others.map(|(key, value)| (key.clone(), value.clone())).collect();
        put(&mut rest, "package", (!others.is_empty()).then_some(Value::Object(others)));
    }
    if rest.is_empty() { Value::Null } else { Value::Object(rest) }
}

fn form(row: &JsonMap) -> Option<&'static str> {
    FORMS.into_iter().find(|key| row.contains_key(*key))
}

/// The form of an entry: `package` stays, otherwise the simplest form that can hold the config.
fn wanted_form(config: &McpConfig, present: Option<&str>) -> &'static str {
    let package = &config.package;
    let more = rest(config).get("package").is_some_and(|package| !package.is_null());
    let is_simple = package.version.is_none() && package.runtime_hint.is_none() && !more;
    match (package.package_type, &config.transport) {
        _ if present == Some("package") || !is_simple => "package",
        (McpPackageType::Binary, _) => "command",
        (McpPackageType::Http, McpTransport::Http { url }) if *url == package.identifier => "url",
        _ => "package",
    }
}

fn write_package(row: &mut JsonMap, config: &McpConfig) {
    let present = form(row);
    let form = wanted_form(config, present);
    let args = rest(config).get("args").filter(|args| !args.is_null()).cloned();
    // Another form has other keys; a rest of the old one would make the entry ambiguous.
    if present != Some(form) {
        for key in FORMS.into_iter().chain(["args", "transport"]) {
            row.remove(key);
        }
        let transport = match form {
            "command" => Some(json!("stdio")),
            "url" => Some(json!("http")),
            _ => None,
        };
        put(row, "transport", transport);
    }
    if form == "package" {
        // The old entry may name a transport that does not fit the new package type.
        if read_package(row).0.package_type != config.package.package_type {
            row.remove("transport");
        }
        let present = row.get("package").and_then(Value::as_object).cloned();
        let package = package_table(config, args, present.unwrap_or_default());
        row.insert("package".to_owned(), Value::Object(package));
    } else {
        row.insert(form.to_owned(), json!(config.package.identifier));
        put(row, "args", args);
    }
}

fn package_table(config: &McpConfig, args: Option<Value>, present: JsonMap) -> JsonMap {
    let package = &config.package;
    let mut table = present;
    table.retain(|key, _| PACKAGE_FIELDS.contains(&key.as_str()));
    table.insert("type".to_owned(), json!(package.package_type));
    table.insert("identifier".to_owned(), json!(package.identifier));
    put(&mut table, "version", package.version.as_ref().map(|version| json!(version)));
    put(&mut table, "runtime_hint", package.runtime_hint.as_ref().map(|hint| json!(hint)));
    let url = match &config.transport {
        McpTransport::Http { url } if *url != package.identifier => Some(json!(url)),
        _ => None,
    };
    put(&mut table, "url", url);
    put(&mut table, "args", args);
    if let Some(more) = rest(config).get("package").and_then(Value::as_object) {
        table.extend(more.clone());
    }
    table
}

fn write_rest(row: &mut JsonMap, config: &McpConfig) {
    let rest = rest(config);
    let has_field = |key: &String| CONFIG_FIELDS.contains(&key.as_str()) || key == "args";
    row.retain(|key, _| has_field(key) || rest.contains_key(key));
    for (key, value) in rest.iter().filter(|(key, _)| !has_field(key)) {
        put(row, key, (!value.is_null()).then(|| value.clone()));
    }
}

fn rest(config: &McpConfig) -> JsonMap {
    config.config.as_object().cloned().unwrap_or_default()
}

pub(crate) fn put(row: &mut JsonMap, key: &str, value: Option<Value>) {
    match value {
        Some(value) => row.insert(key.to_owned(), value),
        None => row.remove(key),
    };
}

/// Every key of `config` that belongs elsewhere or has no TOML value.
pub(crate) fn check_rest(rest: &Value) -> Vec<ErrorDetail> {
    let mut details = Vec::new();
    let mut report = |field: String, message: &str| {
        details.push(ErrorDetail::new(ErrorCode::ValidationError, message).with_field(field));
    };
    let own = "belongs in its own field, not in `config`";
    match rest {
        Value::Null => {}
        Value::Object(rest) => {
            for (key, value) in rest.iter().filter(|(_, value)| !value.is_null()) {
                let field = format!("config.{key}");
                match (key.as_str(), value) {
                    ("package", Value::Object(more)) => {
                        for (key, value) in more {
                            let field = format!("{field}.{key}");
                            if PACKAGE_FIELDS.contains(&key.as_str()) {
                                report(field, own);
                            } else {
                                check_representable(&field, value, &mut report);
                            }
                        }
                    }
                    ("package", _) => report(field, "must be an object"),
                    (key, _) if CONFIG_FIELDS.contains(&key) => report(field, own),
                    (_, value) => check_representable(&field, value, &mut report),
                }
            }
        }
        _ => report("config".to_owned(), "must be an object"),
    }
    details
}

/// Reports values that TOML cannot represent.
fn check_representable(field: &str, value: &Value, report: &mut impl FnMut(String, &str)) {
    match value {
        Value::Null => report(field.to_owned(), "must not be null; leave it out"),
        Value::Number(number) if number.is_u64() && number.as_i64().is_none() => {
            report(field.to_owned(), "is too large a number for TOML");
        }
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                check_representable(&format!("{field}[{n}]"), item, report);
            }
        }
        Value::Object(row) => {
            for (key, value) in row {
                check_representable(&format!("{field}.{key}"), value, report);
            }
        }
        _ => {}
    }
}

/// Reads a variable: `NAME = "text"`, `NAME = { secret_ref = "…" }`, or a table with flags.
fn read_variable(name: &str, value: &Value) -> EnvVarConfig {
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let flag = |key: &str| value.get(key).and_then(Value::as_bool);
    let secret_ref = text("secret_ref");
    let own_value = value.as_str().map(str::to_owned).or_else(|| text("value"));
    EnvVarConfig {
        name: name.to_owned(),
        is_secret: secret_ref.is_some() || flag("secret").unwrap_or(false),
        // A secret reference is required unless the file says otherwise.
        required: flag("required").unwrap_or(value.is_object() && own_value.is_none()),
        value: own_value,
        secret_ref,
    }
}

fn write_variable(config: &EnvVarConfig) -> Value {
    let EnvVarConfig { name: _, value, secret_ref, is_secret, required } = config;
    if let (Some(value), None, false, false) = (value, secret_ref, is_secret, required) {
        return json!(value);
    }
    let mut table = JsonMap::new();
    put(&mut table, "secret_ref", secret_ref.as_ref().map(|name| json!(name)));
    put(&mut table, "value", value.as_ref().map(|value| json!(value)));
    put(&mut table, "secret", (*is_secret && secret_ref.is_none()).then_some(json!(true)));
    let is_stated = *required || secret_ref.is_some() || value.is_none();
    put(&mut table, "required", is_stated.then_some(json!(required)));
    Value::Object(table)
}

impl McpConfig {
    /// Reads an entry of `toolrack.toml` with every key as written; converts any other.
    pub(crate) fn from_written(entry: &ServerEntry) -> Self {
        read(&entry.origin.table().unwrap_or_else(|| entry.to_table()))
    }

    /// Converts an entry of any supported config file. The id is nil.
    pub fn from_entry(entry: &ServerEntry) -> Self {
        read(&entry.to_table())
    }
}

#[cfg(test)]
mod tests {
    use toolrack_config::{Dialect, read_as};

    use super::*;
    use crate::document::{ConfigScope, Document};

    /// Writes an entry and reads it again.
    #[track_caller]
    fn check(entry: &str) {
        let (file, _) = read_as(Dialect::Toolrack, "", entry).accept().unwrap();
        let read = &file.defaults[0];
        let mut document = Document::parse("", "").unwrap();
        document.add(&ConfigScope::Defaults, &McpConfig::from_entry(read)).unwrap();
        let (again, warnings) = read_as(Dialect::Toolrack, "", &document.text()).accept().unwrap();
        assert_eq!(warnings, []);
        let again = ServerEntry { id: None, ..again.defaults[0].clone() };
        assert_eq!(again, *read, "{}", document.text());
    }

    #[test]
    fn entry_round_trips() {
        check(
            r#"
            [[defaults.mcp]]
            name = "a"
            transport = "stdio"
            command = "npx"
            args = ["-y", "x"]
            cwd = "/srv"
            env = { A = "1", T = { secret_ref = "t", required = false } }
            enabled = false
            timeout = "1500ms"
            max_timeout = "90s"
            startup_timeout = "5s"
            start = "lazy"
            idle = "10m"
            max_output_bytes = 1000
            allow = ["a*"]
            deny = ["b"]
            repeatable = ["c"]
            inherit_env = true
            pin = true
            sandbox = { read = ["/a"], write = ["/b"], net = false }
            "#,
        );
        check(
            r#"
            [[defaults.mcp]]
            name = "b"
            transport = "http"
            url = "https://host/mcp"
            headers = { Authorization = "Bearer ${TOKEN}", B = "2" }
            idle = "never"
            "#,
        );
        check(
            r#"
            [[defaults.mcp]]
            name = "c"
            package = { type = "docker", identifier = "a/b", version = "1", args = ["x"], runtime_args = ["--rm"] }
            env = { A = "1" }
            "#,
        );
        check(
            r#"
            [[defaults.mcp]]
            name = "d"
            package = { type = "npm", identifier = "@a/b", program = "b" }
            "#,
        );
    }
}
