//! A client at the other end of a pipe: one message a line, in either era.
//!
//! **Invariant:** a client that does not read slows down nobody but itself, and is given up in the end. What was
//! asked before the input ended is still answered, if that does not take long. A closed gateway waits for nobody.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{sleep, timeout};
use toolrack_mcp::ErrorCode;
use toolrack_transport::JsonRpcError;

use crate::client_session::{Conversation, Reply};
use crate::encode::refusal_without_id;
use crate::gateway::Gateway;
use crate::message_queue::{Outbox, Replay};

/// While so much is unread by the client, nothing more is taken from it.
const MAX_UNREAD_BYTES: usize = 64 << 20;
/// How long open requests may go on after the input has ended.
const DRAIN: Duration = Duration::from_secs(5);
/// How long the last answers may take to be read after the gateway was closed.
const LAST_WORDS: Duration = Duration::from_secs(2);
const DRAIN_LOOK: Duration = Duration::from_millis(10);
const READ_BYTES: usize = 64 << 10;
/// So much is written at once, if there is so much.
const WRITE_BYTES: usize = 32 << 10;

impl Gateway {
    /// Serves one client until its input ends, it is given up, or the gateway is closed.
    ///
    /// # Cancel safety
    /// Dropping the future ends the conversation, and what is open is cancelled at the servers.
    pub async fn serve_stdio(
        &self,
        reader: impl AsyncRead + Unpin,
        writer: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let out = Arc::new(Outbox::new(Replay::No, self.shared.manager.mask()));
        let client = Client(Conversation::new(Arc::clone(&self.shared), Arc::clone(&out)));
        let writing = write(&out, writer, self.shared.options.write_patience);
        let reading = async {
            tokio::select! {
                biased;
                () = self.shared.stop.cancelled() => {}
                read = read(&client.0, reader, self.shared.options.max_message_bytes) => read?,
            }
            client.drain().await;
            out.finish();
            Ok(())
        };
        // The writer ends by itself when everything is written, and earlier if nobody reads.
        tokio::pin!(writing);
        tokio::select! {
            written = &mut writing => written,
            read = reading => {
                let written = tokio::select! {
                    written = &mut writing => written,
                    () = self.last_words() => Err(does_not_read()),
                };
                read.and(written)
            }
        }
    }

    /// Waits until nobody has to be waited for any more.
    async fn last_words(&self) {
        self.shared.stop.cancelled().await;
        sleep(LAST_WORDS).await;
    }
}

/// A conversation that ends with the pipe.
struct Client(Arc<Conversation>);

impl Client {
    async fn drain(&self) {
        let drained = async {
            // A subscription goes on until its client ends it, which it can no longer.
            while self.0.n_unanswered() > 0 {
                sleep(DRAIN_LOOK).await;
            }
        };
        if timeout(DRAIN, drained).await.is_err() {
            tracing::debug!(
                n_open = self.0.n_unanswered(),
                "requests are given up with their client"
            );
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.0.end();
    }
}

async fn read(
    client: &Arc<Conversation>,
    mut reader: impl AsyncRead + Unpin,
    limit: usize,
) -> io::Result<()> {
    let reply = Reply::standing(client.out());
    let mut lines = Lines { buffer: BytesMut::new(), limit, is_skipping: false };
    loop {
        client.out().room(MAX_UNREAD_BYTES).await;
        lines.buffer.reserve(READ_BYTES);
        let n_bytes = reader.read_buf(&mut lines.buffer).await?;
        while let Some(line) = lines.next() {
            match line {
                Line::Message(line) => client.receive(&line, &reply),
                Line::TooLong => {
                    let message = format!("a message has more than {limit} bytes");
                    let error = JsonRpcError::new(ErrorCode::INVALID_REQUEST.0, message);
                    reply.out.put(refusal_without_id(&error));
                }
            }
        }
        if n_bytes == 0 {
            return Ok(());
        }
    }
}

async fn write(
    out: &Outbox,
    mut writer: impl AsyncWrite + Unpin,
    patience: Duration,
) -> io::Result<()> {
    let reader = out.read(None);
    while let Some((_, message)) = out.next(&reader).await {
        let mut batch = BytesMut::from(message);
        // What is there already goes along: a write costs more than what it writes.
        while batch.len() < WRITE_BYTES
            && let Some((_, message)) = out.next_if_there(&reader)
        {
            batch.extend_from_slice(&message);
        }
        let written = timeout(patience, async {
            writer.write_all(&batch).await?;
            writer.flush().await
        });
        written.await.unwrap_or_else(|_elapsed| Err(does_not_read()))?;
    }
    Ok(())
}

fn does_not_read() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the client does not read")
}

/// Cuts what comes in into lines.
struct Lines {
    buffer: BytesMut,
    limit: usize,
    /// The rest of a line that was too long is thrown away.
    is_skipping: bool,
}

enum Line {
    Message(Bytes),
    TooLong,
}

impl Lines {
    /// The next whole line that is not blank.
    fn next(&mut self) -> Option<Line> {
        loop {
            let Some(end) = memchr::memchr(b'\n', &self.buffer) else { return self.overflow() };
            let line = self.buffer.split_to(end + 1).freeze();
            if std::mem::take(&mut self.is_skipping) {
                continue;
            }
            if line.len() > self.limit {
                return Some(Line::TooLong);
            }
            let text = line.trim_ascii();
            if !text.is_empty() {
                return Some(Line::Message(line.slice_ref(text)));
            }
        }
    }

    fn overflow(&mut self) -> Option<Line> {
        if self.buffer.len() <= self.limit {
            return None;
        }
        self.buffer.clear();
        (!std::mem::replace(&mut self.is_skipping, true)).then_some(Line::TooLong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: &[&str], expected: &[&str]) {
        let mut lines = Lines { buffer: BytesMut::new(), limit: 8, is_skipping: false };
        let mut seen = Vec::new();
        for piece in pieces {
            lines.buffer.extend_from_slice(piece.as_bytes());
            while let Some(line) = lines.next() {
                seen.push(match line {
                    Line::Message(line) => String::from_utf8_lossy(&line).into_owned(),
                    Line::TooLong => "too long".to_owned(),
                });
            }
        }
        assert_eq!(seen, expected, "{pieces:?}");
    }

    #[test]
    fn lines_are_cut_wherever_the_pieces_end() {
        check(&["ab\ncd", "e\r\n\n \n", "f\n"], &["ab", "cde", "f"]);
        check(&["123456789\nab\n"], &["too long", "ab"]);
        check(&["12345", "67890", "12345", "6\nab\n"], &["too long", "ab"]);
        check(&["no end"], &[]);
    }
}
