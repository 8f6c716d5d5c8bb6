//! What a line knows of its session with a server of the handshake era, and how it begins a new one.
//!
//! **Invariant:** however many requests find the session gone, one of them begins a new one and the others
//! wait for it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use toolrack_transport::{AuthError, Backoff, Inbox as _, LineError, TransportError};

use crate::endpoint_url::Address;
use crate::inner::Shared;

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
