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
            let asked = InputRequired::parse(&result).unwrap();
            let InputReview::Answer(answers, state) =
                asked.review(&result, ("s", Some("s"))).unwrap()
            else {
                panic!("{url:?} is forwarded");
            };
            assert_eq!(
                serde_json::to_value(&answers).unwrap(),
                json!({"bad": {"action": "decline"}})
            );
            assert_eq!(state.as_deref(), Some("st"));
        }
        let page = json!({ "mode": "url", "elicitationId": "1", "url": url, "message": "m" });
        let good = json!({ "mode": "url", "url": "https://e.org/", "message": "m" });
        let data = json!({ "elicitations": [good, page] });
        let error = JsonRpcError { data: Some(data), ..JsonRpcError::new(-32042, "open") };
        assert!(review_url_error(error, None).is_err(), "{url:?}");
    }
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
        r#"{"message":"Who\u202e?","x\u200b":"\udb40\udc49"}"#,
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
    let asked = InputRequired::parse(&raw).unwrap();
    let InputReview::Forward(written, 1) = asked.review(&raw, ("s", Some("s"))).unwrap() else {
        panic!("not forwarded");
    };
    let expected = concat!(
        r#"{"resultType":"input_required","requestState":"a\u0041\u2028","x":{ "y":1.0 },"#,
        r#""inputRequests":{"z":{"method":"roots/list"},"a":{"method":"elicitation/create","#,
        r#""params":{"message":"Server \"s\" asks: Who?"}}}}"#
    );
    assert_eq!(text(&written), expected);
    let state_only = RawJson::new(r#"{"resultType":"input_required","requestState":"s"}"#);
    let asked = InputRequired::parse(&state_only).unwrap();
    let InputReview::Forward(written, 0) = asked.review(&state_only, ("s", Some("s"))).unwrap()
    else {
        panic!("not forwarded");
    };
    assert_eq!(text(&written), text(&state_only));
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
    // Frequent attempts do not keep the bucket empty.
    let mut budget = QuestionBudget::new(start);
    assert!(budget.take(64, 0, start) && budget.take(56, 0, start));
    let n_asked =
        (1..=100).filter(|tenth| budget.take(1, 0, start + Duration::from_millis(tenth * 100)));
    assert_eq!(n_asked.count(), 10);
    assert!(!budget.is_full(start + Duration::from_secs(100)));
    assert!(budget.is_full(start + Duration::from_secs(130)));
}
