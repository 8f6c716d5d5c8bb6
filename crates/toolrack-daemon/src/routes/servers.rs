//! `/api/servers` and `/api/agents/mcp`: configuration, status, lifecycle and logs of servers.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::response::{IntoResponse as _, Response};
use http::request::Parts;
use http::{StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::timeout;
use toolrack_service::{
    Enabled, ErrorCode, ErrorDetail, LocalService, McpConfig, McpService as _, McpStatus,
    ServiceError, StatusDetail,
};
use utoipa::ToSchema;
use uuid::Uuid;

use super::merge_patch::merge_patch;
use super::{ApiResult, App, resolve_server, run_blocking, unknown_server};
use crate::event_recorder::{LogLine, MAX_LINES};
use crate::extract::{
    JsonBody, MAX_DOCUMENT_BYTES, PathParams, QueryParams, check_integer, check_limit,
};
use crate::openapi;
use crate::problem::Problem;
use toolrack_platform::ProcessTable;

/// How long a response waits for a starting server. The server keeps starting after that.
const START_TIMEOUT: Duration = Duration::from_secs(45);

/// Configuration and status of a server.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ServerView {
    #[schema(value_type = openapi::Server)]
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
    #[schema(value_type = openapi::Status)]
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

impl StatusView {
    /// The memory is shown if `processes` is given.
    fn new(detail: StatusDetail, processes: Option<&ProcessTable>) -> Self {
        let as_millis =
            |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let process = detail.process.zip(processes);
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
            memory_bytes: process.and_then(|(pid, processes)| processes.tree_bytes(pid)),
        }
    }
}

/// Log lines of a server.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Logs {
    /// Oldest first.
    lines: Vec<LogLine>,
}

/// The server that the path names.
#[derive(Debug, Clone, Copy, utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct ServerId {
    /// Id or name
    #[param(value_type = String)]
    id: Uuid,
}

impl FromRequestParts<App> for ServerId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let PathParams(name) = PathParams::<String>::from_request_parts(parts, app).await?;
        Ok(Self { id: resolve_server(&app.service, &name)? })
    }
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

/// The agent whose servers are listed.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct AgentQuery {
    /// Id of an agent in the config file. Default: the agent of the daemon.
    agent: Option<String>,
}

/// The servers of an agent.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AgentServers {
    /// The agent; absent for the default servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    /// In the order of the config file.
    servers: Vec<AgentServer>,
}

/// A server of an agent.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AgentServer {
    #[serde(flatten)]
    status: StatusView,
    connection: Connection,
    /// Why the connection failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// State of a connection, in the words of founding document 002.
#[derive(Debug, Serialize, ToSchema)]
enum Connection {
    Connecting,
    Connected,
    Failed,
    Disconnected,
}

impl From<StatusDetail> for AgentServer {
    fn from(detail: StatusDetail) -> Self {
        let (connection, reason) = match &detail.status {
            McpStatus::Starting => (Connection::Connecting, None),
            McpStatus::Running { .. } => (Connection::Connected, None),
            McpStatus::Error { message } => {
                // The message is one of document 004's; the reason says what happened.
                let reason = detail.problem.as_ref().and_then(|problem| problem.reason.as_ref());
                (Connection::Failed, Some(reason.unwrap_or(message).clone()))
            }
            _ => (Connection::Disconnected, None),
        };
        Self { status: StatusView::new(detail, None), connection, reason }
    }
}

/// The server to reconnect.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Reconnect)]
pub(super) struct ReconnectRequest {
    /// Name or id.
    name: String,
    /// Id of an agent in the config file. Default: the agent of the daemon.
    agent: Option<String>,
}

async fn server_views(app: &App, configs: Vec<McpConfig>) -> Result<Vec<ServerView>, Problem> {
    let processes = run_blocking(app, |_app| Ok::<_, Problem>(ProcessTable::scan())).await?;
    let view = |config: McpConfig| {
        let detail = app.service.status_detail(config.id)?;
        Some(ServerView { config, status: StatusView::new(detail, Some(&processes)) })
    };
    Ok(configs.into_iter().filter_map(view).collect())
}

async fn load_server(app: &App, id: Uuid) -> Result<ServerView, Problem> {
    let views = server_views(app, app.service.get(id).into_iter().collect()).await?;
    views.into_iter().next().ok_or_else(unknown_server)
}

/// List servers
#[utoipa::path(get, path = "/api/servers", tag = "servers",
    responses((status = 200, body = ServerList)))]
pub(super) async fn list(State(app): State<App>) -> ApiResult<ServerList> {
    Ok(Json(ServerList { servers: server_views(&app, app.service.list()).await? }))
}

/// Add a server
///
/// An enabled server starts at once; its status shows the progress.
#[utoipa::path(post, path = "/api/servers", tag = "servers", request_body = openapi::Server,
    responses((status = 201, body = ServerView)))]
pub(super) async fn create(
    State(app): State<App>,
    JsonBody(document): JsonBody<Value, MAX_DOCUMENT_BYTES>,
) -> Result<Response, Problem> {
    let create = move |app: &super::AppState| app.service.create(McpConfig::from_json(&document)?);
    let id = run_blocking(&app, create).await?;
    let location = [(header::LOCATION, format!("/api/servers/{id}"))];
    Ok((StatusCode::CREATED, location, Json(load_server(&app, id).await?)).into_response())
}

/// Check a server configuration without saving it
///
/// With an `id`, it is checked as a change of that server, otherwise as a new server.
#[utoipa::path(post, path = "/api/servers/check", tag = "servers", request_body = openapi::Server,
    responses((status = 204, description = "The configuration is valid")))]
pub(super) async fn check(
    State(app): State<App>,
    JsonBody(document): JsonBody<Value, MAX_DOCUMENT_BYTES>,
) -> Result<StatusCode, Problem> {
    let config = run_blocking(&app, move |_| McpConfig::from_json(&document)).await?;
    let has_same_name = |other: &McpConfig| other.name == config.name && other.id != config.id;
    if app.service.list().iter().any(has_same_name) {
        let message = format!("a server named `{}` already exists", config.name);
        return Err(ServiceError::new(ErrorCode::Conflict, message).with_field("name").into());
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Get a server
#[utoipa::path(get, path = "/api/servers/{id}", tag = "servers",
    params(ServerId), responses((status = 200, body = ServerView)))]
pub(super) async fn get(State(app): State<App>, server: ServerId) -> ApiResult<ServerView> {
    load_server(&app, server.id).await.map(Json)
}

/// Replace the configuration of a server
#[utoipa::path(put, path = "/api/servers/{id}", tag = "servers", request_body = openapi::Server,
    params(ServerId), responses((status = 200, body = ServerView)))]
pub(super) async fn replace(
    State(app): State<App>,
    server: ServerId,
    JsonBody(document): JsonBody<Value, MAX_DOCUMENT_BYTES>,
) -> ApiResult<ServerView> {
    edit_config(&app, server.id, |_current| document).await
}

/// Change parts of the configuration of a server
///
/// The body is a JSON Merge Patch (RFC 7396): members replace those of the same name, `null` removes a member.
#[utoipa::path(patch, path = "/api/servers/{id}", tag = "servers",
    request_body(content = Object, content_type = "application/merge-patch+json"),
    params(ServerId), responses((status = 200, body = ServerView)))]
pub(super) async fn patch(
    State(app): State<App>,
    server: ServerId,
    JsonBody(patch): JsonBody<Value, MAX_DOCUMENT_BYTES>,
) -> ApiResult<ServerView> {
    if !patch.is_object() {
        return Err(Problem::malformed(
            StatusCode::UNPROCESSABLE_ENTITY,
            "the patch must be an object",
        ));
    }
    edit_config(&app, server.id, |current| merge_patch(current, patch)).await
}

/// Replaces a config by the result of `edit`. The lock makes read, edit and write one step.
async fn edit_config(
    app: &App,
    id: Uuid,
    edit: impl FnOnce(Value) -> Value + Send + 'static,
) -> ApiResult<ServerView> {
    run_blocking(app, move |app| {
        let _guard = app.config_edit_lock.lock();
        let current = app.service.get(id).ok_or_else(unknown_server)?;
        let not_serializable = |_error| Problem::internal("cannot serialize the config");
        let document = edit(serde_json::to_value(&current).map_err(not_serializable)?);
        let config = McpConfig::from_json(&document)?;
        if !config.id.is_nil() && config.id != id {
            return Err(Problem::invalid("id", "the id of a server cannot be changed"));
        }
        Ok(app.service.update(McpConfig { id, ..config })?)
    })
    .await?;
    load_server(app, id).await.map(Json)
}

/// Remove a server and stop it
#[utoipa::path(delete, path = "/api/servers/{id}", tag = "servers",
    params(ServerId), responses((status = 204, description = "The server was removed")))]
pub(super) async fn delete(
    State(app): State<App>,
    server: ServerId,
) -> Result<StatusCode, Problem> {
    run_blocking(&app, move |app| app.service.delete(server.id)).await?;
    // The server is removed already; the reload waits until its processes have ended.
    if let Err(error) = app.service.reload().await {
        tracing::debug!(%error, "a removed server may still be running");
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Start a server and wait until it is ready
#[utoipa::path(post, path = "/api/servers/{id}/start", tag = "servers",
    params(ServerId), responses((status = 200, body = StatusView), (status = 202, description = "The server is still starting", body = StatusView)))]
pub(super) async fn start(State(app): State<App>, server: ServerId) -> StatusResult {
    wait_for_status(&app.service, server.id, app.service.start(server.id)).await
}

/// Stop a server and wait until its processes have ended
#[utoipa::path(post, path = "/api/servers/{id}/stop", tag = "servers",
    params(ServerId), responses((status = 200, body = StatusView)))]
pub(super) async fn stop(State(app): State<App>, server: ServerId) -> StatusResult {
    wait_for_status(&app.service, server.id, app.service.stop(server.id)).await
}

/// Restart a server
#[utoipa::path(post, path = "/api/servers/{id}/restart", tag = "servers",
    params(ServerId), responses((status = 200, body = StatusView), (status = 202, description = "The server is still starting", body = StatusView)))]
pub(super) async fn restart(State(app): State<App>, server: ServerId) -> StatusResult {
    wait_for_status(&app.service, server.id, app.service.restart(server.id)).await
}

/// Enable a server and start it
///
/// If it does not start, it is disabled again.
#[utoipa::path(post, path = "/api/servers/{id}/enable", tag = "servers",
    params(ServerId), responses((status = 200, body = StatusView), (status = 202, description = "The server is still starting", body = StatusView)))]
pub(super) async fn enable(State(app): State<App>, server: ServerId) -> StatusResult {
    set_enabled(&app, server.id, Enabled::Yes).await
}

/// Disable a server and stop it
#[utoipa::path(post, path = "/api/servers/{id}/disable", tag = "servers",
    params(ServerId), responses((status = 200, body = StatusView)))]
pub(super) async fn disable(State(app): State<App>, server: ServerId) -> StatusResult {
    set_enabled(&app, server.id, Enabled::No).await
}

async fn set_enabled(app: &App, id: Uuid, enabled: Enabled) -> StatusResult {
    let service = Arc::clone(&app.service);
    // In a task of its own: the roll-back after a failed start must happen even if the client disconnects.
    let task = app.endpoints.tasks.spawn(async move { service.set_enabled(id, enabled).await });
    let panicked =
        |_panicked| ServiceError::new(ErrorCode::Internal, "the operation did not complete");
    wait_for_status(&app.service, id, async { task.await.map_err(panicked)? }).await
}

/// A response with the status of a server: 200, or 202 if it is still starting.
type StatusResult = Result<(StatusCode, Json<StatusView>), Problem>;

/// Waits for an operation up to [`START_TIMEOUT`], and responds with the status: 200, or 202 if it is still starting.
async fn wait_for_status(
    service: &LocalService,
    id: Uuid,
    work: impl Future<Output = Result<(), ServiceError>>,
) -> StatusResult {
    let finished = timeout(START_TIMEOUT, work).await;
    let has_timed_out = finished.is_err();
    if let Ok(Err(error)) = finished {
        let mut problem = Problem::from(error);
        // A program that is not found: 404 would mean an unknown server.
        if problem.status == StatusCode::NOT_FOUND && service.get(id).is_some() {
            problem.status = StatusCode::FAILED_DEPENDENCY;
        }
        return Err(problem);
    }
    let detail = service.status_detail(id).ok_or_else(unknown_server)?;
    // The server may have become ready between the timeout and the status.
    let is_starting = has_timed_out && !matches!(detail.status, McpStatus::Running { .. });
    let status = if is_starting { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, Json(StatusView::new(detail, None))))
}

/// Get the last stderr lines of a server
#[utoipa::path(get, path = "/api/servers/{id}/logs", tag = "servers",
    params(ServerId, LogQuery), responses((status = 200, body = Logs)))]
pub(super) async fn logs(
    State(app): State<App>,
    server: ServerId,
    QueryParams(query): QueryParams<LogQuery>,
) -> ApiResult<Logs> {
    let config = app.service.get(server.id).ok_or_else(unknown_server)?;
    check_limit(query.limit, MAX_LINES)?;
    check_integer("after", query.after)?;
    let limit = query.limit.unwrap_or(200);
    let lines = app.recorder.live.lock().stderr.tail(&config.name, query.after, limit);
    Ok(Json(Logs { lines }))
}

/// List servers with the status of their connections
#[utoipa::path(get, path = "/api/agents/mcp", tag = "agents", operation_id = "list",
    params(AgentQuery), responses((status = 200, body = AgentServers), (status = 404, description = "No such agent", body = Problem)))]
pub(super) async fn list_for_agent(
    State(app): State<App>,
    QueryParams(query): QueryParams<AgentQuery>,
) -> ApiResult<AgentServers> {
    let agent = query.agent.or_else(|| app.service.agent().map(str::to_owned));
    let details = match (app.endpoints.active_service(agent.as_deref())?, agent.clone()) {
        (None, Some(agent)) => {
            run_blocking(&app, move |app| app.service.statuses_of_inactive_agent(&agent)).await?
        }
        (service, _) => {
            let service = service.unwrap_or_else(|| Arc::clone(&app.service));
            let configs = service.list();
            configs.iter().filter_map(|config| service.status_detail(config.id)).collect()
        }
    };
    Ok(Json(AgentServers { agent, servers: details.into_iter().map(AgentServer::from).collect() }))
}

/// Reconnect a server
#[utoipa::path(post, path = "/api/agents/mcp/reconnect", tag = "agents", request_body = ReconnectRequest,
    responses((status = 200, body = StatusView), (status = 202, description = "The server is still starting", body = StatusView)))]
pub(super) async fn reconnect(
    State(app): State<App>,
    JsonBody(request): JsonBody<ReconnectRequest, MAX_DOCUMENT_BYTES>,
) -> StatusResult {
    let service = app.endpoints.service(request.agent.as_deref()).await?;
    let id = resolve_server(&service, &request.name)?;
    wait_for_status(&service, id, service.restart(id)).await
}
