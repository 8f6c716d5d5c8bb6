//! Connections of hostile peers: those that never read, never authenticate or send malformed requests.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};
use serde_json::{Value, json};
use tokio::time::Instant;
use toolrack_daemon::{ConnectionOptions, Daemon, DaemonOptions};

use crate::fixture::{Client, Fixture, check_problem, eventually, options, request_unix};

const MAX_UNAUTHENTICATED: usize = 16;

async fn start(fixture: &Fixture) -> (Daemon, Client) {
    let connections = ConnectionOptions {
        max_connections: 32,
        max_unauthenticated: MAX_UNAUTHENTICATED,
        write_timeout: Duration::from_secs(2),
    };
    let options = DaemonOptions { connections, ..options() };
    let daemon = Daemon::start(fixture.home(), options).await.unwrap();
    let client = fixture.client(&daemon);
    (daemon, client)
}

/// A connection that requests a static file many times and never reads.
fn connect_without_reading(addr: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_nonblocking(true).unwrap();
    send_without_reading(&mut stream, addr);
    stream
}

/// Sends as much as the kernel takes. `false` if the daemon has closed the connection.
fn send_without_reading(stream: &mut TcpStream, addr: SocketAddr) -> bool {
    let requests = format!("GET /style.css HTTP/1.1\r\nhost: {addr}\r\n\r\n").repeat(200);
    let sent = stream.write(requests.as_bytes());
    sent.map_or_else(|error| error.kind() == ErrorKind::WouldBlock, |n_bytes| n_bytes > 0)
}

/// A connection that takes less than one response, reads nothing and lets the daemon close it.
fn request_without_reading(addr: SocketAddr) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&socket, 2304).unwrap();
    connect(&socket, &addr).unwrap();
    let mut stream = TcpStream::from(socket);
    let request = format!("GET /style.css HTTP/1.1\r\nhost: {addr}\r\n");
    let requests = format!("{request}\r\n{request}\r\n{request}connection: close\r\n\r\n");
    stream.write_all(requests.as_bytes()).unwrap();
    stream
}

/// Bytes that wait in the kernel for peers of the daemon, also on connections that it has closed.
fn unread_bytes(addr: SocketAddr) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let local = format!(":{:04X}", addr.port());
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let own = rows.filter(|row| row.len() > 4 && row[1].ends_with(&local));
    let queue = |row: Vec<&str>| usize::from_str_radix(row[4].split(':').next().unwrap(), 16);
    own.map(|row| queue(row).unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_never_read_do_not_keep_out_clients() {
    let fixture = Fixture::new();
    let (daemon, client) = start(&fixture).await;
    let addr = client.addr;
    let mut hostile: Vec<TcpStream> = Vec::new();
    // More than all places of the daemon together.
    for n_connections in 1..=100 {
        hostile.push(connect_without_reading(addr));
        if n_connections % 20 == 0 {
            let started = Instant::now();
            client.get("/api/daemon").await;
            assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
            // Also without a token, in a place that an older connection has to leave.
            assert_eq!(client.request("GET", "/healthz", None).await.status, 200);
            assert_eq!(request_unix(&daemon, "GET", "/readyz").await.status, 200);
        }
    }
    let n_bytes = unread_bytes(addr);
    assert!(n_bytes <= 2 * MAX_UNAUTHENTICATED * (128 << 10), "{n_bytes}");
    eventually("all of them are closed", async || {
        hostile.retain_mut(|stream| send_without_reading(stream, addr));
        hostile.is_empty()
    })
    .await;
    eventually("the kernel keeps nothing", async || unread_bytes(addr) == 0).await;
    fixture.shutdown(daemon).await;
}

/// The kernel would keep the responses of closed connections, which have no place any more.
#[tokio::test(flavor = "multi_thread")]
async fn closed_connections_keep_no_unread_data() {
    const N_CONNECTIONS: usize = 10 * MAX_UNAUTHENTICATED;
    let fixture = Fixture::new();
    let (daemon, client) = start(&fixture).await;
    let addr = client.addr;
    for ends_own_side in [false, true] {
        let connect = move || {
            let connect = |_| {
                let stream = request_without_reading(addr);
                if ends_own_side {
                    stream.shutdown(Shutdown::Write).unwrap();
                }
                stream
            };
            (0..N_CONNECTIONS).map(connect).collect::<Vec<_>>()
        };
        let hostile = tokio::task::spawn_blocking(connect).await.unwrap();
        // Both ways to end a connection leave room for clients.
        assert_eq!(client.request("GET", "/healthz", None).await.status, 200);
        client.get("/api/daemon").await;
        let started = Instant::now();
        eventually("only open connections have unread data", async || {
            unread_bytes(addr) <= 2 * MAX_UNAUTHENTICATED * (64 << 10)
        })
        .await;
        eventually("the kernel keeps nothing", async || unread_bytes(addr) == 0).await;
        assert!(started.elapsed() < Duration::from_secs(12), "{:?}", started.elapsed());
        drop(hostile);
    }
    fixture.shutdown(daemon).await;
}

/// The write timeout holds for clients with a token too, and for the Unix socket.
#[tokio::test(flavor = "multi_thread")]
async fn client_that_stops_reading_is_closed() {
    let fixture = Fixture::new();
    let (daemon, client) = start(&fixture).await;
    let mut stream = TcpStream::connect(client.addr).unwrap();
    stream.set_nonblocking(true).unwrap();
    let request = client.bytes("GET", "/api/openapi.json", None);
    let request = String::from_utf8(request).unwrap().replace("connection: close\r\n", "");
    stream.write_all(request.repeat(40).as_bytes()).unwrap();
    let addr = client.addr;
    let mut unix = std::os::unix::net::UnixStream::connect(daemon.socket()).unwrap();
    unix.set_nonblocking(true).unwrap();
    unix.write_all("GET /style.css HTTP/1.1\r\nhost: x\r\n\r\n".repeat(1000).as_bytes()).unwrap();
    eventually("the connection is closed", async || !send_without_reading(&mut stream, addr)).await;
    eventually("the Unix connection is closed", async || {
        unix.write(b"G").is_err_and(|error| error.kind() != ErrorKind::WouldBlock)
    })
    .await;
    fixture.shutdown(daemon).await;
}

/// An idle connection that has authenticated keeps its place however many others come.
#[tokio::test(flavor = "multi_thread")]
async fn authenticated_connection_is_never_replaced() {
    let fixture = Fixture::new();
    let (daemon, client) = start(&fixture).await;
    let request = String::from_utf8(client.bytes("GET", "/readyz", None)).unwrap();
    let request = request.replace("connection: close\r\n", "");
    let mut kept = TcpStream::connect(client.addr).unwrap();
    kept.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut ask = || {
        kept.write_all(request.as_bytes()).unwrap();
        let mut response = Vec::new();
        let mut byte = [0];
        while !response.ends_with(b"}}") {
            kept.read_exact(&mut byte).unwrap();
            response.extend(byte);
        }
        assert!(response.starts_with(b"HTTP/1.1 200"));
    };
    ask();
    let others: Vec<TcpStream> =
        (0..3 * MAX_UNAUTHENTICATED).map(|_| connect_without_reading(client.addr)).collect();
    ask();
    drop(others);
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_requests_get_a_problem() {
    let fixture = Fixture::new();
    let (daemon, client) = start(&fixture).await;
    let check = async |method: &str, path: &str, body: Option<Value>, status: u16, code: &str| {
        let response = client.request(method, path, body).await;
        let found = response.json();
        assert_eq!((response.status, found["code"].as_str()), (status, Some(code)), "{path:.80}");
    };
    let invalid = "VALIDATION_ERROR";
    for path in ["/api/calls/%ff", "/api/servers/%ff", "/mcp/%ff", "/mcp/server/%ff"] {
        check("GET", path, None, 400, invalid).await;
    }
    check("DELETE", "/api/secrets/%ff", None, 400, invalid).await;
    check("GET", "/api/nowhere", None, 404, "NOT_FOUND").await;
    check("DELETE", "/api/servers", None, 405, invalid).await;
    check("GET", "/api/calls?limit=x", None, 400, invalid).await;
    check("GET", &format!("/api/calls?server={}", "x".repeat(33_000)), None, 431, invalid).await;
    let large = json!({ "name": "x".repeat(300_000) });
    check("POST", "/api/servers/check", Some(large), 413, invalid).await;
    let code = json!({ "code": "x".repeat(5_000) });
    check("POST", "/api/login", Some(code), 413, invalid).await;
    let members: serde_json::Map<String, Value> =
        (0..10_000).map(|number| (format!("member-{number}"), json!(1))).collect();
    let response = client.request("POST", "/api/servers/check", Some(members.into())).await;
    let n_errors = response.json()["errors"].as_array().unwrap().len();
    assert!(response.status == 422 && n_errors <= 100, "{n_errors}");
    for name in ["a\u{202e}b", "a\u{200b}b", "a\u{e0041}b", "a\u{1b}[1mb"] {
        let response =
            client.request("POST", "/api/servers", Some(fixture.scripted(name, &[]))).await;
        check_problem(&response, 422, invalid, Some("name"));
    }
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_home_is_not_written_to() {
    let fixture = Fixture::new();
    let (daemon, client) = start(&fixture).await;
    client.add(&fixture.scripted("one", &[])).await;
    // The daemon may create a file, such as a server's log, while its directory is being removed.
    let dir = fixture.dir.path();
    eventually("the home is removed", async || {
        std::fs::remove_dir_all(dir).is_ok() || !dir.exists()
    })
    .await;
    let response = client.request("POST", "/api/servers", Some(fixture.scripted("two", &[]))).await;
    check_problem(&response, 409, "CONFLICT", None);
    assert!(!fixture.home().config_file().exists());
    let echo = json!({ "tool": "one_echo", "arguments": { "text": "x" } });
    client.post("/api/calls", echo).await;
    daemon.shutdown().await;
}
