//! HTTP transport: stateless for modern clients, with sessions for legacy ones.
//!
//! [`HttpGateway::handle`] maps one HTTP request to one response. Sockets are left to the caller, such as hyper or
//! axum. Stateless requests are handled here, sessions in [`stateful`].
//!
//! **Invariant:** [`Access`] is checked before anything else of a request, and no body is read beyond its limit.

pub(crate) mod request_headers;
pub(crate) mod response;
mod stateful;

use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolrack_mcp::{Era, ErrorCode, MetaKey, Method as McpMethod, Revision};
use toolrack_transport::{JsonRpcError, Message, MessageError, RequestId};

use request_headers::{Access, HTTP_SESSION_ID, PROTOCOL_VERSION, single_value};
use response::{
    Accepts, BodyShape, EventStream, HttpResponse, empty, error_response, error_response_to,
    error_status, method_not_allowed, respond,
};
use stateful::Sessions;

use crate::active_request::ClientId;
use crate::encode::{invalid_params, invalid_request, response as encode_response};
use crate::gateway::{Gateway, Shared};
use crate::message_queue::{MessageQueue, Replay};
use crate::params::{ClientInfo, Params};
use crate::request_context::RequestContext;
use crate::subscriptions::response_loss_notice;

/// Lower bound of the interval at which idle sessions are looked for.
const MIN_EXPIRY_INTERVAL: Duration = Duration::from_millis(50);

/// Options of an [`HttpGateway`].
#[derive(Debug, Clone)]
pub struct HttpGatewayOptions {
    /// Which requests are accepted.
    pub access: Access,
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
            access: Access::default(),
            max_sessions: 1_000,
            session_idle_timeout: Duration::from_mins(30),
            body_timeout: Duration::from_secs(30),
        }
    }
}

/// A gateway over HTTP. Clones are handles of the same endpoint; dropping the last one closes its sessions.
#[derive(Debug, Clone)]
pub struct HttpGateway {
    pub(crate) gateway: Gateway,
    options: Arc<HttpGatewayOptions>,
    pub(crate) sessions: Arc<Sessions>,
    _stop: Arc<DropGuard>,
}

/// How a POST body is handled.
enum PostKind {
    Stateless,
    /// `initialize`, which opens a session.
    Initialize,
    /// Message in this session.
    Session(String),
    /// Legacy message without a session id.
    MissingSession,
}

impl HttpGateway {
    /// Creates an endpoint with default options. Call it within a Tokio runtime.
    pub fn new(gateway: Gateway) -> Self {
        Self::with_options(gateway, HttpGatewayOptions::default())
    }

    /// Creates an endpoint with the given options.
    pub fn with_options(gateway: Gateway, options: HttpGatewayOptions) -> Self {
        let idle_timeout = options.session_idle_timeout;
        let sessions = Arc::new(Sessions::new(options.max_sessions, idle_timeout));
        let stop = CancellationToken::new();
        let tokens = (stop.clone(), gateway.shared.stop.clone());
        let expiry = expire_sessions(Arc::clone(&sessions), idle_timeout, tokens);
        gateway.shared.tracker.spawn(expiry);
        let stop = Arc::new(stop.drop_guard());
        Self { gateway, options: Arc::new(options), sessions, _stop: stop }
    }

    /// Ends every stream that has no end of its own, so that the HTTP server can close its connections. Requests in
    /// flight continue until they are answered or the gateway is closed.
    pub fn drain(&self) {
        self.gateway.drain();
        self.sessions.finish_standalone_streams();
    }

    /// The gateway behind this endpoint.
    pub fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// Number of legacy sessions.
    pub fn n_sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Handles one HTTP request.
    ///
    /// # Cancel safety
    /// Dropping the future, or the body of the response, cancels a modern request. A legacy request continues, and the
    /// client can resume its stream.
    pub async fn handle<B>(&self, request: Request<B>) -> HttpResponse
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        if let Err(reason) = self.options.access.check(&parts) {
            return error_response(StatusCode::FORBIDDEN, &invalid_request(&reason));
        }
        match parts.method {
            Method::POST => self.post(parts, body).await,
            Method::GET => self.get(&parts.headers),
            Method::DELETE => self.delete(&parts.headers),
            _ => method_not_allowed("POST, GET, DELETE"),
        }
    }

    async fn post<B>(&self, parts: Parts, body: B) -> HttpResponse
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        if !is_json(&parts.headers) {
            let error = invalid_request("Content-Type must be application/json");
            return error_response(StatusCode::UNSUPPORTED_MEDIA_TYPE, &error);
        }
        let Some(accepts) = Accepts::from_headers(&parts.headers) else {
            let error = invalid_request(
                "Not Acceptable: only application/json and text/event-stream are available",
            );
            return error_response(StatusCode::NOT_ACCEPTABLE, &error);
        };
        let message = match self.read_body(body).await {
            Ok(message) => message,
            Err(response) => return response,
        };
        match classify(&parts.headers, &message) {
            Ok(PostKind::Stateless) => self.post_stateless(&parts.headers, &message, accepts).await,
            Ok(PostKind::Initialize) => self.open_session(&message).await,
            Ok(PostKind::Session(id)) => {
                self.post_in_session(&id, &parts.headers, message, accepts).await
            }
            Ok(PostKind::MissingSession) => {
                let error = invalid_request("Bad Request: Mcp-Session-Id header is required");
                error_response(StatusCode::BAD_REQUEST, &error)
            }
            Err(error) => error_response(StatusCode::BAD_REQUEST, &error),
        }
    }

    async fn read_body<B>(&self, body: B) -> Result<Bytes, HttpResponse>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let limit = self.gateway.shared.options.max_message_bytes;
        let too_large = || {
            let error = invalid_request(&format!("message exceeds {limit} bytes"));
            error_response(StatusCode::PAYLOAD_TOO_LARGE, &error)
        };
        // A declared length over the limit is rejected before any of the body is read.
        if usize::try_from(body.size_hint().lower()).map_or(true, |size| size > limit) {
            return Err(too_large());
        }
        let reading = Limited::new(body, limit).collect();
        match timeout(self.options.body_timeout, Box::pin(reading)).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if is_length_limit(&*error) => Err(too_large()),
            Ok(Err(_error)) => {
                let error = invalid_request("the request body is incomplete");
                Err(error_response(StatusCode::BAD_REQUEST, &error))
            }
            Err(_elapsed) => {
                let error = invalid_request("timed out reading the request body");
                Err(error_response(StatusCode::REQUEST_TIMEOUT, &error))
            }
        }
    }

    /// Handles a stateless request: it carries its client info, and is cancelled when its client disconnects.
    async fn post_stateless(
        &self,
        headers: &HeaderMap,
        message: &Bytes,
        accepts: Accepts,
    ) -> HttpResponse {
        // Spec 2026-07-28 has no client notifications over HTTP, so they are ignored.
        if let Ok(Message::Notification { .. }) = Message::parse(message) {
            return empty(StatusCode::ACCEPTED);
        }
        let (id, method, params) = match parse_request(message) {
            Ok(request) => request,
            Err(error) => return error_response(StatusCode::BAD_REQUEST, &error),
        };
        let shared = &self.gateway.shared;
        let checked = check_stateless(shared, headers, &method, params.as_deref());
        let StatelessRequest { client, wants_log, client_id, timeout } = match checked {
            Ok(checked) => checked,
            Err(error) => return error_response_to(StatusCode::BAD_REQUEST, &id, error),
        };
        let queue = MessageQueue::new(Replay::No, shared.manager.redactor());
        let queue = Arc::new(queue.with_content(accepts.stream_content()));
        // The loss notice is a log message, which only clients that ask for a log level get.
        if wants_log {
            queue.add_loss_notice(response_loss_notice());
        }
        let context = RequestContext {
            shared: Arc::clone(shared),
            client: Arc::new(client),
            client_id,
            session: None,
            queue: Arc::clone(&queue),
            id,
            timeout,
        };
        let status = Arc::new(OnceLock::new());
        let disconnected = CancellationToken::new();
        let cancel = disconnected.clone().drop_guard();
        let reader = queue.attach_reader(None);
        let running = run_stateless(context, (method, params), disconnected, Arc::clone(&status));
        // In a task, because a response that becomes a stream outlives this future.
        shared.tracker.spawn(running);
        let events = EventStream {
            queue,
            reader,
            name: None,
            prefix: None,
            _cancel: Some(cancel),
            _reader_guard: None,
        };
        let status = || status.get().copied().unwrap_or(StatusCode::OK);
        respond(events, (accepts, BodyShape::Single), None, status).await
    }
}

async fn run_stateless(
    context: RequestContext,
    (method, params): (String, Option<Bytes>),
    disconnected: CancellationToken,
    status: Arc<OnceLock<StatusCode>>,
) {
    tokio::select! {
        biased;
        () = disconnected.cancelled() => context.queue.finish(),
        outcome = context.handle(&method, params) => {
            // Set before the message is pushed: the response may be built as soon as the message is there.
            status.get_or_init(|| outcome.as_ref().map_or_else(error_status, |_| StatusCode::OK));
            context.queue.push_last(encode_response(&context.id, &outcome));
        }
    }
}

/// Id, method and parameters of a message that has to be a request.
fn parse_request(message: &Bytes) -> Result<(RequestId, String, Option<Bytes>), JsonRpcError> {
    match Message::parse(message) {
        Ok(Message::Request { id, method, params }) => {
            Ok((id, method, params.map(|raw| message.slice_ref(raw))))
        }
        Ok(_) => Err(invalid_params("not a request")),
        Err(MessageError::Json(error)) if !error.is_data() => {
            Err(JsonRpcError::new(ErrorCode::PARSE_ERROR.0, "Parse error"))
        }
        Err(_shape) => Err(invalid_request("not a JSON-RPC message")),
    }
}

/// Sender and options of a stateless request.
struct StatelessRequest {
    client: ClientInfo,
    wants_log: bool,
    client_id: ClientId,
    timeout: Option<Duration>,
}

/// Checks `_meta` and headers of a stateless request.
fn check_stateless(
    shared: &Shared,
    headers: &HeaderMap,
    method: &str,
    params: Option<&[u8]>,
) -> Result<StatelessRequest, JsonRpcError> {
    let params = Params::parse(params)?;
    let missing = || invalid_params(format!("`_meta` lacks `{}`", MetaKey::PROTOCOL_VERSION));
    let version = params.meta_version()?.ok_or_else(missing)?;
    request_headers::check_mcp_headers(headers, method, &params, &version)?;
    let client = ClientInfo::from_meta(&params)?;
    if method == McpMethod::CallTool.as_str()
        && let Some(expected) = params.name.as_deref().and_then(|name| shared.param_headers(name))
    {
        request_headers::check_param_headers(headers, &expected, &params)?;
    }
    // Only another gateway says which requests are from the same client. All others count as different clients: taking
    // them for one could send a server request to the wrong one.
    let client_name = params.forwarded_client()?;
    let client_id = client_name.map_or_else(ClientId::new, |name| ClientId::forwarded(&name));
    let wants_log = params.log_level()?.is_some();
    let timeout = request_headers::request_timeout(headers)?;
    Ok(StatelessRequest { client, wants_log, client_id, timeout })
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
fn classify(headers: &HeaderMap, message: &[u8]) -> Result<PostKind, JsonRpcError> {
    let session = single_value(headers, &HTTP_SESSION_ID).map(str::to_owned);
    let version = single_value(headers, &PROTOCOL_VERSION).map(Revision::parse);
    // An unknown version counts as modern: the stateless handler answers it with the supported ones.
    let is_modern_version = version
        .is_some_and(|revision| revision.is_none_or(|revision| revision.era() == Era::Modern));
    let (method, params) = match Message::parse(message) {
        Ok(Message::Request { method, params, .. }) => (Some(method), params),
        Ok(_) => (None, None),
        // May be a batch, which the session handles.
        Err(_) if session.is_some() => (None, None),
        Err(_) if serde_json::from_slice::<serde::de::IgnoredAny>(message).is_ok() => {
            return Err(invalid_request("not a JSON-RPC message"));
        }
        Err(_) => return Err(JsonRpcError::new(ErrorCode::PARSE_ERROR.0, "Parse error")),
    };
    let params = Params::parse(params).ok();
    let has_meta_version = params.is_some_and(|params| !matches!(params.meta_version(), Ok(None)));
    let is_initialize = method.as_deref() == Some(McpMethod::Initialize.as_str());
    Ok(match (session, version) {
        // Spec 2026-07-28, transports: the body is authoritative, so `_meta` wins over the headers.
        _ if has_meta_version => PostKind::Stateless,
        (None, _) if is_initialize && !is_modern_version => PostKind::Initialize,
        (Some(session), _) if !is_modern_version => PostKind::Session(session),
        (_, Some(Some(revision))) if revision.era() == Era::Legacy => PostKind::MissingSession,
        _ if method.is_none() && !is_modern_version => PostKind::MissingSession,
        _ => PostKind::Stateless,
    })
}

/// Closes idle sessions until the endpoint is dropped or the gateway closed, then all of them.
async fn expire_sessions(
    sessions: Arc<Sessions>,
    idle_timeout: Duration,
    (dropped, closed): (CancellationToken, CancellationToken),
) {
    let interval = (idle_timeout / 4).max(MIN_EXPIRY_INTERVAL);
    loop {
        tokio::select! {
            biased;
            () = dropped.cancelled() => break,
            () = closed.cancelled() => break,
            () = sleep(interval) => sessions.close_expired(),
        }
    }
    sessions.close_all();
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
        let kind = match classify(&map, message.as_bytes()) {
            Ok(PostKind::Stateless) => "stateless".to_owned(),
            Ok(PostKind::Initialize) => "initialize".to_owned(),
            Ok(PostKind::Session(id)) => format!("session {id}"),
            Ok(PostKind::MissingSession) => "missing session".to_owned(),
            Err(error) => error.code.to_string(),
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
        check(&[], "{oops", "-32700");
        check(&[], "[]", "-32600");
    }
}
