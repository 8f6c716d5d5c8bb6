//! Configs and diagnostics as comparable lines.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use toolrack_config::{
    ConfigFile, Diagnostic, EnvValue, McpTransport, ServerEntry, Settings, Severity,
};

/// A sample file below `tests/samples`.
pub(crate) fn sample(path: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/samples");
    std::fs::read_to_string(root.join(path)).expect("a sample is text")
}

/// One line per server; agents' servers start with the agent.
pub(crate) fn servers(file: &ConfigFile) -> Vec<String> {
    let defaults = file.defaults.iter().map(server);
    let own = file.agents.iter().flat_map(|agent| {
        agent.mcp.iter().map(|mcp| format!("{}/{}", agent.id, server(mcp))).collect::<Vec<_>>()
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
            package.kind.as_str(),
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
    cwd.map(|item| format!(" cwd={item}")).unwrap_or_default()
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

/// Set values only.
fn settings(settings: &Settings) -> String {
    let mut lines = Vec::new();
    lines.extend(settings.timeout.map(|item| format!("timeout={item:?}")));
    lines.extend(settings.max_timeout.map(|item| format!("max_timeout={item:?}")));
    lines.extend(settings.startup_timeout.map(|item| format!("startup_timeout={item:?}")));
    lines.extend(settings.start.map(|item| format!("start={item:?}")));
    lines.extend(settings.idle.map(|item| format!("idle={item:?}")));
    lines.extend(settings.max_output_bytes.map(|item| format!("max_output_bytes={item}")));
    lines.extend(settings.max_message_bytes.map(|item| format!("max_message_bytes={item}")));
    lines.extend(settings.max_list_bytes.map(|item| format!("max_list_bytes={item}")));
    lines.extend(settings.allow.as_ref().map(|item| format!("allow={item:?}")));
    lines.extend(settings.deny.as_ref().map(|item| format!("deny={item:?}")));
    lines.extend(settings.repeatable.as_ref().map(|item| format!("repeatable={item:?}")));
    lines.extend(settings.inherit_env.map(|item| format!("inherit_env={item}")));
    lines.extend(settings.pin.map(|item| format!("pin={item:?}")));
    lines.extend(settings.sandbox.as_ref().map(|item| format!("sandbox={item:?}")));
    lines.iter().flat_map(|lines| [" ", lines]).collect()
}

/// One line per diagnostic: severity, position, kind, field, suggestion.
pub(crate) fn diagnostics(diagnostics: &[Diagnostic]) -> Vec<String> {
    diagnostics.iter().map(diagnostic).collect()
}

fn diagnostic(diagnostic: &Diagnostic) -> String {
    let severity = match diagnostic.severity {
        Severity::Error => "E",
        Severity::Warning => "W",
    };
    let at = diagnostic.at.map(|at| at.to_string()).unwrap_or_default();
    let suggestion =
        diagnostic.suggestion.as_ref().map(|word| format!(" ({word}?)")).unwrap_or_default();
    format!("{severity} {at} {:?} {}{suggestion}", diagnostic.kind, diagnostic.field)
}
