//! The scripted server over HTTP: a thread for each connection, and one that waits for the end of the input.
//!
//! **Invariant:** the server ends when its input does, so a test that dies takes its servers along.

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

pub(super) use response_stream::Replies;
pub(super) use session::Sessions;

use self::endpoint::{Bond, Endpoint};
use self::response::Note;
use self::response::Reply;
use self::response::Socket;
use self::response_head::Head;
use super::child_process;
use super::client::{Client, Origin};
use super::options::Options;
use super::server::Server;
use crate::http_log::HttpLogWriter;
use crate::message_sink::Pipe;

/// More connections than this are closed at once.
const MAX_CONNECTIONS: usize = 4096;
/// A compressor alone takes several hundred KiB of stack in a debug build.
const STACK_BYTES: usize = 2 * 1024 * 1024;

/// What is asked for by `--http` and the options beside it.
#[derive(Debug, Clone)]
pub(super) struct HttpOptions {
    pub(super) listen: SocketAddr,
    pub(super) shape: Shape,
    pub(super) replies: Replies,
    pub(super) event_ids: bool,
    pub(super) retry: Option<Duration>,
    pub(super) comments: Option<Duration>,
    pub(super) endpoint: EndpointForm,
    pub(super) log: Option<PathBuf>,
    /// The addresses once they are bound: ours, and the same server under another origin.
    pub(super) bound: Option<(SocketAddr, SocketAddr)>,
}

/// Which of the three transports over HTTP the server offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Every request stands alone.
    Stateless,
    Session,
    /// Two endpoints, as in 2024-11-05.
    Sse,
    /// Stateless for 2026-07-28 and sessions for older revisions.
    Dual,
}

/// How a server of 2024-11-05 writes the URL for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndpointForm {
    Relative,
    Absolute,
    /// Under another origin, which a client must not follow.
    Foreign,
}

impl EndpointForm {
    fn uri(self, options: &HttpOptions, session: &str) -> String {
        let path = format!("/messages?session={session}");
        match (self, options.bound) {
            (Self::Absolute, Some((here, _))) => format!("http://{here}{path}"),
            (Self::Foreign, Some((_, there))) => format!("http://{there}{path}"),
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
    let nobody = Origin::of(&Client::new(Arc::new(Pipe::new(io::sink()))));
    server.start(&nobody);
    let endpoint = Endpoint { server: Arc::clone(&server), options: http };
    let house = Arc::new(House {
        endpoint,
        log,
        n_requests: AtomicU64::new(0),
        n_connections: AtomicUsize::new(0),
    });
    let line = format!("listening http://{}/mcp\n", own.local_addr()?);
    for listener in [own, other] {
        let house = Arc::clone(&house);
        thread::spawn(move || house.open(&listener));
    }
    io::stdout().write_all(line.as_bytes()).and_then(|()| io::stdout().flush())?;
    wait_for_the_end(lifetime);
    server.end_of_input(&nobody);
    Ok(ExitCode::SUCCESS)
}

/// Without an input there is no end to wait for, so the lifetime is one.
fn wait_for_the_end(lifetime: Duration) {
    let is_device = rustix::fs::fstat(io::stdin())
        .is_ok_and(|fstat| rustix::fs::FileType::from_raw_mode(fstat.st_mode).is_char_device());
    let read = io::stdin().lock().read_to_end(&mut Vec::new());
    if is_device && matches!(read, Ok(0)) {
        child_process::linger(lifetime);
    }
}

/// Everything that a connection needs.
struct House {
    endpoint: Endpoint,
    log: Option<Arc<HttpLogWriter>>,
    n_requests: AtomicU64,
    n_connections: AtomicUsize,
}

impl House {
    fn open(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming().flatten() {
            if self.n_connections.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
                self.n_connections.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let house = Arc::clone(self);
            let started = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
                // A connection that cannot be set up is one that the client has left.
                house.receive(stream).unwrap_or_default();
                house.n_connections.fetch_sub(1, Ordering::Relaxed);
            });
            if started.is_err() {
                self.n_connections.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Serves one connection until its client has left.
    fn receive(&self, stream: TcpStream) -> io::Result<()> {
        let socket = Arc::new(Socket::new(stream)?);
        let mut input = BufReader::new(socket.stream());
        let mut output = socket.stream();
        let mut open: Option<(Arc<Reply>, Bond)> = None;
        // What cannot be read as a request ends the connection like its end.
        while let Some(request) = request::read(&mut input, &mut output).unwrap_or_default() {
            // Replies leave in the order of the requests.
            if let Some((reply, _)) = &open
                && !reply.wait(self.endpoint.server.options.lifetime)
            {
                break;
            }
            if self.endpoint.server.has_stopped_reading() {
                child_process::linger(self.endpoint.server.options.lifetime);
            }
            let number = self.n_requests.fetch_add(1, Ordering::Relaxed) + 1;
            let note = Note::arrived(self.log.as_ref(), number, &request);
            let reply = Reply::new(Arc::clone(&socket), note, self.head(&request.path));
            let bond = self.endpoint.serve(&request, &reply);
            if let Some((_, old)) = open.replace((reply, bond)) {
                self.endpoint.hang_up(old);
            }
        }
        socket.close();
        if let Some((reply, bond)) = open {
            reply.hang_up();
            self.endpoint.hang_up(bond);
        }
        Ok(())
    }

    fn head(&self, path: &str) -> Head {
        let (here, there) = self.endpoint.options.bound.map_or_else(Default::default, |(a, b)| {
            (format!("http://{a}{path}"), format!("http://{b}{path}"))
        });
        Head::new(here, there)
    }
}
