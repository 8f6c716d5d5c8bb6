//! What is wrong with a config, all of it at once, each fault with its place in the caller's own document.
//!
//! **Invariant:** no message repeats a value, because it may be a secret.

use toolrack_config::{Dialect, Fault, FaultKind, Severity, join};

use crate::document::{Document, Place};
use crate::error::{ErrorCode, ServiceError, ServiceFault};
use crate::service::{EnvVarConfig, McpConfig, McpPackageType, McpTransport};

pub(crate) const NAME_REQUIRED: &str = "Name is required";
pub(crate) const IDENTIFIER_REQUIRED: &str = "Package identifier required";
pub(crate) const TRANSPORT_REQUIRED: &str = "Transport required";
pub(crate) const CREDENTIALS_MISSING: &str = "Missing required credentials";

/// Checks a config as far as that can be done without looking at anything else.
///
/// # Errors
///
/// With every fault there is.
pub fn validate(config: &McpConfig) -> Result<(), ServiceError> {
    ServiceError::unless_empty(faults(config, None))
}

/// Every fault of a config. What nobody knows is none if it was there `before`: it survives, as in the file.
pub(crate) fn faults(config: &McpConfig, before: Option<&McpConfig>) -> Vec<ServiceFault> {
    let mut faults = Vec::new();
    check_names(config, &mut faults);
    check_fit(config, &mut faults);
    for (name, variable) in &config.env_vars {
        check_variable(name, variable, &mut faults);
    }
    // What is missing altogether cannot be written down, and so cannot be read again.
    if faults.is_empty() {
        faults.extend(read_again(config, before));
    }
    faults
}

/// The faults of a config whose secrets are not to be had. `is_stored` says why it cannot know, if it cannot.
pub(crate) fn secret_faults(
    config: &McpConfig,
    is_stored: impl Fn(&str) -> Result<bool, ServiceError>,
) -> Vec<ServiceFault> {
    let mut faults = Vec::new();
    for (name, variable) in &config.env_vars {
        let Some(secret) = &variable.secret_ref else { continue };
        let field = join(&join("env_vars", name), "secret_ref");
        match is_stored(secret) {
            Ok(false) if variable.required => {
                let hint = format!("store it with `toolrack secret set {secret}`");
                faults.push(invalid(field, CREDENTIALS_MISSING).hint(hint));
            }
            Ok(_) => {}
            Err(error) => faults.extend(error.at(&field).faults().iter().cloned()),
        }
    }
    faults
}

fn check_names(config: &McpConfig, faults: &mut Vec<ServiceFault>) {
    if config.name.trim().is_empty() {
        faults.push(invalid("name", NAME_REQUIRED));
    }
    if config.package.identifier.trim().is_empty() {
        faults.push(invalid("package.identifier", IDENTIFIER_REQUIRED));
    }
    if !(config.config.is_null() || config.config.is_object()) {
        faults.push(invalid("config", "must be an object"));
    }
}

/// Whether what is run can be talked to in the way that is said.
fn check_fit(config: &McpConfig, faults: &mut Vec<ServiceFault>) {
    let is_endpoint = config.package.package_type == McpPackageType::Http;
    match &config.transport {
        McpTransport::Stdio if is_endpoint => {
            let message = "is `stdio`, but the package is an endpoint; give `http` and its URL";
            faults.push(invalid("transport", message));
        }
        McpTransport::Http { .. } if !is_endpoint => {
            let message = "is `http`, but the package is a program; give `stdio`";
            faults.push(invalid("transport", message));
        }
        McpTransport::Http { url } if url.trim().is_empty() => {
            let message = "is required for `http`, as in `https://example.com/mcp`";
            faults.push(invalid("transport.url", message));
        }
        McpTransport::Stdio | McpTransport::Http { .. } => {}
    }
}

fn check_variable(name: &str, variable: &EnvVarConfig, faults: &mut Vec<ServiceFault>) {
    let path = join("env_vars", name);
    if variable.name != name {
        let message = "is another name than the one under which it stands";
        faults.push(invalid(join(&path, "name"), message));
    }
    if name.is_empty() || name.contains(['=', '\0']) {
        let message = "is no variable name; it must not be empty or contain `=`";
        faults.push(invalid(path.clone(), message));
    }
    if variable.value.is_some() && variable.secret_ref.is_some() {
        let message = "excludes `secret_ref`; keep the one that is meant";
        faults.push(invalid(join(&path, "value"), message));
    }
    let is_given =
        variable.secret_ref.is_some() || variable.value.as_deref().is_some_and(|it| !it.is_empty());
    if variable.required && !is_given {
        let hint = format!("give `{path}.value` or `{path}.secret_ref`");
        faults.push(invalid(path, CREDENTIALS_MISSING).hint(hint));
    }
}

/// What the reader of config files says of the config, once it is written as its entry.
fn read_again(config: &McpConfig, before: Option<&McpConfig>) -> Vec<ServiceFault> {
    let written = Document::parse("", "").and_then(|mut document| {
        document.add(&Place::Defaults, config)?;
        Ok(document.text())
    });
    let text = match written {
        Ok(text) => text,
        Err(error) => return error.faults().to_vec(),
    };
    let faults = toolrack_config::read_as(Dialect::Toolrack, "", &text).faults;
    faults.into_iter().filter_map(|it| translate(it, config, before)).collect()
}

/// One fault of the entry as a fault of the config, if it keeps the config from being used.
fn translate(fault: Fault, config: &McpConfig, before: Option<&McpConfig>) -> Option<ServiceFault> {
    let entry_field = fault.field.split_once("].").map_or("", |(_, field)| field);
    let is_unknown = fault.kind == FaultKind::UnknownKey;
    if fault.severity == Severity::Warning && !is_unknown {
        return None;
    }
    if is_unknown && before.is_some_and(|it| has(it, entry_field)) {
        return None;
    }
    let message = match (is_unknown, &fault.nearest) {
        (true, Some(near)) => format!("is not a key we know; did you mean `{near}`?"),
        (true, None) => "is not a key we know".to_owned(),
        (false, _) => fault.message,
    };
    let code = match fault.kind {
        FaultKind::Duplicate => ErrorCode::Conflict,
        _ => ErrorCode::ValidationError,
    };
    Some(ServiceFault::new(code, message).at(caller_field(entry_field, config)))
}

/// Whether a config holds a key of its entry that nobody knows.
fn has(config: &McpConfig, entry_field: &str) -> bool {
    let mut value = &config.config;
    for step in entry_field.split('.') {
        match value.get(step) {
            Some(inner) => value = inner,
            None => return false,
        }
    }
    true
}

/// Where in the caller's document stands what the entry of the file has in `field`.
fn caller_field(field: &str, config: &McpConfig) -> String {
    let end = field.find(['.', '[']).unwrap_or(field.len());
    let (head, tail) = field.split_at(end);
    match head {
        "name" | "id" | "enabled" | "source" | "transport" => field.to_owned(),
        "command" => format!("package.identifier{tail}"),
        "url" => format!("transport.url{tail}"),
        "package" if tail.starts_with(".args") => format!("config{tail}"),
        "package" if tail == ".url" || (tail == ".identifier" && is_url(config)) => {
            "transport.url".to_owned()
        }
        "package" if tail == ".type" => "package.package_type".to_owned(),
        "package" => package_field(tail),
        "env" => variable_field(tail, config),
        _ => format!("config.{field}"),
    }
}

fn is_url(config: &McpConfig) -> bool {
    matches!(config.transport, McpTransport::Http { .. })
}

fn package_field(tail: &str) -> String {
    match tail {
        "" | ".identifier" | ".version" | ".runtime_hint" => format!("package{tail}"),
        _ => format!("config.package{tail}"),
    }
}

fn variable_field(tail: &str, config: &McpConfig) -> String {
    let found =
        config.env_vars.iter().find(|(name, _)| tail == join(".", name).replacen("..", ".", 1));
    match found {
        Some((_, variable)) if variable.secret_ref.is_some() => {
            format!("env_vars{tail}.secret_ref")
        }
        Some((_, variable)) if variable.value.is_some() => format!("env_vars{tail}.value"),
        _ => format!("env_vars{tail}"),
    }
}

fn invalid(field: impl Into<String>, message: &str) -> ServiceFault {
    ServiceFault::new(ErrorCode::ValidationError, message).at(field)
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
        let faults = faults(config, before);
        let found: Vec<(&str, &str)> = faults
            .iter()
            .map(|it| (it.field.as_deref().unwrap_or_default(), it.message.as_str()))
            .collect();
        assert_eq!(found, expected);
        assert!(faults.iter().all(|it| it.code == ErrorCode::ValidationError), "{faults:?}");
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
    fn the_rules_of_the_contract_hold() {
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
        let missing = secret_faults(&required, |_| Ok(false));
        let field = missing.first().and_then(|it| it.field.as_deref());
        assert_eq!(field, Some("env_vars.TOKEN.secret_ref"));
        let optional = config(variable(json!({ "secret_ref": "x" })));
        assert_eq!(secret_faults(&optional, |_| Ok(false)), []);
    }

    #[test]
    fn all_faults_come_at_once() {
        check(
            json!({
                "name": "",
                "transport": { "type": "http", "url": "https://example.com" },
                "env_vars": { "A": { "name": "B" } },
            }),
            &[
                ("name", "Name is required"),
                ("transport", "is `http`, but the package is a program; give `stdio`"),
                ("env_vars.A.name", "is another name than the one under which it stands"),
            ],
        );
    }

    #[test]
    fn package_and_transport_fit() {
        check(endpoint("https://example.com/mcp"), &[]);
        check(
            json!({ "package": { "package_type": "http", "identifier": "https://x" } }),
            &[("transport", "is `stdio`, but the package is an endpoint; give `http` and its URL")],
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
            &[("transport.url", "is no URL; write all of it, as in `https://example.com/mcp`")],
        );
        check(
            variable(json!({ "value": "a", "secret_ref": "b" })),
            &[("env_vars.TOKEN.value", "excludes `secret_ref`; keep the one that is meant")],
        );
        check(
            json!({ "env_vars": { "A=B": { "name": "A=B", "value": "x" } } }),
            &[("env_vars.A=B", "is no variable name; it must not be empty or contain `=`")],
        );
    }

    #[test]
    fn what_the_reader_of_files_says_is_told_in_the_callers_terms() {
        check(
            json!({ "config": { "timeot": "5s" } }),
            &[("config.timeot", "is not a key we know; did you mean `timeout`?")],
        );
        check(
            json!({ "config": { "timeout": "5 parsecs", "deny": "x", "args": [1] } }),
            &[
                ("config.args[0]", "must be text; write `\"1\"`, not an integer"),
                ("config.deny", "must be a list of texts, not text"),
                (
                    "config.timeout",
                    "is no time; write a number and `ms`, `s`, `m`, `h` or `d`, as in `90s`",
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
    fn a_key_that_nobody_knows_may_stay_but_not_come() {
        let odd = config(json!({ "config": { "theirs": 1 } }));
        check_after(&odd, None, &[("config.theirs", "is not a key we know")]);
        check_after(&odd, Some(&odd), &[]);
    }
}
