//! HTTP/1.1 responses written byte by byte: every framing that HTTP allows, and malformed ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;
use toolrack_http::HttpOptions;
use toolrack_transport::{Delivery, Transport as _};

use crate::fixture::{Fixture, SOON, STATELESS};

const BODY: &str = r#"{"jsonrpc":"2.0","id":ID,"result":{"ok":true}}"#;
const JSON: &str = "content-type: application/json\r\n";

/// What a server does after its response.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// Waits for the next request.
    Listen,
    Close,
}

struct RawServer {
    url: String,
    n_connections: Arc<AtomicUsize>,
    _tasks: TaskTracker,
}

/// Answers every request with these bytes, with `ID` replaced by the number of the request.
async fn server(answer: &'static str, then: Then) -> RawServer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let n_connections = Arc::new(AtomicUsize::new(0));
    let (tasks, counts) = (TaskTracker::new(), Arc::clone(&n_connections));
    tasks.spawn(async move {
        let mut id = 0;
        while let Ok((mut stream, _)) = listener.accept().await {
            counts.fetch_add(1, Ordering::SeqCst);
            while request(&mut stream).await.is_some() {
                id += 1;
                let answer = answer.replace("ID", &id.to_string());
                // One byte at a time, so that no read ends at a convenient boundary.
                for byte in answer.as_bytes() {
                    stream.write_all(&[*byte]).await.unwrap();
                }
                if then == Then::Close {
                    break;
                }
            }
        }
    });
    RawServer { url, n_connections, _tasks: tasks }
}

/// Reads one request to its end. `None` if the connection is closed.
async fn request(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1)?.split("\r\n").next()?;
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).await.ok()?;
    Some(head)
}

async fn stateless(url: &str) -> Fixture {
    let fixture = Fixture::open(url, HttpOptions::default()).await;
    fixture.transport.set_protocol_mode(STATELESS);
    fixture
}

/// Sends three requests and checks how many connections they took.
async fn check(answer: String, then: Then, n_connections: usize) {
    let answer: &'static str = answer.leak();
    let server = server(answer, then).await;
    let fixture = stateless(&server.url).await;
    for _ in 0..3 {
        let reply = fixture.request("tools/call").await;
        assert_eq!(reply.unwrap(), json!({"ok": true}), "{answer}");
    }
    assert_eq!(server.n_connections.load(Ordering::SeqCst), n_connections, "{answer}");
}

#[tokio::test]
async fn every_response_framing_is_understood() {
    let length = BODY.len() - 1;
    let whole = format!("HTTP/1.1 200 OK\r\n{JSON}Content-Length: {length}\r\n\r\n{BODY}");
    check(whole.clone(), Then::Listen, 1).await;
    let early = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n";
    check(format!("{early}{whole}"), Then::Listen, 1).await;
    let (first, rest) = BODY.split_at(9);
    let chunked = format!(
        "HTTP/1.1 200\r\n{JSON}transfer-encoding: chunked\r\n\r\n\
         9;name=value\r\n{first}\r\n{:x}\r\n{rest}\r\n0\r\nSome-Trailer: x\r\n\r\n",
        length - 9
    );
    check(chunked, Then::Listen, 1).await;
    let until_close = format!("HTTP/1.1 200 OK\r\n{JSON}\r\n{BODY}");
    check(until_close, Then::Close, 3).await;
    let old = format!("HTTP/1.0 200 OK\r\n{JSON}Content-Length: {length}\r\n\r\n{BODY}");
    check(old, Then::Close, 3).await;
    let closing = whole.replace(JSON, &format!("{JSON}Connection: close\r\n"));
    check(closing, Then::Close, 3).await;
}

/// Length and chunks at once: the response is read, and the connection is not trusted any more.
#[tokio::test]
async fn connection_with_conflicting_lengths_is_not_reused() {
    let length = BODY.len() - 1;
    let both = format!(
        "HTTP/1.1 200 OK\r\n{JSON}content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n\
         {length:x}\r\n{BODY}\r\n0\r\n\r\n"
    );
    check(both, Then::Close, 3).await;
}

/// Bytes after a response must not be taken for another response.
#[tokio::test]
async fn unsolicited_bytes_close_the_connection() {
    let length = BODY.len() - 1;
    let forged = BODY.replace("true", "1234");
    let more = format!(
        "HTTP/1.1 200 OK\r\n{JSON}Content-Length: {length}\r\n\r\n{BODY}\
         HTTP/1.1 200 OK\r\n{JSON}Content-Length: {length}\r\n\r\n{forged}"
    );
    let server = server(more.leak(), Then::Close).await;
    let fixture = stateless(&server.url).await;
    for _ in 0..3 {
        assert_eq!(fixture.request("tools/call").await.unwrap(), json!({"ok": true}));
    }
}

#[tokio::test]
async fn malformed_http_fails_the_request() {
    for (answer, expected) in [
        ("SSH-2.0-OpenSSH_9.2\r\n", "not HTTP"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabc", "two different"),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n", "switched protocols"),
        ("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-le", "closed before"),
        ("", "closed before"),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{",
            "middle",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            "chunk size",
        ),
    ] {
        let server = server(answer, Then::Close).await;
        let fixture = stateless(&server.url).await;
        let failure = fixture.request("tools/call").await.unwrap_err();
        let reply = with_causes(&failure.error);
        assert!(reply.contains(expected), "{answer}: {reply}");
        assert_eq!(failure.delivery, Delivery::Unknown, "{answer}");
    }
}

/// A server may reject a large message without having read it.
#[tokio::test]
async fn early_error_response_is_read_while_sending() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let tasks = TaskTracker::new();
    tasks.spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut part = [0; 512];
            stream.read_exact(&mut part).await.unwrap();
            let refusal = "HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(refusal.as_bytes()).await.unwrap();
            kept.push(stream);
        }
    });
    let fixture = stateless(&url).await;
    let large = Some(json!({"text": "x".repeat(16 << 20)}));
    let failure = fixture.request_with("tools/call", &large, SOON).await.unwrap_err();
    assert!(with_causes(&failure.error).contains("413"), "{}", with_causes(&failure.error));
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
