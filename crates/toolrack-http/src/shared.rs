//! What callers and tasks of a line share, and how one message is sent in any dialect.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use toolrack_link::{Dialect, Inbound, LineError, TransportError};
use toolrack_rpc::Params;

use crate::address::Address;
use crate::courier::{Courier, Letter};
use crate::gate::Gate;
use crate::header;
use crate::lane::Sent;
use crate::pool::Repeat;
use crate::reply::Reply;
use crate::session::{Route, Session, Standing};
use crate::staff::Staff;
use crate::verdict::{refusal, repeat_of};

/// How long a server may think about something that nobody waits for.
const QUIET_LIMIT: Duration = Duration::from_secs(5);
/// How much of a refusal is looked at.
pub(crate) const REFUSAL_BYTES: usize = 64 << 10;

/// The header `MCP-Protocol-Version` came with this version of the protocol.
const FIRST_WITH_VERSION_HEADER: &str = "2025-06-18";

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

pub(crate) type Headers = Vec<(HeaderName, HeaderValue)>;

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
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<Reply, LineError> {
        let letter = Letter {
            verb: Method::POST,
            address,
            headers,
            body,
            repeat: repeat_of(errand.method),
            until: errand.until,
            operation: (errand.method, errand.subject),
            sent: errand.sent,
        };
        self.courier.deliver(&letter).await
    }

    /// Opens a stream on which the server speaks.
    pub(crate) async fn get(
        &self,
        headers: &[(HeaderName, HeaderValue)],
    ) -> Result<Reply, LineError> {
        let sent = Sent::default();
        self.courier.deliver(&self.courier.quiet(Method::GET, headers, "GET", &sent)).await
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
                let mut headers = stateless_headers(version, errand.method)?;
                headers
                    .extend(errand.subject.and_then(header::encoded).map(|it| (header::NAME, it)));
                self.post(errand, &self.courier.address, &headers, body).await
            }
            Dialect::Greeting | Dialect::Session(_) => {
                let standing = self.usable().await?;
                let headers = self.session_headers(&standing);
                self.post(errand, self.destination(&standing), &headers, body).await
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

    pub(crate) fn session_headers(&self, standing: &Standing) -> Headers {
        let mut headers = version_headers(self.dialect());
        if let Route::Single { http_session_id: Some(id) } = &standing.route {
            headers.push((header::HTTP_SESSION_ID, id.clone()));
        }
        headers
    }

    /// Ends a session on the server, as far as it lets us.
    pub(crate) async fn forget(&self, http_session_id: HeaderValue, dialect: Dialect) {
        let mut headers = version_headers(dialect);
        headers.push((header::HTTP_SESSION_ID, http_session_id));
        let sent = Sent::default();
        let mut letter = self.courier.quiet(Method::DELETE, &headers, "DELETE", &sent);
        letter.repeat = Repeat::Never;
        match timeout(QUIET_LIMIT / 2, self.courier.deliver(&letter)).await {
            Ok(Ok(reply)) => reply.leave(&self.porters),
            Ok(Err(error)) => tracing::debug!(%error, "a session was not ended on the server"),
            Err(_elapsed) => tracing::debug!("a session was not ended on the server in time"),
        }
    }
}

/// Spec 2026-07-28, transports §Request Headers.
pub(crate) fn stateless_headers(version: &'static str, method: &str) -> Result<Headers, LineError> {
    let method = header::encoded(method).ok_or_else(|| {
        LineError::not_sent(TransportError::Parse("a method that no header can hold".to_owned()))
    })?;
    let version = HeaderValue::from_static(version);
    Ok(vec![(header::PROTOCOL_VERSION, version), (header::METHOD, method)])
}

/// Adds what is said beside the message about its parameters.
pub(crate) fn mirror(headers: &mut Headers, params: &dyn Params) {
    headers.extend(params.subject().and_then(header::encoded).map(|it| (header::NAME, it)));
    params.mirror(&mut |name, value| match (header::param_name(name), header::encoded(value)) {
        (Some(name), Some(value)) => headers.push((name, value)),
        _ => tracing::debug!(name, "an argument cannot be said in a header"),
    });
}

fn version_headers(dialect: Dialect) -> Headers {
    match dialect {
        Dialect::Session(version) if version >= FIRST_WITH_VERSION_HEADER => {
            vec![(header::PROTOCOL_VERSION, HeaderValue::from_static(version))]
        }
        _ => Headers::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(dialect: Dialect, expected: Option<&str>) {
        let headers = version_headers(dialect);
        assert_eq!(headers.first().map(|(_, value)| value.to_str().unwrap()), expected);
    }

    #[test]
    fn the_version_is_said_where_servers_know_it() {
        check(Dialect::Greeting, None);
        check(Dialect::Session("2024-11-05"), None);
        check(Dialect::Session("2025-03-26"), None);
        check(Dialect::Session("2025-06-18"), Some("2025-06-18"));
        check(Dialect::Session("2025-11-25"), Some("2025-11-25"));
    }

    #[test]
    fn parameters_are_mirrored_in_headers() {
        struct Call;
        impl Params for Call {
            fn write(&self, _id: u64, _out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
                Ok(())
            }
            fn subject(&self) -> Option<&str> {
                Some("käse")
            }
            fn mirror(&self, tell: &mut dyn FnMut(&str, &str)) {
                tell("Region", "us west");
                tell("no name", "lost");
            }
        }
        let mut headers = stateless_headers("2026-07-28", "tools/call").unwrap();
        mirror(&mut headers, &Call);
        let shown: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        let expected = [
            "mcp-protocol-version: 2026-07-28",
            "mcp-method: tools/call",
            "mcp-name: =?base64?a8Okc2U=?=",
            "mcp-param-region: us west",
        ];
        assert_eq!(shown, expected);
    }
}
