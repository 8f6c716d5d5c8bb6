//! What a line knows of its session with a server of the handshake era, and how it begins a new one.
//!
//! **Invariant:** however many requests find the session gone, one of them begins a new one and the others
//! wait for it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use serde::Deserialize;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use toolrack_transport::{
    Abandon, AuthError, Backoff, BoxFuture, Dialect, Ending, Inbox as _, LineError, Outgoing,
    Params, Patience, RawJson, TransportError, answer_within,
};

use crate::endpoint_url::Address;
use crate::http1::Sent;
use crate::request_headers::{Beside, HTTP_SESSION_ID, http_session_id as parse_session_id};
use crate::rpc_call::{INITIALIZE, body_of};
use crate::status_mapping::{is_modern, may_be_double, refusal};
use crate::transport::{Errand, INITIALIZED, REFUSAL_BYTES, Shared};

/// What a short session counts beyond one failure.
pub(crate) const SESSION_WEIGHT: u32 = 3;
/// What even somebody in a hurry waits between two attempts.
const LEAST_PAUSE: Duration = Duration::from_secs(1);

/// Where a session stands.
#[derive(Debug, Clone)]
pub(crate) struct Standing {
    /// Counts sessions, so that news of an old one does not harm a new one.
    pub(crate) epoch: u64,
    pub(crate) phase: Phase,
    pub(crate) route: Route,
}

#[derive(Debug, Clone)]
pub(crate) enum Phase {
    Open,
    /// A task is about to begin a new one.
    Renewing,
    /// The last attempt failed. The next request leads to another one.
    Lost(Loss),
}

/// Why there is no session.
#[derive(Debug, Clone)]
pub(crate) enum Loss {
    Gone,
    Refused(AuthError),
}

/// How messages reach the server.
#[derive(Clone)]
pub(crate) enum Route {
    /// All by one address.
    Single { http_session_id: Option<HeaderValue> },
    /// To one address, and back on a stream from another.
    Double { endpoint: Arc<Address>, broken: CancellationToken },
}

/// A session and what it takes to begin it again.
pub(crate) struct Session {
    standing: watch::Sender<Standing>,
    memory: Mutex<Memory>,
    /// Somebody waits for the next attempt.
    hurry: Notify,
}

/// What was said when the session began.
#[derive(Default)]
struct Memory {
    /// The parameters of `initialize`.
    greeting: Bytes,
    /// The whole message that confirms it.
    initialized: Bytes,
    backoff: Backoff,
    /// Whether there has been a session since the last attempt.
    was_open: bool,
}

impl Session {
    pub(crate) fn new() -> Self {
        let route = Route::Single { http_session_id: None };
        let standing = Standing { epoch: 0, phase: Phase::Open, route };
        let standing = watch::Sender::new(standing);
        Self { standing, memory: Mutex::default(), hurry: Notify::new() }
    }

    pub(crate) fn standing(&self) -> Standing {
        self.standing.borrow().clone()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// A session has begun.
    pub(crate) fn begin(&self, route: Route) {
        self.memory().was_open = true;
        self.standing.send_modify(|standing| {
            if let Route::Double { broken, .. } = &standing.route {
                // Its stream has nothing more to say.
                broken.cancel();
            }
            standing.epoch += 1;
            standing.phase = Phase::Open;
            standing.route = route;
        });
    }

    /// Takes the id away, for whoever ends the session.
    pub(crate) fn take_id(&self) -> Option<HeaderValue> {
        let mut taken = None;
        self.standing.send_if_modified(|standing| {
            if let Route::Single { http_session_id } = &mut standing.route {
                taken = http_session_id.take();
            }
            false
        });
        taken
    }

    pub(crate) fn remember_greeting(&self, greeting: Bytes) {
        self.memory().greeting = greeting;
    }

    pub(crate) fn remember_initialized(&self, message: Bytes) {
        self.memory().initialized = message;
    }

    pub(crate) fn greeting(&self) -> Bytes {
        self.memory().greeting.clone()
    }

    pub(crate) fn initialized(&self) -> Bytes {
        self.memory().initialized.clone()
    }

    /// Claims the task of renewing. `false` if somebody else has it, or it is done.
    pub(crate) fn claim_renewal(&self, epoch: u64) -> bool {
        self.standing.send_if_modified(|standing| {
            let is_free = !matches!(standing.phase, Phase::Renewing);
            let is_ours = is_free && standing.epoch == epoch;
            if is_ours {
                standing.phase = Phase::Renewing;
            }
            is_ours
        })
    }

    pub(crate) fn give_up(&self, loss: Loss) {
        self.standing.send_modify(|standing| standing.phase = Phase::Lost(loss));
    }

    /// How long to wait before the next attempt. The first one after a long time is free. A session that
    /// began and ended counts for more than an attempt that failed, because it takes more requests.
    fn next_wait(&self) -> Duration {
        let mut memory = self.memory();
        let now = Instant::now();
        let wait = memory.backoff.failed(now, fastrand::f64());
        let is_first = memory.backoff.n_failures() == 1;
        if std::mem::take(&mut memory.was_open) {
            weigh(&mut memory.backoff, SESSION_WEIGHT);
        }
        if is_first { Duration::ZERO } else { wait }
    }

    /// Waits for the next attempt. Somebody who wants the session now need not wait for all of it.
    pub(crate) async fn pause(&self) {
        let wait = self.next_wait();
        sleep(wait.min(LEAST_PAUSE)).await;
        tokio::select! {
            () = sleep(wait.saturating_sub(LEAST_PAUSE)) => {}
            () = self.hurry.notified() => {}
        }
    }

    pub(crate) fn worked(&self) {
        self.memory().backoff.worked(Instant::now());
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// The session as it can be used, after whatever it takes. The caller's patience bounds it.
    pub(crate) async fn usable(self: &Arc<Self>) -> Result<Standing, LineError> {
        let standing = self.session.standing();
        match standing.phase {
            Phase::Open => return Ok(standing),
            Phase::Renewing => self.session.hurry.notify_one(),
            Phase::Lost(_) => self.renew(standing.epoch),
        }
        let mut news = self.session.watch();
        let settled = news.wait_for(|standing| !matches!(standing.phase, Phase::Renewing)).await;
        let standing = settled.map_err(|_gone| LineError::not_sent(TransportError::Shutdown))?;
        match &standing.phase {
            Phase::Lost(Loss::Refused(error)) => Err(LineError::not_sent(error.clone())),
            Phase::Lost(Loss::Gone) => Err(LineError::not_sent(TransportError::SessionLost)),
            Phase::Open | Phase::Renewing => Ok(standing.clone()),
        }
    }

    /// The session of `epoch` is gone: has a new one begun, unless that happens already.
    pub(crate) fn renew(self: &Arc<Self>, epoch: u64) {
        if self.session.claim_renewal(epoch) {
            let shared = Arc::clone(self);
            self.staff.employ(async move {
                let stop = shared.staff.stop.clone();
                tokio::select! {
                    () = renew_once(&shared) => {}
                    () = stop.cancelled() => {}
                }
            });
        }
    }
}

async fn renew_once(shared: &Arc<Shared>) {
    sleep(shared.session.next_wait()).await;
    match shared.greet_again().await {
        Ok(()) => shared.gate.renewed(),
        Err(error) => {
            tracing::debug!(%error, "no new session could be begun");
            shared.session.give_up(loss_of(error.error));
        }
    }
}

/// Counts further failures, for tries that cost more than one request.
pub(crate) fn weigh(backoff: &mut Backoff, n_more: u32) {
    for _ in 0..n_more {
        backoff.failed(Instant::now(), 0.0);
    }
}

pub(crate) fn loss_of(error: TransportError) -> Loss {
    match error {
        TransportError::Unauthorized(error) => Loss::Refused(error),
        _ => Loss::Gone,
    }
}

/// A session id is a secret.
impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Route::Single { http_session_id } => {
                write!(f, "Single(has id: {})", http_session_id.is_some())
            }
            Route::Double { endpoint, .. } => write!(f, "Double({endpoint})"),
        }
    }
}

// FOLDED initialize.rs
// DOC How a session begins, for the first time and again.

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
        let http_session_id = reply.remarks.get(&HTTP_SESSION_ID).and_then(parse_session_id);
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
                let id_of = |it| parse_session_id(it);
                let http_session_id = reply.remarks.get(&HTTP_SESSION_ID).and_then(id_of);
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
