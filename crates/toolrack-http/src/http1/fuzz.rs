//! Fuzz targets of the HTTP/1.1 reader: chunking does not matter, and no response is read otherwise than by hyper.
//!
//! The first byte of an input is [`Ending`] and how the body is read, the second the size of the reads, the rest is
//! what the server sends.

#![expect(clippy::panic, reason = "a fuzz target fails by panicking")]

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request};
use http_body_util::Empty;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper::rt::ReadBufCursor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Http1Connection;
use super::decoder::KEPT_HEADERS;
use crate::response::ContentInfo;

/// Our errors of responses that hyper accepts, each with the reason why refusing them is safe.
///
/// **Invariant:** there is no list for the other direction. A response that hyper refuses is refused here too.
const STRICTER: [(&str, &str); 6] = [
    (
        "invalid Content-Length",
        "hyper accepts a list of equal lengths (`3, 3`), and any length beside Transfer-Encoding or in a 204 or 304; \
         RFC 9112 §6.3 lets a client refuse them",
    ),
    (
        "two different Content-Length values",
        "hyper ignores them beside Transfer-Encoding and in a 204 or 304; a server that contradicts itself is not \
         trusted with the end of the body",
    ),
    (
        "the server switched protocols",
        "hyper hands the connection to an upgrade; no request here asks for one, so a 101 is a protocol error",
    ),
    (
        "a line of a chunked body does not end with CRLF",
        "hyper accepts a lone LF between two trailer fields, because httparse does; RFC 9112 §7.1.2 requires CRLF",
    ),
    (
        "invalid response trailer",
        "hyper checks trailers as one block and accepts what ends a line of it early; each line is checked here",
    ),
    (
        "a chunk header line is too long",
        "the limit is 4 KiB for one line; hyper allows 16 KiB for all chunk extensions and for all trailers",
    ),
];

/// How the server's bytes end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Closed,
    Open,
}

/// Server that has sent its bytes already, and never waits.
struct SentBytes {
    bytes: Bytes,
    step: usize,
    ending: Ending,
    /// Whether the request has come. hyper refuses a response that comes before.
    is_asked: bool,
    /// Bytes not read yet.
    n_left: Arc<AtomicUsize>,
}

/// What a caller sees of one exchange.
#[derive(Debug, PartialEq, Eq)]
struct Exchange {
    head: Option<Head>,
    body: Vec<u8>,
    end: End,
    /// Whether the connection can take another request.
    is_usable: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    content: ContentInfo,
    kept: Vec<(&'static str, HeaderValue)>,
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Complete,
    /// The server has to send more.
    Waiting,
    Failed(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyReading {
    Chunks,
    /// With `parse_buffered` where it applies.
    Buffered,
}

/// The size of the reads and the way to read the body do not matter.
pub(crate) fn http1_response(data: &[u8]) {
    let [options, step, bytes @ ..] = data else { return };
    let ending = ending(*options);
    let whole = read(bytes, usize::MAX, ending, BodyReading::Chunks);
    let reading = if options & 2 == 0 { BodyReading::Chunks } else { BodyReading::Buffered };
    let step = usize::from(*step) + 1;
    let parts = read(bytes, step, ending, reading);
    assert_eq!(whole, parts, "by {step}");
    assert!(whole.body.len() <= bytes.len());
}

/// Nothing is accepted that hyper refuses, and what both accept is the same.
pub(crate) fn http1_differential(data: &[u8]) {
    let [options, step, bytes @ ..] = data else { return };
    let ending = ending(*options);
    let step = if options & 2 == 0 { usize::MAX } else { usize::from(*step) + 1 };
    let ours = read(bytes, step, ending, BodyReading::Chunks);
    let theirs = read_with_hyper(bytes, step, ending);
    compare(bytes, &ours, &theirs);
}

fn compare(bytes: &[u8], ours: &Exchange, theirs: &Exchange) {
    match (&ours.end, &theirs.end) {
        (End::Failed(reason), _) if STRICTER.iter().any(|(error, _)| error == reason) => return,
        (End::Complete, End::Complete) => assert_eq!(ours.body, theirs.body),
        (End::Failed(_), End::Failed(_)) | (End::Waiting, End::Waiting) => {}
        // hyper looks at each byte of a line, this reader at the whole line. No rest of the line makes it valid.
        (End::Waiting, End::Failed(_)) => {
            for rest in ["\r\n", "\r\n\r\n", "0\r\n\r\n", "\n", "\n\r\n", "\r\n0\r\n\r\n"] {
                let more = [bytes, rest.as_bytes()].concat();
                let end = read(&more, usize::MAX, Ending::Open, BodyReading::Chunks).end;
                assert_ne!(end, End::Complete, "{rest:?} completes what hyper refuses: {theirs:?}");
            }
        }
        // After a first look at a partial head, hyper waits for its end; this reader looks at every read.
        (End::Failed(_), End::Waiting) if theirs.head.is_none() => {
            let end = read_with_hyper(bytes, usize::MAX, Ending::Open).end;
            assert!(matches!(end, End::Failed(_)), "{ours:?} differs from hyper's {end:?}");
        }
        _ => panic!("{ours:?} differs from hyper's {theirs:?}"),
    }
    // A body of known length is handed out when it is complete.
    assert!(theirs.body.starts_with(&ours.body), "{ours:?} differs from hyper's {theirs:?}");
    assert_eq!(ours.head, theirs.head);
    assert!(!ours.is_usable || theirs.is_usable, "{ours:?} is reused, hyper's {theirs:?} is not");
}

fn ending(options: u8) -> Ending {
    if options & 1 == 0 { Ending::Closed } else { Ending::Open }
}

impl Exchange {
    fn new() -> Self {
        Self { head: None, body: Vec::new(), end: End::Waiting, is_usable: false }
    }

    fn ended(self, end: End) -> Self {
        Self { end, ..self }
    }
}

/// Reads a response as the transport does.
fn read(bytes: &[u8], step: usize, ending: Ending, reading: BodyReading) -> Exchange {
    let mut context = Context::from_waker(Waker::noop());
    let mut exchange = Exchange::new();
    let failed = |error: io::Error| End::Failed(error.to_string());
    let mut stream = SentBytes::new(bytes, step, ending);
    stream.is_asked = true;
    let mut connection = Http1Connection::new(Box::new(stream));
    let head = match connection.poll_head(&mut context) {
        Poll::Ready(Ok(head)) => head,
        Poll::Ready(Err(error)) => return exchange.ended(failed(error)),
        Poll::Pending => return exchange,
    };
    connection.framing = head.framing;
    connection.is_reusable = head.is_reusable;
    let status = head.status.as_u16();
    exchange.head = Some(Head { status, content: head.content, kept: kept(&head.headers) });
    if reading == BodyReading::Buffered {
        let buffered = connection.parse_buffered(|body| Some(body.to_vec()));
        exchange.body = buffered.unwrap_or_default();
    }
    exchange.end = loop {
        match connection.poll_chunk(&mut context) {
            Poll::Ready(Ok(Some(chunk))) => {
                assert!(!chunk.is_empty());
                exchange.body.extend_from_slice(&chunk);
            }
            Poll::Ready(Ok(None)) => break End::Complete,
            Poll::Ready(Err(error)) => break failed(error),
            Poll::Pending => break End::Waiting,
        }
    };
    exchange.is_usable = exchange.end == End::Complete && connection.is_usable();
    exchange
}

/// Headers that the transport looks at, with their values.
fn kept(headers: &HeaderMap) -> Vec<(&'static str, HeaderValue)> {
    let names = KEPT_HEADERS.iter();
    let values = names
        .flat_map(|name| headers.get_all(name).iter().map(|value| (name.as_str(), value.clone())));
    values.collect()
}

fn read_with_hyper(bytes: &[u8], step: usize, ending: Ending) -> Exchange {
    let mut context = Context::from_waker(Waker::noop());
    let mut exchange = Exchange::new();
    let stream = SentBytes::new(bytes, step, ending);
    let n_left = Arc::clone(&stream.n_left);
    let handshake = pin!(http1::handshake(stream));
    let Poll::Ready(Ok((mut sender, connection))) = handshake.poll(&mut context) else {
        panic!("hyper's handshake waits for nothing")
    };
    let mut driver = Driver { connection: Some(Box::pin(connection)), n_left, n_idle: 0 };
    let request = Request::post("/mcp").header("host", "localhost").body(Empty::<Bytes>::new());
    let Ok(request) = request else { panic!("the request is valid") };
    let mut response = pin!(sender.send_request(request));
    let response = match driver.run(&mut context, |context| response.as_mut().poll(context)) {
        Some(Ok(response)) => response,
        Some(Err(error)) => return exchange.ended(End::Failed(format!("{error:?}"))),
        None => return exchange,
    };
    let headers = response.headers();
    exchange.head = Some(Head {
        status: response.status().as_u16(),
        content: ContentInfo::from_headers(headers),
        kept: kept(headers),
    });
    let mut body: Incoming = response.into_body();
    exchange.end = loop {
        match driver.run(&mut context, |context| Pin::new(&mut body).poll_frame(context)) {
            Some(Some(Ok(frame))) => {
                exchange.body.extend(frame.into_data().unwrap_or_default());
            }
            Some(Some(Err(error))) => break End::Failed(format!("{error:?}")),
            Some(None) => break End::Complete,
            None => break End::Waiting,
        }
    };
    drop(body);
    // Lets the connection find what follows the body.
    let _is_idle: Option<()> = driver.run(&mut context, |_context| Poll::Pending);
    exchange.is_usable = exchange.end == End::Complete && sender.is_ready();
    exchange
}

type HyperConnection = http1::Connection<SentBytes, Empty<Bytes>>;

/// Polls hyper's connection beside a future that needs it.
struct Driver {
    connection: Option<Pin<Box<HyperConnection>>>,
    n_left: Arc<AtomicUsize>,
    n_idle: u8,
}

impl Driver {
    /// Polls until `poll` is ready. `None` if nothing moves any more.
    fn run<T>(
        &mut self,
        context: &mut Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Option<T> {
        self.n_idle = 0;
        while self.n_idle < 3 {
            if let Poll::Ready(value) = poll(context) {
                return Some(value);
            }
            let before = self.n_left.load(Ordering::Relaxed);
            let polled =
                self.connection.as_mut().map(|connection| connection.as_mut().poll(context));
            if let Some(Poll::Ready(_outcome)) = polled {
                self.connection = None;
            } else if self.n_left.load(Ordering::Relaxed) == before {
                self.n_idle += 1;
            }
            if self.connection.is_none() {
                self.n_idle += 1;
            }
        }
        None
    }
}

impl SentBytes {
    fn new(bytes: &[u8], step: usize, ending: Ending) -> Self {
        let n_left = Arc::new(AtomicUsize::new(bytes.len()));
        Self { bytes: Bytes::copy_from_slice(bytes), step, ending, is_asked: false, n_left }
    }

    /// The next bytes, none at the end.
    fn take(&mut self, room: usize) -> Poll<Bytes> {
        if !self.is_asked || self.bytes.is_empty() && self.ending == Ending::Open {
            return Poll::Pending;
        }
        let taken = self.bytes.split_to(self.bytes.len().min(self.step).min(room));
        self.n_left.store(self.bytes.len(), Ordering::Relaxed);
        Poll::Ready(taken)
    }
}

impl AsyncRead for SentBytes {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.take(buffer.remaining()).map(|taken| {
            buffer.put_slice(&taken);
            Ok(())
        })
    }
}

impl hyper::rt::Read for SentBytes {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.take(buffer.remaining()).map(|taken| {
            buffer.put_slice(&taken);
            Ok(())
        })
    }
}

impl AsyncWrite for SentBytes {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.is_asked = true;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for SentBytes {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(self, context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(self, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_shutdown(self, context)
    }
}
