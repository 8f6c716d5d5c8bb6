//! The ways to a server: TLS, HTTP/2, proxies, sockets in the file system, connections used again.

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
use toolrack_transport::NoParams;
use toolrack_transport::{Delivery, Line};

use crate::server::{Said, Seen, Server, Step};
use crate::stage::{MODERN, Stage, until};

/// A server's side of TLS under `name`, and the certificate that vouches for it.
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
    config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
    (config, issuer.pem().into_bytes())
}

fn echo(seen: &Seen) -> Said {
    Said::result(seen, json!({"version": format!("{:?}", seen.version)}))
}

async fn modern(url: &str, options: HttpOptions) -> Stage {
    let stage = Stage::open(url, options).await;
    stage.line.speak(MODERN);
    stage
}

/// The line goes on, and the next message may find the server again.
#[tokio::test]
async fn the_owner_of_a_line_is_told_when_nobody_is_there() {
    let server = Server::start(echo).await;
    let address = server.url.strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap();
    let stage = modern(&server.url, HttpOptions::default()).await;
    stage.ask("tools/list").await.unwrap();
    server.stop().await;
    let nobody = format!("no connection to {}", server.url);
    for _ in 0..2 {
        let failure = Stage::failure(stage.ask("tools/list").await);
        assert_eq!(failure, (nobody.clone(), Delivery::NotSent));
    }
    let listener = TcpListener::bind(address).await.unwrap();
    let _renewed = Server::on(listener, |seen| match seen.method() {
        "tools/list" => echo(seen),
        _ => Said::status(502),
    });
    stage.ask("tools/list").await.unwrap();
    // A server that answers is there, whatever it says.
    stage.ask("tools/call").await.unwrap_err();
    stage.line.close().await;
    assert_eq!(stage.diary.read(), [&*nobody, &*nobody, "ended: closed by us"]);
}

#[tokio::test]
async fn a_certificate_of_our_own_is_trusted_when_we_say_so() {
    for (protocols, version) in
        [(&[b"h2".as_slice(), b"http/1.1"][..], "HTTP/2.0"), (&[b"http/1.1"], "HTTP/1.1")]
    {
        let (config, root) = tls("localhost", protocols);
        let server = Server::start_tls(config, echo).await;
        let options = HttpOptions { extra_roots: root, ..HttpOptions::default() };
        let stage = modern(&server.url, options).await;
        for _ in 0..3 {
            assert_eq!(stage.ask("tools/call").await.unwrap(), json!({"version": version}));
        }
        assert_eq!(server.n_connections(), 1);
        let stranger = modern(&server.url, HttpOptions::default()).await;
        let (text, delivery) = Stage::failure(stranger.ask("tools/call").await);
        assert_eq!(text, format!("no connection to {}", server.url));
        assert_eq!(delivery, Delivery::NotSent);
        assert_eq!(server.seen().len(), 3);
    }
}

#[tokio::test]
async fn one_connection_of_the_newer_kind_serves_everybody() {
    let (config, root) = tls("localhost", &[b"h2"]);
    let script = |seen: &Seen| match seen.method() {
        "slow" => Said::events().say(":\n\n").step(Step::Hold),
        _ => echo(seen),
    };
    let server = Server::start_tls(config, script).await;
    let options = HttpOptions { extra_roots: root, ..HttpOptions::default() };
    let stage = modern(&server.url, options).await;
    stage.ask("tools/list").await.unwrap();
    let slow = stage.ask_with("slow", &NoParams, Duration::from_millis(500));
    let quick = futures_util::future::join_all((0..20).map(|_| stage.ask("tools/call")));
    let (slow, quick) = tokio::join!(slow, quick);
    assert_eq!(Stage::failure(slow).0, "request timed out after 500ms");
    for outcome in quick {
        outcome.unwrap();
    }
    // Giving up resets the stream and leaves the connection alone.
    until("the stream is reset", || server.n_left() == 1).await;
    stage.ask("tools/call").await.unwrap();
    assert_eq!(server.n_connections(), 1);
    assert!(server.seen().iter().all(|it| it.header("mcp-protocol-version").is_some()));
    stage.line.close().await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_server_may_listen_in_the_file_system() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_unix(&folder.path().join("s.sock"), echo);
    let stage = modern(&server.url, HttpOptions::default()).await;
    stage.ask("tools/call").await.unwrap();
    stage.ask("tools/call").await.unwrap();
    let seen = server.seen();
    assert_eq!((seen[0].path.as_str(), seen[0].header("host")), ("/mcp", Some("localhost")));
    assert_eq!(server.n_connections(), 1);
}

/// Takes everything to one place, whatever name it is asked for, and counts tunnels.
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
            let _gone = copy_bidirectional(&mut client, &mut server).await;
        }
    });
    format!("http://me:pw@{address}")
}

#[tokio::test]
async fn a_tunnel_leads_through_a_proxy() {
    let (config, root) = tls("localhost.example", &[b"http/1.1"]);
    let server = Server::start_tls(config, echo).await;
    let to = server.url.replace("https://", "").replace("/mcp", "");
    let (n_tunnels, tasks) = (Arc::new(AtomicUsize::new(0)), TaskTracker::new());
    let https = Some(proxy(to, Arc::clone(&n_tunnels), &tasks).await);
    let settings = ProxySettings { https, ..ProxySettings::default() };
    let options = HttpOptions { extra_roots: root, proxy: settings, ..HttpOptions::default() };
    let stage = modern("https://localhost.example/mcp", options).await;
    stage.ask("tools/call").await.unwrap();
    assert_eq!(n_tunnels.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_plain_request_is_handed_to_the_proxy_whole() {
    // The server plays the proxy: it sees the whole address.
    let server = Server::start(echo).await;
    let http = Some(server.url.replace("http://", "http://me:pw@").replace("/mcp", ""));
    let proxy = ProxySettings { http, ..ProxySettings::default() };
    let stage =
        modern("http://a.example/mcp", HttpOptions { proxy, ..HttpOptions::default() }).await;
    stage.ask("tools/call").await.unwrap();
    let seen = &server.seen()[0];
    assert_eq!(seen.header("host"), Some("a.example"));
    assert_eq!(seen.header("proxy-authorization"), Some("Basic bWU6cHc="));
}

#[tokio::test]
async fn connections_are_used_again_and_only_while_they_are_good() {
    let server = Server::start(echo).await;
    let address = server.url.replace("http://", "").replace("/mcp", "");
    let stage = modern(&server.url, HttpOptions::default()).await;
    for _ in 0..50 {
        stage.ask("tools/call").await.unwrap();
    }
    assert_eq!(server.n_connections(), 1);
    let many = futures_util::future::join_all((0..16).map(|_| stage.ask("tools/call"))).await;
    assert!(many.into_iter().all(|it| it.is_ok()));
    assert!(server.n_connections() <= 16, "{}", server.n_connections());
    // The server goes and comes back: what it closed is not used again.
    server.stop().await;
    let listener = TcpListener::bind(&address).await.unwrap();
    let server = Server::on(listener, echo);
    for _ in 0..20 {
        stage.ask("tools/call").await.unwrap();
    }
    assert_eq!(server.n_connections(), 1);
}

/// A server that closes a kept connection as soon as something comes on it: whether it acted cannot be
/// known, so only what is harmless is sent again.
#[tokio::test]
async fn what_may_have_been_heard_is_not_said_twice() {
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
        let stage = modern(&url, HttpOptions::default()).await;
        stage.ask("tools/call").await.unwrap();
        let outcome = stage.ask(method).await;
        assert_eq!(outcome.err().map(|failure| failure.delivery), expected, "{method}");
        assert_eq!(n_second.load(Ordering::SeqCst), 1);
    }
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
