//! Connections: TLS, HTTP/2, proxies, Unix sockets and connection reuse.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;
use toolrack_http::{HttpOptions, ProxySettings};
use toolrack_transport::{Delivery, NoParams, Transport, TransportError};

use crate::fixture::{Fixture, STATELESS, wait_until};
use crate::server::{Reply, SeenRequest, Server, Step};

/// Server TLS config for `name`, and the root certificate that signs it.
fn tls(name: &str, protocols: &[&[u8]]) -> (ServerConfig, Vec<u8>) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    (config, issuer.pem().into_bytes())
}

fn echo(seen: &SeenRequest) -> Reply {
    Reply::result(seen, json!({"version": format!("{:?}", seen.version)}))
}

async fn stateless(url: &str, options: HttpOptions) -> Fixture {
    let fixture = Fixture::open(url, options).await;
    fixture.transport.set_protocol_mode(STATELESS);
    fixture
}

/// The transport stays open, and the next message may reach the server again.
#[tokio::test]
async fn handler_is_told_when_the_server_is_absent() {
    let server = Server::start(echo).await;
    let address = server.url.strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap();
    let fixture = stateless(&server.url, HttpOptions::default()).await;
    fixture.request("tools/list").await.unwrap();
    server.stop().await;
    let absent = format!("cannot connect to {}", server.url);
    for _ in 0..2 {
        let failure = Fixture::failure(fixture.request("tools/list").await);
        assert_eq!(failure, (absent.clone(), Delivery::NotSent));
    }
    let listener = TcpListener::bind(address).await.unwrap();
    let _renewed = Server::on(listener, |seen| match seen.method() {
        "tools/list" => echo(seen),
        _ => Reply::status(502),
    });
    fixture.request("tools/list").await.unwrap();
    // A server that responds is there, even with an error status.
    fixture.request("tools/call").await.unwrap_err();
    fixture.transport.close().await;
    assert_eq!(fixture.handler.events(), [&*absent, &*absent, "ended: closed by the client"]);
}

#[tokio::test]
async fn extra_root_certificate_is_trusted() {
    for (protocols, version) in
        [(&[b"h2".as_slice(), b"http/1.1"][..], "HTTP/2.0"), (&[b"http/1.1"], "HTTP/1.1")]
    {
        let (config, root) = tls("localhost", protocols);
        let server = Server::start_tls(config, echo).await;
        let options = HttpOptions { extra_roots: root, ..HttpOptions::default() };
        let fixture = stateless(&server.url, options).await;
        for _ in 0..3 {
            assert_eq!(fixture.request("tools/call").await.unwrap(), json!({"version": version}));
        }
        assert_eq!(server.n_connections(), 1);
        let untrusting = stateless(&server.url, HttpOptions::default()).await;
        let (text, delivery) = Fixture::failure(untrusting.request("tools/call").await);
        assert_eq!(text, format!("cannot connect to {}", server.url));
        assert_eq!(delivery, Delivery::NotSent);
        assert_eq!(server.seen().len(), 3);
    }
}

#[tokio::test]
async fn one_http2_connection_is_shared() {
    let (config, root) = tls("localhost", &[b"h2"]);
    let script = |seen: &SeenRequest| match seen.method() {
        "slow" => Reply::events().send(":\n\n").step(Step::Hold),
        _ => echo(seen),
    };
    let server = Server::start_tls(config, script).await;
    let options = HttpOptions { extra_roots: root, ..HttpOptions::default() };
    let fixture = stateless(&server.url, options).await;
    fixture.request("tools/list").await.unwrap();
    let slow = fixture.request_with("slow", &NoParams, Duration::from_millis(500));
    let quick = futures_util::future::join_all((0..20).map(|_| fixture.request("tools/call")));
    let (slow, quick) = tokio::join!(slow, quick);
    assert_eq!(Fixture::failure(slow).0, "request timed out after 500ms");
    for outcome in quick {
        outcome.unwrap();
    }
    // Abandoning a request resets its HTTP/2 stream and leaves the connection alone.
    wait_until("the stream is reset", || server.n_aborted_bodies() == 1).await;
    fixture.request("tools/call").await.unwrap();
    assert_eq!(server.n_connections(), 1);
    assert!(server.seen().iter().all(|request| request.header("mcp-protocol-version").is_some()));
    fixture.transport.close().await;
}

#[cfg(unix)]
#[tokio::test]
async fn unix_socket_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_unix(&folder.path().join("s.sock"), echo);
    let fixture = stateless(&server.url, HttpOptions::default()).await;
    fixture.request("tools/call").await.unwrap();
    fixture.request("tools/call").await.unwrap();
    let seen = server.seen();
    assert_eq!((seen[0].path.as_str(), seen[0].header("host")), ("/mcp", Some("localhost")));
    assert_eq!(server.n_connections(), 1);
}

/// Proxy that tunnels every host to one address and counts tunnels.
async fn proxy(to: String, n_tunnels: Arc<AtomicUsize>, tasks: &TaskTracker) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tasks.spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(client.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap();
            assert!(head.starts_with("CONNECT localhost.example:443 HTTP/1.1\r\n"), "{head}");
            assert!(head.contains("Proxy-Authorization: Basic bWU6cHc=\r\n"), "{head}");
            n_tunnels.fetch_add(1, Ordering::SeqCst);
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            let mut server = TcpStream::connect(&to).await.unwrap();
            let _closed = copy_bidirectional(&mut client, &mut server).await;
        }
    });
    format!("http://me:pw@{address}")
}

#[tokio::test]
async fn https_goes_through_a_connect_tunnel() {
    let (config, root) = tls("localhost.example", &[b"http/1.1"]);
    let server = Server::start_tls(config, echo).await;
    let to = server.url.replace("https://", "").replace("/mcp", "");
    let (n_tunnels, tasks) = (Arc::new(AtomicUsize::new(0)), TaskTracker::new());
    let https = Some(proxy(to, Arc::clone(&n_tunnels), &tasks).await);
    let settings = ProxySettings { https, ..ProxySettings::default() };
    let options = HttpOptions { extra_roots: root, proxy: settings, ..HttpOptions::default() };
    let fixture = stateless("https://localhost.example/mcp", options).await;
    fixture.request("tools/call").await.unwrap();
    assert_eq!(n_tunnels.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn http_goes_through_a_forwarding_proxy() {
    // The server plays the proxy: it sees the absolute URL.
    let server = Server::start(echo).await;
    let http = Some(server.url.replace("http://", "http://me:pw@").replace("/mcp", ""));
    let proxy = ProxySettings { http, ..ProxySettings::default() };
    let fixture =
        stateless("http://a.example/mcp", HttpOptions { proxy, ..HttpOptions::default() }).await;
    fixture.request("tools/call").await.unwrap();
    let seen = &server.seen()[0];
    assert_eq!(seen.header("host"), Some("a.example"));
    assert_eq!(seen.header("proxy-authorization"), Some("Basic bWU6cHc="));
}

#[tokio::test]
async fn open_connections_are_reused() {
    let server = Server::start(echo).await;
    let address = server.url.replace("http://", "").replace("/mcp", "");
    let fixture = stateless(&server.url, HttpOptions::default()).await;
    for _ in 0..50 {
        fixture.request("tools/call").await.unwrap();
    }
    assert_eq!(server.n_connections(), 1);
    let many = futures_util::future::join_all((0..16).map(|_| fixture.request("tools/call"))).await;
    assert!(many.into_iter().all(|outcome| outcome.is_ok()));
    assert!(server.n_connections() <= 16, "{}", server.n_connections());
    // The server restarts: connections that it closed are not reused.
    server.stop().await;
    let listener = TcpListener::bind(&address).await.unwrap();
    let server = Server::on(listener, echo);
    for _ in 0..20 {
        fixture.request("tools/call").await.unwrap();
    }
    assert_eq!(server.n_connections(), 1);
}

/// A server that closes a kept connection as soon as a byte arrives on it: whether it acted is unknown, so only
/// idempotent requests are sent again.
#[tokio::test]
async fn non_idempotent_request_is_not_sent_twice() {
    for (method, expected) in [("tools/list", None), ("tools/call", Some(Delivery::Unknown))] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let tasks = TaskTracker::new();
        let n_second = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&n_second);
        tasks.spawn(async move {
            let mut id = 0;
            while let Ok((mut stream, _)) = listener.accept().await {
                id += 1;
                message(&mut stream).await;
                let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
                let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
                stream.write_all(answer.as_bytes()).await.unwrap();
                if stream.read_u8().await.is_ok() {
                    counts.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        let fixture = stateless(&url, HttpOptions::default()).await;
        fixture.request("tools/call").await.unwrap();
        let outcome = fixture.request(method).await;
        assert_eq!(outcome.err().map(|failure| failure.delivery), expected, "{method}");
        assert_eq!(n_second.load(Ordering::SeqCst), 1);
    }
}

/// A server that vanishes after it got an idempotent request: the request may have arrived.
#[tokio::test]
async fn failed_reconnect_does_not_count_as_unsent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let tasks = TaskTracker::new();
    tasks.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        message(&mut stream).await;
        let body = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
        let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
        drop(listener);
        message(&mut stream).await;
    });
    let fixture = stateless(&url, HttpOptions::default()).await;
    fixture.request("tools/list").await.unwrap();
    let failure = fixture.request("tools/list").await.unwrap_err();
    assert!(matches!(failure.error, TransportError::Unreachable { .. }), "{failure}");
    assert_eq!(failure.delivery, Delivery::Unknown);
}

/// Reads one request to its end.
async fn message(stream: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
}
