//! Answers that come on a stream, and streams that break before the answer.
//!
//! **Invariant:** a stream is taken up again only with the place where it broke off, never sooner than the
//! server wants, and no oftener than [`Backoff`] allows.

use std::io;
use std::sync::Arc;

use http::StatusCode;
use tokio::time::{Instant, sleep};
use toolrack_transport::{Backoff, LineError, TransportError};
use toolrack_transport::{Lost, RawJson};

use crate::request_headers::Beside;
use crate::response_headers::Kind;
use crate::sse::{Event, EventReader};
use crate::rpc_call::Fit;
use crate::response::{BodyFault, Reply};
use crate::inner::Shared;
use crate::status_mapping::refusal;

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
