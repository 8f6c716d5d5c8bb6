//! `/mcp`: the servers themselves, for clients that speak MCP. It is no part of the API, so its description is not
//! either.

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use toolrack_gateway::HttpGateway;

use crate::problem::Problem;
use crate::state::App;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/mcp", any(all))
        .route("/mcp/{agent}", any(agent))
        .route("/mcp/server/{name}", any(server))
}

async fn all(State(app): State<App>, request: Request) -> Response {
    serve(&app, Ok(app.endpoints.all()), request).await
}

async fn agent(State(app): State<App>, Path(id): Path<String>, request: Request) -> Response {
    serve(&app, app.endpoints.agent(&id).await, request).await
}

async fn server(State(app): State<App>, Path(name): Path<String>, request: Request) -> Response {
    serve(&app, app.endpoints.server(&name), request).await
}

async fn serve(app: &App, endpoint: Result<HttpGateway, Problem>, request: Request) -> Response {
    if app.is_draining() {
        return Problem::unavailable("the daemon is about to end").into_response();
    }
    match endpoint {
        Ok(endpoint) => endpoint.handle(request).await.map(Body::new),
        Err(problem) => problem.into_response(),
    }
}
