//! What went wrong, as an answer over HTTP: `{code, message, field}` and the status that fits.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use toolrack_service::{CallFault, ErrorCode, ServiceError, ServiceFault};
use toolrack_transport::Delivery;
use utoipa::ToSchema;

use crate::access_control::Refusal;
use crate::event_log::delivery_word;

/// Why a request was not fulfilled.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Problem {
    #[serde(skip)]
    pub(crate) status: StatusCode,
    #[serde(flatten)]
    first: Box<Complaint>,
    /// Every fault, if there are several; the first of them stands outside too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<Complaint>,
    /// How far a call came: `not_sent`, `unknown` or `answered`.
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery: Option<&'static str>,
}

/// One fault.
#[derive(Debug, Clone, Serialize, ToSchema)]
struct Complaint {
    /// `VALIDATION_ERROR`, `NOT_FOUND`, `CONFLICT`, `SERVICE_UNAVAILABLE`, `NETWORK_ERROR`, `UNAUTHORIZED`,
    /// `DENIED` or `INTERNAL`.
    code: &'static str,
    /// One clause for a person.
    message: String,
    /// Where it is in the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// What to do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// What happened in detail, where `message` is in words that other programs rely on; `hint` begins with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// The status of a code. A server that wants a login is not a client that has none, hence 424.
fn status(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::ValidationError => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorCode::NotFound => StatusCode::NOT_FOUND,
        ErrorCode::Conflict => StatusCode::CONFLICT,
        ErrorCode::ServiceUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorCode::NetworkError => StatusCode::BAD_GATEWAY,
        ErrorCode::Unauthorized => StatusCode::FAILED_DEPENDENCY,
        ErrorCode::Denied => StatusCode::FORBIDDEN,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl Problem {
    pub(crate) fn new(status: StatusCode, fault: ServiceFault) -> Self {
        Self { status, first: Box::new(fault.into()), errors: Vec::new(), delivery: None }
    }

    /// The request has to be changed; `field` says where.
    pub(crate) fn invalid(field: &str, message: impl Into<String>) -> Self {
        let fault = ServiceFault::new(ErrorCode::ValidationError, message).at(field);
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, fault)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, ServiceFault::new(ErrorCode::NotFound, message))
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, ServiceFault::new(ErrorCode::Conflict, message))
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        let fault = ServiceFault::new(ErrorCode::ServiceUnavailable, message);
        Self::new(StatusCode::SERVICE_UNAVAILABLE, fault)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        let fault = ServiceFault::new(ErrorCode::Internal, message);
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, fault)
    }

    /// The request itself cannot be read.
    pub(crate) fn malformed(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, ServiceFault::new(ErrorCode::ValidationError, message))
    }
}

impl From<ServiceFault> for Complaint {
    fn from(fault: ServiceFault) -> Self {
        let ServiceFault { code, message, field, hint, reason } = fault;
        Self { code: code.word(), message, field, hint, reason }
    }
}

impl From<ServiceError> for Problem {
    fn from(error: ServiceError) -> Self {
        let status = status(error.code());
        let mut faults: Vec<Complaint> =
            error.faults().iter().cloned().map(Complaint::from).collect();
        match (faults.len(), faults.first().cloned()) {
            (0, _) | (_, None) => Self::internal("nobody knows what went wrong"),
            (n, Some(first)) => {
                if n == 1 {
                    faults.clear();
                }
                Self { status, first: Box::new(first), errors: faults, delivery: None }
            }
        }
    }
}

impl From<CallFault> for Problem {
    fn from(fault: CallFault) -> Self {
        let mut problem =
            Self { delivery: Some(delivery_word(fault.delivery)), ..fault.error.into() };
        // The server has spoken, and would say the same again: nothing to wait for.
        if fault.delivery == Delivery::Answered && problem.status == StatusCode::SERVICE_UNAVAILABLE
        {
            problem.status = StatusCode::BAD_GATEWAY;
        }
        problem
    }
}

impl From<Delivery> for Problem {
    /// A call that its caller took back.
    fn from(delivery: Delivery) -> Self {
        Self { delivery: Some(delivery_word(delivery)), ..Self::conflict("the call was cancelled") }
    }
}

impl From<rusqlite::Error> for Problem {
    fn from(error: rusqlite::Error) -> Self {
        tracing::warn!(%error, "the history cannot be read");
        Self::unavailable("the history cannot be read at the moment")
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let denied = |message: &str, hint: &str| {
            let fault = ServiceFault::new(ErrorCode::Denied, message).hint(hint);
            Self::new(StatusCode::FORBIDDEN, fault)
        };
        let unknown = |message: &str| {
            let hint = "send `Authorization: Bearer …` with the key from `run/daemon.token`, or open the page \
                        with `toolrack dashboard`";
            let fault = ServiceFault::new(ErrorCode::Unauthorized, message).hint(hint);
            Self::new(StatusCode::UNAUTHORIZED, fault)
        };
        match refusal {
            Refusal::Host => denied(
                "the request is for another host",
                "use `127.0.0.1`, `[::1]` or `localhost` with the port of the daemon",
            ),
            Refusal::Origin => {
                denied("the request comes from another page", "open the page of the daemon itself")
            }
            Refusal::NoKey => unknown("a key is needed"),
            Refusal::WrongKey => unknown("the key does not fit"),
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
    fn every_code_has_its_status_and_several_faults_are_all_told() {
        let fault = |message: &str| ServiceFault::new(ErrorCode::ValidationError, message).at("x");
        let one = r#"{"code":"VALIDATION_ERROR","message":"a","field":"x"}"#;
        check(ServiceError::from(fault("a")).into(), 422, one);
        let two = ServiceError::unless_empty(vec![fault("a"), fault("b")]).unwrap_err();
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
        let fault = CallFault {
            error: ServiceError::new(ErrorCode::NetworkError, "m"),
            delivery: Delivery::Unknown,
        };
        check(fault.into(), 502, r#"{"code":"NETWORK_ERROR","message":"m","delivery":"unknown"}"#);
        for (delivery, expected) in [(Delivery::Answered, 502), (Delivery::NotSent, 503)] {
            let error = ServiceError::new(ErrorCode::ServiceUnavailable, "m");
            let problem = Problem::from(CallFault { error, delivery });
            assert_eq!(problem.status.as_u16(), expected, "{delivery:?}");
        }
    }
}
