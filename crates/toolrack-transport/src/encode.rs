//! Encodes JSON-RPC messages directly into the write buffer.
//!
//! **Invariant:** each function appends one line: JSON without a raw line break, then `\n`. On failure the buffer is
//! unchanged.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::json_rpc::{JsonRpcError, RequestId};

/// The parameters of a message.
pub trait Params: Sync {
    /// Appends one JSON value, or nothing for a message without parameters. `id` is the id of the request, because
    /// some parameters repeat it, such as a progress token.
    fn write(&self, id: u64, out: &mut Vec<u8>) -> Result<(), serde_json::Error>;

    /// The name of the request's target, such as a tool. HTTP repeats it in a header.
    fn target_name(&self) -> Option<&str> {
        None
    }

    /// Calls `emit` with the name and value of every argument that HTTP repeats in a header.
    fn header_params(&self, _emit: &mut dyn FnMut(&str, &str)) {}
}

/// Params of a message without parameters.
#[derive(Debug, Clone, Copy)]
pub struct NoParams;

impl Params for NoParams {
    fn write(&self, _id: u64, _out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        Ok(())
    }
}

impl<T: Serialize + Sync> Params for Option<T> {
    fn write(&self, _id: u64, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        match self {
            Some(value) => serde_json::to_writer(out, value),
            None => Ok(()),
        }
    }
}

/// Appends a request, or a notification if `id` is `None`.
pub fn write_request(
    out: &mut Vec<u8>,
    id: impl Into<Option<u64>>,
    method: &str,
    params: &dyn Params,
) -> Result<(), serde_json::Error> {
    const KEY: &[u8] = br#","params":"#;
    let id = id.into();
    write_line(out, |out| {
        if let Some(id) = id {
            out.extend_from_slice(br#","id":"#);
            serde_json::to_writer(&mut *out, &id)?;
        }
        out.extend_from_slice(br#","method":"#);
        write_string(out, method)?;
        let before = out.len();
        out.extend_from_slice(KEY);
        params.write(id.unwrap_or_default(), out)?;
        // `Params` wrote nothing: remove the key again.
        if out.len() == before + KEY.len() {
            out.truncate(before);
        }
        Ok(())
    })
}

/// Appends a notification.
pub fn write_notification(
    out: &mut Vec<u8>,
    method: &str,
    params: &dyn Params,
) -> Result<(), serde_json::Error> {
    write_request(out, None, method, params)
}

/// Appends the response to a request of the peer.
pub fn write_response(
    out: &mut Vec<u8>,
    id: &RequestId,
    outcome: Result<&RawValue, &JsonRpcError>,
) -> Result<(), serde_json::Error> {
    write_line(out, |out| {
        out.extend_from_slice(br#","id":"#);
        serde_json::to_writer(&mut *out, id)?;
        match outcome {
            Ok(result) => {
                out.extend_from_slice(br#","result":"#);
                out.extend_from_slice(result.get().as_bytes());
            }
            Err(error) => {
                out.extend_from_slice(br#","error":"#);
                serde_json::to_writer(&mut *out, error)?;
            }
        }
        Ok(())
    })
}

/// Appends a JSON string. Method names rarely need escapes, and a search for one is faster than writing character
/// by character.
pub fn write_string(out: &mut Vec<u8>, text: &str) -> Result<(), serde_json::Error> {
    if text.bytes().any(|byte| matches!(byte, ..0x20 | b'"' | b'\\')) {
        return serde_json::to_writer(out, text);
    }
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
    Ok(())
}

fn write_line(
    out: &mut Vec<u8>,
    members: impl FnOnce(&mut Vec<u8>) -> Result<(), serde_json::Error>,
) -> Result<(), serde_json::Error> {
    let start = out.len();
    out.extend_from_slice(br#"{"jsonrpc":"2.0""#);
    if let Err(error) = members(out) {
        out.truncate(start);
        return Err(error);
    }
    remove_line_breaks(out.get_mut(start..).unwrap_or_default());
    out.extend_from_slice(b"}\n");
    Ok(())
}

/// Replaces line breaks by spaces, because raw JSON from a caller may be pretty-printed. Within JSON a raw line break
/// can only be whitespace: in a string it has to be escaped.
fn remove_line_breaks(text: &mut [u8]) {
    if memchr::memchr2(b'\n', b'\r', text).is_none() {
        return;
    }
    for byte in text {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(write: impl FnOnce(&mut Vec<u8>) -> Result<(), serde_json::Error>, expected: &str) {
        let mut out = b"before".to_vec();
        write(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), format!("before{expected}\n"));
    }

    #[test]
    fn messages_are_one_line_each() {
        check(
            |out| write_request(out, 7, "tools/list", &NoParams),
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#,
        );
        check(
            |out| write_request(out, 7, "x", &Some(json!({"a": "b\nc"}))),
            r#"{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":"b\nc"}}"#,
        );
        check(
            |out| write_notification(out, "note", &None::<()>),
            r#"{"jsonrpc":"2.0","method":"note"}"#,
        );
        let result = RawValue::from_string("{ }".to_owned()).unwrap();
        check(
            |out| write_response(out, &RequestId::from("q"), Ok(&result)),
            r#"{"jsonrpc":"2.0","id":"q","result":{ }}"#,
        );
        check(
            |out| write_response(out, &RequestId::from(3), Err(&JsonRpcError::new(-32601, "no"))),
            r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32601,"message":"no"}}"#,
        );
    }

    #[test]
    fn strings_are_escaped_where_needed() {
        for text in ["tools/call", "", "ä漢", "a\"b", "a\\b", "a\nb", "a\u{7f}b"] {
            let mut out = Vec::new();
            write_string(&mut out, text).unwrap();
            assert_eq!(out, serde_json::to_vec(text).unwrap(), "{text}");
        }
    }

    #[test]
    fn pretty_printed_params_stay_on_one_line() {
        let pretty = RawValue::from_string("{\n  \"a\":\r\n 1\n}".to_owned()).unwrap();
        check(
            |out| write_request(out, 1, "x", &Some(pretty)),
            r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{   "a":   1 }}"#,
        );
    }

    #[test]
    fn failed_write_leaves_the_buffer_unchanged() {
        struct Broken;
        impl Params for Broken {
            fn write(&self, _id: u64, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
                out.extend_from_slice(b"half of it");
                Err(serde::ser::Error::custom("broken"))
            }
        }
        let mut out = b"before".to_vec();
        assert!(write_request(&mut out, 1, "x", &Broken).is_err());
        assert_eq!(out, b"before");
    }
}
