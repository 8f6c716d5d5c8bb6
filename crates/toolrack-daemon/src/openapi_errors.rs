//! How an operation can fail, as the published description says it: by what it takes and what it does.
//!
//! **Invariant:** every status that a route can answer with is in the description. Random requests are held against it.

use utoipa::openapi::path::{Operation, ParameterIn, PathItem};
use utoipa::openapi::{ContentBuilder, OpenApi, Ref, RefOr, Response, ResponseBuilder};

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
