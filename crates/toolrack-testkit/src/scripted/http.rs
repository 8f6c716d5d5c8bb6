//! Scripted server over HTTP: one thread per connection, and one that waits for the end of input.
//!
//! **Invariant:** the server exits at the end of stdin, so it never outlives a killed test.

mod endpoint;
mod header_check;
mod hostile_reply;
mod response;
mod response_stream;
mod route;
mod session;

use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde::Deserialize;

pub(super) use session::Sessions;

use self::endpoint::{Endpoint, Exchange, OnDisconnect};
use self::response::{HttpResponse, Socket};
use self::response_stream::ReplyMode;
use super::child_process;
use super::client::{Client, MessageContext};
use super::options::Options;
use super::server::{Content, Server};
use crate::http;
use crate::http_log::HttpLogWriter;
use crate::plan::Trigger;

/// Options of `--http`.
#[derive(Debug, Default, Clone)]
pub(super) struct HttpOptions {
    pub(super) listen: Option<SocketAddr>,
    pub(super) shape: Shape,
    pub(super) reply_mode: ReplyMode,
    pub(super) log: Option<PathBuf>,
}

/// HTTP transport that the server offers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Shape {
    /// No sessions.
    Stateless,
    #[default]
    Session,
    /// HTTP+SSE with two endpoints, as in 2024-11-05.
    Sse,
    /// Stateless for 2026-07-28, sessions for older revisions.
    Dual,
}

pub(super) fn serve(
    options: Options,
    http: HttpOptions,
    content: impl Content + 'static,
) -> io::Result<()> {
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = TcpListener::bind(http.listen.unwrap_or(anywhere))?;
    let address = listener.local_addr()?;
    let log = http.log.as_deref().map(HttpLogWriter::open).transpose()?.map(Arc::new);
    let lifetime = options.lifetime;
    let server = Server::new(options, content)?;
    let detached = MessageContext::new(&server, &Client::detached());
    detached.run_faults(Trigger::Start);
    let n_requests = AtomicU64::new(0);
    let endpoint = Endpoint { server, options: http, log, n_requests };
    thread::spawn(move || {
        http::accept_each(&listener, &AtomicBool::new(false), move |stream| {
            // The client may have disconnected already.
            endpoint.serve_connection(stream).unwrap_or_default();
        });
    });
    let line = format!("listening http://{address}/mcp\n");
    io::stdout().write_all(line.as_bytes()).and_then(|()| io::stdout().flush())?;
    wait_for_end_of_input(lifetime);
    detached.end_of_input();
    Ok(())
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

impl Endpoint {
    /// Serves one connection until the client disconnects.
    fn serve_connection(&self, stream: TcpStream) -> io::Result<()> {
        let socket = Arc::new(Socket::new(stream)?);
        let mut input = BufReader::new(socket.stream());
        let mut output = socket.stream();
        let lifetime = self.server.options.lifetime;
        let mut open: Option<(Arc<HttpResponse>, Option<OnDisconnect>)> = None;
        // An invalid request closes the connection.
        while let Some(request) = http::read(&mut input, &mut output).unwrap_or_default() {
            // Responses leave in the order of the requests.
            if open.as_ref().is_some_and(|(response, _)| !response.wait(lifetime)) {
                break;
            }
            if self.server.has_stopped_reading() {
                child_process::sleep_then_exit(lifetime);
            }
            let number = self.n_requests.fetch_add(1, Ordering::Relaxed) + 1;
            let log = self.log.as_ref().map(|log| (Arc::clone(log), log.arrived(number, &request)));
            let response = HttpResponse::new(Arc::clone(&socket), log);
            let exchange = Exchange { endpoint: self, request: &request, response: &response };
            let on_disconnect = exchange.serve();
            if let Some((_, Some(old))) = open.replace((response, on_disconnect)) {
                old(self);
            }
        }
        socket.close();
        if let Some((response, on_disconnect)) = open {
            response.client_closed();
            if let Some(on_disconnect) = on_disconnect {
                on_disconnect(self);
            }
        }
        Ok(())
    }
}
