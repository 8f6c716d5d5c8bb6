//! One request and its answer, in an exchange of its own.
//!
//! **Invariant:** whatever an exchange brings, only its own request fails of it.

use std::sync::Arc;

use bytes::Bytes;
use http::{StatusCode, header::CONTENT_TYPE};
use toolrack_link::{Dialect, LineError, Outgoing, Patience, TransportError};
use toolrack_rpc::{Frame, FrameError, RawJson, elements, write_request};

use crate::follow::Resume;
use crate::header;
use crate::reply::{BodyFault, Kind, Reply};
use crate::session::Route;
use crate::shared::{Errand, Headers, REFUSAL_BYTES, Shared, mirror, stateless_headers};
use crate::verdict::{no_answer, refusal, speaks_of_session};

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
        let mut headers = stateless_headers(version, request.method)?;
        mirror(&mut headers, request.params);
        let body = body_of(request, id)?;
        let mut reply = self.post(errand, &self.courier.address, &headers, body).await?;
        if request.patience == Patience::endless() {
            // Nothing else would end the wait for a server that is gone without a word.
            reply.idle = Some(self.stream_idle);
        }
        let stray = reply.headers.get(header::HTTP_SESSION_ID).and_then(header::http_session_id);
        let outcome = self.answer_of(reply, id, None).await;
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
            let headers = self.session_headers(&standing);
            if let Route::Double { endpoint, broken } = &standing.route {
                let reply = self.post(errand, endpoint, &headers, body).await?;
                return self.answer_on_stream(reply, id, broken).await;
            }
            let reply = self.post(errand, &self.courier.address, &headers, body.clone()).await?;
            let has_id = headers.iter().any(|(name, _)| *name == header::HTTP_SESSION_ID);
            let reply = match self.knows_session(reply, has_id.then_some(id)).await {
                Ok(reply) => return self.answer_of(reply, id, Some(&Resume(headers))).await,
                Err(refused) => refused,
            };
            // The server did not know whom it was for, so it did nothing.
            errand.sent.clear();
            self.renew(standing.epoch);
            if has_renewed {
                tracing::debug!(error = %reply, "a new session is unknown too");
                return Err(LineError::not_sent(TransportError::SessionLost));
            }
            has_renewed = true;
        }
    }

    /// Gives the reply back unless it says that the session is gone. `asked` is the request if it named a
    /// session.
    async fn knows_session(
        &self,
        mut reply: Reply,
        asked: Option<u64>,
    ) -> Result<Reply, LineError> {
        let is_suspicious = matches!(reply.status, StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST);
        if asked.is_none() || !is_suspicious {
            return Ok(reply);
        }
        let body = reply.beginning(REFUSAL_BYTES).await;
        let refused = refusal(reply.status, &body);
        if reply.status == StatusCode::NOT_FOUND || speaks_of_session(&body) {
            return Err(refused);
        }
        reply.said = Some(body);
        Ok(reply)
    }

    /// The answer that a reply holds.
    pub(crate) async fn answer_of(
        self: &Arc<Self>,
        mut reply: Reply,
        id: u64,
        resume: Option<&Resume>,
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
                let body = reply.whole(self.max_message_bytes).await;
                let body = body.map_err(|fault| self.body_failure(fault))?;
                self.answer_in(&body, id).unwrap_or_else(|| Err(empty(&reply, &body)))
            }
            Kind::Other => {
                let body = reply.beginning(REFUSAL_BYTES).await;
                Err(empty(&reply, &body))
            }
        }
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
                self.inbound.accept_owned(message);
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

/// The message as it goes out.
pub(crate) fn body_of(request: &Outgoing<'_>, id: u64) -> Result<Bytes, LineError> {
    let mut body = Vec::with_capacity(512);
    write_request(&mut body, id, request.method, request.params)
        .map_err(|fault| LineError::not_sent(TransportError::Serialize(fault)))?;
    Ok(Bytes::from(body))
}

fn empty(reply: &Reply, body: &[u8]) -> LineError {
    let content_type = reply.headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    LineError::answered(no_answer(reply.status, content_type.unwrap_or_default(), body))
}

pub(crate) fn no_headers() -> Headers {
    Headers::new()
}
