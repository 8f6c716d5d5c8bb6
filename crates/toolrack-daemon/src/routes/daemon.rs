//! `/api/daemon` and what belongs to it: who runs, ending it, and how a page gets its key.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::{StatusCode, header};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::extract::Body;
use crate::metrics::Gauges;
use crate::problem::Problem;
use crate::state::App;
use crate::tokens::{CODE_LIFE, Doorway, Token};

/// Who runs.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct About {
    version: &'static str,
    pid: u32,
    /// Where browsers and other clients reach it.
    #[serde(skip_serializing_if = "Option::is_none")]
    addr: Option<String>,
    /// Where programs of the same user reach it.
    socket: String,
    /// Milliseconds since 1970.
    started_ms: u64,
    /// Calls under way.
    n_running_calls: usize,
}

/// A link that opens the page.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Link {
    /// Good once.
    url: String,
    /// And for so many seconds.
    seconds: u64,
}

/// A page in a file that leads to the dashboard.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Page {
    /// Where it lies. It is removed when it was used, or too old.
    file: String,
    /// Where it leads, without the code.
    url: String,
    /// It is good once, and for so many seconds.
    seconds: u64,
}

/// The code of a link.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Login {
    code: String,
}

/// A key for a page.
#[derive(Serialize, ToSchema)]
pub(super) struct Key {
    /// To be sent as `Authorization: Bearer …`.
    token: String,
}

/// Who runs
#[utoipa::path(get, path = "/api/daemon", tag = "daemon",
    responses((status = 200, body = About), (status = "default", body = Problem)))]
pub(super) async fn about(State(app): State<App>) -> Json<About> {
    Json(About {
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        addr: app.addr.map(|it| it.to_string()),
        socket: app.socket.display().to_string(),
        started_ms: app.started_ms,
        n_running_calls: app.chronicle.n_running(),
    })
}

/// Ends the daemon, as soon as calls under way are over or a few seconds have passed
#[utoipa::path(post, path = "/api/daemon/stop", tag = "daemon",
    responses((status = 202, description = "It is about to end"), (status = "default", body = Problem)))]
pub(super) async fn stop(State(app): State<App>) -> StatusCode {
    app.farewell.cancel();
    StatusCode::ACCEPTED
}

/// Makes a link that opens the page
#[utoipa::path(post, path = "/api/daemon/link", tag = "daemon",
    responses((status = 201, body = Link), (status = "default", body = Problem)))]
pub(super) async fn link(State(app): State<App>) -> Result<(StatusCode, Json<Link>), Problem> {
    let (url, code) = invitation(&app)?;
    let url = format!("{url}#code={}", code.reveal());
    Ok((StatusCode::CREATED, Json(Link { url, seconds: CODE_LIFE.as_secs() })))
}

/// Makes a page in a private file that opens the dashboard, for a browser whose command line others can read
#[utoipa::path(post, path = "/api/daemon/page", tag = "daemon",
    responses((status = 201, body = Page), (status = "default", body = Problem)))]
pub(super) async fn page(State(app): State<App>) -> Result<(StatusCode, Json<Page>), Problem> {
    let (url, code) = invitation(&app)?;
    let target = format!("{url}#code={}", code.reveal());
    let dir = app.socket.parent().unwrap_or(&app.socket).to_owned();
    let doorway = tokio::task::spawn_blocking(move || Doorway::open(&dir, &target)).await;
    let doorway = doorway.map_err(std::io::Error::from).flatten();
    let doorway = doorway.map_err(|error| Problem::internal(error.to_string()))?;
    let file = doorway.path().display().to_string();
    app.keys.keep(&code, doorway);
    let keeper = App::clone(&app);
    app.tasks.spawn(async move {
        tokio::select! {
            () = keeper.stop.cancelled() => {}
            () = tokio::time::sleep(CODE_LIFE) => {}
        }
        keeper.keys.tidy(Instant::now());
    });
    Ok((StatusCode::CREATED, Json(Page { file, url, seconds: CODE_LIFE.as_secs() })))
}

/// The address of the dashboard, and a code that opens it.
fn invitation(app: &App) -> Result<(String, Token), Problem> {
    let addr = app.addr.ok_or_else(|| Problem::conflict("the daemon does not listen on TCP"))?;
    let code = app.keys.new_code(Instant::now());
    let code = code.map_err(|error| Problem::internal(error.to_string()))?;
    Ok((format!("http://{addr}/"), code))
}

/// Gives a page its key, once, for the code in the link that opened it
#[utoipa::path(post, path = "/api/login", tag = "daemon", request_body = Login, security(()),
    responses((status = 200, body = Key), (status = "default", body = Problem)))]
pub(super) async fn login(
    State(app): State<App>,
    Body(login): Body<Login>,
) -> Result<Json<Key>, Problem> {
    let key = app.keys.exchange(&login.code, Instant::now());
    let key = key.map_err(|error| Problem::internal(error.to_string()))?;
    let key = key.ok_or(crate::access_control::Refusal::WrongKey)?;
    Ok(Json(Key { token: key.reveal().to_owned() }))
}

/// This description
#[utoipa::path(get, path = "/api/openapi.json", tag = "daemon",
    responses((status = 200, body = Object), (status = "default", body = Problem)))]
pub(super) async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(super::description())
}

// `/healthz`, `/readyz` and `/metrics`, for whoever watches the daemon.

/// How ready the daemon is.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Ready {
    /// How many servers are in which state.
    servers: BTreeMap<&'static str, u64>,
}

/// Whether the daemon lives
#[utoipa::path(get, path = "/healthz", tag = "health", security(()),
    responses((status = 200, description = "It does", content_type = "text/plain", body = String)))]
pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// Whether the daemon takes calls
///
/// It does from its start until it is about to end, whatever its servers do.
#[utoipa::path(get, path = "/readyz", tag = "health",
    responses((status = 200, body = Ready), (status = "default", body = Problem)))]
pub(super) async fn ready(State(app): State<App>) -> Result<Json<Ready>, Problem> {
    if app.is_draining() {
        return Err(Problem::unavailable("the daemon is about to end"));
    }
    Ok(Json(Ready { servers: states(&app) }))
}

/// What is counted, for Prometheus
#[utoipa::path(get, path = "/metrics", tag = "health",
    responses((status = 200, content_type = "text/plain", body = String), (status = "default", body = Problem)))]
pub(super) async fn metrics(State(app): State<App>) -> Response {
    let counts = app.chronicle.history.counts();
    let gauges = Gauges {
        states: states(&app),
        n_running_calls: app.chronicle.n_running() as u64,
        n_history_written: counts.n_written.load(Ordering::Relaxed),
        n_history_dropped: counts.n_dropped.load(Ordering::Relaxed),
    };
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, app.chronicle.metrics(&gauges)).into_response()
}

fn states(app: &App) -> BTreeMap<&'static str, u64> {
    let mut states = BTreeMap::new();
    for server in app.service.rack().servers() {
        *states.entry(server.state().word()).or_default() += 1;
    }
    states
}
