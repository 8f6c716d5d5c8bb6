//! The answer of a server as it comes in: its head, and its body piece by piece.
//!
//! **Invariant:** a body never grows beyond its limit, packed or not, and its connection is used again only
//! when it has been read to its end.

use std::future::poll_fn;
use std::io::{self, Write as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use flate2::write::GzDecoder;
use http::header::CONTENT_TYPE;
use http::{Response, StatusCode};
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout;

use crate::connection_pool::{Pool, as_io};
use crate::http1::{Head, Lane};
use crate::response_headers::{Content, Kind, Packing, Remarks};
use crate::transport::Staff;

/// A small body is copied, so that it does not keep a large buffer alive.
const COPY_BYTES: usize = 4 << 10;
/// What is believed of a body's own word on its size before it comes.
const MAX_FORESIGHT_BYTES: u64 = 4 << 20;
/// How long the end of a stream may take after its answer, for its connection to be kept.
const FINISH_LIMIT: Duration = Duration::from_millis(500);

/// What brings a body, and where it goes afterwards.
enum Carrier {
    Own(Box<Lane>, Arc<Pool>),
    Shared(Incoming),
}

/// An answer of which the head has come.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) remarks: Remarks,
    /// `None` after the end of the body.
    carrier: Option<Carrier>,
    content: Content,
    unpacker: Option<Box<Unpacker>>,
    /// After how long without a byte the body counts as dead.
    pub(crate) idle: Option<Duration>,
    /// What has been read of the body by somebody who had to look.
    pub(crate) said: Option<Bytes>,
}

/// Why a body could not be taken.
#[derive(Debug)]
pub(crate) enum BodyFault {
    Oversize,
    Broken(io::Error),
}

impl Reply {
    pub(crate) fn own(head: Head, lane: Box<Lane>, pool: Arc<Pool>) -> Self {
        Self::new(head.status, head.remarks, head.content, Carrier::Own(lane, pool))
    }

    pub(crate) fn shared(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        let content = Content::of(&head.headers);
        Self::new(head.status, head.headers.into(), content, Carrier::Shared(body))
    }

    fn new(status: StatusCode, remarks: Remarks, content: Content, carrier: Carrier) -> Self {
        let unpacker = (content.packing == Packing::Gzip).then(Box::default);
        Self { status, remarks, carrier: Some(carrier), content, unpacker, idle: None, said: None }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.content.kind
    }

    /// What the server calls the body, for people.
    pub(crate) fn content_type(&self) -> &str {
        match self.content.kind {
            Kind::Json => "application/json",
            Kind::Events => "text/event-stream",
            Kind::Other => {
                let value = self.remarks.get(&CONTENT_TYPE).and_then(|value| value.to_str().ok());
                value.unwrap_or_default()
            }
        }
    }

    /// The whole body, if it is small and has come already. Whoever has used it says so by [`Reply::skip`].
    pub(crate) fn at_hand(&self) -> Option<&[u8]> {
        match &self.carrier {
            Some(Carrier::Own(lane, _)) if self.content.packing == Packing::None => lane.at_hand(),
            _ => None,
        }
    }

    /// The next piece, unpacked; `None` at the end.
    pub(crate) async fn piece(&mut self, limit_bytes: usize) -> Result<Option<Bytes>, BodyFault> {
        loop {
            let Some(packed) = self.packed_piece().await? else { return Ok(None) };
            let piece = match (&mut self.unpacker, self.content.packing) {
                (Some(unpacker), _) => unpacker.unpack(&packed, limit_bytes)?,
                (None, Packing::None) => packed,
                (None, _) => {
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
        let told = self.told_bytes().filter(|_| self.content.packing == Packing::None);
        if told.is_some_and(|told| told > limit_bytes as u64) {
            return Err(BodyFault::Oversize);
        }
        let Some(first) = self.piece(limit_bytes).await? else { return Ok(Bytes::new()) };
        if first.len() > limit_bytes {
            return Err(BodyFault::Oversize);
        }
        if told == Some(first.len() as u64) {
            // What a shared connection brings is cut out of a large buffer.
            let is_cut = matches!(self.carrier, Some(Carrier::Shared(_)));
            let is_copied = is_cut && first.len() <= COPY_BYTES;
            self.finish();
            return Ok(if is_copied { Bytes::copy_from_slice(&first) } else { first });
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

    /// The body at hand has been used: gives the connection back.
    pub(crate) fn skip(&mut self) {
        if let Some(Carrier::Own(mut lane, pool)) = self.carrier.take() {
            lane.skip();
            pool.give_back(lane);
        }
    }

    /// Lets go of the connection wherever the body is.
    pub(crate) fn cut(&mut self) {
        self.carrier = None;
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
    pub(crate) fn leave(&mut self, staff: &Staff) {
        self.finish();
        let carrier = self.carrier.take().filter(|carrier| matches!(carrier, Carrier::Own(..)));
        let Some(carrier) = carrier.filter(|_| !staff.stop.is_cancelled()) else { return };
        // What the rest says does not matter, so it is not unpacked.
        let mut rest = Self::new(self.status, Remarks::default(), Content::default(), carrier);
        let stop = staff.stop.clone();
        staff.employ(async move {
            let rest = async { while let Ok(Some(_)) = rest.piece(COPY_BYTES).await {} };
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

// FOLDED gzip.rs
// DOC Unpacking of what came as gzip, without unpacking more than is wanted.

/// A packed byte becomes at most about a thousand, so so many at a time overshoot a limit by half a
/// megabyte at most.
const STEP_BYTES: usize = 512;

/// Unpacks one body, piece by piece.
#[derive(Debug)]
pub(crate) struct Unpacker {
    decoder: GzDecoder<Vec<u8>>,
}

impl Default for Unpacker {
    fn default() -> Self {
        Self { decoder: GzDecoder::new(Vec::new()) }
    }
}

impl Unpacker {
    /// What the next packed piece holds, which may be nothing yet.
    pub(crate) fn unpack(&mut self, packed: &[u8], limit_bytes: usize) -> Result<Bytes, BodyFault> {
        for step in packed.chunks(STEP_BYTES) {
            self.decoder.write_all(step).map_err(broken)?;
            if self.decoder.get_ref().len() > limit_bytes {
                return Err(BodyFault::Oversize);
            }
        }
        self.decoder.flush().map_err(broken)?;
        if self.decoder.get_ref().len() > limit_bytes {
            return Err(BodyFault::Oversize);
        }
        Ok(Bytes::from(std::mem::take(self.decoder.get_mut())))
    }
}

fn broken(error: io::Error) -> BodyFault {
    BodyFault::Broken(error)
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn every_cut_unpacks_to_the_same() {
        let text = b"{\"jsonrpc\":\"2.0\"} and more, and more, and more".repeat(20);
        let packed = packed(&text);
        for size in [1, 7, 64, packed.len()] {
            let mut unpacker = Unpacker::default();
            let mut found = Vec::new();
            for piece in packed.chunks(size) {
                found.extend_from_slice(&unpacker.unpack(piece, 1 << 20).unwrap());
            }
            assert_eq!(found, text, "{size}");
        }
    }

    #[test]
    fn a_bomb_does_not_go_off() {
        let packed = packed(&vec![0; 64 << 20]);
        assert!(packed.len() < 100 << 10);
        let mut unpacker = Unpacker::default();
        assert!(matches!(unpacker.unpack(&packed, 1 << 20), Err(BodyFault::Oversize)));
        assert!(unpacker.decoder.get_ref().len() < 3 << 20);
    }

    #[test]
    fn what_is_not_packed_is_no_answer() {
        let unpacked = Unpacker::default().unpack(b"{\"jsonrpc\":\"2.0\"}", 1 << 20);
        assert!(matches!(unpacked, Err(BodyFault::Broken(_))));
    }
}
