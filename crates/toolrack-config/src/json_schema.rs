//! What is published about our file, made from the table of keys: a JSON Schema and the key reference.
//!
//! The schema says what can be said about one value or one table. That names are unique, that references
//! have values and that times are sensible is checked by the parser alone.

use serde_json::{Map, Value, json};

use crate::keys::{Key, Kind, SCOPES, Scope};

/// Where the schema is published.
const ID: &str = "https://github.com/toolrack/toolrack/raw/main/docs/toolrack.schema.json";

/// A time, or several in a row.
const TIME: &str = r"^\s*([0-9]+(ms|s|m|h|d))+\s*$";

/// The JSON Schema of our file.
pub fn json_schema() -> Value {
    let definitions: Map<String, Value> =
        SCOPES.iter().skip(1).map(|it| (it.title.to_owned(), table(it))).collect();
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

/// The reference of all keys, in Markdown.
pub fn key_reference() -> String {
    SCOPES.iter().map(|it| section(it)).collect::<Vec<_>>().join("\n")
}

fn table(scope: &Scope) -> Value {
    let properties: Map<String, Value> =
        scope.keys.iter().map(|it| (it.name.to_owned(), property(scope, it))).collect();
    let required: Vec<&str> =
        scope.keys.iter().filter(|it| it.default == "required").map(|it| it.name).collect();
    let mut schema = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        merge(&mut schema, json!({ "required": required }));
    }
    merge(&mut schema, coherence(scope.title));
    schema
}

fn property(scope: &Scope, key: &Key) -> Value {
    let mut schema = kind(key.kind);
    merge(&mut schema, detail(scope.title, key.name));
    merge(&mut schema, json!({ "description": key.doc }));
    schema
}

fn kind(kind: Kind) -> Value {
    let text = json!({ "type": "string", "pattern": r"\S" });
    match kind {
        Kind::Template => json!({ "type": "string" }),
        Kind::Text => text,
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Time => json!({ "type": "string", "pattern": TIME }),
        Kind::TimeOrNever => {
            json!({ "type": "string", "pattern": format!(r"({TIME})|^\s*never\s*$") })
        }
        Kind::Count => json!({ "type": "integer", "minimum": 1 }),
        Kind::Word(words) => json!({ "enum": words }),
        Kind::Templates => json!({ "type": "array", "items": { "type": "string" } }),
        Kind::Texts => json!({ "type": "array", "items": text }),
        Kind::TemplateMap => {
            json!({ "type": "object", "additionalProperties": { "type": "string" } })
        }
        Kind::EnvMap => json!({
            "type": "object",
            "additionalProperties": { "anyOf": [{ "type": "string" }, { "$ref": "#/$defs/secret" }] },
        }),
        Kind::Table(scope) => json!({ "$ref": format!("#/$defs/{}", scope.title) }),
        Kind::Tables(scope) => {
            json!({ "type": "array", "items": { "$ref": format!("#/$defs/{}", scope.title) } })
        }
        // Never in a table of ours.
        Kind::Seconds | Kind::Millis | Kind::ScalarMap | Kind::Ignored => json!({}),
    }
}

/// What a key asks for beyond its kind.
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

/// What the keys of a table ask of one another.
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

fn section(scope: &Scope) -> String {
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
    let rows = scope.keys.iter().map(|it| {
        let default = match it.default {
            "required" | "–" | "none" | "all" | "ours" | "assigned" | "as given" | "everything"
            | "from defaults" | "the newest" | "its own" | "a person" | "its identifier" => {
                it.default.to_owned()
            }
            value => format!("`{value}`"),
        };
        format!("| `{}` | {} | {default} | {} |\n", it.name, words(it.kind), it.doc)
    });
    format!(
        "### {heading}\n\n| key | takes | default | what it does |\n|---|---|---|---|\n{}",
        rows.collect::<String>()
    )
}

fn words(kind: Kind) -> String {
    match kind {
        Kind::Template => "text with `${…}`".to_owned(),
        Kind::Text => "text".to_owned(),
        Kind::Flag => "`true` or `false`".to_owned(),
        Kind::Time => "a time, as in `\"90s\"`".to_owned(),
        Kind::TimeOrNever => "a time, or `\"never\"`".to_owned(),
        Kind::Count => "a number above zero".to_owned(),
        Kind::Word(words) => {
            words.iter().map(|it| format!("`\"{it}\"`")).collect::<Vec<_>>().join(", ")
        }
        Kind::Templates => "a list of texts with `${…}`".to_owned(),
        Kind::Texts => "a list of texts".to_owned(),
        Kind::TemplateMap => "names with texts with `${…}`".to_owned(),
        Kind::EnvMap => "names with texts with `${…}`, or secrets".to_owned(),
        Kind::Table(scope) => format!("a table, see `{}` below", scope.title),
        Kind::Tables(_) => "a list of tables".to_owned(),
        Kind::Seconds | Kind::Millis | Kind::ScalarMap | Kind::Ignored => String::new(),
    }
}
