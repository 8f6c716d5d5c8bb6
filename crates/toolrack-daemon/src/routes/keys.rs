//! `/api/keys/reload` and `/api/proof`.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use toolrack_platform::unix_time_ms;
use utoipa::ToSchema;

use super::{ApiResult, App, AppState, run_blocking};
use crate::access_control::ListenerKind;
use crate::active_keys::ActiveKey;
use crate::extract::{JsonBody, MAX_PUBLIC_BYTES};
use crate::keys::decode_hex;
use crate::problem::Problem;

/// Length of a challenge in bytes.
const CHALLENGE_BYTES: std::ops::RangeInclusive<usize> = 16..=64;
/// Length of a key id in bytes.
const ID_BYTES: usize = 8;

/// The number of valid keys.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ReloadedKeys)]
pub(super) struct ReloadResponse {
    n_keys: usize,
    /// Keys that were valid before, and whose requests and sessions have ended.
    n_revoked: usize,
}

/// A challenge for the daemon.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Challenge)]
pub(super) struct ProofRequest {
    /// The id of the key: the first 16 hexadecimal digits of SHA-256 of `toolrack key id`, a zero byte and the SHA-256
    /// of the key.
    #[schema(pattern = "^[0-9a-f]{16}$")]
    key_id: String,
    /// 16 to 64 random bytes as lower-case hexadecimal digits.
    #[schema(pattern = "^([0-9a-f]{2}){16,64}$")]
    challenge: String,
}

/// The proof that the daemon knows the key.
#[derive(Serialize, ToSchema)]
#[schema(as = Proof)]
pub(super) struct ProofResponse {
    /// HMAC-SHA-256 as hexadecimal digits, with the SHA-256 of the key as its key, of `toolrack proof`, a zero byte, the
    /// address such as `127.0.0.1:7733`, a zero byte and the digits of the challenge.
    proof: String,
}

/// Read the keys again, after the file has changed
///
/// Requests, streams and sessions of keys that are no longer valid end.
#[utoipa::path(post, path = "/api/keys/reload", tag = "keys", operation_id = "reload_keys",
    responses((status = 200, body = ReloadResponse)))]
pub(super) async fn reload(State(app): State<App>) -> ApiResult<ReloadResponse> {
    // On a thread of its own, so that it completes even if it revokes the key of this very request.
    let (n_keys, n_revoked) = run_blocking(&app, AppState::reload_keys).await?;
    Ok(Json(ReloadResponse { n_keys, n_revoked }))
}

/// Prove that this daemon knows a key, before the key is sent to it
///
/// A program that does not know the key cannot compute the proof, and a proof for another address is of no use to it.
#[utoipa::path(post, path = "/api/proof", tag = "keys", operation_id = "prove",
    request_body = ProofRequest, security(()), responses((status = 200, body = ProofResponse)))]
pub(super) async fn prove(
    State(app): State<App>,
    Extension(listener): Extension<ListenerKind>,
    JsonBody(request): JsonBody<ProofRequest, MAX_PUBLIC_BYTES>,
) -> ApiResult<ProofResponse> {
    if decode_hex(&request.key_id).is_none_or(|id| id.len() != ID_BYTES) {
        return Err(Problem::invalid("key_id", "must be 16 lower-case hexadecimal digits"));
    }
    let challenge = decode_hex(&request.challenge);
    if challenge.is_none_or(|challenge| !CHALLENGE_BYTES.contains(&challenge.len())) {
        let message = "must be 16 to 64 bytes as lower-case hexadecimal digits";
        return Err(Problem::invalid("challenge", message));
    }
    let ListenerKind::Tcp(addr) = listener else {
        return Err(Problem::conflict(
            "a proof is for a TCP address; the kernel verifies the socket",
        ));
    };
    let proof = app.keys.prove(&request.key_id, &addr.to_string(), &request.challenge);
    Ok(Json(ProofResponse { proof }))
}

/// Records the first use of a key on a day.
pub(super) fn record_use(app: &App, key: &ActiveKey) {
    let now_ms = unix_time_ms();
    if !key.is_first_use_of_day(now_ms) {
        return;
    }
    let (app, hash) = (Arc::clone(app), *key.hash());
    let tasks = app.endpoints.tasks.clone();
    tasks.spawn_blocking(move || {
        if let Err(error) = app.keys.file.record_use(&hash, now_ms) {
            tracing::warn!(%error, "cannot record that a key was used");
        }
    });
}
