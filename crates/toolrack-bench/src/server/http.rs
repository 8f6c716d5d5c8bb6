//! HTTP benchmark server: `toolrack-bench serve-http`.
//!
//! It runs on one thread with epoll: a thread per connection would spend most of its time waking up, and the client is
//! what is measured. It prints its port and exits when stdin closes. The results are those of the stdio server, sent
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

use super::json_scan::{self, Shortcut, member, number, unquoted};
use super::responses::{self, Escapes};
use crate::system;

const INPUT: u64 = 0;
const DOOR: u64 = 1;
const FIRST_GUEST: u64 = 2;

/// More than any request of the bench takes, so that one read brings all of it.
const READ_BYTES: usize = 16 * 1024;
const EVENTS: usize = 256;

/// Serves until the input ends.
pub(crate) fn serve() -> anyhow::Result<()> {
    let door = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port to listen on")?;
    door.set_nonblocking(true)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let input = io::stdin();
    epoll::add(&epoll, input.as_fd(), EventData::new_u64(INPUT), EventFlags::IN)?;
    epoll::add(&epoll, &door, EventData::new_u64(DOOR), EventFlags::IN)?;
    system::print_line(door.local_addr()?.port());

    let mut house =
        House { epoll, door, guests: HashMap::new(), n_guests: 0, answers: Answers::new() };
    let mut events = Vec::with_capacity(EVENTS);
    loop {
        events.clear();
        epoll::wait(&house.epoll, spare_capacity(&mut events), None)?;
        for event in &events {
            match event.data.u64() {
                INPUT => return Ok(()),
                DOOR => house.let_in()?,
                guest => house.attend(guest)?,
            }
        }
    }
}

struct House {
    epoll: OwnedFd,
    door: TcpListener,
    guests: HashMap<u64, Guest>,
    n_guests: u64,
    answers: Answers,
}

/// One connection.
struct Guest {
    stream: TcpStream,
    said: Vec<u8>,
    outgoing: Outgoing,
    awaits: EventFlags,
}

impl House {
    fn let_in(&mut self) -> anyhow::Result<()> {
        loop {
            let stream = match self.door.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).context("nobody can be let in"),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let name = FIRST_GUEST + self.n_guests;
            self.n_guests += 1;
            epoll::add(&self.epoll, &stream, EventData::new_u64(name), EventFlags::IN)?;
            let (said, outgoing) = (Vec::with_capacity(READ_BYTES), Outgoing::default());
            self.guests.insert(name, Guest { stream, said, outgoing, awaits: EventFlags::IN });
        }
    }

    /// Closing the connection also ends what epoll knows of it.
    fn attend(&mut self, name: u64) -> anyhow::Result<()> {
        let Some(guest) = self.guests.get_mut(&name) else { return Ok(()) };
        // A client may hang up in the middle of anything.
        let Ok(Some(awaits)) = guest.serve(&mut self.answers) else {
            self.guests.remove(&name);
            return Ok(());
        };
        if awaits != guest.awaits {
            epoll::modify(&self.epoll, &guest.stream, EventData::new_u64(name), awaits)?;
            guest.awaits = awaits;
        }
        Ok(())
    }
}

impl Guest {
    /// Does what can be done now, and says what to wait for; nothing after the end.
    fn serve(&mut self, answers: &mut Answers) -> anyhow::Result<Option<EventFlags>> {
        if !self.outgoing.is_empty() {
            self.outgoing.send(&self.stream)?;
        } else if !self.hear()? {
            return Ok(None);
        }
        while self.outgoing.is_empty() {
            let Some((request, n_bytes)) = Request::first_of(&self.said) else { break };
            answers.answer(&request, &mut self.outgoing)?;
            // What is left is nearly always nothing.
            self.said.drain(..n_bytes);
            self.outgoing.send(&self.stream)?;
        }
        let is_waiting = self.outgoing.is_empty();
        Ok(Some(if is_waiting { EventFlags::IN } else { EventFlags::OUT }))
    }

    /// Whether there was anything to hear but the end.
    fn hear(&mut self) -> anyhow::Result<bool> {
        self.said.reserve(READ_BYTES);
        match rustix::io::read(&self.stream, spare_capacity(&mut self.said)) {
            Ok(n_bytes) => Ok(n_bytes > 0),
            Err(rustix::io::Errno::AGAIN) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

/// How replies are framed, and which eras are spoken; the address says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Json,
    Events,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Eras {
    Both,
    Legacy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Post,
    Delete,
    Other,
}

#[derive(Debug, PartialEq, Eq)]
struct Request<'a> {
    verb: Verb,
    framing: Framing,
    eras: Eras,
    body: &'a [u8],
}

/// The path under which a server frames and speaks like this.
pub(crate) fn path(framing: Framing, eras: Eras) -> &'static str {
    match (framing, eras) {
        (Framing::Json, Eras::Both) => "/json",
        (Framing::Json, Eras::Legacy) => "/legacy/json",
        (Framing::Events, Eras::Both) => "/events",
        (Framing::Events, Eras::Legacy) => "/legacy/events",
    }
}

impl<'a> Request<'a> {
    /// The first request, if all of it is there, and how many bytes it takes.
    fn first_of(said: &'a [u8]) -> Option<(Self, usize)> {
        let head_bytes = memmem::find(said, b"\r\n\r\n")? + 4;
        let (head, rest) = said.split_at_checked(head_bytes)?;
        let body = rest.get(..body_bytes(head))?;
        let mut words = head.split(|byte| *byte == b' ');
        let verb = match words.next() {
            Some(b"POST") => Verb::Post,
            Some(b"DELETE") => Verb::Delete,
            _ => Verb::Other,
        };
        let target = words.next().unwrap_or_default();
        let framing = if target.ends_with(b"/events") { Framing::Events } else { Framing::Json };
        let eras = if target.starts_with(b"/legacy/") { Eras::Legacy } else { Eras::Both };
        Some((Self { verb, framing, eras, body }, head_bytes + body.len()))
    }
}

/// No client under measurement sends a body in chunks.
fn body_bytes(head: &[u8]) -> usize {
    const NAME: &[u8] = b"content-length:";
    let value = head.split(|byte| *byte == b'\n').find_map(|line| {
        let (name, value) = line.split_at_checked(NAME.len())?;
        name.eq_ignore_ascii_case(NAME).then_some(value.trim_ascii())
    });
    value.map_or(0, number)
}

/// A result is copied behind its head up to this size; a larger one is sent from where it is.
const COPY_BYTES: usize = 64 * 1024;
const N_TOOLS: usize = 10;

// Spec 2026-07-28, `server/discover`.
const DISCOVERED: &[u8] = br#"{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"tools":{}},"ttlMs":60000,"cacheScope":"public"}"#;

// Spec 2025-11-25, transports: a notification is accepted, and a stream need not be offered.
const ACCEPTED: &[u8] = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
const FORGOTTEN: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const NOT_OFFERED: &[u8] =
    b"HTTP/1.1 405 Method Not Allowed\r\nAllow: POST, DELETE\r\nContent-Length: 0\r\n\r\n";

const NO_HEADER: &str = "";
const SESSION: &str = "Mcp-Session-Id: toolrack-bench-session\r\n";

/// Bytes on their way to a client.
#[derive(Debug, Default)]
struct Outgoing {
    opening: Vec<u8>,
    result: Option<Rc<[u8]>>,
    closing: Vec<u8>,
    n_sent: usize,
}

impl Outgoing {
    fn is_empty(&self) -> bool {
        self.opening.is_empty()
    }

    /// Sends what the connection takes.
    fn send(&mut self, mut stream: &TcpStream) -> io::Result<()> {
        while !self.is_empty() {
            let result = self.result.as_deref().unwrap_or_default();
            let mut rest = [&*self.opening, result, &*self.closing].map(IoSlice::new);
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
        self.opening.clear();
        self.result = None;
        self.closing.clear();
        self.n_sent = 0;
    }
}

/// Makes answers, and keeps what is asked for again and again.
#[derive(Debug)]
struct Answers {
    shortcut: Shortcut,
    message: Vec<u8>,
    tool_list: Vec<u8>,
    big: Option<(usize, Rc<[u8]>)>,
}

impl Answers {
    fn new() -> Self {
        let (shortcut, message) = (Shortcut::new(), Vec::new());
        Self { shortcut, message, tool_list: responses::tool_list(N_TOOLS), big: None }
    }

    fn answer(&mut self, asked: &Request<'_>, out: &mut Outgoing) -> io::Result<()> {
        match asked.verb {
            Verb::Post => {}
            Verb::Delete => return out.opening.write_all(FORGOTTEN),
            Verb::Other => return out.opening.write_all(NOT_OFFERED),
        }
        self.message.clear();
        if let Some(id) = self.shortcut.id_of_echo(asked.body) {
            responses::echo(&mut self.message, id);
            return framed(out, asked.framing, NO_HEADER, &self.message);
        }
        let json_scan::Request { id: Some(id), method, params } =
            json_scan::Request::of(asked.body)
        else {
            return out.opening.write_all(ACCEPTED);
        };
        let mut header = NO_HEADER;
        match method {
            b"tools/call" => return self.big(asked.framing, id, params, out),
            b"tools/list" => responses::whole_result(&mut self.message, id, &self.tool_list),
            b"initialize" => {
                header = SESSION;
                responses::whole_result(&mut self.message, id, responses::INITIALIZED);
            }
            b"server/discover" if asked.eras == Eras::Both => {
                responses::whole_result(&mut self.message, id, DISCOVERED);
            }
            b"ping" => responses::whole_result(&mut self.message, id, b"{}"),
            _ => responses::method_not_found(&mut self.message, id),
        }
        framed(out, asked.framing, header, &self.message)
    }

    /// Every tool but `echo` gives as much text as it is asked for.
    fn big(
        &mut self,
        framing: Framing,
        id: &[u8],
        params: &[u8],
        out: &mut Outgoing,
    ) -> io::Result<()> {
        if member(params, b"name").map(unquoted) != Some(b"big") {
            responses::method_not_found(&mut self.message, id);
            return framed(out, framing, NO_HEADER, &self.message);
        }
        let arguments = member(params, b"arguments").unwrap_or_default();
        let text_bytes = member(arguments, b"n").map_or(0, number);
        let result = match &self.big {
            Some((made, result)) if *made == text_bytes => Rc::clone(result),
            _ => Rc::from(responses::big(text_bytes, Escapes::Without)),
        };
        self.big = Some((text_bytes, Rc::clone(&result)));
        if result.len() < COPY_BYTES {
            responses::whole_result(&mut self.message, id, &result);
            return framed(out, framing, NO_HEADER, &self.message);
        }
        responses::result_opening(&mut self.message, id);
        let message_bytes = self.message.len() + result.len() + responses::RESULT_CLOSING.len();
        open(&mut out.opening, framing, NO_HEADER, message_bytes)?;
        out.opening.extend_from_slice(&self.message);
        out.result = Some(result);
        out.closing.extend_from_slice(responses::RESULT_CLOSING);
        out.closing.extend_from_slice(end(framing));
        Ok(())
    }
}

fn framed(out: &mut Outgoing, framing: Framing, header: &str, message: &[u8]) -> io::Result<()> {
    open(&mut out.opening, framing, header, message.len())?;
    out.opening.extend_from_slice(message);
    out.opening.extend_from_slice(end(framing));
    Ok(())
}

const EVENT_OPENING: &str = "event: message\ndata: ";
/// The message ends its own line; an empty line ends the event.
const EVENT_CLOSING_BYTES: usize = 1;

fn open(out: &mut Vec<u8>, framing: Framing, header: &str, message_bytes: usize) -> io::Result<()> {
    match framing {
        Framing::Json => write!(
            out,
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{header}Content-Length: \
             {message_bytes}\r\n\r\n"
        ),
        Framing::Events => {
            let chunk_bytes = EVENT_OPENING.len() + message_bytes + EVENT_CLOSING_BYTES;
            write!(
                out,
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n\
                 {header}Transfer-Encoding: chunked\r\n\r\n{chunk_bytes:x}\r\n{EVENT_OPENING}"
            )
        }
    }
}

fn end(framing: Framing) -> &'static [u8] {
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
        let mut out = Outgoing::default();
        let asked =
            Request { verb: Verb::Post, framing, eras: Eras::Legacy, body: body.as_bytes() };
        Answers::new().answer(&asked, &mut out).unwrap();
        let text = String::from_utf8(out.opening).unwrap();
        let (head, rest) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!((head, rest), (expected_head, expected_rest));
    }

    #[test]
    fn a_message_is_framed_as_the_address_says() {
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
    fn a_notification_is_accepted_without_a_word() {
        let told = r#"{"method":"notifications/initialized"}"#;
        check(Framing::Json, told, "HTTP/1.1 202 Accepted\r\nContent-Length: 0", "");
    }

    #[test]
    fn a_large_result_is_as_long_as_its_head_says() {
        let mut out = Outgoing::default();
        let body =
            br#"{"id":1,"method":"tools/call","params":{"name":"big","arguments":{"n":1048576}}}"#;
        let asked = Request { verb: Verb::Post, framing: Framing::Json, eras: Eras::Both, body };
        Answers::new().answer(&asked, &mut out).unwrap();
        let opening = String::from_utf8(out.opening).unwrap();
        let (head, message) = opening.split_once("\r\n\r\n").unwrap();
        let told: usize = head.rsplit(' ').next().unwrap().parse().unwrap();
        let result = out.result.unwrap();
        assert_eq!(told, message.len() + result.len() + out.closing.len());
        assert!(result.len() > 1 << 20);
    }

    #[track_caller]
    fn check_request(said: &str, expected: Option<(Verb, Framing, Eras, &str, usize)>) {
        let found = Request::first_of(said.as_bytes());
        let expected = expected.map(|(verb, framing, eras, body, n_bytes)| {
            (Request { verb, framing, eras, body: body.as_bytes() }, n_bytes)
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn a_request_is_found_when_all_of_it_is_there() {
        use {Eras::Both, Framing::Json, Verb::Post};
        check_request("POST /json HTTP/1.1\r\nContent-Length: 2\r\n\r", None);
        check_request("POST /json HTTP/1.1\r\nContent-Length: 2\r\n\r\n{", None);
        let whole = "POST /json HTTP/1.1\r\nHost: x\r\ncontent-length:2\r\n\r\n{}GET";
        check_request(whole, Some((Post, Json, Both, "{}", whole.len() - 3)));
    }

    #[test]
    fn the_address_says_how_to_answer() {
        let request = |line: &str| format!("{line} HTTP/1.1\r\n\r\n");
        let check = |line, verb, framing, eras| {
            let said = request(line);
            check_request(&said, Some((verb, framing, eras, "", said.len())));
        };
        check("GET /events", Verb::Other, Framing::Events, Eras::Both);
        check("DELETE /legacy/json", Verb::Delete, Framing::Json, Eras::Legacy);
        check("POST /legacy/events", Verb::Post, Framing::Events, Eras::Legacy);
    }

    #[test]
    fn every_path_is_understood() {
        for framing in [Framing::Json, Framing::Events] {
            for eras in [Eras::Both, Eras::Legacy] {
                let said = format!("POST {} HTTP/1.1\r\n\r\n", path(framing, eras));
                check_request(&said, Some((Verb::Post, framing, eras, "", said.len())));
            }
        }
    }
}
