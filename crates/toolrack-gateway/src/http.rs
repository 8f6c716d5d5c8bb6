//! One MCP endpoint over HTTP: stateless for modern clients, with sessions for legacy ones.
//!
//! It takes requests and gives answers; whoever listens on a socket brings them. It fits hyper and axum alike.
//!
//! **Invariant:** nothing of a request is looked at before [`Access`] has let it in, and no body is read beyond
//! its limit.

pub(crate) mod body;
pub(crate) mod origin_check;
pub(crate) mod request_headers;
mod response;
mod session;
mod stateful;
mod stateless;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolrack_mcp::{Era, ErrorCode, Method as McpMethod, Revision};
use toolrack_transport::{Frame, JsonRpcError};

use origin_check::Access;
use request_headers::{HTTP_SESSION_ID, PROTOCOL_VERSION, single};
use response::{Answer, Takes, not_allowed, refusal};
use session::Sessions;

use crate::encode::invalid_request;
use crate::gateway::Gateway;
use crate::params::Params;

/// The shortest time between two looks for sessions that nobody uses.
const SHORTEST_LOOK: Duration = Duration::from_millis(50);

/// What can be set about an endpoint over HTTP.
#[derive(Debug, Clone)]
pub struct HttpGatewayOptions {
    /// Who may come in.
    pub access: Access,
    /// Legacy sessions at once. When there are more, the one that is unused for longest ends.
    pub max_sessions: usize,
    /// How long a legacy session may be unused before it ends.
    pub session_idle: Duration,
    /// How long a client may take to send the body of a request.
    pub body_patience: Duration,
}

impl Default for HttpGatewayOptions {
    fn default() -> Self {
        Self {
            access: Access::default(),
            max_sessions: 1_000,
            session_idle: Duration::from_mins(30),
            body_patience: Duration::from_secs(30),
        }
    }
}

/// A gateway over HTTP. Clones are the same endpoint; dropping the last ends its sessions.
#[derive(Debug, Clone)]
pub struct HttpGateway {
    pub(crate) gateway: Gateway,
    options: Arc<HttpGatewayOptions>,
    pub(crate) sessions: Arc<Sessions>,
    _stop: Arc<DropGuard>,
}

/// How a message is to be taken.
enum Way {
    Modern,
    /// It opens a session.
    Opening,
    /// It belongs to this session.
    Session(String),
    /// It says neither who sends it nor where it belongs.
    Nowhere,
}

impl HttpGateway {
    /// An endpoint with the default settings. Has to be called within a tokio runtime.
    pub fn new(gateway: Gateway) -> Self {
        Self::with_options(gateway, HttpGatewayOptions::default())
    }

    /// The same with other than the default settings.
    pub fn with_options(gateway: Gateway, options: HttpGatewayOptions) -> Self {
        let sessions = Arc::new(Sessions::new(options.max_sessions, options.session_idle));
        let stop = CancellationToken::new();
        let sweeping = sweep(
            Arc::clone(&sessions),
            options.session_idle,
            (stop.clone(), gateway.shared.stop.clone()),
        );
        gateway.shared.tracker.spawn(sweeping);
        let stop = Arc::new(stop.drop_guard());
        Self { gateway, options: Arc::new(options), sessions, _stop: stop }
    }

    /// Ends every stream that has no end of its own, so that whoever listens can close its connections. Requests that
    /// are open go on until they are answered or the gateway is closed.
    pub fn drain(&self) {
        self.gateway.bid_farewell();
        self.sessions.hush();
    }

    /// The gateway behind it.
    pub fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// How many legacy sessions there are.
    pub fn n_sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Answers one request.
    ///
    /// # Cancel safety
    /// Dropping the future, or the body of the answer, cancels a modern request. A legacy one goes on, and its
    /// answer can be asked for.
    pub async fn handle<B>(&self, request: Request<B>) -> Answer
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        if let Err(reason) = self.options.access.check(&parts) {
            return refusal(StatusCode::FORBIDDEN, &invalid_request(&reason));
        }
        match parts.method {
            Method::POST => self.post(parts, body).await,
            Method::GET => self.get(&parts.headers),
            Method::DELETE => self.delete(&parts.headers),
            _ => not_allowed("POST, GET, DELETE"),
        }
    }

    async fn post<B>(&self, parts: Parts, body: B) -> Answer
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        if !is_json(&parts.headers) {
            let error = invalid_request("Content-Type must be application/json");
            return refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, &error);
        }
        let Some(takes) = Takes::of(&parts.headers) else {
            let error =
                invalid_request("Not Acceptable: application/json and text/event-stream are given");
            return refusal(StatusCode::NOT_ACCEPTABLE, &error);
        };
        let message = match self.read(body).await {
            Ok(message) => message,
            Err(answer) => return answer,
        };
        match way(&parts.headers, &message) {
            Ok(Way::Modern) => self.modern(&parts.headers, &message, takes).await,
            Ok(Way::Opening) => self.open(&message).await,
            Ok(Way::Session(id)) => self.converse(&id, &parts.headers, message, takes).await,
            Ok(Way::Nowhere) => {
                let error = invalid_request("Bad Request: Mcp-Session-Id header is required");
                refusal(StatusCode::BAD_REQUEST, &error)
            }
            Err(error) => refusal(StatusCode::BAD_REQUEST, &error),
        }
    }

    async fn read<B>(&self, body: B) -> Result<Bytes, Answer>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let limit = self.gateway.shared.options.max_message_bytes;
        let too_large = || {
            let error = invalid_request(&format!("the message has more than {limit} bytes"));
            refusal(StatusCode::PAYLOAD_TOO_LARGE, &error)
        };
        if usize::try_from(body.size_hint().lower()).map_or(true, |it| it > limit) {
            return Err(too_large());
        }
        let reading = Limited::new(body, limit).collect();
        match timeout(self.options.body_patience, Box::pin(reading)).await {
            Ok(Ok(whole)) => Ok(whole.to_bytes()),
            Ok(Err(error)) if is_too_large(&*error) => Err(too_large()),
            Ok(Err(_broken)) => {
                Err(refusal(StatusCode::BAD_REQUEST, &invalid_request("the body broke off")))
            }
            Err(_elapsed) => Err(refusal(
                StatusCode::REQUEST_TIMEOUT,
                &invalid_request("the body took too long"),
            )),
        }
    }
}

/// Whether a body ended at a limit: ours, or a lower one of whoever brings us requests.
fn is_too_large(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |&it| it.source());
    causes.any(<dyn Error>::is::<LengthLimitError>)
}

fn is_json(headers: &HeaderMap) -> bool {
    let said = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    said.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

/// Finds out what a message is by its headers and its `_meta`.
fn way(headers: &HeaderMap, message: &[u8]) -> Result<Way, JsonRpcError> {
    let session = single(headers, &HTTP_SESSION_ID).map(str::to_owned);
    let said = single(headers, &PROTOCOL_VERSION).map(Revision::parse);
    let says_modern = said.is_some_and(|it| it.is_none_or(|it| it.era() == Era::Modern));
    let (method, params) = match Frame::parse(message) {
        Ok(Frame::Request { method, params, .. }) => (Some(method), params),
        Ok(_) => (None, None),
        Err(_) if session.is_some() => (None, None),
        Err(_) if serde_json::from_slice::<serde::de::IgnoredAny>(message).is_ok() => {
            return Err(invalid_request("no JSON-RPC message"));
        }
        Err(_) => return Err(JsonRpcError::new(ErrorCode::PARSE_ERROR.0, "Parse error")),
    };
    let meta = Params::read(params).ok().is_some_and(|it| !matches!(it.version(), Ok(None)));
    let is_opening = method.as_deref() == Some(McpMethod::Initialize.as_str());
    Ok(match (session, meta, said) {
        _ if meta => Way::Modern,
        (None, ..) if is_opening && !says_modern => Way::Opening,
        (Some(session), ..) if !says_modern => Way::Session(session),
        (_, _, Some(Some(revision))) if revision.era() == Era::Legacy => Way::Nowhere,
        (..) if method.is_none() && !says_modern => Way::Nowhere,
        _ => Way::Modern,
    })
}

async fn sweep(
    sessions: Arc<Sessions>,
    idle: Duration,
    (dropped, closed): (CancellationToken, CancellationToken),
) {
    let look = (idle / 4).max(SHORTEST_LOOK);
    loop {
        tokio::select! {
            biased;
            () = dropped.cancelled() => break,
            () = closed.cancelled() => break,
            () = sleep(look) => sessions.expire(),
        }
    }
    sessions.end_all();
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
        let found = match way(&map, message.as_bytes()) {
            Ok(Way::Modern) => "modern".to_owned(),
            Ok(Way::Opening) => "opening".to_owned(),
            Ok(Way::Session(id)) => format!("session {id}"),
            Ok(Way::Nowhere) => "nowhere".to_owned(),
            Err(error) => error.code.to_string(),
        };
        assert_eq!(found, expected, "{headers:?} {message}");
    }

    #[test]
    fn a_message_finds_its_way() {
        let modern = (&PROTOCOL_VERSION, "2026-07-28");
        let legacy = (&PROTOCOL_VERSION, "2025-11-25");
        let unknown = (&PROTOCOL_VERSION, "v999");
        let session = (&HTTP_SESSION_ID, "s");
        let list = r#"{"id":1,"method":"tools/list"}"#;
        let initialize = r#"{"id":1,"method":"initialize","params":{}}"#;
        let stated = r#"{"id":1,"method":"initialize","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        check(&[], initialize, "opening");
        check(&[legacy], initialize, "opening");
        check(&[modern], initialize, "modern");
        check(&[], stated, "modern");
        check(&[session], stated, "modern");
        check(&[session, legacy], list, "session s");
        check(&[session], list, "session s");
        check(&[session], r#"{"method":"notifications/initialized"}"#, "session s");
        check(&[session], "[]", "session s");
        check(&[legacy], list, "nowhere");
        check(&[], r#"{"id":1,"result":{}}"#, "nowhere");
        check(&[], list, "modern");
        check(&[modern], list, "modern");
        check(&[modern, session], list, "modern");
        check(&[unknown], list, "modern");
        check(&[modern], r#"{"method":"notifications/cancelled"}"#, "modern");
        check(&[], "{oops", "-32700");
        check(&[], "[]", "-32600");
    }
}
