//! The shapes of types that other crates own, for the published description. A test holds them against real values.

use std::borrow::Cow;

use serde_json::{Value, json};
use utoipa::openapi::path::{Operation, ParameterIn, PathItem};
use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::{
    ContentBuilder, ObjectBuilder, OpenApi, Ref, RefOr, Response, ResponseBuilder, Schema,
};
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

// How an operation can fail, as the published description says it: by what it takes and what it does.
//
// **Invariant:** every status that a route can answer with is in the description. Random requests are held against it.

/// Routes under these paths ask a server for something, which may fail in its own ways.
const TO_SERVERS: [&str; 6] = [
    "/api/calls",
    "/api/agents/mcp/reconnect",
    "/api/servers/{id}/start",
    "/api/servers/{id}/stop",
    "/api/servers/{id}/restart",
    "/api/servers/{id}/enable",
];

/// Every status of a failure, and what it says.
const MEANINGS: [(u16, &str); 13] = [
    (400, "The request cannot be read"),
    (401, "A key is needed, or does not fit"),
    (403, "The request comes from elsewhere, or a rule forbids it"),
    (404, "It is not there"),
    (408, "The body did not come in time"),
    (409, "Something stands against it; it may work later or otherwise"),
    (413, "The body is too large"),
    (415, "The body is no JSON"),
    (422, "Something in the request has to be changed; `field` says where"),
    (424, "What the server needs is not there: a login, or its program"),
    (500, "A fault of the daemon"),
    (502, "The server cannot be reached, or failed"),
    (503, "Not at the moment"),
];

/// Says of every operation how it can fail, in place of a word for all failures.
pub(crate) fn name_failures(description: &mut OpenApi) {
    for (path, item) in &mut description.paths.paths {
        for (method, operation) in operations(item) {
            operation.responses.responses.remove("default");
            for status in failures(path, method, operation) {
                let failure = RefOr::T(failure(status));
                operation.responses.responses.entry(status.to_string()).or_insert(failure);
            }
        }
    }
}

/// Whether an operation changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Reads,
    Changes,
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (Method, &mut Operation)> {
    let changing = [&mut item.put, &mut item.post, &mut item.patch, &mut item.delete];
    let changing = changing.into_iter().flatten().map(|it| (Method::Changes, it));
    item.get.iter_mut().map(|it| (Method::Reads, it)).chain(changing)
}

fn failures(path: &str, method: Method, operation: &Operation) -> Vec<u16> {
    // Every request passes the gate, and can be one too many.
    let mut statuses = vec![403, 500, 503];
    if path != "/healthz" {
        statuses.push(401);
    }
    if operation.request_body.is_some() {
        statuses.extend([400, 408, 413, 415, 422]);
    }
    for parameter in operation.parameters.iter().flatten() {
        let RefOr::T(parameter) = parameter else { continue };
        match parameter.parameter_in {
            // A path that is no text, or leads nowhere.
            ParameterIn::Path => statuses.extend([400, 404]),
            ParameterIn::Query | ParameterIn::QueryString => statuses.extend([400, 422]),
            ParameterIn::Header | ParameterIn::Cookie => {}
        }
    }
    if method == Method::Changes {
        statuses.extend([409, 422]);
        if TO_SERVERS.contains(&path) {
            statuses.extend([404, 424, 502]);
        }
    }
    statuses
}

fn failure(status: u16) -> Response {
    let meaning = MEANINGS.iter().find(|(it, _)| *it == status).map_or("", |(_, meaning)| meaning);
    let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    ResponseBuilder::new().description(meaning).content("application/json", problem).build()
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
