//! Conversion between [`McpConfig`] and an entry of the config file.
//!
//! `command` is a binary, `url` an HTTP endpoint, `package` any kind. Settings such as `args` or `timeout` are keys of
//! the entry and members of `McpConfig::config`; so are the settings of a package, in `config.package`. All other
//! members of `config` are free-form: they are kept in the table `config` of the entry.
//!
//! **Invariant:** an entry that is written reads back as the same config.

use serde::Deserialize as _;
use serde_json::{Map, Value, json};
use toolrack_config::{ServerEntry, is_setting};
use uuid::Uuid;

use crate::error::{ErrorCode, ErrorDetail, ServiceError};
use crate::service::{
    EnvVarConfig, McpConfig, McpPackage, McpPackageType, McpSource, McpTransport,
};
use crate::validate;

/// A JSON object: an entry of the file.
pub(crate) type JsonMap = Map<String, Value>;

/// Keys of an entry that have a field in [`McpConfig`].
const CONFIG_FIELDS: [&str; 10] =
    ["name", "id", "enabled", "transport", "command", "url", "package", "env", "source", "config"];
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
    let mut split = SplitConfig::new(&config.config);
    write_package(&mut row, config, &mut split);
    write_rest(&mut row, split);
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

/// Settings, unknown keys of the entry and its package, and the table `config`; null if there are none.
fn read_rest(row: &JsonMap) -> Value {
    let mut rest = JsonMap::new();
    for (key, value) in row.iter().filter(|(key, _)| !CONFIG_FIELDS.contains(&key.as_str())) {
        let value = if is_setting(key) { value.clone() } else { decode(value) };
        rest.insert(key.clone(), value);
    }
    if let Some(package) = row.get("package").and_then(Value::as_object) {
        put(&mut rest, "args", package.get("args").cloned());
        let others = package.iter().filter(|(key, _)| !PACKAGE_FIELDS.contains(&key.as_str()));
        let others: JsonMap = others.map(|(key, value)| (key.clone(), decode(value))).collect();
        put(&mut rest, "package", (!others.is_empty()).then_some(Value::Object(others)));
    }
    match row.get("config").map(decode) {
        Some(Value::Object(free)) => {
            for (key, value) in free {
                match (rest.get_mut(&key), value) {
                    // A setting counts only where it acts; the config reader warns.
                    _ if is_setting(&key) => {}
                    (Some(Value::Object(package)), Value::Object(more)) if key == "package" => {
                        let more = more.into_iter();
                        package.extend(more.filter(|(key, _)| !is_package_setting(key)));
                    }
                    (Some(Value::Object(_)), _) if key == "package" => {}
                    (_, value) => drop(rest.insert(key, value)),
                }
            }
            Value::Object(rest)
        }
        Some(other) if rest.is_empty() => other,
        _ if rest.is_empty() => Value::Null,
        _ => Value::Object(rest),
    }
}

/// `config`, by the places in the entry that hold its members.
#[derive(Default)]
pub(crate) struct SplitConfig {
    /// Keys of the entry that act, such as `timeout`; `args` included.
    pub(crate) settings: JsonMap,
    /// Keys of the package that act.
    pub(crate) package: JsonMap,
    /// Free-form members.
    free: JsonMap,
    /// Free-form members of `package`.
    free_package: JsonMap,
    /// A `config` that is an empty object, or no object.
    other: Option<Value>,
}

impl SplitConfig {
    /// Splits `config`. A setting that is null is absent.
    pub(crate) fn new(config: &Value) -> Self {
        let mut split = Self::default();
        let members = match config {
            Value::Object(members) if !members.is_empty() => members,
            other => {
                split.other = Some(other.clone()).filter(|other| !other.is_null());
                return split;
            }
        };
        for (key, value) in members {
            let (key, value) = (key.clone(), value.clone());
            match value {
                Value::Null if is_setting(&key) => None,
                value if is_setting(&key) => split.settings.insert(key, value),
                Value::Object(package) if key == "package" && !package.is_empty() => {
                    let package = package.into_iter();
                    let (settings, free): (JsonMap, JsonMap) =
                        package.partition(|(key, _)| is_package_setting(key));
                    split.package = settings;
                    split.package.retain(|_, value| !value.is_null());
                    split.free_package = free;
                    None
                }
                value => split.free.insert(key, value),
            };
        }
        split
    }

    /// The free-form part of `config`; null if there is none.
    fn into_free(mut self) -> Value {
        if !self.free_package.is_empty() {
            self.free.insert("package".to_owned(), Value::Object(self.free_package));
        }
        if self.free.is_empty() { self.other.unwrap_or_default() } else { Value::Object(self.free) }
    }

    /// The table `config` of an entry.
    pub(crate) fn into_table(self) -> Option<Value> {
        match self.into_free() {
            Value::Null => None,
            free @ Value::Object(_) => Some(encode(&free)),
            other => Some(json!({ JSON_TEXT: other.to_string() })),
        }
    }
}

fn is_package_setting(key: &str) -> bool {
    matches!(key, "program" | "runtime_args")
}

/// The only key of a table that holds a value as JSON text, because TOML has no such value: null, an integer above
/// `i64::MAX`, or a `config` that is not an object.
const JSON_TEXT: &str = "$json";

/// A free-form value as TOML can hold it.
pub(crate) fn encode(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(encode).collect(),
        Value::Object(members) if !members.contains_key(JSON_TEXT) => {
            members.iter().map(|(key, value)| (key.clone(), encode(value))).collect()
        }
        Value::Number(number) if !number.is_u64() || number.is_i64() => value.clone(),
        Value::Bool(_) | Value::String(_) => value.clone(),
        other => json!({ JSON_TEXT: other.to_string() }),
    }
}

/// Undoes [`encode`].
fn decode(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(decode).collect(),
        Value::Object(members) => {
            let text = members.get(JSON_TEXT).filter(|_| members.len() == 1);
            let value =
                text.and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok());
            value.unwrap_or_else(|| {
                members.iter().map(|(key, value)| (key.clone(), decode(value))).collect()
            })
        }
        other => other.clone(),
    }
}

fn form(row: &JsonMap) -> Option<&'static str> {
    FORMS.into_iter().find(|key| row.contains_key(*key))
}

/// The form of an entry: `package` stays, otherwise the simplest form that can hold the config.
fn wanted_form(config: &McpConfig, settings: &JsonMap, present: Option<&str>) -> &'static str {
    let package = &config.package;
    let is_simple =
        package.version.is_none() && package.runtime_hint.is_none() && settings.is_empty();
    match (package.package_type, &config.transport) {
        _ if present == Some("package") || !is_simple => "package",
        (McpPackageType::Binary, _) => "command",
        (McpPackageType::Http, McpTransport::Http { url }) if *url == package.identifier => "url",
        _ => "package",
    }
}

fn write_package(row: &mut JsonMap, config: &McpConfig, split: &mut SplitConfig) {
    let present = form(row);
    let form = wanted_form(config, &split.package, present);
    let args = split.settings.remove("args");
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
        let package = package_table(config, args, present.unwrap_or_default(), split);
        row.insert("package".to_owned(), Value::Object(package));
    } else {
        row.insert(form.to_owned(), json!(config.package.identifier));
        put(row, "args", args);
    }
}

fn package_table(
    config: &McpConfig,
    args: Option<Value>,
    present: JsonMap,
    split: &mut SplitConfig,
) -> JsonMap {
    let package = &config.package;
    let mut table = present;
    let has_field = |key: &str| PACKAGE_FIELDS.contains(&key);
    table.retain(|key, _| !is_package_setting(key));
    keep_unknown(&mut table, has_field, &mut split.free_package);
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
    table.extend(split.package.clone());
    table
}

/// Keeps unknown keys of a table that are in `free`, where they are; removes the others.
fn keep_unknown(table: &mut JsonMap, is_known: impl Fn(&str) -> bool, free: &mut JsonMap) {
    table.retain(|key, value| {
        if is_known(key) {
            return true;
        }
        let new = free.remove(key);
        // A value that does not change keeps its form.
        if let Some(new) = new.as_ref().filter(|new| decode(value) != **new) {
            *value = encode(new);
        }
        new.is_some()
    });
}

/// Writes settings, and free-form keys: those that stand in the entry itself stay there, the others go to `config`.
fn write_rest(row: &mut JsonMap, mut split: SplitConfig) {
    let has_field = |key: &str| CONFIG_FIELDS.contains(&key) || key == "args";
    row.retain(|key, _| has_field(key) || !is_setting(key));
    keep_unknown(row, has_field, &mut split.free);
    let settings = std::mem::take(&mut split.settings);
    let present = row.remove("config").unwrap_or_default();
    let mut kept = present.as_object().cloned().unwrap_or_default();
    kept.retain(|key, _| is_setting(key));
    let table = match split.into_table() {
        // A value that is no object cannot hold settings, and is not lost for one.
        None if !settings.is_empty() && !decode(&present).is_object() => Some(present),
        Some(table) if table.get(JSON_TEXT).is_some() => Some(table),
        // A hand-written setting in `config` has no effect, and stays.
        Some(Value::Object(table)) => Some(table.into_iter().chain(kept).collect()),
        _ => (!kept.is_empty()).then_some(Value::Object(kept)),
    };
    let table = table.filter(|table| !table.is_null());
    put(row, "config", table);
    row.extend(settings);
}

pub(crate) fn put(row: &mut JsonMap, key: &str, value: Option<Value>) {
    match value {
        Some(value) => row.insert(key.to_owned(), value),
        None => row.remove(key),
    };
}

/// Size limit of the free-form part of `config`, as JSON.
const MAX_FREE_BYTES: usize = 64 << 10;
/// Nesting limit of the free-form part of `config`: well below that of TOML parsers.
const MAX_FREE_DEPTH: usize = 32;

/// Every setting in `config` that has no TOML value, and free-form values that are too large.
pub(crate) fn check_rest(config: &Value) -> Vec<ErrorDetail> {
    let mut details = Vec::new();
    let mut report = |field: String, message: &str| {
        details.push(ErrorDetail::new(ErrorCode::ValidationError, message).with_field(field));
    };
    let split = SplitConfig::new(config);
    for (key, value) in &split.settings {
        check_representable(&format!("config.{key}"), value, &mut report);
    }
    for (key, value) in &split.package {
        check_representable(&format!("config.package.{key}"), value, &mut report);
    }
    let free = split.into_free();
    if depth(&free) > MAX_FREE_DEPTH {
        report("config".to_owned(), "is nested more than 32 levels deep; keep such data in a file");
    } else if free.to_string().len() > MAX_FREE_BYTES {
        report("config".to_owned(), "is longer than 64 KiB; keep large data in a file");
    }
    details
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
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
