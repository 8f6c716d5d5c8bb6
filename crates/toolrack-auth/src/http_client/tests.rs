//! Address policy and limits of the HTTP client.

use super::*;

fn http(server: &str) -> HttpClient {
    HttpClient::new(&Url::parse(server).unwrap(), &AuthSettings::default())
}

/// A client for which every host name resolves to `address`.
fn http_where_names_are(server: &str, address: &str) -> HttpClient {
    HttpClient { fixed_address: Some(address.parse().unwrap()), ..http(server) }
}

#[test]
fn endpoint_must_exist_and_be_safe() {
    let http = http("https://mcp.example/mcp");
    assert!(http.endpoint(Some("https://auth.example/token"), "token").is_ok());
    let refused = http.endpoint(None, "token").unwrap_err().to_string();
    assert!(refused.contains("no token endpoint"), "{refused}");
    for bad in ["http://auth.example/token", "https://10.0.0.1/", "javascript:alert(1)", "token"] {
        let error = http.endpoint(Some(bad), "token").unwrap_err();
        assert!(matches!(error, AuthError::Untrusted { .. }), "{bad}: {error}");
    }
}

#[tokio::test]
async fn public_name_with_private_address_is_not_connected() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let http = http_where_names_are("https://mcp.example/mcp", &address);
    let url = Url::parse("https://rebind.example/.well-known/x").unwrap();
    let error = http.get(&url).await.unwrap_err();
    assert!(matches!(error, AuthError::Untrusted { .. }), "{error}");
    let error = http.post(&url, FORM, String::new(), None).await.unwrap_err();
    assert!(matches!(error, AuthError::Untrusted { .. }), "{error}");
    let error = http.post(&url, "application/json", String::new(), None).await.unwrap_err();
    assert!(matches!(error, AuthError::Untrusted { .. }), "{error}");
    let idle = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
    assert!(idle.is_err(), "a connection was made");
}

#[tokio::test]
async fn nothing_is_sent_to_a_forbidden_address() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let http = http("https://mcp.example/mcp");
    let url = Url::parse(&format!("https://{address}/token")).unwrap();
    let answers = [
        http.get(&url).await,
        http.post(&url, FORM, String::new(), None).await,
        http.post(&url, "application/json", String::new(), None).await,
    ];
    for answer in answers {
        assert!(matches!(answer, Err(AuthError::Untrusted { .. })), "{answer:?}");
    }
    let idle = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
    assert!(idle.is_err(), "a connection was made");
}

#[tokio::test]
async fn configured_server_may_have_any_address() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let http = http_where_names_are("https://mcp.corp/mcp", &address.to_string());
    let url = Url::parse("https://mcp.corp/.well-known/x").unwrap();
    // The connection is made; the TLS handshake then fails.
    let (answer, connection) = tokio::join!(http.get(&url), async {
        drop(listener.accept().await.unwrap());
    });
    let () = connection;
    assert!(matches!(answer, Err(AuthError::Unreachable { .. })), "{answer:?}");
}

#[test]
fn form_debug_hides_values_and_lists_secrets() {
    let form = Form::default().with("grant_type", "x").with("code", "c0de").with("scope", "a b");
    assert_eq!(form.encode(), "grant_type=x&code=c0de&scope=a+b");
    assert_eq!(form.secrets(), [&Secret::new("c0de")]);
    assert!(!format!("{form:?}").contains("c0de"));
}

#[test]
fn not_found_statuses() {
    let check = |status, expected| {
        let response = HttpResponse { status, body: Vec::new() };
        assert_eq!(response.is_not_found(), expected, "{status}");
    };
    check(200, false);
    check(302, true);
    check(401, true);
    check(404, true);
    check(429, false);
    check(500, false);
    check(503, false);
}
