//! `/healthz`, `/readyz` and `/metrics`, for whoever watches the daemon.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header;
use serde::Serialize;
use utoipa::ToSchema;

use crate::metrics::Gauges;
use crate::problem::Problem;
use crate::state::App;

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
