//! Request log of a scripted server over HTTP: every request and the end of its response.
//!
//! **Invariant:** a record is one `write(2)` to a file opened for appending, so lines never mix.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

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
        let text = match std::fs::read_to_string(path) {
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => String::new(),
            other => other?,
        };
        let mut log = Self::default();
        for line in text.lines() {
            log.add(serde_json::from_str(line)?);
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
                let (status, outcome) = (None, None);
                self.requests.push(HttpRequest {
                    number,
                    pid,
                    at,
                    verb,
                    target,
                    method,
                    headers,
                    status,
                    outcome,
                });
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
pub(crate) struct HttpRecord {
    pid: u32,
    number: u64,
    #[serde(flatten)]
    event: HttpLogEvent,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum HttpLogEvent {
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
    file: File,
    started: Instant,
}

impl HttpLogWriter {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file, started: now() })
    }

    pub(crate) fn millis(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn write(&self, number: u64, event: HttpLogEvent) -> io::Result<()> {
        let record = HttpRecord { pid: std::process::id(), number, event };
        let mut line = serde_json::to_vec(&record)?;
        line.push(b'\n');
        (&self.file).write_all(&line)
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
        for number in [1, 2] {
            let arrived = HttpLogEvent::Arrived {
                at_ms: 7,
                verb: "POST".to_owned(),
                target: "/mcp".to_owned(),
                method: Some("ping".to_owned()),
                headers: BTreeMap::from([("host".to_owned(), "a".to_owned())]),
            };
            writer.write(number, arrived).expect("written");
        }
        let ended = HttpLogEvent::Ended { status: Some(200), outcome: HttpOutcome::ClientClosed };
        writer.write(1, ended).expect("written");
        let log = HttpLog::read(&path).expect("read");
        let ends: Vec<_> =
            log.with_method("ping").map(|request| (request.status, request.outcome)).collect();
        assert_eq!(ends, [(Some(200), Some(HttpOutcome::ClientClosed)), (None, None)]);
        assert_eq!(log.with_verb("GET").count(), 0);
    }
}
