//! Configs and faults as lines that a test can compare and a person can read.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use toolrack_config::{ConfigFile, EnvValue, Fault, McpTransport, ServerEntry, Settings, Severity};

/// A sample file, by its path below `tests/samples`.
pub(crate) fn sample(path: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/samples");
    std::fs::read_to_string(root.join(path)).expect("a sample is text")
}

/// One line per server; those of agents begin with the agent.
pub(crate) fn servers(file: &ConfigFile) -> Vec<String> {
    let defaults = file.defaults.iter().map(server);
    let own = file.agents.iter().flat_map(|agent| {
        agent.mcp.iter().map(|it| format!("{}/{}", agent.id, server(it))).collect::<Vec<_>>()
    });
    defaults.chain(own).collect()
}

fn server(entry: &ServerEntry) -> String {
    let off = if entry.enabled { "" } else { " off" };
    format!("{}:{off} {}{}", entry.name, transport(&entry.transport), settings(&entry.settings))
}

fn transport(transport: &McpTransport) -> String {
    match transport {
        McpTransport::Stdio { command, args, env, cwd } => {
            format!("{command} {args:?}{}{}", variables(env), folder(cwd.as_ref()))
        }
        McpTransport::Http { url, headers } => format!("{url}{}", named("headers", headers)),
        McpTransport::Package { package, env, cwd, headers } => format!(
            "{} {}@{:?} {:?}{}{}{}",
            package.kind.word(),
            package.identifier,
            package.version,
            package.args,
            variables(env),
            folder(cwd.as_ref()),
            named("headers", headers)
        ),
        other => panic!("{other:?}"),
    }
}

fn folder(cwd: Option<&String>) -> String {
    cwd.map(|it| format!(" cwd={it}")).unwrap_or_default()
}

fn variables(env: &HashMap<String, EnvValue>) -> String {
    let shown = env.iter().map(|(name, value)| {
        let value = match value {
            EnvValue::Text(text) => text.clone(),
            EnvValue::Secret { secret_ref, required: true } => format!("secret {secret_ref}"),
            EnvValue::Secret { secret_ref, required: false } => format!("secret {secret_ref}?"),
        };
        (name.clone(), value)
    });
    named("env", &shown.collect())
}

fn named(title: &str, map: &HashMap<String, String>) -> String {
    let sorted: BTreeMap<_, _> = map.iter().collect();
    if sorted.is_empty() { String::new() } else { format!(" {title}={sorted:?}") }
}

/// Only what was said.
fn settings(settings: &Settings) -> String {
    let mut said = Vec::new();
    said.extend(settings.timeout.map(|it| format!("timeout={it:?}")));
    said.extend(settings.max_timeout.map(|it| format!("max_timeout={it:?}")));
    said.extend(settings.startup_timeout.map(|it| format!("startup_timeout={it:?}")));
    said.extend(settings.start.map(|it| format!("start={it:?}")));
    said.extend(settings.idle.map(|it| format!("idle={it:?}")));
    said.extend(settings.max_output_bytes.map(|it| format!("max_output_bytes={it}")));
    said.extend(settings.max_message_bytes.map(|it| format!("max_message_bytes={it}")));
    said.extend(settings.allow.as_ref().map(|it| format!("allow={it:?}")));
    said.extend(settings.deny.as_ref().map(|it| format!("deny={it:?}")));
    said.extend(settings.repeatable.as_ref().map(|it| format!("repeatable={it:?}")));
    said.extend(settings.inherit_env.map(|it| format!("inherit_env={it}")));
    said.extend(settings.pin.map(|it| format!("pin={it:?}")));
    said.extend(settings.sandbox.as_ref().map(|it| format!("sandbox={it:?}")));
    said.iter().flat_map(|it| [" ", it]).collect()
}

/// One line per fault: how bad, where, what kind, which field, and what was probably meant.
pub(crate) fn faults(faults: &[Fault]) -> Vec<String> {
    faults.iter().map(fault).collect()
}

fn fault(fault: &Fault) -> String {
    let severity = match fault.severity {
        Severity::Error => "E",
        Severity::Warning => "W",
    };
    let at = fault.at.map(|it| it.to_string()).unwrap_or_default();
    let nearest = fault.nearest.as_ref().map(|it| format!(" ({it}?)")).unwrap_or_default();
    format!("{severity} {at} {:?} {}{nearest}", fault.kind, fault.field)
}
