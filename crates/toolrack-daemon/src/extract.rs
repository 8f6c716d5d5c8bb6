//! Bodies of requests: JSON, not too large, and within a time.

use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize as _, Deserializer};
use serde_json::Number;
use serde_json::error::Category;
use tokio::time::timeout;
use tower_http::timeout::TimeoutError;

use crate::problem::Problem;

/// The largest body. Arguments of calls may hold files.
pub(crate) const LARGEST_BYTES: usize = 16 << 20;
/// How long a client may take to send a body.
const PATIENCE: Duration = Duration::from_secs(30);

/// A body that is JSON and fits.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        let (head, body) = request.into_parts();
        if !is_json(&head.headers) {
            let message = "the body must be JSON, with `Content-Type: application/json`";
            return Err(Problem::malformed(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        let bytes = match timeout(PATIENCE, body.collect()).await {
            Ok(Ok(collected)) => collected.to_bytes(),
            Ok(Err(error)) => return Err(unread(&error)),
            Err(_late) => return Err(late()),
        };
        parse(&bytes).map(Self)
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let given = headers.get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok());
    let kind = given.and_then(|it| it.split(';').next()).unwrap_or_default().trim();
    ["application/json", "application/merge-patch+json"]
        .iter()
        .any(|it| kind.eq_ignore_ascii_case(it))
}

fn parse<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| {
        let status = match error.classify() {
            Category::Data => StatusCode::UNPROCESSABLE_ENTITY,
            Category::Io | Category::Syntax | Category::Eof => StatusCode::BAD_REQUEST,
        };
        Problem::malformed(status, format!("the body does not fit: {error}"))
    })
}

/// A whole number, or nothing. It may be written as `1.0`, which for JSON is the same.
pub(crate) fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<Number>::deserialize(deserializer)? else { return Ok(None) };
    let written_out = || {
        let number = number.as_f64().filter(|it| it.fract() == 0.0)?;
        format!("{number:.0}").parse().ok()
    };
    let whole = number.as_u64().or_else(written_out);
    whole.map(Some).ok_or_else(|| D::Error::custom("a whole number is wanted"))
}

fn late() -> Problem {
    Problem::malformed(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")
}

/// A body of the API that is refused for its size, by whoever noticed it first.
pub(crate) fn too_large() -> Problem {
    Problem::malformed(StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 16 MiB")
}

fn unread(error: &axum::Error) -> Problem {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return too_large();
        }
        if error.is::<TimeoutError>() {
            return late();
        }
        cause = error.source();
    }
    Problem::malformed(StatusCode::BAD_REQUEST, "the body did not come whole")
}

// What stands behind the `?` of a request.

/// A query that cannot be read.
pub(crate) fn refused(rejection: QueryRejection) -> Problem {
    let message = rejection.body_text();
    Problem::malformed(StatusCode::BAD_REQUEST, message)
}

/// A number that every program can hold, also one whose numbers have a sign.
pub(crate) fn number(field: &str, given: Option<u64>) -> Result<Option<u64>, Problem> {
    match given {
        Some(given) if i64::try_from(given).is_err() => {
            Err(Problem::invalid(field, format!("must not be larger than {}", i64::MAX)))
        }
        given => Ok(given),
    }
}

/// How many are wanted: the usual number, unless somebody says otherwise within reason.
pub(crate) fn limit(given: Option<usize>, usual: usize, most: usize) -> Result<usize, Problem> {
    match given {
        None => Ok(usual),
        Some(given) if (1..=most).contains(&given) => Ok(given),
        Some(_) => Err(Problem::invalid("limit", format!("must be between 1 and {most}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use serde_json::Value;

    #[test]
    fn only_json_is_taken_for_json() {
        let check = |kind: Option<&'static str>, expected: bool| {
            let mut headers = HeaderMap::new();
            kind.map(|it| headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(it)));
            assert_eq!(is_json(&headers), expected, "{kind:?}");
        };
        check(Some("application/json"), true);
        check(Some("Application/JSON; charset=utf-8"), true);
        check(Some("application/merge-patch+json"), true);
        // These three can be sent by any page without asking.
        check(Some("text/plain"), false);
        check(Some("application/x-www-form-urlencoded"), false);
        check(Some("multipart/form-data"), false);
        check(None, false);
    }

    #[test]
    fn a_whole_number_is_whole_however_it_is_written() {
        let check = |text: &str, expected: Option<Option<u64>>| {
            let mut deserializer = serde_json::Deserializer::from_str(text);
            assert_eq!(whole(&mut deserializer).ok(), expected, "{text}");
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
    fn what_is_no_json_is_told_apart_from_what_does_not_fit() {
        let check = |text: &'static str, expected: u16| {
            let read = parse::<std::collections::BTreeMap<String, u8>>(&Bytes::from_static(
                text.as_bytes(),
            ));
            assert_eq!(read.unwrap_err().status.as_u16(), expected, "{text}");
        };
        check("{", 400);
        check("", 400);
        check("{} {}", 400);
        check("[]", 422);
        check(r#"{"a":"b"}"#, 422);
        assert!(parse::<Value>(&Bytes::from_static(b"{}")).is_ok());
    }
}
