//! MCP endpoint over HTTP: era, session and dispatch of each request.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::response::HttpResponse;
use super::response_stream::{JSON, ReplyMode, ResponseStream, Sse2024Sink, StreamFormat};
use super::route::{Era, Route, era_for, route};
use super::session::Session;
use super::{HttpOptions, Shape, header_check, hostile_reply};
use crate::http::{self, Request};
use crate::http_log::HttpLogWriter;
use crate::jsonrpc::{self, Incoming, RpcError, error_code};
use crate::message_sink::MessageSink;
use crate::plan::{Fault, Trigger};
use crate::revision::Revision;
use crate::scripted::client::{Client, MessageContext};
use crate::scripted::server::Server;

/// Stream number of the GET stream, in event ids.
const GET_STREAM: u64 = 0;

/// State shared by all connections.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) server: Arc<Server>,
    pub(super) options: HttpOptions,
    pub(super) log: Option<Arc<HttpLogWriter>>,
    pub(super) n_requests: AtomicU64,
}

/// What to do when the connection closes.
pub(super) type OnDisconnect = Box<dyn FnOnce(&Endpoint)>;

/// A request and its response.
pub(super) struct Exchange<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) request: &'a Request,
    pub(super) response: &'a Arc<HttpResponse>,
}

/// Error response with its HTTP status.
type Rejection = (u16, RpcError);

impl Endpoint {
    fn end_session(&self, session: &Session) {
        self.server.sessions.table.lock().remove(&session.id);
        self.server.remove_client(&session.client);
        session.get_stream.finish();
    }

    /// Stream format. The number is that of a stream with event ids.
    fn stream_format(&self, number: Option<u64>) -> StreamFormat {
        StreamFormat { reply_mode: self.options.reply_mode, number, event: None }
    }
}

impl Exchange<'_> {
    pub(super) fn serve(&self) -> Option<OnDisconnect> {
        let Endpoint { server, options, .. } = self.endpoint;
        let faults = server.due_faults(&[Trigger::Http]);
        self.context(&Client::detached(), self.stream(self.endpoint.stream_format(None)))
            .apply_faults(&faults);
        let hostile = faults.iter().find_map(|fault| match fault {
            Fault::Reply { reply, bytes } => Some((*reply, *bytes)),
            _ => None,
        });
        if let Some((reply, bytes)) = hostile {
            self.response.replace(|write| hostile_reply::write(reply, bytes, self.request, write));
            return None;
        }
        if faults.iter().any(Fault::rejects_request) {
            self.response.finish();
            return None;
        }
        let on_disconnect = match route(options.shape, server.options.revisions, self.request) {
            Ok(Route::Message) => self.message(),
            Ok(Route::Stream) => self.open_stream(),
            Ok(Route::EndSession) => self.delete_session(),
            Ok(Route::Sse2024Stream) => Ok(Some(self.open_sse2024_stream())),
            Ok(Route::Sse2024Message) => self.sse2024_message(),
            Err(status) => {
                self.response.set_status(status);
                self.response.finish();
                Ok(None)
            }
        };
        on_disconnect.unwrap_or_else(|(status, rpc_error)| {
            self.response.set_status(status);
            self.response.send_complete(JSON, &rpc_error.to_response_without_id());
            None
        })
    }

    fn message(&self) -> Result<Option<OnDisconnect>, Rejection> {
        if !self.request.has_media_type("content-type", "application/json") {
            return Err((415, bad_request("the body is to be application/json")));
        }
        let accepts = |media_type: &str| self.request.has_media_type("accept", media_type);
        if !accepts("application/json") || !accepts("text/event-stream") {
            return Err((406, bad_request("accept both JSON and an event stream")));
        }
        let message = read_message(self.request)?;
        let Endpoint { server, options, .. } = self.endpoint;
        match era_for(options.shape, server.options.revisions, self.request, &message) {
            Era::Modern => Ok(self.modern(&message)),
            Era::LegacyStateless => self.stateless_legacy(&message),
            Era::LegacySession => self.session_message(&message),
        }
    }

    fn modern(&self, message: &Incoming<'_>) -> Option<OnDisconnect> {
        if let Err(rpc_error) = header_check::check(self.request, message) {
            // The id is known, so the error carries it.
            self.response.set_status(400);
            let id = message.id.map_or("null", |id| id.get());
            let line = jsonrpc::response_line(id, &format!(r#""error":{}"#, rpc_error.to_json()));
            self.response.send_complete(JSON, line.as_bytes());
            return None;
        }
        let mut stream_format = self.endpoint.stream_format(None);
        if message.method.as_deref() == Some("subscriptions/listen") {
            stream_format.reply_mode = ReplyMode::Sse;
        }
        let stream = self.stream(stream_format);
        let client = Client::new(Arc::<ResponseStream>::clone(&stream));
        self.dispatch(&client, message, &stream);
        // Spec 2026-07-28, HTTP: closing the stream cancels the request.
        Some(Box::new(move |endpoint| endpoint.server.remove_client(&client)))
    }

    /// Legacy client without a session.
    fn stateless_legacy(&self, message: &Incoming<'_>) -> Result<Option<OnDisconnect>, Rejection> {
        let stream = self.stream(self.endpoint.stream_format(None));
        let client = Client::new(Arc::<ResponseStream>::clone(&stream));
        if message.method.as_deref() != Some("initialize") {
            let revision = header_revision(self.request)?.unwrap_or(Revision::R2025_03_26);
            *client.negotiated.lock() = Some(revision);
        }
        self.dispatch(&client, message, &stream);
        Ok(None)
    }

    fn session_message(&self, message: &Incoming<'_>) -> Result<Option<OnDisconnect>, Rejection> {
        let server = &self.endpoint.server;
        let stream_format = self.endpoint.stream_format(Some(GET_STREAM));
        let session = if message.method.as_deref() == Some("initialize") {
            let session = server.sessions.create(stream_format);
            server.add_client(&session.client);
            self.response.add_header("mcp-session-id", session.id.clone());
            session
        } else {
            self.session()?
        };
        let stream = session.reply_stream(stream_format, self.response);
        self.dispatch(&session.client, message, &stream);
        Ok(None)
    }

    fn dispatch(&self, client: &Arc<Client>, message: &Incoming<'_>, stream: &Arc<ResponseStream>) {
        self.context(client, Arc::<ResponseStream>::clone(stream)).handle_message(message);
        if message.id.is_none() || message.method.is_none() {
            stream.finish();
        }
        stream.open();
    }

    fn open_stream(&self) -> Result<Option<OnDisconnect>, Rejection> {
        if !self.request.has_media_type("accept", "text/event-stream") {
            return Err((406, bad_request("accept an event stream")));
        }
        let session = self.session()?;
        match self.request.header("last-event-id") {
            None => session.get_stream.attach(self.response, b""),
            Some(id) => match session.find(id) {
                Some((stream, event)) => stream.resume(event, self.response),
                None => return Err((400, bad_request("no stream has such an event"))),
            },
        }
        Ok(None)
    }

    fn delete_session(&self) -> Result<Option<OnDisconnect>, Rejection> {
        self.endpoint.end_session(&*self.session()?);
        self.response.send_complete("", b"");
        Ok(None)
    }

    fn open_sse2024_stream(&self) -> OnDisconnect {
        let server = &self.endpoint.server;
        let stream_format =
            StreamFormat { event: Some("message"), ..self.endpoint.stream_format(None) };
        let session = server.sessions.create(stream_format);
        server.add_client(&session.client);
        let event = format!("event: endpoint\ndata: /messages?session={}\n\n", session.id);
        session.get_stream.attach(self.response, event.as_bytes());
        // Closing the stream ends the session.
        Box::new(move |endpoint| endpoint.end_session(&session))
    }

    fn sse2024_message(&self) -> Result<Option<OnDisconnect>, Rejection> {
        let pairs = http::decode(&self.request.query);
        let id = pairs.iter().find(|(name, _)| name == "session").map(|(_, id)| id.as_str());
        let session = self.find_session(id.unwrap_or_default())?;
        let message = read_message(self.request)?;
        let stream = Arc::clone(&session.get_stream);
        let sink = Arc::new(Sse2024Sink { post: Arc::clone(self.response), stream });
        self.context(&session.client, sink).handle_message(&message);
        self.response.finish();
        Ok(None)
    }

    fn context(&self, client: &Arc<Client>, sink: Arc<dyn MessageSink>) -> MessageContext {
        let server = Arc::clone(&self.endpoint.server);
        MessageContext { server, client: Arc::clone(client), sink }
    }

    /// Stream of the response.
    fn stream(&self, stream_format: StreamFormat) -> Arc<ResponseStream> {
        ResponseStream::new(stream_format, Some(Arc::clone(self.response)), None)
    }

    fn session(&self) -> Result<Arc<Session>, Rejection> {
        let Some(id) = self.request.header("mcp-session-id") else {
            return Err((400, bad_request("the header `Mcp-Session-Id` is missing")));
        };
        let session = self.find_session(id)?;
        match (header_revision(self.request)?, session.client.negotiated()) {
            (Some(header), Some(negotiated)) if header != negotiated => {
                Err((400, bad_request("another version was agreed on")))
            }
            // Spec 2025-06-18, HTTP: the header is required after the handshake.
            (None, Some(negotiated)) if negotiated >= Revision::R2025_06_18 => {
                Err((400, bad_request("the header `MCP-Protocol-Version` is missing")))
            }
            _ => Ok(session),
        }
    }

    fn find_session(&self, id: &str) -> Result<Arc<Session>, Rejection> {
        let not_found = || RpcError::new(error_code::SESSION_NOT_FOUND, "Session not found");
        let table = self.endpoint.server.sessions.table.lock();
        table.get(id).cloned().ok_or_else(|| (404, not_found()))
    }
}

fn read_message(request: &Request) -> Result<Incoming<'_>, Rejection> {
    serde_json::from_slice(&request.body).map_err(|error| {
        (400, RpcError::new(error_code::PARSE_ERROR, format!("the body is no message: {error}")))
    })
}

/// Legacy revision of the header, if present.
fn header_revision(request: &Request) -> Result<Option<Revision>, Rejection> {
    let Some(text) = request.header("mcp-protocol-version") else { return Ok(None) };
    match Revision::parse(text) {
        Some(revision) if revision != Revision::R2026_07_28 => Ok(Some(revision)),
        _ => Err((400, bad_request(&format!("unsupported protocol version `{text}`")))),
    }
}

fn bad_request(why: &str) -> RpcError {
    RpcError::new(error_code::NO_SESSION, format!("Bad Request: {why}"))
}

impl Shape {
    pub(super) fn has_sessions(self) -> bool {
        matches!(self, Self::Session | Self::Dual)
    }
}
