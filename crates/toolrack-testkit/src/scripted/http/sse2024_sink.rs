//! The way back of 2024-11-05: answers go to the stream that the GET opened, and the POST itself is only accepted.

use std::sync::Arc;

use super::response::Reply;
use super::response_stream::Stream;
use crate::message_sink::{Long, Outlet};
use crate::plan::HttpFault;

#[derive(Debug)]
pub(super) struct Detour {
    pub(super) post: Arc<Reply>,
    pub(super) stream: Arc<Stream>,
}

impl Outlet for Detour {
    fn put(&self, line: &[u8]) {
        self.stream.put(line);
    }

    fn answer_bytewise(&self, line: &[u8]) {
        self.stream.answer_bytewise(line);
    }

    fn put_long(&self, message: &Long<'_>) {
        self.stream.put_long(message);
    }

    fn write_raw(&self, bytes: &[u8]) {
        self.stream.write_raw(bytes);
    }

    fn flush(&self) {}

    fn finish(&self) {
        self.post.finish();
    }

    /// What concerns a stream goes wrong with the stream, and the rest with the POST.
    fn misbehave(&self, fault: &HttpFault) {
        match fault {
            HttpFault::Cut(_) | HttpFault::End(_) => self.stream.break_off(),
            _ => self.post.misbehave(fault),
        }
    }

    fn is_broken(&self) -> bool {
        self.stream.is_broken()
    }
}
