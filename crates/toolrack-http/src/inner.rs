//! What callers and tasks of a line share, and how one message is sent in any dialect.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use toolrack_transport::{Dialect, Inbound, Inbox as _, LineError, TransportError};

use crate::endpoint_url::Address;
use crate::request_headers::Beside;
use crate::request_sender::{Courier, Letter};
use crate::handler_guard::Gate;
use crate::http1_connection::Sent;
use crate::connection_pool::Repeat;
use crate::response::Reply;
use crate::session::{Route, Session, Standing};
use crate::task_group::Staff;
use crate::status_mapping::{is_absence, refusal, repeat_of};

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
