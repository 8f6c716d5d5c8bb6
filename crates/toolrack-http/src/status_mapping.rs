//! HTTP status to error mapping, idempotent methods and `Retry-After`, as pure functions.

use std::io::ErrorKind;
use std::time::{Duration, SystemTime};

use http::{HeaderValue, StatusCode};
use httpdate::parse_http_date;
use toolrack_transport::{Message, RequestError, TransportError, sanitize_line};

/// Length of the server's text in an error.
const MAX_TEXT_CHARS: usize = 200;
/// A longer `Retry-After` fails the request instead of stalling it.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

/// Methods without side effects by the MCP specification, which are safe to send twice.
const IDEMPOTENT_METHODS: [&str; 10] = [
    "server/discover",
    "ping",
    "tools/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "tasks/get",
];

/// `EMFILE` and `ENFILE`: the process or the system is out of file descriptors. The same numbers on every Unix.
const NO_FILE_DESCRIPTOR: [i32; 2] = [24, 23];

pub(crate) fn is_idempotent(method: &str) -> bool {
    IDEMPOTENT_METHODS.contains(&method)
}

/// Error for a response with an error `status`.
pub(crate) fn error_from_response(status: StatusCode, body: &[u8]) -> RequestError {
    // An error status may carry a JSON-RPC error, which says more than the status. Its id is ignored: the
    // exchange identifies the request.
    if let Ok(Message::Failure { error, .. }) = Message::parse(body.trim_ascii()) {
        return RequestError::answered(error);
    }
    let text = sanitize_line(String::from_utf8_lossy(body).trim(), MAX_TEXT_CHARS);
    let error = TransportError::Status { code: status.as_u16(), text };
    // A 5xx may come from a reverse proxy, which does not know whether the server acted.
    if status.is_server_error() {
        RequestError::unknown(error)
    } else {
        RequestError::answered(error)
    }
}

/// Error for a success status without a JSON-RPC message.
pub(crate) fn missing_message(
    status: StatusCode,
    content_type: &str,
    body: &[u8],
) -> TransportError {
    let text = sanitize_line(String::from_utf8_lossy(body).trim(), MAX_TEXT_CHARS);
    TransportError::Parse(if text.is_empty() {
        format!("status {} without a JSON-RPC message", status.as_u16())
    } else {
        format!("{content_type:?} instead of a JSON-RPC message: {text}")
    })
}

/// Whether a 400 to a request with a session id is about the session. The specification requires 404, but many
/// servers send 400 and only the text tells, so this is the one place where a text decides. A wrong guess costs
/// one new session.
pub(crate) fn mentions_session(body: &[u8]) -> bool {
    let text = body.to_ascii_lowercase();
    memchr::memmem::find(&text, b"session").is_some()
}

/// Whether connecting failed because no server is at the other end. Shortages on this machine, and a full
/// accept queue (`WouldBlock`), do not count.
pub(crate) fn is_server_absent(error: &TransportError) -> bool {
    let TransportError::Unreachable { error, .. } = error else { return false };
    let is_ours = matches!(
        error.kind(),
        ErrorKind::AddrNotAvailable | ErrorKind::OutOfMemory | ErrorKind::WouldBlock
    );
    !is_ours && !error.raw_os_error().is_some_and(|code| NO_FILE_DESCRIPTOR.contains(&code))
}

/// Delay that the server asks for, in seconds or until a date.
pub(crate) fn retry_after(
    status: StatusCode,
    value: Option<&HeaderValue>,
    now: SystemTime,
) -> Option<Duration> {
    if !matches!(status.as_u16(), 429 | 503) {
        return None;
    }
    let value = value?.to_str().ok()?.trim();
    let wait = match value.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        // A date in the past means now.
        Err(_not_a_number) => parse_http_date(value).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(wait).filter(|wait| *wait <= MAX_RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use std::io;

    use toolrack_transport::Delivery;

    use super::*;

    #[track_caller]
    fn check(status: u16, body: &str, expected: &str, delivery: Delivery) {
        let refused = error_from_response(StatusCode::from_u16(status).unwrap(), body.as_bytes());
        assert_eq!(
            (refused.to_string().as_str(), refused.delivery),
            (expected, delivery),
            "{body}"
        );
    }

    #[test]
    fn error_response_keeps_the_server_message() {
        let answered = Delivery::Answered;
        check(
            400,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad"}}"#,
            "JSON-RPC error -32000: Bad",
            answered,
        );
        check(
            404,
            r#" {"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"no"}} "#,
            "JSON-RPC error -32601: no",
            answered,
        );
        check(
            500,
            r#"{"error":{"code":-32603,"message":"x"}}"#,
            "JSON-RPC error -32603: x",
            answered,
        );
        check(
            400,
            "Missing\nsession",
            "the server responded with HTTP status 400: Missing session",
            answered,
        );
        check(404, "", "the server responded with HTTP status 404", answered);
        check(
            400,
            r#"{"error":"text"}"#,
            r#"the server responded with HTTP status 400: {"error":"text"}"#,
            answered,
        );
        check(
            502,
            "<html>",
            "the server responded with HTTP status 502: <html>",
            Delivery::Unknown,
        );
        check(400, "\u{1b}[31mred", "the server responded with HTTP status 400: red", answered);
    }

    #[test]
    fn idempotent_methods_are_listed() {
        assert!(is_idempotent("tools/list"));
        assert!(!is_idempotent("tools/call"));
        assert!(!is_idempotent("initialize"));
    }

    #[test]
    fn server_is_absent_only_if_the_peer_is_missing() {
        let check = |error: io::Error, expected: &str| {
            let text = error.to_string();
            let error = TransportError::Unreachable { address: String::new(), error };
            let word = if is_server_absent(&error) { "absent" } else { "unknown" };
            assert_eq!(word, expected, "{text}");
        };
        check(ErrorKind::ConnectionRefused.into(), "absent");
        check(ErrorKind::HostUnreachable.into(), "absent");
        check(ErrorKind::TimedOut.into(), "absent");
        // Unknown host, failing proxy, removed socket.
        check(io::Error::other("failed to lookup address information"), "absent");
        check(ErrorKind::NotFound.into(), "absent");
        // Too many open files, no free port, full accept queue of a Unix socket.
        check(io::Error::from_raw_os_error(24), "unknown");
        check(io::Error::from_raw_os_error(23), "unknown");
        check(ErrorKind::AddrNotAvailable.into(), "unknown");
        check(ErrorKind::WouldBlock.into(), "unknown");
        let cut = io::Error::from(ErrorKind::ConnectionRefused);
        for other in [TransportError::Io(cut), TransportError::Timeout(1)] {
            assert!(!is_server_absent(&other), "{other}");
        }
    }

    #[track_caller]
    fn check_retry_after(status: u16, value: &'static str, expected: Option<u64>) {
        let header = HeaderValue::from_static(value);
        // Wed, 21 Oct 2015 07:28:00 GMT.
        let now = SystemTime::UNIX_EPOCH + Duration::from_mins(24_090_208);
        let found = retry_after(StatusCode::from_u16(status).unwrap(), Some(&header), now);
        assert_eq!(found, expected.map(Duration::from_secs), "{status} {value}");
    }

    #[test]
    fn retry_after_accepts_seconds_and_dates() {
        check_retry_after(429, "3", Some(3));
        check_retry_after(503, " 0 ", Some(0));
        check_retry_after(500, "3", None);
        check_retry_after(429, "301", None);
        check_retry_after(429, "Wed, 21 Oct 2015 07:28:30 GMT", Some(30));
        check_retry_after(503, "Wed, 21 Oct 2015 07:27:00 GMT", Some(0));
        check_retry_after(429, "Wed, 21 Oct 2015 08:28:00 GMT", None);
        check_retry_after(429, "soon", None);
        check_retry_after(429, "-1", None);
    }
}
