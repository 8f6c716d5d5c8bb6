//! What stands behind the `?` of a request.

use axum::extract::rejection::QueryRejection;
use http::StatusCode;

use crate::problem::Problem;

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
