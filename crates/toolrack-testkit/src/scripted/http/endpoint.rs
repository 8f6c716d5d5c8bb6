//! What is behind the URL: which era and which session a request belongs to, and who answers it.

use std::sync::Arc;
use std::time::Duration;

use super::header_check;
use super::request::Request;
use super::response::{Phase, Reply};
use super::response_stream::Detour;
use super::response_stream::{Dress, Replies, Stream};
use super::route::{Door, Era, door, era_of};
use super::session::Session;
use super::{HttpOptions, Shape};
use crate::jsonrpc::error_code;
use crate::jsonrpc::{Incoming, Refusal};
use crate::message_sink::Outlet;
use crate::plan::Moment;
use crate::revision::Revision;
use crate::scripted::client::{Client, Origin};
use crate::scripted::server::Server;

/// The number of the stream that GET opens, in the ids of its events.
const MAIN_STREAM: u64 = 0;

#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) server: Arc<Server>,
    pub(super) options: HttpOptions,
}

/// What ends together with a connection.
#[derive(Debug)]
pub(super) enum Bond {
    Nothing,
    /// Spec 2026-07-28, HTTP: closing the stream cancels the request.
    Client(Arc<Client>),
    /// 2024-11-05: a lost stream is a lost session.
    Session(Arc<Session>),
}

/// A reply with this status and error instead of what was asked for.
type Refused = (u16, Refusal);

impl Endpoint {
    pub(super) fn serve(&self, request: &Request, reply: &Arc<Reply>) -> Bond {
        if self.strikes(&nobody(), reply, Moment::Http) {
            return Bond::Nothing;
        }
        let bond = match door(self.options.shape, self.server.options.speaks, request) {
            Ok(Door::Message) => self.message(request, reply),
            Ok(Door::Stream) => self.open_stream(request, reply),
            Ok(Door::Farewell) => self.end_session(request, reply),
            Ok(Door::OldStream) => Ok(self.open_old_stream(reply)),
            Ok(Door::OldMessage) => self.old_message(request, reply),
            Err(status) => {
                reply.set_status(status);
                reply.finish();
                Ok(Bond::Nothing)
            }
        };
        self.keep_alive(reply);
        bond.unwrap_or_else(|(status, refusal)| {
            refuse(reply, status, &refusal);
            Bond::Nothing
        })
    }

    pub(super) fn hang_up(&self, bond: Bond) {
        match bond {
            Bond::Nothing => (),
            Bond::Client(client) => self.server.dismiss(&client),
            Bond::Session(session) => self.forget(&session),
        }
    }

    fn message(&self, request: &Request, reply: &Arc<Reply>) -> Result<Bond, Refused> {
        if !request.names("content-type", "application/json") {
            return Err((415, bad_request("the body is to be application/json")));
        }
        let accepts = |value: &str| request.names("accept", value);
        if !accepts("application/json") || !accepts("text/event-stream") {
            return Err((406, bad_request("accept both JSON and an event stream")));
        }
        let message = read_message(request)?;
        match era_of(self.options.shape, self.server.options.speaks, request, &message) {
            Era::Modern => Ok(self.modern(request, &message, reply)),
            Era::LegacyAlone => self.alone(request, &message, reply),
            Era::LegacySession => self.in_session(request, &message, reply),
        }
    }

    fn modern(&self, request: &Request, message: &Incoming<'_>, reply: &Arc<Reply>) -> Bond {
        if let Err(refusal) = header_check::check(request, message) {
            // The id is known, so the error carries it.
            reply.set_status(400);
            let id = message.id.map_or("null", |id| id.get());
            let body = format!(r#""error":{}"#, refusal.to_json());
            reply.whole("application/json", &crate::jsonrpc::response(id, &body));
            return Bond::Nothing;
        }
        let mut dress = self.dress(None);
        if message.method.as_deref() == Some("subscriptions/listen") {
            dress.replies = Replies::Sse;
        }
        let stream = Stream::new(dress, Some(Arc::clone(reply)), None);
        let client = Client::new(Arc::<Stream>::clone(&stream));
        self.hand_over(&Origin::of(&client), message, &stream);
        Bond::Client(client)
    }

    /// A legacy client without a session: every request stands alone.
    fn alone(
        &self,
        request: &Request,
        message: &Incoming<'_>,
        reply: &Arc<Reply>,
    ) -> Result<Bond, Refused> {
        let stream = Stream::new(self.dress(None), Some(Arc::clone(reply)), None);
        let client = Client::new(Arc::<Stream>::clone(&stream));
        if message.method.as_deref() != Some("initialize") {
            client.agree_on(said_revision(request)?.unwrap_or(Revision::R2025_03_26));
        }
        self.hand_over(&Origin::of(&client), message, &stream);
        Ok(Bond::Nothing)
    }

    fn in_session(
        &self,
        request: &Request,
        message: &Incoming<'_>,
        reply: &Arc<Reply>,
    ) -> Result<Bond, Refused> {
        let session = if message.method.as_deref() == Some("initialize") {
            let session = self.server.sessions.create(self.dress(Some(MAIN_STREAM)));
            self.server.welcome(&session.client);
            reply.add_header("mcp-session-id", session.id.clone());
            session
        } else {
            self.session(request)?
        };
        let stream = session.reply_stream(self.dress(Some(MAIN_STREAM)), reply);
        let outlet: Arc<dyn Outlet> = Arc::<Stream>::clone(&stream);
        let origin = Origin { client: Arc::clone(&session.client), outlet };
        self.hand_over(&origin, message, &stream);
        Ok(Bond::Nothing)
    }

    fn hand_over(&self, origin: &Origin, message: &Incoming<'_>, stream: &Arc<Stream>) {
        self.server.accept(origin, message);
        if message.id.is_none() || message.method.is_none() {
            stream.finish();
        }
        stream.open();
    }

    fn open_stream(&self, request: &Request, reply: &Arc<Reply>) -> Result<Bond, Refused> {
        if !request.names("accept", "text/event-stream") {
            return Err((406, bad_request("accept an event stream")));
        }
        let session = self.session(request)?;
        if self.strikes(&session.client, reply, Moment::Stream) {
            return Ok(Bond::Nothing);
        }
        match request.header("last-event-id") {
            None => session.main.attach(reply, b""),
            Some(id) => match session.find(id) {
                Some((stream, event)) => stream.resume(event, reply),
                None => return Err((400, bad_request("no stream has such an event"))),
            },
        }
        Ok(Bond::Nothing)
    }

    fn end_session(&self, request: &Request, reply: &Arc<Reply>) -> Result<Bond, Refused> {
        let session = self.session(request)?;
        if self.strikes(&session.client, reply, Moment::Delete) {
            return Ok(Bond::Nothing);
        }
        self.forget(&session);
        reply.whole("", b"");
        Ok(Bond::Nothing)
    }

    fn open_old_stream(&self, reply: &Arc<Reply>) -> Bond {
        if self.strikes(&nobody(), reply, Moment::Stream) {
            return Bond::Nothing;
        }
        let dress = Dress { event: Some("message"), ..self.dress(None) };
        let session = self.server.sessions.create(dress);
        self.server.welcome(&session.client);
        let place = self.options.endpoint.uri(&self.options, &session.id);
        session.main.attach(reply, format!("event: endpoint\ndata: {place}\n\n").as_bytes());
        Bond::Session(session)
    }

    fn old_message(&self, request: &Request, reply: &Arc<Reply>) -> Result<Bond, Refused> {
        let id = request.parameter("session").unwrap_or_default();
        let Some(session) = self.server.sessions.get(id) else {
            return Err((404, session_not_found()));
        };
        let message = read_message(request)?;
        let stream = Arc::clone(&session.main);
        let outlet = Arc::new(Detour { post: Arc::clone(reply), stream });
        let origin = Origin { client: Arc::clone(&session.client), outlet };
        self.server.accept(&origin, &message);
        reply.finish();
        Ok(Bond::Nothing)
    }

    /// Lets the plan strike at a request that is no message; whether that settled it.
    fn strikes(&self, client: &Arc<Client>, reply: &Arc<Reply>, moment: Moment) -> bool {
        let faults = self.server.due(&[moment]);
        if faults.is_empty() {
            return false;
        }
        let stream = Stream::new(self.dress(None), Some(Arc::clone(reply)), None);
        let origin = Origin { client: Arc::clone(client), outlet: stream };
        drop(self.server.follow(&origin, &faults));
        let refused = faults.iter().any(|fault| fault.refuses());
        if refused {
            reply.finish();
        }
        refused
    }

    fn session(&self, request: &Request) -> Result<Arc<Session>, Refused> {
        let Some(id) = request.header("mcp-session-id") else {
            return Err((400, bad_request("the header `Mcp-Session-Id` is missing")));
        };
        let Some(session) = self.server.sessions.get(id) else {
            return Err((404, session_not_found()));
        };
        let agreed = session.client.agreed();
        match (said_revision(request)?, agreed) {
            (Some(said), Some(agreed)) if said != agreed => {
                Err((400, bad_request("another version was agreed on")))
            }
            // Spec 2025-06-18, HTTP: the header is required after the handshake.
            (None, Some(agreed)) if agreed >= Revision::R2025_06_18 => {
                Err((400, bad_request("the header `MCP-Protocol-Version` is missing")))
            }
            _ => Ok(session),
        }
    }

    fn forget(&self, session: &Session) {
        drop(self.server.sessions.remove(&session.id));
        self.server.dismiss(&session.client);
        session.main.finish();
    }

    /// How a stream looks here. The number is that of a stream with ids, if there are to be ids.
    fn dress(&self, number: Option<u64>) -> Dress {
        Dress {
            replies: self.options.replies,
            number: number.filter(|_| self.options.event_ids),
            event: None,
            retry: number.and(self.options.retry),
        }
    }

    /// Sends comments on a stream for as long as it is open.
    fn keep_alive(&self, reply: &Arc<Reply>) {
        if let Some(every) = self.options.comments {
            comment_on(Arc::clone(&self.server), Arc::clone(reply), every);
        }
    }
}

fn comment_on(server: Arc<Server>, reply: Arc<Reply>, every: Duration) {
    if reply.phase() == Phase::Done {
        return;
    }
    let next = Arc::clone(&server);
    server.timer.after(every, move || {
        reply.write(b": still here\n\n");
        comment_on(next, reply, every);
    });
}

/// Answers with an error that belongs to no request.
fn refuse(reply: &Arc<Reply>, status: u16, refusal: &Refusal) {
    reply.set_status(status);
    reply.whole("application/json", &refusal.without_id());
}

fn read_message(request: &Request) -> Result<Incoming<'_>, Refused> {
    serde_json::from_slice(&request.body).map_err(|fault| {
        (400, Refusal::new(error_code::PARSE_ERROR, format!("the body is no message: {fault}")))
    })
}

/// The legacy revision in the header, if there is one.
fn said_revision(request: &Request) -> Result<Option<Revision>, Refused> {
    let Some(text) = request.header("mcp-protocol-version") else { return Ok(None) };
    match Revision::parse(text) {
        Some(revision) if revision != Revision::R2026_07_28 => Ok(Some(revision)),
        _ => Err((400, bad_request(&format!("unsupported protocol version `{text}`")))),
    }
}

fn bad_request(why: &str) -> Refusal {
    Refusal::new(error_code::NO_SESSION, format!("Bad Request: {why}"))
}

fn session_not_found() -> Refusal {
    Refusal::new(error_code::SESSION_NOT_FOUND, "Session not found")
}

/// A client for moments at which none is known.
fn nobody() -> Arc<Client> {
    let replies = Replies::Json;
    let dress = Dress { replies, number: None, event: None, retry: None };
    Client::new(Stream::new(dress, None, None))
}

impl Shape {
    pub(super) fn has_sessions(self) -> bool {
        matches!(self, Self::Session | Self::Dual)
    }
}
