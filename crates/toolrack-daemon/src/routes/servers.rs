//! `/api/servers`: what is configured, and how it is.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse as _, Response};
use http::{StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::timeout;
use toolrack_service::{
    Enabled, ErrorCode, LocalService, McpConfig, McpService as _, McpStatus, ServiceError,
    ServiceFault, StatusDetail,
};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::event_recorder::{LogLine, MAX_LINES};
use crate::extract::Body;
use crate::openapi::{ServerDocument, StatusDocument};
use crate::problem::Problem;
use crate::process_memory::Census;
use crate::state::{App, blocking};

/// How long an answer waits for a server that starts. It goes on by itself.
const START_WAIT: Duration = Duration::from_secs(45);

/// A server: what is configured, and how it is.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ServerView {
    #[schema(value_type = ServerDocument)]
    config: McpConfig,
    status: StatusView,
}

/// All servers.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ServerList {
    /// In the order of the file.
    servers: Vec<ServerView>,
}

/// The last lines of a server.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Logs {
    /// Oldest first.
    lines: Vec<LogLine>,
}

/// Which lines are wanted.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct LogQuery {
    /// Only lines behind the one with this number.
    after: Option<u64>,
    /// At most so many.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
}

fn view(service: &LocalService, config: McpConfig, census: &Census) -> Option<ServerView> {
    let status = StatusView::weighed(service.status_detail(config.id)?, census);
    Some(ServerView { config, status })
}

async fn known(app: &App, id: Uuid) -> Result<ServerView, Problem> {
    let census = blocking(app, |_app| Ok(Census::take())).await?;
    let found = app.service.get(id).and_then(|config| view(&app.service, config, &census));
    found.ok_or_else(unknown)
}

fn unknown() -> Problem {
    Problem::not_found("no server has this id or name")
}

/// All servers
#[utoipa::path(get, path = "/api/servers", tag = "servers",
    responses((status = 200, body = ServerList), (status = "default", body = Problem)))]
pub(super) async fn list(State(app): State<App>) -> Result<Json<ServerList>, Problem> {
    let census = blocking(&app, |_app| Ok(Census::take())).await?;
    let configs = app.service.list();
    let servers = configs.into_iter().filter_map(|it| view(&app.service, it, &census)).collect();
    Ok(Json(ServerList { servers }))
}

/// Adds a server
///
/// It is started at once if it is enabled; its status says how that goes.
#[utoipa::path(post, path = "/api/servers", tag = "servers", request_body = ServerDocument,
    responses((status = 201, body = ServerView), (status = "default", body = Problem)))]
pub(super) async fn create(
    State(app): State<App>,
    Body(document): Body<Value>,
) -> Result<Response, Problem> {
    let config = McpConfig::from_json(&document)?;
    let id = blocking(&app, move |app| app.service.create(config)).await?;
    let place = [(header::LOCATION, format!("/api/servers/{id}"))];
    Ok((StatusCode::CREATED, place, Json(known(&app, id).await?)).into_response())
}

/// Checks a server without saving it
///
/// One with an `id` is checked as a change of that server, another one as a new one.
#[utoipa::path(post, path = "/api/servers/check", tag = "servers", request_body = ServerDocument,
    responses((status = 204, description = "It could be saved"), (status = "default", body = Problem)))]
pub(super) async fn check(
    State(app): State<App>,
    Body(document): Body<Value>,
) -> Result<StatusCode, Problem> {
    let config = McpConfig::from_json(&document)?;
    let is_same = |it: &McpConfig| it.name == config.name && it.id != config.id;
    if app.service.list().iter().any(is_same) {
        let message = format!("another server is called `{}`", config.name);
        return Err(ServiceError::new(ErrorCode::Conflict, message).at("name").into());
    }
    Ok(StatusCode::NO_CONTENT)
}

/// One server
#[utoipa::path(get, path = "/api/servers/{id}", tag = "servers",
    params(("id" = String, Path, description = "Id or name")),
    responses((status = 200, body = ServerView), (status = "default", body = Problem)))]
pub(super) async fn get(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<ServerView>, Problem> {
    known(&app, app.server(&id)?).await.map(Json)
}

/// Replaces what is configured of a server
#[utoipa::path(put, path = "/api/servers/{id}", tag = "servers", request_body = ServerDocument,
    params(("id" = String, Path, description = "Id or name")),
    responses((status = 200, body = ServerView), (status = "default", body = Problem)))]
pub(super) async fn replace(
    State(app): State<App>,
    Path(id): Path<String>,
    Body(document): Body<Value>,
) -> Result<Json<ServerView>, Problem> {
    let id = app.server(&id)?;
    change(&app, id, move |_before| Ok(document)).await
}

/// Changes some of what is configured of a server
///
/// The body is a JSON Merge Patch: members replace those of the same name, `null` removes one.
#[utoipa::path(patch, path = "/api/servers/{id}", tag = "servers",
    request_body(content = Object, content_type = "application/merge-patch+json"),
    params(("id" = String, Path, description = "Id or name")),
    responses((status = 200, body = ServerView), (status = "default", body = Problem)))]
pub(super) async fn patch(
    State(app): State<App>,
    Path(id): Path<String>,
    Body(patch): Body<Value>,
) -> Result<Json<ServerView>, Problem> {
    if !patch.is_object() {
        return Err(Problem::malformed(
            StatusCode::UNPROCESSABLE_ENTITY,
            "a patch must be an object with the members to change",
        ));
    }
    let id = app.server(&id)?;
    change(&app, id, move |before| Ok(merge(before, patch))).await
}

/// Writes what `next` makes of a config.
async fn change(
    app: &App,
    id: Uuid,
    next: impl FnOnce(Value) -> Result<Value, ServiceError> + Send + 'static,
) -> Result<Json<ServerView>, Problem> {
    blocking(app, move |app| {
        let _alone = app.patching.lock();
        let before = app.service.get(id).ok_or_else(gone)?;
        let unwritten =
            |_unwritable| ServiceError::new(ErrorCode::Internal, "it cannot be written");
        let document = next(serde_json::to_value(&before).map_err(unwritten)?)?;
        let config = McpConfig::from_json(&document)?;
        if !config.id.is_nil() && config.id != id {
            let message = "a server keeps its id; leave it out or repeat it";
            return Err(ServiceError::new(ErrorCode::ValidationError, message).at("id"));
        }
        app.service.update(McpConfig { id, ..config })
    })
    .await?;
    known(app, id).await.map(Json)
}

fn gone() -> ServiceError {
    ServiceError::new(ErrorCode::NotFound, "no server has this id or name")
}

/// Forgets a server, and stops it
#[utoipa::path(delete, path = "/api/servers/{id}", tag = "servers",
    params(("id" = String, Path, description = "Id or name")),
    responses((status = 204, description = "It is gone"), (status = "default", body = Problem)))]
pub(super) async fn delete(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let id = app.server(&id)?;
    blocking(&app, move |app| app.service.delete(id)).await?;
    // It is forgotten already; this only waits until nothing of it runs.
    if let Err(error) = app.service.reload().await {
        tracing::debug!(%error, "a server that was deleted may still run for a moment");
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Starts a server, and waits until it can be called
#[utoipa::path(post, path = "/api/servers/{id}/start", tag = "servers",
    params(("id" = String, Path, description = "Id or name")),
    responses((status = 200, body = StatusView), (status = 202, description = "It is still starting", body = StatusView),
        (status = "default", body = Problem)))]
pub(super) async fn start(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = app.server(&id)?;
    settle(&app, id, app.service.start(id)).await
}

/// Stops a server, and waits until nothing is left of it
#[utoipa::path(post, path = "/api/servers/{id}/stop", tag = "servers",
    params(("id" = String, Path, description = "Id or name")),
    responses((status = 200, body = StatusView), (status = "default", body = Problem)))]
pub(super) async fn stop(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = app.server(&id)?;
    settle(&app, id, app.service.stop(id)).await
}

/// Stops a server and starts it again
#[utoipa::path(post, path = "/api/servers/{id}/restart", tag = "servers",
    params(("id" = String, Path, description = "Id or name")),
    responses((status = 200, body = StatusView), (status = 202, description = "It is still starting", body = StatusView),
        (status = "default", body = Problem)))]
pub(super) async fn restart(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = app.server(&id)?;
    settle(&app, id, app.service.restart(id)).await
}

/// Allows a server, and starts it
///
/// If it cannot be started, it is forbidden again.
#[utoipa::path(post, path = "/api/servers/{id}/enable", tag = "servers",
    params(("id" = String, Path, description = "Id or name")),
    responses((status = 200, body = StatusView), (status = 202, description = "It is still starting", body = StatusView),
        (status = "default", body = Problem)))]
pub(super) async fn enable(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    toggle(app, id, Enabled::Yes).await
}

/// Forbids a server, and stops it
#[utoipa::path(post, path = "/api/servers/{id}/disable", tag = "servers",
    params(("id" = String, Path, description = "Id or name")),
    responses((status = 200, body = StatusView), (status = "default", body = Problem)))]
pub(super) async fn disable(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    toggle(app, id, Enabled::No).await
}

async fn toggle(app: App, id: String, enabled: Enabled) -> Result<Response, Problem> {
    let id = app.server(&id)?;
    // In a task of its own: what is begun here is taken back if it fails, also if the client has gone.
    let task = app.tasks.spawn({
        let service = Arc::clone(&app.service);
        async move { service.set_enabled(id, enabled).await }
    });
    let done = async move {
        let crashed =
            |_crashed| ServiceError::new(ErrorCode::Internal, "the work was not finished");
        task.await.map_err(crashed)?
    };
    settle(&app, id, done).await
}

/// Waits for the outcome, but not for ever.
pub(super) async fn settle(
    app: &App,
    id: Uuid,
    work: impl Future<Output = Result<(), ServiceError>>,
) -> Result<Response, Problem> {
    let status = match timeout(START_WAIT, work).await {
        Ok(done) => done.map(|()| StatusCode::OK).map_err(|error| unstarted(app, id, error))?,
        Err(_late) => StatusCode::ACCEPTED,
    };
    let detail = app.service.status_detail(id).ok_or_else(unknown)?;
    let view = StatusView::from(detail);
    let still = status == StatusCode::ACCEPTED && !matches!(view.status, McpStatus::Running { .. });
    let status = if still { status } else { StatusCode::OK };
    Ok((status, Json(view)).into_response())
}

/// Why a server does not start. That its program is not found must not look as if there were no such server.
fn unstarted(app: &App, id: Uuid, error: ServiceError) -> Problem {
    let mut problem = Problem::from(error);
    if problem.status == StatusCode::NOT_FOUND && app.service.get(id).is_some() {
        problem.status = StatusCode::FAILED_DEPENDENCY;
    }
    problem
}

/// The last lines that a server wrote to its error output
#[utoipa::path(get, path = "/api/servers/{id}/logs", tag = "servers",
    params(("id" = String, Path, description = "Id or name"), LogQuery),
    responses((status = 200, body = Logs), (status = "default", body = Problem)))]
pub(super) async fn logs(
    State(app): State<App>,
    Path(id): Path<String>,
    query: Result<Query<LogQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<Logs>, Problem> {
    let Query(query) = query.map_err(crate::extract::refused)?;
    let config = app.service.get(app.server(&id)?).ok_or_else(unknown)?;
    let limit = crate::extract::limit(query.limit, 200, MAX_LINES)?;
    let after = crate::extract::number("after", query.after)?;
    Ok(Json(Logs { lines: app.chronicle.log(&config.name, after, limit) }))
}

// `/api/agents/mcp`: the two routes that spec 002 names.

/// The servers of an agent.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AgentServers {
    /// Whose servers these are; absent if they are everybody's.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    /// In the order of the file.
    servers: Vec<StatusView>,
}

/// Which server to reconnect.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Reconnect {
    /// Its name or id.
    name: String,
}

/// Configured servers and how their connections are
#[utoipa::path(get, path = "/api/agents/mcp", tag = "agents", operation_id = "list",
    responses((status = 200, body = AgentServers), (status = "default", body = Problem)))]
pub(super) async fn list_for_agent(State(app): State<App>) -> Json<AgentServers> {
    let configs = app.service.list();
    let details = configs.iter().filter_map(|it| app.service.status_detail(it.id));
    let servers = details.map(StatusView::from).collect();
    Json(AgentServers { agent: app.service.agent().map(str::to_owned), servers })
}

/// Ends the connection of a server, and makes a new one
#[utoipa::path(post, path = "/api/agents/mcp/reconnect", tag = "agents", request_body = Reconnect,
    responses((status = 200, body = StatusView), (status = 202, description = "It is still starting", body = StatusView),
        (status = "default", body = Problem)))]
pub(super) async fn reconnect(
    State(app): State<App>,
    Body(wanted): Body<Reconnect>,
) -> Result<Response, Problem> {
    let id = app.server(&wanted.name)?;
    settle(&app, id, app.service.restart(id)).await
}

// How a server is, as it is told over HTTP.

/// How a server is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StatusView {
    id: Uuid,
    name: String,
    #[schema(value_type = StatusDocument)]
    pub(crate) status: McpStatus,
    /// What it is doing, in one word.
    phase: String,
    /// Why it does not run, and what to do.
    #[schema(value_type = Option<Object>)]
    problem: Option<ServiceFault>,
    /// How many of its tools are offered.
    n_tools: usize,
    /// How many tools it has, if it was ever asked.
    n_tools_total: Option<usize>,
    /// Milliseconds until it is tried again.
    retry_in_ms: Option<u64>,
    /// Whether it is started again and again.
    is_crash_looping: bool,
    /// Which launch this is, counted from one.
    launch: Option<u64>,
    /// The process below which all of its processes run, if they run on this machine.
    process: Option<u32>,
    /// The memory of all its processes, if they run on this machine.
    memory_bytes: Option<u64>,
}

impl From<StatusDetail> for StatusView {
    fn from(detail: StatusDetail) -> Self {
        let millis = |it: Duration| u64::try_from(it.as_millis()).unwrap_or(u64::MAX);
        Self {
            id: detail.id,
            name: detail.name,
            status: detail.status,
            phase: detail.phase,
            problem: detail.problem,
            n_tools: detail.n_tools,
            n_tools_total: detail.n_tools_total,
            retry_in_ms: detail.retry_in.map(millis),
            is_crash_looping: detail.is_crash_looping,
            launch: detail.launch,
            process: detail.process,
            memory_bytes: None,
        }
    }
}

impl StatusView {
    /// The same with its memory.
    pub(crate) fn weighed(detail: StatusDetail, census: &Census) -> Self {
        let memory_bytes = detail.process.and_then(|it| census.below(it));
        Self { memory_bytes, ..Self::from(detail) }
    }
}

// JSON Merge Patch (RFC 7396): a document that says what is to be different.

/// The document with the patch applied.
pub(crate) fn merge(target: Value, patch: Value) -> Value {
    let Value::Object(changes) = patch else { return patch };
    let mut members = match target {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    for (name, change) in changes {
        if change.is_null() {
            members.remove(&name);
            continue;
        }
        let before = members.remove(&name).unwrap_or_default();
        members.insert(name, merge(before, change));
    }
    Value::Object(members)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The examples of RFC 7396, appendix A.
    #[test]
    fn the_examples_of_the_rfc() {
        let check = |target: Value, patch: Value, expected: Value| {
            assert_eq!(merge(target.clone(), patch.clone()), expected, "{target} {patch}");
        };
        check(json!({"a":"b"}), json!({"a":"c"}), json!({"a":"c"}));
        check(json!({"a":"b"}), json!({"b":"c"}), json!({"a":"b","b":"c"}));
        check(json!({"a":"b"}), json!({"a":null}), json!({}));
        check(json!({"a":"b","b":"c"}), json!({"a":null}), json!({"b":"c"}));
        check(json!({"a":["b"]}), json!({"a":"c"}), json!({"a":"c"}));
        check(json!({"a":"c"}), json!({"a":["b"]}), json!({"a":["b"]}));
        check(json!({"a":{"b":"c"}}), json!({"a":{"b":"d","c":null}}), json!({"a":{"b":"d"}}));
        check(json!({"a":[{"b":"c"}]}), json!({"a":[1]}), json!({"a":[1]}));
        check(json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"]));
        check(json!({"a":"b"}), json!(["c"]), json!(["c"]));
        check(json!({"a":"foo"}), json!(null), json!(null));
        check(json!({"a":"foo"}), json!("bar"), json!("bar"));
        check(json!({"e":null}), json!({"a":1}), json!({"e":null,"a":1}));
        check(json!([1, 2]), json!({"a":"b","c":null}), json!({"a":"b"}));
        check(json!({}), json!({"a":{"bb":{"ccc":null}}}), json!({"a":{"bb":{}}}));
    }
}
