//! HTTP routes, the `OpenAPI` document, and the state (`AppState`) and middleware that all routes share.

mod calls;
mod config;
mod daemon;
mod keys;
mod merge_patch;
mod servers;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json, Router};
use futures_util::StreamExt as _;
use http::header::{self, HeaderName};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use toolrack_platform::unix_time_ms;
use toolrack_service::{ErrorCode, ErrorDetail, LocalService, McpService as _};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::RequestBodyTimeoutLayer;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{InfoBuilder, OpenApi, OpenApiBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::access_control::{self, AccessDenied, ListenerKind, Principal};
use crate::active_keys::{ActiveKey, ActiveKeys};
use crate::assets;
use crate::event_recorder::EventRecorder;
use crate::http_server::{ConnectionEntry, MAX_HEADER_BYTES, Shutdown, Stage};
use crate::instance_lock::DaemonInfo;
use crate::keys::KeyError;
use crate::mcp_endpoints::{self, Endpoints};
use crate::openapi::add_error_responses;
use crate::problem::Problem;
use crate::tokens::Tokens;

/// Timeout of requests that have no timeout of their own.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(90);
/// Timeout between two chunks of a body.
const BODY_IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Only own files, nothing inline, no framing. `data:` images are results of tools.
const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                   font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
                   frame-ancestors 'none'; require-trusted-types-for 'script'";

/// Maximum number of concurrent event streams. Further ones get a 503.
const MAX_EVENT_STREAMS: usize = 64;

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

/// The axum state. Cheap to clone.
pub(crate) type App = Arc<AppState>;

/// State of one daemon, shared by its routes.
#[derive(Debug)]
pub(crate) struct AppState {
    pub(crate) service: Arc<LocalService>,
    pub(crate) recorder: Arc<EventRecorder>,
    pub(crate) endpoints: Endpoints,
    pub(crate) tokens: Tokens,
    pub(crate) keys: ActiveKeys,
    pub(crate) info: DaemonInfo,
    pub(crate) started_ms: u64,
    pub(crate) event_streams: Arc<Semaphore>,
    /// Cancellation tokens of the calls made through this API.
    calls: Mutex<HashMap<u64, CancellationToken>>,
    /// Serializes read-modify-write of a server config, so that concurrent patches do not overwrite each other.
    pub(crate) config_edit_lock: Mutex<()>,
    /// Cancelled when a client requests a stop.
    pub(crate) stop_requested: CancellationToken,
    pub(crate) shutdown: Shutdown,
}

/// A call made through this API. Unregistered on drop.
#[derive(Debug)]
pub(crate) struct CancellableCall {
    app: App,
    number: u64,
    pub(crate) cancel: CancellationToken,
}

impl AppState {
    pub(crate) fn new(endpoints: Endpoints, keys: ActiveKeys, info: DaemonInfo) -> Self {
        Self {
            service: Arc::clone(&endpoints.own.service),
            recorder: Arc::clone(&endpoints.recorder),
            endpoints,
            tokens: Tokens::default(),
            keys,
            info,
            started_ms: unix_time_ms(),
            event_streams: Arc::new(Semaphore::new(MAX_EVENT_STREAMS)),
            calls: Mutex::default(),
            config_edit_lock: Mutex::default(),
            stop_requested: CancellationToken::new(),
            shutdown: Shutdown::default(),
        }
    }

    /// Refuses new work once the daemon is shutting down.
    pub(crate) fn check_running(&self) -> Result<(), Problem> {
        if self.shutdown.graceful.is_cancelled() {
            return Err(Problem::unavailable("the daemon is shutting down"));
        }
        Ok(())
    }

    /// Reads the keys again, and ends the sessions of those that are no longer valid. Returns the number of valid keys
    /// and of revoked ones. Waits for the disk.
    pub(crate) fn reload_keys(&self) -> Result<(usize, usize), KeyError> {
        let (removed, n_keys) = self.keys.reload();
        for key in &removed {
            self.endpoints.close_sessions_of(key);
        }
        Ok((n_keys?, removed.len()))
    }

    /// Registers a call, so that `cancel_call` can find it.
    pub(crate) fn register_call(self: &Arc<Self>, number: u64) -> CancellableCall {
        let cancel = CancellationToken::new();
        self.calls.lock().insert(number, cancel.clone());
        CancellableCall { app: Arc::clone(self), number, cancel }
    }

    /// Cancels a call. Returns `false` if it was not made through this API or has finished.
    pub(crate) fn cancel_call(&self, number: u64) -> bool {
        let cancel = self.calls.lock().get(&number).cloned();
        cancel.inspect(CancellationToken::cancel).is_some()
    }
}

impl Drop for CancellableCall {
    fn drop(&mut self) {
        self.app.calls.lock().remove(&self.number);
    }
}

/// Runs disk work on a blocking thread.
pub(crate) async fn run_blocking<T: Send + 'static, E: Into<Problem> + Send + 'static>(
    app: &App,
    work: impl FnOnce(&AppState) -> Result<T, E> + Send + 'static,
) -> Result<T, Problem> {
    let app = Arc::clone(app);
    match tokio::task::spawn_blocking(move || work(&app)).await {
        Ok(result) => result.map_err(E::into),
        Err(_panicked) => Err(Problem::internal("the operation did not complete")),
    }
}

/// Resolves a server by id or name.
pub(crate) fn resolve_server(service: &LocalService, id_or_name: &str) -> Result<Uuid, Problem> {
    let id = id_or_name.parse().ok().or_else(|| service.id_for_name(id_or_name));
    id.ok_or_else(unknown_server)
}

pub(crate) fn unknown_server() -> Problem {
    Problem::not_found("no server with this id or name")
}

/// The API routes and their `OpenAPI` document.
fn api() -> (Router<App>, OpenApi) {
    let info = InfoBuilder::new()
        .title("Toolrack")
        .description(Some("Control API of the Toolrack daemon. Over TCP, every route except `/healthz`, `/api/login` and `/api/proof` requires `Authorization: Bearer …` with the token of a browser or an `admin` key."))
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
        .routes(routes!(daemon::events))
        .routes(routes!(config::list_secrets))
        .routes(routes!(config::set_secret, config::delete_secret))
        .routes(routes!(config::get, config::save))
        .routes(routes!(config::check))
        .routes(routes!(daemon::status))
        .routes(routes!(daemon::stop))
        .routes(routes!(daemon::create_login_link))
        .routes(routes!(daemon::create_login_file))
        .routes(routes!(daemon::login))
        .routes(routes!(keys::reload))
        .routes(routes!(keys::prove))
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
        .layer(RequestBodyTimeoutLayer::new(BODY_IDLE_TIMEOUT))
        // Merged after the layer: the gateway has a timeout of its own for bodies.
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

/// Refuses a request head above the limit.
fn check_head_size(head: &Parts) -> Result<(), Problem> {
    // Each line has two bytes of its own, a header two more, and the request line two spaces and the version.
    let target = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
    let request_line = head.method.as_str().len() + target + 12;
    let header = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + 4;
    if request_line + head.headers.iter().map(header).sum::<usize>() + 2 <= MAX_HEADER_BYTES {
        return Ok(());
    }
    let message = "the head of the request is larger than 32 KiB";
    Err(Problem::malformed(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, message))
}

/// Whether a request writes files of the home: the config, secrets.
fn writes_files(method: &Method, path: &str) -> bool {
    let is_file_route = ["/api/servers", "/api/secrets", "/api/config"].iter().any(|route| {
        path.strip_prefix(route).is_some_and(|rest| matches!(rest.as_bytes(), [] | [b'/', ..]))
    });
    let is_write = match method.as_str() {
        "PUT" | "PATCH" | "DELETE" => true,
        "POST" => path == "/api/servers" || path.ends_with("/enable") || path.ends_with("/disable"),
        _ => false,
    };
    is_file_route && is_write
}

/// Refuses a change of a home that was deleted: a new file would contain this change only, and the servers that run
/// would be lost.
fn check_home(app: &AppState, head: &Parts) -> Result<(), Problem> {
    if !writes_files(&head.method, head.uri.path()) {
        return Ok(());
    }
    // The socket is in the home. The daemon may have restored it, but not the config file.
    let is_config_lost = !app.info.config.exists() && !app.service.list().is_empty();
    if app.info.socket.exists() && !is_config_lost {
        return Ok(());
    }
    let message = "the home directory of this daemon was removed or replaced; nothing is changed";
    let detail = ErrorDetail::new(ErrorCode::Conflict, message);
    Err(detail.with_hint("restore the directory, or stop the daemon and start it again").into())
}

/// Middleware: access control, request timeout and response headers.
async fn guard(
    State(app): State<App>,
    Extension(listener): Extension<ListenerKind>,
    request: Request,
    next: Next,
) -> Response {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path();
    // Calls end by the timeout of their server, and the gateway has timeouts of its own.
    let has_own_timeout = path == "/api/calls" || path == "/mcp" || path.starts_with("/mcp/");
    let access = check_head_size(&head).and_then(|()| {
        let checked = access_control::check(listener, &head, &app.tokens, &app.keys);
        checked.map_err(Problem::from)
    });
    let access = access.and_then(|principal| check_home(&app, &head).map(|()| principal));
    if let Some(connection) = head.extensions.get::<Arc<ConnectionEntry>>() {
        connection.set_stage(match &access {
            Ok(Principal::User | Principal::Browser | Principal::Key(_)) => Stage::Authenticated,
            Ok(Principal::Anyone) | Err(_) => Stage::Anonymous,
        });
        if let Some(key) = access.as_ref().ok().and_then(Principal::key) {
            connection.set_key(key);
        }
    }
    let mut response = match access {
        Err(problem) => problem.into_response(),
        Ok(principal) => {
            let key = principal.key().cloned();
            head.extensions.insert(principal);
            let response = next.run(Request::from_parts(head, body));
            let response = async {
                if has_own_timeout {
                    return response.await;
                }
                timeout(REQUEST_TIMEOUT, response).await.unwrap_or_else(|_elapsed| {
                    Problem::unavailable("the request timed out").into_response()
                })
            };
            match key {
                Some(key) => until_revoked(&app, &key, response).await,
                None => response.await,
            }
        }
    };
    for (name, value) in RESPONSE_HEADERS {
        // `insert` replaces a header that a handler has set: no route can weaken these.
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The response to a request with a key. It ends if the key is revoked meanwhile.
async fn until_revoked(
    app: &App,
    key: &ActiveKey,
    response: impl Future<Output = Response>,
) -> Response {
    keys::record_use(app, key);
    let Some(response) = key.revoked.run_until_cancelled(response).await else {
        return Problem::from(AccessDenied::InvalidToken).into_response();
    };
    let has_length = response.body().size_hint().exact().is_some();
    if has_length {
        return response;
    }
    let revoked = key.revoked.clone().cancelled_owned();
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(revoked)))
}
