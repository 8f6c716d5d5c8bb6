//! One JSON-RPC message, classified but not decoded.
//!
//! A line is read once, here. `params` and `result` stay raw, so a gateway can forward them byte for
//! byte and a typed caller pays only for what it reads.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::id::RequestId;
use crate::json_rpc::{JsonRpcError, present};
use crate::response_fast_path;

/// A message, borrowing from the line it came in on.
#[derive(Debug, PartialEq)]
pub enum Frame<'a> {
    /// The peer asks something of us.
    Request {
        /// To be given back in the answer.
        id: RequestId,
        /// What is asked for.
        method: String,
        /// Raw JSON, if there is any.
        params: Option<&'a [u8]>,
    },
    /// The peer tells us something.
    Notification {
        /// What happened.
        method: String,
        /// Raw JSON, if there is any.
        params: Option<&'a [u8]>,
    },
    /// An answer.
    Success {
        /// Which request it answers.
        id: RequestId,
        /// Raw JSON, `null` included.
        result: &'a [u8],
    },
    /// A refusal.
    Failure {
        /// Missing when the peer could not read the id of the request.
        id: Option<RequestId>,
        /// Why.
        error: JsonRpcError,
    },
}

/// Why a line is not a message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Not JSON, not an object, or a member of the wrong type.
    #[error("not a JSON-RPC message")]
    Json(#[from] serde_json::Error),
    /// An object whose members fit no kind of message. The id says whose answer it would have been.
    #[error("neither a request, a notification nor an answer")]
    Shape {
        /// The id it carries, if it carries one.
        id: Option<RequestId>,
    },
}

/// Every member a message can have. Which of them are present says what the message is.
#[derive(Deserialize)]
struct Members<'a> {
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "present")]
    id: Option<Option<RequestId>>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    error: Option<JsonRpcError>,
}

impl<'a> Frame<'a> {
    /// Says what a line is.
    pub fn parse(line: &'a [u8]) -> Result<Self, FrameError> {
        if let Some((id, result)) = response_fast_path::success(line) {
            return Ok(Frame::Success { id: RequestId::from(id), result });
        }
        let Members { method, params, id, result, error } = serde_json::from_slice(line)?;
        let params = params.map(bytes_of);
        match (method, id, result, error) {
            (Some(method), Some(Some(id)), None, None) => Ok(Frame::Request { id, method, params }),
            (Some(method), None, None, None) => Ok(Frame::Notification { method, params }),
            (None, Some(Some(id)), Some(result), None) => {
                Ok(Frame::Success { id, result: bytes_of(result) })
            }
            // A peer that could not read our id answers with `"id": null`, or leaves it out.
            (None, id, None, Some(error)) => Ok(Frame::Failure { id: id.flatten(), error }),
            (_, id, _, _) => Err(FrameError::Shape { id: id.flatten() }),
        }
    }
}

/// The messages of a batch (an array, which revision 2025-03-26 allows), each as its own text.
/// `None` if the line is not an array.
pub fn elements(line: &[u8]) -> Option<Vec<&[u8]>> {
    if line.trim_ascii_start().first() != Some(&b'[') {
        return None;
    }
    let elements: Vec<&RawValue> = serde_json::from_slice(line).ok()?;
    Some(elements.into_iter().map(bytes_of).collect())
}

/// What a message was of which only the first and the last bytes were kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The answer to this request.
    Answer(u64),
    /// A request or a notification of the peer.
    Unasked,
    /// It cannot be told.
    Unknown,
}

impl Lost {
    /// A message beyond the size limit is thrown away while it streams in; this finds out whose it was,
    /// so that one caller gets an error at once instead of waiting for its deadline.
    pub fn identify(head: &[u8], tail: &[u8]) -> Self {
        // A quote inside a string has a backslash before it, so this is a member, if perhaps not the
        // envelope's own; an answer with such a member in front is told by its id first.
        let is_unasked = || memchr::memmem::find(head, br#""method":"#).is_some();
        match id_in_front(head).or_else(|| id_at_end(tail)) {
            Some(id) => Lost::Answer(id),
            None if is_unasked() => Lost::Unasked,
            None => Lost::Unknown,
        }
    }
}

const ID_KEY: &[u8] = br#""id":"#;

/// Only the envelope's own `id` counts, and in front that is one that stands before `result`.
fn id_in_front(head: &[u8]) -> Option<u64> {
    let envelope = head.get(..memchr::memmem::find(head, br#""result""#)?)?;
    let value = envelope.get(memchr::memmem::find(envelope, ID_KEY)? + ID_KEY.len()..)?;
    let digits = value.split(|byte| *byte == b',').next()?;
    whole_number(digits)
}

/// At the end the envelope's `id` is the last member, so only the number and the brace follow it.
fn id_at_end(tail: &[u8]) -> Option<u64> {
    let envelope = tail.trim_ascii_end().strip_suffix(b"}")?;
    whole_number(envelope.get(memchr::memmem::rfind(envelope, ID_KEY)? + ID_KEY.len()..)?)
}

fn whole_number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

fn bytes_of(raw: &RawValue) -> &[u8] {
    raw.get().as_bytes()
}

#[cfg(test)]
mod tests;
