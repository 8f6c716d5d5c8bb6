//! What stands behind the `?` of a request.

use axum::extract::rejection::QueryRejection;
use http::StatusCode;

use crate::problem::Problem;

/// A query that cannot be read.
pub(crate) fn refused(rejection: QueryRejection) -> Problem {
    let message = rejection.body_text();
    Problem::malformed(StatusCode::BAD_REQUEST, message)
}

/// How many are wanted: the usual number, unless somebody says otherwise within reason.
pub(crate) fn limit(given: Option<usize>, usual: usize, most: usize) -> Result<usize, Problem> {
    match given {
        None => Ok(usual),
        Some(given) if (1..=most).contains(&given) => Ok(given),
        Some(_) => Err(Problem::invalid("limit", format!("must be between 1 and {most}"))),
    }
}
