//! Request log of a scripted server over HTTP: every request and the end of its response.
//!
//! **Invariant:** a record is one `write(2)` to a file opened for appending, so lines never mix.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::harness::now;
use crate::http::Request;
use crate::journal::{LineWriter, read_lines};
use crate::jsonrpc::Incoming;
use crate::scripted;

/// One HTTP request that reached the server. The file has a line when it arrives, and one when its response ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpRequest {
    /// Number within its server process, from 1.
    pub number: u64,
    /// The server process.
    pub pid: u32,
    /// Arrival time since the server started.
    pub at: Duration,
    /// `GET`, `POST`, `DELETE`, …
    pub verb: String,
    /// Request target, with the query.
    pub target: String,
    /// JSON-RPC method of the body, if it has one.
    pub method: Option<String>,
    /// Headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Response status, once it is sent.
    pub status: Option<u16>,
    /// How the response ended, once it has.
    pub outcome: Option<HttpOutcome>,
}

/// How the response to a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HttpOutcome {
    /// It was sent completely, with any status.
    Completed,
    /// The client closed the connection first. In 2026-07-28 this cancels the request.
    ClientClosed,
}

/// All requests that one or more servers wrote to a log file, in order of arrival.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpLog {
    /// The requests, oldest first.
    pub requests: Vec<HttpRequest>,
}

impl HttpLog {
    /// Reads a log; a missing file is an empty log.
    ///
    /// Fails with `InvalidData` on an invalid line.
    pub fn read(path: &Path) -> io::Result<Self> {
        let mut log = Self::default();
        for record in read_lines::<HttpRequest>(path)? {
            let key = |request: &HttpRequest| (request.pid, request.number);
            match log.requests.iter_mut().rev().find(|request| key(request) == key(&record)) {
                Some(request) => *request = record,
                None => log.requests.push(record),
            }
        }
        Ok(log)
    }

    /// Requests with this JSON-RPC method.
    pub fn with_method<'a>(&'a self, method: &'a str) -> impl Iterator<Item = &'a HttpRequest> {
        self.requests.iter().filter(move |request| request.method.as_deref() == Some(method))
    }

    /// Requests with this HTTP method.
    pub fn with_verb<'a>(&'a self, verb: &'a str) -> impl Iterator<Item = &'a HttpRequest> {
        self.requests.iter().filter(move |request| request.verb == verb)
    }
}

/// Writer of a request log.
#[derive(Debug)]
pub(crate) struct HttpLogWriter {
    lines: LineWriter,
    started: Instant,
}

impl HttpLogWriter {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { lines: LineWriter::open(path)?, started: now() })
    }

    /// Writes the arrival of a request.
    pub(crate) fn arrived(&self, number: u64, request: &Request) -> HttpRequest {
        let query = if request.query.is_empty() { "" } else { "?" };
        let message = serde_json::from_slice::<Incoming<'_>>(&request.body);
        let record = HttpRequest {
            number,
            pid: std::process::id(),
            at: self.started.elapsed(),
            verb: request.verb.clone(),
            target: format!("{}{query}{}", request.path, request.query),
            method: message.ok().and_then(|message| message.method).map(Cow::into_owned),
            headers: request.headers.iter().cloned().collect(),
            status: None,
            outcome: None,
        };
        self.write(&record);
        record
    }

    /// Writes a request again, with the end of its response.
    pub(crate) fn write(&self, record: &HttpRequest) {
        if self.lines.write(record).is_err() {
            // An incomplete log proves nothing, so stop the run.
            scripted::exit(3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_log_round_trips() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        assert_eq!(HttpLog::read(&path).expect("no file yet"), HttpLog::default());
        let writer = HttpLogWriter::open(&path).expect("opened");
        let request = Request {
            verb: "POST".to_owned(),
            path: "/mcp".to_owned(),
            headers: vec![("host".to_owned(), "a".to_owned())],
            body: br#"{"method":"ping"}"#.to_vec(),
            ..Request::default()
        };
        let mut first = writer.arrived(1, &request);
        writer.arrived(2, &request);
        (first.status, first.outcome) = (Some(200), Some(HttpOutcome::ClientClosed));
        writer.write(&first);
        let log = HttpLog::read(&path).expect("read");
        let ends: Vec<_> =
            log.with_method("ping").map(|request| (request.status, request.outcome)).collect();
        assert_eq!(ends, [(Some(200), Some(HttpOutcome::ClientClosed)), (None, None)]);
        assert_eq!(log.with_verb("GET").count(), 0);
    }
}
