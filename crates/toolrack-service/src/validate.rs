//! Config validation: all errors at once, each with its field in the caller's document.
//!
//! **Invariant:** no message repeats a value, because it may be a secret.

use toolrack_config::{Diagnostic, DiagnosticKind, Severity, join};

use crate::document::entry::{self, JsonMap};
use crate::error::{ErrorCode, ErrorDetail, ServiceError};
use crate::service::{McpConfig, McpPackageType, McpTransport};

// The messages of spec 004, word for word.
pub(crate) const NAME_REQUIRED: &str = "Name is required";
pub(crate) const IDENTIFIER_REQUIRED: &str = "Package identifier required";
pub(crate) const TRANSPORT_REQUIRED: &str = "Transport required";
pub(crate) const CREDENTIALS_MISSING: &str = "Missing required credentials";

/// Validates a config without looking at anything else, such as stored secrets.
///
/// # Errors
///
/// All errors.
pub fn validate(config: &McpConfig) -> Result<(), ServiceError> {
    ServiceError::if_any(find_errors(config, None))
}

/// All errors of a config. An unknown key that was there `before` is not an error: it stays, as in the file.
pub(crate) fn find_errors(config: &McpConfig, before: Option<&McpConfig>) -> Vec<ErrorDetail> {
    match entry::write(config, &JsonMap::new()) {
        Ok(row) => find_table_errors(&row, config, before),
        Err(error) => merge(check_fields(config), error.details().to_vec()),
    }
}

/// All errors of a config that was written as a table of the config file.
pub(crate) fn find_table_errors(
    row: &JsonMap,
    config: &McpConfig,
    before: Option<&McpConfig>,
) -> Vec<ErrorDetail> {
    let diagnostics = toolrack_config::read_server(row).diagnostics.into_iter();
    // A field of the wrong type is empty in `config`, and its own error is closer to the cause.
    let (wrong_types, others): (Vec<_>, Vec<_>) =
        diagnostics.partition(|diagnostic| diagnostic.kind == DiagnosticKind::WrongType);
    let translated = |diagnostics: Vec<Diagnostic>| {
        let each = diagnostics.into_iter();
        each.filter_map(|diagnostic| translate(diagnostic, config, before)).collect()
    };
    merge(translated(wrong_types), merge(check_fields(config), translated(others)))
}

/// Adds errors in other fields: one error per field is enough, and the first is closest to the cause.
pub(crate) fn merge(mut first: Vec<ErrorDetail>, mut more: Vec<ErrorDetail>) -> Vec<ErrorDetail> {
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
        McpTransport::Http { .. } if !is_endpoint => {
            ("transport", "is `http`, but the package is a program; use `stdio`")
        }
        McpTransport::Http { url } if url.trim().is_empty() => {
            ("transport.url", "is required for `http`, as in `https://example.com/mcp`")
        }
        McpTransport::Stdio | McpTransport::Http { .. } => return None,
    };
    Some(invalid(field, message))
}

/// A diagnostic of the entry as an error of the config; `None` if the config can be used all the same.
fn translate(
    diagnostic: Diagnostic,
    config: &McpConfig,
    before: Option<&McpConfig>,
) -> Option<ErrorDetail> {
    let entry_field = diagnostic.field.as_str();
    let is_unknown = diagnostic.kind == DiagnosticKind::UnknownKey;
    if diagnostic.severity == Severity::Warning && !is_unknown {
        return None;
    }
    if is_unknown && before.is_some_and(|before| has_key(before, entry_field)) {
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

/// Whether a config has a key of its entry in `config`.
fn has_key(config: &McpConfig, entry_field: &str) -> bool {
    let mut value = &config.config;
    for key in entry_field.split('.') {
        match value.get(key) {
            Some(inner) => value = inner,
            None => return false,
        }
    }
    true
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
        check_after(&config(change), None, expected);
    }

    #[track_caller]
    fn check_after(config: &McpConfig, before: Option<&McpConfig>, expected: &[(&str, &str)]) {
        let details = find_errors(config, before);
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
                ("transport", "is `http`, but the package is a program; use `stdio`"),
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
            json!({ "config": { "timeot": "5s" } }),
            &[("config.timeot", "is not a known key; did you mean `timeout`?")],
        );
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
    fn unknown_key_may_stay_but_not_be_added() {
        let unknown = config(json!({ "config": { "theirs": 1 } }));
        check_after(&unknown, None, &[("config.theirs", "is not a known key")]);
        check_after(&unknown, Some(&unknown), &[]);
    }
}
