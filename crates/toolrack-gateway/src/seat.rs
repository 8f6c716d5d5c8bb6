//! A client's request while a server works on it: where its progress and log messages go, and who answers what
//! the server asks meanwhile.

use std::sync::{Arc, Mutex};

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use toolrack_mcp::{LogLevel, LogMessage, Method, Progress, Token};
use toolrack_rpc::RawJson;

use crate::caller::Caller;
use crate::lock::lock;
use crate::outbox::Outbox;
use crate::scope::Naming;
use crate::wire::{Outcome, notification};

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
    /// What its session is set to; everything unless set.
    BySession(Arc<Mutex<Option<LogLevel>>>),
    /// What the request says; nothing unless said.
    ByRequest(Option<LogLevel>),
}

/// Where what a server says about a request goes. A request that is repeated gets a new place.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) out: Arc<Outbox>,
    pub(crate) token: Option<Token>,
    pub(crate) wanted: Wanted,
}

/// One request that is at work.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) caller: Arc<Caller>,
    place: Mutex<Place>,
    questions: mpsc::Sender<Asked>,
    naming: Naming,
}

impl Wanted {
    pub(crate) fn admits(&self, level: LogLevel) -> bool {
        match self {
            Wanted::BySession(least) => lock(least).is_none_or(|least| level >= least),
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
    pub(crate) fn new(
        caller: Arc<Caller>,
        place: Place,
        naming: Naming,
    ) -> (Arc<Self>, mpsc::Receiver<Asked>) {
        let (questions, asked) = mpsc::channel(MAX_QUESTIONS);
        let place = Mutex::new(place);
        (Arc::new(Self { caller, place, questions, naming }), asked)
    }

    pub(crate) fn place(&self) -> Place {
        lock(&self.place).clone()
    }

    pub(crate) fn move_to(&self, place: Place) {
        *lock(&self.place) = place;
    }

    /// Hands a question over to whoever waits for the result. Gives it back if nobody takes it.
    pub(crate) fn ask(&self, asked: Asked) -> Result<(), Asked> {
        self.questions.try_send(asked).map_err(|error| match error {
            mpsc::error::TrySendError::Full(asked) | mpsc::error::TrySendError::Closed(asked) => {
                asked
            }
        })
    }

    /// The same progress under the client's own token.
    pub(crate) fn progress(&self, progress: &Progress) {
        let Place { out, token, .. } = self.place();
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

    pub(crate) fn log(&self, server: &str, message: &LogMessage) {
        let Place { out, wanted, .. } = self.place();
        if wanted.admits(message.level) {
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
        assert!(by_session.admits(LogLevel::Debug));
        *lock(&session) = Some(LogLevel::Error);
        assert!(!by_session.admits(LogLevel::Info) && by_session.admits(LogLevel::Alert));
        assert!(!Wanted::ByRequest(None).admits(LogLevel::Emergency));
        assert!(Wanted::ByRequest(Some(LogLevel::Info)).admits(LogLevel::Info));
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
