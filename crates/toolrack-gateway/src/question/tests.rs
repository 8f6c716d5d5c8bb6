use super::*;

const BAD_URLS: [&str; 9] = [
    "file:///etc/passwd",
    "javascript:alert(1)",
    " java\tscript:alert(1)",
    "data:text/html,x",
    "https://bank.example@evil.example/",
    "https://:x@evil.example/",
    "vscode://open",
    "nonsense",
    "",
];
const ELICIT: &str = "elicitation/create";

fn raw(value: &Value) -> RawJson {
    RawJson::new(value.to_string())
}

fn text(raw: &RawJson) -> String {
    String::from_utf8(raw.as_bytes().to_vec()).unwrap()
}

/// The parameters that a client gets, or the reason why it gets none.
fn reviewed(method: &str, params: &str, server: Option<&str>) -> Result<String, String> {
    match review(method, Some(&RawJson::new(params.to_owned())), server) {
        Ok(Review::Forward(params)) => Ok(text(&params.unwrap())),
        Ok(Review::Decline(problem)) => Err(problem.to_string()),
        Err(error) => Err(error.message),
    }
}

/// What a result becomes for a modern client.
fn reviewed_result(result: &RawJson, server: Option<&str>) -> Option<InputReview> {
    let shown = without_hidden_text(result.clone());
    let asked = InputRequired::read(result, &shown).unwrap();
    asked.map(|asked| asked.review(server).unwrap())
}

/// Every way to a client, with every bad address: none of them shows it.
#[test]
fn bad_urls_reach_no_client() {
    for url in BAD_URLS {
        for mode in [json!("url"), json!("URL"), Value::Null] {
            let params = json!({ "mode": mode, "message": "m", "url": url, "elicitationId": "1" });
            for server in [Some("s"), None] {
                let shown = reviewed(ELICIT, &params.to_string(), server);
                assert!(shown.is_err(), "{url:?} {mode}: {shown:?}");
            }
            let question = json!({ "method": ELICIT, "params": params });
            let result = raw(&json!({
                "resultType": "input_required", "requestState": "st",
                "inputRequests": { "roots": { "method": "roots/list" }, "bad": question },
            }));
            let Some(InputReview::Decline(refused, state)) = reviewed_result(&result, Some("s"))
            else {
                panic!("{url:?} is forwarded");
            };
            let keys: Vec<&str> = refused.iter().map(|(key, _)| key.as_str()).collect();
            assert_eq!((keys, state.as_deref()), (vec!["bad"], Some("st")));
        }
        let page = json!({ "mode": "url", "elicitationId": "1", "url": url, "message": "m" });
        let good = json!({ "mode": "url", "url": "https://e.org/", "message": "m" });
        let data = json!({ "elicitations": [good, page] });
        let error = JsonRpcError { data: Some(data), ..JsonRpcError::new(-32042, "open") };
        assert!(review_url_error(error, None).is_err(), "{url:?}");
    }
}

/// JSON of all members at this path: a client may read any of repeated ones.
fn values_at(json: &str, path: &[&str]) -> Vec<String> {
    let values = crate::fuzz::values_at(serde_json::from_str(json).unwrap(), path);
    values.into_iter().map(|raw| raw.get().to_owned()).collect()
}

/// Without hidden text a member can have another name, and a text another meaning.
#[test]
fn hidden_text_is_removed_before_the_decision() {
    let check = |params: &str| {
        let Ok(shown) = reviewed(ELICIT, params, Some("s")) else { return };
        // A member with another name is none that a client opens.
        let urls = values_at(&shown, &["url"]);
        assert!(urls.iter().all(|url| !url.contains("file:")), "{params}: {shown}");
        let messages = values_at(&shown, &["message"]);
        let is_named = |message: &String| message.starts_with(r#""Server \"s\" asks: "#);
        assert!(messages.len() == 1 && messages.iter().all(is_named), "{params}: {shown}");
    };
    for url in [r"url\u200b", r"u\u200brl", r"ur\udb40\udc41l", r"url\u0001", r"url\u202e"] {
        check(&format!(
            r#"{{"mode":"url","url":"https://e.org/","{url}":"file:///x","message":"m"}}"#
        ));
        check(&format!(r#"{{"mode":"form","message":"m","{url}":"file:///x"}}"#));
    }
    check("{\"url\":\"fi\u{200b}le:///x\",\"message\":\"m\"}");
    check(r#"{"message":"m","message\u200b":"forged"}"#);
    check(r#"{"mode":"form","mode\u200b":"url","url\u200b":"file:///x","message":"m"}"#);
    let hidden_mode = reviewed(ELICIT, r#"{"mode":"u\u200brl","message":"m"}"#, None);
    assert!(hidden_mode.is_err(), "a page without an address");
    let named = reviewed("sampling/createMessage", r#"{"systemPrompt\u200b":"forged"}"#, Some("s"));
    let prompts = values_at(&named.unwrap(), &["systemPrompt"]);
    assert!(prompts.iter().all(|prompt| prompt.contains("MCP server")), "{prompts:?}");
}

/// Every result that a client may take for `input_required` is checked, also if it becomes one without hidden text.
#[test]
fn input_required_cannot_be_disguised() {
    let result = |first: &str, last: &str| {
        let requests = r#""inputRequests":{"a":{"method":"elicitation/create","params":{"message":"m","url":"file:///x"}}}"#;
        RawJson::new([b"{", first.as_bytes(), requests.as_bytes(), last.as_bytes(), b"}"].concat())
    };
    let check = |result: RawJson| {
        let shown = without_hidden_text(result.clone());
        let text = String::from_utf8_lossy(shown.as_bytes()).into_owned();
        match InputRequired::read(&result, &shown) {
            Ok(Some(asked)) => {
                let review = asked.review(Some("s"));
                assert!(matches!(review, Ok(InputReview::Decline(..))), "{text}: {review:?}");
            }
            // Invalid JSON reaches no client, and a member with another name is not read.
            Ok(None) if shown.as_raw_value().is_ok() => {
                let is_read =
                    values_at(&text, &["resultType"]).iter().any(|name| name.contains("input"));
                assert!(!is_read, "{text}");
            }
            Ok(None) => assert!(shown.as_raw_value().is_err()),
            Err(problem) => assert_eq!(problem, InputProblem::Malformed, "{text}"),
        }
    };
    for first in [
        r#""resultType":"input_required","#,
        r#""resultType":"input\u200b_required","#,
        r#""resultType\u200b":"input_required","#,
        r#""result\u0054ype":"input_required","#,
        r#""resultType":"complete","resultType":"input_required","#,
        r#""resultType":"input_required","resultType\u200b":"complete","#,
        r#""\ud800":1,"resultType":"input_required","#,
        "\"resultType\":\"input_required\",\"x\":\"a\u{1}b\",",
        "\"resultType\":\"input_required\",\"x\":\"a\u{1}\u{202e}b\",",
        "\"resultType\":\"input_required\",\"x\":\"\\q\u{202e}\",",
    ] {
        check(result(first, ""));
    }
    let mut invalid = result(r#""resultType":"input_required","#, ",\"x\":\"?\u{202e}\"");
    let bytes = invalid.as_bytes().iter().map(|byte| if *byte == b'?' { 0xff } else { *byte });
    invalid = RawJson::new(bytes.collect::<Vec<u8>>());
    check(invalid);
    // These become valid JSON without their hidden text.
    let repaired = result("\"resultType\":\"input_required\",\"x\":\"\u{1}\",", "");
    assert!(matches!(reviewed_result(&repaired, None), Some(InputReview::Decline(..))));
}

#[test]
fn ordinary_results_are_complete() {
    for result in [
        r#"{"content":[]}"#,
        r#"{"resultType":"complete","inputRequests":{}}"#,
        r#"{"content":[{"text":"\u00e9 resultType"}]}"#,
        r#"{"resultType":"task"}"#,
        "[]",
        "{oops",
    ] {
        let raw = RawJson::new(result);
        assert!(InputRequired::read(&raw, &raw).unwrap().is_none(), "{result}");
    }
    let check = |result: &'static str| {
        let raw = RawJson::new(result);
        assert_eq!(
            InputRequired::read(&raw, &raw).unwrap_err(),
            InputProblem::Malformed,
            "{result}"
        );
    };
    check(r#"{"resultType":"input_required","inputRequests":[]}"#);
    check(r#"{"resultType":"input_required","inputRequests":{"a":7}}"#);
    check(r#"{"resultType":"input_required","requestState":7}"#);
}

/// A result has room for hundreds of thousands of requests. They are refused before any of them is parsed.
#[test]
fn too_many_requests_are_refused_unread() {
    let result = |n: u32| {
        let requests: Map<String, Value> = (0..n).map(|key| (key.to_string(), json!(7))).collect();
        raw(&json!({ "resultType": "input_required", "inputRequests": requests }))
    };
    let read = |n| {
        let result = result(n);
        InputRequired::read(&result, &result).unwrap_err()
    };
    assert_eq!(read(MAX_PER_CALL + 1), InputProblem::TooManyRequests);
    assert_eq!(read(500_000), InputProblem::TooManyRequests);
    assert_eq!(read(MAX_PER_CALL), InputProblem::Malformed, "read");
}

/// A client may read another member of a repeated name than we do, so only one is written.
#[test]
fn repeated_members_are_written_once() {
    let shown = reviewed(
        ELICIT,
        r#"{"url":"javascript:x","mode":"url","message":"m","url":"https://e.org/","mode":"url"}"#,
        None,
    );
    assert_eq!(shown.unwrap(), r#"{"url":"https://e.org/","mode":"url","message":"m"}"#);
    let hidden = reviewed(ELICIT, r#"{"url":"https://e.org/","\u0075rl":"file:///x"}"#, None);
    assert!(hidden.is_err(), "{hidden:?}");
    assert!(reviewed(ELICIT, r#"{"mode":"url","message":"m"}"#, None).is_err());
    assert!(reviewed(ELICIT, "[]", None).is_err());
}

#[test]
fn question_names_its_server() {
    let check = |method: &str, params: &str, server: Option<&str>, expected: &str| {
        assert_eq!(reviewed(method, params, server).as_deref(), Ok(expected), "{params}");
    };
    check(
        ELICIT,
        r#"{"message":"Who?","requestedSchema":{ "z":1,"a":2.0 }}"#,
        Some("git\u{202e}hub"),
        r#"{"message":"Server \"github\" asks: Who?","requestedSchema":{ "z":1,"a":2.0 }}"#,
    );
    check(
        ELICIT,
        r#"{"message":"Who\u202e?","x":"\udb40\udc49"}"#,
        None,
        r#"{"message":"Who?","x":""}"#,
    );
    check(ELICIT, "{}", Some("s"), r#"{"message":"Server \"s\" asks: it needs input"}"#);
    check(ELICIT, r#"{"message":"Who?"}"#, None, r#"{"message":"Who?"}"#);
    check(
        ELICIT,
        "{\"mode\":\"url\",\"message\":\"Pay\",\"url\":\"https://\u{430}pple.com\"}",
        Some("s"),
        concat!(
            r#"{"mode":"url","message":"Server \"s\" asks: Pay\n(Note: the host `xn--pple-43d.com` has "#,
            r#"letters that are not ASCII and may imitate another host.)","url":"https://xn--pple-43d.com/"}"#
        ),
    );
    let sampling = "sampling/createMessage";
    check(
        sampling,
        r#"{"messages":[],"systemPrompt":"Be brief."}"#,
        Some("s"),
        r#"{"messages":[],"systemPrompt":"This request comes from the MCP server \"s\".\n\nBe brief."}"#,
    );
    check(
        sampling,
        r#"{"messages":[]}"#,
        Some("s"),
        r#"{"messages":[],"systemPrompt":"This request comes from the MCP server \"s\"."}"#,
    );
    check("roots/list", r#"{"x":1}"#, Some("s"), r#"{"x":1}"#);
}

#[test]
fn input_required_keeps_everything_but_its_questions() {
    let raw = RawJson::new(concat!(
        r#"{"resultType":"input_required","requestState":"a\u0041\u2028","x":{ "y":1.0 },"#,
        r#""inputRequests":{"z":{"method":"roots/list"},"a":{"method":"elicitation/create","#,
        r#""params":{"message":"Who?"}}}}"#
    ));
    let Some(InputReview::Forward(written, 1)) = reviewed_result(&raw, Some("s")) else {
        panic!("not forwarded");
    };
    let expected = concat!(
        r#"{"resultType":"input_required","requestState":"a\u0041\u2028","x":{ "y":1.0 },"#,
        r#""inputRequests":{"z":{"method":"roots/list"},"a":{"method":"elicitation/create","#,
        r#""params":{"message":"Server \"s\" asks: Who?"}}}}"#
    );
    assert_eq!(text(&written), expected);
    let state_only = RawJson::new(r#"{"resultType":"input_required","requestState":"s"}"#);
    let Some(InputReview::Forward(written, 0)) = reviewed_result(&state_only, Some("s")) else {
        panic!("not forwarded");
    };
    assert_eq!(text(&written), text(&state_only));
}

/// Only the state, which clients do not read, keeps it.
#[test]
fn input_required_has_no_hidden_text() {
    let result = RawJson::new(concat!(
        r#"{"resultType":"input_required","requestState":"s\u200b\u202e","_meta":{"x":"a\u202eb"},"#,
        r#""inputRequests":{"a":{"method":"roots/list\u200b"}}}"#
    ));
    let Some(InputReview::Forward(written, 0)) = reviewed_result(&result, None) else {
        panic!("not forwarded");
    };
    let expected = concat!(
        r#"{"resultType":"input_required","requestState":"s\u200b\u202e","_meta":{"x":"ab"},"#,
        r#""inputRequests":{"a":{"method":"roots/list"}}}"#
    );
    assert_eq!(text(&written), expected);
}

#[test]
fn url_error_shows_only_checked_pages() {
    let check = |data: Option<Value>, expected: Option<Value>, n_expected: u32| {
        let error = JsonRpcError { data, ..JsonRpcError::new(-32042, "open") };
        let (error, n_pages) = review_url_error(error, Some("s")).unwrap();
        assert_eq!((error.data, n_pages), (expected, n_expected));
    };
    check(
        Some(json!({ "elicitations": [{ "url": "https://e.org", "message": "m" }], "more": 1 })),
        Some(json!({ "elicitations": [
            { "url": "https://e.org/", "message": "Server \"s\" asks: m" }
        ]})),
        1,
    );
    // Hidden text is removed first.
    let page = json!({ "url": "https://e.org/", "message": "m", "url\u{200b}": "file:///x" });
    let hidden = json!({ "elicitations": [page] });
    let error = JsonRpcError { data: Some(hidden), ..JsonRpcError::new(-32042, "op\u{202e}en") };
    let shown = review_url_error(error, Some("s")).map_or(None, |(error, _)| error.data);
    let shown = shown.unwrap_or_default().to_string();
    let urls = values_at(&shown, &["elicitations", "*", "url"]);
    assert!(urls.iter().all(|url| url.contains("https:")), "{shown}");
    // Data that cannot be checked is not shown.
    check(Some(json!({ "url": "javascript:x" })), None, 0);
    check(Some(json!({ "elicitations": ["javascript:x"] })), None, 0);
    check(None, None, 0);
    let other = JsonRpcError {
        data: Some(json!({ "elicitations": [{ "url": "file:///x" }] })),
        ..JsonRpcError::new(-32000, "no")
    };
    assert_eq!(review_url_error(other.clone(), Some("s")).unwrap(), (other, 0));
}

#[test]
fn budget_limits_questions_at_once_per_minute_and_per_call() {
    let start = Instant::now();
    let mut budget = QuestionBudget::new(start);
    // (seconds since the start, questions, earlier ones of the call), and whether they are asked.
    let steps = [
        ((0, 1, 0), true),
        ((0, 64, 0), true),
        ((0, 1, 64), false),
        ((0, 64, 1), false),
        ((0, 55, 0), true),
        ((0, 1, 0), false),
        ((1, 2, 0), false),
        ((1, 1, 0), true),
        ((1, 1, 0), false),
        ((31, 30, 0), true),
        ((31, 1, 0), false),
        ((10_000, 64, 0), true),
        ((10_000, 56, 0), true),
        ((10_000, 1, 0), false),
        ((10_000, u32::MAX, 0), false),
    ];
    for (step, ((at, n_questions, n_in_call), expected)) in steps.into_iter().enumerate() {
        let now = start + Duration::from_secs(at);
        assert_eq!(budget.take(n_questions, n_in_call, now), expected, "step {step}");
    }
    // Refusals are logged once between two refills, and such a bucket is kept.
    let mut budget = QuestionBudget::new(start);
    let logged = [0, 1, 999, 1000, 1001, 2500]
        .map(|at| budget.take_log_line(start + Duration::from_millis(at)));
    assert_eq!(logged, [true, false, false, true, false, true]);
    assert!(!budget.is_full(start + Duration::from_millis(2600)));
    assert!(budget.is_full(start + Duration::from_secs(10)));
    // Frequent attempts do not keep the bucket empty.
    let mut budget = QuestionBudget::new(start);
    assert!(budget.take(64, 0, start) && budget.take(56, 0, start));
    let n_asked =
        (1..=100).filter(|tenth| budget.take(1, 0, start + Duration::from_millis(tenth * 100)));
    assert_eq!(n_asked.count(), 10);
    assert!(!budget.is_full(start + Duration::from_secs(100)));
    assert!(budget.is_full(start + Duration::from_secs(130)));
}
