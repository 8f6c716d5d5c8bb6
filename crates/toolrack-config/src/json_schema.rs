//! JSON Schema of `toolrack.toml` and the key reference of docs/config.md, generated from the key table.
//!
//! The schema covers single values and tables. The parser alone checks unique names, existing references
//! and sensible durations.

use serde_json::{Map, Value, json};

use crate::keys::{Key, KeyType, SCOPES, TableKeys};

/// Published address of the schema.
const ID: &str = "https://github.com/toolrack/toolrack/raw/main/docs/toolrack.schema.json";

/// Duration pattern.
const TIME: &str = r"^\s*([0-9]+(ms|s|m|h|d))+\s*$";

/// The JSON Schema of `toolrack.toml`.
pub fn json_schema() -> Value {
    let definitions: Map<String, Value> =
        SCOPES.iter().skip(1).map(|scope| (scope.title.to_owned(), table(scope))).collect();
    let mut schema = match SCOPES.first() {
        Some(file) => table(file),
        None => json!({}),
    };
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
    let mut schema = kind(key.kind);
    merge(&mut schema, detail(scope.title, key.name));
    merge(&mut schema, json!({ "description": key.doc }));
    schema
}

fn kind(kind: KeyType) -> Value {
    let text = json!({ "type": "string", "pattern": r"\S" });
    match kind {
        KeyType::Template => json!({ "type": "string" }),
        KeyType::Text => text,
        KeyType::Flag => json!({ "type": "boolean" }),
        KeyType::Time => json!({ "type": "string", "pattern": TIME }),
        KeyType::TimeOrNever => {
            json!({ "type": "string", "pattern": format!(r"({TIME})|^\s*never\s*$") })
        }
        KeyType::Count => json!({ "type": "integer", "minimum": 1 }),
        KeyType::Word(words) => json!({ "enum": words }),
        KeyType::Templates => json!({ "type": "array", "items": { "type": "string" } }),
        KeyType::Texts => json!({ "type": "array", "items": text }),
        KeyType::TemplateMap => {
            json!({ "type": "object", "additionalProperties": { "type": "string" } })
        }
        KeyType::EnvMap => json!({
            "type": "object",
            "additionalProperties": { "anyOf": [{ "type": "string" }, { "$ref": "#/$defs/secret" }] },
        }),
        KeyType::Table(scope) => json!({ "$ref": format!("#/$defs/{}", scope.title) }),
        KeyType::Tables(scope) => {
            json!({ "type": "array", "items": { "$ref": format!("#/$defs/{}", scope.title) } })
        }
        // Not in our own tables.
        KeyType::Seconds | KeyType::Millis | KeyType::ScalarMap | KeyType::Ignored => json!({}),
    }
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
        let default = match key.default {
            "required" | "–" | "none" | "all" | "inherited" | "assigned" | "detected"
            | "everything" | "from defaults" | "the newest" | "its own" | "manual"
            | "its identifier" => key.default.to_owned(),
            value => format!("`{value}`"),
        };
        format!("| `{}` | {} | {default} | {} |\n", key.name, words(key.kind), key.doc)
    });
    format!(
        "### {heading}\n\n| key | type | default | description |\n|---|---|---|---|\n{}",
        rows.collect::<String>()
    )
}

fn words(kind: KeyType) -> String {
    match kind {
        KeyType::Template => "string with `${…}`".to_owned(),
        KeyType::Text => "text".to_owned(),
        KeyType::Flag => "`true` or `false`".to_owned(),
        KeyType::Time => "duration, such as `\"90s\"`".to_owned(),
        KeyType::TimeOrNever => "duration, or `\"never\"`".to_owned(),
        KeyType::Count => "positive integer".to_owned(),
        KeyType::Word(words) => {
            words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ")
        }
        KeyType::Templates => "list of strings with `${…}`".to_owned(),
        KeyType::Texts => "list of strings".to_owned(),
        KeyType::TemplateMap => "map of strings with `${…}`".to_owned(),
        KeyType::EnvMap => "map of strings with `${…}`, or secrets".to_owned(),
        KeyType::Table(scope) => format!("table, see `{}` below", scope.title),
        KeyType::Tables(_) => "list of tables".to_owned(),
        KeyType::Seconds | KeyType::Millis | KeyType::ScalarMap | KeyType::Ignored => String::new(),
    }
}
