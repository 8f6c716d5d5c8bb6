//! The shapes of types that other crates own, for the published description. A test holds them against real values.

use std::borrow::Cow;

use serde_json::{Value, json};
use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// One configured server.
pub(crate) enum ServerDocument {}

/// How a server is.
pub(crate) enum StatusDocument {}

/// How a call ended.
pub(crate) enum OutcomeWord {}

/// How calls end.
pub(crate) const OUTCOMES: [&str; 4] = ["done", "tool_error", "failed", "abandoned"];

/// Any JSON at all.
pub(crate) enum AnyJson {}

fn shape(schema: Value) -> RefOr<Schema> {
    serde_json::from_value(schema).unwrap_or_else(|_unreadable| RefOr::T(Schema::default()))
}

impl PartialSchema for ServerDocument {
    fn schema() -> RefOr<Schema> {
        // Where something can be left out, many programs write `null`.
        let text = json!({ "type": ["string", "null"] });
        let flag = json!({ "type": ["boolean", "null"] });
        let some = json!({ "type": ["string", "null"], "minLength": 1 });
        let word = json!({ "type": "string", "pattern": "\\S" });
        shape(json!({
            "type": "object",
            "required": ["name", "package", "transport"],
            "additionalProperties": false,
            "properties": {
                "id": { "type": ["string", "null"], "format": "uuid", "description": "Assigned if it is left out" },
                "name": word,
                "enabled": { "type": ["boolean", "null"], "default": true },
                "source": source(),
                "package": {
                    "type": "object",
                    "required": ["package_type", "identifier"],
                    "additionalProperties": false,
                    "properties": {
                        "package_type": { "type": "string", "enum": ["npm", "pypi", "docker", "binary", "http"] },
                        "identifier": word,
                        "version": some, "runtime_hint": some,
                    },
                },
                "transport": {
                    "description": "`http` exactly if the package is `http`",
                    "anyOf": [
                        { "type": "string", "enum": ["stdio"] },
                        {
                            "type": "object",
                            "required": ["type"],
                            "additionalProperties": false,
                            "properties": {
                                "type": { "type": "string", "enum": ["stdio", "http"] },
                                "url": { "type": ["string", "null"], "description": "Of a server over HTTP" },
                            },
                        },
                    ],
                },
                "env_vars": {
                    "type": ["object", "null"],
                    "propertyNames": { "type": "string", "pattern": "^[^=\\u0000]+$" },
                    "additionalProperties": {
                        "anyOf": [
                            { "type": "string", "description": "Its value" },
                            {
                                "type": "object",
                                "additionalProperties": false,
                                "properties": {
                                    "name": text,
                                    "value": { "type": ["string", "null"], "description": "Moved to the secrets if `is_secret`" },
                                    "secret_ref": { "type": ["string", "null"], "description": "The name of a secret" },
                                    "is_secret": flag,
                                    "required": flag,
                                },
                            },
                        ],
                    },
                },
                "config": {
                    "type": ["object", "null"],
                    "description": "Every other key of the config file, such as `args`, `headers`, `timeout`, `deny`",
                },
            },
        }))
    }
}

/// Where a server was found.
fn source() -> Value {
    let kind = |word: &str, needed: &[&str]| {
        let member = |name: &str| {
            if needed.contains(&name) {
                return json!({ "type": "string", "minLength": 1 });
            }
            json!({ "type": ["string", "null"] })
        };
        let required: Vec<&str> = std::iter::once("type").chain(needed.iter().copied()).collect();
        json!({
            "type": "object",
            "required": required,
            "additionalProperties": false,
            "properties": {
                "type": { "type": "string", "enum": [word] },
                "name": member("name"),
                "version": member("version"),
                "qualified_name": member("qualified_name"),
            },
        })
    };
    json!({ "anyOf": [
        kind("official", &["name", "version"]),
        kind("smithery", &["qualified_name"]),
        kind("manual", &[]),
        { "type": "string", "enum": ["manual"] },
        { "type": "null" },
    ] })
}

impl PartialSchema for OutcomeWord {
    fn schema() -> RefOr<Schema> {
        shape(json!({ "type": "string", "enum": OUTCOMES }))
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
        RefOr::T(ObjectBuilder::new().schema_type(SchemaType::AnyValue).into())
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

impl ToSchema for OutcomeWord {
    fn name() -> Cow<'static, str> {
        "Outcome".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_published_as_it_is_written() {
        let check = |schema: RefOr<Schema>, member: &str| {
            let schema = serde_json::to_value(schema).unwrap();
            assert!(schema.get(member).is_some(), "{schema}");
        };
        check(ServerDocument::schema(), "properties");
        check(StatusDocument::schema(), "properties");
        check(OutcomeWord::schema(), "enum");
        assert_eq!(serde_json::to_value(AnyJson::schema()).unwrap(), json!({}));
    }
}
