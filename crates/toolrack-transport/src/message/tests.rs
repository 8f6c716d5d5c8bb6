//! Parsing of messages, as tables of examples and with random input.

use proptest::prelude::*;

use super::*;

#[track_caller]
fn check(line: &str, expected: &Message<'_>) {
    assert_eq!(&Message::parse(line.as_bytes()).expect(line), expected, "{line}");
}

fn id(number: u64) -> RequestId {
    RequestId::from(number)
}

#[test]
fn members_determine_the_kind_of_message() {
    check(
        r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
        &Message::Request { id: id(1), method: "ping".to_owned(), params: None },
    );
    check(
        r#"{"jsonrpc":"2.0","id":"a","method":"x","params":{"k": [1]}}"#,
        &Message::Request {
            id: RequestId::from("a"),
            method: "x".to_owned(),
            params: Some(br#"{"k": [1]}"#),
        },
    );
    check(
        r#"{"method":"note","params":{}}"#,
        &Message::Notification { method: "note".to_owned(), params: Some(b"{}") },
    );
    check(
        r#"{"jsonrpc": "2.0", "id": 7.0, "result": "x"}"#,
        &Message::Success { id: id(7), result: br#""x""# },
    );
    check(
        r#"{"id":null,"error":{"code":-32700,"message":"Parse error"}}"#,
        &Message::Failure { id: None, error: JsonRpcError::new(-32700, "Parse error") },
    );
    check(
        r#"{"id":3,"error":{"code":1,"message":"no"},"jsonrpc":"2.0"}"#,
        &Message::Failure { id: Some(id(3)), error: JsonRpcError::new(1, "no") },
    );
}

#[test]
fn null_result_is_a_response() {
    check(
        r#"{"jsonrpc":"2.0","id":1,"result":null}"#,
        &Message::Success { id: id(1), result: b"null" },
    );
}

#[test]
fn escaped_method_name_is_decoded() {
    check(
        r#"{"method":"notifications\/progress"}"#,
        &Message::Notification { method: "notifications/progress".to_owned(), params: None },
    );
}

#[track_caller]
fn check_malformed(line: &str, expected: Option<u64>) {
    match Message::parse(line.as_bytes()) {
        Err(MessageError::Shape { id }) => assert_eq!(id, expected.map(RequestId::from), "{line}"),
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn malformed_response_keeps_its_id() {
    check_malformed(r#"{"id":5,"result":1,"error":{"code":1,"message":""}}"#, Some(5));
    check_malformed(r#"{"id":5,"result":null,"error":{"code":1,"message":""}}"#, Some(5));
    check_malformed(r#"{"id":5}"#, Some(5));
    check_malformed(r#"{"id":5,"result":5,"method":"x"}"#, Some(5));
    check_malformed(r#"{"id":null,"result":5}"#, None);
    check_malformed("{}", None);
}

#[track_caller]
fn check_invalid(line: &str) {
    assert!(matches!(Message::parse(line.as_bytes()), Err(MessageError::Json(_))), "{line}");
}

#[test]
fn invalid_messages_are_rejected() {
    check_invalid("");
    check_invalid("hello");
    check_invalid("[]");
    check_invalid("7");
    check_invalid(r#"{"id":{},"result":1}"#);
    check_invalid(r#"{"jsonrpc":"2.0","id":1,"result":5,"method":7}"#);
    check_invalid(r#"{"id":1,"id":2,"result":1}"#);
    check_invalid("{\"id\":1,\"result\":\"\u{0}\"}");
}

#[test]
fn keys_are_case_sensitive() {
    // Go SDK, CVE-2026-27896: a member in another case is another member.
    check_malformed(r#"{"ID":1,"Result":5}"#, None);
}

#[test]
fn batch_is_split() {
    let line = br#" [{"id":1,"result":{}}, {"method":"x"}]"#;
    let expected: Vec<&[u8]> = vec![br#"{"id":1,"result":{}}"#, br#"{"method":"x"}"#];
    assert_eq!(split_batch(line), Some(expected));
    assert_eq!(split_batch(br#"{"method":"x"}"#), None);
    assert_eq!(split_batch(b"[broken"), None);
}

#[track_caller]
fn check_truncated(head: &str, tail: &str, expected: TruncatedMessage) {
    assert_eq!(
        TruncatedMessage::identify(head.as_bytes(), tail.as_bytes()),
        expected,
        "{head} … {tail}"
    );
}

#[test]
fn truncated_message_is_identified_by_its_ends() {
    let response = TruncatedMessage::Response(41);
    check_truncated(r#"{"jsonrpc":"2.0","id":41,"result":{"content":"aaa"#, "aaa\"}}", response);
    check_truncated(r#"{"jsonrpc": "2.0", "id": 41, "result": {"aaa"#, "aaa\"}}", response);
    check_truncated(r#"{"result":{"id":9,"x":"aaa"#, r#"aaa"},"jsonrpc":"2.0","id":41}"#, response);
    check_truncated(r#"{"result":{"id":9,"x":"aaa"#, r#"aaa"}}"#, TruncatedMessage::Unknown);
    check_truncated(r#"{"result":{"x":"\"method\":"#, r#"aaa"}}"#, TruncatedMessage::Unknown);
    check_truncated(
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"aaa"#,
        "a\"}}",
        TruncatedMessage::Unsolicited,
    );
    check_truncated("aaaaaaaaa", "aaaaaaaaa", TruncatedMessage::Unknown);
}

proptest! {
    #[test]
    fn no_bytes_panic(line in proptest::collection::vec(any::<u8>(), 0..200)) {
        let parsed = Message::parse(&line);
        prop_assert!(parsed.is_ok() || parsed.is_err());
        prop_assert!(TruncatedMessage::identify(&line, &line) != TruncatedMessage::Response(u64::MAX));
    }

    #[test]
    fn fast_path_agrees_with_the_parser(number in 0_u64..1 << 50, text in "\\PC*") {
        let result = serde_json::json!({"content": [{"type": "text", "text": text}]}).to_string();
        for line in [
            format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{result}}}"#),
            format!(r#"{{"result":{result},"jsonrpc":"2.0","id":{number}}}"#),
            format!(r#"{{"jsonrpc":"2.0", "result":{result}, "id":{number}}}"#),
        ] {
            let expected = Message::Success { id: id(number), result: result.as_bytes() };
            prop_assert_eq!(Message::parse(line.as_bytes()).unwrap(), expected);
        }
    }
}

#[track_caller]
fn check_fast_path(line: &str, expected: Option<(u64, &str)>) {
    let found = fast_success(line.as_bytes());
    assert_eq!(found, expected.map(|(id, text)| (id, text.as_bytes())), "{line}");
}

#[test]
fn fast_path_recognizes_both_layouts() {
    check_fast_path(r#"{"jsonrpc":"2.0","id":7,"result":{"a":1}}"#, Some((7, r#"{"a":1}"#)));
    check_fast_path(r#"{"result":{"a":1},"jsonrpc":"2.0","id":12}"#, Some((12, r#"{"a":1}"#)));
    check_fast_path(r#"{"jsonrpc":"2.0","id":0,"result":[]}"#, Some((0, "[]")));
}

#[test]
fn fast_path_rejects_other_layouts() {
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
