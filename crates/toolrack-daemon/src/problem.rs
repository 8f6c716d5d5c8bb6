//! Error responses of the API: `{code, message, field}` and the HTTP status.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use toolrack_service::{ErrorCode, ErrorDetail, ServiceError, ToolCallError};
use toolrack_transport::Delivery;
use utoipa::ToSchema;

use crate::access_control::AccessDenied;
use crate::event_log::delivery_name;
use crate::history::DbError;
use crate::keys::{KeyError, KeyScope};

/// Maximum number of errors in a response.
const MAX_ERRORS: usize = 100;

/// An error response.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Problem {
    #[serde(skip)]
    pub(crate) status: StatusCode,
    #[serde(flatten)]
    #[schema(value_type = ProblemDetail)]
    first: Box<ErrorDetail>,
    /// All errors, if there are several; the first one is repeated at the top level.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<ProblemDetail>)]
    errors: Vec<ErrorDetail>,
    /// Whether the server may have acted on a call: `not_sent`, `unknown` or `answered`.
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery: Option<&'static str>,
}

/// One error.
#[derive(ToSchema)]
#[schema(as = Complaint)]
#[expect(dead_code, reason = "schema of `ErrorDetail`, which is serialized")]
struct ProblemDetail {
    /// `VALIDATION_ERROR`, `NOT_FOUND`, `CONFLICT`, `SERVICE_UNAVAILABLE`, `NETWORK_ERROR`, `UNAUTHORIZED`,
    /// `DENIED` or `INTERNAL`.
    code: &'static str,
    /// A message for people.
    message: String,
    /// The path of the invalid member or parameter.
    field: Option<String>,
    /// What to do about it.
    hint: Option<String>,
    /// The cause in detail, where programs rely on the wording of `message`; `hint` starts with it.
    reason: Option<String>,
}

impl Problem {
    /// A member or parameter of the request is invalid.
    pub(crate) fn invalid(field: &str, message: impl Into<String>) -> Self {
        ErrorDetail::new(ErrorCode::ValidationError, message).with_field(field).into()
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        ErrorDetail::new(ErrorCode::NotFound, message).into()
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        ErrorDetail::new(ErrorCode::Conflict, message).into()
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        ErrorDetail::new(ErrorCode::ServiceUnavailable, message).into()
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        ErrorDetail::new(ErrorCode::Internal, message).into()
    }

    /// The request cannot be parsed.
    pub(crate) fn malformed(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, ..ErrorDetail::new(ErrorCode::ValidationError, message).into() }
    }
}

impl From<ErrorDetail> for Problem {
    fn from(detail: ErrorDetail) -> Self {
        let status = match detail.code {
            ErrorCode::ValidationError => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorCode::NotFound => StatusCode::NOT_FOUND,
            ErrorCode::Conflict => StatusCode::CONFLICT,
            ErrorCode::ServiceUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorCode::NetworkError => StatusCode::BAD_GATEWAY,
            // 401 is for a client without a token; here an MCP server requires a login.
            ErrorCode::Unauthorized => StatusCode::FAILED_DEPENDENCY,
            ErrorCode::Denied => StatusCode::FORBIDDEN,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { status, first: Box::new(detail), errors: Vec::new(), delivery: None }
    }
}

impl From<ServiceError> for Problem {
    fn from(error: ServiceError) -> Self {
        match error.details() {
            [] => Self::internal("unknown error"),
            // A single error is the top level itself; a list of one would repeat it.
            [detail] => detail.clone().into(),
            // Each costs a message; a body with thousands of wrong members is not worth thousands.
            [first, ..] => {
                let errors = error.details().iter().take(MAX_ERRORS).cloned().collect();
                Self { errors, ..first.clone().into() }
            }
        }
    }
}

impl From<ToolCallError> for Problem {
    fn from(failure: ToolCallError) -> Self {
        let mut problem =
            Self { delivery: Some(delivery_name(failure.delivery)), ..failure.error.into() };
        // The server has answered and would answer the same again, so a 503 with `Retry-After` would mislead.
        if failure.delivery == Delivery::Answered
            && problem.status == StatusCode::SERVICE_UNAVAILABLE
        {
            problem.status = StatusCode::BAD_GATEWAY;
        }
        problem
    }
}

impl From<Delivery> for Problem {
    /// A call that its client cancelled.
    fn from(delivery: Delivery) -> Self {
        Self { delivery: Some(delivery_name(delivery)), ..Self::conflict("the call was cancelled") }
    }
}

impl From<DbError> for Problem {
    fn from(error: DbError) -> Self {
        tracing::warn!(%error, "cannot read the call history");
        Self::unavailable("the call history is temporarily unavailable")
    }
}

impl From<KeyError> for Problem {
    fn from(error: KeyError) -> Self {
        tracing::error!(%error, "no key is valid");
        let detail = ErrorDetail::new(ErrorCode::Internal, format!("no key is valid: {error}"));
        detail.with_hint(error.hint()).into()
    }
}

impl From<AccessDenied> for Problem {
    fn from(denied: AccessDenied) -> Self {
        let forbidden = |message: &str, hint: &str| {
            ErrorDetail::new(ErrorCode::Denied, message).with_hint(hint).into()
        };
        let unauthorized = |message: &str| {
            let hint = "send `Authorization: Bearer …` with a key from `toolrack key create NAME`, or open the \
                        dashboard with `toolrack dashboard`";
            let detail = ErrorDetail::new(ErrorCode::Unauthorized, message).with_hint(hint);
            Self { status: StatusCode::UNAUTHORIZED, ..detail.into() }
        };
        match denied {
            AccessDenied::Host => forbidden(
                "the `Host` header does not name this daemon",
                "use `127.0.0.1`, `[::1]` or `localhost` with the port of the daemon",
            ),
            AccessDenied::Origin => forbidden(
                "cross-origin requests are not allowed",
                "open the dashboard with `toolrack dashboard`",
            ),
            AccessDenied::MissingToken => unauthorized("authentication required"),
            AccessDenied::InvalidToken => unauthorized("invalid token"),
            AccessDenied::Scope { needed: KeyScope::Admin } => forbidden(
                "this key may only be used for MCP; this route requires the scope `admin`",
                "use the Unix socket, the dashboard, or a key from `toolrack key create NAME --admin`",
            ),
            AccessDenied::Scope { needed } => forbidden(
                &format!(
                    "this key is not for this MCP endpoint, which requires a key for {needed}"
                ),
                "list keys and their scopes with `toolrack key list`, and make one for this endpoint with `toolrack \
                 key create`",
            ),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(&self)).into_response();
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(problem: Problem, status: u16, body: &str) {
        assert_eq!(problem.status.as_u16(), status);
        assert_eq!(serde_json::to_string(&problem).unwrap(), body);
    }

    #[test]
    fn error_codes_map_to_statuses_and_all_errors_are_listed() {
        let detail =
            |message: &str| ErrorDetail::new(ErrorCode::ValidationError, message).with_field("x");
        let one = r#"{"code":"VALIDATION_ERROR","message":"a","field":"x"}"#;
        check(ServiceError::from(detail("a")).into(), 422, one);
        let two = ServiceError::if_any(vec![detail("a"), detail("b")]).unwrap_err();
        let body = r#"{"code":"VALIDATION_ERROR","message":"a","field":"x","errors":[{"code":"VALIDATION_ERROR","message":"a","field":"x"},{"code":"VALIDATION_ERROR","message":"b","field":"x"}]}"#;
        check(two.into(), 422, body);
        let statuses = [
            (ErrorCode::NotFound, 404),
            (ErrorCode::Conflict, 409),
            (ErrorCode::ServiceUnavailable, 503),
            (ErrorCode::NetworkError, 502),
            (ErrorCode::Unauthorized, 424),
            (ErrorCode::Denied, 403),
            (ErrorCode::Internal, 500),
        ];
        for (code, expected) in statuses {
            assert_eq!(Problem::from(ServiceError::new(code, "m")).status.as_u16(), expected);
        }
        let failure = ToolCallError {
            error: ServiceError::new(ErrorCode::NetworkError, "m"),
            delivery: Delivery::Unknown,
        };
        check(
            failure.into(),
            502,
            r#"{"code":"NETWORK_ERROR","message":"m","delivery":"unknown"}"#,
        );
        for (delivery, expected) in [(Delivery::Answered, 502), (Delivery::NotSent, 503)] {
            let error = ServiceError::new(ErrorCode::ServiceUnavailable, "m");
            let problem = Problem::from(ToolCallError { error, delivery });
            assert_eq!(problem.status.as_u16(), expected, "{delivery:?}");
        }
    }
}
