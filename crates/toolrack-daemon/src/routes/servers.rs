//! `/api/servers` and `/api/agents/mcp`: configuration, status, lifecycle and logs of servers.

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
    Enabled, ErrorCode, ErrorDetail, LocalService, McpConfig, McpService as _, McpStatus,
    ServiceError, StatusDetail,
};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::event_recorder::{LogLine, MAX_LINES};
use crate::extract::JsonBody;
use crate::openapi::{ServerSchema, StatusSchema};
use crate::problem::Problem;
use crate::state::{App, run_blocking};
use toolrack_platform::ProcessTable;

/// How long a response waits for a starting server. The server keeps starting after that.
const START_TIMEOUT: Duration = Duration::from_secs(45);

/// Configuration and status of a server.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ServerView {
    #[schema(value_type = ServerSchema)]
    config: McpConfig,
    status: StatusView,
}

/// A list of servers.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ServerList {
    /// In the order of the config file.
    servers: Vec<ServerView>,
}

/// Status of a server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StatusView {
    id: Uuid,
    name: String,
    #[schema(value_type = StatusSchema)]
    pub(crate) status: McpStatus,
    /// The current phase of its lifecycle.
    phase: String,
    /// Why it is not running, and what to do about it.
    #[schema(value_type = Option<Object>)]
    problem: Option<ErrorDetail>,
    /// Number of tools that are offered.
    n_tools: usize,
    /// Number of tools before filtering, if they were ever listed.
    n_tools_total: Option<usize>,
    /// Milliseconds until the next connection attempt.
    retry_in_ms: Option<u64>,
    /// Whether it crashes repeatedly.
    is_crash_looping: bool,
    /// Number of the current launch, starting at one.
    launch: Option<u64>,
    /// Process id of the root of its process tree, if it runs on this machine.
    process: Option<u32>,
    /// Memory of its process tree, if it runs on this machine.
    memory_bytes: Option<u64>,
}

impl From<StatusDetail> for StatusView {
    fn from(detail: StatusDetail) -> Self {
        let as_millis =
            |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self {
            id: detail.id,
            name: detail.name,
            status: detail.status,
            phase: detail.phase,
            problem: detail.problem,
            n_tools: detail.n_tools,
            n_tools_total: detail.n_tools_total,
            retry_in_ms: detail.retry_in.map(as_millis),
            is_crash_looping: detail.is_crash_looping,
            launch: detail.launch,
            process: detail.process,
            memory_bytes: None,
        }
    }
}

impl StatusView {
    fn with_memory(detail: StatusDetail, processes: &ProcessTable) -> Self {
        let memory_bytes = detail.process.and_then(|pid| processes.tree_bytes(pid));
        Self { memory_bytes, ..Self::from(detail) }
    }
}

/// Log lines of a server.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Logs {
    /// Oldest first.
    lines: Vec<LogLine>,
}

/// Filter for log lines.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct LogQuery {
    /// Only lines after the one with this number.
    after: Option<u64>,
    /// Maximum number of lines.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
}

/// The servers of an agent.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AgentServers {
    /// The agent; absent for the default servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    /// In the order of the config file.
    servers: Vec<StatusView>,
}

/// The server to reconnect.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Reconnect)]
pub(super) struct ReconnectRequest {
    /// Name or id.
    name: String,
}

fn server_view(
    service: &LocalService,
    config: McpConfig,
    processes: &ProcessTable,
) -> Option<ServerView> {
    let status = StatusView::with_memory(service.status_detail(config.id)?, processes);
    Some(ServerView { config, status })
}

async fn load_server(app: &App, id: Uuid) -> Result<ServerView, Problem> {
    let processes = run_blocking(app, |_app| Ok(ProcessTable::scan())).await?;
    let config = app.service.get(id);
    let view = config.and_then(|config| server_view(&app.service, config, &processes));
    view.ok_or_else(unknown_server)
}

fn unknown_server() -> Problem {
    Problem::not_found("no server with this id or name")
}

/// List servers
#[utoipa::path(get, path = "/api/servers", tag = "servers",
    responses((status = 200, body = ServerList), (status = "default", body = Problem)))]
pub(super) async fn list(State(app): State<App>) -> Result<Json<ServerList>, Problem> {
    let processes = run_blocking(&app, |_app| Ok(ProcessTable::scan())).await?;
    let configs = app.service.list();
    let view = |config| server_view(&app.service, config, &processes);
    Ok(Json(ServerList { servers: configs.into_iter().filter_map(view).collect() }))
}

/// Add a server
///
/// An enabled server starts at once; its status shows the progress.
#[utoipa::path(post, path = "/api/servers", tag = "servers", request_body = ServerSchema,
    responses((status = 201, body = ServerView), (status = "default", body = Problem)))]
pub(super) async fn create(
    State(app): State<App>,
    JsonBody(document): JsonBody<Value>,
) -> Result<Response, Problem> {
    let config = McpConfig::from_json(&document)?;
    let id = run_blocking(&app, move |app| app.service.create(config)).await?;
    let location = [(header::LOCATION, format!("/api/servers/{id}"))];
    Ok((StatusCode::CREATED, location, Json(load_server(&app, id).await?)).into_response())
}

/// Check a server configuration without saving it
///
/// With an `id`, it is checked as a change of that server, otherwise as a new server.
#[utoipa::path(post, path = "/api/servers/check", tag = "servers", request_body = ServerSchema,
    responses((status = 204, description = "The configuration is valid"), (status = "default", body = Problem)))]
pub(super) async fn check(
    State(app): State<App>,
    JsonBody(document): JsonBody<Value>,
) -> Result<StatusCode, Problem> {
    let config = McpConfig::from_json(&document)?;
    let has_same_name = |other: &McpConfig| other.name == config.name && other.id != config.id;
    if app.service.list().iter().any(has_same_name) {
        let message = format!("a server named `{}` already exists", config.name);
        return Err(ServiceError::new(ErrorCode::Conflict, message).with_field("name").into());
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Get a server
#[utoipa::path(get, path = "/api/servers/{id}", tag = "servers",
    params(("id" = String, Path, description = "Id or name")),
    responses((status = 200, body = ServerView), (status = "default", body = Problem)))]
pub(super) async fn get(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<ServerView>, Problem> {
    load_server(&app, app.resolve_server(&id)?).await.map(Json)
}

/// Replace the configuration of a server
#[utoipa::path(put, path = "/api/servers/{id}", tag = "servers", request_body = ServerSchema,
    params(("id" = String, Path, description = "Id or name")),
    responses((status = 200, body = ServerView), (status = "default", body = Problem)))]
pub(super) async fn replace(
    State(app): State<App>,
    Path(id): Path<String>,
    JsonBody(document): JsonBody<Value>,
) -> Result<Json<ServerView>, Problem> {
    let id = app.resolve_server(&id)?;
    edit_config(&app, id, move |_current| Ok(document)).await
}

/// Change parts of the configuration of a server
///
/// The body is a JSON Merge Patch (RFC 7396): members replace those of the same name, `null` removes a member.
#[utoipa::path(patch, path = "/api/servers/{id}", tag = "servers",
    request_body(content = Object, content_type = "application/merge-patch+json"),
    params(("id" = String, Path, description = "Id or name")),
    responses((status = 200, body = ServerView), (status = "default", body = Problem)))]
pub(super) async fn patch(
    State(app): State<App>,
    Path(id): Path<String>,
    JsonBody(patch): JsonBody<Value>,
) -> Result<Json<ServerView>, Problem> {
    if !patch.is_object() {
        return Err(Problem::malformed(
            StatusCode::UNPROCESSABLE_ENTITY,
            "the patch must be an object",
        ));
    }
    let id = app.resolve_server(&id)?;
    edit_config(&app, id, move |current| Ok(merge_patch(current, patch))).await
}

/// Replaces a config by the result of `edit`. The lock makes read, edit and write one step.
async fn edit_config(
    app: &App,
    id: Uuid,
    edit: impl FnOnce(Value) -> Result<Value, ServiceError> + Send + 'static,
) -> Result<Json<ServerView>, Problem> {
    run_blocking(app, move |app| {
        // A poisoned lock still excludes others, and that is all it is for.
        let _guard = app.config_edit_lock.lock();
        let not_found = || ServiceError::new(ErrorCode::NotFound, "no server with this id or name");
        let current = app.service.get(id).ok_or_else(not_found)?;
        let not_serializable =
            |_error| ServiceError::new(ErrorCode::Internal, "cannot serialize the config");
        let document = edit(serde_json::to_value(&current).map_err(not_serializable)?)?;
        let config = McpConfig::from_json(&document)?;
        if !config.id.is_nil() && config.id != id {
            let message = "the id of a server cannot be changed";
            return Err(ServiceError::new(ErrorCode::ValidationError, message).with_field("id"));
        }
        app.service.update(McpConfig { id, ..config })
    })
    .await?;
    load_server(app, id).await.map(Json)
}

/// Applies a JSON Merge Patch (RFC 7396).
fn merge_patch(target: Value, patch: Value) -> Value {
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
        let current = members.remove(&name).unwrap_or_default();
        members.insert(name, merge_patch(current, change));
    }
    Value::Object(members)
}

/// Remove a server and stop it
#[utoipa::path(delete, path = "/api/servers/{id}", tag = "servers",
    params(("id" = String, Path, description = "Id or name")),
    responses((status = 204, description = "The server was removed"), (status = "default", body = Problem)))]
pub(super) async fn delete(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let id = app.resolve_server(&id)?;
    run_blocking(&app, move |app| app.service.delete(id)).await?;
    // The server is removed already; the reload waits until its processes have ended.
    if let Err(error) = app.service.reload().await {
        tracing::debug!(%error, "a removed server may still be running");
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Start a server and wait until it is ready
#[utoipa::path(post, path = "/api/servers/{id}/start", tag = "servers",
    params(("id" = String, Path, description = "Id or name")),
    responses((status = 200, body = StatusView), (status = 202, description = "The server is still starting", body = StatusView),
        (status = "default", body = Problem)))]
pub(super) async fn start(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = app.resolve_server(&id)?;
    wait_for_status(&app, id, app.service.start(id)).await
}

/// Stop a server and wait until its processes have ended
#[utoipa::path(post, path = "/api/servers/{id}/stop", tag = "servers",
    params(("id" = String, Path, description = "Id or name")),
    responses((status = 200, body = StatusView), (status = "default", body = Problem)))]
pub(super) async fn stop(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = app.resolve_server(&id)?;
    wait_for_status(&app, id, app.service.stop(id)).await
}

/// Restart a server
#[utoipa::path(post, path = "/api/servers/{id}/restart", tag = "servers",
    params(("id" = String, Path, description = "Id or name")),
    responses((status = 200, body = StatusView), (status = 202, description = "The server is still starting", body = StatusView),
        (status = "default", body = Problem)))]
pub(super) async fn restart(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = app.resolve_server(&id)?;
    wait_for_status(&app, id, app.service.restart(id)).await
}

/// Enable a server and start it
///
/// If it does not start, it is disabled again.
#[utoipa::path(post, path = "/api/servers/{id}/enable", tag = "servers",
    params(("id" = String, Path, description = "Id or name")),
    responses((status = 200, body = StatusView), (status = 202, description = "The server is still starting", body = StatusView),
        (status = "default", body = Problem)))]
pub(super) async fn enable(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    set_enabled(app, id, Enabled::Yes).await
}

/// Disable a server and stop it
#[utoipa::path(post, path = "/api/servers/{id}/disable", tag = "servers",
    params(("id" = String, Path, description = "Id or name")),
    responses((status = 200, body = StatusView), (status = "default", body = Problem)))]
pub(super) async fn disable(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    set_enabled(app, id, Enabled::No).await
}

async fn set_enabled(app: App, id: String, enabled: Enabled) -> Result<Response, Problem> {
    let id = app.resolve_server(&id)?;
    // In a task of its own: the roll-back after a failed start must happen even if the client disconnects.
    let task = app.tasks.spawn({
        let service = Arc::clone(&app.service);
        async move { service.set_enabled(id, enabled).await }
    });
    let work = async move {
        let panicked =
            |_panicked| ServiceError::new(ErrorCode::Internal, "the operation did not complete");
        task.await.map_err(panicked)?
    };
    wait_for_status(&app, id, work).await
}

/// Waits for an operation up to [`START_TIMEOUT`], and responds with the status: 200, or 202 if it is still starting.
async fn wait_for_status(
    app: &App,
    id: Uuid,
    work: impl Future<Output = Result<(), ServiceError>>,
) -> Result<Response, Problem> {
    let status = match timeout(START_TIMEOUT, work).await {
        Ok(result) => {
            result.map(|()| StatusCode::OK).map_err(|error| start_problem(app, id, error))?
        }
        Err(_elapsed) => StatusCode::ACCEPTED,
    };
    let detail = app.service.status_detail(id).ok_or_else(unknown_server)?;
    let view = StatusView::from(detail);
    // The server may have become ready between the timeout and the status.
    let is_starting =
        status == StatusCode::ACCEPTED && !matches!(view.status, McpStatus::Running { .. });
    let status = if is_starting { status } else { StatusCode::OK };
    Ok((status, Json(view)).into_response())
}

/// The error response of a failed start. A program that is not found is 424, since 404 would mean an unknown server.
fn start_problem(app: &App, id: Uuid, error: ServiceError) -> Problem {
    let mut problem = Problem::from(error);
    if problem.status == StatusCode::NOT_FOUND && app.service.get(id).is_some() {
        problem.status = StatusCode::FAILED_DEPENDENCY;
    }
    problem
}

/// Get the last stderr lines of a server
#[utoipa::path(get, path = "/api/servers/{id}/logs", tag = "servers",
    params(("id" = String, Path, description = "Id or name"), LogQuery),
    responses((status = 200, body = Logs), (status = "default", body = Problem)))]
pub(super) async fn logs(
    State(app): State<App>,
    Path(id): Path<String>,
    query: Result<Query<LogQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<Logs>, Problem> {
    let Query(query) = query.map_err(crate::extract::invalid_query)?;
    let config = app.service.get(app.resolve_server(&id)?).ok_or_else(unknown_server)?;
    let limit = crate::extract::check_limit(query.limit, 200, MAX_LINES)?;
    let after = crate::extract::check_integer("after", query.after)?;
    Ok(Json(Logs { lines: app.recorder.stderr_lines(&config.name, after, limit) }))
}

/// List servers with the status of their connections
#[utoipa::path(get, path = "/api/agents/mcp", tag = "agents", operation_id = "list",
    responses((status = 200, body = AgentServers), (status = "default", body = Problem)))]
pub(super) async fn list_for_agent(State(app): State<App>) -> Json<AgentServers> {
    let configs = app.service.list();
    let details = configs.iter().filter_map(|config| app.service.status_detail(config.id));
    let servers = details.map(StatusView::from).collect();
    Json(AgentServers { agent: app.service.agent().map(str::to_owned), servers })
}

/// Reconnect a server
#[utoipa::path(post, path = "/api/agents/mcp/reconnect", tag = "agents", request_body = ReconnectRequest,
    responses((status = 200, body = StatusView), (status = 202, description = "The server is still starting", body = StatusView),
        (status = "default", body = Problem)))]
pub(super) async fn reconnect(
    State(app): State<App>,
    JsonBody(request): JsonBody<ReconnectRequest>,
) -> Result<Response, Problem> {
    let id = app.resolve_server(&request.name)?;
    wait_for_status(&app, id, app.service.restart(id)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The examples of RFC 7396, appendix A.
    #[test]
    fn rfc_7396_examples() {
        let check = |target: Value, patch: Value, expected: Value| {
            assert_eq!(merge_patch(target.clone(), patch.clone()), expected, "{target} {patch}");
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
