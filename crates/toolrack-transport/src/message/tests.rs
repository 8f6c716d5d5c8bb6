//! What a line is taken for, as a table; and that no bytes at all make the parser panic.

use proptest::prelude::*;

use super::*;

#[track_caller]
fn check(line: &str, expected: &Frame<'_>) {
    assert_eq!(&Frame::parse(line.as_bytes()).expect(line), expected, "{line}");
}

fn id(number: u64) -> RequestId {
    RequestId::from(number)
}

#[test]
fn members_say_what_a_message_is() {
    check(
        r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
        &Frame::Request { id: id(1), method: "ping".to_owned(), params: None },
    );
    check(
        r#"{"jsonrpc":"2.0","id":"a","method":"x","params":{"k": [1]}}"#,
        &Frame::Request {
            id: RequestId::from("a"),
            method: "x".to_owned(),
            params: Some(br#"{"k": [1]}"#),
        },
    );
    check(
        r#"{"method":"note","params":{}}"#,
        &Frame::Notification { method: "note".to_owned(), params: Some(b"{}") },
    );
    check(
        r#"{"jsonrpc": "2.0", "id": 7.0, "result": "x"}"#,
        &Frame::Success { id: id(7), result: br#""x""# },
    );
    check(
        r#"{"id":null,"error":{"code":-32700,"message":"Parse error"}}"#,
        &Frame::Failure { id: None, error: JsonRpcError::new(-32700, "Parse error") },
    );
    check(
        r#"{"id":3,"error":{"code":1,"message":"no"},"jsonrpc":"2.0"}"#,
        &Frame::Failure { id: Some(id(3)), error: JsonRpcError::new(1, "no") },
    );
}

#[test]
fn a_null_result_is_an_answer() {
    check(
        r#"{"jsonrpc":"2.0","id":1,"result":null}"#,
        &Frame::Success { id: id(1), result: b"null" },
    );
}

#[test]
fn a_method_with_escapes_is_the_same_method() {
    check(
        r#"{"method":"notifications\/progress"}"#,
        &Frame::Notification { method: "notifications/progress".to_owned(), params: None },
    );
}

#[track_caller]
fn misfit(line: &str, expected: Option<u64>) {
    match Frame::parse(line.as_bytes()) {
        Err(FrameError::Shape { id }) => assert_eq!(id, expected.map(RequestId::from), "{line}"),
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn both_or_neither_is_malformed_and_says_whose_it_was() {
    misfit(r#"{"id":5,"result":1,"error":{"code":1,"message":""}}"#, Some(5));
    misfit(r#"{"id":5,"result":null,"error":{"code":1,"message":""}}"#, Some(5));
    misfit(r#"{"id":5}"#, Some(5));
    misfit(r#"{"id":5,"result":5,"method":"x"}"#, Some(5));
    misfit(r#"{"id":null,"result":5}"#, None);
    misfit("{}", None);
}

#[track_caller]
fn refuse(line: &str) {
    assert!(matches!(Frame::parse(line.as_bytes()), Err(FrameError::Json(_))), "{line}");
}

#[test]
fn what_is_not_a_message_is_refused() {
    refuse("");
    refuse("hello");
    refuse("[]");
    refuse("7");
    refuse(r#"{"id":{},"result":1}"#);
    refuse(r#"{"jsonrpc":"2.0","id":1,"result":5,"method":7}"#);
    refuse(r#"{"id":1,"id":2,"result":1}"#);
    refuse("{\"id\":1,\"result\":\"\u{0}\"}");
}

#[test]
fn keys_are_exact() {
    // go-sdk's CVE-2026-27896: a member in another case is another member.
    misfit(r#"{"ID":1,"Result":5}"#, None);
}

#[test]
fn a_batch_is_taken_apart() {
    let line = br#" [{"id":1,"result":{}}, {"method":"x"}]"#;
    let expected: Vec<&[u8]> = vec![br#"{"id":1,"result":{}}"#, br#"{"method":"x"}"#];
    assert_eq!(elements(line), Some(expected));
    assert_eq!(elements(br#"{"method":"x"}"#), None);
    assert_eq!(elements(b"[broken"), None);
}

#[track_caller]
fn lost(head: &str, tail: &str, expected: Lost) {
    assert_eq!(Lost::identify(head.as_bytes(), tail.as_bytes()), expected, "{head} … {tail}");
}

#[test]
fn a_discarded_message_is_known_by_its_ends() {
    let ours = Lost::Answer(41);
    lost(r#"{"jsonrpc":"2.0","id":41,"result":{"content":"aaa"#, "aaa\"}}", ours);
    lost(r#"{"jsonrpc": "2.0", "id": 41, "result": {"aaa"#, "aaa\"}}", ours);
    lost(r#"{"result":{"id":9,"x":"aaa"#, r#"aaa"},"jsonrpc":"2.0","id":41}"#, ours);
    lost(r#"{"result":{"id":9,"x":"aaa"#, r#"aaa"}}"#, Lost::Unknown);
    lost(r#"{"result":{"x":"\"method\":"#, r#"aaa"}}"#, Lost::Unknown);
    lost(
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"aaa"#,
        "a\"}}",
        Lost::Unasked,
    );
    lost("aaaaaaaaa", "aaaaaaaaa", Lost::Unknown);
}

proptest! {
    #[test]
    fn no_bytes_panic(line in proptest::collection::vec(any::<u8>(), 0..200)) {
        let parsed = Frame::parse(&line);
        prop_assert!(parsed.is_ok() || parsed.is_err());
        prop_assert!(Lost::identify(&line, &line) != Lost::Answer(u64::MAX));
    }

    #[test]
    fn the_shortcut_agrees_with_the_parser(number in 0_u64..1 << 50, text in "\\PC*") {
        let result = serde_json::json!({"content": [{"type": "text", "text": text}]}).to_string();
        for line in [
            format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{result}}}"#),
            format!(r#"{{"result":{result},"jsonrpc":"2.0","id":{number}}}"#),
            format!(r#"{{"jsonrpc":"2.0", "result":{result}, "id":{number}}}"#),
        ] {
            let expected = Frame::Success { id: id(number), result: result.as_bytes() };
            prop_assert_eq!(Frame::parse(line.as_bytes()).unwrap(), expected);
        }
    }
}

#[track_caller]
fn check_fast_path(line: &str, expected: Option<(u64, &str)>) {
    let found = fast_success(line.as_bytes());
    assert_eq!(found, expected.map(|(id, text)| (id, text.as_bytes())), "{line}");
}

#[test]
fn both_shapes_are_recognized() {
    check_fast_path(r#"{"jsonrpc":"2.0","id":7,"result":{"a":1}}"#, Some((7, r#"{"a":1}"#)));
    check_fast_path(r#"{"result":{"a":1},"jsonrpc":"2.0","id":12}"#, Some((12, r#"{"a":1}"#)));
    check_fast_path(r#"{"jsonrpc":"2.0","id":0,"result":[]}"#, Some((0, "[]")));
}

#[test]
fn everything_else_is_left_to_the_parser() {
    check_fast_path(r#"{"jsonrpc":"2.0","id":7,"error":{"code":1}}"#, None);
    check_fast_path(r#"{"jsonrpc":"2.0","id":"7","result":{}}"#, None);
    check_fast_path(r#"{"jsonrpc":"2.0","id":7.0,"result":{}}"#, None);
    check_fast_path(r#"{"jsonrpc":"2.0","id":07,"result":{}}"#, None);
    check_fast_path(r#"{"jsonrpc":"2.0","id":,"result":{}}"#, None);
    check_fast_path(r#"{"jsonrpc":"2.0","id":1234567890123456,"result":{}}"#, None);
    check_fast_path(r#"{"jsonrpc":"2.0","id":7,"result":null}"#, None);
    check_fast_path(r#"{"jsonrpc":"2.0","id":7,"result":{},"error":null}"#, None);
    check_fast_path(r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1}}"#, None);
    check_fast_path(r#"{"result":{},"error":{"code":1},"jsonrpc":"2.0","id":7}"#, None);
    check_fast_path(r#"{ "jsonrpc":"2.0","id":7,"result":{}}"#, None);
    check_fast_path(r#"{"result":{},"id":7,"jsonrpc":"2.0"}"#, None);
    check_fast_path(r#"{"result":{}}"#, None);
    check_fast_path(r#"{"result":,"jsonrpc":"2.0","id":7}"#, None);
    check_fast_path("", None);
    check_fast_path("{}", None);
}
