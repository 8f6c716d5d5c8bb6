//! HTTP benchmark server: `toolrack-bench serve-http`.
//!
//! It runs on one thread with epoll: a thread per connection would spend most of its time waking up, which
//! would distort the measurement of the client. It prints its port and exits when stdin closes. The results are those of the stdio server, sent
//! as JSON or as an SSE event; the path selects the framing and the eras.
//!
//! Departs from spec 2026-07-28, results: `resultType` is left out of calls and lists, where it means `complete`, so
//! that clients of both eras get the same bytes.
//!
//! **Invariant:** a client that does not read blocks only itself.

use std::collections::HashMap;
use std::io::{self, IoSlice, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;

use anyhow::Context as _;
use memchr::memmem;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use toolrack_testkit::harness;

use super::request::{EchoMatcher, Request as Message};
use super::responses::{self, Escapes};

// Epoll tokens. Connections count up from `FIRST_CONNECTION`.
const INPUT: u64 = 0;
const LISTENER: u64 = 1;
const FIRST_CONNECTION: u64 = 2;

/// More than any request of the benchmark, so that one read gets all of it.
const READ_BYTES: usize = 16 * 1024;
const EVENTS: usize = 256;

/// Serves until stdin closes.
pub(crate) fn serve() -> anyhow::Result<()> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on loopback")?;
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let input = io::stdin();
    epoll::add(&epoll, input.as_fd(), EventData::new_u64(INPUT), EventFlags::IN)?;
    epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    harness::print_line(listener.local_addr()?.port());

    let mut event_loop = EventLoop {
        epoll,
        listener,
        connections: HashMap::new(),
        n_accepted: 0,
        responder: Responder::new(),
    };
    let mut events = Vec::with_capacity(EVENTS);
    loop {
        events.clear();
        epoll::wait(&event_loop.epoll, spare_capacity(&mut events), None)?;
        for event in &events {
            match event.data.u64() {
                INPUT => return Ok(()),
                LISTENER => event_loop.accept()?,
                token => event_loop.handle_event(token)?,
            }
        }
    }
}

struct EventLoop {
    epoll: OwnedFd,
    listener: TcpListener,
    connections: HashMap<u64, Connection>,
    n_accepted: u64,
    responder: Responder,
}

/// A client connection.
struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    response: ResponseBuffer,
    interest: EventFlags,
}

impl EventLoop {
    fn accept(&mut self) -> anyhow::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).context("cannot accept a connection"),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let token = FIRST_CONNECTION + self.n_accepted;
            self.n_accepted += 1;
            epoll::add(&self.epoll, &stream, EventData::new_u64(token), EventFlags::IN)?;
            let (received, response) = (Vec::with_capacity(READ_BYTES), ResponseBuffer::default());
            self.connections
                .insert(token, Connection { stream, received, response, interest: EventFlags::IN });
        }
    }

    /// Serves a connection. Closing it also removes it from epoll.
    fn handle_event(&mut self, token: u64) -> anyhow::Result<()> {
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        // A client may disconnect at any point.
        let Ok(Some(interest)) = connection.serve(&mut self.responder) else {
            self.connections.remove(&token);
            return Ok(());
        };
        if interest != connection.interest {
            epoll::modify(&self.epoll, &connection.stream, EventData::new_u64(token), interest)?;
            connection.interest = interest;
        }
        Ok(())
    }
}

impl Connection {
    /// Reads, responds and writes as far as possible without blocking. Returns the next event to wait for, or `None`
    /// at the end of the stream.
    fn serve(&mut self, responder: &mut Responder) -> anyhow::Result<Option<EventFlags>> {
        if !self.response.is_empty() {
            self.response.send(&self.stream)?;
        } else if !self.receive()? {
            return Ok(None);
        }
        while self.response.is_empty() {
            let Some((request, n_bytes)) = Request::parse_first(&self.received) else { break };
            responder.respond(&request, &mut self.response)?;
            // Clients rarely pipeline, so usually nothing is left to move.
            self.received.drain(..n_bytes);
            self.response.send(&self.stream)?;
        }
        let is_waiting = self.response.is_empty();
        Ok(Some(if is_waiting { EventFlags::IN } else { EventFlags::OUT }))
    }

    /// Returns false at the end of the stream.
    fn receive(&mut self) -> anyhow::Result<bool> {
        self.received.reserve(READ_BYTES);
        match rustix::io::read(&self.stream, spare_capacity(&mut self.received)) {
            Ok(n_bytes) => Ok(n_bytes > 0),
            Err(rustix::io::Errno::AGAIN) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

/// Framing of responses, selected by the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Json,
    Events,
}

/// Eras that the server supports, selected by the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Eras {
    Both,
    Legacy,
}

#[derive(Debug, PartialEq, Eq)]
struct Request<'a> {
    method: &'a [u8],
    framing: Framing,
    eras: Eras,
    body: &'a [u8],
}

/// Path that selects this framing and these eras.
pub(crate) fn path(framing: Framing, eras: Eras) -> &'static str {
    match (framing, eras) {
        (Framing::Json, Eras::Both) => "/json",
        (Framing::Json, Eras::Legacy) => "/legacy/json",
        (Framing::Events, Eras::Both) => "/events",
        (Framing::Events, Eras::Legacy) => "/legacy/events",
    }
}

impl<'a> Request<'a> {
    /// Parses the first request and returns its length; `None` if it is incomplete.
    fn parse_first(received: &'a [u8]) -> Option<(Self, usize)> {
        let head_bytes = memmem::find(received, b"\r\n\r\n")? + 4;
        let (head, rest) = received.split_at_checked(head_bytes)?;
        let body = rest.get(..body_bytes(head))?;
        let mut words = head.split(|byte| *byte == b' ');
        let method = words.next().unwrap_or_default();
        let target = words.next().unwrap_or_default();
        let framing = if target.ends_with(b"/events") { Framing::Events } else { Framing::Json };
        let eras = if target.starts_with(b"/legacy/") { Eras::Legacy } else { Eras::Both };
        Some((Self { method, framing, eras, body }, head_bytes + body.len()))
    }
}

/// Value of `Content-Length`; no measured client sends a chunked body.
fn body_bytes(head: &[u8]) -> usize {
    const NAME: &[u8] = b"content-length:";
    let value = head.split(|byte| *byte == b'\n').find_map(|line| {
        let (name, value) = line.split_at_checked(NAME.len())?;
        name.eq_ignore_ascii_case(NAME).then_some(value.trim_ascii())
    });
    value.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok()).unwrap_or(0)
}

const N_TOOLS: usize = 10;

// Spec 2026-07-28, `server/discover`.
const DISCOVER_RESULT: &[u8] = br#"{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"tools":{}},"ttlMs":60000,"cacheScope":"public"}"#;

// Spec 2025-11-25, transports: a notification is accepted, and a stream need not be offered.
const ACCEPTED: &[u8] = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
const SESSION_DELETED: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const METHOD_NOT_ALLOWED: &[u8] =
    b"HTTP/1.1 405 Method Not Allowed\r\nAllow: POST, DELETE\r\nContent-Length: 0\r\n\r\n";

const NO_HEADER: &str = "";
const SESSION_HEADER: &str = "Mcp-Session-Id: toolrack-bench-session\r\n";

/// A response that is being sent.
#[derive(Debug, Default)]
struct ResponseBuffer {
    prefix: Vec<u8>,
    result: Option<Rc<[u8]>>,
    suffix: Vec<u8>,
    n_sent: usize,
}

impl ResponseBuffer {
    fn is_empty(&self) -> bool {
        self.prefix.is_empty()
    }

    /// Sends as much as the socket accepts.
    fn send(&mut self, mut stream: &TcpStream) -> io::Result<()> {
        while !self.is_empty() {
            let result = self.result.as_deref().unwrap_or_default();
            let mut rest = [&*self.prefix, result, &*self.suffix].map(IoSlice::new);
            let mut rest = rest.as_mut_slice();
            IoSlice::advance_slices(&mut rest, self.n_sent);
            if rest.is_empty() {
                self.clear();
                return Ok(());
            }
            match stream.write_vectored(rest) {
                Ok(n_bytes) => self.n_sent += n_bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.prefix.clear();
        self.result = None;
        self.suffix.clear();
        self.n_sent = 0;
    }
}

/// Creates responses, and caches results that are requested repeatedly.
#[derive(Debug)]
struct Responder {
    echo_matcher: EchoMatcher,
    message: Vec<u8>,
    tool_list: Vec<u8>,
    last_large_result: Option<(usize, Rc<[u8]>)>,
}

impl Responder {
    fn new() -> Self {
        Self {
            echo_matcher: EchoMatcher::new(),
            message: Vec::new(),
            tool_list: responses::tool_list(N_TOOLS),
            last_large_result: None,
        }
    }

    fn respond(&mut self, request: &Request<'_>, out: &mut ResponseBuffer) -> io::Result<()> {
        match request.method {
            b"POST" => {}
            b"DELETE" => return out.prefix.write_all(SESSION_DELETED),
            _ => return out.prefix.write_all(METHOD_NOT_ALLOWED),
        }
        self.message.clear();
        if let Some(id) = self.echo_matcher.echo_id(request.body) {
            responses::write_echo(&mut self.message, id);
            return write_framed(out, request.framing, NO_HEADER, &self.message);
        }
        let message = Message::parse(request.body);
        let Some(id) = message.id() else { return out.prefix.write_all(ACCEPTED) };
        let mut header = NO_HEADER;
        match (&*message.method, &*message.params.name) {
            ("tools/call", "big") => {
                return self.large_result(request.framing, id, message.params.arguments.n, out);
            }
            ("tools/list", _) => responses::write_result(&mut self.message, id, &self.tool_list),
            ("server/discover", _) if request.eras == Eras::Both => {
                responses::write_result(&mut self.message, id, DISCOVER_RESULT);
            }
            (method, _) => {
                if method == "initialize" {
                    header = SESSION_HEADER;
                }
                responses::write_common(&mut self.message, id, method);
            }
        }
        write_framed(out, request.framing, header, &self.message)
    }

    /// `big` returns as much text as requested, sent without copying.
    fn large_result(
        &mut self,
        framing: Framing,
        id: &[u8],
        text_bytes: usize,
        out: &mut ResponseBuffer,
    ) -> io::Result<()> {
        let result = match &self.last_large_result {
            Some((cached, result)) if *cached == text_bytes => Rc::clone(result),
            _ => Rc::from(responses::large_result(text_bytes, Escapes::Without)),
        };
        self.last_large_result = Some((text_bytes, Rc::clone(&result)));
        responses::write_result_prefix(&mut self.message, id);
        let message_bytes = self.message.len() + result.len() + responses::RESULT_SUFFIX.len();
        write_prefix(&mut out.prefix, framing, NO_HEADER, message_bytes)?;
        out.prefix.extend_from_slice(&self.message);
        out.result = Some(result);
        out.suffix.extend_from_slice(responses::RESULT_SUFFIX);
        out.suffix.extend_from_slice(suffix(framing));
        Ok(())
    }
}

fn write_framed(
    out: &mut ResponseBuffer,
    framing: Framing,
    header: &str,
    message: &[u8],
) -> io::Result<()> {
    write_prefix(&mut out.prefix, framing, header, message.len())?;
    out.prefix.extend_from_slice(message);
    out.prefix.extend_from_slice(suffix(framing));
    Ok(())
}

const EVENT_PREFIX: &str = "event: message\ndata: ";
/// A message includes its newline; the empty line after it ends the event.
const EVENT_SUFFIX_BYTES: usize = 1;

fn write_prefix(
    out: &mut Vec<u8>,
    framing: Framing,
    header: &str,
    message_bytes: usize,
) -> io::Result<()> {
    match framing {
        Framing::Json => write!(
            out,
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{header}Content-Length: \
             {message_bytes}\r\n\r\n"
        ),
        Framing::Events => {
            let chunk_bytes = EVENT_PREFIX.len() + message_bytes + EVENT_SUFFIX_BYTES;
            write!(
                out,
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n\
                 {header}Transfer-Encoding: chunked\r\n\r\n{chunk_bytes:x}\r\n{EVENT_PREFIX}"
            )
        }
    }
}

fn suffix(framing: Framing) -> &'static [u8] {
    match framing {
        Framing::Json => b"",
        Framing::Events => b"\n\r\n0\r\n\r\n",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(framing: Framing, body: &str, expected_head: &str, expected_rest: &str) {
        let mut out = ResponseBuffer::default();
        let request =
            Request { method: b"POST", framing, eras: Eras::Legacy, body: body.as_bytes() };
        Responder::new().respond(&request, &mut out).unwrap();
        let text = String::from_utf8(out.prefix).unwrap();
        let (head, rest) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!((head, rest), (expected_head, expected_rest));
    }

    #[test]
    fn path_selects_response_framing() {
        let ping = r#"{"id":7,"method":"ping"}"#;
        check(
            Framing::Json,
            ping,
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 37",
            "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n",
        );
        check(
            Framing::Events,
            ping,
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n\
             Transfer-Encoding: chunked",
            "3b\r\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n\r\n0\r\n\r\n",
        );
    }

    #[test]
    fn notification_gets_202() {
        let notification = r#"{"method":"notifications/initialized"}"#;
        check(Framing::Json, notification, "HTTP/1.1 202 Accepted\r\nContent-Length: 0", "");
    }

    #[test]
    fn large_result_matches_content_length() {
        let mut out = ResponseBuffer::default();
        let body =
            br#"{"id":1,"method":"tools/call","params":{"name":"big","arguments":{"n":1048576}}}"#;
        let request = Request { method: b"POST", framing: Framing::Json, eras: Eras::Both, body };
        Responder::new().respond(&request, &mut out).unwrap();
        let prefix = String::from_utf8(out.prefix).unwrap();
        let (head, message) = prefix.split_once("\r\n\r\n").unwrap();
        let content_length: usize = head.rsplit(' ').next().unwrap().parse().unwrap();
        let result = out.result.unwrap();
        assert_eq!(content_length, message.len() + result.len() + out.suffix.len());
        assert!(result.len() > 1 << 20);
    }

    #[track_caller]
    fn check_request(received: &str, expected: Option<(&str, Framing, Eras, &str, usize)>) {
        let found = Request::parse_first(received.as_bytes());
        let expected = expected.map(|(method, framing, eras, body, n_bytes)| {
            (Request { method: method.as_bytes(), framing, eras, body: body.as_bytes() }, n_bytes)
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn incomplete_request_is_not_parsed() {
        use {Eras::Both, Framing::Json};
        check_request("POST /json HTTP/1.1\r\nContent-Length: 2\r\n\r", None);
        check_request("POST /json HTTP/1.1\r\nContent-Length: 2\r\n\r\n{", None);
        let whole = "POST /json HTTP/1.1\r\nHost: x\r\ncontent-length:2\r\n\r\n{}GET";
        check_request(whole, Some(("POST", Json, Both, "{}", whole.len() - 3)));
    }

    #[test]
    fn path_and_method_are_parsed() {
        let request = |line: &str| format!("{line} HTTP/1.1\r\n\r\n");
        let check = |line, method, framing, eras| {
            let received = request(line);
            check_request(&received, Some((method, framing, eras, "", received.len())));
        };
        check("GET /events", "GET", Framing::Events, Eras::Both);
        check("DELETE /legacy/json", "DELETE", Framing::Json, Eras::Legacy);
        check("POST /legacy/events", "POST", Framing::Events, Eras::Legacy);
    }

    #[test]
    fn every_path_is_parsed() {
        for framing in [Framing::Json, Framing::Events] {
            for eras in [Eras::Both, Eras::Legacy] {
                let received = format!("POST {} HTTP/1.1\r\n\r\n", path(framing, eras));
                check_request(&received, Some(("POST", framing, eras, "", received.len())));
            }
        }
    }
}
