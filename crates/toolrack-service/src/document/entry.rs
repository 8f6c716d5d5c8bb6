//! One entry of the file and one [`McpConfig`]: the same thing in two shapes.
//!
//! `command` is a binary, `url` is an endpoint, `package` is anything; arguments are `config.args` in every case,
//! what else a package says is under `config.package`, and every other key of the entry is in `config`.
//!
//! **Invariant:** reading what was written gives what was to be written.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde_json::{Map, Value, json};
use toolrack_config::{
    EnvValue, McpTransport as Way, Package, PackageKind, Pin, ServerEntry, Settings, StartMode,
};
use uuid::Uuid;

use crate::error::{ErrorCode, ServiceError, ServiceFault};
use crate::service::{
    EnvVarConfig, McpConfig, McpPackage, McpPackageType, McpSource, McpTransport,
};

/// An entry as JSON.
pub(super) type Row = Map<String, Value>;

/// Keys of an entry that have a field of their own in [`McpConfig`].
const OWN: [&str; 9] =
    ["name", "id", "enabled", "transport", "command", "url", "package", "env", "source"];
/// The same for keys of a package, and `args`, which is `config.args`.
const OWN_OF_PACKAGE: [&str; 6] = ["type", "identifier", "version", "runtime_hint", "url", "args"];

/// In which way an entry says what is run or reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Command,
    Url,
    Package,
}

/// What an entry says. Its id is nil if it has none.
pub(super) fn read(row: &Row) -> McpConfig {
    let text = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default();
    let (package, transport) = read_package(row);
    let source = row.get("source").cloned().and_then(|it| serde_json::from_value(it).ok());
    McpConfig {
        id: Uuid::parse_str(text("id")).unwrap_or_default(),
        name: text("name").to_owned(),
        enabled: row.get("enabled").and_then(Value::as_bool).unwrap_or(true),
        source: source.unwrap_or_default(),
        package,
        transport,
        env_vars: row.get("env").and_then(Value::as_object).map(read_env).unwrap_or_default(),
        config: read_rest(row),
    }
}

/// The entry that says what `config` says, in the way in which `present` says it as far as it can.
///
/// # Errors
///
/// With everything that cannot be written down.
pub(super) fn write(config: &McpConfig, present: &Row) -> Result<Row, ServiceError> {
    ServiceError::unless_empty(faults(config))?;
    let old = read(present);
    let mut row = present.clone();
    row.insert("name".to_owned(), json!(config.name));
    row.insert("id".to_owned(), json!(config.id));
    if config.enabled != old.enabled {
        put(&mut row, "enabled", (!config.enabled).then_some(json!(false)));
    }
    if config.source != old.source {
        let told = (config.source != McpSource::Manual).then(|| json!(config.source));
        put(&mut row, "source", told);
    }
    if config.env_vars != old.env_vars {
        let present = row.get("env").and_then(Value::as_object).cloned().unwrap_or_default();
        let env = write_env(&config.env_vars, &present);
        put(&mut row, "env", (!env.is_empty()).then_some(Value::Object(env)));
    }
    write_package(&mut row, config);
    write_rest(&mut row, config);
    Ok(row)
}

fn read_package(row: &Row) -> (McpPackage, McpTransport) {
    let named = |table: &Row, key: &str| table.get(key).and_then(Value::as_str).map(str::to_owned);
    let plain = |package_type, identifier: String| McpPackage {
        package_type,
        identifier,
        version: None,
        runtime_hint: None,
    };
    let package = match (form(row), row.get("package").and_then(Value::as_object)) {
        (Some(Form::Url), _) => plain(McpPackageType::Http, named(row, "url").unwrap_or_default()),
        (_, Some(package)) => McpPackage {
            version: named(package, "version"),
            runtime_hint: named(package, "runtime_hint"),
            ..plain(
                package_type(named(package, "type").as_deref()),
                named(package, "identifier").unwrap_or_default(),
            )
        },
        _ => plain(McpPackageType::Binary, named(row, "command").unwrap_or_default()),
    };
    let table = row.get("package").and_then(Value::as_object);
    let url = table.and_then(|it| named(it, "url"));
    let transport = match package.package_type {
        McpPackageType::Http => {
            McpTransport::Http { url: url.unwrap_or_else(|| package.identifier.clone()) }
        }
        _ => McpTransport::Stdio,
    };
    (package, transport)
}

fn package_type(word: Option<&str>) -> McpPackageType {
    match word {
        Some("npm") => McpPackageType::Npm,
        Some("pypi") => McpPackageType::Pypi,
        Some("docker") => McpPackageType::Docker,
        Some("http") => McpPackageType::Http,
        _ => McpPackageType::Binary,
    }
}

/// Every key that has no field of its own, or null if there is none.
fn read_rest(row: &Row) -> Value {
    let mut rest: Row = Row::new();
    for (key, value) in row.iter().filter(|(key, _)| !OWN.contains(&key.as_str())) {
        rest.insert(key.clone(), value.clone());
    }
    if let Some(package) = row.get("package").and_then(Value::as_object) {
        put(&mut rest, "args", package.get("args").cloned());
        let others = package.iter().filter(|(key, _)| !OWN_OF_PACKAGE.contains(&key.as_str()));
        let others: Row = others.map(|(key, it)| (key.clone(), it.clone())).collect();
        put(&mut rest, "package", (!others.is_empty()).then_some(Value::Object(others)));
    }
    if rest.is_empty() { Value::Null } else { Value::Object(rest) }
}

fn form(row: &Row) -> Option<Form> {
    let forms = [("package", Form::Package), ("command", Form::Command), ("url", Form::Url)];
    forms.into_iter().find(|(key, _)| row.contains_key(*key)).map(|(_, form)| form)
}

/// The form that an entry keeps if it can say everything in it, or the plainest that can.
fn wanted_form(config: &McpConfig, present: Option<Form>) -> Form {
    let package = &config.package;
    let more = rest(config).get("package").is_some_and(|it| !it.is_null());
    let bare = package.version.is_none() && package.runtime_hint.is_none() && !more;
    let plainest = match (package.package_type, &config.transport) {
        (McpPackageType::Binary, _) if bare => Form::Command,
        (McpPackageType::Http, McpTransport::Http { url })
            if bare && *url == package.identifier =>
        {
            Form::Url
        }
        _ => Form::Package,
    };
    if present == Some(Form::Package) { Form::Package } else { plainest }
}

fn write_package(row: &mut Row, config: &McpConfig) {
    let present = form(row);
    let form = wanted_form(config, present);
    let args = rest(config).get("args").filter(|it| !it.is_null()).cloned();
    if present != Some(form) {
        for key in ["command", "url", "package", "args", "transport"] {
            row.remove(key);
        }
        let transport = match form {
            Form::Command => Some(json!("stdio")),
            Form::Url => Some(json!("http")),
            Form::Package => None,
        };
        put(row, "transport", transport);
    }
    match form {
        Form::Command => {
            row.insert("command".to_owned(), json!(config.package.identifier));
            put(row, "args", args);
        }
        Form::Url => {
            row.insert("url".to_owned(), json!(config.package.identifier));
            put(row, "args", args);
        }
        Form::Package => {
            // A transport that was named for the package before may not fit to this one.
            if read_package(row).0.package_type != config.package.package_type {
                row.remove("transport");
            }
            let present = row.get("package").and_then(Value::as_object).cloned();
            let package = package_table(config, args, present.unwrap_or_default());
            row.insert("package".to_owned(), Value::Object(package));
        }
    }
}

fn package_table(config: &McpConfig, args: Option<Value>, present: Row) -> Row {
    let package = &config.package;
    let mut table = present;
    table.retain(|key, _| OWN_OF_PACKAGE.contains(&key.as_str()));
    table.insert("type".to_owned(), json!(package.package_type));
    table.insert("identifier".to_owned(), json!(package.identifier));
    put(&mut table, "version", package.version.as_ref().map(|it| json!(it)));
    put(&mut table, "runtime_hint", package.runtime_hint.as_ref().map(|it| json!(it)));
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

fn write_rest(row: &mut Row, config: &McpConfig) {
    let rest = rest(config);
    let own = |key: &String| OWN.contains(&key.as_str()) || key == "args";
    row.retain(|key, _| own(key) || rest.contains_key(key));
    for (key, value) in rest.iter().filter(|(key, _)| !own(key)) {
        put(row, key, (!value.is_null()).then(|| value.clone()));
    }
}

fn rest(config: &McpConfig) -> Row {
    config.config.as_object().cloned().unwrap_or_default()
}

fn put(row: &mut Row, key: &str, value: Option<Value>) {
    match value {
        Some(value) => row.insert(key.to_owned(), value),
        None => row.remove(key),
    };
}

/// Everything that an entry cannot say.
fn faults(config: &McpConfig) -> Vec<ServiceFault> {
    let mut faults = Vec::new();
    let mut complain = |field: String, message: &str| {
        faults.push(ServiceFault::new(ErrorCode::ValidationError, message).at(field));
    };
    match (config.package.package_type, &config.transport) {
        (McpPackageType::Http, McpTransport::Stdio) => {
            complain("transport".to_owned(), "must be HTTP for a package that is an endpoint");
        }
        (kind, McpTransport::Http { .. }) if kind != McpPackageType::Http => {
            complain("transport".to_owned(), "must be stdio for a package that is a program");
        }
        _ => {}
    }
    for (name, variable) in &config.env_vars {
        if variable.value.is_some() && variable.secret_ref.is_some() {
            let field = format!("env_vars.{name}");
            complain(field, "has both a value and a secret; keep the one that is meant");
        }
    }
    let own = "has a field of its own and does not belong into `config`";
    match &config.config {
        Value::Null => {}
        Value::Object(rest) => {
            for (key, value) in rest {
                let field = format!("config.{key}");
                match (key.as_str(), value) {
                    ("package", Value::Object(more)) => {
                        for (key, value) in more {
                            let field = format!("{field}.{key}");
                            if OWN_OF_PACKAGE.contains(&key.as_str()) {
                                complain(field, own);
                            } else {
                                unsayable(&field, value, &mut complain);
                            }
                        }
                    }
                    ("package", Value::Null) => {}
                    ("package", _) => complain(field, "must be an object"),
                    (key, _) if OWN.contains(&key) => complain(field, own),
                    (_, Value::Null) => {}
                    (_, value) => unsayable(&field, value, &mut complain),
                }
            }
        }
        _ => complain("config".to_owned(), "must be an object"),
    }
    faults
}

/// Complains of what TOML cannot say.
fn unsayable(field: &str, value: &Value, complain: &mut impl FnMut(String, &str)) {
    match value {
        Value::Null => complain(field.to_owned(), "must not be null; leave it out"),
        Value::Number(number) if number.is_u64() && number.as_i64().is_none() => {
            complain(field.to_owned(), "is too large a number");
        }
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                unsayable(&format!("{field}[{n}]"), item, complain);
            }
        }
        Value::Object(row) => {
            for (key, value) in row {
                unsayable(&format!("{field}.{key}"), value, complain);
            }
        }
        _ => {}
    }
}

/// What the `env` of an entry says.
fn read_env(row: &Row) -> BTreeMap<String, EnvVarConfig> {
    row.iter().map(|(name, value)| (name.clone(), read_variable(name, value))).collect()
}

/// The `env` that says the same. Variables that are the same as before stay as they are.
fn write_env(variables: &BTreeMap<String, EnvVarConfig>, present: &Row) -> Row {
    let each = variables.iter().map(|(name, config)| {
        let value = present.get(name).filter(|it| read_variable(name, it) == *config);
        (name.clone(), value.cloned().unwrap_or_else(|| write_variable(config)))
    });
    each.collect()
}

fn read_variable(name: &str, value: &Value) -> EnvVarConfig {
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

fn write_variable(config: &EnvVarConfig) -> Value {
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

impl McpConfig {
    /// The server that an entry of a config file describes. It has no id yet.
    pub fn of_entry(entry: &ServerEntry) -> Self {
        let mut rest = rest_of(&entry.settings);
        let (package, env) = match &entry.transport {
            Way::Stdio { command, args, env, cwd } => {
                put_list(&mut rest, "args", args);
                put_some(&mut rest, "cwd", cwd.as_ref());
                (bare_package(McpPackageType::Binary, command), Some(env))
            }
            Way::Http { url, headers } => {
                put_headers(&mut rest, headers);
                (bare_package(McpPackageType::Http, url), None)
            }
            Way::Package { package, env, cwd, headers } => {
                put_list(&mut rest, "args", &package.args);
                put_some(&mut rest, "cwd", cwd.as_ref());
                put_headers(&mut rest, headers);
                put_some(&mut rest, "package", more_of(package));
                let version = package.version.clone();
                let bare = bare_package(package_type_of_kind(package.kind), &package.identifier);
                (McpPackage { version, ..bare }, Some(env))
            }
            // A way to reach a server that nobody here knows has nothing to be written.
            _ => (bare_package(McpPackageType::Binary, ""), None),
        };
        Self {
            id: Uuid::nil(),
            name: entry.name.clone(),
            enabled: entry.enabled,
            source: McpSource::Manual,
            transport: match package.package_type {
                McpPackageType::Http => McpTransport::Http { url: package.identifier.clone() },
                _ => McpTransport::Stdio,
            },
            package,
            env_vars: env.map(variables).unwrap_or_default(),
            config: if rest.is_empty() { Value::Null } else { Value::Object(rest) },
        }
    }
}

fn bare_package(package_type: McpPackageType, identifier: &str) -> McpPackage {
    let identifier = identifier.to_owned();
    McpPackage { package_type, identifier, version: None, runtime_hint: None }
}

fn package_type_of_kind(kind: PackageKind) -> McpPackageType {
    match kind {
        PackageKind::Npm => McpPackageType::Npm,
        PackageKind::Pypi => McpPackageType::Pypi,
        PackageKind::Docker => McpPackageType::Docker,
        PackageKind::Binary => McpPackageType::Binary,
        PackageKind::Http => McpPackageType::Http,
    }
}

fn more_of(package: &Package) -> Option<Row> {
    let mut more = Row::new();
    put_some(&mut more, "program", package.program.as_ref());
    put_list(&mut more, "runtime_args", &package.runtime_args);
    (!more.is_empty()).then_some(more)
}

fn variables(env: &HashMap<String, EnvValue>) -> BTreeMap<String, EnvVarConfig> {
    let each = env.iter().map(|(name, value)| {
        let bare = EnvVarConfig {
            name: name.clone(),
            value: None,
            secret_ref: None,
            is_secret: false,
            required: false,
        };
        let variable = match value {
            EnvValue::Text(text) => EnvVarConfig { value: Some(text.clone()), ..bare },
            EnvValue::Secret { secret_ref, required } => EnvVarConfig {
                secret_ref: Some(secret_ref.clone()),
                is_secret: true,
                required: *required,
                ..bare
            },
        };
        (name.clone(), variable)
    });
    each.collect()
}

fn rest_of(settings: &Settings) -> Row {
    let mut rest = Row::new();
    put_some(&mut rest, "timeout", settings.timeout.map(time));
    put_some(&mut rest, "max_timeout", settings.max_timeout.map(time));
    put_some(&mut rest, "startup_timeout", settings.startup_timeout.map(time));
    put_some(&mut rest, "install_timeout", settings.install_timeout.map(time));
    put_some(
        &mut rest,
        "start",
        settings.start.map(|it| match it {
            StartMode::Eager => "eager",
            StartMode::Lazy => "lazy",
        }),
    );
    put_some(&mut rest, "idle", settings.idle.map(|it| it.map_or("never".to_owned(), time)));
    put_some(&mut rest, "max_output_bytes", settings.max_output_bytes);
    put_some(&mut rest, "max_message_bytes", settings.max_message_bytes);
    put_some(&mut rest, "allow", settings.allow.as_ref());
    put_some(&mut rest, "deny", settings.deny.as_ref());
    put_some(&mut rest, "repeatable", settings.repeatable.as_ref());
    put_some(&mut rest, "inherit_env", settings.inherit_env);
    put_some(&mut rest, "pin", settings.pin.map(|it| it == Pin::Hold));
    if let Some(sandbox) = &settings.sandbox {
        let mut table = Row::new();
        put_some(&mut table, "read", sandbox.read.as_ref());
        put_some(&mut table, "write", Some(&sandbox.write));
        put_some(&mut table, "net", Some(sandbox.net));
        put_some(&mut rest, "sandbox", Some(table));
    }
    rest
}

/// A time as config files have it.
fn time(time: Duration) -> String {
    if time.subsec_millis() == 0 {
        format!("{}s", time.as_secs())
    } else {
        format!("{}ms", time.as_millis())
    }
}

fn put_some(row: &mut Row, key: &str, value: Option<impl serde::Serialize>) {
    if let Some(value) = value {
        row.insert(key.to_owned(), json!(value));
    }
}

fn put_list(row: &mut Row, key: &str, list: &[String]) {
    put_some(row, key, (!list.is_empty()).then_some(list));
}

fn put_headers(row: &mut Row, headers: &HashMap<String, String>) {
    let sorted: BTreeMap<&String, &String> = headers.iter().collect();
    put_some(row, "headers", (!sorted.is_empty()).then_some(sorted));
}

#[cfg(test)]
mod tests {
    use toolrack_config::{Dialect, read_as};

    use super::*;
    use crate::document::{Document, Place};

    /// Writes an entry down and reads it again.
    #[track_caller]
    fn check(entry: &str) {
        let (file, _) = read_as(Dialect::Toolrack, "", entry).accept().unwrap();
        let read = &file.defaults[0];
        let mut document = Document::parse("", "").unwrap();
        document.add(&Place::Defaults, &McpConfig::of_entry(read)).unwrap();
        let (again, warnings) = read_as(Dialect::Toolrack, "", &document.text()).accept().unwrap();
        assert_eq!(warnings, []);
        let again = ServerEntry { id: None, ..again.defaults[0].clone() };
        assert_eq!(again, *read, "{}", document.text());
    }

    #[test]
    fn an_entry_is_the_same_server_when_it_is_written() {
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
