//! `OpenAPI` document: schemas of types from other crates, and the error responses of every operation.
//!
//! Tests check the schemas against real values and the error responses against random requests.
//!
//! **Invariant:** the document lists every status that a route can respond with.

use serde_json::{Value, json};
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::{
    ContentBuilder, ObjectBuilder, OpenApi, Ref, RefOr, Response, ResponseBuilder, Schema,
};
use utoipa::{PartialSchema, ToSchema};

use crate::problem::Problem;

/// Schema of a server's configuration.
pub(crate) enum Server {}

/// Schema of a server's status.
pub(crate) enum Status {}

/// Schema of a call's outcome.
pub(crate) enum Outcome {}

/// The outcomes of a call.
pub(crate) const OUTCOMES: [&str; 4] = ["done", "tool_error", "failed", "abandoned"];

/// Schema of any JSON value.
pub(crate) enum AnyJson {}

/// Operations that send a request to a server, which may fail in its own ways.
const SERVER_OPERATIONS: [&str; 6] = [
    "/api/calls",
    "/api/agents/mcp/reconnect",
    "/api/servers/{id}/start",
    "/api/servers/{id}/stop",
    "/api/servers/{id}/restart",
    "/api/servers/{id}/enable",
];

/// Descriptions of the error statuses.
const ERROR_DESCRIPTIONS: [(u16, &str); 13] = [
    (400, "The request is malformed"),
    (401, "The token is missing or invalid"),
    (403, "The request is cross-origin, or a rule denies it"),
    (404, "Not found"),
    (408, "The body was not received in time"),
    (409, "The request conflicts with the current state"),
    (413, "The body is too large"),
    (415, "The body is not JSON"),
    (422, "The request is invalid; `field` names the member"),
    (424, "The server requires a login, or its program is missing"),
    (500, "Internal error"),
    (502, "The server cannot be reached, or failed"),
    (503, "Temporarily unavailable"),
];

fn from_json(schema: Value) -> RefOr<Schema> {
    serde_json::from_value(schema).unwrap_or_else(|_error| RefOr::T(Schema::default()))
}

impl PartialSchema for Server {
    fn schema() -> RefOr<Schema> {
        // Many clients write `null` for a member that is absent.
        let optional_string = json!({ "type": ["string", "null"] });
        let optional_bool = json!({ "type": ["boolean", "null"] });
        let non_empty = json!({ "type": ["string", "null"], "minLength": 1 });
        let non_blank = json!({ "type": "string", "pattern": "\\S" });
        from_json(json!({
            "type": "object",
            "required": ["name", "package", "transport"],
            "additionalProperties": false,
            "properties": {
                "id": { "type": ["string", "null"], "format": "uuid", "description": "Assigned if absent" },
                "name": non_blank,
                "enabled": { "type": ["boolean", "null"], "default": true },
                "source": source_schema(),
                "package": {
                    "type": "object",
                    "required": ["package_type", "identifier"],
                    "additionalProperties": false,
                    "properties": {
                        "package_type": { "type": "string", "enum": ["npm", "pypi", "docker", "binary", "http"] },
                        "identifier": non_blank,
                        "version": non_empty,
                        "runtime_hint": {
                            "type": ["string", "null"],
                            "description": "Program that runs the package; it must fit `package_type`",
                            "enum": [null, "npx", "bunx", "pnpm", "uvx", "pipx", "docker", "podman"],
                        },
                    },
                },
                "transport": {
                    "description": "`http` if and only if `package_type` is `http`",
                    "anyOf": [
                        { "type": "string", "enum": ["stdio"] },
                        {
                            "type": "object",
                            "required": ["type"],
                            "additionalProperties": false,
                            "properties": {
                                "type": { "type": "string", "enum": ["stdio", "http"] },
                                "url": { "type": ["string", "null"], "description": "URL of an HTTP server" },
                            },
                        },
                    ],
                },
                "env_vars": {
                    "type": ["object", "null"],
                    "propertyNames": { "type": "string", "pattern": "^[^=\\u0000]+$" },
                    "additionalProperties": {
                        "anyOf": [
                            { "type": "string", "description": "The value" },
                            {
                                "type": "object",
                                "additionalProperties": false,
                                "properties": {
                                    "name": optional_string,
                                    "value": { "type": ["string", "null"], "description": "Moved to the secret store if `is_secret`" },
                                    "secret_ref": { "type": ["string", "null"], "description": "Name of a secret" },
                                    "is_secret": optional_bool,
                                    "required": optional_bool,
                                },
                            },
                        ],
                    },
                },
                "config": {
                    "type": ["object", "array", "string", "number", "boolean", "null"],
                    "description": "Settings, such as `args`, `headers`, `timeout`, `deny`, and any other values, which are kept",
                },
            },
        }))
    }
}

/// The registry from which a server was installed.
fn source_schema() -> Value {
    let source = |name: &str, required: &[&str]| {
        let property = |name: &str| {
            if required.contains(&name) {
                return json!({ "type": "string", "minLength": 1 });
            }
            json!({ "type": ["string", "null"] })
        };
        let all_required = [&["type"], required].concat();
        json!({
            "type": "object",
            "required": all_required,
            "additionalProperties": false,
            "properties": {
                "type": { "type": "string", "enum": [name] },
                "name": property("name"),
                "version": property("version"),
                "qualified_name": property("qualified_name"),
            },
        })
    };
    json!({ "anyOf": [
        source("official", &["name", "version"]),
        source("smithery", &["qualified_name"]),
        source("manual", &[]),
        { "type": "string", "enum": ["manual"] },
        { "type": "null" },
    ] })
}

impl PartialSchema for Outcome {
    fn schema() -> RefOr<Schema> {
        from_json(json!({ "type": "string", "enum": OUTCOMES }))
    }
}

impl PartialSchema for Status {
    fn schema() -> RefOr<Schema> {
        from_json(json!({
            "type": "object",
            "required": ["state"],
            "properties": {
                "state": { "type": "string", "enum": ["stopped", "starting", "running", "error", "disabled"] },
                "tools": { "type": "array", "items": { "type": "string" }, "description": "Names of the tools, while the server is running" },
                "message": { "type": "string", "description": "Error message" },
            },
        }))
    }
}

impl PartialSchema for AnyJson {
    fn schema() -> RefOr<Schema> {
        RefOr::T(ObjectBuilder::new().schema_type(SchemaType::AnyValue).into())
    }
}

impl ToSchema for Server {}
impl ToSchema for Status {}
impl ToSchema for AnyJson {}
impl ToSchema for Outcome {}

/// Adds the possible errors of every operation.
pub(crate) fn add_error_responses(document: &mut OpenApi) {
    let mut schemas = vec![(Problem::name().into_owned(), Problem::schema())];
    Problem::schemas(&mut schemas);
    document.components.get_or_insert_default().schemas.extend(schemas);
    for (path, item) in &mut document.paths.paths {
        let writes = [&mut item.put, &mut item.post, &mut item.patch, &mut item.delete];
        let writes = writes.into_iter().flatten().map(|operation| (true, operation));
        let reads = item.get.iter_mut().map(|operation| (false, operation));
        for (is_write, operation) in reads.chain(writes) {
            let mut statuses = error_statuses(path, operation);
            if is_write {
                statuses.extend([409, 422]);
            }
            if is_write && SERVER_OPERATIONS.contains(&path.as_str()) {
                statuses.extend([404, 424, 502]);
            }
            for status in statuses {
                let response = RefOr::T(error_response(status));
                // A status that the route describes itself keeps its description.
                operation.responses.responses.entry(status.to_string()).or_insert(response);
            }
        }
    }
}

/// The errors of reads and writes.
fn error_statuses(path: &str, operation: &Operation) -> Vec<u16> {
    // Any request can be refused by the access control or by a limit.
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
            // Invalid UTF-8, or an unknown name.
            ParameterIn::Path => statuses.extend([400, 404]),
            ParameterIn::Query | ParameterIn::QueryString => statuses.extend([400, 422]),
            ParameterIn::Header | ParameterIn::Cookie => {}
        }
    }
    statuses
}

fn error_response(status: u16) -> Response {
    let description = ERROR_DESCRIPTIONS
        .iter()
        .find(|(described, _)| *described == status)
        .map_or("", |(_, description)| description);
    let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    ResponseBuilder::new().description(description).content("application/json", problem).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_keep_their_members() {
        let check = |schema: RefOr<Schema>, member: &str| {
            let schema = serde_json::to_value(schema).unwrap();
            assert!(schema.get(member).is_some(), "{schema}");
        };
        check(Server::schema(), "properties");
        check(Status::schema(), "properties");
        check(Outcome::schema(), "enum");
        assert_eq!(serde_json::to_value(AnyJson::schema()).unwrap(), json!({}));
    }
}
