//! Requests that must not get in, whatever they try: every combination is refused, with no data and no effect.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::json;

use crate::http::{Answer, PATIENCE, request, send};
use crate::openapi::routes;
use crate::stage::{Client, Stage, check_problem};

const CANARY: &str = "canary-server";

/// Paths that are served without a key, and hold no data.
const OPEN: [(&str, &str); 4] =
    [("GET", "/healthz"), ("GET", "/"), ("GET", "/app.js"), ("POST", "/api/login")];

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

/// Sends a request, and sees that it was refused in a way that tells nothing.
#[track_caller]
fn refused(addr: SocketAddr, bytes: &[u8], expected: &[u16]) {
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    let answer = send(addr, bytes).unwrap_or_else(|error| panic!("{error}: {shown}"));
    assert!(expected.contains(&answer.status), "{shown}\n{answer:?}");
    harmless(&answer, &shown);
}

#[track_caller]
fn harmless(answer: &Answer, shown: &str) {
    assert!(!answer.body.contains(CANARY), "{shown}\n{answer:?}");
    assert_eq!(answer.header("set-cookie"), None, "{shown}");
    assert_eq!(answer.header("access-control-allow-origin"), None, "{shown}");
}

/// The matrix: every route × whatever is wrong with the head.
#[tokio::test(flavor = "multi_thread")]
async fn every_hostile_head_is_refused_on_every_route() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    let mut document = stage.scripted(CANARY, &[]);
    document["enabled"] = json!(false);
    client.post("/api/servers", document).await;
    let before = std::fs::read(stage.home().config_file()).unwrap();
    let matrix = client.clone();
    let n = tokio::task::spawn_blocking(move || matrix_of(&matrix)).await.unwrap();
    assert!(n > 1000, "{n} requests");
    assert_eq!(std::fs::read(stage.home().config_file()).unwrap(), before);
    assert_eq!(client.ask("GET", "/readyz", None).await.status, 200);
    stage.end(daemon).await;
}

fn matrix_of(client: &Client) -> usize {
    let (own, port) = (client.addr.to_string(), client.addr.port());
    let key = format!("Bearer {}", client.token);
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
    let keys = ["", "Bearer", "Bearer x", "Basic dXNlcg==", &client.token];
    let mut n = 0;
    for (method, path) in all_routes() {
        let body = if method == "GET" { "" } else { r#"{"name":"x"}"# };
        let mut check = |headers: &[(&str, &str)], path: &str, expected: &[u16]| {
            let mut all = vec![("content-type", "application/json")];
            all.extend(headers);
            refused(client.addr, &request(&method, path, &all, body), expected);
            n += 1;
        };
        for host in &hosts {
            check(&[("host", host), ("authorization", &key)], &path, &[403]);
        }
        for origin in &origins {
            check(&[("host", &own), ("authorization", &key), ("origin", origin)], &path, &[403]);
        }
        for site in sites {
            check(
                &[("host", &own), ("authorization", &key), ("sec-fetch-site", site)],
                &path,
                &[403],
            );
        }
        if OPEN.contains(&(method.as_str(), path.as_str())) {
            continue;
        }
        for key in keys {
            let headers: &[(&str, &str)] = &[("host", &own), ("authorization", key)];
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
async fn what_is_no_honest_request_is_refused() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    let (addr, own) = (client.addr, client.addr.to_string());
    let key = format!("authorization: Bearer {}\r\n", client.token);
    tokio::task::spawn_blocking(move || {
        let raw = |text: String| text.into_bytes();
        let check = |text: String, expected: &[u16]| refused(addr, &raw(text), expected);
        // Without a host, with two, or with one in the request line.
        check(format!("GET /api/tools HTTP/1.0\r\n{key}\r\n"), &[400, 403]);
        check(format!("GET /api/tools HTTP/1.1\r\n{key}connection: close\r\n\r\n"), &[400, 403]);
        let two = format!("host: {own}\r\nhost: {own}\r\n");
        check(format!("GET /api/tools HTTP/1.1\r\n{two}{key}connection: close\r\n\r\n"), &[400, 403]);
        let elsewhere = "GET http://evil.example/api/tools HTTP/1.1\r\n";
        check(format!("{elsewhere}host: {own}\r\n{key}connection: close\r\n\r\n"), &[400, 403]);
        // Two keys are no key.
        let keys = format!("{key}{key}");
        check(format!("GET /api/tools HTTP/1.1\r\nhost: {own}\r\n{keys}connection: close\r\n\r\n"), &[401]);
        // Paths that look like the page.
        for path in ["//", "/./", "/../", "/%2e%2e/", "/app.js/", "/APP.JS", "/app.js%00", "/\\", "/index.html", "/assets/../api/tools", "/app.js/../api/tools"] {
            check(format!("GET {path} HTTP/1.1\r\nhost: {own}\r\nconnection: close\r\n\r\n"), &[400, 401]);
        }
        // The page by another method, and a preflight.
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"] {
            check(format!("{method} / HTTP/1.1\r\nhost: {own}\r\nconnection: close\r\n\r\n"), &[401]);
        }
        let preflight = "origin: http://evil.example\r\naccess-control-request-method: POST\r\n";
        check(format!("OPTIONS /api/servers HTTP/1.1\r\nhost: {own}\r\n{preflight}connection: close\r\n\r\n"), &[403]);
        // A head that is too large, or has too many lines.
        let long = "x".repeat(256 << 10);
        check(format!("GET /api/tools?{long} HTTP/1.1\r\nhost: {own}\r\n\r\n"), &[400, 414, 431]);
        let many = "a: b\r\n".repeat(200);
        check(format!("GET /api/tools HTTP/1.1\r\nhost: {own}\r\n{many}\r\n"), &[400, 431]);
        // Lengths that disagree.
        let smuggled = "content-length: 5\r\ntransfer-encoding: chunked\r\n";
        check(format!("POST /api/login HTTP/1.1\r\nhost: {own}\r\ncontent-type: application/json\r\n{smuggled}connection: close\r\n\r\n0\r\n\r\n"), &[400]);
    })
    .await
    .unwrap();
    stage.end(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_have_their_bounds() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    let honest = client.clone();
    tokio::task::spawn_blocking(move || {
        let own = honest.addr.to_string();
        let key = format!("Bearer {}", honest.token);
        let head = [("host", own.as_str()), ("authorization", &key)];
        let with = |kind: &'static str| [head[0], head[1], ("content-type", kind)];
        for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
            let bytes = request("POST", "/api/servers", &with(kind), "{}");
            check_problem(&send(honest.addr, &bytes).unwrap(), 415, "VALIDATION_ERROR", None);
        }
        let bytes = request("POST", "/api/servers", &with("application/json"), "{");
        check_problem(&send(honest.addr, &bytes).unwrap(), 400, "VALIDATION_ERROR", None);
        // Announced as too large: refused before it is sent.
        let announced = format!(
            "POST /api/calls HTTP/1.1\r\nhost: {own}\r\nauthorization: {key}\r\ncontent-type: application/json\r\n\
             content-length: 99999999999\r\nconnection: close\r\n\r\n"
        );
        let answer = send(honest.addr, announced.as_bytes()).unwrap();
        check_problem(&answer, 413, "VALIDATION_ERROR", None);
        // Not announced: refused when it becomes too large.
        let mut stream = TcpStream::connect(honest.addr).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let chunked = announced.replace("content-length: 99999999999", "transfer-encoding: chunked");
        stream.write_all(chunked.as_bytes()).unwrap();
        let chunk = format!("100000\r\n{}\r\n", "[".repeat(1 << 20));
        // It may be cut off before everything is sent.
        (0..20).take_while(|_| stream.write_all(chunk.as_bytes()).is_ok()).count();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap_or_default();
        assert!(answer.is_empty() || String::from_utf8_lossy(&answer).contains(" 413 "));
    })
    .await
    .unwrap();
    assert_eq!(client.get("/api/servers").await, json!({ "servers": [] }));
    stage.end(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_too_slowly_is_cut_off() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    let slow = client.clone();
    tokio::task::spawn_blocking(move || {
        let connect = |text: &str| {
            let mut stream = TcpStream::connect(slow.addr).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            stream
        };
        let body = format!(
            "POST /api/servers HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: 100\r\n\r\n{{",
            slow.addr, slow.token
        );
        // Nothing, half a head, and half a body: all three at once, because each takes its time.
        let streams = [connect(""), connect("GET / HT"), connect(&body)];
        for mut stream in streams {
            let mut answer = Vec::new();
            // Told so or cut off, but not kept.
            if let Err(error) = stream.read_to_end(&mut answer) {
                assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "it was kept");
            }
            let answer = String::from_utf8_lossy(&answer).into_owned();
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{answer}");
        }
    })
    .await
    .unwrap();
    assert_eq!(client.get("/api/servers").await, json!({ "servers": [] }));
    stage.end(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_holds_no_data_and_every_answer_has_its_headers() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    let own = client.addr.to_string();
    let page = |path: &'static str| {
        let bytes = request("GET", path, &[("host", own.as_str()), ("sec-fetch-site", "none")], "");
        let addr = client.addr;
        async move { tokio::task::spawn_blocking(move || send(addr, &bytes)).await.unwrap().unwrap() }
    };
    for path in ["/", "/app.js", "/healthz", "/nowhere", "/api/tools"] {
        let answer = page(path).await;
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(
            policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        let headers =
            ["x-content-type-options", "referrer-policy", "x-frame-options", "cache-control"];
        let found: Vec<_> = headers.iter().filter_map(|it| answer.header(it)).collect();
        assert_eq!(found, ["nosniff", "no-referrer", "DENY", "no-store"], "{path}");
        harmless(&answer, path);
        assert!(!answer.body.contains(&client.token));
    }
    assert!(page("/").await.body.contains("<script type=\"module\" src=\"/app.js\"></script>"));
    assert_eq!(page("/healthz").await.body, "ok\n");
    stage.end(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_gets_its_key_once_for_the_code_in_its_link() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    let link = client.post("/api/daemon/link", json!({})).await;
    let url = link["url"].as_str().unwrap();
    let (page, code) = url.split_once("#code=").unwrap();
    assert_eq!(page, format!("http://{}/", client.addr));
    let stranger = Client { token: "none".to_owned(), ..client.clone() };
    let login = json!({ "code": code });
    let wrong = stranger.ask("POST", "/api/login", Some(json!({ "code": "x" }))).await;
    check_problem(&wrong, 401, "UNAUTHORIZED", None);
    let key = stranger.post("/api/login", login.clone()).await;
    let guest = Client { token: key["token"].as_str().unwrap().to_owned(), ..client.clone() };
    assert_ne!(guest.token, client.token);
    assert_eq!(guest.get("/api/tools").await, json!({ "tools": [] }));
    let again = stranger.ask("POST", "/api/login", Some(login)).await;
    check_problem(&again, 401, "UNAUTHORIZED", None);
    stage.end(daemon).await;
}
