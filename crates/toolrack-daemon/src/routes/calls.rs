//! `/api/calls`: making calls, taking them back, and looking at those there were.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query, State};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use toolrack_client::CallOptions;
use toolrack_manager::{Called, read_result};
use toolrack_service::ToolCall;
use toolrack_transport::Delivery;
use utoipa::ToSchema;

use crate::event_recorder::RunningCall;
use crate::extract::Body;
use crate::history::{CallRecord, Latency, Question};
use crate::openapi::{AnyJson, OUTCOMES, OutcomeWord};
use crate::problem::Problem;
use crate::state::App;

/// The text of a result is cut here; the result itself is whole.
const TEXT_BYTES: usize = 64 << 10;
/// The longest time that a caller can ask for.
const LONGEST: Duration = Duration::from_hours(1);

/// A call to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewCall {
    /// The public name of the tool, or `server.tool`; with `server`, what that server calls it.
    tool: String,
    /// The server, by its name.
    #[serde(default)]
    server: Option<String>,
    /// The arguments, as an object.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    arguments: Option<Box<RawValue>>,
    /// How long to wait, in milliseconds. As the config says, unless set.
    #[serde(default, deserialize_with = "crate::extract::whole")]
    #[schema(minimum = 1, maximum = 3_600_000)]
    timeout_ms: Option<u64>,
}

/// What a tool answered.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CallAnswer {
    /// By which the history knows it.
    id: String,
    /// Whether the tool ran and said that it failed.
    is_error: bool,
    /// The text of the result, cleaned; at most 64 KiB of it.
    text: String,
    /// All of the result, as the server wrote it, without secrets in use.
    #[schema(value_type = AnyJson)]
    result: Box<RawValue>,
}

/// Which calls are wanted.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct CallQuery {
    /// Of this server.
    server: Option<String>,
    /// Of this tool, as its server names it.
    tool: Option<String>,
    /// With this outcome.
    #[param(value_type = Option<OutcomeWord>, inline)]
    outcome: Option<String>,
    /// Not older than this, in milliseconds since 1970.
    since_ms: Option<u64>,
    /// Where to go on, from `next` of the page before.
    before: Option<i64>,
    /// At most so many.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
}

/// Calls that are over, newest first, and calls that are not.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CallList {
    /// Calls under way, whatever is asked for.
    running: Vec<RunningCall>,
    calls: Vec<CallRecord>,
    /// Where the next page begins, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<i64>,
}

/// A call, over or not.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(super) enum CallView {
    Over(CallRecord),
    Running(RunningCall),
}

/// How long calls took lately.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Latencies {
    /// For each server, and for each tool of it.
    latencies: Vec<Latency>,
}

/// Calls a tool, and waits for its answer
///
/// Closing the connection takes the call back.
#[utoipa::path(post, path = "/api/calls", tag = "calls", request_body = NewCall,
    responses((status = 200, body = CallAnswer), (status = "default", body = Problem)))]
pub(super) async fn make(
    State(app): State<App>,
    Body(call): Body<NewCall>,
) -> Result<Json<CallAnswer>, Problem> {
    if app.is_draining() {
        return Err(Problem::unavailable("the daemon is about to end"));
    }
    let arguments = match &call.arguments {
        Some(given) if given.get().starts_with('{') => Some(&**given),
        Some(given) if given.get() != "null" => {
            let message = "must be an object, with a member for each argument";
            return Err(Problem::invalid("arguments", message));
        }
        _ => None,
    };
    let number = app.service.rack().reserve_call();
    let own = app.begin_call(number);
    let called = match &call.server {
        Some(server) => Called::Of { server, tool: &call.tool },
        None => Called::Public(&call.tool),
    };
    let empty = RawValue::from_string("{}".to_owned());
    let empty = empty.map_err(|_never| Problem::internal("an empty object is no JSON"))?;
    let made = app.service.call(ToolCall {
        number,
        called,
        arguments: arguments.unwrap_or(&empty),
        options: options(call.timeout_ms)?,
    });
    let raw = tokio::select! {
        biased;
        () = own.recall.cancelled() => return Err(Delivery::Unknown.into()),
        made = made => made?,
    };
    let unfit = |_unfit| Problem::unavailable("the result does not fit the protocol");
    let read = read_result(&raw, TEXT_BYTES).map_err(unfit)?;
    let result = raw.checked().map(ToOwned::to_owned);
    Ok(Json(CallAnswer {
        id: app.chronicle.call_id(number),
        is_error: read.is_error,
        text: read.content,
        result: result.map_err(|_no_json| Problem::unavailable("the result is no JSON"))?,
    }))
}

fn options(timeout_ms: Option<u64>) -> Result<CallOptions, Problem> {
    let Some(given) = timeout_ms else { return Ok(CallOptions::default()) };
    let timeout = Duration::from_millis(given);
    if timeout.is_zero() || timeout > LONGEST {
        return Err(Problem::invalid("timeout_ms", "must be between 1 and 3600000"));
    }
    Ok(CallOptions { timeout: Some(timeout), at_most: Some(timeout), ..CallOptions::default() })
}

/// The history of calls
#[utoipa::path(get, path = "/api/calls", tag = "calls", params(CallQuery),
    responses((status = 200, body = CallList), (status = "default", body = Problem)))]
pub(super) async fn list(
    State(app): State<App>,
    query: Result<Query<CallQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<CallList>, Problem> {
    let Query(query) = query.map_err(crate::extract::refused)?;
    if query.outcome.as_deref().is_some_and(|it| !OUTCOMES.contains(&it)) {
        let message = "must be `done`, `tool_error`, `failed` or `abandoned`";
        return Err(Problem::invalid("outcome", message));
    }
    let limit = crate::extract::limit(query.limit, 50, 500)?;
    let since_ms = crate::extract::number("since_ms", query.since_ms)?;
    let CallQuery { server, tool, outcome, before, .. } = query;
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    let question =
        Question { server, tool, outcome, since_ms, before, limit, ..Question::default() };
    let history = Arc::clone(&app.chronicle.history);
    let answers = look_up(move || history.ask(&question)).await?;
    let running = app.chronicle.running();
    Ok(Json(CallList { running, calls: answers.calls, next: answers.next }))
}

/// One call
#[utoipa::path(get, path = "/api/calls/{id}", tag = "calls",
    params(("id" = String, Path, description = "As in the history")),
    responses((status = 200, body = CallView), (status = "default", body = Problem)))]
pub(super) async fn get(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<CallView>, Problem> {
    if let Some(running) = app.chronicle.running_call(&id) {
        return Ok(Json(CallView::Running(running)));
    }
    let history = Arc::clone(&app.chronicle.history);
    let found = look_up(move || history.get(&id)).await?;
    let found = found.ok_or_else(|| Problem::not_found("no call has this id"))?;
    Ok(Json(CallView::Over(found)))
}

/// Takes a call back that was made with this API
#[utoipa::path(post, path = "/api/calls/{id}/cancel", tag = "calls",
    params(("id" = String, Path, description = "As in the history")),
    responses((status = 202, description = "It is being taken back"), (status = "default", body = Problem)))]
pub(super) async fn cancel(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<http::StatusCode, Problem> {
    let number = app.chronicle.call_number(&id);
    if number.is_some_and(|it| app.recall(it)) {
        return Ok(http::StatusCode::ACCEPTED);
    }
    if app.chronicle.running_call(&id).is_some() {
        return Err(Problem::conflict("only whoever made this call can take it back"));
    }
    let history = Arc::clone(&app.chronicle.history);
    match look_up(move || history.get(&id)).await? {
        Some(_) => Err(Problem::conflict("the call is over")),
        None => Err(Problem::not_found("no call has this id")),
    }
}

/// How long calls took lately, by server and tool
#[utoipa::path(get, path = "/api/latencies", tag = "calls",
    responses((status = 200, body = Latencies), (status = "default", body = Problem)))]
pub(super) async fn latencies(State(app): State<App>) -> Result<Json<Latencies>, Problem> {
    let history = Arc::clone(&app.chronicle.history);
    let latencies = look_up(move || history.latencies()).await?;
    Ok(Json(Latencies { latencies }))
}

/// Asks the history where it holds up nobody.
async fn look_up<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, rusqlite::Error> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::task::spawn_blocking(work).await {
        Ok(found) => found.map_err(Problem::from),
        Err(_crashed) => Err(Problem::internal("the history was not read")),
    }
}
