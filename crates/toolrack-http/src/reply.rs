//! The answer of a server as it comes in: its head, and its body piece by piece.
//!
//! **Invariant:** a body never grows beyond its limit, packed or not, and its connection is used again only
//! when it has been read to its end.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout;

use crate::gzip::Unpacker;
use crate::lane::Lane;
use crate::pool::{Pool, as_io};
use crate::staff::Staff;

/// A small body is copied, so that it does not keep a large buffer alive.
const COPY_BYTES: usize = 4 << 10;
/// What is believed of a body's own word on its size before it comes.
const MAX_FORESIGHT_BYTES: u64 = 4 << 20;
/// How long the end of a stream may take after its answer, for its connection to be kept.
const FINISH_LIMIT: Duration = Duration::from_millis(500);

/// What brings a body, and where it goes afterwards.
pub(crate) enum Carrier {
    Own(Box<Lane>, Arc<Pool>),
    Shared(Incoming),
}

/// An answer of which the head has come.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// `None` after the end of the body.
    carrier: Option<Carrier>,
    packing: Packing,
    /// After how long without a byte the body counts as dead.
    pub(crate) idle: Option<Duration>,
    /// What has been read of the body by somebody who had to look.
    pub(crate) said: Option<Bytes>,
}

enum Packing {
    None,
    Gzip(Box<Unpacker>),
    /// Something we did not ask for.
    Unknown,
}

/// What kind of answer the head promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Json,
    Events,
    Other,
}

/// Why a body could not be taken.
#[derive(Debug)]
pub(crate) enum BodyFault {
    Oversize,
    Broken(io::Error),
}

impl Reply {
    pub(crate) fn new(status: StatusCode, headers: HeaderMap, carrier: Carrier) -> Self {
        let packing = match headers.get(CONTENT_ENCODING).map(http::HeaderValue::as_bytes) {
            None => Packing::None,
            Some(it) if it.eq_ignore_ascii_case(b"identity") => Packing::None,
            Some(it) if it.eq_ignore_ascii_case(b"gzip") => Packing::Gzip(Box::default()),
            Some(_) => Packing::Unknown,
        };
        Self { status, headers, carrier: Some(carrier), packing, idle: None, said: None }
    }

    pub(crate) fn kind(&self) -> Kind {
        let value = self.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        kind_of(value.unwrap_or_default())
    }

    /// The next piece, unpacked; `None` at the end.
    pub(crate) async fn piece(&mut self, limit_bytes: usize) -> Result<Option<Bytes>, BodyFault> {
        loop {
            let Some(packed) = self.packed_piece().await? else { return Ok(None) };
            let piece = match &mut self.packing {
                Packing::None => packed,
                Packing::Gzip(unpacker) => unpacker.unpack(&packed, limit_bytes)?,
                Packing::Unknown => {
                    let reason = io::Error::other("a content encoding that nobody asked for");
                    return Err(BodyFault::Broken(reason));
                }
            };
            if !piece.is_empty() {
                return Ok(Some(piece));
            }
        }
    }

    async fn packed_piece(&mut self) -> Result<Option<Bytes>, BodyFault> {
        let Some(idle) = self.idle else {
            return poll_fn(|context| self.poll_piece(context)).await;
        };
        let piece = timeout(idle, poll_fn(|context| self.poll_piece(context))).await;
        piece.unwrap_or_else(|_elapsed| {
            let reason = format!("not a byte within {idle:?}");
            Err(BodyFault::Broken(io::Error::new(io::ErrorKind::TimedOut, reason)))
        })
    }

    /// The whole body in one buffer. A body that comes in one piece is not copied, unless it is small.
    pub(crate) async fn whole(&mut self, limit_bytes: usize) -> Result<Bytes, BodyFault> {
        let told = self.told_bytes().filter(|_| matches!(self.packing, Packing::None));
        if told.is_some_and(|told| told > limit_bytes as u64) {
            return Err(BodyFault::Oversize);
        }
        let Some(first) = self.piece(limit_bytes).await? else { return Ok(Bytes::new()) };
        if first.len() > limit_bytes {
            return Err(BodyFault::Oversize);
        }
        if told == Some(first.len() as u64) {
            self.finish();
            return Ok(if first.len() > COPY_BYTES {
                first
            } else {
                Bytes::copy_from_slice(&first)
            });
        }
        let foresight = told.unwrap_or_default().min(MAX_FORESIGHT_BYTES);
        let mut buffer = BytesMut::with_capacity(usize::try_from(foresight).unwrap_or_default());
        buffer.extend_from_slice(&first);
        drop(first);
        while let Some(piece) = self.piece(limit_bytes).await? {
            if buffer.len() + piece.len() > limit_bytes {
                return Err(BodyFault::Oversize);
            }
            buffer.extend_from_slice(&piece);
        }
        Ok(buffer.freeze())
    }

    /// The beginning of the body, for people and for finding out what went wrong. Whatever goes wrong with
    /// it is not worth a word.
    pub(crate) async fn beginning(&mut self, limit_bytes: usize) -> Bytes {
        let mut buffer = BytesMut::new();
        while let Ok(Some(piece)) = self.piece(limit_bytes).await {
            let room = limit_bytes.saturating_sub(buffer.len()).min(piece.len());
            buffer.extend_from_slice(piece.get(..room).unwrap_or_default());
            if buffer.len() >= limit_bytes {
                break;
            }
        }
        buffer.freeze()
    }

    /// How many bytes are to come, if the server has said so.
    fn told_bytes(&self) -> Option<u64> {
        match self.carrier.as_ref()? {
            Carrier::Own(lane, _) => lane.told_bytes(),
            Carrier::Shared(body) => body.size_hint().upper(),
        }
    }

    /// Gives the connection back if the body has ended, which does not wait.
    pub(crate) fn finish(&mut self) {
        let mut context = Context::from_waker(std::task::Waker::noop());
        // A few pieces may be at hand; a body without end is not followed.
        for _ in 0..4 {
            if !matches!(self.poll_piece(&mut context), Poll::Ready(Ok(Some(_more)))) {
                return;
            }
        }
    }

    /// Sees to it that the connection can be used again soon, without letting the caller wait for it.
    pub(crate) fn leave(mut self, staff: &Staff) {
        self.finish();
        if !matches!(self.carrier, Some(Carrier::Own(..))) || staff.stop.is_cancelled() {
            return;
        }
        let stop = staff.stop.clone();
        staff.employ(async move {
            let rest = async { while let Ok(Some(_)) = self.piece(COPY_BYTES).await {} };
            tokio::select! {
                _done = timeout(FINISH_LIMIT, rest) => {}
                () = stop.cancelled() => {}
            }
        });
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyFault>> {
        let piece = match &mut self.carrier {
            None => return Poll::Ready(Ok(None)),
            Some(Carrier::Own(lane, _)) => ready!(lane.poll_piece(context)),
            Some(Carrier::Shared(body)) => ready!(poll_shared(body, context)),
        };
        match piece {
            Ok(Some(piece)) => Poll::Ready(Ok(Some(piece))),
            Ok(None) => {
                if let Some(Carrier::Own(lane, pool)) = self.carrier.take() {
                    pool.give_back(lane);
                }
                Poll::Ready(Ok(None))
            }
            Err(error) => {
                self.carrier = None;
                Poll::Ready(Err(BodyFault::Broken(error)))
            }
        }
    }
}

fn poll_shared(body: &mut Incoming, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
    loop {
        match ready!(Pin::new(&mut *body).poll_frame(context)) {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(piece) => return Poll::Ready(Ok(Some(piece))),
                Err(_trailers) => {}
            },
            Some(Err(error)) => return Poll::Ready(Err(as_io(error))),
            None => return Poll::Ready(Ok(None)),
        }
    }
}

fn kind_of(content_type: &str) -> Kind {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("text/event-stream") {
        return Kind::Events;
    }
    if essence.eq_ignore_ascii_case("application/json") { Kind::Json } else { Kind::Other }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(content_type: &str, expected: Kind) {
        assert_eq!(kind_of(content_type), expected, "{content_type}");
    }

    #[test]
    fn kinds_are_told_without_their_parameters() {
        check("application/json", Kind::Json);
        check("Application/JSON; charset=utf-8", Kind::Json);
        check(" application/json ;x", Kind::Json);
        check("text/event-stream;charset=utf-8", Kind::Events);
        check("application/json-seq", Kind::Other);
        check("text/html", Kind::Other);
        check("", Kind::Other);
    }
}
