//! `/api/config` and `/api/secrets`: the config file as text, and secrets, which can be written but not read.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolrack_config::{Diagnostic, Dialect, Severity, read_as};
use toolrack_service::{ConfigStore, ETag, InvalidETag, Secret, ServiceError};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{ApiResult, App, run_blocking};
use crate::extract::{JsonBody, MAX_CONFIG_TEXT_BYTES, MAX_SECRET_BYTES, PathParams};
use crate::problem::Problem;

/// Maximum number of diagnostics in a response.
const MAX_DIAGNOSTICS: usize = 100;

/// The config file.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ConfigText {
    /// The path of the file.
    path: String,
    /// The complete text, valid or not. Empty if there is no file.
    text: String,
    /// The version of the file. A save request must repeat it.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    generation: String,
    /// Errors and warnings.
    #[serde(rename = "faults")]
    diagnostics: Vec<ConfigDiagnostic>,
}

/// An error or warning about the config file.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ConfigFault)]
pub(super) struct ConfigDiagnostic {
    /// `error` or `warning`; a file with errors is not applied.
    severity: &'static str,
    message: String,
    /// The path of the key, such as `defaults.mcp[0].timeout`.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// Line number, starting at 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    /// Column number, starting at 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
}

/// A config text to check.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Draft)]
pub(super) struct CheckRequest {
    text: String,
}

/// A config text to save.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewText)]
pub(super) struct SaveRequest {
    text: String,
    /// The version of the file that was edited.
    #[schema(pattern = "^[0-9A-Fa-f]{32}$")]
    generation: String,
}

/// The result of a check.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Verdict)]
pub(super) struct CheckResult {
    /// Whether the text has no errors.
    #[serde(rename = "is_sound")]
    is_valid: bool,
    #[serde(rename = "faults")]
    diagnostics: Vec<ConfigDiagnostic>,
}

/// The result of a save.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Saved)]
pub(super) struct SaveResult {
    #[schema(pattern = "^[0-9a-f]{32}$")]
    generation: String,
    /// Warnings about the saved config.
    warnings: Vec<String>,
}

/// The first errors and warnings. Large texts take seconds, so it runs on a blocking thread.
fn diagnose(text: &str) -> Vec<ConfigDiagnostic> {
    let view = |diagnostic: Diagnostic| ConfigDiagnostic {
        severity: match diagnostic.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        },
        message: diagnostic.message,
        field: Some(diagnostic.field).filter(|field| !field.is_empty()),
        line: diagnostic.at.map(|position| position.line),
        column: diagnostic.at.map(|position| position.column),
    };
    let mut diagnostics = read_as(Dialect::Toolrack, "", text).diagnostics;
    // Stable, so that both kinds stay in file order.
    diagnostics.sort_by_key(|diagnostic| diagnostic.severity != Severity::Error);
    diagnostics.into_iter().take(MAX_DIAGNOSTICS).map(view).collect()
}

/// Get the config file
#[utoipa::path(get, path = "/api/config", tag = "config",
    responses((status = 200, body = ConfigText)))]
pub(super) async fn get(State(app): State<App>) -> ApiResult<ConfigText> {
    let config = run_blocking::<_, ServiceError>(&app, |app| {
        let store = app.service.config_store();
        let (text, generation) = store.read_text()?;
        let (path, diagnostics) = (store.path().display().to_string(), diagnose(&text));
        Ok(ConfigText { path, text, generation: generation.to_string(), diagnostics })
    });
    config.await.map(Json)
}

/// Check a config text without saving it
#[utoipa::path(post, path = "/api/config/check", tag = "config", request_body = CheckRequest,
    responses((status = 200, body = CheckResult)))]
pub(super) async fn check(
    State(app): State<App>,
    JsonBody(request): JsonBody<CheckRequest, MAX_CONFIG_TEXT_BYTES>,
) -> ApiResult<CheckResult> {
    if request.text.len() > ConfigStore::MAX_BYTES {
        return Err(Problem::invalid("text", "is larger than 4 MiB"));
    }
    let diagnose = move |_app: &_| Ok::<_, Problem>(diagnose(&request.text));
    let diagnostics = run_blocking(&app, diagnose).await?;
    let is_valid = diagnostics.iter().all(|diagnostic| diagnostic.severity != "error");
    Ok(Json(CheckResult { is_valid, diagnostics }))
}

/// Save the config file and apply it
///
/// Fails with 409 if the file has changed since it was read.
#[utoipa::path(put, path = "/api/config", tag = "config", request_body = SaveRequest,
    responses((status = 200, body = SaveResult)))]
pub(super) async fn save(
    State(app): State<App>,
    JsonBody(request): JsonBody<SaveRequest, MAX_CONFIG_TEXT_BYTES>,
) -> ApiResult<SaveResult> {
    let invalid = |error: InvalidETag| Problem::invalid("generation", error.to_string());
    let generation: ETag = request.generation.parse().map_err(invalid)?;
    let stored = run_blocking(&app, move |app| {
        app.service.config_store().replace_text(Some(generation), &request.text)
    });
    let stored = stored.await?;
    // Waits until the servers have the new config, so that the next request sees it.
    let warnings = app.service.reload().await?;
    Ok(Json(SaveResult { generation: stored.etag.to_string(), warnings }))
}

/// The names of all secrets.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SecretList {
    names: Vec<String>,
}

/// A secret to store.
#[derive(ToSchema)]
#[expect(dead_code, reason = "schema only; the body is parsed by hand")]
pub(super) struct NewSecret {
    /// The value: at most 64 KiB, without NUL characters. A trailing line break is removed.
    #[schema(min_length = 1, pattern = r"^[^\u0000]*[^\u0000\r\n][^\u0000]*$")]
    value: String,
}

/// The secret that the path names.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct SecretName {
    /// Letters, digits, `.`, `_` and `-`
    #[param(pattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$")]
    name: String,
}

/// The result of a change to a secret.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SecretChange {
    /// Servers that use the secret and are restarted.
    restarted: Vec<Uuid>,
}

/// List the names of all secrets
#[utoipa::path(get, path = "/api/secrets", tag = "secrets", operation_id = "list",
    responses((status = 200, body = SecretList)))]
pub(super) async fn list_secrets(State(app): State<App>) -> ApiResult<SecretList> {
    let names = run_blocking(&app, |app| app.service.secrets().list()).await?;
    Ok(Json(SecretList { names }))
}

/// Set a secret
///
/// Restarts the servers that use it, unless the value is unchanged.
#[utoipa::path(put, path = "/api/secrets/{name}", tag = "secrets", operation_id = "set", request_body = NewSecret,
    params(SecretName), responses((status = 200, body = SecretChange)))]
pub(super) async fn set_secret(
    State(app): State<App>,
    PathParams(SecretName { name }): PathParams<SecretName>,
    JsonBody(mut body): JsonBody<Value, MAX_SECRET_BYTES>,
) -> ApiResult<SecretChange> {
    // Parsed by hand: the message of a serde error could contain the value.
    let value = match body.get_mut("value").map(Value::take) {
        Some(Value::String(value)) => Secret::from(value),
        _ => return Err(Problem::invalid("value", "must be a string")),
    };
    let restarted = app.service.set_secret(&name, value).await?;
    Ok(Json(SecretChange { restarted }))
}

/// Delete a secret
#[utoipa::path(delete, path = "/api/secrets/{name}", tag = "secrets", operation_id = "delete",
    params(SecretName), responses((status = 200, body = SecretChange)))]
pub(super) async fn delete_secret(
    State(app): State<App>,
    PathParams(SecretName { name }): PathParams<SecretName>,
) -> ApiResult<SecretChange> {
    let wanted = name.clone();
    let secret = run_blocking(&app, move |app| app.service.secrets().get(&wanted)).await?;
    if secret.is_none() {
        return Err(Problem::not_found("no secret with this name"));
    }
    let restarted = app.service.remove_secret(&name).await?;
    Ok(Json(SecretChange { restarted }))
}
