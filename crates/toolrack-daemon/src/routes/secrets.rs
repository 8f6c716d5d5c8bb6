//! `/api/secrets`: values go in and never out.

use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use toolrack_service::Secret;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::extract::Body;
use crate::problem::Problem;
use crate::state::{App, blocking};

/// The names of all secrets.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SecretList {
    names: Vec<String>,
}

/// A secret to be stored. Read by hand, so that no message repeats its value.
#[derive(ToSchema)]
#[expect(dead_code, reason = "says what the body looks like; the body itself is read by hand")]
pub(super) struct NewSecret {
    /// Its value: at most 64 KiB, without a NUL character. A line break at its end is left out.
    #[schema(min_length = 1, pattern = r"^[^\u0000]*[^\u0000\r\n][^\u0000]*$")]
    value: String,
}

/// What came of a change.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SecretChange {
    /// The servers that are restarted because they use it.
    restarted: Vec<Uuid>,
}

/// The names of all secrets
#[utoipa::path(get, path = "/api/secrets", tag = "secrets",
    responses((status = 200, body = SecretList), (status = "default", body = Problem)))]
pub(super) async fn list(State(app): State<App>) -> Result<Json<SecretList>, Problem> {
    let names = blocking(&app, |app| app.service.secrets().list()).await?;
    Ok(Json(SecretList { names }))
}

/// Stores a secret
///
/// Servers that use it are restarted, unless it is what it was.
#[utoipa::path(put, path = "/api/secrets/{name}", tag = "secrets", request_body = NewSecret,
    params(("name" = String, Path, description = "Letters, digits, `.`, `_` and `-`",
        pattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$")),
    responses((status = 200, body = SecretChange), (status = "default", body = Problem)))]
pub(super) async fn set(
    State(app): State<App>,
    Path(name): Path<String>,
    Body(mut body): Body<Value>,
) -> Result<Json<SecretChange>, Problem> {
    let value = match body.get_mut("value").map(Value::take) {
        Some(Value::String(value)) => Secret::from(value),
        _ => return Err(Problem::invalid("value", "must be text")),
    };
    let restarted = app.service.set_secret(&name, value).await?;
    Ok(Json(SecretChange { restarted }))
}

/// Forgets a secret
#[utoipa::path(delete, path = "/api/secrets/{name}", tag = "secrets",
    params(("name" = String, Path, description = "Letters, digits, `.`, `_` and `-`",
        pattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$")),
    responses((status = 200, body = SecretChange), (status = "default", body = Problem)))]
pub(super) async fn delete(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<(StatusCode, Json<SecretChange>), Problem> {
    let wanted = name.clone();
    let is_there = blocking(&app, move |app| app.service.secrets().get(&wanted)).await?.is_some();
    if !is_there {
        return Err(Problem::not_found("no secret has this name"));
    }
    let restarted = app.service.remove_secret(&name).await?;
    Ok((StatusCode::OK, Json(SecretChange { restarted })))
}
