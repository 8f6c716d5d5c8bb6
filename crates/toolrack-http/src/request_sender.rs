//! Brings a message to the server and comes back with the head of its answer, through whatever the server
//! puts in between: logins, redirects, requests for patience.
//!
//! **Invariant:** nothing is sent to another origin, and no message is sent more than four times.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, LOCATION, RETRY_AFTER, USER_AGENT, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tokio::time::{Instant, sleep};
use toolrack_transport::{
    AtHand, AuthError, Authorization, Credentials, LineError, Rebuff, TransportError, plain_text,
};

use crate::endpoint_url::Address;
use crate::request_headers::Beside;
use crate::request::{Dispatch, Usual};
use crate::http1_connection::Sent;
use crate::connection_pool::{Broken, Pool, Repeat};
use crate::response::Reply;
use crate::task_group::Staff;
use crate::status_mapping::retry_after;

const MAX_SENDS: u32 = 4;
const MAX_REDIRECTS: u32 = 5;
/// How much of a rebuff is read for people.
const REBUFF_BYTES: usize = 4 << 10;
const REBUFF_CHARS: usize = 200;

/// Everything that is the same for all messages of a line.
pub(crate) struct Courier {
    pub(crate) pool: Arc<Pool>,
    /// Where the user says the server is.
    pub(crate) address: Address,
    pub(crate) staff: Staff,
    credentials: Option<Arc<dyn Credentials>>,
    post: Usual,
    get: Usual,
}

/// One message on its way.
pub(crate) struct Letter<'a> {
    pub(crate) verb: Method,
    pub(crate) address: &'a Address,
    pub(crate) beside: &'a Beside<'a>,
    pub(crate) body: &'a [u8],
    pub(crate) repeat: Repeat,
    /// Until when it makes sense to wait for a server that asks for time.
    pub(crate) until: Option<Instant>,
    /// The method of the message and what it is about.
    pub(crate) operation: (&'a str, Option<&'a str>),
    pub(crate) sent: &'a Sent,
}

impl Courier {
    pub(crate) fn new(
        pool: Arc<Pool>,
        address: Address,
        staff: Staff,
        credentials: Option<Arc<dyn Credentials>>,
        mut headers: HeaderMap,
    ) -> Self {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let get = Usual::new(headers.clone());
        let both = "application/json, text/event-stream";
        headers.insert(ACCEPT, HeaderValue::from_static(both));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Self { pool, address, staff, credentials, post: Usual::new(headers), get }
    }

    /// Sends a message until there is an answer that is about the message.
    pub(crate) async fn deliver(&self, letter: &Letter<'_>) -> Result<Reply, LineError> {
        let mut moved: Option<Box<Address>> = None;
        let (mut n_sends, mut n_redirects, mut has_waited) = (0, 0, false);
        loop {
            let address = moved.as_deref().unwrap_or(letter.address);
            let authorization = match &self.credentials {
                Some(credentials) => obtained(&**credentials).await?,
                None => None,
            };
            let dispatch = self.dispatch(letter, address, authorization.as_ref());
            n_sends += 1;
            let exchange = self.pool.exchange(&dispatch, letter.repeat, letter.sent);
            let mut reply = exchange.await.map_err(|broken| lost(broken, address, letter.sent))?;
            let status = reply.status;
            if matches!(status.as_u16(), 401 | 403) {
                // Behind a pointer, as everything that happens rarely, so that every call is small.
                let rebuffed = self.rebuffed(&mut reply, letter, authorization.as_ref(), n_sends);
                Box::pin(rebuffed).await?;
                continue;
            }
            if status.is_redirection() {
                n_redirects += 1;
                moved =
                    Some(Box::new(self.redirected(&mut reply, letter, address, n_redirects)?));
                n_sends -= 1;
                continue;
            }
            match pause(&reply, letter).filter(|_| !has_waited && n_sends < MAX_SENDS) {
                Some(wait) => {
                    reply.leave(&self.staff);
                    Box::pin(sleep(wait)).await;
                    has_waited = true;
                }
                None => return Ok(reply),
            }
        }
    }

    /// A letter of our own, for nothing that a caller waits for.
    pub(crate) fn quiet<'a>(
        &'a self,
        verb: Method,
        beside: &'a Beside<'a>,
        operation: &'a str,
        sent: &'a Sent,
    ) -> Letter<'a> {
        Letter {
            verb,
            address: &self.address,
            beside,
            body: &[],
            repeat: Repeat::Harmless,
            until: None,
            operation: (operation, None),
            sent,
        }
    }

    fn dispatch<'a>(
        &'a self,
        letter: &'a Letter<'_>,
        address: &'a Address,
        authorization: Option<&Authorization>,
    ) -> Dispatch<'a> {
        let authorization = authorization.and_then(|it| {
            let mut value = HeaderValue::from_str(it.reveal()).ok()?;
            value.set_sensitive(true);
            Some(value)
        });
        Dispatch {
            verb: &letter.verb,
            address,
            usual: if letter.verb == Method::POST { &self.post } else { &self.get },
            beside: letter.beside,
            authorization,
            body: letter.body,
        }
    }

    /// `Ok` if the message is worth sending again.
    async fn rebuffed(
        &self,
        reply: &mut Reply,
        letter: &Letter<'_>,
        sent: Option<&Authorization>,
        n_sends: u32,
    ) -> Result<(), LineError> {
        let status = reply.status;
        let challenges: Vec<String> = reply
            .remarks
            .all(&WWW_AUTHENTICATE)
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .collect();
        let body = reply.beginning(REBUFF_BYTES).await;
        reply.leave(&self.staff);
        let said = plain_text(String::from_utf8_lossy(&body).trim(), REBUFF_CHARS);
        match &self.credentials {
            Some(credentials) if n_sends < MAX_SENDS => {
                let challenges = &challenges;
                let operation = letter.operation;
                let rebuff = Rebuff { status: status.as_u16(), challenges, sent, operation };
                credentials.rebuffed(rebuff).await.map_err(LineError::answered)
            }
            _ => Err(LineError::answered(rebuff_of(status, said))),
        }
    }

    /// Spec-silent; what the official clients do: same origin only, and the method must stay.
    fn redirected(
        &self,
        reply: &mut Reply,
        letter: &Letter<'_>,
        from: &Address,
        n_redirects: u32,
    ) -> Result<Address, LineError> {
        let status = reply.status;
        let refuse = |text: String| {
            let error = TransportError::Status { code: status.as_u16(), text };
            LineError::answered(error)
        };
        let location = reply.remarks.get(&LOCATION).and_then(|it| it.to_str().ok());
        let location = location.unwrap_or_default().to_owned();
        reply.leave(&self.staff);
        let keeps_method = matches!(status.as_u16(), 307 | 308);
        if location.is_empty() || !(keeps_method || letter.verb == Method::GET) {
            return Err(refuse("a redirect that cannot be followed".to_owned()));
        }
        if n_redirects > MAX_REDIRECTS {
            return Err(refuse("too many redirects".to_owned()));
        }
        from.join(&location).map_err(|fault| {
            refuse(format!("a redirect was not followed: {}", plain_text(&fault.to_string(), 200)))
        })
    }
}

async fn obtained(credentials: &dyn Credentials) -> Result<Option<Authorization>, LineError> {
    match credentials.at_hand() {
        AtHand::Nothing => Ok(None),
        AtHand::Ready(authorization) => Ok(Some(authorization)),
        AtHand::Ask => credentials.obtain().await.map_err(LineError::not_sent),
    }
}

/// How long to wait before the one repetition that a busy server asked for.
fn pause(reply: &Reply, letter: &Letter<'_>) -> Option<Duration> {
    let wait = retry_after(reply.status, reply.remarks.get(&RETRY_AFTER), SystemTime::now())?;
    let until = letter.until.filter(|_| letter.repeat == Repeat::Harmless)?;
    // Those who were sent away together do not come back together.
    let wait = wait + Duration::from_millis(fastrand::u64(0..250));
    (Instant::now() + wait < until).then_some(wait)
}

/// Adds what we call ourselves, unless the user has a name for us.
pub(crate) fn name_ourselves(headers: &mut HeaderMap, user_agent: &str) -> Result<(), String> {
    if headers.contains_key(USER_AGENT) || user_agent.is_empty() {
        return Ok(());
    }
    let value = HeaderValue::from_str(user_agent)
        .map_err(|_odd| "the user agent holds what no header can".to_owned())?;
    headers.insert(USER_AGENT, value);
    Ok(())
}

fn rebuff_of(status: StatusCode, said: String) -> AuthError {
    let or = |usual: &str| if said.is_empty() { usual.to_owned() } else { said.clone() };
    match status {
        StatusCode::UNAUTHORIZED => {
            AuthError::LoginNeeded { reason: or("the server asks for credentials") }
        }
        _ => AuthError::Forbidden { reason: or("the server answered with HTTP status 403") },
    }
}

fn lost(broken: Broken, address: &Address, sent: &Sent) -> LineError {
    match broken {
        Broken::Unreachable(error) => {
            sent.clear();
            let address = address.to_string();
            LineError::not_sent(TransportError::Unreachable { address, error })
        }
        Broken::Lost(error) if sent.get() => LineError::unknown(error),
        Broken::Lost(error) => LineError::not_sent(error),
    }
}
