//! The limit over HTTP: the same bytes over the same kind of socket, blocking, with no client at all.
//!
//! All replies to one request are equally long, because its id never changes. So the first reply is read as
//! HTTP wants it, and of all others only the length is looked at.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::ensure;
use memchr::memmem;
use rustix::net::{RecvFlags, recv};

use super::Call;
use crate::report::Report;
use crate::scenario::http::{HttpJob, IN_FLIGHT, Load};
use crate::scenario::measure::{self, Spent};
use crate::server::http::{Eras, Framing, path};
use crate::server_process::RemoteServer;
use crate::system;

/// What every client says it can read.
pub(super) const ACCEPTED: &str = "application/json, text/event-stream";

const READ_BYTES: usize = 256 * 1024;

/// Goes through one scenario.
pub(crate) async fn drive(job: &HttpJob) -> anyhow::Result<Report> {
    let request = request(&job.server, &job.call()?);
    let mut socket = Socket::open(&job.server, &request)?;
    match job.plan.load {
        Load::Sequential => {
            measure::sequential(job.size.window, async || socket.exchange(&request)).await
        }
        Load::Counted => measure::counted(job.n_calls, async || socket.exchange(&request)).await,
        Load::InFlight => in_flight(job, &request),
    }
}

/// One thread with a connection for each call in flight: it reads one reply after the other, and sends the
/// next request on the same connection.
fn in_flight(job: &HttpJob, request: &[u8]) -> anyhow::Result<Report> {
    let mut sockets = Vec::new();
    for _ in 0..IN_FLIGHT {
        sockets.push(Socket::open(&job.server, request)?);
    }
    flood(&mut sockets, request, job.size.window / 5)?;
    let spent = Spent::start();
    let micros = flood(&mut sockets, request, job.size.window)?;
    measure::with_latencies(spent.per_call(micros.len()), &micros)
}

fn flood(sockets: &mut [Socket], request: &[u8], window: Duration) -> anyhow::Result<Vec<f64>> {
    let started = system::now();
    let mut micros = Vec::new();
    for socket in &mut *sockets {
        socket.send(request)?;
    }
    while system::now() - started < window {
        for socket in &mut *sockets {
            micros.push(socket.receive()?);
            socket.send(request)?;
        }
    }
    for socket in sockets {
        micros.push(socket.receive()?);
    }
    Ok(micros)
}

struct Socket {
    stream: TcpStream,
    buffer: Vec<u8>,
    reply_bytes: usize,
    sent: std::time::Instant,
}

impl Socket {
    /// Connects, and learns how long a reply to this request is.
    fn open(server: &RemoteServer, request: &[u8]) -> anyhow::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port))?;
        stream.set_nodelay(true)?;
        let buffer = vec![0; READ_BYTES];
        let mut socket = Self { stream, buffer, reply_bytes: 0, sent: system::now() };
        socket.send(request)?;
        let mut reply = Vec::new();
        while !is_whole(&reply, server.framing) {
            let n_bytes = socket.stream.read(&mut socket.buffer)?;
            ensure!(n_bytes > 0, "the server hung up");
            reply.extend_from_slice(socket.buffer.get(..n_bytes).unwrap_or_default());
        }
        ensure!(reply.starts_with(b"HTTP/1.1 200 "), "the server refused");
        socket.reply_bytes = reply.len();
        Ok(socket)
    }

    fn exchange(&mut self, request: &[u8]) -> anyhow::Result<()> {
        self.send(request)?;
        self.receive().map(drop)
    }

    fn send(&mut self, request: &[u8]) -> anyhow::Result<()> {
        self.sent = system::now();
        Ok(self.stream.write_all(request)?)
    }

    /// Reads a reply and says how many µs after its request it was there.
    fn receive(&mut self) -> anyhow::Result<f64> {
        let mut n_received = 0;
        while n_received < self.reply_bytes {
            let room_bytes = READ_BYTES.min(self.reply_bytes - n_received);
            let room = self.buffer.get_mut(..room_bytes).unwrap_or_default();
            // One call for each piece of this size, however many segments it comes in.
            let (_, n_bytes) = recv(&self.stream, room, RecvFlags::WAITALL)?;
            ensure!(n_bytes == room_bytes, "the server hung up");
            n_received += n_bytes;
        }
        Ok((system::now() - self.sent).as_secs_f64() * 1e6)
    }
}

fn is_whole(reply: &[u8], framing: Framing) -> bool {
    match framing {
        Framing::Json => whole_bytes(reply).is_some_and(|whole| reply.len() >= whole),
        Framing::Events => reply.ends_with(b"\r\n0\r\n\r\n"),
    }
}

/// How long a reply is that says its length.
fn whole_bytes(reply: &[u8]) -> Option<usize> {
    const LENGTH: &[u8] = b"Content-Length: ";
    let head_bytes = memmem::find(reply, b"\r\n\r\n")? + 4;
    let from_length = reply.get(memmem::find(reply, LENGTH)? + LENGTH.len()..)?;
    let digits = from_length.split(|byte| *byte == b'\r').next()?;
    let body_bytes: usize = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(head_bytes + body_bytes)
}

fn request(server: &RemoteServer, call: &Call) -> Vec<u8> {
    let body = message(call);
    let (path, port, body_bytes) = (path(server.framing, Eras::Both), server.port, body.len());
    let mut request = format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n\
         Accept: {ACCEPTED}\r\nContent-Length: {body_bytes}\r\n\r\n"
    )
    .into_bytes();
    request.extend_from_slice(&body);
    request
}

/// A call as a message, without what only a client knows.
pub(super) fn message(call: &Call) -> Vec<u8> {
    let (tool, arguments) = (call.tool, call.raw_arguments.get());
    format!(
        r#"{{"jsonrpc":"2.0","id":100007,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reply is whole with its last byte and not before.
    #[track_caller]
    fn check(reply: &str, framing: Framing) {
        let wholes = (0..=reply.len()).filter(|n| is_whole(&reply.as_bytes()[..*n], framing));
        assert_eq!(wholes.collect::<Vec<_>>(), [reply.len()], "{reply:?}");
    }

    #[test]
    fn the_end_of_a_reply_is_known_by_its_framing() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", Framing::Json);
        check("HTTP/1.1 200 OK\r\n\r\n2\r\n{}\r\n0\r\n\r\n", Framing::Events);
    }

    #[test]
    fn a_message_is_json() {
        let value: serde_json::Value =
            serde_json::from_slice(&message(&Call::big(64).unwrap())).unwrap();
        assert_eq!(value["params"]["arguments"]["n"], 64);
    }
}
