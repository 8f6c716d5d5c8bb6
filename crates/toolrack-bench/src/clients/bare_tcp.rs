//! Limit over HTTP: the same bytes over blocking TCP, without any HTTP or MCP client.
//!
//! The request id never changes, so all responses have the same length. The first response is parsed as HTTP; of the
//! others only the length is checked.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::ensure;
use memchr::memmem;
use rustix::net::{RecvFlags, recv};
use toolrack_testkit::harness::now;

use super::Call;
use crate::metric::Report;
use crate::scenario::Load;
use crate::scenario::calls::Job;
use crate::scenario::measure::{self, Stopwatch, micros_since};
use crate::server::http::{Eras, Framing, path};
use crate::server_process::HttpServer;

/// `Accept` header of MCP clients.
pub(super) const ACCEPT_TYPES: &str = "application/json, text/event-stream";

const READ_BYTES: usize = 256 * 1024;

/// Runs one scenario.
pub(crate) async fn run(job: &Job, server: &HttpServer) -> anyhow::Result<Report> {
    let request = http_request(server, &job.call()?);
    let mut socket = Socket::connect(server, &request)?;
    let round_trip = async || socket.round_trip(&request);
    match job.work.load() {
        Some(Load::Sequential) => measure::sequential(job.size.window, round_trip).await,
        Some(Load::InFlight(n_in_flight)) => {
            let mut sockets = Vec::new();
            for _ in 0..n_in_flight {
                sockets.push(Socket::connect(server, &request)?);
            }
            keep_in_flight(&mut sockets, &request, job.size.window / 5)?;
            let stopwatch = Stopwatch::start();
            let micros = keep_in_flight(&mut sockets, &request, job.size.window)?;
            let mut report = stopwatch.per_call(micros.len());
            measure::add_latencies(&mut report, &micros)?;
            Ok(report)
        }
        _ => measure::fixed_calls(job.n_calls, round_trip).await,
    }
}

/// One thread with a connection per call in flight. It reads the responses in turn and sends the next request on the
/// same connection.
fn keep_in_flight(
    sockets: &mut [Socket],
    request: &[u8],
    window: Duration,
) -> anyhow::Result<Vec<f64>> {
    let started = now();
    let mut micros = Vec::new();
    for socket in &mut *sockets {
        socket.send(request)?;
    }
    while now() - started < window {
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
    response_bytes: usize,
    sent: std::time::Instant,
}

impl Socket {
    /// Connects, and determines the length of a response to this request.
    fn connect(server: &HttpServer, request: &[u8]) -> anyhow::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port))?;
        stream.set_nodelay(true)?;
        let buffer = vec![0; READ_BYTES];
        let mut socket = Self { stream, buffer, response_bytes: 0, sent: now() };
        socket.send(request)?;
        let mut response = Vec::new();
        while !is_complete(&response, server.framing) {
            let n_bytes = socket.stream.read(&mut socket.buffer)?;
            ensure!(n_bytes > 0, "the server closed the connection");
            response.extend_from_slice(socket.buffer.get(..n_bytes).unwrap_or_default());
        }
        ensure!(response.starts_with(b"HTTP/1.1 200 "), "the server returned an error");
        socket.response_bytes = response.len();
        Ok(socket)
    }

    fn round_trip(&mut self, request: &[u8]) -> anyhow::Result<()> {
        self.send(request)?;
        self.receive().map(drop)
    }

    fn send(&mut self, request: &[u8]) -> anyhow::Result<()> {
        self.sent = now();
        Ok(self.stream.write_all(request)?)
    }

    /// Reads a response and returns its latency in µs.
    fn receive(&mut self) -> anyhow::Result<f64> {
        let mut n_received = 0;
        while n_received < self.response_bytes {
            let chunk_bytes = READ_BYTES.min(self.response_bytes - n_received);
            let chunk = self.buffer.get_mut(..chunk_bytes).unwrap_or_default();
            // `WAITALL`: one system call per chunk, independent of the number of TCP segments.
            let (_, n_bytes) = recv(&self.stream, chunk, RecvFlags::WAITALL)?;
            ensure!(n_bytes == chunk_bytes, "the server closed the connection");
            n_received += n_bytes;
        }
        Ok(micros_since(self.sent))
    }
}

fn is_complete(response: &[u8], framing: Framing) -> bool {
    match framing {
        Framing::Json => response_len(response).is_some_and(|len| response.len() >= len),
        Framing::Events => response.ends_with(b"\r\n0\r\n\r\n"),
    }
}

/// Total length of a response with `Content-Length`.
fn response_len(response: &[u8]) -> Option<usize> {
    const LENGTH: &[u8] = b"Content-Length: ";
    let head_bytes = memmem::find(response, b"\r\n\r\n")? + 4;
    let from_length = response.get(memmem::find(response, LENGTH)? + LENGTH.len()..)?;
    let digits = from_length.split(|byte| *byte == b'\r').next()?;
    let body_bytes: usize = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(head_bytes + body_bytes)
}

fn http_request(server: &HttpServer, call: &Call) -> Vec<u8> {
    let body = call_message(call);
    let (path, port, body_bytes) = (path(server.framing, Eras::Both), server.port, body.len());
    let mut request = format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n\
         Accept: {ACCEPT_TYPES}\r\nContent-Length: {body_bytes}\r\n\r\n"
    )
    .into_bytes();
    request.extend_from_slice(&body);
    request
}

/// Minimal JSON-RPC message of a call.
pub(super) fn call_message(call: &Call) -> Vec<u8> {
    let (tool, arguments) = (call.tool, call.raw_arguments.get());
    format!(
        r#"{{"jsonrpc":"2.0","id":100007,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A response is complete with its last byte and not before.
    #[track_caller]
    fn check(response: &str, framing: Framing) {
        let complete =
            (0..=response.len()).filter(|n| is_complete(&response.as_bytes()[..*n], framing));
        assert_eq!(complete.collect::<Vec<_>>(), [response.len()], "{response:?}");
    }

    #[test]
    fn end_of_response_depends_on_framing() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", Framing::Json);
        check("HTTP/1.1 200 OK\r\n\r\n2\r\n{}\r\n0\r\n\r\n", Framing::Events);
    }

    #[test]
    fn call_message_is_json() {
        let value: serde_json::Value =
            serde_json::from_slice(&call_message(&Call::big(64).unwrap())).unwrap();
        assert_eq!(value["params"]["arguments"]["n"], 64);
    }
}
