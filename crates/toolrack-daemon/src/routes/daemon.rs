//! `/api/daemon` and what belongs to it: who runs, ending it, and how a page gets its key.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::app::App;
use crate::body::Body;
use crate::key::CODE_LIFE;
use crate::problem::Problem;

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
    let addr = app.addr.ok_or_else(|| Problem::conflict("the daemon does not listen on TCP"))?;
    let code = app.keys.new_code(Instant::now());
    let code = code.map_err(|error| Problem::internal(error.to_string()))?;
    let url = format!("http://{addr}/#code={}", code.reveal());
    Ok((StatusCode::CREATED, Json(Link { url, seconds: CODE_LIFE.as_secs() })))
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
    let key = key.ok_or(crate::gate::Refusal::WrongKey)?;
    Ok(Json(Key { token: key.reveal().to_owned() }))
}

/// This description
#[utoipa::path(get, path = "/api/openapi.json", tag = "daemon",
    responses((status = 200, body = Object), (status = "default", body = Problem)))]
pub(super) async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(super::description())
}
