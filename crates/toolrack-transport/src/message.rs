//! One JSON-RPC message, classified but not decoded.
//!
//! A line is read once, here. `params` and `result` stay raw, so a gateway can forward them byte for
//! byte and a typed caller pays only for what it reads.

use crate::json_rpc::RequestId;
use crate::json_rpc::{JsonRpcError, present};
use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::LazyLock;

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
        if let Some((id, result)) = fast_success(line) {
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

// FOLDED response_fast_path.rs
// A shortcut for the two shapes in which servers write nearly every answer.
//
// `{"jsonrpc":"2.0","id":7,"result":…}` and `{"result":…,"jsonrpc":"2.0","id":7}` are recognized by
// their ends alone, so the time does not grow with the payload. Everything else goes to the full
// parser. The payload is not checked here: text that only looks like one value fails to decode in
// the task of the caller it was meant for, and nobody else is touched.

const ID_FIRST: &[u8] = br#"{"jsonrpc":"2.0","id":"#;
const THEN_RESULT: &[u8] = br#","result":"#;
const RESULT_FIRST: &[u8] = br#"{"result":"#;
const THEN_ID: &[u8] = br#","jsonrpc":"2.0","id":"#;

/// More digits than any id we send; a longer run is left to the full parser.
const MAX_DIGITS: usize = 15;

/// The id and the raw result of a success, if the line has one of the two shapes.
fn fast_success(line: &[u8]) -> Option<(u64, &[u8])> {
    id_first(line).or_else(|| result_first(line))
}

fn id_first(line: &[u8]) -> Option<(u64, &[u8])> {
    let rest = line.strip_prefix(ID_FIRST)?;
    let (id, rest) = leading_number(rest)?;
    let result = rest.strip_prefix(THEN_RESULT)?.strip_suffix(b"}")?;
    looks_like_one_value(result).then_some((id, result))
}

fn result_first(line: &[u8]) -> Option<(u64, &[u8])> {
    let rest = line.strip_prefix(RESULT_FIRST)?.strip_suffix(b"}")?;
    let n_digits = rest.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, digits) = rest.split_at_checked(rest.len() - n_digits)?;
    let (id, _) = leading_number(digits)?;
    let result = before.strip_suffix(THEN_ID)?;
    looks_like_one_value(result).then_some((id, result))
}

/// Reads a plain decimal number. A leading zero or an empty run is not one.
fn leading_number(text: &[u8]) -> Option<(u64, &[u8])> {
    let n_digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at_checked(n_digits)?;
    match digits {
        [b'0', _, ..] | [] => None,
        _ if n_digits > MAX_DIGITS => None,
        _ => {
            let number = digits.iter().fold(0_u64, |sum, d| sum * 10 + u64::from(d - b'0'));
            Some((number, rest))
        }
    }
}

/// Sends members that stand behind `result` to the full parser: they end in another bracket than it
/// begins with (`"error":null`), or they are an error beside the result, which must not pass for one.
fn looks_like_one_value(text: &[u8]) -> bool {
    let ends = (text.first(), text.last());
    matches!(ends, (Some(b'{'), Some(b'}')) | (Some(b'['), Some(b']'))) && !may_hold_error(text)
}

/// An error object is short, so only the end is searched, however long the result is. A result that holds
/// such a member itself is merely read the long way.
fn may_hold_error(text: &[u8]) -> bool {
    const SEARCHED_BYTES: usize = 4096;
    static ERROR: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#","error":"#));
    let end = text.get(text.len().saturating_sub(SEARCHED_BYTES)..).unwrap_or(text);
    ERROR.find(end).is_some()
}

#[cfg(test)]
mod tests;
