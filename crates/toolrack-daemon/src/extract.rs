//! Request extractors: JSON bodies with size and time limits, and query parameters.

use std::time::Duration;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize as _, Deserializer};
use serde_json::Number;
use serde_json::error::Category;
use tokio::time::timeout;
use tower_http::timeout::TimeoutError;

use crate::problem::Problem;

/// Maximum size of a tool call. Its arguments may contain files.
pub(crate) const MAX_CALL_BYTES: usize = 16 << 20;
/// Maximum size of a config file in JSON, which escapes every quote and line break of it.
pub(crate) const MAX_CONFIG_TEXT_BYTES: usize = 8 << 20;
/// Maximum size of a secret in JSON, which may write a character in six bytes.
pub(crate) const MAX_SECRET_BYTES: usize = 512 << 10;
/// Maximum size of the configuration of a server. Every member of it may get an error message of its own.
pub(crate) const MAX_DOCUMENT_BYTES: usize = 256 << 10;
/// Maximum size of a body that anyone may send: a login code or a challenge.
pub(crate) const MAX_PUBLIC_BYTES: usize = 4 << 10;

/// Timeout for a whole body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Larger bodies are parsed on a blocking thread, so that one client does not hold up the others.
const MAX_INLINE_BYTES: usize = 64 << 10;

/// A JSON body of at most `MAX_BYTES`. More is not read: a client must not fill the memory with what is refused.
pub(crate) struct JsonBody<T, const MAX_BYTES: usize>(pub(crate) T);

impl<T: DeserializeOwned + Send + 'static, S: Send + Sync, const MAX_BYTES: usize> FromRequest<S>
    for JsonBody<T, MAX_BYTES>
{
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        let (head, body) = request.into_parts();
        // A page of another site can send `text/plain` without a preflight, but not JSON.
        if !is_json(&head.headers) {
            let message = "the body must be JSON with `Content-Type: application/json`";
            return Err(Problem::malformed(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        if announced_bytes(&head.headers) > MAX_BYTES as u64 {
            return Err(body_too_large(MAX_BYTES));
        }
        let body = Limited::new(body, MAX_BYTES).collect();
        let bytes = match timeout(BODY_TIMEOUT, body).await {
            Ok(Ok(collected)) => collected.to_bytes(),
            Ok(Err(error)) => return Err(body_error(&*error, MAX_BYTES)),
            Err(_elapsed) => return Err(body_timeout()),
        };
        if bytes.len() <= MAX_INLINE_BYTES {
            return parse_json(&bytes).map(Self);
        }
        match tokio::task::spawn_blocking(move || parse_json(&bytes)).await {
            Ok(parsed) => parsed.map(Self),
            Err(_panicked) => Err(Problem::internal("the body was not parsed")),
        }
    }
}

/// The length of the body, unless it is chunked. hyper has refused a wrong one.
fn announced_bytes(headers: &HeaderMap) -> u64 {
    let value = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    value.and_then(|value| value.parse().ok()).unwrap_or_default()
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = value.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
    ["application/json", "application/merge-patch+json"]
        .iter()
        .any(|accepted| media_type.eq_ignore_ascii_case(accepted))
}

/// Syntax errors are 400, a value of the wrong shape is 422.
fn parse_json<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| {
        let status = match error.classify() {
            Category::Data => StatusCode::UNPROCESSABLE_ENTITY,
            Category::Io | Category::Syntax | Category::Eof => StatusCode::BAD_REQUEST,
        };
        Problem::malformed(status, format!("invalid body: {error}"))
    })
}

/// Deserializes an optional integer. Accepts `1.0`, which is the same number in JSON.
pub(crate) fn optional_integer<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<Number>::deserialize(deserializer)? else { return Ok(None) };
    let from_float = || {
        let number = number.as_f64().filter(|number| number.fract() == 0.0)?;
        // Through text: a cast would turn `1e300` and negative numbers into some integer.
        format!("{number:.0}").parse().ok()
    };
    let integer = number.as_u64().or_else(from_float);
    integer.map(Some).ok_or_else(|| D::Error::custom("expected an integer"))
}

fn body_timeout() -> Problem {
    Problem::malformed(StatusCode::REQUEST_TIMEOUT, "the body was not received in time")
}

/// The response to a body above the limit of its route.
fn body_too_large(max_bytes: usize) -> Problem {
    let limit = match max_bytes >> 20 {
        0 => format!("{} KiB", max_bytes >> 10),
        n_mib => format!("{n_mib} MiB"),
    };
    let message = format!("the body is larger than {limit}");
    Problem::malformed(StatusCode::PAYLOAD_TOO_LARGE, message)
}

/// Finds the cause of a body error in its source chain: the timeout is a layer below axum.
fn body_error(error: &(dyn std::error::Error + 'static), max_bytes: usize) -> Problem {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return body_too_large(max_bytes);
        }
        if error.is::<TimeoutError>() {
            return body_timeout();
        }
        cause = error.source();
    }
    Problem::malformed(StatusCode::BAD_REQUEST, "the body is incomplete")
}

/// The parameters of the path.
pub(crate) struct PathParams<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let malformed =
            |error: PathRejection| Problem::malformed(error.status(), error.body_text());
        let Path(params) = Path::from_request_parts(parts, state).await.map_err(malformed)?;
        Ok(Self(params))
    }
}

/// The parameters of the query string.
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        let malformed =
            |error: QueryRejection| Problem::malformed(StatusCode::BAD_REQUEST, error.body_text());
        Query::try_from_uri(&parts.uri).map(|Query(params)| Self(params)).map_err(malformed)
    }
}

/// Checks that a number fits into `i64`, which `SQLite` and many clients use.
pub(crate) fn check_integer(field: &str, value: Option<u64>) -> Result<(), Problem> {
    match value {
        Some(value) if i64::try_from(value).is_err() => {
            Err(Problem::invalid(field, format!("must not be larger than {}", i64::MAX)))
        }
        _ => Ok(()),
    }
}

/// Checks the `limit` parameter.
pub(crate) fn check_limit(value: Option<usize>, max: usize) -> Result<(), Problem> {
    match value {
        Some(value) if !(1..=max).contains(&value) => {
            Err(Problem::invalid("limit", format!("must be between 1 and {max}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use serde_json::Value;

    #[test]
    fn only_json_content_types_are_accepted() {
        let check = |value: Option<&'static str>, expected: bool| {
            let mut headers = HeaderMap::new();
            value.map(|text| headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(text)));
            assert_eq!(is_json(&headers), expected, "{value:?}");
        };
        check(Some("application/json"), true);
        check(Some("Application/JSON; charset=utf-8"), true);
        check(Some("application/merge-patch+json"), true);
        // Any page can send these three without a CORS preflight.
        check(Some("text/plain"), false);
        check(Some("application/x-www-form-urlencoded"), false);
        check(Some("multipart/form-data"), false);
        check(None, false);
    }

    #[test]
    fn integers_may_be_written_as_floats() {
        let check = |text: &str, expected: Option<Option<u64>>| {
            let mut deserializer = serde_json::Deserializer::from_str(text);
            assert_eq!(optional_integer(&mut deserializer).ok(), expected, "{text}");
        };
        check("null", Some(None));
        check("7", Some(Some(7)));
        check("7.0", Some(Some(7)));
        check("7e2", Some(Some(700)));
        check("18446744073709551615", Some(Some(u64::MAX)));
        for text in ["7.5", "-1", "-1.0", "1e300", "true", "\"7\""] {
            check(text, None);
        }
    }

    #[test]
    fn syntax_errors_are_400_and_wrong_shapes_422() {
        let check = |text: &'static str, expected: u16| {
            let parsed = parse_json::<std::collections::BTreeMap<String, u8>>(&Bytes::from_static(
                text.as_bytes(),
            ));
            assert_eq!(parsed.unwrap_err().status.as_u16(), expected, "{text}");
        };
        check("{", 400);
        check("", 400);
        check("{} {}", 400);
        check("[]", 422);
        check(r#"{"a":"b"}"#, 422);
        assert!(parse_json::<Value>(&Bytes::from_static(b"{}")).is_ok());
    }
}
