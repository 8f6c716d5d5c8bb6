//! HTTP/1.1 client for these tests: one connection, raw bytes, and a timeout on every read.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use crate::peer::TIMEOUT;

/// One connection.
#[derive(Debug)]
pub(crate) struct Http {
    input: BufReader<TcpStream>,
    /// Bytes of an incomplete event.
    partial: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) retry: Option<String>,
    pub(crate) data: Vec<String>,
}

impl Head {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.header("content-type") == Some("text/event-stream")
    }
}

impl Http {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self { input: BufReader::new(stream), partial: Vec::new() })
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        self.input.get_ref()
    }

    pub(crate) fn send(
        &mut self,
        verb: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<()> {
        let host = self.stream().peer_addr()?;
        let mut text = format!("{verb} {target} HTTP/1.1\r\nhost: {host}\r\n");
        let length = body.len().to_string();
        for (name, value) in headers.iter().chain(&[("content-length", length.as_str())]) {
            text.extend([name, ": ", value, "\r\n"]);
        }
        text.push_str("\r\n");
        self.stream().write_all(&[text.as_bytes(), body].concat())
    }

    pub(crate) fn head(&mut self) -> io::Result<Head> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no status: {first:?}")))?;
        let mut headers = BTreeMap::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else {
                return Ok(Head { status, headers });
            };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
    }

    /// Reads the whole body; an error if it is cut off.
    pub(crate) fn body(&mut self, head: &Head) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if let Some(length) = head.header("content-length") {
            body.resize(length.parse().map_err(io::Error::other)?, 0);
            self.input.read_exact(&mut body)?;
            return Ok(body);
        }
        while let Some(chunk) = self.chunk()? {
            body.extend(chunk);
        }
        Ok(body)
    }

    /// Reads the next chunk; `None` at the end of the body.
    pub(crate) fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let line = self.line()?;
        let size = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
        let mut chunk = vec![0; size];
        self.input.read_exact(&mut chunk)?;
        self.line()?;
        Ok(Some(chunk).filter(|chunk| !chunk.is_empty()))
    }

    /// Reads the next event of a stream; `None` at its end. Skips comments.
    #[expect(clippy::disallowed_methods, reason = "comments could keep the wait alive without end")]
    pub(crate) fn event(&mut self) -> io::Result<Option<Event>> {
        let begun = Instant::now();
        loop {
            if begun.elapsed() > TIMEOUT {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if let Some(end) = self.partial.windows(2).position(|partial| partial == b"\n\n") {
                let text: Vec<u8> = self.partial.drain(..end + 2).collect();
                let event = parse_event(&String::from_utf8_lossy(&text));
                if event != Event::default() {
                    return Ok(Some(event));
                }
                continue;
            }
            match self.chunk()? {
                // Lines may end in CRLF; nothing else in these streams has a CR.
                Some(chunk) => self.partial.extend(chunk.iter().filter(|chunk| **chunk != b'\r')),
                None => return Ok(None),
            }
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.input.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

fn parse_event(text: &str) -> Event {
    let mut event = Event::default();
    for line in text.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
        match field {
            "id" => event.id = Some(value),
            "event" => event.name = Some(value),
            "retry" => event.retry = Some(value),
            "data" => event.data.push(value),
            _ => (),
        }
    }
    event
}
