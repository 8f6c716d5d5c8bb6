//! Config validation, and `McpConfig` from JSON: all errors at once, each with its field in the caller's document.
//!
//! Both go through a table of the config file, so that all three have the same types, keys and rules.
//!
//! **Invariant:** an error in one member does not keep the others from being read, and no message repeats a value that
//! may be a secret.

use serde_json::{Value, json};
use toolrack_config::{Diagnostic, DiagnosticKind, Severity, join, suggest};
use toolrack_transport::sanitize_line;
use uuid::Uuid;

use crate::document::entry::{self, JsonMap, SplitConfig, put};
use crate::error::{ErrorCode, ErrorDetail, ServiceError};
use crate::service::{McpConfig, McpPackageType, McpTransport};

// The messages of spec 004, word for word.
const NAME_REQUIRED: &str = "Name is required";
const IDENTIFIER_REQUIRED: &str = "Package identifier required";
const TRANSPORT_REQUIRED: &str = "Transport required";
pub(crate) const CREDENTIALS_MISSING: &str = "Missing required credentials";

/// The manager connects to what it starts over stdio only.
const PROGRAM_OVER_HTTP: &str = "is `http`, but the package is a program, which is connected over stdio; use `stdio`, or \
    start the program yourself and use a package of type `http` with its URL";

/// Validates a config without looking at anything else, such as stored secrets.
///
/// # Errors
///
/// All errors.
pub fn validate(config: &McpConfig) -> Result<(), ServiceError> {
    ServiceError::if_any(find_errors(config))
}

/// All errors of a config.
pub(crate) fn find_errors(config: &McpConfig) -> Vec<ErrorDetail> {
    match entry::write(config, &JsonMap::new()) {
        Ok(row) => find_table_errors(&row, config),
        Err(error) => merge(check_fields(config), error.details().to_vec()),
    }
}

/// All errors of a config that was written as a table of the config file.
fn find_table_errors(row: &JsonMap, config: &McpConfig) -> Vec<ErrorDetail> {
    let diagnostics = toolrack_config::read_server(row).diagnostics.into_iter();
    // A field of the wrong type is empty in `config`, and its own error is closer to the cause.
    let (wrong_types, others): (Vec<_>, Vec<_>) =
        diagnostics.partition(|diagnostic| diagnostic.kind == DiagnosticKind::WrongType);
    let translated = |diagnostics: Vec<Diagnostic>| {
        let each = diagnostics.into_iter();
        each.filter_map(|diagnostic| translate(diagnostic, config)).collect()
    };
    merge(translated(wrong_types), merge(check_fields(config), translated(others)))
}

/// Adds errors in other fields: one error per field is enough, and the first is closest to the cause.
fn merge(mut first: Vec<ErrorDetail>, mut more: Vec<ErrorDetail>) -> Vec<ErrorDetail> {
    more.retain(|detail| !first.iter().any(|earlier| overlaps(earlier, detail)));
    first.append(&mut more);
    first
}

/// Whether one field contains the other.
fn overlaps(left: &ErrorDetail, right: &ErrorDetail) -> bool {
    let (Some(left), Some(right)) = (&left.field, &right.field) else { return false };
    let (short, long) = if left.len() < right.len() { (left, right) } else { (right, left) };
    long.strip_prefix(short.as_str())
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Errors for required secrets that are not stored. An error of `is_stored` is reported too.
pub(crate) fn missing_secrets(
    config: &McpConfig,
    is_stored: impl Fn(&str) -> Result<bool, ServiceError>,
) -> Vec<ErrorDetail> {
    let mut details = Vec::new();
    for (name, variable) in &config.env_vars {
        let Some(secret) = &variable.secret_ref else { continue };
        let field = join(&join("env_vars", name), "secret_ref");
        match is_stored(secret) {
            Ok(false) if variable.required => {
                let hint = format!("store it with `toolrack secret set {secret}`");
                details.push(invalid(field, CREDENTIALS_MISSING).with_hint(hint));
            }
            Ok(_) => {}
            Err(error) => details.extend(error.with_field(&field).details().iter().cloned()),
        }
    }
    details
}

/// The rules of spec 004, and those between package and transport, which the config file does not have.
fn check_fields(config: &McpConfig) -> Vec<ErrorDetail> {
    let mut details = Vec::new();
    if config.name.trim().is_empty() {
        details.push(invalid("name", NAME_REQUIRED));
    } else if sanitize_line(&config.name, usize::MAX) != config.name {
        // It could be taken for another name.
        let message = "contains control, invisible or direction-changing characters";
        details.push(invalid("name", message).with_hint("use visible characters only"));
    }
    if config.package.identifier.trim().is_empty() {
        details.push(invalid("package.identifier", IDENTIFIER_REQUIRED));
    }
    details.extend(check_transport(config));
    for (name, variable) in &config.env_vars {
        let path = join("env_vars", name);
        let has_value = variable.secret_ref.is_some()
            || variable.value.as_deref().is_some_and(|value| !value.is_empty());
        if variable.name != *name {
            details.push(invalid(join(&path, "name"), "differs from its key"));
        }
        if variable.required && !has_value {
            let hint = format!("set `{path}.value` or `{path}.secret_ref`");
            details.push(invalid(path, CREDENTIALS_MISSING).with_hint(hint));
        }
    }
    details
}

/// Checks that the transport fits the package.
pub(crate) fn check_transport(config: &McpConfig) -> Option<ErrorDetail> {
    let is_endpoint = config.package.package_type == McpPackageType::Http;
    let (field, message) = match &config.transport {
        McpTransport::Stdio if is_endpoint => (
            "transport",
            "is `stdio`, but the package is an HTTP endpoint; use `http` with its URL",
        ),
        McpTransport::Http { .. } if !is_endpoint => ("transport", PROGRAM_OVER_HTTP),
        McpTransport::Http { url } if url.trim().is_empty() => {
            ("transport.url", "is required for `http`, as in `https://example.com/mcp`")
        }
        McpTransport::Stdio | McpTransport::Http { .. } => return None,
    };
    Some(invalid(field, message))
}

/// A diagnostic of the entry as an error of the config; `None` if the config can be used all the same.
fn translate(diagnostic: Diagnostic, config: &McpConfig) -> Option<ErrorDetail> {
    let is_unknown = diagnostic.kind == DiagnosticKind::UnknownKey;
    if diagnostic.severity == Severity::Warning && !is_unknown {
        return None;
    }
    let message = match (is_unknown, &diagnostic.suggestion) {
        (true, Some(near)) => format!("is not a known key; did you mean `{near}`?"),
        (true, None) => "is not a known key".to_owned(),
        (false, _) => diagnostic.message.clone(),
    };
    let code = match diagnostic.kind {
        DiagnosticKind::Duplicate => ErrorCode::Conflict,
        _ => ErrorCode::ValidationError,
    };
    let field = config_field(&diagnostic.field, config);
    Some(ErrorDetail::new(code, message).with_field(field))
}

/// The field of the caller's document for a field of the config file's entry.
fn config_field(field: &str, config: &McpConfig) -> String {
    let end = field.find(['.', '[']).unwrap_or(field.len());
    let (head, tail) = field.split_at(end);
    let is_http = matches!(config.transport, McpTransport::Http { .. });
    match head {
        "name" | "id" | "enabled" | "source" | "transport" => field.to_owned(),
        "command" => format!("package.identifier{tail}"),
        "url" => format!("transport.url{tail}"),
        "package" => match tail {
            ".url" => "transport.url".to_owned(),
            ".identifier" if is_http => "transport.url".to_owned(),
            ".type" => "package.package_type".to_owned(),
            "" | ".identifier" | ".version" | ".runtime_hint" => field.to_owned(),
            _ if tail.starts_with(".args") => format!("config{tail}"),
            _ => format!("config.{field}"),
        },
        "env" => variable_field(tail, config),
        _ => format!("config.{field}"),
    }
}

fn variable_field(tail: &str, config: &McpConfig) -> String {
    let found =
    // `tail` is the name after a dot, quoted as `join` quotes it.
        config.env_vars.iter().find(|(name, _)| tail == join(".", name).replacen("..", ".", 1));
    match found {
        Some((name, _)) if name.contains(['=', '\0']) => format!("env_vars{tail}"),
        Some((_, variable)) if variable.secret_ref.is_some() => {
            format!("env_vars{tail}.secret_ref")
        }
        Some((_, variable)) if variable.value.is_some() => format!("env_vars{tail}.value"),
        _ => format!("env_vars{tail}"),
    }
}

/// A validation error. An empty field is the whole document.
pub(crate) fn invalid(field: impl Into<String>, message: &str) -> ErrorDetail {
    let (field, detail) = (field.into(), ErrorDetail::new(ErrorCode::ValidationError, message));
    if field.is_empty() { detail } else { detail.with_field(field) }
}

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
        let more = find_table_errors(&row, &config);
        ServiceError::if_any(merge(reader.details, more))?;
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
        let mut split = SplitConfig::new(rest);
        let mut row = std::mem::take(&mut split.settings);
        let mut package = std::mem::take(&mut split.package);
        put(&mut row, "config", split.into_table());
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
        let value = get(&given, "value");
        let value = value.map(|value| self.secret_text(&join(&path, "value"), value));
        put(&mut table, "value", value);
        put(&mut table, "secret_ref", get(&given, "secret_ref").cloned());
        put(&mut table, "secret", get(&given, "is_secret").cloned());
        // In the file, a variable without a value is required unless it says otherwise.
        put(&mut table, "required", get(&given, "required").cloned().or(Some(json!(false))));
        Value::Object(table)
    }

    /// A value that may be a secret. The config reader quotes numbers in its messages, so they are reported here.
    fn secret_text(&mut self, path: &str, value: &Value) -> Value {
        if !(value.is_number() || value.is_boolean()) {
            return value.clone();
        }
        self.details.push(invalid(path, &format!("must be a string, not {}", type_name(value))));
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
fn get<'v>(object: &'v JsonMap, key: &str) -> Option<&'v Value> {
    object.get(key).filter(|value| !value.is_null())
}

fn wrong_type(path: &str, value: &Value) -> ErrorDetail {
    invalid(path, &format!("must be an object, not {}", type_name(value)))
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
    use super::*;

    fn config(change: Value) -> McpConfig {
        let mut document = json!({
            "name": "demo",
            "package": { "package_type": "npm", "identifier": "@a/b" },
            "transport": { "type": "stdio" },
        });
        if let (Some(members), Value::Object(change)) = (document.as_object_mut(), change) {
            members.extend(change);
        }
        serde_json::from_value(document).unwrap()
    }

    #[track_caller]
    fn check(change: Value, expected: &[(&str, &str)]) {
        let details = find_errors(&config(change));
        let found: Vec<(&str, &str)> = details
            .iter()
            .map(|detail| (detail.field.as_deref().unwrap_or_default(), detail.message.as_str()))
            .collect();
        assert_eq!(found, expected);
        assert!(
            details.iter().all(|detail| detail.code == ErrorCode::ValidationError),
            "{details:?}"
        );
    }

    fn endpoint(url: &str) -> Value {
        json!({
            "package": { "package_type": "http", "identifier": url },
            "transport": { "type": "http", "url": url },
        })
    }

    fn variable(variable: Value) -> Value {
        let mut variable = variable;
        variable["name"] = json!("TOKEN");
        json!({ "env_vars": { "TOKEN": variable } })
    }

    /// Spec 004, validation rules, word for word.
    #[test]
    fn rules_match_spec_004() {
        check(json!({}), &[]);
        check(json!({ "name": "  " }), &[("name", "Name is required")]);
        check(
            json!({ "package": { "package_type": "npm", "identifier": " " } }),
            &[("package.identifier", "Package identifier required")],
        );
        check(
            variable(json!({ "required": true })),
            &[("env_vars.TOKEN", "Missing required credentials")],
        );
        check(
            variable(json!({ "required": true, "value": "" })),
            &[("env_vars.TOKEN", "Missing required credentials")],
        );
        check(variable(json!({ "required": true, "secret_ref": "x" })), &[]);
        let required = config(variable(json!({ "required": true, "secret_ref": "x" })));
        let missing = missing_secrets(&required, |_| Ok(false));
        let field = missing.first().and_then(|detail| detail.field.as_deref());
        assert_eq!(field, Some("env_vars.TOKEN.secret_ref"));
        let optional = config(variable(json!({ "secret_ref": "x" })));
        assert_eq!(missing_secrets(&optional, |_| Ok(false)), []);
    }

    #[test]
    fn all_errors_are_reported_at_once() {
        check(
            json!({
                "name": "",
                "transport": { "type": "http", "url": "https://example.com" },
                "env_vars": { "A": { "name": "B" } },
            }),
            &[
                ("name", "Name is required"),
                ("transport", PROGRAM_OVER_HTTP),
                ("env_vars.A.name", "differs from its key"),
            ],
        );
    }

    #[test]
    fn transport_must_fit_the_package() {
        check(endpoint("https://example.com/mcp"), &[]);
        check(
            json!({ "package": { "package_type": "http", "identifier": "https://x" } }),
            &[(
                "transport",
                "is `stdio`, but the package is an HTTP endpoint; use `http` with its URL",
            )],
        );
        check(
            json!({
                "package": { "package_type": "http", "identifier": "x" },
                "transport": { "type": "http", "url": "" },
            }),
            &[("transport.url", "is required for `http`, as in `https://example.com/mcp`")],
        );
        check(
            endpoint("example.com"),
            &[(
                "transport.url",
                "is not a valid URL; write the full URL, such as `https://example.com/mcp`",
            )],
        );
        check(
            variable(json!({ "value": "a", "secret_ref": "b" })),
            &[(
                "env_vars.TOKEN.secret_ref",
                "has both `secret_ref` and `value`; remove one of them",
            )],
        );
        check(
            json!({ "env_vars": { "A=B": { "name": "A=B", "value": "x" } } }),
            &[(
                "env_vars.A=B",
                "is not a valid variable name; it must not be empty or contain `=`",
            )],
        );
    }

    #[test]
    fn config_diagnostics_refer_to_the_callers_fields() {
        check(
            json!({ "config": { "timeout": "5 parsecs", "deny": "x", "args": [1] } }),
            &[
                ("config.args[0]", "must be a string; write `\"1\"`, not an integer"),
                ("config.deny", "must be a list of strings, not a string"),
                (
                    "config.timeout",
                    "is not a valid duration; write a number and `ms`, `s`, `m`, `h` or `d`, as in `90s`",
                ),
            ],
        );
        check(
            json!({ "name": "a/b" }),
            &[("name", "must not contain slashes or control characters")],
        );
        check(json!({ "name": "toolrack" }), &[("name", "is reserved; choose another name")]);
        check(
            variable(json!({ "value": "a\0b" })),
            &[("env_vars.TOKEN.value", "must not contain the NUL character")],
        );
    }

    #[test]
    fn runtime_hint_must_fit_the_package() {
        let hint = |package_type: &str, hint: &str| {
            let identifier = if package_type == "http" { "https://host/mcp" } else { "x" };
            let package = json!({ "package_type": package_type, "identifier": identifier, "runtime_hint": hint });
            let mut change = endpoint("https://host/mcp");
            if package_type != "http" {
                change["transport"] = json!({ "type": "stdio" });
            }
            change["package"] = package;
            change
        };
        for kind in McpPackageType::ALL {
            kind.runners().iter().for_each(|runner| check(hint(kind.as_str(), runner), &[]));
        }
        let field = "package.runtime_hint";
        let known = "`yarn` is not one of `npx`, `bunx`, `pnpm`, `uvx`, `pipx`, `docker`, `podman`";
        check(hint("npm", "yarn"), &[(field, known)]);
        let other = "`uvx` does not run `npm` packages; use one of `npx`, `bunx`, `pnpm`";
        check(hint("npm", "uvx"), &[(field, other)]);
        let none = "`npx` has no effect on a `binary` package; remove it";
        check(hint("binary", "npx"), &[(field, none)]);
        let none = "`npx` has no effect on a `http` package; remove it";
        check(hint("http", "npx"), &[(field, none)]);
    }

    #[test]
    fn config_is_free_form_and_bounded() {
        check(
            json!({ "config": { "theme": "dark", "url": 1, "package": "x", "nothing": null } }),
            &[],
        );
        check(json!({ "config": ["no", "object"] }), &[]);
        check(
            json!({ "config": { "deny": ["a", null] } }),
            &[("config.deny[1]", "must not be null; leave it out")],
        );
        let large = json!({ "config": { "data": "x".repeat(64 << 10) } });
        check(large, &[("config", "is longer than 64 KiB; keep large data in a file")]);
        let nested = |n_levels: usize| (0..n_levels).fold(json!(1), |inner, _| json!([inner]));
        check(json!({ "config": { "data": nested(31) } }), &[]);
        let deep = "is nested more than 32 levels deep; keep such data in a file";
        check(json!({ "config": { "data": nested(32) } }), &[("config", deep)]);
    }
}

#[cfg(test)]
mod json_tests {
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
            "config": { "args": ["x"], "timeout": "5s", "theirs": { "a": [null, 1.5] }, "package": { "program": "b", "note": 1 } },
        });
        let config = McpConfig::from_json(&document).unwrap();
        assert_eq!(serde_json::to_value(&config).unwrap(), document);
        let short = with("env_vars", json!({ "A": "1", "B": { "secret_ref": "b" } }));
        let config = McpConfig::from_json(&short).unwrap();
        assert_eq!(config.env_vars["A"].value.as_deref(), Some("1"));
        assert!(config.env_vars["B"].is_secret && config.env_vars["B"].name == "B");
    }
}
