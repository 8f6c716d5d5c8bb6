//! Parses and classifies one JSON-RPC message without decoding its payload.
//!
//! A line is parsed once, here. `params` and `result` stay raw, so a gateway can forward them byte for byte and a
//! typed caller pays only for the parts that it decodes.
//!
//! Nearly every response has one of two layouts, `{"jsonrpc":"2.0","id":7,"result":…}` or
//! `{"result":…,"jsonrpc":"2.0","id":7}`. The response fast path recognizes them by their ends alone, so its time does
//! not grow with the payload. It does not validate the payload: invalid JSON fails to decode in the task of the caller
//! that waits for it, and affects no other caller. Every other layout goes to the full parser.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json_rpc::{JsonRpcError, RequestId, present};

/// A message that borrows from its line.
#[derive(Debug, PartialEq)]
pub enum Message<'a> {
    /// A request of the peer.
    Request {
        /// The id for the response.
        id: RequestId,
        /// The method.
        method: String,
        /// Raw JSON, if present.
        params: Option<&'a [u8]>,
    },
    /// A notification of the peer.
    Notification {
        /// The method.
        method: String,
        /// Raw JSON, if present.
        params: Option<&'a [u8]>,
    },
    /// A response with a result.
    Success {
        /// The id of the request.
        id: RequestId,
        /// Raw JSON, possibly `null`.
        result: &'a [u8],
    },
    /// A response with an error.
    Failure {
        /// Missing when the peer could not read the id of the request.
        id: Option<RequestId>,
        /// The error.
        error: JsonRpcError,
    },
}

/// Why a line is not a message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// Not JSON, not an object, or a member of the wrong type.
    #[error("not a JSON-RPC message")]
    Json(#[from] serde_json::Error),
    /// An object whose members fit no kind of message.
    #[error("neither a request, a notification nor a response")]
    Shape {
        /// Its id, if present, so that the request with this id can fail at once.
        id: Option<RequestId>,
    },
}

/// All members of a message. The ones that are present determine its kind.
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

impl<'a> Message<'a> {
    /// Parses and classifies a line.
    pub fn parse(line: &'a [u8]) -> Result<Self, MessageError> {
        if let Some((id, result)) = fast_success(line) {
            return Ok(Message::Success { id: RequestId::from(id), result });
        }
        Self::parse_members(line)
    }

    /// Parses a line of any layout.
    pub(crate) fn parse_members(line: &'a [u8]) -> Result<Self, MessageError> {
        let Members { method, params, id, result, error } = serde_json::from_slice(line)?;
        let params = params.map(as_bytes);
        match (method, id, result, error) {
            (Some(method), Some(Some(id)), None, None) => {
                Ok(Message::Request { id, method, params })
            }
            (Some(method), None, None, None) => Ok(Message::Notification { method, params }),
            (None, Some(Some(id)), Some(result), None) => {
                Ok(Message::Success { id, result: as_bytes(result) })
            }
            // A peer that could not read our id responds with `"id": null`, or omits it.
            (None, id, None, Some(error)) => Ok(Message::Failure { id: id.flatten(), error }),
            (_, id, _, _) => Err(MessageError::Shape { id: id.flatten() }),
        }
    }
}

/// Splits a batch (a JSON array, which revision 2025-03-26 allows) into its messages. `None` if the line is not an
/// array.
pub fn split_batch(line: &[u8]) -> Option<Vec<&[u8]>> {
    if line.trim_ascii_start().first() != Some(&b'[') {
        return None;
    }
    let elements: Vec<&RawValue> = serde_json::from_slice(line).ok()?;
    Some(elements.into_iter().map(as_bytes).collect())
}

/// The kind of a message of which only the first and last bytes are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TruncatedMessage {
    /// The response to this request.
    Response(u64),
    /// A request or notification of the peer.
    Unsolicited,
    /// Not recognizable.
    Unknown,
}

impl TruncatedMessage {
    /// Identifies a message over the size limit, which is discarded while it arrives, so that its caller gets an
    /// error at once instead of at the deadline.
    pub fn identify(head: &[u8], tail: &[u8]) -> Self {
        // A quote within a string is escaped, so a match is a member, though perhaps not of the envelope. That is
        // why the id decides first: a response can have a `method` member in its result.
        let is_unsolicited = || memchr::memmem::find(head, br#""method":"#).is_some();
        match leading_id(head).or_else(|| trailing_id(tail)) {
            Some(id) => TruncatedMessage::Response(id),
            None if is_unsolicited() => TruncatedMessage::Unsolicited,
            None => TruncatedMessage::Unknown,
        }
    }
}

const ID_KEY: &[u8] = br#""id":"#;

/// The envelope's id, if it comes before `result`. An id after `result` could belong to the payload.
fn leading_id(head: &[u8]) -> Option<u64> {
    let envelope = head.get(..memchr::memmem::find(head, br#""result""#)?)?;
    let value = envelope.get(memchr::memmem::find(envelope, ID_KEY)? + ID_KEY.len()..)?;
    let digits = value.split(|byte| *byte == b',').next()?;
    parse_integer(digits)
}

/// The envelope's id, if it is the last member: only the number and the closing brace follow it.
fn trailing_id(tail: &[u8]) -> Option<u64> {
    let envelope = tail.trim_ascii_end().strip_suffix(b"}")?;
    parse_integer(envelope.get(memchr::memmem::rfind(envelope, ID_KEY)? + ID_KEY.len()..)?)
}

fn parse_integer(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

fn as_bytes(raw: &RawValue) -> &[u8] {
    raw.get().as_bytes()
}

const ID_FIRST: &[u8] = br#"{"jsonrpc":"2.0","id":"#;
const THEN_RESULT: &[u8] = br#","result":"#;
const RESULT_FIRST: &[u8] = br#"{"result":"#;
const THEN_ID: &[u8] = br#","jsonrpc":"2.0","id":"#;

/// More digits than any id we send; a longer number is left to the full parser.
const MAX_DIGITS: usize = 15;

/// Response fast path: the id and the raw result, if the line has one of the two common layouts.
fn fast_success(line: &[u8]) -> Option<(u64, &[u8])> {
    id_first(line).or_else(|| result_first(line))
}

fn id_first(line: &[u8]) -> Option<(u64, &[u8])> {
    let rest = line.strip_prefix(ID_FIRST)?;
    let (id, rest) = leading_number(rest)?;
    let result = rest.strip_prefix(THEN_RESULT)?.strip_suffix(b"}")?;
    is_single_value(result).then_some((id, result))
}

fn result_first(line: &[u8]) -> Option<(u64, &[u8])> {
    let rest = line.strip_prefix(RESULT_FIRST)?.strip_suffix(b"}")?;
    let n_digits = rest.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, digits) = rest.split_at_checked(rest.len() - n_digits)?;
    let (id, _) = leading_number(digits)?;
    let result = before.strip_suffix(THEN_ID)?;
    is_single_value(result).then_some((id, result))
}

/// Parses a decimal number at the start. Rejects leading zeros.
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

/// Rejects a result that is followed by further members, which the full parser has to see: either the brackets do not
/// match (`"error":null`), or the members include an error object, and then this is not a success.
fn is_single_value(text: &[u8]) -> bool {
    // Only containers: the end of a string or number does not tell it from a member that follows.
    let ends = (text.first(), text.last());
    matches!(ends, (Some(b'{'), Some(b'}')) | (Some(b'['), Some(b']'))) && !may_contain_error(text)
}

/// Searches only the end, because an error object is short and the result may be large. A result that contains such a
/// member itself merely takes the slow path.
fn may_contain_error(text: &[u8]) -> bool {
    const SEARCHED_BYTES: usize = 4096;
    // Built once, not for every response.
    static ERROR: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#","error":"#));
    let end = text.get(text.len().saturating_sub(SEARCHED_BYTES)..).unwrap_or(text);
    ERROR.find(end).is_some()
}

#[cfg(test)]
mod tests;
