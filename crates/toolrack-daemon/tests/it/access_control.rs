//! Access control: every hostile request is refused, reveals no data and has no effect.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::json;

use crate::fixture::{Client, Fixture, check_problem};
use crate::http::{Response, TIMEOUT, encode_request, send};
use crate::openapi::routes;

const CANARY: &str = "canary-server";

/// Routes that need no token and hold no data.
const PUBLIC: [(&str, &str); 5] = [
    ("GET", "/healthz"),
    ("GET", "/"),
    ("GET", "/app.js"),
    ("POST", "/api/login"),
    ("POST", "/api/proof"),
];

fn all_routes() -> Vec<(String, String)> {
    let mut routes = routes();
    let more = [
        ("GET", "/"),
        ("GET", "/app.js"),
        ("GET", "/mcp"),
        ("POST", "/mcp/server/x"),
        ("GET", "/nowhere"),
    ];
    routes.extend(more.map(|(method, path)| (method.to_owned(), path.to_owned())));
    routes
}

/// Sends a request and asserts that it is refused without revealing data.
#[track_caller]
fn assert_refused(addr: SocketAddr, bytes: &[u8], expected: &[u16]) {
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    let response = send(addr, bytes).unwrap_or_else(|error| panic!("{error}: {shown}"));
    assert!(expected.contains(&response.status), "{shown}\n{response:?}");
    assert_no_data(&response, &shown);
}

#[track_caller]
fn assert_no_data(response: &Response, shown: &str) {
    assert!(!response.body.contains(CANARY), "{shown}\n{response:?}");
    assert_eq!(response.header("set-cookie"), None, "{shown}");
    assert_eq!(response.header("access-control-allow-origin"), None, "{shown}");
}

/// Every route with every kind of bad request head.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_request_heads_are_refused_on_every_route() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let mut document = fixture.scripted(CANARY, &[]);
    document["enabled"] = json!(false);
    client.post("/api/servers", document).await;
    let before = std::fs::read(fixture.home().config_file()).unwrap();
    let attacker = client.clone();
    let n = tokio::task::spawn_blocking(move || send_hostile_heads(&attacker)).await.unwrap();
    assert!(n > 1000, "{n} requests");
    assert_eq!(std::fs::read(fixture.home().config_file()).unwrap(), before);
    assert_eq!(client.request("GET", "/readyz", None).await.status, 200);
    fixture.shutdown(daemon).await;
}

fn send_hostile_heads(client: &Client) -> usize {
    let (own, port) = (client.addr.to_string(), client.addr.port());
    let bearer = format!("Bearer {}", client.token);
    let hosts = [
        "evil.example".to_owned(),
        format!("evil.example:{port}"),
        format!("127.0.0.1.nip.io:{port}"),
        format!("localhost.evil.example:{port}"),
        format!("localtest.me:{port}"),
        format!("LOCALHOST:{port}"),
        format!("localhost.:{port}"),
        format!("0.0.0.0:{port}"),
        format!("a@127.0.0.1:{port}"),
        "127.0.0.1".to_owned(),
        "127.0.0.1:1".to_owned(),
    ];
    let origins = [
        "null".to_owned(),
        "http://evil.example".to_owned(),
        format!("https://127.0.0.1:{port}"),
        format!("http://127.0.0.1:{port}.evil.example"),
        "http://127.0.0.1:1".to_owned(),
        "file://".to_owned(),
    ];
    let sites = ["cross-site", "same-site", "nonsense"];
    let invalid = ["", "Bearer", "Bearer x", "Basic dXNlcg==", &client.token];
    let mut n = 0;
    for (method, path) in all_routes() {
        let body = if method == "GET" { "" } else { r#"{"name":"x"}"# };
        let mut check = |headers: &[(&str, &str)], path: &str, expected: &[u16]| {
            let mut all = vec![("content-type", "application/json")];
            all.extend(headers);
            assert_refused(client.addr, &encode_request(&method, path, &all, body), expected);
            n += 1;
        };
        for host in &hosts {
            check(&[("host", host), ("authorization", &bearer)], &path, &[403]);
        }
        for origin in &origins {
            check(&[("host", &own), ("authorization", &bearer), ("origin", origin)], &path, &[403]);
        }
        for site in sites {
            check(
                &[("host", &own), ("authorization", &bearer), ("sec-fetch-site", site)],
                &path,
                &[403],
            );
        }
        if PUBLIC.contains(&(method.as_str(), path.as_str())) {
            continue;
        }
        for token in invalid {
            let headers: &[(&str, &str)] = &[("host", &own), ("authorization", token)];
            check(headers, &path, &[401]);
        }
        check(&[("host", &own)], &path, &[401]);
        check(&[("host", &own), ("cookie", &format!("token={}", client.token))], &path, &[401]);
        for name in ["token", "access_token", "key"] {
            let path = format!("{path}?{name}={}", client.token);
            check(&[("host", &own)], &path, &[401]);
        }
    }
    n
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_requests_are_refused() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let (addr, own) = (client.addr, client.addr.to_string());
    let key = format!("authorization: Bearer {}\r\n", client.token);
    tokio::task::spawn_blocking(move || {
        let raw = |text: String| text.into_bytes();
        let check = |text: String, expected: &[u16]| assert_refused(addr, &raw(text), expected);
        // No host, two hosts, and a foreign host in the request line.
        check(format!("GET /api/tools HTTP/1.0\r\n{key}\r\n"), &[400, 403]);
        check(format!("GET /api/tools HTTP/1.1\r\n{key}connection: close\r\n\r\n"), &[400, 403]);
        let two = format!("host: {own}\r\nhost: {own}\r\n");
        check(format!("GET /api/tools HTTP/1.1\r\n{two}{key}connection: close\r\n\r\n"), &[400, 403]);
        let elsewhere = "GET http://evil.example/api/tools HTTP/1.1\r\n";
        check(format!("{elsewhere}host: {own}\r\n{key}connection: close\r\n\r\n"), &[400, 403]);
        // Two tokens.
        let keys = format!("{key}{key}");
        check(format!("GET /api/tools HTTP/1.1\r\nhost: {own}\r\n{keys}connection: close\r\n\r\n"), &[401]);
        // Paths that resemble static files.
        for path in ["//", "/./", "/../", "/%2e%2e/", "/app.js/", "/APP.JS", "/app.js%00", "/\\", "/index.html", "/assets/../api/tools", "/app.js/../api/tools"] {
            check(format!("GET {path} HTTP/1.1\r\nhost: {own}\r\nconnection: close\r\n\r\n"), &[400, 401]);
        }
        // Other methods on the dashboard, and a CORS preflight.
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"] {
            check(format!("{method} / HTTP/1.1\r\nhost: {own}\r\nconnection: close\r\n\r\n"), &[401]);
        }
        let preflight = "origin: http://evil.example\r\naccess-control-request-method: POST\r\n";
        check(format!("OPTIONS /api/servers HTTP/1.1\r\nhost: {own}\r\n{preflight}connection: close\r\n\r\n"), &[403]);
        // A head that is too large or has too many headers.
        let long = "x".repeat(256 << 10);
        check(format!("GET /api/tools?{long} HTTP/1.1\r\nhost: {own}\r\n\r\n"), &[400, 414, 431]);
        let many = "a: b\r\n".repeat(200);
        check(format!("GET /api/tools HTTP/1.1\r\nhost: {own}\r\n{many}\r\n"), &[400, 431]);
        // Request smuggling: conflicting lengths.
        let smuggled = "content-length: 5\r\ntransfer-encoding: chunked\r\n";
        check(format!("POST /api/login HTTP/1.1\r\nhost: {own}\r\ncontent-type: application/json\r\n{smuggled}connection: close\r\n\r\n0\r\n\r\n"), &[400]);
    })
    .await
    .unwrap();
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn body_limits_are_enforced() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let authorized = client.clone();
    tokio::task::spawn_blocking(move || {
        let own = authorized.addr.to_string();
        let bearer = format!("Bearer {}", authorized.token);
        let head = [("host", own.as_str()), ("authorization", &bearer)];
        let with = |kind: &'static str| [head[0], head[1], ("content-type", kind)];
        for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
            let bytes = encode_request("POST", "/api/servers", &with(kind), "{}");
            check_problem(&send(authorized.addr, &bytes).unwrap(), 415, "VALIDATION_ERROR", None);
        }
        let bytes = encode_request("POST", "/api/servers", &with("application/json"), "{");
        check_problem(&send(authorized.addr, &bytes).unwrap(), 400, "VALIDATION_ERROR", None);
        // Announced as too large: refused before the body is sent.
        let announce = |route: &str, length: String| {
            format!(
                "{route} HTTP/1.1\r\nhost: {own}\r\nauthorization: {bearer}\r\ncontent-type: application/json\r\n\
                 {length}\r\nconnection: close\r\n\r\n"
            )
        };
        for (route, max_bytes, limit) in [
            ("POST /api/calls", 16 << 20, "16 MiB"),
            ("POST /api/config/check", 8 << 20, "8 MiB"),
            ("PUT /api/config", 8 << 20, "8 MiB"),
            ("PUT /api/secrets/key", 512 << 10, "512 KiB"),
            ("POST /api/servers", 256 << 10, "256 KiB"),
            ("POST /api/agents/mcp/reconnect", 256 << 10, "256 KiB"),
            ("POST /api/login", 4 << 10, "4 KiB"),
            ("POST /api/proof", 4 << 10, "4 KiB"),
        ] {
            let announced = announce(route, format!("content-length: {}", max_bytes + 1));
            let response = send(authorized.addr, announced.as_bytes()).unwrap();
            check_problem(&response, 413, "VALIDATION_ERROR", None);
            let message = json!(format!("the body is larger than {limit}"));
            assert_eq!(response.json()["message"], message, "{route}");
        }
        // Chunked: refused once the limit is exceeded.
        let mut stream = TcpStream::connect(authorized.addr).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let chunked = announce("POST /api/calls", "transfer-encoding: chunked".to_owned());
        stream.write_all(chunked.as_bytes()).unwrap();
        let chunk = format!("100000\r\n{}\r\n", "[".repeat(1 << 20));
        // The daemon may close the connection before everything is sent.
        (0..20).take_while(|_| stream.write_all(chunk.as_bytes()).is_ok()).count();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).unwrap_or_default();
        assert!(response.is_empty() || String::from_utf8_lossy(&response).contains(" 413 "));
    })
    .await
    .unwrap();
    assert_eq!(client.get("/api/servers").await, json!({ "servers": [] }));
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_clients_are_disconnected() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let slow = client.clone();
    tokio::task::spawn_blocking(move || {
        let connect = |text: &str| {
            let mut stream = TcpStream::connect(slow.addr).unwrap();
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            stream
        };
        let body = format!(
            "POST /api/servers HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: 100\r\n\r\n{{",
            slow.addr, slow.token
        );
        // Nothing, half a head, and half a body. In parallel, because each takes until its timeout.
        let streams = [connect(""), connect("GET / HT"), connect(&body)];
        for mut stream in streams {
            let mut response = Vec::new();
            // A 408 or a closed connection are fine; an open connection is not.
            if let Err(error) = stream.read_to_end(&mut response) {
                assert_ne!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock,
                    "the connection is still open"
                );
            }
            let response = String::from_utf8_lossy(&response).into_owned();
            assert!(response.is_empty() || response.starts_with("HTTP/1.1 408 "), "{response}");
        }
    })
    .await
    .unwrap();
    assert_eq!(client.get("/api/servers").await, json!({ "servers": [] }));
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn static_files_hold_no_data_and_all_responses_have_security_headers() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let own = client.addr.to_string();
    let page = |path: &'static str| {
        let bytes =
            encode_request("GET", path, &[("host", own.as_str()), ("sec-fetch-site", "none")], "");
        let addr = client.addr;
        async move { tokio::task::spawn_blocking(move || send(addr, &bytes)).await.unwrap().unwrap() }
    };
    for path in ["/", "/app.js", "/healthz", "/nowhere", "/api/tools"] {
        let response = page(path).await;
        let policy = response.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(
            policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        let headers =
            ["x-content-type-options", "referrer-policy", "x-frame-options", "cache-control"];
        let found: Vec<_> = headers.iter().filter_map(|name| response.header(name)).collect();
        assert_eq!(found, ["nosniff", "no-referrer", "DENY", "no-store"], "{path}");
        assert_no_data(&response, path);
        assert!(!response.body.contains(&client.token));
    }
    assert!(page("/").await.body.contains("<script type=\"module\" src=\"/app.js\"></script>"));
    assert_eq!(page("/healthz").await.body, "ok\n");
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn login_code_is_exchanged_for_a_token_once() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let link = client.post("/api/daemon/link", json!({})).await;
    let url = link["url"].as_str().unwrap();
    let (page, code) = url.split_once("#code=").unwrap();
    assert_eq!(page, format!("http://{}/", client.addr));
    let unauthenticated = Client { token: "none".to_owned(), ..client.clone() };
    let login = json!({ "code": code });
    let wrong = unauthenticated.request("POST", "/api/login", Some(json!({ "code": "x" }))).await;
    check_problem(&wrong, 401, "UNAUTHORIZED", None);
    let login_response = unauthenticated.post("/api/login", login.clone()).await;
    let browser =
        Client { token: login_response["token"].as_str().unwrap().to_owned(), ..client.clone() };
    assert_ne!(browser.token, client.token);
    assert_eq!(browser.get("/api/tools").await, json!({ "tools": [] }));
    let again = unauthenticated.request("POST", "/api/login", Some(login)).await;
    check_problem(&again, 401, "UNAUTHORIZED", None);
    fixture.shutdown(daemon).await;
}
