//! A server of another tool's file, or of ours, as the service keeps it.
//!
//! **Invariant:** what is written of it reads as the same server: what is run or reached, and how it is treated.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde_json::{Map, Value, json};
use toolrack_config::{
    EnvValue, McpTransport as Way, Package, PackageKind, Pin, ServerEntry, Settings, StartMode,
};
use uuid::Uuid;

use crate::model::{EnvVarConfig, McpConfig, McpPackage, McpPackageType, McpSource, McpTransport};

type Row = Map<String, Value>;

impl McpConfig {
    /// The server that an entry of a config file describes. It has no id yet.
    pub fn of_entry(entry: &ServerEntry) -> Self {
        let mut rest = rest_of(&entry.settings);
        let (package, env) = match &entry.transport {
            Way::Stdio { command, args, env, cwd } => {
                put_list(&mut rest, "args", args);
                put(&mut rest, "cwd", cwd.as_ref());
                (plain(McpPackageType::Binary, command), Some(env))
            }
            Way::Http { url, headers } => {
                put_headers(&mut rest, headers);
                (plain(McpPackageType::Http, url), None)
            }
            Way::Package { package, env, cwd, headers } => {
                put_list(&mut rest, "args", &package.args);
                put(&mut rest, "cwd", cwd.as_ref());
                put_headers(&mut rest, headers);
                put(&mut rest, "package", more_of(package));
                let version = package.version.clone();
                let plain = plain(package_type(package.kind), &package.identifier);
                (McpPackage { version, ..plain }, Some(env))
            }
            // A way to reach a server that nobody here knows has nothing to be written.
            _ => (plain(McpPackageType::Binary, ""), None),
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

fn plain(package_type: McpPackageType, identifier: &str) -> McpPackage {
    let identifier = identifier.to_owned();
    McpPackage { package_type, identifier, version: None, runtime_hint: None }
}

fn package_type(kind: PackageKind) -> McpPackageType {
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
    put(&mut more, "program", package.program.as_ref());
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
    put(&mut rest, "timeout", settings.timeout.map(time));
    put(&mut rest, "max_timeout", settings.max_timeout.map(time));
    put(&mut rest, "startup_timeout", settings.startup_timeout.map(time));
    put(&mut rest, "install_timeout", settings.install_timeout.map(time));
    put(
        &mut rest,
        "start",
        settings.start.map(|it| match it {
            StartMode::Eager => "eager",
            StartMode::Lazy => "lazy",
        }),
    );
    put(&mut rest, "idle", settings.idle.map(|it| it.map_or("never".to_owned(), time)));
    put(&mut rest, "max_output_bytes", settings.max_output_bytes);
    put(&mut rest, "max_message_bytes", settings.max_message_bytes);
    put(&mut rest, "allow", settings.allow.as_ref());
    put(&mut rest, "deny", settings.deny.as_ref());
    put(&mut rest, "repeatable", settings.repeatable.as_ref());
    put(&mut rest, "inherit_env", settings.inherit_env);
    put(&mut rest, "pin", settings.pin.map(|it| it == Pin::Hold));
    if let Some(sandbox) = &settings.sandbox {
        let mut table = Row::new();
        put(&mut table, "read", sandbox.read.as_ref());
        put(&mut table, "write", Some(&sandbox.write));
        put(&mut table, "net", Some(sandbox.net));
        put(&mut rest, "sandbox", Some(table));
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

fn put(row: &mut Row, key: &str, value: Option<impl serde::Serialize>) {
    if let Some(value) = value {
        row.insert(key.to_owned(), json!(value));
    }
}

fn put_list(row: &mut Row, key: &str, list: &[String]) {
    put(row, key, (!list.is_empty()).then_some(list));
}

fn put_headers(row: &mut Row, headers: &HashMap<String, String>) {
    let sorted: BTreeMap<&String, &String> = headers.iter().collect();
    put(row, "headers", (!sorted.is_empty()).then_some(sorted));
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
