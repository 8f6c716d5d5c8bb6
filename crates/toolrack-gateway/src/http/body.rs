//! The body of an answer: nothing, one message, or a stream of events.
//!
//! **Invariant:** a stream that nobody reads holds nothing but what waits in its queue, and a body that is
//! dropped lets go of everything that it kept open.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::stream;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use tokio::time::timeout;
use tokio_util::sync::DropGuard;

use super::session::Presence;
use crate::message_queue::{Outbox, Reader};

/// How often an idle stream shows that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The body of an answer.
pub type GatewayBody = UnsyncBoxBody<Bytes, Infallible>;

/// A stream of events, each a message.
pub(crate) struct Events {
    pub(crate) out: Arc<Outbox>,
    pub(crate) reader: Reader,
    /// The name of the stream, if its events can be asked for again.
    pub(crate) stream: Option<String>,
    /// What is written before the next event.
    pub(crate) first: Option<Bytes>,
    /// Ends the request with the stream, where leaving means cancelling.
    pub(crate) _request: Option<DropGuard>,
    /// Shows that somebody of a session is there.
    pub(crate) _presence: Option<Presence>,
}

pub(crate) fn empty() -> GatewayBody {
    Empty::new().boxed_unsync()
}

pub(crate) fn whole(message: Bytes) -> GatewayBody {
    Full::new(message).boxed_unsync()
}

pub(crate) fn streamed(events: Events) -> GatewayBody {
    let pieces = stream::unfold(events, async |mut events| {
        let piece = events.pull().await?;
        Some((Ok(Frame::data(piece)), events))
    });
    StreamBody::new(pieces).boxed_unsync()
}

impl Events {
    async fn pull(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        match timeout(KEEP_ALIVE, self.out.next(&self.reader)).await {
            Ok(next) => {
                next.map(|(number, message)| event(self.stream.as_deref(), number, &message))
            }
            Err(_elapsed) => Some(Bytes::from_static(b": alive\n\n")),
        }
    }
}

/// A message as an event. Messages are one line each, so they need no folding.
pub(crate) fn event(stream: Option<&str>, number: u64, message: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(message.len() + 64);
    if let Some(stream) = stream {
        out.put_slice(format!("id: {stream}-{number}\n").as_bytes());
    }
    out.put_slice(b"data: ");
    out.put_slice(message.trim_ascii_end());
    out.put_slice(b"\n\n");
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_event() {
        assert_eq!(event(None, 3, b"{}\n"), "data: {}\n\n");
        assert_eq!(event(Some("a"), 3, b"{}\n"), "id: a-3\ndata: {}\n\n");
    }
}
