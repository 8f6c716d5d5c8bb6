//! `/api/tools` and `/api/calls`: tools of all servers, their calls, the call history and latencies.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use toolrack_client::CallOptions;
use toolrack_manager::{CallTarget, ToolWithServer, render_tool_result};
use toolrack_service::ToolCall;
use toolrack_transport::{Delivery, sanitize_text};
use utoipa::ToSchema;

use super::{ApiResult, App, run_blocking};
use crate::event_recorder::RunningCall;
use crate::extract::{
    JsonBody, MAX_CALL_BYTES, PathParams, QueryParams, check_integer, check_limit,
};
use crate::history::{CallRecord, Db, HistoryQuery, Latency};
use crate::openapi::{AnyJson, OUTCOMES};
use crate::problem::Problem;

/// Maximum size of `text` in a response. `result` is complete.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// The longest name of a tool or a server, as in the gateway.
const MAX_NAME_BYTES: usize = 4 << 10;
/// The longest timeout that a client can request.
const MAX_TIMEOUT: Duration = Duration::from_hours(1);

/// A tool call.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewCall)]
pub(super) struct CallRequest {
    /// The public name of the tool, or `server.tool`; with `server`, the server's name for the tool.
    tool: String,
    /// The server, by name.
    #[serde(default)]
    server: Option<String>,
    /// The arguments, as an object.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    arguments: Option<Box<RawValue>>,
    /// Timeout in milliseconds. Defaults to the timeout of the config.
    #[serde(default, deserialize_with = "crate::extract::optional_integer")]
    #[schema(minimum = 1, maximum = 3_600_000)]
    timeout_ms: Option<u64>,
}

/// The result of a call.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CallAnswer)]
pub(super) struct CallResponse {
    /// The id of the call in the history.
    id: String,
    /// Whether the tool reported an error.
    is_error: bool,
    /// The text of the result, sanitized and truncated to 64 KiB.
    text: String,
    /// The complete result, as the server sent it, with secrets redacted.
    #[schema(value_type = AnyJson)]
    result: Box<RawValue>,
}

/// Running calls, and finished calls newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CallList {
    /// All running calls, regardless of the filter.
    running: Vec<RunningCall>,
    calls: Vec<CallRecord>,
    /// Cursor of the next page, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<i64>,
}

/// A running or finished call.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(super) enum CallView {
    #[serde(rename = "over")]
    Finished(CallRecord),
    Running(RunningCall),
}

/// Latencies of recent calls.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Latencies {
    /// One entry per server and one per tool.
    latencies: Vec<Latency>,
}

/// Call a tool and wait for its result
///
/// Closing the connection cancels the call.
#[utoipa::path(post, path = "/api/calls", tag = "calls", operation_id = "make", request_body = CallRequest,
    responses((status = 200, body = CallResponse)))]
pub(super) async fn create(
    State(app): State<App>,
    JsonBody(call): JsonBody<CallRequest, MAX_CALL_BYTES>,
) -> ApiResult<CallResponse> {
    app.check_running()?;
    let arguments = match call.arguments {
        Some(arguments) => arguments,
        None => RawValue::from_string("{}".to_owned())
            .map_err(|_never| Problem::internal("cannot build empty arguments"))?,
    };
    // Looks at the first byte only: the arguments are forwarded as they are, without a parse.
    if !arguments.get().starts_with('{') {
        return Err(Problem::invalid("arguments", "must be an object"));
    }
    for (field, name) in [("tool", Some(&call.tool)), ("server", call.server.as_ref())] {
        if name.is_some_and(|name| name.len() > MAX_NAME_BYTES) {
            return Err(Problem::invalid(field, format!("has more than {MAX_NAME_BYTES} bytes")));
        }
    }
    let number = app.service.manager().reserve_call_id();
    // Before the call starts, so that a cancel request that follows at once finds it.
    let registered = app.register_call(number);
    let target = match &call.server {
        Some(server) => CallTarget::OnServer { server, tool: &call.tool },
        None => CallTarget::PublicName(&call.tool),
    };
    let call = app.service.call(ToolCall {
        number,
        tool: target,
        arguments: &arguments,
        options: call_options(call.timeout_ms)?,
    });
    let raw = tokio::select! {
        biased;
        // The request may be on its way to the server, hence `Unknown`. Dropping `call` cancels it there.
        () = registered.cancel.cancelled() => return Err(Delivery::Unknown.into()),
        result = call => result?,
    };
    let invalid = |_error| Problem::unavailable("the server sent an invalid result");
    let parsed = render_tool_result(&raw, MAX_TEXT_BYTES).map_err(invalid)?;
    let result = raw.as_raw_value().map(ToOwned::to_owned);
    Ok(Json(CallResponse {
        id: app.recorder.events.id(number),
        is_error: parsed.is_error,
        text: parsed.content,
        result: result.map_err(|_error| Problem::unavailable("the result is not valid JSON"))?,
    }))
}

fn call_options(timeout_ms: Option<u64>) -> Result<CallOptions, Problem> {
    let Some(timeout_ms) = timeout_ms else { return Ok(CallOptions::default()) };
    let timeout = Duration::from_millis(timeout_ms);
    if timeout.is_zero() || timeout > MAX_TIMEOUT {
        return Err(Problem::invalid("timeout_ms", "must be between 1 and 3600000"));
    }
    Ok(CallOptions {
        timeout: Some(timeout),
        // Both, so that progress of the server does not extend the time that the client asked for.
        total_timeout: Some(timeout),
        ..CallOptions::default()
    })
}

/// List calls
#[utoipa::path(get, path = "/api/calls", tag = "calls", params(HistoryQuery),
    responses((status = 200, body = CallList)))]
pub(super) async fn list(
    State(app): State<App>,
    QueryParams(query): QueryParams<HistoryQuery>,
) -> ApiResult<CallList> {
    if query.outcome.as_deref().is_some_and(|outcome| !OUTCOMES.contains(&outcome)) {
        let message = "must be `done`, `tool_error`, `failed` or `abandoned`";
        return Err(Problem::invalid("outcome", message));
    }
    check_limit(query.limit, 500)?;
    check_integer("since_ms", query.since_ms)?;
    let page =
        run_blocking(&app, move |app| app.recorder.history.read(|db| db.query(&query))).await?;
    let running = app.recorder.live.lock().running.values().cloned().collect();
    Ok(Json(CallList { running, calls: page.calls, next: page.next }))
}

/// Get a call
#[utoipa::path(get, path = "/api/calls/{id}", tag = "calls",
    params(("id" = String, Path, description = "Id of the call")), responses((status = 200, body = CallView)))]
pub(super) async fn get(
    State(app): State<App>,
    PathParams(id): PathParams<String>,
) -> ApiResult<CallView> {
    // In the other order, a call that ends between the two lookups would be missed.
    if let Some(running) = app.recorder.running_call(&id) {
        return Ok(Json(CallView::Running(running)));
    }
    let record = run_blocking(&app, move |app| app.recorder.history.read(|db| db.get(&id))).await?;
    let record = record.ok_or_else(|| Problem::not_found("no call with this id"))?;
    Ok(Json(CallView::Finished(record)))
}

/// Cancel a call that was made through this API
#[utoipa::path(post, path = "/api/calls/{id}/cancel", tag = "calls",
    params(("id" = String, Path, description = "Id of the call")), responses((status = 202, description = "The call is being cancelled")))]
pub(super) async fn cancel(
    State(app): State<App>,
    PathParams(id): PathParams<String>,
) -> Result<http::StatusCode, Problem> {
    let number = app.recorder.events.parse_id(&id);
    if number.is_some_and(|number| app.cancel_call(number)) {
        return Ok(http::StatusCode::ACCEPTED);
    }
    if app.recorder.running_call(&id).is_some() {
        return Err(Problem::conflict("only the client that started this call can cancel it"));
    }
    match run_blocking(&app, move |app| app.recorder.history.read(|db| db.get(&id))).await? {
        Some(_) => Err(Problem::conflict("the call has finished")),
        None => Err(Problem::not_found("no call with this id")),
    }
}

/// Get latencies of recent calls by server and tool
#[utoipa::path(get, path = "/api/latencies", tag = "calls",
    responses((status = 200, body = Latencies)))]
pub(super) async fn latencies(State(app): State<App>) -> ApiResult<Latencies> {
    let latencies = run_blocking(&app, |app| app.recorder.history.read(Db::latencies)).await?;
    Ok(Json(Latencies { latencies }))
}

/// A tool.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ToolView {
    /// The public name, by which the tool is called.
    name: String,
    /// The server that provides it.
    server: String,
    /// The server's name for it.
    raw_name: String,
    /// The display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    /// The description.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// JSON Schema of the arguments, as the server sent it.
    #[schema(value_type = AnyJson)]
    input_schema: Box<RawValue>,
    /// JSON Schema of the structured result.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<AnyJson>)]
    output_schema: Option<Box<RawValue>>,
    /// Whether its server is connected.
    is_connected: bool,
}

/// A list of tools.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ToolList {
    tools: Vec<ToolView>,
}

/// Filter for tools.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ToolQuery {
    /// Only tools of this server, by name.
    server: Option<String>,
}

/// List tools with their schemas
#[utoipa::path(get, path = "/api/tools", tag = "tools", operation_id = "list", params(ToolQuery),
    responses((status = 200, body = ToolList)))]
pub(super) async fn list_tools(
    State(app): State<App>,
    QueryParams(query): QueryParams<ToolQuery>,
) -> Json<ToolList> {
    let tools = app.service.manager().all_tools();
    let matches = |tool: &&ToolWithServer| {
        query.server.as_deref().is_none_or(|name| **tool.server() == *name)
    };
    let sanitize = |text: &String| sanitize_text(text).into_owned();
    let view = |tool: &ToolWithServer| {
        let definition = tool.tool();
        let server = app.service.manager().server(tool.server());
        ToolView {
            name: tool.name().as_ref().to_owned(),
            server: tool.server().as_ref().to_owned(),
            raw_name: definition.name.clone(),
            title: definition.title.as_ref().map(sanitize),
            description: definition.description.as_ref().map(sanitize),
            input_schema: definition.input_schema.clone(),
            output_schema: definition.output_schema.clone(),
            is_connected: server.is_ok_and(|server| server.is_connected()),
        }
    };
    Json(ToolList { tools: tools.iter().filter(matches).map(view).collect() })
}
