//! How a session begins, for the first time and again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use tokio::time::timeout;
use toolrack_transport::{
    Abandon, BoxFuture, Dialect, Ending, LineError, Outgoing, Patience, TransportError,
    answer_within,
};
use toolrack_transport::{Params, RawJson};

use crate::request_headers::Beside;
use crate::rpc_call::{INITIALIZE, body_of};
use crate::mcp_headers as header;
use crate::http1_connection::Sent;
use crate::transport::INITIALIZED;
use crate::session::{Route, Standing};
use crate::inner::{Errand, REFUSAL_BYTES, Shared};
use crate::status_mapping::{is_modern, may_be_double, refusal};

/// How long a new session may take to begin.
const GREETING_LIMIT: Duration = Duration::from_secs(30);

/// Parameters that were written before.
struct Written<'a>(&'a [u8]);

impl Params for Written<'_> {
    fn write(&self, _id: u64, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        out.extend_from_slice(self.0);
        Ok(())
    }
}

/// The one thing a line has to know of the answer to `initialize`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Agreed<'a> {
    #[serde(borrow)]
    protocol_version: std::borrow::Cow<'a, str>,
}

impl Shared {
    /// Sends `initialize`, and finds out on the way by which route the server is reached.
    pub(crate) async fn greet(
        self: &Arc<Self>,
        request: &Outgoing<'_>,
        id: u64,
        errand: &Errand<'_>,
    ) -> Result<RawJson, LineError> {
        let mut params = Vec::new();
        request
            .params
            .write(id, &mut params)
            .map_err(|fault| LineError::not_sent(TransportError::Serialize(fault)))?;
        self.session.remember_greeting(Bytes::from(params));
        if let Some(earlier) = self.session.take_id() {
            let shared = Arc::clone(self);
            self.staff.employ(async move { shared.forget(earlier, Dialect::Greeting).await });
        }
        let body = body_of(request, id)?;
        // Such an address says itself that it is the older kind.
        let is_named_so = self.courier.address.path.path().ends_with("/sse");
        if is_named_so {
            match self.greet_double(&body, id, errand).await {
                Err(error) if is_no_stream(&error.error) => {}
                outcome => return outcome,
            }
        }
        let mut reply = self.post(errand, &self.courier.address, &Beside::default(), &body).await?;
        let http_session_id =
            reply.remarks.get(&header::HTTP_SESSION_ID).and_then(header::http_session_id);
        if is_named_so || !may_be_double(reply.status) {
            let answer = self.answer_of(&mut reply, id, None).await;
            if answer.is_ok() {
                self.session.begin(Route::Single { http_session_id });
            }
            return answer;
        }
        let refused = refusal(reply.status, &reply.beginning(REFUSAL_BYTES).await);
        reply.leave(&self.staff);
        if is_modern(&refused.error) {
            return Err(refused);
        }
        errand.sent.clear();
        match self.greet_double(&body, id, errand).await {
            Ok(answer) => Ok(answer),
            // What the server said to the first question says more.
            Err(error) => {
                tracing::debug!(%error, "no stream of the older kind either");
                Err(refused)
            }
        }
    }

    /// Repeats what was said when the session began. Behind a pointer, because a stream that it opens
    /// leads back here when it ends.
    pub(crate) fn greet_again(self: &Arc<Self>) -> BoxFuture<'_, Result<(), LineError>> {
        let limit = || LineError::not_sent(TransportError::timed_out(GREETING_LIMIT));
        let greeted = timeout(GREETING_LIMIT, self.greet_again_now());
        Box::pin(async move { greeted.await.map_err(|_late| limit())? })
    }

    async fn greet_again_now(self: &Arc<Self>) -> Result<(), LineError> {
        let Dialect::Session(version) = self.dialect() else {
            return Err(LineError::not_sent(TransportError::SessionLost));
        };
        let greeting = self.session.greeting();
        let request = Outgoing {
            method: INITIALIZE,
            params: &Written(&greeting),
            patience: Patience::exactly(GREETING_LIMIT),
            abandon: Abandon::Quietly,
        };
        let due = request.patience.begin();
        let mut ticket =
            self.inbound.claim(due).map_err(|ending| LineError::not_sent(ending.to_error()))?;
        let (id, sent) = (ticket.id(), Sent::default());
        let errand = Errand { method: INITIALIZE, subject: None, until: None, sent: &sent };
        let body = body_of(&request, id)?;
        let (route, answer) = match self.session.standing().route {
            Route::Single { .. } => {
                let mut reply =
                    self.post(&errand, &self.courier.address, &Beside::default(), &body).await?;
                let id_of = |it| header::http_session_id(it);
                let http_session_id = reply.remarks.get(&header::HTTP_SESSION_ID).and_then(id_of);
                let answer = self.answer_of(&mut reply, id, None).await?;
                (Route::Single { http_session_id }, answer)
            }
            Route::Double { .. } => {
                let route = self.open_double().await?;
                let Route::Double { endpoint, broken } = &route else {
                    return Err(LineError::not_sent(TransportError::SessionLost));
                };
                let mut reply = self.post(&errand, endpoint, &Beside::default(), &body).await?;
                let answer = tokio::select! {
                    biased;
                    waited = answer_within(&mut ticket, due) => settled(waited)?,
                    outcome = self.answer_on_stream(&mut reply, id, broken) => outcome?,
                };
                (route, answer)
            }
        };
        self.confirm(route, &answer, version).await
    }

    /// A session in another version is not the session that everybody relies on.
    async fn confirm(
        self: &Arc<Self>,
        route: Route,
        answer: &RawJson,
        version: &'static str,
    ) -> Result<(), LineError> {
        let agreed = answer.decode::<Agreed<'_>>();
        if !agreed.is_ok_and(|agreed| agreed.protocol_version == version) {
            if let Route::Single { http_session_id: Some(id) } = route {
                self.forget(id, Dialect::Greeting).await;
            }
            return Err(LineError::not_sent(TransportError::SessionLost));
        }
        let standing = Standing { route, ..self.session.standing() };
        let sent = Sent::default();
        let errand = Errand { method: INITIALIZED, subject: None, until: None, sent: &sent };
        let (beside, body) = (self.session_headers(&standing), self.session.initialized());
        let mut reply = self.post(&errand, self.destination(&standing), &beside, &body).await?;
        if !reply.status.is_success() {
            return Err(refusal(reply.status, b""));
        }
        reply.leave(&self.staff);
        self.session.begin(standing.route);
        self.session.worked();
        Ok(())
    }
}

/// What became of a wait with a clock of its own.
pub(crate) fn settled(
    waited: Result<Result<Result<RawJson, TransportError>, Ending>, Duration>,
) -> Result<RawJson, LineError> {
    match waited {
        Ok(Ok(reply)) => reply.map_err(LineError::answered),
        Ok(Err(ending)) => Err(LineError::unknown(ending.to_error())),
        Err(waited) => Err(LineError::unknown(TransportError::timed_out(waited))),
    }
}

/// Whether an address has no stream to offer, so that it may be of the newer kind after all.
fn is_no_stream(error: &TransportError) -> bool {
    matches!(error, TransportError::Status { code: 404 | 405, .. })
}
