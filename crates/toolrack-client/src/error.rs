//! Why a call has no result, and how far it had come.

use std::time::Duration;

use toolrack_mcp::{DecodeError, Method};
use toolrack_transport::JsonRpcError;
use toolrack_transport::{Delivery, LineError, TransportError};

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The server said no. The code, the message and the data are its own.
    #[error("the server refused the call")]
    Refused(#[source] JsonRpcError),
    /// No answer came in time.
    #[error("no answer within {waited:?}")]
    TimedOut {
        /// How long was waited.
        waited: Duration,
        /// Whether the request had left by then.
        delivery: Delivery,
    },
    /// The line could not carry it, or ended.
    #[error("the line to the server failed")]
    Line(#[source] LineError),
    /// An answer came, and it is none.
    #[error("the answer to `{method}` does not fit the protocol")]
    Undecodable {
        /// What was asked.
        method: Method,
        /// What is wrong with the answer.
        source: DecodeError,
    },
    /// There is no such resource.
    #[error("the server has no resource `{uri}`")]
    NoSuchResource {
        /// What was asked for.
        uri: String,
        /// What the server said.
        source: JsonRpcError,
    },
    /// The server will not tell when this resource changes.
    #[error("the server does not tell of changes of `{uri}`")]
    NotGranted {
        /// What was asked for.
        uri: String,
    },
    /// The server wanted to know something first, and it was not told.
    #[error("the server asked for `{method}` before it would answer, and {reason}")]
    InputUnanswered {
        /// What the server asked for.
        method: String,
        /// Why it was not answered.
        reason: String,
    },
    /// The server kept asking.
    #[error("the server asked for more input {rounds} times in a row")]
    TooManyRounds {
        /// How often it was answered.
        rounds: u32,
    },
    /// The server made a task of the call, and gave it up.
    #[error("the server cancelled the task that it had made of the call: {reason}")]
    TaskCancelled {
        /// What it says about that.
        reason: String,
    },
    /// The server does not offer this.
    #[error("the server does not offer {feature}")]
    Unsupported {
        /// What it does not offer.
        feature: &'static str,
    },
}

impl CallError {
    /// How far the request may have traveled. A call may be sent again only if it was not sent.
    pub fn delivery(&self) -> Delivery {
        match self {
            CallError::TimedOut { delivery, .. } => *delivery,
            CallError::Line(failure) => failure.delivery,
            CallError::Unsupported { .. } => Delivery::NotSent,
            CallError::Refused(_)
            | CallError::Undecodable { .. }
            | CallError::NoSuchResource { .. }
            | CallError::NotGranted { .. }
            | CallError::InputUnanswered { .. }
            | CallError::TooManyRounds { .. }
            | CallError::TaskCancelled { .. } => Delivery::Answered,
        }
    }

    pub(crate) fn undecodable(method: Method, source: impl Into<DecodeError>) -> Self {
        CallError::Undecodable { method, source: source.into() }
    }

    /// An answer that can be read but is not allowed where it came.
    pub(crate) fn unexpected(method: Method, what: String) -> Self {
        let source: serde_json::Error = serde::de::Error::custom(what);
        Self::undecodable(method, source)
    }
}

impl From<LineError> for CallError {
    fn from(failure: LineError) -> Self {
        match failure.error {
            TransportError::JsonRpc(error) => CallError::Refused(error),
            TransportError::Timeout(milliseconds) => CallError::TimedOut {
                waited: Duration::from_millis(milliseconds),
                delivery: failure.delivery,
            },
            error => CallError::Line(LineError { error, delivery: failure.delivery }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(failure: LineError, shown: &str, delivery: Delivery) {
        let error = CallError::from(failure);
        assert_eq!((error.to_string().as_str(), error.delivery()), (shown, delivery));
    }

    #[test]
    fn failures_of_a_line_keep_how_far_the_request_came() {
        check(
            LineError::answered(JsonRpcError::new(-32601, "no such method")),
            "the server refused the call",
            Delivery::Answered,
        );
        check(
            LineError::unknown(TransportError::Timeout(1500)),
            "no answer within 1.5s",
            Delivery::Unknown,
        );
        check(
            LineError::not_sent(TransportError::Timeout(20)),
            "no answer within 20ms",
            Delivery::NotSent,
        );
        check(
            LineError::not_sent(TransportError::Shutdown),
            "the line to the server failed",
            Delivery::NotSent,
        );
        check(
            LineError::answered(TransportError::Oversize { limit_bytes: 10 }),
            "the line to the server failed",
            Delivery::Answered,
        );
    }
}
