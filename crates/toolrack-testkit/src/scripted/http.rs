//! Scripted server over HTTP: one thread per connection, and one that waits for the end of input.
//!
//! **Invariant:** the server exits at the end of stdin, so it never outlives a killed test.

mod endpoint;
mod gzip;
mod header_check;
mod request;
mod response;
mod response_head;
mod response_stream;
mod route;
mod session;

use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

pub(super) use response_stream::ReplyMode;
pub(super) use session::Sessions;

use self::endpoint::{Endpoint, OnDisconnect};
use self::response::{HttpResponse, RequestLogEntry, Socket};
use self::response_head::ResponseHead;
use super::child_process;
use super::client::{Client, MessageContext};
use super::options::Options;
use super::server::Server;
use crate::http_log::HttpLogWriter;
use crate::message_sink::PipeSink;

/// Further connections are closed at once.
const MAX_CONNECTIONS: usize = 4096;
/// A compressor alone takes several hundred KiB of stack in a debug build.
const STACK_BYTES: usize = 2 * 1024 * 1024;

/// Options of `--http`.
#[derive(Debug, Clone)]
pub(super) struct HttpOptions {
    pub(super) listen: SocketAddr,
    pub(super) shape: Shape,
    pub(super) reply_mode: ReplyMode,
    pub(super) event_ids: bool,
    pub(super) retry: Option<Duration>,
    pub(super) comments: Option<Duration>,
    pub(super) endpoint: EndpointForm,
    pub(super) log: Option<PathBuf>,
    /// Bound addresses: the server's own, and one for another origin.
    pub(super) bound: Option<(SocketAddr, SocketAddr)>,
}

/// HTTP transport that the server offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// No sessions.
    Stateless,
    Session,
    /// HTTP+SSE with two endpoints, as in 2024-11-05.
    Sse,
    /// Stateless for 2026-07-28, sessions for older revisions.
    Dual,
}

/// Form of the message URL in 2024-11-05.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndpointForm {
    Relative,
    Absolute,
    /// On another origin, which a client must reject.
    Foreign,
}

impl EndpointForm {
    fn uri(self, options: &HttpOptions, session: &str) -> String {
        let path = format!("/messages?session={session}");
        match (self, options.bound) {
            (Self::Absolute, Some((address, _))) => format!("http://{address}{path}"),
            (Self::Foreign, Some((_, other))) => {
                format!("http://{other}{path}")
            }
            _ => path,
        }
    }
}

pub(super) fn serve(options: Options, mut http: HttpOptions) -> io::Result<ExitCode> {
    let (own, other) = (TcpListener::bind(http.listen)?, TcpListener::bind("127.0.0.1:0")?);
    http.bound = Some((own.local_addr()?, other.local_addr()?));
    let log = http.log.as_deref().map(HttpLogWriter::open).transpose()?.map(Arc::new);
    let lifetime = options.lifetime;
    let server = Server::new(options)?;
    let detached = MessageContext::for_client(&Client::new(Arc::new(PipeSink::new(io::sink()))));
    server.start(&detached);
    let endpoint = Endpoint { server: Arc::clone(&server), options: http };
    let handler = Arc::new(ConnectionHandler {
        endpoint,
        log,
        n_requests: AtomicU64::new(0),
        n_connections: AtomicUsize::new(0),
    });
    let line = format!("listening http://{}/mcp\n", own.local_addr()?);
    for listener in [own, other] {
        let handler = Arc::clone(&handler);
        thread::spawn(move || handler.accept_loop(&listener));
    }
    io::stdout().write_all(line.as_bytes()).and_then(|()| io::stdout().flush())?;
    wait_for_end_of_input(lifetime);
    server.end_of_input(&detached);
    Ok(ExitCode::SUCCESS)
}

/// Without a usable stdin, the lifetime is the limit.
fn wait_for_end_of_input(lifetime: Duration) {
    let is_device = rustix::fs::fstat(io::stdin())
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_char_device());
    let read = io::stdin().lock().read_to_end(&mut Vec::new());
    if is_device && matches!(read, Ok(0)) {
        child_process::sleep_then_exit(lifetime);
    }
}

/// State shared by all connections.
struct ConnectionHandler {
    endpoint: Endpoint,
    log: Option<Arc<HttpLogWriter>>,
    n_requests: AtomicU64,
    n_connections: AtomicUsize,
}

impl ConnectionHandler {
    fn accept_loop(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming().flatten() {
            if self.n_connections.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
                self.n_connections.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let handler = Arc::clone(self);
            let started = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
                // The client may have disconnected already.
                handler.serve_connection(stream).unwrap_or_default();
                handler.n_connections.fetch_sub(1, Ordering::Relaxed);
            });
            if started.is_err() {
                self.n_connections.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Serves one connection until the client disconnects.
    fn serve_connection(&self, stream: TcpStream) -> io::Result<()> {
        let socket = Arc::new(Socket::new(stream)?);
        let mut input = BufReader::new(socket.stream());
        let mut output = socket.stream();
        let mut open: Option<(Arc<HttpResponse>, OnDisconnect)> = None;
        // An invalid request closes the connection.
        while let Some(request) = request::read(&mut input, &mut output).unwrap_or_default() {
            // Responses leave in the order of the requests.
            if let Some((response, _)) = &open
                && !response.wait(self.endpoint.server.options.lifetime)
            {
                break;
            }
            if self.endpoint.server.has_stopped_reading() {
                child_process::sleep_then_exit(self.endpoint.server.options.lifetime);
            }
            let number = self.n_requests.fetch_add(1, Ordering::Relaxed) + 1;
            let log_entry = RequestLogEntry::arrived(self.log.as_ref(), number, &request);
            let response =
                HttpResponse::new(Arc::clone(&socket), log_entry, self.head(&request.path));
            let on_disconnect = self.endpoint.serve(&request, &response);
            if let Some((_, old)) = open.replace((response, on_disconnect)) {
                self.endpoint.handle_disconnect(old);
            }
        }
        socket.close();
        if let Some((response, on_disconnect)) = open {
            response.client_closed();
            self.endpoint.handle_disconnect(on_disconnect);
        }
        Ok(())
    }

    fn head(&self, path: &str) -> ResponseHead {
        let (url, other_origin_url) =
            self.endpoint.options.bound.map_or_else(Default::default, |(a, b)| {
                (format!("http://{a}{path}"), format!("http://{b}{path}"))
            });
        ResponseHead::new(url, other_origin_url)
    }
}
