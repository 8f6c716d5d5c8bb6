//! `/api/agents/mcp`: the two routes that spec 002 names.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use toolrack_service::McpService as _;
use utoipa::ToSchema;

use super::servers::settle;
use crate::extract::Body;
use crate::problem::Problem;
use crate::state::App;
use crate::status::StatusView;

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
#[utoipa::path(get, path = "/api/agents/mcp", tag = "agents",
    responses((status = 200, body = AgentServers), (status = "default", body = Problem)))]
pub(super) async fn list(State(app): State<App>) -> Json<AgentServers> {
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
