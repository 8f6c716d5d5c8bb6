//! A line to a server over HTTP.
//!
//! Every request is an exchange of its own, driven by the caller's own task. Tasks of the line serve only
//! what nobody waits for: streams of the server, new sessions, farewells.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use toolrack_transport::{
    Abandon, BoxFuture, CANCELLED, Cancelled, Diagnosis, Dialect, Ending, Inbound, Inbox, Line,
    LineError, Medium, Outgoing, TransportError, answer_within,
};
use toolrack_transport::{
    JsonRpcError, Params, RawJson, RequestId, write_answer, write_notification,
};

use crate::endpoint_url::{Address, discreet};
use crate::request_sender::{Courier, name_ourselves};
use crate::options::{HttpOptions, HttpServerDef};
use crate::connect::Dialer;
use crate::handler_guard::Gate;
use crate::http1_connection::Sent;
use crate::connection_pool::Pool;
use crate::session::{Route, Session};
use crate::inner::{Errand, Shared};
use crate::task_group::Staff;
use crate::tls;

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
        tls::check_roots(&options.extra_roots).map_err(refuse)?;
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
