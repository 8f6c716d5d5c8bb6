//! Meaning of token endpoint responses.

use super::*;

fn answer(status: u16, body: &str, kind: TokenKind) -> Result<TokenResponse, TokenError> {
    let response = HttpResponse { status, body: body.as_bytes().to_vec() };
    let endpoint = Url::parse("https://a/token?x=1").unwrap();
    parse_response(&response, kind, &endpoint, &[&Secret::new("r3fresh")])
}

fn issued(lifetime: Option<u64>) -> TokenResponse {
    TokenResponse {
        access_token: Secret::new("t"),
        token_type: None,
        refresh_token: None,
        lifetime,
        scope: None,
        issued_token_type: None,
    }
}

#[test]
fn token_response_is_parsed_leniently() {
    let check = |body: &str, expected: TokenResponse| {
        let mut found = answer(200, body, TokenKind::Bearer).unwrap();
        assert!(found.token_type.take().is_some());
        assert_eq!(found, expected);
    };
    check(r#"{"access_token":"t","token_type":"Bearer"}"#, issued(None));
    check(r#"{"access_token":"t","token_type":"bearer","expires_in":60}"#, issued(Some(60_000)));
    check(r#"{"access_token":"t","token_type":"BEARER","expires_in":"60"}"#, issued(Some(60_000)));
    check(r#"{"access_token":"t","token_type":"bearer","expires_in":0.2}"#, issued(Some(200)));
    check(r#"{"access_token":"t","token_type":"bearer","expires_in":-5}"#, issued(Some(0)));
    check(r#"{"access_token":"t","token_type":"bearer","expires_in":null}"#, issued(None));
    check(
        r#"{"access_token":"t","token_type":"bearer","expires_in":1e300}"#,
        issued(Some(315_360_000_000)),
    );
    check(
        r#"{"access_token":"t","token_type":"bearer","refresh_token":"r","scope":"a  b"}"#,
        TokenResponse {
            refresh_token: Some(Secret::new("r")),
            scope: Some("a  b".to_owned()),
            ..issued(None)
        },
    );
}

/// Kind and text of the error.
#[track_caller]
fn check(status: u16, body: &str, expected: &str) {
    let found = match answer(status, body, TokenKind::Bearer).unwrap_err() {
        TokenError::InvalidGrant(text) => format!("invalid grant: {text}"),
        TokenError::InvalidClient(text) => format!("invalid client: {text}"),
        TokenError::Other(error) => error.to_string(),
    };
    assert_eq!(found, expected);
}

#[test]
fn token_errors_are_classified_by_code() {
    check(400, r#"{"error":"invalid_grant"}"#, "invalid grant: invalid_grant");
    check(401, r#"{"error":"invalid_client"}"#, "invalid client: invalid_client");
    let down = "cannot reach the authorization server: ";
    check(
        503,
        r#"{"error":"invalid_grant"}"#,
        &format!("{down}https://a/token responded with status 503"),
    );
    check(429, "", &format!("{down}https://a/token responded with status 429"));
    check(400, r#"{"error":"server_error"}"#, &format!("{down}server_error"));
    check(200, "<html>", &format!("{down}https://a/token responded without a token"));
    let no = "the authorization server rejected the request: ";
    check(
        400,
        r#"{"error":"invalid_scope","error_description":"no\u001b"}"#,
        &format!("{no}invalid_scope: no"),
    );
    check(404, "", &format!("{no}https://a/token responded with status 404"));
    check(302, "", &format!("{no}https://a/token responded with status 302"));
}

#[test]
fn token_error_does_not_quote_secrets() {
    check(
        400,
        r#"{"error":"invalid_grant","error_description":"r3fresh is revoked"}"#,
        "invalid grant: invalid_grant: … is revoked",
    );
}

#[test]
fn only_bearer_tokens_are_accepted() {
    let bad = [
        r#"{"access_token":"t","token_type":"mac"}"#,
        r#"{"access_token":"t"}"#,
        r#"{"access_token":"","token_type":"bearer"}"#,
        r#"{"access_token":"a\r\nX: y","token_type":"bearer"}"#,
    ];
    for body in bad {
        let fault = answer(200, body, TokenKind::Bearer).unwrap_err();
        assert!(
            matches!(fault, TokenError::Other(AuthError::Untrusted { .. })),
            "{body} {fault:?}"
        );
    }
    let exchanged = r#"{"access_token":"t","token_type":"N_A","issued_token_type":"x"}"#;
    assert!(answer(200, exchanged, TokenKind::Exchange).is_ok());
    assert!(answer(200, exchanged, TokenKind::Bearer).is_err());
}

#[test]
fn client_authentication_methods() {
    let client = Client { secret: Some(Secret::new("p:w d")), ..Client::public("me/1") };
    let authenticate = |proof: &TokenRequestAuth| {
        let (form, header) = authenticate_request(Form::default().with("grant_type", "g"), proof);
        (form.encode(), header.map(|secret| secret.reveal().to_owned()))
    };
    let basic = format!("Basic {}", STANDARD.encode("me%2F1:p%3Aw+d"));
    assert_eq!(
        authenticate(&TokenRequestAuth::Client(client.clone(), AuthMethod::Basic)),
        ("grant_type=g&client_id=me%2F1".to_owned(), Some(basic))
    );
    assert_eq!(
        authenticate(&TokenRequestAuth::Client(client.clone(), AuthMethod::Post)),
        ("grant_type=g&client_id=me%2F1&client_secret=p%3Aw+d".to_owned(), None)
    );
    assert_eq!(
        authenticate(&TokenRequestAuth::Client(client, AuthMethod::None)),
        ("grant_type=g&client_id=me%2F1".to_owned(), None)
    );
    let (body, header) = authenticate(&TokenRequestAuth::Assertion(Secret::new("x.y.z")));
    assert!(body.ends_with("&client_assertion=x.y.z") && header.is_none(), "{body}");
    assert!(!body.contains("client_id"), "{body}");
}
