//! A line in memory: for tests, and for servers that live in the same process.
//!
//! The two ends are a [`MemoryLine`], which is a [`Line`] like any other, and a [`MemoryPeer`], which
//! sees every message as the text it would be on a wire.

use std::sync::Arc;

use crate::{
    JsonRpcError, Params, RawJson, RequestId, write_answer, write_notification, write_request,
};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, timeout_at};

use crate::close_reason::Ending;
use crate::error::{LineError, TransportError};
use crate::message_router::Inbound;
use crate::timeout::answer_within;
use crate::transport::Diagnosis;
use crate::transport::{Abandon, BoxFuture, CANCELLED, Cancelled, Inbox, Line, Outgoing};

/// Messages that wait for the peer. When it is full, requests and notifications wait (within their
/// patience) and answers fail.
const CAPACITY: usize = 64;

/// The client's end.
#[derive(Debug)]
pub struct MemoryLine {
    inbound: Arc<Inbound>,
    outbound: mpsc::Sender<String>,
}

/// The server's end.
#[derive(Debug)]
pub struct MemoryPeer {
    inbound: Arc<Inbound>,
    heard: mpsc::Receiver<String>,
}

/// A new line whose unasked messages go to `inbox`.
pub fn pair(inbox: Arc<dyn Inbox>) -> (MemoryLine, MemoryPeer) {
    let inbound = Arc::new(Inbound::new(inbox));
    let (outbound, heard) = mpsc::channel(CAPACITY);
    (MemoryLine { inbound: Arc::clone(&inbound), outbound }, MemoryPeer { inbound, heard })
}

impl MemoryPeer {
    /// The next message of the client, without its line break. `None` once the client has gone.
    ///
    /// # Cancel safety
    /// Dropping the future loses no message.
    pub async fn hear(&mut self) -> Option<String> {
        self.heard.recv().await
    }

    /// Writes one line to the client.
    pub fn say(&self, line: &str) {
        self.inbound.accept(line.as_bytes());
    }

    /// Ends the line from the server's side.
    pub fn end(&self, ending: &Ending) {
        self.inbound.end(ending);
    }
}

impl Drop for MemoryPeer {
    fn drop(&mut self) {
        self.inbound.end(&Ending::OutputClosed);
    }
}

impl Drop for MemoryLine {
    fn drop(&mut self) {
        self.inbound.end(&Ending::Closed);
    }
}

impl MemoryLine {
    async fn ask(&self, request: Outgoing<'_>) -> Result<RawJson, LineError> {
        let due = request.patience.begin();
        let mut ticket =
            self.inbound.claim(due).map_err(|ending| LineError::not_sent(ending.to_error()))?;
        let id = ticket.id();
        let text = line_of(|out| write_request(out, id, request.method, request.params))?;
        let timed_out = |waited| TransportError::timed_out(waited);
        let Ok(place) = timeout_at(Instant::from_std(due.at), self.outbound.reserve()).await else {
            return Err(LineError::not_sent(timed_out(due.at - due.started)));
        };
        place.map_err(|_gone| LineError::not_sent(TransportError::StdinNotAvailable))?.send(text);
        let mut farewell = Farewell { line: self, id, abandon: request.abandon };
        let outcome = answer_within(&mut ticket, due)
            .await
            .map_err(|waited| LineError::unknown(timed_out(waited)))?;
        farewell.abandon = Abandon::Quietly;
        match outcome {
            Ok(reply) => reply.map_err(LineError::answered),
            Err(ending) => Err(LineError::unknown(ending.to_error())),
        }
    }

    fn send_now(&self, text: String) -> Result<(), LineError> {
        self.outbound.try_send(text).map_err(|refused| {
            LineError::not_sent(match refused {
                TrySendError::Full(text) => TransportError::Clogged { buffered_bytes: text.len() },
                TrySendError::Closed(_) => TransportError::StdinNotAvailable,
            })
        })
    }
}

impl Line for MemoryLine {
    fn request<'a>(&'a self, request: Outgoing<'a>) -> BoxFuture<'a, Result<RawJson, LineError>> {
        Box::pin(self.ask(request))
    }

    fn notify<'a>(
        &'a self,
        method: &'a str,
        params: &'a dyn Params,
    ) -> BoxFuture<'a, Result<(), LineError>> {
        Box::pin(async move {
            let text = line_of(|out| write_notification(out, method, params))?;
            let sent = self.outbound.send(text).await;
            sent.map_err(|_gone| LineError::not_sent(TransportError::StdinNotAvailable))
        })
    }

    fn answer(
        &self,
        id: &RequestId,
        outcome: Result<&RawValue, &JsonRpcError>,
    ) -> Result<(), LineError> {
        self.send_now(line_of(|out| write_answer(out, id, outcome))?)
    }

    fn touch(&self, id: u64) -> bool {
        self.inbound.touch(id)
    }

    fn diagnosis(&self) -> Diagnosis {
        self.inbound.tally().diagnosis()
    }

    fn close(&self) -> BoxFuture<'_, Ending> {
        self.inbound.end(&Ending::Closed);
        Box::pin(async move { self.inbound.ending().unwrap_or(Ending::Closed) })
    }
}

/// Tells the server that nobody waits any more, unless the answer came.
struct Farewell<'a> {
    line: &'a MemoryLine,
    id: u64,
    abandon: Abandon,
}

impl Drop for Farewell<'_> {
    fn drop(&mut self) {
        if self.abandon == Abandon::Quietly {
            return;
        }
        let told = line_of(|out| write_notification(out, CANCELLED, &Cancelled(self.id)))
            .and_then(|text| self.line.send_now(text));
        told.unwrap_or_else(|error| tracing::trace!(%error, "the server was not told"));
    }
}

fn line_of(
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), serde_json::Error>,
) -> Result<String, LineError> {
    let mut out = Vec::new();
    write(&mut out).map_err(|error| LineError::not_sent(TransportError::Serialize(error)))?;
    out.pop();
    Ok(String::from_utf8_lossy(&out).into_owned())
}

#[cfg(test)]
mod tests;
