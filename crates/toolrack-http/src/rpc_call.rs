//! One request and its answer, in an exchange of its own.
//!
//! **Invariant:** whatever an exchange brings, only its own request fails of it.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use tokio::time::{Instant, sleep};
use toolrack_transport::{
    Backoff, Dialect, Frame, FrameError, LineError, Lost, Outgoing, Patience, RawJson,
    TransportError, elements, write_request,
};

use crate::request_headers::{Beside, HTTP_SESSION_ID, http_session_id as parse_session_id};
use crate::request_sender::Draft;
use crate::response::{BodyFault, Reply};
use crate::response_headers::Kind;
use crate::session::Route;
use crate::sse::{Event, EventReader};
use crate::status_mapping::{no_answer, refusal, speaks_of_session};
use crate::transport::{Errand, REFUSAL_BYTES, Shared};

pub(crate) const INITIALIZE: &str = "initialize";

/// What one message turned out to be for the request that waits.
pub(crate) enum Fit {
    /// Its answer.
    Answer(Result<RawJson, LineError>),
    /// Something else, which has gone where it belongs.
    Other,
}

impl Shared {
    /// Sends a request and gives its answer, if that comes on the exchange itself.
    pub(crate) async fn converse(
        self: &Arc<Self>,
        request: &Outgoing<'_>,
        id: u64,
        errand: &Errand<'_>,
    ) -> Result<RawJson, LineError> {
        match self.dialect() {
            Dialect::Stateless(version) => self.ask_plainly(request, id, version, errand).await,
            Dialect::Greeting if request.method == INITIALIZE => {
                Box::pin(self.greet(request, id, errand)).await
            }
            Dialect::Greeting | Dialect::Session(_) => {
                self.ask_in_session(request, id, errand).await
            }
        }
    }

    async fn ask_plainly(
        self: &Arc<Self>,
        request: &Outgoing<'_>,
        id: u64,
        version: &'static str,
        errand: &Errand<'_>,
    ) -> Result<RawJson, LineError> {
        let mut beside = Beside::stateless(version, request.method, errand.subject);
        beside.mirror(request.params);
        let body = body_of(request, id)?;
        let mut reply = self.post(errand, &self.courier.address, &beside, &body).await?;
        if request.patience == Patience::endless() {
            // Nothing else would end the wait for a server that is gone without a word.
            reply.idle = Some(self.stream_idle);
        }
        let stray = reply.remarks.get(&HTTP_SESSION_ID).and_then(parse_session_id);
        let outcome = self.answer_of(&mut reply, id, None).await;
        // A server of the era before may have begun a session before it said no.
        if let (Err(_), Some(stray)) = (&outcome, stray) {
            let shared = Arc::clone(self);
            self.staff.employ(async move { shared.forget(stray, Dialect::Greeting).await });
        }
        outcome
    }

    async fn ask_in_session(
        self: &Arc<Self>,
        request: &Outgoing<'_>,
        id: u64,
        errand: &Errand<'_>,
    ) -> Result<RawJson, LineError> {
        let body = body_of(request, id)?;
        let mut has_renewed = false;
        loop {
            let standing = self.usable().await?;
            let beside = self.session_headers(&standing);
            if let Route::Double { endpoint, broken } = &standing.route {
                let mut reply = self.post(errand, endpoint, &beside, &body).await?;
                return self.answer_on_stream(&mut reply, id, broken).await;
            }
            let mut reply = self.post(errand, &self.courier.address, &beside, &body).await?;
            let is_suspicious =
                beside.names_session() && matches!(reply.status.as_u16(), 400 | 404);
            let refused = if is_suspicious { forgot_session(&mut reply).await } else { None };
            let Some(refused) = refused else {
                return self.answer_of(&mut reply, id, Some(&Resume(&beside))).await;
            };
            // The server did not know whom it was for, so it did nothing.
            errand.sent.clear();
            self.renew(standing.epoch);
            if has_renewed {
                tracing::debug!(error = %refused, "a new session is unknown too");
                return Err(LineError::not_sent(TransportError::SessionLost));
            }
            has_renewed = true;
        }
    }

    /// The answer that a reply holds.
    pub(crate) async fn answer_of(
        self: &Arc<Self>,
        reply: &mut Reply,
        id: u64,
        resume: Option<&Resume<'_>>,
    ) -> Result<RawJson, LineError> {
        if !reply.status.is_success() {
            let body = match reply.said.take() {
                Some(said) => said,
                None => reply.beginning(REFUSAL_BYTES).await,
            };
            return Err(refusal(reply.status, &body));
        }
        match reply.kind() {
            Kind::Events => self.follow(reply, id, resume).await,
            Kind::Json => {
                let at_hand = reply.at_hand().filter(|body| body.len() <= self.max_message_bytes);
                if let Some(answer) = at_hand.and_then(|body| self.answer_at_hand(body, id)) {
                    reply.skip();
                    return Ok(answer);
                }
                let body = reply.whole(self.max_message_bytes).await;
                let body = body.map_err(|fault| self.body_failure(fault))?;
                self.answer_in(&body, id).unwrap_or_else(|| Err(empty(reply, &body)))
            }
            Kind::Other => {
                let body = reply.beginning(REFUSAL_BYTES).await;
                Err(empty(reply, &body))
            }
        }
    }

    /// The answer in a body that has come with its head. Whatever is not the plain case is left to others.
    fn answer_at_hand(&self, body: &[u8], id: u64) -> Option<RawJson> {
        let Ok(Frame::Success { id: its, result }) = Frame::parse(body.trim_ascii()) else {
            return None;
        };
        if its.as_ours() != Some(id) {
            return None;
        }
        self.inbound.tally().message();
        Some(RawJson::new(Bytes::copy_from_slice(result)))
    }

    /// The answer in a body that is one message, or several.
    fn answer_in(&self, body: &Bytes, id: u64) -> Option<Result<RawJson, LineError>> {
        if let Some(messages) = elements(body) {
            let mut answer = None;
            for message in messages {
                if let Fit::Answer(ours) = self.fit(&body.slice_ref(message), id) {
                    answer.get_or_insert(ours);
                }
            }
            return answer;
        }
        match self.fit(body, id) {
            Fit::Answer(answer) => Some(answer),
            Fit::Other => None,
        }
    }

    /// Sorts one message: what is for the waiting request, and what is for others.
    pub(crate) fn fit(&self, message: &Bytes, id: u64) -> Fit {
        let tally = self.inbound.tally();
        match Frame::parse(message.trim_ascii()) {
            Ok(Frame::Success { id: its, result }) if its.as_ours() == Some(id) => {
                tally.message();
                Fit::Answer(Ok(RawJson::new(message.slice_ref(result))))
            }
            // An error without an id can only be for the request of this exchange.
            Ok(Frame::Failure { id: its, error })
                if its.as_ref().is_none_or(|its| its.as_ours() == Some(id)) =>
            {
                tally.message();
                Fit::Answer(Err(LineError::answered(error)))
            }
            Err(FrameError::Shape { id: Some(its) }) if its.as_ours() == Some(id) => {
                let fault = FrameError::Shape { id: None };
                Fit::Answer(Err(LineError::answered(TransportError::Parse(fault.to_string()))))
            }
            _ => {
                self.inbound.accept_beside(id, message);
                Fit::Other
            }
        }
    }

    pub(crate) fn body_failure(&self, fault: BodyFault) -> LineError {
        match fault {
            BodyFault::Oversize => {
                self.inbound.tally().oversize();
                let limit_bytes = self.max_message_bytes;
                LineError::answered(TransportError::Oversize { limit_bytes })
            }
            BodyFault::Broken(error) => LineError::unknown(error),
        }
    }
}

/// The refusal, if it says that the session is gone.
async fn forgot_session(reply: &mut Reply) -> Option<LineError> {
    let body = reply.beginning(REFUSAL_BYTES).await;
    if reply.status == StatusCode::NOT_FOUND || speaks_of_session(&body) {
        return Some(refusal(reply.status, &body));
    }
    reply.said = Some(body);
    None
}

/// The message as it goes out.
pub(crate) fn body_of(request: &Outgoing<'_>, id: u64) -> Result<Draft, LineError> {
    let mut body = Draft::new();
    write_request(&mut body, id, request.method, request.params)
        .map_err(|fault| LineError::not_sent(TransportError::Serialize(fault)))?;
    Ok(body)
}

fn empty(reply: &Reply, body: &[u8]) -> LineError {
    LineError::answered(no_answer(reply.status, reply.content_type(), body))
}

// FOLDED sse_response.rs
// DOC Answers that come on a stream, and streams that break before the answer.
// DOC
// DOC **Invariant:** a stream is taken up again only with the place where it broke off, never sooner than the
// DOC server wants, and no oftener than [`Backoff`] allows.

/// What a stream of a session needs to be taken up again: the headers of the session.
pub(crate) struct Resume<'a>(pub(crate) &'a Beside<'static>);

impl Shared {
    /// Reads a stream until the answer comes.
    pub(crate) async fn follow(
        self: &Arc<Self>,
        reply: &mut Reply,
        id: u64,
        resume: Option<&Resume<'_>>,
    ) -> Result<RawJson, LineError> {
        let mut reader = EventReader::new(self.max_message_bytes);
        let mut backoff = Backoff::default();
        loop {
            let ended = match self.read_stream(reply, &mut reader, id).await {
                Ok(answer) => {
                    reply.leave(&self.staff);
                    return answer;
                }
                Err(ended) => ended,
            };
            reply.cut();
            let (Some(resume), true) = (resume, reader.last_id().is_some()) else {
                return Err(ended);
            };
            tracing::debug!(error = %ended, "a stream broke and is taken up again");
            *reply = Box::pin(self.resume(&mut reader, resume, &mut backoff)).await?;
        }
    }

    /// Reads until the answer (`Ok`) or the end of the stream (`Err`).
    async fn read_stream(
        &self,
        reply: &mut Reply,
        reader: &mut EventReader,
        id: u64,
    ) -> Result<Result<RawJson, LineError>, LineError> {
        loop {
            let piece = match reply.piece(self.max_message_bytes).await {
                Ok(Some(piece)) => piece,
                Ok(None) => return Err(broke_off()),
                Err(fault @ BodyFault::Oversize) => return Ok(Err(self.body_failure(fault))),
                Err(fault) => return Err(self.body_failure(fault)),
            };
            let mut answer = None;
            reader.feed(&piece, &mut |event| match self.sort(&event, id) {
                Fit::Answer(ours) => {
                    answer.get_or_insert(ours);
                }
                Fit::Other => {}
            });
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
    }

    fn sort(&self, event: &Event, id: u64) -> Fit {
        match event {
            Event::Message(message) => self.fit(message, id),
            Event::Named(name, _) => {
                tracing::trace!(name, "an event of no use");
                Fit::Other
            }
            Event::Oversize(head) if Lost::identify(head, b"") == Lost::Unasked => {
                self.inbound.oversize(head, b"", self.max_message_bytes);
                Fit::Other
            }
            Event::Oversize(_) => Fit::Answer(Err(self.body_failure(BodyFault::Oversize))),
        }
    }

    /// Spec 2025-11-25, transports §Resumability: with a GET that names the last event, after the time the
    /// server asked for.
    async fn resume(
        &self,
        reader: &mut EventReader,
        resume: &Resume<'_>,
        backoff: &mut Backoff,
    ) -> Result<Reply, LineError> {
        loop {
            let wait = backoff.failed(Instant::now(), fastrand::f64());
            sleep(wait.max(reader.retry().unwrap_or_default())).await;
            let beside = resume.0.clone().resumed(reader.last_id());
            if !beside.resumes() {
                return Err(broke_off());
            }
            match self.get(&beside).await {
                Ok(reply) if reply.status.is_success() && reply.kind() == Kind::Events => {
                    reader.restart();
                    return Ok(reply);
                }
                Ok(mut reply) if may_recover(reply.status) => reply.leave(&self.staff),
                Ok(mut reply) => {
                    let refused = refusal(reply.status, b"");
                    reply.leave(&self.staff);
                    return Err(LineError::unknown(refused.error));
                }
                Err(error) if matches!(error.error, TransportError::Unauthorized(_)) => {
                    return Err(LineError::unknown(error.error));
                }
                Err(error) => tracing::debug!(%error, "a stream cannot be taken up yet"),
            }
        }
    }
}

fn may_recover(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

/// A stream that ended without an answer: nobody can say what became of the request.
pub(crate) fn broke_off() -> LineError {
    let reason = "the stream ended before the answer";
    LineError::unknown(io::Error::new(io::ErrorKind::UnexpectedEof, reason))
}
