//! `toolrack add-json`: adds a server from its entry in any tool's config, or from a whole config
//! with one server.
//!
//! **Invariant:** no message repeats a value, because it may be a secret.

use std::io::{self, Read as _};

use serde_json::{Map, Value, json};
use toolrack_config::{
    ConfigFile, Diagnostic, Dialect, Parsed, ServerEntry, Severity, detect, join, read_as,
};
use toolrack_service::{ErrorDetail, McpConfig};

use crate::args::servers::AddJsonOptions;
use crate::commands::add::{Check, create};
use crate::context::Context;
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::suggested_command::command;

/// Maximum size of the JSON.
const MAX_INPUT_BYTES: u64 = 1 << 20;

/// Adds a server from JSON.
pub(crate) async fn add_json(options: AddJsonOptions, context: &Context) -> Result<(), CliError> {
    let text = match options.json.as_str() {
        "-" => context.blocking(read_stdin).await?,
        _ => options.json,
    };
    let (config, warnings) = parse_entry(&options.name, &text)?;
    for warning in &warnings {
        context.printer.note(format_args!("note: {warning}"));
    }
    create(config, if options.no_check { Check::No } else { Check::Yes }, context).await
}

fn read_stdin() -> Result<String, CliError> {
    let mut text = String::new();
    io::stdin().take(MAX_INPUT_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

const ENTRY_HINT: &str =
    r#"for example: '{"command": "npx", "args": ["-y", "some-server"]}' or '{"url": "…"}'"#;
/// Keys under which tools list their servers.
const SERVER_KEYS: [&str; 6] =
    ["mcpServers", "servers", "mcp", "context_servers", "extensions", "mcp_servers"];

/// Parses an entry and gives it `name`. Also returns the warnings about unknown keys and settings
/// without an effect.
fn parse_entry(name: &str, text: &str) -> Result<(McpConfig, Vec<Diagnostic>), CliError> {
    let invalid = |message: &str| Err(CliError::usage(message, ENTRY_HINT).with_field("JSON"));
    let mut entry = match serde_json::from_str(text) {
        Ok(Value::Object(entry)) => entry,
        Ok(_) => return invalid("the JSON is not an object"),
        Err(error) => {
            // Without the parser's message, which may quote a value.
            let (line, column) = (error.line(), error.column());
            return invalid(&format!("not valid JSON: line {line}, column {column}"));
        }
    };
    if entry.get("package").is_some_and(Value::is_object) {
        // The service's own JSON format.
        entry.insert("name".to_owned(), json!(name));
        return Ok((McpConfig::from_json(&Value::Object(entry))?, Vec::new()));
    }
    let is_full_config =
        SERVER_KEYS.iter().any(|key| entry.get(*key).is_some_and(Value::is_object));
    let reading = if is_full_config {
        read_as(detect("", text), "", text)
    } else {
        parse_bare_entry(name, &entry)
    };
    let (file, warnings) = reading.accept().map_err(|diagnostics| invalid_entry(&diagnostics))?;
    let entries: Vec<&ServerEntry> = file.entries().collect();
    let entry = match entries.as_slice() {
        [entry] => ServerEntry { name: name.to_owned(), ..(*entry).clone() },
        [] => return invalid("no server in this JSON"),
        entries => match entries.iter().find(|entry| entry.name == name) {
            Some(entry) => (*entry).clone(),
            None => {
                let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
                let message = format!("several servers in this JSON: {}", names.join(", "));
                let import = command("import FILE");
                let hint = format!("give the name of one of them, or import all with {import}");
                return Err(CliError::usage(message, hint).with_field("NAME"));
            }
        },
    };
    Ok((McpConfig::from_entry(&entry), warnings))
}

/// Parses an entry without its list, in the dialect that its keys suggest.
fn parse_bare_entry(name: &str, entry: &Map<String, Value>) -> Parsed<ConfigFile> {
    let (dialect, list) = dialect_of(entry);
    let text = json!({ list: { name: entry } }).to_string();
    let mut reading = read_as(dialect, "", &text);
    let wrapper = join(list, name);
    for diagnostic in &mut reading.diagnostics {
        // The position refers to the wrapper, which the user has not typed.
        diagnostic.at = None;
        let field =
            diagnostic.field.strip_prefix(&wrapper).map(|field| field.trim_start_matches('.'));
        diagnostic.field = field.unwrap_or(&diagnostic.field).to_owned();
    }
    reading
}

/// The dialect of an entry, and the key under which it is listed.
fn dialect_of(entry: &Map<String, Value>) -> (Dialect, &'static str) {
    let has = |keys: &[&str]| keys.iter().any(|key| entry.contains_key(*key));
    let kind = entry.get("type").and_then(Value::as_str).unwrap_or_default();
    let command = entry.get("command");
    if has(&["cmd", "uri", "envs", "env_keys"]) {
        (Dialect::Goose, "extensions")
    } else if matches!(kind, "local" | "remote") || command.is_some_and(Value::is_array) {
        (Dialect::OpenCode, "mcp")
    } else if has(&["source"]) || command.is_some_and(Value::is_object) {
        (Dialect::Zed, "context_servers")
    } else {
        (Dialect::McpServers, "mcpServers")
    }
}

fn invalid_entry(diagnostics: &[Diagnostic]) -> CliError {
    let (errors, misspelled): (Vec<&Diagnostic>, Vec<&Diagnostic>) =
        diagnostics.iter().partition(|diagnostic| diagnostic.severity == Severity::Error);
    // A misspelled key is usually why a required one is missing.
    let misspelled = misspelled.into_iter().filter(|diagnostic| diagnostic.suggestion.is_some());
    let to_error_detail = |diagnostic: &Diagnostic| {
        let error_detail =
            ErrorDetail::new(toolrack_service::ErrorCode::ValidationError, diagnostic.to_string());
        error_detail.with_field(diagnostic.field.clone()).with_hint(ENTRY_HINT)
    };
    CliError::from_details(
        ExitCode::Usage,
        errors.into_iter().chain(misspelled).map(to_error_detail).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config_secrets;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let described = match parse_entry("it", text) {
            Ok((config, warnings)) => {
                assert_eq!(config.name, "it");
                let timeout = config.config.get("timeout").map(ToString::to_string);
                let words =
                    [config_secrets::transport_name(&config), &config_secrets::target(&config)]
                        .join(" ");
                let timeout =
                    timeout.map(|timeout| format!(" timeout={timeout}")).unwrap_or_default();
                format!("{words}{timeout}{}", if warnings.is_empty() { "" } else { " (warnings)" })
            }
            Err(failure) => format!("error: {}", failure.error_details()[0].message),
        };
        assert_eq!(described, expected, "{text}");
    }

    #[test]
    fn entries_of_all_dialects_are_parsed() {
        check(r#"{"command": "npx", "args": ["-y", "x"]}"#, "stdio npx -y x");
        check(r#"{"type": "http", "url": "https://h/mcp"}"#, "http https://h/mcp");
        check(
            r#"{"serverUrl": "https://h/mcp", "timeout": 5000}"#,
            r#"http https://h/mcp timeout="5s""#,
        );
        check(r#"{"type": "local", "command": ["npx", "x"]}"#, "stdio npx x");
        check(r#"{"type": "remote", "url": "https://h/mcp"}"#, "http https://h/mcp");
        check(
            r#"{"cmd": "uvx", "args": ["x"], "type": "stdio", "timeout": 5}"#,
            r#"stdio uvx x timeout="5s""#,
        );
        check(r#"{"command": {"path": "node", "args": ["s.js"]}}"#, "stdio node s.js");
        check(
            r#"{"package": {"package_type": "npm", "identifier": "@a/b"}, "transport": "stdio"}"#,
            "npm @a/b",
        );
        check(r#"{"mcpServers": {"other": {"command": "x"}}}"#, "stdio x");
        check(r#"{"servers": {"it": {"command": "x"}, "b": {"command": "y"}}}"#, "stdio x");
    }

    #[test]
    fn invalid_entries_hide_their_values() {
        check("{", "error: not valid JSON: line 1, column 1");
        check("[1]", "error: the JSON is not an object");
        check(r#"{"mcpServers": {}}"#, "error: no server in this JSON");
        check(
            r#"{"mcpServers": {"a": {"command": "x"}, "b": {"command": "x"}}}"#,
            "error: several servers in this JSON: a, b",
        );
        check(
            r#"{"command": 5}"#,
            "error: command: must be a string; write `\"5\"`, not an integer",
        );
        check(
            r#"{"mcpServers": {"a": {"command": 5}}}"#,
            "error: 1:34: mcpServers.a.command: must be a string; write `\"5\"`, not an integer",
        );
        let failure = parse_entry("it", r#"{"comand": "s3cret", "url": 7}"#).unwrap_err();
        assert!(!format!("{failure:?}").contains("s3cret"), "{failure:?}");
    }
}
