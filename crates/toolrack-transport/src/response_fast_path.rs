//! A shortcut for the two shapes in which servers write nearly every answer.
//!
//! `{"jsonrpc":"2.0","id":7,"result":…}` and `{"result":…,"jsonrpc":"2.0","id":7}` are recognized by
//! their ends alone, so the time does not grow with the payload. Everything else goes to the full
//! parser. The payload is not checked here: text that only looks like one value fails to decode in
//! the task of the caller it was meant for, and nobody else is touched.

use std::sync::LazyLock;

use memchr::memmem::Finder;

const ID_FIRST: &[u8] = br#"{"jsonrpc":"2.0","id":"#;
const THEN_RESULT: &[u8] = br#","result":"#;
const RESULT_FIRST: &[u8] = br#"{"result":"#;
const THEN_ID: &[u8] = br#","jsonrpc":"2.0","id":"#;

/// More digits than any id we send; a longer run is left to the full parser.
const MAX_DIGITS: usize = 15;

/// The id and the raw result of a success, if the line has one of the two shapes.
pub(crate) fn success(line: &[u8]) -> Option<(u64, &[u8])> {
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
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<(u64, &str)>) {
        let found = success(line.as_bytes());
        assert_eq!(found, expected.map(|(id, text)| (id, text.as_bytes())), "{line}");
    }

    #[test]
    fn both_shapes_are_recognized() {
        check(r#"{"jsonrpc":"2.0","id":7,"result":{"a":1}}"#, Some((7, r#"{"a":1}"#)));
        check(r#"{"result":{"a":1},"jsonrpc":"2.0","id":12}"#, Some((12, r#"{"a":1}"#)));
        check(r#"{"jsonrpc":"2.0","id":0,"result":[]}"#, Some((0, "[]")));
    }

    #[test]
    fn everything_else_is_left_to_the_parser() {
        check(r#"{"jsonrpc":"2.0","id":7,"error":{"code":1}}"#, None);
        check(r#"{"jsonrpc":"2.0","id":"7","result":{}}"#, None);
        check(r#"{"jsonrpc":"2.0","id":7.0,"result":{}}"#, None);
        check(r#"{"jsonrpc":"2.0","id":07,"result":{}}"#, None);
        check(r#"{"jsonrpc":"2.0","id":,"result":{}}"#, None);
        check(r#"{"jsonrpc":"2.0","id":1234567890123456,"result":{}}"#, None);
        check(r#"{"jsonrpc":"2.0","id":7,"result":null}"#, None);
        check(r#"{"jsonrpc":"2.0","id":7,"result":{},"error":null}"#, None);
        check(r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1}}"#, None);
        check(r#"{"result":{},"error":{"code":1},"jsonrpc":"2.0","id":7}"#, None);
        check(r#"{ "jsonrpc":"2.0","id":7,"result":{}}"#, None);
        check(r#"{"result":{},"id":7,"jsonrpc":"2.0"}"#, None);
        check(r#"{"result":{}}"#, None);
        check(r#"{"result":,"jsonrpc":"2.0","id":7}"#, None);
        check("", None);
        check("{}", None);
    }
}
