//! `/api/daemon`, login, health checks, metrics and the event stream (SSE).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::{Instant, timeout_at};
use utoipa::ToSchema;

use super::{ApiResult, App, AppState, run_blocking};
use crate::access_control::AccessDenied;
use crate::event_log::{StreamItem, TimedEvent, event_type};
use crate::extract::{JsonBody, MAX_PUBLIC_BYTES};
use crate::history::HistoryStatus;
use crate::problem::Problem;
use crate::tokens::{CODE_TTL, LoginFile, Token};

/// A stream ends after this time, so that a client that vanished without closing its connection does not hold a place
/// for ever. A live client reconnects and resumes.
const MAX_STREAM_AGE: Duration = Duration::from_hours(1);
/// Interval of keep-alive comments.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Status of the daemon.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = About)]
pub(super) struct DaemonStatus {
    version: &'static str,
    pid: u32,
    /// The TCP address, for browsers and MCP clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    addr: Option<String>,
    /// The Unix socket, for programs of the same user.
    socket: String,
    /// Start time, Unix time in milliseconds.
    started_ms: u64,
    /// Number of running calls.
    n_running_calls: usize,
    /// State of the call history.
    history: HistoryStatus,
}

/// A link that logs a browser in to the dashboard.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Link)]
pub(super) struct LoginLink {
    /// The URL, for single use.
    url: String,
    /// Validity in seconds.
    seconds: u64,
}

/// An HTML file that logs a browser in to the dashboard.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Page)]
pub(super) struct LoginFileView {
    /// The path of the file. It is removed once it is used or expired.
    file: String,
    /// The URL of the dashboard, without the code.
    url: String,
    /// Validity in seconds. The file is for single use.
    seconds: u64,
}

/// A login code.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Login)]
pub(super) struct LoginRequest {
    code: String,
}

/// A browser token.
#[derive(Serialize, ToSchema)]
#[schema(as = BrowserToken)]
pub(super) struct LoginResponse {
    /// To be sent as `Authorization: Bearer …`.
    token: String,
}

/// Readiness of the daemon.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Ready)]
pub(super) struct Readiness {
    /// Number of servers by state.
    servers: BTreeMap<&'static str, u64>,
}

/// Get the status of the daemon
#[utoipa::path(get, path = "/api/daemon", tag = "daemon", operation_id = "about",
    responses((status = 200, body = DaemonStatus)))]
pub(super) async fn status(State(app): State<App>) -> Json<DaemonStatus> {
    Json(DaemonStatus {
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        addr: app.info.addr.map(|addr| addr.to_string()),
        socket: app.info.socket.display().to_string(),
        started_ms: app.started_ms,
        n_running_calls: app.recorder.live.lock().running.len(),
        history: app.recorder.history.stats.status(),
    })
}

/// Stop the daemon, after running calls have had a few seconds to finish
#[utoipa::path(post, path = "/api/daemon/stop", tag = "daemon",
    responses((status = 202, description = "The daemon is stopping")))]
pub(super) async fn stop(State(app): State<App>) -> StatusCode {
    // Only a request: the shutdown waits for open connections, and this response is one of them.
    app.stop_requested.cancel();
    StatusCode::ACCEPTED
}

/// Create a single-use login link for the dashboard
#[utoipa::path(post, path = "/api/daemon/link", tag = "daemon", operation_id = "link",
    responses((status = 201, body = LoginLink)))]
pub(super) async fn create_login_link(
    State(app): State<App>,
) -> Result<(StatusCode, Json<LoginLink>), Problem> {
    let (url, code) = new_login_code(&app)?;
    let url = format!("{url}#code={}", code.reveal());
    Ok((StatusCode::CREATED, Json(LoginLink { url, seconds: CODE_TTL.as_secs() })))
}

/// Create a private HTML file that opens the dashboard, so that the login code is not on a command line
#[utoipa::path(post, path = "/api/daemon/page", tag = "daemon", operation_id = "page",
    responses((status = 201, body = LoginFileView)))]
pub(super) async fn create_login_file(
    State(app): State<App>,
) -> Result<(StatusCode, Json<LoginFileView>), Problem> {
    let (url, code) = new_login_code(&app)?;
    let target = format!("{url}#code={}", code.reveal());
    let create = move |app: &AppState| {
        let dir = app.info.socket.parent().unwrap_or(&app.info.socket);
        LoginFile::create(dir, &target).map_err(|error| Problem::internal(error.to_string()))
    };
    let login_file = run_blocking(&app, create).await?;
    let file = login_file.0.display().to_string();
    // The file goes with its code: when the code is used or expires, the drop removes it.
    app.tokens.attach_login_file(&code, login_file);
    let cleanup = App::clone(&app);
    app.endpoints.tasks.spawn(async move {
        tokio::select! {
            () = cleanup.shutdown.graceful.cancelled() => {}
            () = tokio::time::sleep(CODE_TTL) => {}
        }
        cleanup.tokens.remove_expired(Instant::now());
    });
    Ok((StatusCode::CREATED, Json(LoginFileView { file, url, seconds: CODE_TTL.as_secs() })))
}

/// The URL of the dashboard, and a new login code.
fn new_login_code(app: &App) -> Result<(String, Token), Problem> {
    let addr =
        app.info.addr.ok_or_else(|| Problem::conflict("the daemon does not listen on TCP"))?;
    let code = app.tokens.new_code(Instant::now());
    let code = code.map_err(|error| Problem::internal(error.to_string()))?;
    Ok((format!("http://{addr}/"), code))
}

/// Exchange a login code for a browser token
#[utoipa::path(post, path = "/api/login", tag = "daemon", request_body = LoginRequest, security(()),
    responses((status = 200, body = LoginResponse)))]
pub(super) async fn login(
    State(app): State<App>,
    JsonBody(request): JsonBody<LoginRequest, MAX_PUBLIC_BYTES>,
) -> ApiResult<LoginResponse> {
    let token = app.tokens.exchange(&request.code, Instant::now());
    let token = token.map_err(|error| Problem::internal(error.to_string()))?;
    let token = token.ok_or(AccessDenied::InvalidToken)?;
    Ok(Json(LoginResponse { token: token.reveal().to_owned() }))
}

/// Get this document
#[utoipa::path(get, path = "/api/openapi.json", tag = "daemon",
    responses((status = 200, body = Object)))]
pub(super) async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(super::openapi_document())
}

/// Liveness check
#[utoipa::path(get, path = "/healthz", tag = "health", operation_id = "alive", security(()),
    responses((status = 200, description = "The daemon is alive", content_type = "text/plain", body = String)))]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Readiness check
///
/// The daemon is ready from its start until its shutdown, regardless of the state of its servers.
#[utoipa::path(get, path = "/readyz", tag = "health", operation_id = "ready",
    responses((status = 200, body = Readiness)))]
pub(super) async fn readyz(State(app): State<App>) -> ApiResult<Readiness> {
    app.check_running()?;
    Ok(Json(Readiness { servers: servers_by_state(&app) }))
}

/// Get metrics in the Prometheus text format
#[utoipa::path(get, path = "/metrics", tag = "health",
    responses((status = 200, content_type = "text/plain", body = String)))]
pub(super) async fn metrics(State(app): State<App>) -> Response {
    let content_type = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (content_type, app.recorder.render_metrics(&servers_by_state(&app))).into_response()
}

fn servers_by_state(app: &App) -> BTreeMap<&'static str, u64> {
    let mut states = BTreeMap::new();
    for server in app.service.manager().servers() {
        *states.entry(server.state().as_str()).or_default() += 1;
    }
    states
}

/// Event stream (server-sent events)
///
/// Each event has an `id`; a client that reconnects with it in `Last-Event-ID` resumes after it. A client that was too
/// slow, or reconnects too late, gets an event `lost` with the number of events that it missed.
#[utoipa::path(get, path = "/api/events", tag = "events", operation_id = "stream",
    params(("Last-Event-ID" = Option<String>, Header, description = "Resume after this event")), responses((status = 200, content_type = "text/event-stream", body = TimedEvent)))]
pub(super) async fn events(
    State(app): State<App>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let permit = Arc::clone(&app.event_streams).try_acquire_owned();
    let permit = permit.map_err(|_full| Problem::unavailable("too many event streams"))?;
    let last_id = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let reader = app.recorder.events.reader(last_id);
    let ends_at = Instant::now() + MAX_STREAM_AGE;
    // The permit is part of the state, so it is held until the stream ends.
    let stream = futures_util::stream::unfold(
        (app, reader, permit),
        move |(app, mut reader, permit)| async move {
            let item = tokio::select! {
                biased;
                item = timeout_at(ends_at, reader.next()) => item.ok()??,
                // After the reader, so that the client still gets the `stopping` event.
                () = app.shutdown.graceful.cancelled() => return None,
            };
            let (number, data) = match item {
                StreamItem::Event(number, event) => (number, serde_json::to_string(&*event)),
                StreamItem::Missed(number, n_events) => {
                    (number, Ok(json!({ "type": "lost", "n_events": n_events }).to_string()))
                }
            };
            let (id, data) = (app.recorder.events.id(number), data.unwrap_or_default());
            let event = Event::default().id(id).event(event_type(&data)).data(data);
            Some((Ok::<_, Infallible>(event), (app, reader, permit)))
        },
    );
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE_INTERVAL);
    Ok(Sse::new(stream).keep_alive(keep_alive).into_response())
}
