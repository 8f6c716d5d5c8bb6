//! HTTP sessions and their streams.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::response::HttpResponse;
use super::response_stream::{ReplyMode, ResponseStream, StreamFormat};
use crate::message_sink::MessageSink;
use crate::process::unique_id;
use crate::scripted::client::Client;

/// Streams per session that can be resumed.
const MAX_STREAMS: usize = 1024;

#[derive(Debug, Default)]
pub(in crate::scripted) struct Sessions {
    pub(super) table: Mutex<HashMap<String, Arc<Session>>>,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) client: Arc<Client>,
    /// The GET stream; it exists even while disconnected.
    pub(super) get_stream: Arc<ResponseStream>,
    streams: Mutex<BTreeMap<u64, Arc<ResponseStream>>>,
    n_streams: AtomicU64,
}

impl Sessions {
    /// Creates a session whose GET stream has this format.
    pub(super) fn create(&self, stream_format: StreamFormat) -> Arc<Session> {
        let stream_format = StreamFormat { reply_mode: ReplyMode::Sse, ..stream_format };
        let get_stream = ResponseStream::new(stream_format, None, None);
        let sink: Arc<dyn MessageSink> = Arc::<ResponseStream>::clone(&get_stream);
        let session = Arc::new(Session {
            id: unique_id(),
            client: Client::new(sink),
            get_stream,
            streams: Mutex::default(),
            n_streams: AtomicU64::new(0),
        });
        self.table.lock().insert(session.id.clone(), Arc::clone(&session));
        session
    }
}

impl Session {
    /// Creates the stream for the response to one request.
    pub(super) fn reply_stream(
        &self,
        mut stream_format: StreamFormat,
        response: &Arc<HttpResponse>,
    ) -> Arc<ResponseStream> {
        let number = self.n_streams.fetch_add(1, Ordering::Relaxed) + 1;
        stream_format.number = stream_format.number.map(|_| number);
        let fallback: Arc<dyn MessageSink> = Arc::<ResponseStream>::clone(&self.get_stream);
        let stream = ResponseStream::new(stream_format, Some(Arc::clone(response)), Some(fallback));
        if stream_format.number.is_some() {
            let mut streams = self.streams.lock();
            streams.insert(number, Arc::clone(&stream));
            if streams.len() > MAX_STREAMS {
                streams.pop_first();
            }
        }
        stream
    }

    /// Finds the stream of an event id, and the number of the event.
    pub(super) fn find(&self, event_id: &str) -> Option<(Arc<ResponseStream>, u64)> {
        let (stream, event) = event_id.split_once('-')?;
        let (stream, event): (u64, u64) = (stream.parse().ok()?, event.parse().ok()?);
        if self.get_stream.stream_format.number == Some(stream) {
            return Some((Arc::clone(&self.get_stream), event));
        }
        self.streams.lock().get(&stream).map(|found| (Arc::clone(found), event))
    }
}
