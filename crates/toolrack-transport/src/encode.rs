//! Writing messages, straight into the buffer that goes to the wire.
//!
//! **Invariant:** what is appended is one line: JSON without a raw line break, then `\n`. If writing
//! fails, the buffer is as it was.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::json_rpc::JsonRpcError;
use crate::json_rpc::RequestId;

const HEAD: &[u8] = br#"{"jsonrpc":"2.0""#;

/// The parameters of a request that is about to be written.
pub trait Params: Sync {
    /// Appends one JSON value, or nothing at all for a request without parameters. The id of the
    /// request is given, because some parameters repeat it (a progress token, for one).
    fn write(&self, id: u64, out: &mut Vec<u8>) -> Result<(), serde_json::Error>;

    /// What the request is about, such as the name of a tool. Some lines say it beside the message too.
    fn subject(&self) -> Option<&str> {
        None
    }

    /// Tells the name and the value of every argument that has to be said beside the message too, on lines
    /// that can.
    fn mirror(&self, _tell: &mut dyn FnMut(&str, &str)) {}
}

/// No parameters.
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

/// Appends a request.
pub fn write_request(
    out: &mut Vec<u8>,
    id: u64,
    method: &str,
    params: &dyn Params,
) -> Result<(), serde_json::Error> {
    line(out, |out| {
        out.extend_from_slice(br#","id":"#);
        serde_json::to_writer(&mut *out, &id)?;
        method_and_params(out, id, method, params)
    })
}

/// Appends a notification.
pub fn write_notification(
    out: &mut Vec<u8>,
    method: &str,
    params: &dyn Params,
) -> Result<(), serde_json::Error> {
    line(out, |out| method_and_params(out, 0, method, params))
}

/// Appends the answer to something the peer asked.
pub fn write_answer(
    out: &mut Vec<u8>,
    id: &RequestId,
    outcome: Result<&RawValue, &JsonRpcError>,
) -> Result<(), serde_json::Error> {
    line(out, |out| {
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

/// Appends a text in quotes. Names hardly ever need escapes, and looking for one is faster than writing
/// character by character.
pub fn write_text(out: &mut Vec<u8>, text: &str) -> Result<(), serde_json::Error> {
    // Without a branch inside, so that the compiler looks at many bytes at once.
    let odd =
        |byte: &u8| u8::from(*byte < 0x20) | u8::from(*byte == b'"') | u8::from(*byte == b'\\');
    if text.as_bytes().iter().fold(0, |seen, byte| seen | odd(byte)) != 0 {
        return serde_json::to_writer(out, text);
    }
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
    Ok(())
}

fn method_and_params(
    out: &mut Vec<u8>,
    id: u64,
    method: &str,
    params: &dyn Params,
) -> Result<(), serde_json::Error> {
    const KEY: &[u8] = br#","params":"#;
    out.extend_from_slice(br#","method":"#);
    write_text(out, method)?;
    let before = out.len();
    out.extend_from_slice(KEY);
    params.write(id, out)?;
    if out.len() == before + KEY.len() {
        out.truncate(before);
    }
    Ok(())
}

fn line(
    out: &mut Vec<u8>,
    members: impl FnOnce(&mut Vec<u8>) -> Result<(), serde_json::Error>,
) -> Result<(), serde_json::Error> {
    let start = out.len();
    out.extend_from_slice(HEAD);
    if let Err(error) = members(out) {
        out.truncate(start);
        return Err(error);
    }
    keep_on_one_line(out.get_mut(start..).unwrap_or_default());
    out.extend_from_slice(b"}\n");
    Ok(())
}

/// Raw JSON from a caller may be pretty-printed. Inside a JSON text a line break can only be white
/// space (in a string it has to be escaped), so a blank means the same.
fn keep_on_one_line(text: &mut [u8]) {
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
            |out| write_answer(out, &RequestId::from("q"), Ok(&result)),
            r#"{"jsonrpc":"2.0","id":"q","result":{ }}"#,
        );
        check(
            |out| write_answer(out, &RequestId::from(3), Err(&JsonRpcError::new(-32601, "no"))),
            r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32601,"message":"no"}}"#,
        );
    }

    #[test]
    fn a_text_is_escaped_only_where_it_must_be() {
        for text in ["tools/call", "", "ä漢", "a\"b", "a\\b", "a\nb", "a\u{7f}b"] {
            let mut out = Vec::new();
            write_text(&mut out, text).unwrap();
            assert_eq!(out, serde_json::to_vec(text).unwrap(), "{text}");
        }
    }

    #[test]
    fn pretty_printed_params_stay_on_the_line() {
        let pretty = RawValue::from_string("{\n  \"a\":\r\n 1\n}".to_owned()).unwrap();
        check(
            |out| write_request(out, 1, "x", &Some(pretty)),
            r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{   "a":   1 }}"#,
        );
    }

    #[test]
    fn a_failed_write_leaves_nothing_behind() {
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
