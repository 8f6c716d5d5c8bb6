//! Every route, its place in the published description, and what all of them have in common.

mod calls;
mod config;
mod daemon;
mod events;
mod servers;
mod tools;

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::header::{self, HeaderName};
use http::{HeaderValue, StatusCode};
use tokio::time::timeout;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::timeout::RequestBodyTimeoutLayer;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{InfoBuilder, OpenApi, OpenApiBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access_control::{self, Door};
use crate::assets;
use crate::extract::{LARGEST_BYTES, too_large};
use crate::mcp_endpoints;
use crate::openapi::name_failures;
use crate::problem::Problem;
use crate::state::App;

/// How long a request may take that has no deadline of its own.
const DEADLINE: Duration = Duration::from_secs(90);
/// How long a body may pause.
const BODY_PAUSE: Duration = Duration::from_secs(10);
/// Nothing from elsewhere, nothing inline, and no frame round it. Images may be results of tools.
const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                   font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
                   frame-ancestors 'none'; require-trusted-types-for 'script'";

/// Headers of every answer.
const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, CSP),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// The control API, and its description.
fn api() -> (Router<App>, OpenApi) {
    let about = InfoBuilder::new()
        .title("Toolrack")
        .description(Some("The control API of the Toolrack daemon. Every route but `/healthz` and `/api/login` wants `Authorization: Bearer …` over TCP."))
        .version(env!("CARGO_PKG_VERSION"))
        .build();
    OpenApiRouter::with_openapi(OpenApiBuilder::new().info(about).build())
        .routes(routes!(servers::list_for_agent))
        .routes(routes!(servers::reconnect))
        .routes(routes!(servers::list, servers::create))
        .routes(routes!(servers::check))
        .routes(routes!(servers::get, servers::replace, servers::patch, servers::delete))
        .routes(routes!(servers::start))
        .routes(routes!(servers::stop))
        .routes(routes!(servers::restart))
        .routes(routes!(servers::enable))
        .routes(routes!(servers::disable))
        .routes(routes!(servers::logs))
        .routes(routes!(tools::list))
        .routes(routes!(calls::list, calls::make))
        .routes(routes!(calls::get))
        .routes(routes!(calls::cancel))
        .routes(routes!(calls::latencies))
        .routes(routes!(events::stream))
        .routes(routes!(config::list))
        .routes(routes!(config::set, config::delete))
        .routes(routes!(config::get, config::save))
        .routes(routes!(config::check))
        .routes(routes!(daemon::about))
        .routes(routes!(daemon::stop))
        .routes(routes!(daemon::link))
        .routes(routes!(daemon::page))
        .routes(routes!(daemon::login))
        .routes(routes!(daemon::openapi))
        .routes(routes!(daemon::alive))
        .routes(routes!(daemon::ready))
        .routes(routes!(daemon::metrics))
        .split_for_parts()
}

/// The description of the API, as it is served and published.
pub(crate) fn description() -> OpenApi {
    let (_, mut description) = api();
    name_failures(&mut description);
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    let components = description.components.get_or_insert_default();
    components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    description.security =
        Some(vec![utoipa::openapi::SecurityRequirement::new("bearer", Vec::<String>::new())]);
    description
}

/// Everything that is served at a door.
pub(crate) fn router(app: &App, door: Door) -> Router {
    let (mut router, _) = api();
    for path in assets::paths() {
        router = router.route(path, get(assets::serve));
    }
    router
        .layer(RequestBodyLimitLayer::new(LARGEST_BYTES))
        .layer(RequestBodyTimeoutLayer::new(BODY_PAUSE))
        // The gateway sees to its bodies itself: messages may be larger.
        .merge(mcp_endpoints::routes())
        .fallback(nowhere)
        .method_not_allowed_fallback(wrong_method)
        .with_state(Arc::clone(app))
        .layer(CatchPanicLayer::custom(crashed))
        .layer(from_fn_with_state(Arc::clone(app), admit))
        .layer(Extension(door))
}

/// Lets a request in or not, and sees that it has an end.
async fn admit(
    State(app): State<App>,
    Extension(door): Extension<Door>,
    request: Request,
    next: Next,
) -> Response {
    let (head, body) = request.into_parts();
    let is_api = head.uri.path().starts_with("/api/");
    let mut response = match access_control::admit(door, &head, &app.keys) {
        Ok(()) => {
            let request = Request::from_parts(head, body);
            if has_own_deadline(request.uri().path()) {
                next.run(request).await
            } else {
                let late = || Problem::unavailable("this takes too long").into_response();
                timeout(DEADLINE, next.run(request)).await.unwrap_or_else(|_late| late())
            }
        }
        Err(refusal) => Problem::from(refusal).into_response(),
    };
    if is_api && response.status() == StatusCode::PAYLOAD_TOO_LARGE {
        // The layer that counts bytes says it in words of its own.
        response = too_large().into_response();
    }
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Calls end by the timeout of their server; the gateway sees to itself.
fn has_own_deadline(path: &str) -> bool {
    path == "/api/calls" || path == "/mcp" || path.starts_with("/mcp/")
}

async fn nowhere() -> Problem {
    Problem::not_found("there is no such route")
}

async fn wrong_method() -> Problem {
    Problem::malformed(StatusCode::METHOD_NOT_ALLOWED, "this route does not take this method")
}

fn crashed(_panic: Box<dyn std::any::Any + Send + 'static>) -> Response {
    Problem::internal("a fault of the daemon; its log says more").into_response()
}
