//! The loopback port, with real sockets.

use super::*;

fn request() -> LoginRequest {
    let url = Url::parse("https://a/authorize").unwrap();
    let (issuer, state) = ("https://a".to_owned(), Secret::new("s1"));
    LoginRequest { url, issuer, scopes: Vec::new(), state }
}

fn browser() -> SystemBrowser {
    SystemBrowser::new(Arc::new(|_url| Ok(())))
}

#[test]
fn redirect_matches_by_its_state_alone() {
    assert!(request().matches_redirect("state=s1&error=x"));
    assert!(!request().matches_redirect("state=s2"));
    let without_state = LoginRequest { state: Secret::new(""), ..request() };
    assert!(!without_state.matches_redirect("code=c"));
}

/// Sends a request and returns the whole response.
async fn send_request(port: u16, head: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(format!("{head}\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap_or_default();
    answer
}

fn port_of(login: &PreparedLogin) -> u16 {
    Url::parse(&login.redirect_uri).unwrap().port().unwrap()
}

#[tokio::test]
async fn only_the_matching_redirect_ends_the_login() {
    let login = browser().prepare(None).await.unwrap();
    let port = port_of(&login);
    assert_eq!(login.redirect_uri, format!("http://127.0.0.1:{port}/callback"));
    let outside = async {
        // A silent connection must not block the others.
        let silent = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let mut first = Vec::new();
        for head in [
            "GET /favicon.ico HTTP/1.1",
            "GET /callback?code=forged&state=other HTTP/1.1",
            "GET /callback?code=forged HTTP/1.1",
            "POST /callback?code=c&state=s1 HTTP/1.1",
        ] {
            let answer = send_request(port, head).await;
            first.push(answer.split(' ').nth(1).unwrap().to_owned());
        }
        let last = send_request(port, "GET /callback?code=c&state=s1 HTTP/1.1").await;
        drop(silent);
        (first, last)
    };
    let inside = async {
        let response = (login.run)(request()).await.unwrap();
        assert_eq!(response.query.reveal(), "code=c&state=s1");
        (response.finish)(Ok(())).await;
    };
    let ((), (first, last)) = tokio::join!(inside, outside);
    assert_eq!(first, ["404", "400", "400", "405"]);
    assert!(last.starts_with("HTTP/1.1 200") && last.contains("Logged in"), "{last}");
    assert!(TcpStream::connect(("127.0.0.1", port)).await.is_err(), "the port is still open");
}

#[tokio::test]
async fn failed_login_is_shown_in_the_browser() {
    let login = browser().prepare(None).await.unwrap();
    let port = port_of(&login);
    let inside = async {
        let response = (login.run)(request()).await.unwrap();
        (response.finish)(Err(login_needed("no <token>"))).await;
    };
    let ((), page) = tokio::join!(inside, send_request(port, "GET /callback?state=s1 HTTP/1.1"));
    assert!(page.contains("Not logged in") && page.contains("no &lt;token&gt;"), "{page}");
}

#[tokio::test]
async fn oversize_callback_request_is_closed() {
    let impatient = SystemBrowser { login_timeout: Duration::from_millis(300), ..browser() };
    let login = impatient.prepare(None).await.unwrap();
    let port = port_of(&login);
    let long = format!("GET /callback?state=s1&x={} HTTP/1.1", "x".repeat(MAX_REQUEST_BYTES));
    let (outcome, answer) = tokio::join!((login.run)(request()), send_request(port, &long));
    assert!(matches!(outcome.err(), Some(AuthError::LoginRequired { .. })));
    assert_eq!(answer, "");
}

#[tokio::test(start_paused = true)]
async fn loopback_login_times_out() {
    let login = browser().prepare(None).await.unwrap();
    let error = (login.run)(request()).await.err().unwrap().to_string();
    assert!(error.contains("timed out"), "{error}");
}

#[tokio::test]
async fn browser_open_error_is_reported() {
    let broken = SystemBrowser::new(Arc::new(|_url| Err(io::Error::other("no display"))));
    let login = broken.prepare(None).await.unwrap();
    let error = (login.run)(request()).await.err().unwrap().to_string();
    assert!(error.contains("no display"), "{error}");
}

#[tokio::test]
async fn earlier_callback_port_is_reused_if_free() {
    let first = browser().prepare(None).await.unwrap();
    let preferred = first.redirect_uri.clone();
    let taken = browser().prepare(Some(&preferred)).await.unwrap();
    assert_ne!(taken.redirect_uri, preferred);
    drop(first);
    let again = browser().prepare(Some(&preferred)).await.unwrap();
    assert_eq!(again.redirect_uri, preferred);
}
