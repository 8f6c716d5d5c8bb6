//! `/api/config`: the config file as text, for whoever edits it as such.

use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolrack_config::{Dialect, Fault, Severity, read_as};
use toolrack_service::{Generation, Secret};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::extract::Body;
use crate::problem::Problem;
use crate::state::{App, blocking};

/// The config file.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ConfigText {
    /// Where it is.
    path: String,
    /// All of it, sound or not. Empty if there is none.
    text: String,
    /// Which state of the file this is. Whoever saves repeats it.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    generation: String,
    /// What is wrong with it.
    faults: Vec<ConfigFault>,
}

/// Something that is wrong with a config file.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ConfigFault {
    /// `error` or `warning`; a file with errors cannot be used.
    severity: &'static str,
    message: String,
    /// Such as `defaults.mcp[0].timeout`.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// The first line is 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    /// The first character of a line is 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
}

/// A text that may become the config file.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Draft {
    text: String,
}

/// A text that is to become the config file.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewText {
    text: String,
    /// That of the text which was edited.
    #[schema(pattern = "^[0-9A-Fa-f]{32}$")]
    generation: String,
}

/// What a check found.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Verdict {
    /// Whether it can be used.
    is_sound: bool,
    faults: Vec<ConfigFault>,
}

/// What was saved.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Saved {
    #[schema(pattern = "^[0-9a-f]{32}$")]
    generation: String,
    /// What is odd about it.
    warnings: Vec<String>,
}

fn faults(text: &str) -> Vec<ConfigFault> {
    read_as(Dialect::Toolrack, "", text).faults.into_iter().map(ConfigFault::from).collect()
}

impl From<Fault> for ConfigFault {
    fn from(fault: Fault) -> Self {
        Self {
            severity: match fault.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            },
            message: fault.message,
            field: Some(fault.field).filter(|it| !it.is_empty()),
            line: fault.at.map(|it| it.line),
            column: fault.at.map(|it| it.column),
        }
    }
}

/// The config file
#[utoipa::path(get, path = "/api/config", tag = "config",
    responses((status = 200, body = ConfigText), (status = "default", body = Problem)))]
pub(super) async fn get(State(app): State<App>) -> Result<Json<ConfigText>, Problem> {
    let text = blocking(&app, |app| {
        let store = app.service.config_store();
        let (text, generation) = store.text()?;
        let (path, faults) = (store.path().display().to_string(), faults(&text));
        Ok(ConfigText { path, text, generation: generation.to_string(), faults })
    });
    text.await.map(Json)
}

/// Checks a text without saving it
#[utoipa::path(post, path = "/api/config/check", tag = "config", request_body = Draft,
    responses((status = 200, body = Verdict), (status = "default", body = Problem)))]
pub(super) async fn check(Body(draft): Body<Draft>) -> Json<Verdict> {
    let faults = faults(&draft.text);
    Json(Verdict { is_sound: faults.iter().all(|it| it.severity != "error"), faults })
}

/// Saves the config file, and makes the servers follow
///
/// Refused with 409 if the file is not the one that was edited.
#[utoipa::path(put, path = "/api/config", tag = "config", request_body = NewText,
    responses((status = 200, body = Saved), (status = "default", body = Problem)))]
pub(super) async fn save(
    State(app): State<App>,
    Body(new): Body<NewText>,
) -> Result<Json<Saved>, Problem> {
    let generation: Generation =
        new.generation.parse().map_err(|error: toolrack_service::NoGeneration| {
            Problem::invalid("generation", error.to_string())
        })?;
    let stored = blocking(&app, move |app| {
        app.service.config_store().replace_text(Some(generation), &new.text)
    });
    let stored = stored.await?;
    let warnings = app.service.reload().await?;
    Ok(Json(Saved { generation: stored.generation.to_string(), warnings }))
}

// `/api/secrets`: values go in and never out.

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
