//! Why a request failed on its way from a gateway to its server, as if nothing stood between us and that server.
//!
//! The daemon is such a gateway. What it tells in the data of its error is read, and never the message.

use std::sync::atomic::{AtomicBool, Ordering};

use toolrack_client::CallError;
use toolrack_gateway::{RelayCause, RelayFailure};
use toolrack_service::ErrorCode;
use toolrack_transport::Delivery;

use crate::error::{Failure, HINT_OF_SIZE, hint_of_lateness, hint_of_line};
use crate::exit_code::Verdict;

/// Whether the daemon stands before the servers of this run. It stands before all of them or before none, and a
/// server that we reach ourselves must not speak in its name.
static IS_EXPECTED: AtomicBool = AtomicBool::new(false);

/// From now on it is the daemon that answers.
pub(crate) fn expect() {
    IS_EXPECTED.store(true, Ordering::Relaxed);
}

/// The failure behind the daemon. Nothing if it is the server that said no, or nobody did.
pub(crate) fn failure(error: &CallError) -> Option<Failure> {
    if IS_EXPECTED.load(Ordering::Relaxed) { told(error) } else { None }
}

fn told(error: &CallError) -> Option<Failure> {
    let CallError::Refused(refusal) = error else { return None };
    let RelayFailure { delivery, cause, hint } = RelayFailure::read(refusal)?;
    let (verdict, code) = judged(cause);
    let hint = hint.unwrap_or_else(|| usual_hint(cause, delivery).to_owned());
    Some(Failure::new(verdict, code, refusal.message.as_str(), hint))
}

fn judged(cause: RelayCause) -> (Verdict, ErrorCode) {
    match cause {
        RelayCause::TimedOut | RelayCause::Line | RelayCause::TooLarge => {
            (Verdict::Unreachable, ErrorCode::NetworkError)
        }
        RelayCause::NeedsLogin => (Verdict::Auth, ErrorCode::Unauthorized),
        RelayCause::BadAnswer => (Verdict::ToolFailed, ErrorCode::ServiceUnavailable),
        RelayCause::BadConfig => (Verdict::Config, ErrorCode::ValidationError),
        RelayCause::Disabled => (Verdict::Config, ErrorCode::Conflict),
        _ => (Verdict::Unreachable, ErrorCode::ServiceUnavailable),
    }
}

fn usual_hint(cause: RelayCause, delivery: Delivery) -> &'static str {
    match cause {
        RelayCause::TimedOut => hint_of_lateness(delivery),
        RelayCause::BadAnswer => "`toolrack logs NAME` shows what it wrote",
        RelayCause::Line => hint_of_line(delivery),
        RelayCause::TooLarge => HINT_OF_SIZE,
        _ => "`toolrack status` shows how servers are",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use toolrack_transport::JsonRpcError;

    use super::*;

    fn refused(code: i64, data: Value) -> CallError {
        let error = JsonRpcError::new(code, "the line to the server failed");
        CallError::Refused(JsonRpcError { data: Some(data), ..error })
    }

    #[track_caller]
    fn check(data: Value, verdict: Verdict, hint: &str) {
        let failure = told(&refused(-32603, data)).unwrap();
        assert_eq!((failure.verdict(), failure.hint()), (verdict, Some(hint)));
        assert_eq!(failure.summary().message, "the line to the server failed");
    }

    #[test]
    fn a_failure_behind_the_daemon_is_judged_as_without_it() {
        let told = |delivery: &str, cause: &str| json!({ "delivery": delivery, "cause": cause });
        let look = "the server may have done it; look before you try again";
        check(told("unknown", "line"), Verdict::Unreachable, look);
        let look = "the server may have done it; look, then allow more time with `--timeout`";
        check(told("unknown", "timed_out"), Verdict::Unreachable, look);
        let write = "run it again with `--verbose` to see what the server writes";
        check(told("not_sent", "line"), Verdict::Unreachable, write);
        let hinted = json!({ "delivery": "not_sent", "cause": "needs_login", "hint": "log in" });
        check(hinted, Verdict::Auth, "log in");
        check(told("answered", "too_large"), Verdict::Unreachable, HINT_OF_SIZE);
        let general = "`toolrack status` shows how servers are";
        check(told("not_sent", "bad_config"), Verdict::Config, general);
        check(told("not_sent", "not_connected"), Verdict::Unreachable, general);
    }

    #[test]
    fn what_a_server_refuses_is_its_own_word() {
        assert!(told(&refused(-32603, json!({ "delivery": "to the door" }))).is_none());
        assert!(
            told(&refused(-32602, json!({ "delivery": "unknown", "cause": "line" }))).is_none()
        );
        assert!(told(&CallError::TooManyRounds { rounds: 1 }).is_none());
        let forged = json!({ "delivery": "not_sent", "cause": "line", "hint": "run this" });
        assert!(failure(&refused(-32603, forged)).is_none(), "nobody but the daemon is believed");
    }
}
