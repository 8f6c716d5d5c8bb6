//! Request log of a scripted server over HTTP: every request and the end of its response.
//!
//! **Invariant:** a record is one `write(2)` to a file opened for appending, so lines never mix.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::http::Request;
use crate::journal::{LineWriter, read_lines};
use crate::scripted;
use crate::timer::now;

/// One HTTP request that reached the server.
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[serde(rename_all = "snake_case")]
pub enum HttpOutcome {
    /// It was sent completely, with any status.
    #[serde(rename = "answered")]
    Completed,
    /// The server cut it off, as planned.
    Cut,
    /// The client closed the connection first. In 2026-07-28 this cancels the request.
    #[serde(rename = "hung_up")]
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
        for record in read_lines(path)? {
            log.add(record);
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

    fn add(&mut self, record: HttpRecord) {
        let (pid, number) = (record.pid, record.number);
        let known = |request: &&mut HttpRequest| (request.pid, request.number) == (pid, number);
        match record.event {
            HttpLogEvent::Arrived { at_ms, verb, target, method, headers } => {
                let at = Duration::from_millis(at_ms);
                let request = HttpRequest {
                    number,
                    pid,
                    at,
                    verb,
                    target,
                    method,
                    headers,
                    status: None,
                    outcome: None,
                };
                self.requests.push(request);
            }
            HttpLogEvent::Ended { status, outcome } => {
                if let Some(request) = self.requests.iter_mut().rev().find(known) {
                    (request.status, request.outcome) = (status, Some(outcome));
                }
            }
        }
    }
}

/// One line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct HttpRecord {
    pid: u32,
    number: u64,
    #[serde(flatten)]
    event: HttpLogEvent,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum HttpLogEvent {
    Arrived {
        at_ms: u64,
        verb: String,
        target: String,
        method: Option<String>,
        headers: BTreeMap<String, String>,
    },
    Ended {
        status: Option<u16>,
        #[serde(rename = "ending")]
        outcome: HttpOutcome,
    },
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

    pub(crate) fn arrived(&self, number: u64, request: &Request) {
        let query = if request.query.is_empty() { "" } else { "?" };
        let at_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let event = HttpLogEvent::Arrived {
            at_ms,
            verb: request.verb.clone(),
            target: format!("{}{query}{}", request.path, request.query),
            method: method_of(&request.body),
            headers: request.headers.iter().cloned().collect(),
        };
        self.write(number, event);
    }

    pub(crate) fn ended(&self, number: u64, status: Option<u16>, outcome: HttpOutcome) {
        self.write(number, HttpLogEvent::Ended { status, outcome });
    }

    fn write(&self, number: u64, event: HttpLogEvent) {
        let record = HttpRecord { pid: std::process::id(), number, event };
        if self.lines.write(&record).is_err() {
            // An incomplete log proves nothing, so stop the run.
            scripted::exit(3);
        }
    }
}

fn method_of(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Message {
        method: String,
    }
    serde_json::from_slice::<Message>(body).ok().map(|message| message.method)
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
        writer.arrived(1, &request);
        writer.arrived(2, &request);
        writer.ended(1, Some(200), HttpOutcome::ClientClosed);
        let log = HttpLog::read(&path).expect("read");
        let ends: Vec<_> =
            log.with_method("ping").map(|request| (request.status, request.outcome)).collect();
        assert_eq!(ends, [(Some(200), Some(HttpOutcome::ClientClosed)), (None, None)]);
        assert_eq!(log.with_verb("GET").count(), 0);
    }
}
