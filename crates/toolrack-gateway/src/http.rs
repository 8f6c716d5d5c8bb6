//! HTTP transport: stateless for modern clients, with sessions for legacy ones.
//!
//! [`HttpGateway::handle`] maps one HTTP request to one response. Sockets are left to the caller, such as hyper or
//! axum. Stateless requests are handled here, sessions in [`stateful`].
//!
//! **Invariant:** `Host` and `Origin` are checked before anything else of a request, by [`HttpGateway::handle`] or its
//! caller, and no body is read beyond its limit.

pub(crate) mod request_headers;
pub(crate) mod response;
mod stateful;

use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use parking_lot::Mutex;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use toolrack_mcp::{Era, LogLevel, MetaKey, Method as McpMethod, Revision};
use toolrack_transport::JsonRpcError;

use request_headers::{
    ForbiddenHeader, HTTP_SESSION_ID, PROTOCOL_VERSION, check_host_and_origin, single_value,
};
use response::{
    Accepts, BodyShape, EventStream, HttpResponse, empty, error_response, error_status,
    method_not_allowed, respond,
};
use stateful::Sessions;

use crate::encode::{invalid_request, response as encode_response};
use crate::gateway::{Gateway, Shared};
use crate::message_queue::{MessageQueue, Replay, StreamContent};
use crate::params::{CLIENT_META_KEY, ClientInfo, ClientMessage, ClientRequest, Incoming};
use crate::request_context::RequestContext;
use crate::server_requests::ClientId;

/// Options of an [`HttpGateway`].
#[derive(Debug, Clone)]
pub struct HttpGatewayOptions {
    /// Legacy sessions at once. Beyond them, the session that is idle for longest is closed.
    pub max_sessions: usize,
    /// How long a legacy session may be idle before it is closed.
    pub session_idle_timeout: Duration,
    /// How long a client may take to send a request body.
    pub body_timeout: Duration,
}

impl Default for HttpGatewayOptions {
    fn default() -> Self {
        Self {
            max_sessions: 1_000,
            session_idle_timeout: Duration::from_mins(30),
            body_timeout: Duration::from_secs(30),
        }
    }
}

/// A gateway over HTTP. Clones are handles of the same endpoint; dropping the last one closes its sessions.
#[derive(Debug, Clone)]
pub struct HttpGateway {
    gateway: Gateway,
    body_timeout: Duration,
    sessions: Arc<Sessions>,
    _stop: Arc<DropGuard>,
}

/// How a POST body is handled.
pub(crate) enum PostKind {
    Stateless,
    /// `initialize`, which opens a session.
    Initialize,
    /// Message in this session.
    Session(String),
    /// Legacy message without a session id.
    MissingSession,
}

/// A request that is answered with an HTTP status and an error.
pub(crate) type Rejection = (StatusCode, JsonRpcError);

pub(crate) fn rejection(status: StatusCode, message: &str) -> Rejection {
    (status, invalid_request(message))
}

/// Body of an HTTP request.
pub trait RequestBody:
    Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send
{
}

impl<B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send> RequestBody for B {}

impl HttpGateway {
    /// Creates an endpoint with default options. Call it within a Tokio runtime.
    pub fn new(gateway: Gateway) -> Self {
        Self::with_options(gateway, HttpGatewayOptions::default())
    }

    /// Creates an endpoint with the given options.
    pub fn with_options(gateway: Gateway, options: HttpGatewayOptions) -> Self {
        let HttpGatewayOptions { max_sessions: limit, session_idle_timeout, body_timeout } =
            options;
        let (shared, by_id) = (Arc::clone(&gateway.shared), Mutex::default());
        let sessions = Sessions { shared, by_id, limit, idle_timeout: session_idle_timeout };
        let (sessions, shared) = (Arc::new(sessions), &gateway.shared);
        let stop = shared.stop.child_token();
        shared.tracker.spawn(Arc::clone(&sessions).expire(stop.clone()));
        Self { gateway, body_timeout, sessions, _stop: Arc::new(stop.drop_guard()) }
    }

    /// Ends every stream that has no end of its own, so that the HTTP server can close its connections. Requests in
    /// flight continue until they are answered or the gateway is closed.
    pub fn drain(&self) {
        self.gateway.shared.draining.cancel();
        self.sessions.finish_standalone_streams();
    }

    /// The gateway behind this endpoint.
    pub fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// Closes the legacy sessions of an owner, whose credential is no longer valid.
    pub fn close_sessions_of(&self, owner: &str) {
        self.sessions.close_if(|session| session.owner.as_deref() == Some(owner));
    }

    /// Number of legacy sessions.
    pub fn n_sessions(&self) -> usize {
        self.sessions.by_id.lock().len()
    }

    /// Handles one HTTP request, if its `Host` and `Origin` name this machine.
    ///
    /// # Cancel safety
    /// Dropping the future, or the body of the response, cancels a modern request. A legacy request continues, and the
    /// client can resume its stream.
    pub async fn handle<B: RequestBody>(&self, request: Request<B>) -> HttpResponse {
        let (head, body) = request.into_parts();
        let reason = match check_host_and_origin(&head, None) {
            Ok(()) => return self.handle_checked(Request::from_parts(head, body), None).await,
            Err(ForbiddenHeader::Host) => "Invalid Host header",
            Err(ForbiddenHeader::Origin) => "Invalid Origin header",
        };
        error_response(StatusCode::FORBIDDEN, None, &invalid_request(reason))
    }

    /// Handles one HTTP request that its caller has checked, at least with
    /// [`check_host_and_origin`](crate::check_host_and_origin).
    ///
    /// `owner` names the credential of the request, if it has one: a legacy session is found only by requests of the
    /// owner that opened it.
    ///
    /// # Cancel safety
    /// As [`handle`](Self::handle).
    pub async fn handle_checked<B: RequestBody>(
        &self,
        request: Request<B>,
        owner: Option<&str>,
    ) -> HttpResponse {
        let (head, body) = request.into_parts();
        let response = match head.method {
            Method::POST => self.post(&head.headers, body, owner).await,
            Method::GET => self.sessions.get(&head.headers, owner),
            Method::DELETE => self.sessions.delete(&head.headers, owner),
            _ => Ok(method_not_allowed("POST, GET, DELETE")),
        };
        response.unwrap_or_else(|(status, error)| error_response(status, None, &error))
    }

    async fn post<B: RequestBody>(
        &self,
        headers: &HeaderMap,
        body: B,
        owner: Option<&str>,
    ) -> Result<HttpResponse, Rejection> {
        if !is_json(headers) {
            return Err(rejection(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "Content-Type must be application/json",
            ));
        }
        let Some(accepts) = Accepts::from_headers(headers) else {
            return Err(rejection(
                StatusCode::NOT_ACCEPTABLE,
                "Not Acceptable: only application/json and text/event-stream are available",
            ));
        };
        let incoming = Incoming::parse(&self.read_body(body).await?);
        match classify(headers, &incoming) {
            PostKind::Stateless => self.post_stateless(headers, incoming, accepts).await,
            PostKind::Initialize => self.sessions.open(incoming, owner).await,
            PostKind::Session(id) => {
                let session = self.sessions.session(&id, headers, owner)?;
                Sessions::post(&session, incoming, accepts).await
            }
            PostKind::MissingSession => Err(rejection(
                StatusCode::BAD_REQUEST,
                "Bad Request: Mcp-Session-Id header is required",
            )),
        }
    }

    async fn read_body<B: RequestBody>(&self, body: B) -> Result<Bytes, Rejection> {
        let limit = self.gateway.shared.options.max_message_bytes;
        let too_large =
            || rejection(StatusCode::PAYLOAD_TOO_LARGE, &format!("message exceeds {limit} bytes"));
        // A declared length over the limit is rejected before any of the body is read.
        if usize::try_from(body.size_hint().lower()).map_or(true, |size| size > limit) {
            return Err(too_large());
        }
        let reading = Limited::new(body, limit).collect();
        match timeout(self.body_timeout, Box::pin(reading)).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if is_length_limit(&*error) => Err(too_large()),
            Ok(Err(_error)) => {
                Err(rejection(StatusCode::BAD_REQUEST, "the request body is incomplete"))
            }
            Err(_elapsed) => {
                Err(rejection(StatusCode::REQUEST_TIMEOUT, "timed out reading the request body"))
            }
        }
    }

    /// Handles a stateless request: it carries its client info, and is cancelled when its client disconnects.
    async fn post_stateless(
        &self,
        headers: &HeaderMap,
        incoming: Incoming,
        accepts: Accepts,
    ) -> Result<HttpResponse, Rejection> {
        let mut messages = incoming.messages.into_iter();
        let request = match messages.next().filter(|_| !incoming.is_batch) {
            Some(ClientMessage::Request(request)) => request,
            // Spec 2026-07-28 has no client notifications over HTTP, so they are ignored.
            Some(ClientMessage::Notification { .. }) => return Ok(empty(StatusCode::ACCEPTED)),
            Some(ClientMessage::Malformed { error, .. }) => {
                return Err((StatusCode::BAD_REQUEST, error));
            }
            _ => return Err((StatusCode::BAD_REQUEST, invalid_request("not a JSON-RPC message"))),
        };
        let (id, shared) = (request.id.clone(), &self.gateway.shared);
        let context = match stateless_context(shared, headers, request, accepts.stream_content()) {
            Ok(context) => Arc::new(context),
            Err(error) => return Ok(error_response(StatusCode::BAD_REQUEST, Some(&id), &error)),
        };
        let disconnected = CancellationToken::new();
        let on_disconnect = Box::new(disconnected.clone().drop_guard());
        let events = EventStream::new(Arc::clone(&context.queue), None, None, on_disconnect);
        let status = Arc::new(OnceLock::new());
        let set_status = Arc::clone(&status);
        // In a task, because a response that becomes a stream outlives this future.
        shared.tracker.spawn(async move {
            let outcome = disconnected.run_until_cancelled(context.handle()).await;
            let Some(outcome) = outcome else { return context.queue.finish() };
            // Set before the message is pushed: the response may be built as soon as the message is there.
            set_status
                .get_or_init(|| outcome.as_ref().map_or_else(error_status, |_| StatusCode::OK));
            context.queue.push_last(encode_response(&context.id, &outcome));
        });
        let status = || status.get().copied().unwrap_or(StatusCode::OK);
        Ok(respond(events, (accepts, BodyShape::Single), None, status).await)
    }
}

/// Checks `_meta` and headers of a stateless request.
fn stateless_context(
    shared: &Arc<Shared>,
    headers: &HeaderMap,
    request: ClientRequest,
    content: StreamContent,
) -> Result<RequestContext, JsonRpcError> {
    let ClientRequest { id, method, params } = request;
    let params = params?;
    request_headers::check_mcp_headers(headers, &method, &params)?;
    let client = Arc::new(ClientInfo::from_meta(&params)?);
    if method == McpMethod::CallTool.as_str()
        && let Some(expected) = params.name.as_deref().and_then(|name| shared.param_headers(name))
    {
        request_headers::check_param_headers(headers, &expected, &params)?;
    }
    // Only another gateway says which requests are from the same client. All others count as different clients: taking
    // them for one could send a server request to the wrong one.
    let client_name = params.meta::<String>(CLIENT_META_KEY)?;
    let client_id = client_name.map_or_else(ClientId::new, |name| ClientId::Forwarded(name.into()));
    let queue = MessageQueue::new(Replay::No, content, shared.manager.redactor());
    // Only clients that ask for a log level get log messages.
    if params.meta::<LogLevel>(MetaKey::LOG_LEVEL)?.is_some() {
        queue.report_losses();
    }
    let (shared, session) = (Arc::clone(shared), None);
    let timeout = request_headers::request_timeout(headers)?;
    Ok(RequestContext { shared, client, client_id, session, queue, id, method, params, timeout })
}

/// Whether a body exceeded a limit: ours, or a lower one of the HTTP server, which may be a source of its error.
fn is_length_limit(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |&cause| cause.source());
    causes.any(<dyn Error>::is::<LengthLimitError>)
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = value.unwrap_or_default().split(';').next().unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case("application/json")
}

/// Decides by headers and `_meta` how a POST body is handled.
pub(crate) fn classify(headers: &HeaderMap, incoming: &Incoming) -> PostKind {
    let session = single_value(headers, &HTTP_SESSION_ID).map(str::to_owned);
    let version = single_value(headers, &PROTOCOL_VERSION).map(Revision::parse);
    // An unknown version counts as modern: the stateless handler answers it with the supported ones.
    let is_modern_version = version
        .is_some_and(|revision| revision.is_none_or(|revision| revision.era() == Era::Modern));
    let request = match &*incoming.messages {
        [ClientMessage::Request(request)] if !incoming.is_batch => Some(request),
        // May be a batch, which the session handles. The stateless handler rejects it.
        [ClientMessage::Malformed { .. }] if session.is_none() => return PostKind::Stateless,
        _ if incoming.is_batch && session.is_none() => return PostKind::Stateless,
        _ => None,
    };
    let params = request.and_then(|request| request.params.as_ref().ok());
    let has_meta_version = params.is_some_and(|params| !matches!(params.meta_version(), Ok(None)));
    let is_initialize =
        request.is_some_and(|request| request.method == McpMethod::Initialize.as_str());
    match (session, version) {
        // Spec 2026-07-28, transports: the body is authoritative, so `_meta` wins over the headers.
        _ if has_meta_version => PostKind::Stateless,
        (None, _) if is_initialize && !is_modern_version => PostKind::Initialize,
        (Some(session), _) if !is_modern_version => PostKind::Session(session),
        (_, Some(Some(revision))) if revision.era() == Era::Legacy => PostKind::MissingSession,
        _ if request.is_none() && !is_modern_version => PostKind::MissingSession,
        _ => PostKind::Stateless,
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[track_caller]
    fn check(headers: &[(&HeaderName, &'static str)], message: &str, expected: &str) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert((*name).clone(), HeaderValue::from_static(value));
        }
        let incoming = Incoming::parse(&Bytes::copy_from_slice(message.as_bytes()));
        let kind = match classify(&map, &incoming) {
            PostKind::Stateless => "stateless".to_owned(),
            PostKind::Initialize => "initialize".to_owned(),
            PostKind::Session(id) => format!("session {id}"),
            PostKind::MissingSession => "missing session".to_owned(),
        };
        assert_eq!(kind, expected, "{headers:?} {message}");
    }

    #[test]
    fn post_is_classified_by_headers_and_meta() {
        let modern = (&PROTOCOL_VERSION, "2026-07-28");
        let legacy = (&PROTOCOL_VERSION, "2025-11-25");
        let unknown = (&PROTOCOL_VERSION, "v999");
        let session = (&HTTP_SESSION_ID, "s");
        let list = r#"{"id":1,"method":"tools/list"}"#;
        let initialize = r#"{"id":1,"method":"initialize","params":{}}"#;
        let with_meta = r#"{"id":1,"method":"initialize","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        check(&[], initialize, "initialize");
        check(&[legacy], initialize, "initialize");
        check(&[modern], initialize, "stateless");
        check(&[], with_meta, "stateless");
        check(&[session], with_meta, "stateless");
        check(&[session, legacy], list, "session s");
        check(&[session], list, "session s");
        check(&[session], r#"{"method":"notifications/initialized"}"#, "session s");
        check(&[session], "[]", "session s");
        check(&[legacy], list, "missing session");
        check(&[], r#"{"id":1,"result":{}}"#, "missing session");
        check(&[], list, "stateless");
        check(&[modern], list, "stateless");
        check(&[modern, session], list, "stateless");
        check(&[unknown], list, "stateless");
        check(&[modern], r#"{"method":"notifications/cancelled"}"#, "stateless");
        check(&[], "{oops", "stateless");
        check(&[], "[]", "stateless");
    }
}
