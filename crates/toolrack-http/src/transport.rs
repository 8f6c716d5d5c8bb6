//! A line to a server over HTTP.
//!
//! Every request is an exchange of its own, driven by the caller's own task. Tasks of the line serve only
//! what nobody waits for: streams of the server, new sessions, farewells.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method};
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_transport::{
    Abandon, BoxFuture, CANCELLED, Cancelled, Diagnosis, Dialect, Ending, Inbound, Inbox,
    JsonRpcError, Line, LineError, Medium, Outgoing, Params, RawJson, RequestId, TransportError,
    answer_within, write_answer, write_notification,
};

use crate::connect::{Dialer, check_roots};
use crate::connection_pool::{Pool, Repeat};
use crate::endpoint_url::{Address, discreet};
use crate::http1::Sent;
use crate::options::{HttpOptions, HttpServerDef};
use crate::request_headers::Beside;
use crate::request_sender::{Courier, Letter, name_ourselves};
use crate::response::Reply;
use crate::session::{Route, Session, Standing};
use crate::status_mapping::{is_absence, refusal, repeat_of};

/// How long the first request waits for the server's stream. Some servers hold back the head of an answer
/// until they have something to say.
const HEAD_START: Duration = Duration::from_secs(1);

pub(crate) const INITIALIZED: &str = "notifications/initialized";

/// Answers to the server that may be on their way at once.
const MAX_REPLIES: usize = 64;
/// What closing may take: a farewell, and the end of the tasks.
const CLOSE_LIMIT: Duration = Duration::from_secs(4);

/// An open line to a server over HTTP.
///
/// Dropping it ends it without waiting; [`Line::close`] ends it and waits. It ends with the runtime in which it was
/// opened, too.
pub struct HttpLine {
    shared: Arc<Shared>,
}

impl HttpLine {
    /// Prepares a line; nothing is sent yet. What the server says unasked goes to `inbox`. Fails if the
    /// definition or the options cannot be used, with a reason that names the part.
    ///
    /// # Cancel safety
    /// Nothing is begun before it is done.
    #[expect(clippy::unused_async, reason = "needs a runtime, which an async function shows")]
    pub async fn open(
        definition: &HttpServerDef,
        options: HttpOptions,
        inbox: Arc<dyn Inbox>,
    ) -> Result<Self, TransportError> {
        let refuse = |reason: String| unusable(discreet(&definition.url), reason);
        let address = Address::parse(&definition.url).map_err(|it| refuse(it.to_string()))?;
        let mut headers = definition.checked_headers(&options).map_err(refuse)?;
        name_ourselves(&mut headers, &options.user_agent).map_err(refuse)?;
        check_roots(&options.extra_roots).map_err(refuse)?;
        let proxy = options.proxy.choose(&address.origin).map_err(refuse)?;
        if !address.is_encrypted() && !address.is_local() {
            tracing::warn!(%address, "messages to this server can be read on the way");
        }
        let (staff, porters) = Staff::pair();
        let dialer = Dialer::new(
            address.origin.clone(),
            proxy,
            options.extra_roots,
            options.connect_timeout,
        );
        let pool = Arc::new(Pool::new(dialer, porters.clone()));
        let gate = Arc::new(Gate::new(inbox));
        let shared = Arc::new(Shared {
            courier: Courier::new(pool, address, porters.clone(), options.credentials, headers),
            inbound: Inbound::new(Arc::clone(&gate) as Arc<dyn Inbox>),
            gate,
            staff,
            porters,
            session: Session::new(),
            dialect: Mutex::new(Dialect::Greeting),
            max_message_bytes: options.max_message_bytes,
            stream_idle: options.stream_idle,
            is_listening: AtomicBool::new(false),
            has_heard: CancellationToken::new(),
            is_late: AtomicBool::new(false),
            replies: Arc::new(Semaphore::new(MAX_REPLIES)),
        });
        shared.staff.employ(keep(Arc::clone(&shared)));
        Ok(Self { shared })
    }

    /// Requests that the server sent although its era does not allow it.
    pub fn n_dropped_requests(&self) -> u64 {
        self.shared.gate.n_dropped()
    }

    async fn ask(&self, request: Outgoing<'_>) -> Result<RawJson, LineError> {
        let shared = &self.shared;
        let due = request.patience.begin();
        let mut ticket =
            shared.inbound.claim(due).map_err(|ending| LineError::not_sent(ending.to_error()))?;
        let id = ticket.id();
        let sent = Sent::default();
        let errand = Errand {
            method: request.method,
            subject: request.params.subject(),
            until: Some(Instant::from_std(due.at)),
            sent: &sent,
        };
        let mut farewell = Farewell { shared, id, abandon: request.abandon, sent: &sent };
        let failure =
            |error| if sent.get() { LineError::unknown(error) } else { LineError::not_sent(error) };
        let outcome = tokio::select! {
            // An answer that came on another stream counts more than the end of this one.
            biased;
            waited = answer_within(&mut ticket, due) => match waited {
                Ok(Ok(reply)) => reply.map_err(LineError::answered),
                Ok(Err(ending)) => Err(failure(ending.to_error())),
                // The farewell follows.
                Err(waited) => return Err(failure(TransportError::timed_out(waited))),
            },
            outcome = shared.converse(&request, id, &errand) => outcome,
        };
        farewell.abandon = Abandon::Quietly;
        outcome
    }

    async fn tell(&self, method: &str, params: &dyn Params) -> Result<(), LineError> {
        let shared = &self.shared;
        if let Some(ending) = shared.inbound.ending() {
            return Err(LineError::not_sent(ending.to_error()));
        }
        let is_stateless = matches!(shared.dialect(), Dialect::Stateless(_));
        if is_stateless && method == CANCELLED {
            // Spec 2026-07-28, cancellation: over HTTP, the end of the exchange says it.
            return Ok(());
        }
        let body = written(|out| write_notification(out, method, params))?;
        if method == INITIALIZED {
            shared.session.remember_initialized(body.clone());
        }
        shared.tell(method, params.subject(), body).await?;
        let is_single = matches!(shared.session.standing().route, Route::Single { .. });
        if method == INITIALIZED && !is_stateless && is_single {
            shared.session.worked();
            shared.listen();
            // What a server says before its stream is open is lost, with many of them for good.
            if timeout(HEAD_START, shared.has_heard.cancelled()).await.is_err() {
                shared.is_late.store(true, Ordering::Release);
            }
        }
        Ok(())
    }

    async fn finish(&self) -> Ending {
        if timeout(CLOSE_LIMIT, self.shared.staff.gone()).await.is_err() {
            tracing::warn!("tasks of a line do not end");
        }
        self.shared.inbound.ending().unwrap_or(Ending::Closed)
    }
}

impl Line for HttpLine {
    fn request<'a>(&'a self, request: Outgoing<'a>) -> BoxFuture<'a, Result<RawJson, LineError>> {
        Box::pin(self.ask(request))
    }

    fn notify<'a>(
        &'a self,
        method: &'a str,
        params: &'a dyn Params,
    ) -> BoxFuture<'a, Result<(), LineError>> {
        Box::pin(self.tell(method, params))
    }

    fn answer(
        &self,
        id: &RequestId,
        outcome: Result<&RawValue, &JsonRpcError>,
    ) -> Result<(), LineError> {
        let shared = &self.shared;
        if let Some(ending) = shared.inbound.ending() {
            return Err(LineError::not_sent(ending.to_error()));
        }
        let body = written(|out| write_answer(out, id, outcome))?;
        let Ok(place) = Arc::clone(&shared.replies).try_acquire_owned() else {
            let buffered_bytes = MAX_REPLIES.saturating_mul(body.len());
            return Err(LineError::not_sent(TransportError::Clogged { buffered_bytes }));
        };
        shared.post_aside("answer", body, Some(place));
        Ok(())
    }

    fn touch(&self, id: u64) -> bool {
        self.shared.inbound.touch(id)
    }

    fn speak(&self, dialect: Dialect) {
        match dialect {
            Dialect::Stateless(_) => self.shared.gate.shut_to_requests(),
            Dialect::Greeting | Dialect::Session(_) => self.shared.gate.open_to_requests(),
        }
        *self.shared.dialect.lock().unwrap_or_else(PoisonError::into_inner) = dialect;
    }

    fn medium(&self) -> Medium {
        Medium::Exchange
    }

    fn diagnosis(&self) -> Diagnosis {
        self.shared.inbound.tally().diagnosis()
    }

    fn close(&self) -> BoxFuture<'_, Ending> {
        self.shared.hang_up();
        Box::pin(self.finish())
    }
}

impl Drop for HttpLine {
    fn drop(&mut self) {
        self.shared.hang_up();
    }
}

impl Shared {
    /// Ends the line. The session is ended on the server as far as it lets us, and then the connections.
    fn hang_up(self: &Arc<Self>) {
        if self.staff.stop.is_cancelled() {
            return;
        }
        self.inbound.end(&Ending::Closed);
        self.staff.stop.cancel();
        let Some(http_session_id) = self.session.take_id() else {
            self.porters.stop.cancel();
            return self.courier.pool.close();
        };
        let shared = Arc::clone(self);
        self.staff.employ(async move {
            shared.forget(http_session_id, shared.dialect()).await;
            shared.porters.stop.cancel();
            shared.courier.pool.close();
        });
    }

    /// Ends a line whose tasks are gone. There is nobody left to end its session on the server.
    fn lose(&self) {
        if self.staff.stop.is_cancelled() {
            return;
        }
        self.inbound.end(&Ending::unserved());
        self.staff.stop.cancel();
        self.porters.stop.cancel();
        self.courier.pool.close();
    }

    /// Sends a message that nobody waits for.
    fn post_aside(
        self: &Arc<Self>,
        method: &'static str,
        body: Bytes,
        place: Option<tokio::sync::OwnedSemaphorePermit>,
    ) {
        let shared = Arc::clone(self);
        self.staff.employ(async move {
            let stop = shared.staff.stop.clone();
            tokio::select! {
                told = shared.tell(method, None, body) => told.unwrap_or_else(|error| {
                    tracing::debug!(%error, method, "the server was not told");
                }),
                () = stop.cancelled() => {}
            }
            drop(place);
        });
    }
}

/// Stands for the tasks of a line: it is dropped when the line has ended, or when their runtime is.
struct Keeper(Arc<Shared>);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.lose();
    }
}

async fn keep(shared: Arc<Shared>) {
    let keeper = Keeper(shared);
    keeper.0.staff.stop.cancelled().await;
}

/// What is done about a request that nobody waits for any more.
struct Farewell<'a> {
    shared: &'a Arc<Shared>,
    id: u64,
    abandon: Abandon,
    sent: &'a Sent,
}

impl Drop for Farewell<'_> {
    fn drop(&mut self) {
        let is_in_session = matches!(self.shared.dialect(), Dialect::Session(_));
        if self.abandon == Abandon::Quietly || !self.sent.get() || !is_in_session {
            return;
        }
        if self.shared.staff.stop.is_cancelled() {
            return;
        }
        match written(|out| write_notification(out, CANCELLED, &Cancelled(self.id))) {
            Ok(body) => self.shared.post_aside(CANCELLED, body, None),
            Err(error) => tracing::trace!(%error, "the server was not told"),
        }
    }
}

fn written(
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), serde_json::Error>,
) -> Result<Bytes, LineError> {
    let mut out = Vec::new();
    write(&mut out).map_err(|error| LineError::not_sent(TransportError::Serialize(error)))?;
    Ok(Bytes::from(out))
}

fn unusable(address: String, reason: String) -> TransportError {
    let error = std::io::Error::new(std::io::ErrorKind::InvalidInput, reason);
    TransportError::Unreachable { address, error }
}

impl fmt::Debug for HttpLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpLine")
            .field("address", &self.shared.courier.address)
            .field("session", &self.shared.session.standing())
            .field("inbound", &self.shared.inbound)
            .finish_non_exhaustive()
    }
}

// FOLDED inner.rs
// DOC What callers and tasks of a line share, and how one message is sent in any dialect.

/// How long a server may think about something that nobody waits for.
const QUIET_LIMIT: Duration = Duration::from_secs(5);
/// How much of a refusal is looked at.
pub(crate) const REFUSAL_BYTES: usize = 64 << 10;

/// The inside of a line.
pub(crate) struct Shared {
    pub(crate) courier: Courier,
    pub(crate) inbound: Inbound,
    pub(crate) gate: Arc<Gate>,
    pub(crate) staff: Staff,
    /// The staff of the connections, which outlive the line by a farewell.
    pub(crate) porters: Staff,
    pub(crate) session: Session,
    pub(crate) dialect: Mutex<Dialect>,
    pub(crate) max_message_bytes: usize,
    pub(crate) stream_idle: Duration,
    pub(crate) is_listening: AtomicBool,
    /// Raised when the first request for the server's stream was answered, or never will be.
    pub(crate) has_heard: CancellationToken,
    /// Nobody waited for the stream any longer, so something may have been said before it was open.
    pub(crate) is_late: AtomicBool,
    /// Answers to the server that are on their way. When none is left, the server does not read them.
    pub(crate) replies: Arc<Semaphore>,
}

/// What a message is about, and how long it is waited for.
pub(crate) struct Errand<'a> {
    pub(crate) method: &'a str,
    pub(crate) subject: Option<&'a str>,
    pub(crate) until: Option<Instant>,
    pub(crate) sent: &'a Sent,
}

impl Shared {
    pub(crate) fn dialect(&self) -> Dialect {
        *self.dialect.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn post(
        &self,
        errand: &Errand<'_>,
        address: &Address,
        beside: &Beside<'_>,
        body: &[u8],
    ) -> Result<Reply, LineError> {
        let letter = Letter {
            verb: Method::POST,
            address,
            beside,
            body,
            repeat: repeat_of(errand.method),
            until: errand.until,
            operation: (errand.method, errand.subject),
            sent: errand.sent,
        };
        self.courier.deliver(&letter).await.inspect_err(|failure| self.notice(failure))
    }

    /// Opens a stream on which the server speaks.
    pub(crate) async fn get(&self, beside: &Beside<'_>) -> Result<Reply, LineError> {
        let sent = Sent::default();
        let letter = self.courier.quiet(Method::GET, beside, "GET", &sent);
        self.courier.deliver(&letter).await.inspect_err(|failure| self.notice(failure))
    }

    /// Tells the owner of the line if a message found nobody.
    fn notice(&self, failure: &LineError) {
        if is_absence(&failure.error) {
            self.gate.unreachable(&failure.error);
        }
    }

    /// Sends a message that is not answered, and waits for a moment until it was taken.
    pub(crate) async fn tell(
        self: &Arc<Self>,
        method: &str,
        subject: Option<&str>,
        body: Bytes,
    ) -> Result<(), LineError> {
        let sent = Sent::default();
        let errand = Errand { method, subject, until: None, sent: &sent };
        let reply = timeout(QUIET_LIMIT, self.tell_now(&errand, body)).await;
        let Ok(reply) = reply else {
            // Some servers hold such a request open. What was written has been told.
            tracing::debug!(method, "the server took a message without a word");
            let late = TransportError::timed_out(QUIET_LIMIT);
            return if sent.get() { Ok(()) } else { Err(LineError::not_sent(late)) };
        };
        let mut reply = reply?;
        if reply.status.is_success() {
            reply.leave(&self.staff);
            return Ok(());
        }
        let body = timeout(QUIET_LIMIT, reply.beginning(REFUSAL_BYTES)).await.unwrap_or_default();
        Err(refusal(reply.status, &body))
    }

    async fn tell_now(
        self: &Arc<Self>,
        errand: &Errand<'_>,
        body: Bytes,
    ) -> Result<Reply, LineError> {
        match self.dialect() {
            Dialect::Stateless(version) => {
                let beside = Beside::stateless(version, errand.method, errand.subject);
                self.post(errand, &self.courier.address, &beside, &body).await
            }
            Dialect::Greeting | Dialect::Session(_) => {
                let standing = self.usable().await?;
                let beside = self.session_headers(&standing);
                self.post(errand, self.destination(&standing), &beside, &body).await
            }
        }
    }

    /// Where messages go in a session.
    pub(crate) fn destination<'a>(&'a self, standing: &'a Standing) -> &'a Address {
        match &standing.route {
            Route::Single { .. } => &self.courier.address,
            Route::Double { endpoint, .. } => endpoint,
        }
    }

    pub(crate) fn session_headers(&self, standing: &Standing) -> Beside<'static> {
        let http_session_id = match &standing.route {
            Route::Single { http_session_id } => http_session_id.clone(),
            Route::Double { .. } => None,
        };
        Beside::session(self.dialect(), http_session_id)
    }

    /// Ends a session on the server, as far as it lets us.
    pub(crate) async fn forget(&self, http_session_id: HeaderValue, dialect: Dialect) {
        let beside = Beside::session(dialect, Some(http_session_id));
        let sent = Sent::default();
        let mut letter = self.courier.quiet(Method::DELETE, &beside, "DELETE", &sent);
        letter.repeat = Repeat::Never;
        match timeout(QUIET_LIMIT / 2, self.courier.deliver(&letter)).await {
            Ok(Ok(mut reply)) => reply.leave(&self.porters),
            Ok(Err(error)) => tracing::debug!(%error, "a session was not ended on the server"),
            Err(_elapsed) => tracing::debug!("a session was not ended on the server in time"),
        }
    }
}

// FOLDED task_group.rs
// DOC The tasks of a line: where they are begun, and how all of them are ended.

/// Begins tasks, from inside and outside of the runtime.
#[derive(Debug, Clone)]
pub(crate) struct Staff {
    tracker: TaskTracker,
    handle: Handle,
    /// Raised when the line ends. Every task listens to it.
    pub(crate) stop: CancellationToken,
}

impl Staff {
    /// Staff in the runtime in which this is called: for the line, and for its connections, which end a
    /// little later.
    pub(crate) fn pair() -> (Self, Self) {
        let first = Self {
            tracker: TaskTracker::new(),
            handle: Handle::current(),
            stop: CancellationToken::new(),
        };
        let second = Self { stop: CancellationToken::new(), ..first.clone() };
        (first, second)
    }

    /// Begins a task, which ends by itself soon after `stop`.
    pub(crate) fn employ(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn_on(task, &self.handle);
    }

    /// Waits until every task has ended.
    pub(crate) async fn gone(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

impl<F> hyper::rt::Executor<F> for Staff
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        let stop = self.stop.clone();
        self.employ(async move {
            tokio::select! {
                _output = task => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

// FOLDED handler_guard.rs
// DOC The inbox as many tasks use it: one at a time, and never after its end.

/// Stands before the inbox of a line.
pub(crate) struct Gate {
    inbox: Arc<dyn Inbox>,
    ended: Mutex<bool>,
    /// Whether servers may ask, which the stateless era does not allow.
    is_shut_to_requests: AtomicBool,
    n_dropped: AtomicU64,
}

impl Gate {
    pub(crate) fn new(inbox: Arc<dyn Inbox>) -> Self {
        Self {
            inbox,
            ended: Mutex::new(false),
            is_shut_to_requests: AtomicBool::new(false),
            n_dropped: AtomicU64::new(0),
        }
    }

    /// From now on the server must not ask anything.
    pub(crate) fn shut_to_requests(&self) {
        self.is_shut_to_requests.store(true, Ordering::Release);
    }

    /// From now on the server may ask.
    pub(crate) fn open_to_requests(&self) {
        self.is_shut_to_requests.store(false, Ordering::Release);
    }

    /// Requests that the server should not have sent.
    pub(crate) fn n_dropped(&self) -> u64 {
        self.n_dropped.load(Ordering::Relaxed)
    }

    /// Spec 2026-07-28, transports: servers must not ask; what they ask is not answered.
    fn admits(&self, method: &str) -> bool {
        let is_shut = self.is_shut_to_requests.load(Ordering::Acquire);
        if is_shut {
            self.n_dropped.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(method, "a request of the server was dropped");
        }
        !is_shut
    }

    fn pass(&self, tell: impl FnOnce(&dyn Inbox)) {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if !*ended {
            tell(&*self.inbox);
        }
    }
}

impl Inbox for Gate {
    fn request(&self, id: RequestId, method: &str, params: Option<RawJson>) {
        if self.admits(method) {
            self.pass(|inbox| inbox.request(id, method, params));
        }
    }

    fn request_about(&self, about: u64, id: RequestId, method: &str, params: Option<RawJson>) {
        if self.admits(method) {
            self.pass(|inbox| inbox.request_about(about, id, method, params));
        }
    }

    fn notification(&self, method: &str, params: Option<RawJson>) {
        self.pass(|inbox| inbox.notification(method, params));
    }

    fn stray(&self, id: Option<RequestId>, outcome: Result<RawJson, JsonRpcError>) {
        self.pass(|inbox| inbox.stray(id, outcome));
    }

    fn unreadable(&self, sample: &str) {
        self.pass(|inbox| inbox.unreadable(sample));
    }

    fn renewed(&self) {
        self.pass(|inbox| inbox.renewed());
    }

    fn unreachable(&self, reason: &TransportError) {
        self.pass(|inbox| inbox.unreachable(reason));
    }

    fn ended(&self, ending: &Ending) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *ended, true) {
            self.inbox.ended(ending);
        }
    }
}
