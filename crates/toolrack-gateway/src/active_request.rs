//! A client's request while a server works on it: where its progress and log messages go, and who answers what
//! the server asks meanwhile.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use toolrack_mcp::{LogLevel, LogMessage, Method, Progress, Token};
use toolrack_transport::RawJson;

use crate::client_info::Caller;
use crate::client_session::Conversation;
use crate::encode::{Outcome, notification};
use crate::lock::lock;
use crate::message_queue::Outbox;
use crate::scope::Naming;

/// Questions of one request that wait. When it is full, the server is told that nobody answers.
const MAX_QUESTIONS: usize = 8;

/// Something that a legacy server asks while it works.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) params: Option<RawJson>,
    pub(crate) answer: oneshot::Sender<Outcome>,
}

/// Which log messages a client wants.
#[derive(Debug, Clone)]
pub(crate) enum Wanted {
    /// What its session is set to; what is usual unless set.
    BySession(Arc<Mutex<Option<LogLevel>>>),
    /// What the request says; nothing unless said.
    ByRequest(Option<LogLevel>),
}

/// Tells clients apart.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Owner {
    Number(u64),
    /// One whose gateway has named it.
    Name(Arc<str>),
}

/// Where what a server says about a request goes. A request that is repeated gets a new one.
#[derive(Debug, Clone)]
pub(crate) struct Spot {
    pub(crate) out: Arc<Outbox>,
    pub(crate) token: Option<Token>,
    pub(crate) wanted: Wanted,
}

/// One request that is at work.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) caller: Arc<Caller>,
    pub(crate) owner: Owner,
    spot: Mutex<Spot>,
    way: Way,
    naming: Naming,
    n_asked: AtomicUsize,
    /// When the first of the questions that are open now was asked.
    asked_at: Mutex<Option<Instant>>,
    /// The number that it was sent under, and when that was among all that were sent.
    sent: Mutex<Option<(u64, u64)>>,
}

/// How its client is asked.
enum Way {
    /// In its session.
    AtOnce(Arc<Conversation>),
    /// By whoever waits for the result.
    InResult(mpsc::Sender<Asked>),
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::AtOnce(_) => "AtOnce",
            Way::InResult(_) => "InResult",
        })
    }
}

/// A question that is open.
pub(crate) struct Open<'a>(&'a AtomicUsize);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Owner {
    /// A client that is like no other.
    pub(crate) fn new() -> Self {
        static N_OWNERS: AtomicU64 = AtomicU64::new(0);
        Owner::Number(N_OWNERS.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn named(name: &str) -> Self {
        Owner::Name(name.into())
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Number(number) => write!(f, "{number}"),
            Owner::Name(name) => f.write_str(name),
        }
    }
}

impl Wanted {
    /// Whether a message is wanted. `usual` is from which level on those get messages who have not said anything.
    pub(crate) fn admits(&self, level: LogLevel, usual: LogLevel) -> bool {
        match self {
            Wanted::BySession(least) => level >= lock(least).unwrap_or(usual),
            Wanted::ByRequest(least) => least.is_some_and(|least| level >= least),
        }
    }

    /// What a modern server is asked for. A legacy client that set nothing gets what such a server would send
    /// unasked.
    pub(crate) fn to_request(&self) -> Option<LogLevel> {
        match self {
            Wanted::BySession(least) => Some(lock(least).unwrap_or(LogLevel::Info)),
            Wanted::ByRequest(least) => *least,
        }
    }
}

impl Seat {
    /// A request of a modern client, which is asked by whoever waits for the result.
    pub(crate) fn new(
        client: (Arc<Caller>, Owner),
        spot: Spot,
        naming: Naming,
    ) -> (Arc<Self>, mpsc::Receiver<Asked>) {
        let (questions, asked) = mpsc::channel(MAX_QUESTIONS);
        (Self::with(client, spot, naming, Way::InResult(questions)), asked)
    }

    /// A request in a session, which can be asked at any time.
    pub(crate) fn in_session(
        home: &Arc<Conversation>,
        client: (Arc<Caller>, Owner),
        spot: Spot,
        naming: Naming,
    ) -> Arc<Self> {
        Self::with(client, spot, naming, Way::AtOnce(Arc::clone(home)))
    }

    fn with(
        (caller, owner): (Arc<Caller>, Owner),
        spot: Spot,
        naming: Naming,
        way: Way,
    ) -> Arc<Self> {
        let (spot, n_asked, sent) = (Mutex::new(spot), AtomicUsize::new(0), Mutex::default());
        let asked_at = Mutex::default();
        Arc::new(Self { caller, owner, spot, way, naming, n_asked, asked_at, sent })
    }

    pub(crate) fn spot(&self) -> Spot {
        lock(&self.spot).clone()
    }

    pub(crate) fn move_to(&self, spot: Spot) {
        *lock(&self.spot) = spot;
    }

    /// Takes note of the number that the request is sent under.
    pub(crate) fn noted(&self, id: u64) {
        static N_SENT: AtomicU64 = AtomicU64::new(0);
        *lock(&self.sent) = Some((id, N_SENT.fetch_add(1, Ordering::Relaxed)));
    }

    /// When it was sent among all, if under this number.
    pub(crate) fn sent_as(&self, id: u64) -> Option<u64> {
        lock(&self.sent).filter(|(its, _)| *its == id).map(|(_, order)| order)
    }

    /// From now on its client counts as asked, until this is dropped.
    pub(crate) fn open_question(&self) -> Open<'_> {
        if self.n_asked.fetch_add(1, Ordering::AcqRel) == 0 {
            *lock(&self.asked_at) = Some(Instant::now());
        }
        Open(&self.n_asked)
    }

    /// Since when its client is being asked something.
    pub(crate) fn asked_since(&self) -> Option<Instant> {
        (*lock(&self.asked_at)).filter(|_| self.is_asked())
    }

    /// Whether its client is being asked something.
    pub(crate) fn is_asked(&self) -> bool {
        self.n_asked.load(Ordering::Acquire) > 0
    }

    /// Asks the client. Nothing if nobody takes the question, or nobody can answer it any more.
    pub(crate) async fn ask(&self, method: &str, params: Option<&RawJson>) -> Option<Outcome> {
        let _open = self.open_question();
        match &self.way {
            Way::AtOnce(home) => Some(home.ask(&self.spot().out, method, params).await),
            Way::InResult(questions) => {
                let (answer, answered) = oneshot::channel();
                let asked = Asked { method: method.to_owned(), params: params.cloned(), answer };
                questions.try_send(asked).ok()?;
                answered.await.ok()
            }
        }
    }

    /// The same progress under the client's own token.
    pub(crate) fn progress(&self, progress: &Progress) {
        let Spot { out, token, .. } = self.spot();
        let Some(token) = token else { return };
        let message = self.caller.revision.has_progress_message().then_some(&progress.message);
        let params = Report {
            progress_token: &token,
            progress: Number(progress.progress),
            total: progress.total.map(Number),
            message: message.and_then(Option::as_deref),
        };
        out.tell(notification(Method::Progress.as_str(), &params));
    }

    pub(crate) fn log(&self, server: &str, message: &LogMessage, usual: LogLevel) {
        let Spot { out, wanted, .. } = self.spot();
        if wanted.admits(message.level, usual) {
            out.tell(log_notification(server, message, self.naming));
        }
    }
}

/// A log message, which says whose it is where clients see several servers.
pub(crate) fn log_notification(server: &str, message: &LogMessage, naming: Naming) -> bytes::Bytes {
    #[derive(Serialize)]
    struct Line<'a> {
        level: LogLevel,
        #[serde(skip_serializing_if = "Option::is_none")]
        logger: Option<String>,
        data: &'a RawValue,
    }
    let logger = match (naming, &message.logger) {
        (Naming::Raw, logger) => logger.clone(),
        (Naming::Public, None) => Some(server.to_owned()),
        (Naming::Public, Some(logger)) => Some(format!("{server}/{logger}")),
    };
    let line = Line { level: message.level, logger, data: &message.data };
    notification(Method::LogMessage.as_str(), &line)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    progress_token: &'a Token,
    progress: Number,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

/// Most servers count in whole numbers, and some clients want to read such.
#[derive(Clone, Copy)]
struct Number(f64);

impl Serialize for Number {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if self.0.fract() == 0.0 && self.0.abs() < EXACT {
            #[expect(clippy::cast_possible_truncation, reason = "whole and small, checked above")]
            return serializer.serialize_i64(self.0 as i64);
        }
        serializer.serialize_f64(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_stay_whole() {
        let check = |number: f64, expected: &str| {
            assert_eq!(serde_json::to_string(&Number(number)).unwrap(), expected);
        };
        check(50.0, "50");
        check(-3.0, "-3");
        check(0.5, "0.5");
        check(1e300, "1e+300");
    }

    #[test]
    fn log_messages_are_admitted_by_session_or_request() {
        let session = Arc::new(Mutex::new(None));
        let by_session = Wanted::BySession(Arc::clone(&session));
        let admits = |wanted: &Wanted, level| wanted.admits(level, LogLevel::Info);
        assert!(by_session.admits(LogLevel::Debug, LogLevel::Debug));
        assert!(!admits(&by_session, LogLevel::Debug) && admits(&by_session, LogLevel::Info));
        *lock(&session) = Some(LogLevel::Error);
        assert!(!admits(&by_session, LogLevel::Info) && admits(&by_session, LogLevel::Alert));
        assert!(!admits(&Wanted::ByRequest(None), LogLevel::Emergency));
        assert!(admits(&Wanted::ByRequest(Some(LogLevel::Info)), LogLevel::Info));
    }

    #[test]
    fn a_log_message_says_whose_it_is() {
        let message: LogMessage =
            serde_json::from_str(r#"{"level":"info","logger":"db","data":{ "a":1 }}"#).unwrap();
        let check = |naming, expected: &str| {
            let line = log_notification("git", &message, naming);
            let line = String::from_utf8_lossy(&line).into_owned();
            assert!(line.contains(expected), "{line}");
        };
        check(Naming::Raw, r#""logger":"db","data":{ "a":1 }"#);
        check(Naming::Public, r#""logger":"git/db""#);
    }
}
