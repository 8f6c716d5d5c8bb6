//! HTTP routes, the `OpenAPI` document, and the middleware that all routes share.

mod calls;
mod config;
mod daemon;
mod events;
mod servers;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json, Router};
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

use crate::access_control::{self, ListenerKind};
use crate::assets;
use crate::extract::{MAX_BODY_BYTES, body_too_large};
use crate::mcp_endpoints;
use crate::openapi::add_error_responses;
use crate::problem::Problem;
use crate::state::App;

/// Timeout of requests that have no timeout of their own.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(90);
/// Timeout between two chunks of a body.
const BODY_IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Only own files, nothing inline, no framing. `data:` images are results of tools.
const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                   font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
                   frame-ancestors 'none'; require-trusted-types-for 'script'";

/// The response of a route with a JSON body.
type ApiResult<T> = Result<Json<T>, Problem>;

/// Headers of every response.
const RESPONSE_HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, CSP),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// The API routes and their `OpenAPI` document.
fn api() -> (Router<App>, OpenApi) {
    let info = InfoBuilder::new()
        .title("Toolrack")
        .description(Some("Control API of the Toolrack daemon. Over TCP, every route except `/healthz` and `/api/login` requires `Authorization: Bearer …`."))
        .version(env!("CARGO_PKG_VERSION"))
        .build();
    OpenApiRouter::with_openapi(OpenApiBuilder::new().info(info).build())
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
        .routes(routes!(calls::list_tools))
        .routes(routes!(calls::list, calls::create))
        .routes(routes!(calls::get))
        .routes(routes!(calls::cancel))
        .routes(routes!(calls::latencies))
        .routes(routes!(events::stream))
        .routes(routes!(config::list_secrets))
        .routes(routes!(config::set_secret, config::delete_secret))
        .routes(routes!(config::get, config::save))
        .routes(routes!(config::check))
        .routes(routes!(daemon::status))
        .routes(routes!(daemon::stop))
        .routes(routes!(daemon::create_login_link))
        .routes(routes!(daemon::create_login_file))
        .routes(routes!(daemon::login))
        .routes(routes!(daemon::openapi))
        .routes(routes!(daemon::healthz))
        .routes(routes!(daemon::readyz))
        .routes(routes!(daemon::metrics))
        .split_for_parts()
}

/// The `OpenAPI` document, as it is served and published.
pub(crate) fn openapi_document() -> OpenApi {
    let (_, mut document) = api();
    add_error_responses(&mut document);
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    let components = document.components.get_or_insert_default();
    components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    document.security =
        Some(vec![utoipa::openapi::SecurityRequirement::new("bearer", Vec::<String>::new())]);
    document
}

/// The router of a listener: API, dashboard and MCP endpoints behind the access control.
pub(crate) fn router(app: &App, listener: ListenerKind) -> Router {
    let (router, _) = api();
    router
        .merge(assets::routes())
        .layer(RequestBodyLimitLayer::new(MAX_BODY_BYTES))
        .layer(RequestBodyTimeoutLayer::new(BODY_IDLE_TIMEOUT))
        // Merged after the layers: the gateway has its own, larger body limit.
        .merge(mcp_endpoints::routes())
        .fallback(async || Problem::not_found("no such route"))
        .method_not_allowed_fallback(async || {
            Problem::malformed(StatusCode::METHOD_NOT_ALLOWED, "method not allowed")
        })
        .with_state(Arc::clone(app))
        // Inside the guard, so that the response to a panic also gets the security headers.
        .layer(CatchPanicLayer::custom(|_panic| {
            Problem::internal("internal error; see the daemon log").into_response()
        }))
        .layer(from_fn_with_state(Arc::clone(app), guard))
        .layer(Extension(listener))
}

/// Middleware: access control, request timeout and response headers.
async fn guard(
    State(app): State<App>,
    Extension(listener): Extension<ListenerKind>,
    request: Request,
    next: Next,
) -> Response {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let is_api = path.starts_with("/api/");
    // Calls end by the timeout of their server, and the gateway has timeouts of its own.
    let has_own_timeout = path == "/api/calls" || path == "/mcp" || path.starts_with("/mcp/");
    let access = access_control::check(listener, &head, &app.tokens);
    // Nothing runs before the access is granted: a future starts when it is awaited.
    let response = next.run(Request::from_parts(head, body));
    let mut response = match access {
        Err(denied) => Problem::from(denied).into_response(),
        Ok(()) if has_own_timeout => response.await,
        Ok(()) => timeout(REQUEST_TIMEOUT, response).await.unwrap_or_else(|_elapsed| {
            Problem::unavailable("the request timed out").into_response()
        }),
    };
    if is_api && response.status() == StatusCode::PAYLOAD_TOO_LARGE {
        // The body limit layer responds with plain text.
        response = body_too_large().into_response();
    }
    for (name, value) in RESPONSE_HEADERS {
        // `insert` replaces a header that a handler has set: no route can weaken these.
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
