//! What the bench server answers over HTTP: the results of the stdio server, as JSON or as an event.
//!
//! Departs from spec 2026-07-28, results: `resultType` is left out of calls and lists, where it means
//! `complete`, so that clients of both eras are given the same bytes.

use std::io::{self, IoSlice, Write as _};
use std::net::TcpStream;
use std::rc::Rc;

use super::super::json_scan::{self, Shortcut, member, number, unquoted};
use super::super::responses::{self, Escapes};
use super::request::{Eras, Framing, Request, Verb};

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
pub(super) struct Outgoing {
    opening: Vec<u8>,
    result: Option<Rc<[u8]>>,
    closing: Vec<u8>,
    n_sent: usize,
}

impl Outgoing {
    pub(super) fn is_empty(&self) -> bool {
        self.opening.is_empty()
    }

    /// Sends what the connection takes.
    pub(super) fn send(&mut self, mut stream: &TcpStream) -> io::Result<()> {
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
pub(super) struct Answers {
    shortcut: Shortcut,
    message: Vec<u8>,
    tool_list: Vec<u8>,
    big: Option<(usize, Rc<[u8]>)>,
}

impl Answers {
    pub(super) fn new() -> Self {
        let (shortcut, message) = (Shortcut::new(), Vec::new());
        Self { shortcut, message, tool_list: responses::tool_list(N_TOOLS), big: None }
    }

    pub(super) fn answer(&mut self, asked: &Request<'_>, out: &mut Outgoing) -> io::Result<()> {
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
}
