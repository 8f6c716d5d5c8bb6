//! JSON Schema of `toolrack.toml` and the key reference of docs/config.md, generated from the key table.
//!
//! The schema covers single values and tables. The parser alone checks unique names, existing references
//! and sensible durations.

use serde_json::{Map, Value, json};

use crate::keys::{FILE, Key, KeyType, SCOPES, TableKeys};
use crate::server::PackageKind;

/// Published address of the schema.
const ID: &str = "https://github.com/toolrack/toolrack/raw/main/docs/toolrack.schema.json";

/// Duration pattern.
const TIME: &str = r"^\s*([0-9]+(ms|s|m|h|d))+\s*$";

/// The JSON Schema of `toolrack.toml`.
pub fn json_schema() -> Value {
    let definitions: Map<String, Value> =
        SCOPES.iter().skip(1).map(|scope| (scope.title.to_owned(), table(scope))).collect();
    let mut schema = table(&FILE);
    merge(
        &mut schema,
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": ID,
            "title": "Toolrack",
            "description": "MCP servers, for toolrack.toml and .toolrack.toml. Other programs may \
                            keep settings of their own in the same file.",
            "$defs": definitions,
        }),
    );
    schema
}

/// Key reference in Markdown.
pub fn key_reference() -> String {
    SCOPES.iter().map(|scope| section(scope)).collect::<Vec<_>>().join("\n")
}

fn table(scope: &TableKeys) -> Value {
    let properties: Map<String, Value> =
        scope.keys.iter().map(|key| (key.name.to_owned(), property(scope, key))).collect();
    let required: Vec<&str> =
        scope.keys.iter().filter(|key| key.default == "required").map(|key| key.name).collect();
    let mut schema = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        merge(&mut schema, json!({ "required": required }));
    }
    merge(&mut schema, coherence(scope.title));
    schema
}

fn property(scope: &TableKeys, key: &Key) -> Value {
    let (mut schema, _) = describe(key.kind);
    merge(&mut schema, detail(scope.title, key.name));
    merge(&mut schema, json!({ "description": key.doc }));
    schema
}

/// The schema of a type, and its description in the key reference.
fn describe(kind: KeyType) -> (Value, String) {
    let string = json!({ "type": "string" });
    let text = json!({ "type": "string", "pattern": r"\S" });
    let list = |items: Value| json!({ "type": "array", "items": items });
    let map = |values: Value| json!({ "type": "object", "additionalProperties": values });
    let table = |scope: &TableKeys| json!({ "$ref": format!("#/$defs/{}", scope.title) });
    let (schema, words) = match kind {
        KeyType::Template => (string, "string with `${…}`"),
        KeyType::Text => (text, "text"),
        KeyType::Flag => (json!({ "type": "boolean" }), "`true` or `false`"),
        KeyType::Time => {
            (json!({ "type": "string", "pattern": TIME }), "duration, such as `\"90s\"`")
        }
        KeyType::TimeOrNever => {
            let pattern = format!(r"({TIME})|^\s*never\s*$");
            (json!({ "type": "string", "pattern": pattern }), "duration, or `\"never\"`")
        }
        KeyType::Count => (json!({ "type": "integer", "minimum": 1 }), "positive integer"),
        KeyType::Word(words) => {
            let quoted: Vec<String> = words.iter().map(|word| format!("`\"{word}\"`")).collect();
            return (json!({ "enum": words }), quoted.join(", "));
        }
        KeyType::Templates => (list(string), "list of strings with `${…}`"),
        KeyType::Texts => (list(text), "list of strings"),
        KeyType::TemplateMap => (map(string), "map of strings with `${…}`"),
        KeyType::EnvMap => {
            let value = json!({ "anyOf": [string, { "$ref": "#/$defs/secret" }] });
            (map(value), "map of strings with `${…}`, or secrets")
        }
        KeyType::Table(scope) => {
            return (table(scope), format!("table, see `{}` below", scope.title));
        }
        KeyType::Tables(scope) => (list(table(scope)), "list of tables"),
        KeyType::FreeTable => (json!({ "type": "object" }), "table of any values"),
        // Not in our own tables.
        KeyType::Seconds | KeyType::Millis | KeyType::ScalarMap | KeyType::ScalarEnvMap => {
            (json!({}), "")
        }
    };
    (schema, words.to_owned())
}

/// Constraints of a key beyond its type.
fn detail(scope: &str, key: &str) -> Value {
    match (scope, key) {
        ("mcp", "name") => json!({
            "pattern": r"^[^\s/\\\x00-\x1f]([^/\\\x00-\x1f]*[^\s/\\\x00-\x1f])?$",
            "maxLength": 128,
            "not": { "enum": ["toolrack", ".", ".."] },
        }),
        ("mcp", "id") => {
            json!({ "pattern": "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$" })
        }
        ("mcp", "command" | "cwd") | ("package", "identifier") => json!({ "pattern": r"\S" }),
        ("mcp", "url") => json!({ "pattern": r"\$\{|^\s*[hH][tT][tT][pP][sS]?://[^/?#\s]" }),
        ("mcp", "headers") => {
            json!({ "propertyNames": { "pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$" } })
        }
        ("mcp", "env") => json!({ "propertyNames": { "pattern": "^[^=]+$" } }),
        ("defaults", "name_separator") => json!({ "pattern": "^[A-Za-z0-9_-]{1,4}$" }),
        ("defaults", "name_limit") => json!({ "minimum": 24, "maximum": 256 }),
        _ => json!({}),
    }
}

/// Constraints between keys of a table.
fn coherence(scope: &str) -> Value {
    let has = |key: &str| json!({ "required": [key] });
    if scope == "secret" {
        let unset = json!({ "required": ["required"], "properties": {
            "required": { "const": false }, "secret_ref": false, "value": false } });
        return json!({ "oneOf": [has("secret_ref"), has("value"), unset] });
    }
    if scope == "package" {
        let fits = |kind: PackageKind| {
            let hint = json!({ "runtime_hint": { "enum": kind.runners() } });
            let kind = json!({ "type": { "const": kind.as_str() } });
            json!({ "if": { "properties": kind }, "then": { "properties": hint } })
        };
        return json!({ "allOf": PackageKind::ALL.map(fits) });
    }
    if scope != "mcp" {
        return json!({});
    }
    let endpoint = json!({ "enum": ["http", "streamable-http", "sse"] });
    let package = |kind: Value| json!({ "required": ["package"], "properties": { "package": { "properties": { "type": kind } } } });
    let never = |transport: Value| json!({ "not": { "required": ["transport"], "properties": { "transport": transport } } });
    json!({
        "oneOf": [has("command"), has("url"), has("package")],
        "allOf": [
            { "if": has("command"), "then": never(endpoint.clone()) },
            { "if": has("url"), "then": never(json!({ "const": "stdio" })) },
            { "if": package(json!({ "const": "http" })), "then": never(json!({ "const": "stdio" })) },
            { "if": package(json!({ "not": { "const": "http" } })), "then": never(endpoint) },
        ],
    })
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

fn section(scope: &TableKeys) -> String {
    let heading = match scope.title {
        "file" => "The file",
        "defaults" => "`[defaults]`",
        "agents" => "`[[agents]]`",
        "mcp" => "`[[defaults.mcp]]` and `[[agents.mcp]]`",
        "package" => "`package`",
        "source" => "`source`",
        "sandbox" => "`sandbox`",
        _ => "A table in `env`",
    };
    let rows = scope.keys.iter().map(|key| {
        let (_, words) = describe(key.kind);
        format!("| `{}` | {words} | {} | {} |\n", key.name, key.default, key.doc)
    });
    format!(
        "### {heading}\n\n| key | type | default | description |\n|---|---|---|---|\n{}",
        rows.collect::<String>()
    )
}
