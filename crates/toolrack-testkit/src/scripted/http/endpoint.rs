//! MCP endpoint over HTTP: era, session and dispatch of each request.

use std::sync::Arc;
use std::time::Duration;

use super::header_check;
use super::request::Request;
use super::response::{HttpResponse, Phase};
use super::response_stream::{ReplyMode, ResponseStream, Sse2024Sink, StreamFormat};
use super::route::{Era, Route, era_for, route};
use super::session::Session;
use super::{HttpOptions, Shape};
use crate::jsonrpc::{Incoming, RpcError, error_code};
use crate::message_sink::MessageSink;
use crate::plan::Trigger;
use crate::revision::Revision;
use crate::scripted::client::{Client, MessageContext};
use crate::scripted::server::Server;

/// Stream number of the GET stream, in event ids.
const GET_STREAM: u64 = 0;

#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) server: Arc<Server>,
    pub(super) options: HttpOptions,
}

/// What to do when the connection closes.
#[derive(Debug)]
pub(super) enum OnDisconnect {
    Nothing,
    /// Spec 2026-07-28, HTTP: closing the stream cancels the request.
    CancelRequests(Arc<Client>),
    /// 2024-11-05: closing the stream ends the session.
    EndSession(Arc<Session>),
}

/// Error response with its HTTP status.
type Rejection = (u16, RpcError);

impl Endpoint {
    pub(super) fn serve(&self, request: &Request, response: &Arc<HttpResponse>) -> OnDisconnect {
        if self.run_plan(&detached_client(), response, Trigger::Http) {
            return OnDisconnect::Nothing;
        }
        let on_disconnect = match route(self.options.shape, self.server.options.revisions, request)
        {
            Ok(Route::Message) => self.message(request, response),
            Ok(Route::Stream) => self.open_stream(request, response),
            Ok(Route::EndSession) => self.delete_session(request, response),
            Ok(Route::Sse2024Stream) => Ok(self.open_sse2024_stream(response)),
            Ok(Route::Sse2024Message) => self.sse2024_message(request, response),
            Err(status) => {
                response.set_status(status);
                response.finish();
                Ok(OnDisconnect::Nothing)
            }
        };
        self.keep_alive(response);
        on_disconnect.unwrap_or_else(|(status, rpc_error)| {
            reject(response, status, &rpc_error);
            OnDisconnect::Nothing
        })
    }

    pub(super) fn handle_disconnect(&self, on_disconnect: OnDisconnect) {
        match on_disconnect {
            OnDisconnect::Nothing => (),
            OnDisconnect::CancelRequests(client) => self.server.remove_client(&client),
            OnDisconnect::EndSession(session) => self.end_session(&session),
        }
    }

    fn message(
        &self,
        request: &Request,
        response: &Arc<HttpResponse>,
    ) -> Result<OnDisconnect, Rejection> {
        if !request.has_media_type("content-type", "application/json") {
            return Err((415, bad_request("the body is to be application/json")));
        }
        let accepts = |media_type: &str| request.has_media_type("accept", media_type);
        if !accepts("application/json") || !accepts("text/event-stream") {
            return Err((406, bad_request("accept both JSON and an event stream")));
        }
        let message = read_message(request)?;
        match era_for(self.options.shape, self.server.options.revisions, request, &message) {
            Era::Modern => Ok(self.modern(request, &message, response)),
            Era::LegacyStateless => self.stateless_legacy(request, &message, response),
            Era::LegacySession => self.session_message(request, &message, response),
        }
    }

    fn modern(
        &self,
        request: &Request,
        message: &Incoming<'_>,
        response: &Arc<HttpResponse>,
    ) -> OnDisconnect {
        if let Err(rpc_error) = header_check::check(request, message) {
            // The id is known, so the error carries it.
            response.set_status(400);
            let id = message.id.map_or("null", |id| id.get());
            let body = format!(r#""error":{}"#, rpc_error.to_json());
            response.send_complete("application/json", &crate::jsonrpc::response_line(id, &body));
            return OnDisconnect::Nothing;
        }
        let mut stream_format = self.stream_format(None);
        if message.method.as_deref() == Some("subscriptions/listen") {
            stream_format.reply_mode = ReplyMode::Sse;
        }
        let stream = ResponseStream::new(stream_format, Some(Arc::clone(response)), None);
        let client = Client::new(Arc::<ResponseStream>::clone(&stream));
        self.dispatch(&MessageContext::for_client(&client), message, &stream);
        OnDisconnect::CancelRequests(client)
    }

    /// Legacy client without a session.
    fn stateless_legacy(
        &self,
        request: &Request,
        message: &Incoming<'_>,
        response: &Arc<HttpResponse>,
    ) -> Result<OnDisconnect, Rejection> {
        let stream =
            ResponseStream::new(self.stream_format(None), Some(Arc::clone(response)), None);
        let client = Client::new(Arc::<ResponseStream>::clone(&stream));
        if message.method.as_deref() != Some("initialize") {
            client.set_negotiated(header_revision(request)?.unwrap_or(Revision::R2025_03_26));
        }
        self.dispatch(&MessageContext::for_client(&client), message, &stream);
        Ok(OnDisconnect::Nothing)
    }

    fn session_message(
        &self,
        request: &Request,
        message: &Incoming<'_>,
        response: &Arc<HttpResponse>,
    ) -> Result<OnDisconnect, Rejection> {
        let session = if message.method.as_deref() == Some("initialize") {
            let session = self.server.sessions.create(self.stream_format(Some(GET_STREAM)));
            self.server.add_client(&session.client);
            response.add_header("mcp-session-id", session.id.clone());
            session
        } else {
            self.session(request)?
        };
        let stream = session.reply_stream(self.stream_format(Some(GET_STREAM)), response);
        let sink: Arc<dyn MessageSink> = Arc::<ResponseStream>::clone(&stream);
        let context = MessageContext { client: Arc::clone(&session.client), sink };
        self.dispatch(&context, message, &stream);
        Ok(OnDisconnect::Nothing)
    }

    fn dispatch(
        &self,
        context: &MessageContext,
        message: &Incoming<'_>,
        stream: &Arc<ResponseStream>,
    ) {
        self.server.handle_message(context, message);
        if message.id.is_none() || message.method.is_none() {
            stream.finish();
        }
        stream.open();
    }

    fn open_stream(
        &self,
        request: &Request,
        response: &Arc<HttpResponse>,
    ) -> Result<OnDisconnect, Rejection> {
        if !request.has_media_type("accept", "text/event-stream") {
            return Err((406, bad_request("accept an event stream")));
        }
        let session = self.session(request)?;
        if self.run_plan(&session.client, response, Trigger::Stream) {
            return Ok(OnDisconnect::Nothing);
        }
        match request.header("last-event-id") {
            None => session.get_stream.attach(response, b""),
            Some(id) => match session.find(id) {
                Some((stream, event)) => stream.resume(event, response),
                None => return Err((400, bad_request("no stream has such an event"))),
            },
        }
        Ok(OnDisconnect::Nothing)
    }

    fn delete_session(
        &self,
        request: &Request,
        response: &Arc<HttpResponse>,
    ) -> Result<OnDisconnect, Rejection> {
        let session = self.session(request)?;
        if self.run_plan(&session.client, response, Trigger::Delete) {
            return Ok(OnDisconnect::Nothing);
        }
        self.end_session(&session);
        response.send_complete("", b"");
        Ok(OnDisconnect::Nothing)
    }

    fn open_sse2024_stream(&self, response: &Arc<HttpResponse>) -> OnDisconnect {
        if self.run_plan(&detached_client(), response, Trigger::Stream) {
            return OnDisconnect::Nothing;
        }
        let stream_format = StreamFormat { event: Some("message"), ..self.stream_format(None) };
        let session = self.server.sessions.create(stream_format);
        self.server.add_client(&session.client);
        let uri = self.options.endpoint.uri(&self.options, &session.id);
        session.get_stream.attach(response, format!("event: endpoint\ndata: {uri}\n\n").as_bytes());
        OnDisconnect::EndSession(session)
    }

    fn sse2024_message(
        &self,
        request: &Request,
        response: &Arc<HttpResponse>,
    ) -> Result<OnDisconnect, Rejection> {
        let id = request.parameter("session").unwrap_or_default();
        let Some(session) = self.server.sessions.get(id) else {
            return Err((404, session_not_found()));
        };
        let message = read_message(request)?;
        let stream = Arc::clone(&session.get_stream);
        let sink = Arc::new(Sse2024Sink { post: Arc::clone(response), stream });
        let context = MessageContext { client: Arc::clone(&session.client), sink };
        self.server.handle_message(&context, &message);
        response.finish();
        Ok(OnDisconnect::Nothing)
    }

    /// Runs the faults of a request that is not a message; returns whether they rejected it.
    fn run_plan(
        &self,
        client: &Arc<Client>,
        response: &Arc<HttpResponse>,
        trigger: Trigger,
    ) -> bool {
        let faults = self.server.due_faults(&[trigger]);
        if faults.is_empty() {
            return false;
        }
        let stream =
            ResponseStream::new(self.stream_format(None), Some(Arc::clone(response)), None);
        let context = MessageContext { client: Arc::clone(client), sink: stream };
        drop(self.server.apply_faults(&context, &faults));
        let rejected = faults.iter().any(|fault| fault.rejects_request());
        if rejected {
            response.finish();
        }
        rejected
    }

    fn session(&self, request: &Request) -> Result<Arc<Session>, Rejection> {
        let Some(id) = request.header("mcp-session-id") else {
            return Err((400, bad_request("the header `Mcp-Session-Id` is missing")));
        };
        let Some(session) = self.server.sessions.get(id) else {
            return Err((404, session_not_found()));
        };
        let negotiated = session.client.negotiated();
        match (header_revision(request)?, negotiated) {
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

    fn end_session(&self, session: &Session) {
        drop(self.server.sessions.remove(&session.id));
        self.server.remove_client(&session.client);
        session.get_stream.finish();
    }

    /// Stream format. The number is that of a stream with event ids, if they are enabled.
    fn stream_format(&self, number: Option<u64>) -> StreamFormat {
        StreamFormat {
            reply_mode: self.options.reply_mode,
            number: number.filter(|_| self.options.event_ids),
            event: None,
            retry: number.and(self.options.retry),
        }
    }

    /// Sends SSE comments as long as the stream is open.
    fn keep_alive(&self, response: &Arc<HttpResponse>) {
        if let Some(every) = self.options.comments {
            comment_on(Arc::clone(&self.server), Arc::clone(response), every);
        }
    }
}

fn comment_on(server: Arc<Server>, response: Arc<HttpResponse>, every: Duration) {
    if response.phase() == Phase::Done {
        return;
    }
    let next = Arc::clone(&server);
    server.timer.after(every, move || {
        response.write(b": still here\n\n");
        comment_on(next, response, every);
    });
}

/// Sends an error without a request id.
fn reject(response: &Arc<HttpResponse>, status: u16, rpc_error: &RpcError) {
    response.set_status(status);
    response.send_complete("application/json", &rpc_error.to_response_without_id());
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

fn session_not_found() -> RpcError {
    RpcError::new(error_code::SESSION_NOT_FOUND, "Session not found")
}

/// Placeholder client for triggers before a client is known.
fn detached_client() -> Arc<Client> {
    let reply_mode = ReplyMode::Json;
    let stream_format = StreamFormat { reply_mode, number: None, event: None, retry: None };
    Client::new(ResponseStream::new(stream_format, None, None))
}

impl Shape {
    pub(super) fn has_sessions(self) -> bool {
        matches!(self, Self::Session | Self::Dual)
    }
}
