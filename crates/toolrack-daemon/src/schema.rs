//! The shapes of types that other crates own, for the published description. A test holds them against real values.

use std::borrow::Cow;

use serde_json::{Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// One configured server.
pub(crate) enum ServerDocument {}

/// How a server is.
pub(crate) enum StatusDocument {}

/// Any JSON at all.
pub(crate) enum AnyJson {}

fn shape(schema: Value) -> RefOr<Schema> {
    serde_json::from_value(schema).unwrap_or_else(|_unreadable| RefOr::T(Schema::default()))
}

impl PartialSchema for ServerDocument {
    fn schema() -> RefOr<Schema> {
        let text = json!({ "type": "string" });
        shape(json!({
            "type": "object",
            "required": ["name", "package", "transport"],
            "additionalProperties": false,
            "properties": {
                "id": { "type": "string", "format": "uuid", "description": "Assigned if it is left out" },
                "name": { "type": "string", "minLength": 1 },
                "enabled": { "type": "boolean", "default": true },
                "source": {
                    "type": "object",
                    "required": ["type"],
                    "properties": {
                        "type": { "type": "string", "enum": ["official", "smithery", "manual"] },
                        "name": text, "version": text, "qualified_name": text,
                    },
                },
                "package": {
                    "type": "object",
                    "required": ["package_type", "identifier"],
                    "additionalProperties": false,
                    "properties": {
                        "package_type": { "type": "string", "enum": ["npm", "pypi", "docker", "binary", "http"] },
                        "identifier": { "type": "string", "minLength": 1 },
                        "version": text, "runtime_hint": text,
                    },
                },
                "transport": {
                    "type": "object",
                    "required": ["type"],
                    "additionalProperties": false,
                    "properties": {
                        "type": { "type": "string", "enum": ["stdio", "http"] },
                        "url": { "type": "string", "description": "Of a server over HTTP" },
                    },
                },
                "env_vars": {
                    "type": "object",
                    "additionalProperties": {
                        "type": "object",
                        "properties": {
                            "name": text,
                            "value": { "type": "string", "description": "Moved to the secrets if `is_secret`" },
                            "secret_ref": { "type": "string", "description": "The name of a secret" },
                            "is_secret": { "type": "boolean" },
                            "required": { "type": "boolean" },
                        },
                    },
                },
                "config": {
                    "type": "object",
                    "description": "Every other key of the config file, such as `args`, `headers`, `timeout`, `deny`",
                },
            },
        }))
    }
}

impl PartialSchema for StatusDocument {
    fn schema() -> RefOr<Schema> {
        shape(json!({
            "type": "object",
            "required": ["state"],
            "properties": {
                "state": { "type": "string", "enum": ["stopped", "starting", "running", "error", "disabled"] },
                "tools": { "type": "array", "items": { "type": "string" }, "description": "While it runs" },
                "message": { "type": "string", "description": "Of an error" },
            },
        }))
    }
}

impl PartialSchema for AnyJson {
    fn schema() -> RefOr<Schema> {
        shape(json!({}))
    }
}

impl ToSchema for ServerDocument {
    fn name() -> Cow<'static, str> {
        "Server".into()
    }
}

impl ToSchema for StatusDocument {
    fn name() -> Cow<'static, str> {
        "Status".into()
    }
}

impl ToSchema for AnyJson {
    fn name() -> Cow<'static, str> {
        "AnyJson".into()
    }
}
