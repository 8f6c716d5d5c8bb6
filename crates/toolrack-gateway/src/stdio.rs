//! stdio transport: serves one client on a pair of streams, one message per line, in either era.
//!
//! [`stdio_streams`] opens the standard streams of this process without a thread for each.
//!
//! **Invariant:** a client that does not read delays only itself, and is eventually disconnected. Requests that arrived
//! before the end of the input are still answered, within [`DRAIN_TIMEOUT`]. Closing the gateway does not wait for clients.

use std::fs::{File, FileType};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{UnixStream, unix::pipe};
use tokio::time::{sleep, timeout};

use crate::client_session::{ClientSession, ResponseStream};
use crate::encode::{error_message, invalid_request};
use crate::gateway::Gateway;
use crate::message_queue::{MessageQueue, Replay, StreamContent};
use crate::params::Incoming;

/// While the client leaves this much unread, nothing is read from it.
const MAX_UNREAD_BYTES: usize = 64 << 20;
/// How long requests may continue after the input has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the client may take to read the last responses after the gateway was closed.
const CLOSE_WRITE_TIMEOUT: Duration = Duration::from_secs(2);
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(10);
const READ_BYTES: usize = 64 << 10;
/// Queued messages are written together up to this size.
const WRITE_BYTES: usize = 32 << 10;

impl Gateway {
    /// Serves one client until its input ends, it stops reading, or the gateway is closed.
    ///
    /// # Cancel safety
    /// Dropping the future closes the session and cancels its requests at the servers.
    pub async fn serve_stdio(
        &self,
        reader: impl AsyncRead + Unpin,
        writer: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let redactor = self.shared.manager.redactor();
        let queue = MessageQueue::new(Replay::No, StreamContent::All, redactor);
        let session = ClientSession::new(Arc::clone(&self.shared), Arc::clone(&queue));
        let session = CloseOnDrop(session);
        let writing = write(&queue, writer, self.shared.options.write_timeout);
        let reading = async {
            let reading = read(&session.0, reader, self.shared.options.max_message_bytes);
            self.shared.stop.run_until_cancelled(reading).await.transpose()?;
            session.drain().await;
            queue.finish();
            Ok(())
        };
        // The writer ends by itself when everything is written, and earlier if the client does not read. Then the
        // reader is dropped, even if it waits for space in the queue.
        tokio::pin!(writing);
        tokio::select! {
            written = &mut writing => written,
            read = reading => {
                let closed = async {
                    self.shared.stop.cancelled().await;
                    sleep(CLOSE_WRITE_TIMEOUT).await;
                };
                let written = tokio::select! {
                    written = &mut writing => written,
                    () = closed => Err(client_not_reading()),
                };
                read.and(written)
            }
        }
    }
}

/// Closes the session when the streams end.
struct CloseOnDrop(Arc<ClientSession>);

impl CloseOnDrop {
    /// Waits for the responses to open requests.
    async fn drain(&self) {
        let drained = async {
            // A subscription ends only when its client cancels it, which it no longer can.
            while self.0.in_flight.n_awaiting_response() > 0 {
                sleep(DRAIN_POLL_INTERVAL).await;
            }
        };
        if timeout(DRAIN_TIMEOUT, drained).await.is_err() {
            let n_open = self.0.in_flight.n_awaiting_response();
            tracing::debug!(n_open, "requests cancelled at the end of input");
        }
    }
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

async fn read(
    session: &Arc<ClientSession>,
    mut reader: impl AsyncRead + Unpin,
    limit: usize,
) -> io::Result<()> {
    let responses = ResponseStream::persistent(&session.queue);
    let mut decoder = LineDecoder { buffer: BytesMut::new(), limit, is_skipping: false };
    loop {
        session.queue.wait_for_space(MAX_UNREAD_BYTES).await;
        decoder.buffer.reserve(READ_BYTES);
        let n_bytes = reader.read_buf(&mut decoder.buffer).await?;
        while let Some(line) = decoder.next() {
            match line {
                Line::Message(line) => session.receive(Incoming::parse(&line), &responses),
                Line::TooLong => {
                    let message = format!("message exceeds {limit} bytes");
                    responses.queue.push(error_message(None, &invalid_request(&message)));
                }
            }
        }
        if n_bytes == 0 {
            return Ok(());
        }
    }
}

async fn write(
    queue: &MessageQueue,
    mut writer: impl AsyncWrite + Unpin,
    write_timeout: Duration,
) -> io::Result<()> {
    let reader = queue.attach_reader(None);
    while let Some((_, message)) = queue.next(&reader).await {
        let mut batch = BytesMut::from(message);
        // A system call costs more than the bytes that it writes, so queued messages go along.
        while batch.len() < WRITE_BYTES
            && let Poll::Ready(Some((_, message))) = queue.try_next(&reader)
        {
            batch.extend_from_slice(&message);
        }
        let written = timeout(write_timeout, async {
            writer.write_all(&batch).await?;
            writer.flush().await
        });
        written.await.unwrap_or_else(|_elapsed| Err(client_not_reading()))?;
    }
    Ok(())
}

fn client_not_reading() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the client does not read its messages")
}

/// Newline framing with a size limit.
struct LineDecoder {
    buffer: BytesMut,
    limit: usize,
    /// Whether the rest of an oversize line is being discarded.
    is_skipping: bool,
}

enum Line {
    Message(Bytes),
    TooLong,
}

impl LineDecoder {
    /// The next complete line that is not blank.
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

    /// Reports an oversize line once, as soon as it exceeds the limit: its end may never come.
    fn overflow(&mut self) -> Option<Line> {
        if self.buffer.len() <= self.limit {
            return None;
        }
        self.buffer.clear();
        (!std::mem::replace(&mut self.is_skipping, true)).then_some(Line::TooLong)
    }
}

/// Standard input of this process.
pub type StdinStream = Box<dyn AsyncRead + Send + Unpin>;
/// Standard output of this process.
pub type StdoutStream = Box<dyn AsyncWrite + Send + Unpin>;

/// Opens standard input and output for [`Gateway::serve_stdio`]. Call it within a Tokio runtime.
pub fn stdio_streams() -> (StdinStream, StdoutStream) {
    // Reopened: non-blocking mode belongs to the open file description, which other processes may share.
    let pipes = pipe::OpenOptions::new();
    let input = open_if(io::stdin(), FileType::is_fifo);
    let input = input.and_then(|_pipe| pipes.open_receiver("/proc/self/fd/0"));
    let output = open_if(io::stdout(), FileType::is_fifo);
    let output = output.and_then(|_pipe| pipes.open_sender("/proc/self/fd/1"));
    let stdin: StdinStream = match (input, socket(io::stdin())) {
        (Ok(pipe), _) => Box::new(pipe),
        (_, Ok(socket)) => Box::new(socket),
        // Such as a terminal, which is left to Tokio's blocking threads.
        _ => Box::new(tokio::io::stdin()),
    };
    let stdout: StdoutStream = match (output, socket(io::stdout())) {
        (Ok(pipe), _) => Box::new(pipe),
        (_, Ok(socket)) => Box::new(socket),
        _ => Box::new(tokio::io::stdout()),
    };
    (stdin, stdout)
}

/// Unlike a pipe, a socket cannot be reopened through `/proc`, so the shared mode is changed.
fn socket(stream: impl AsFd) -> io::Result<UnixStream> {
    let socket = StdUnixStream::from(OwnedFd::from(open_if(stream, FileType::is_socket)?));
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

/// The file behind a stream, if it is of this type.
fn open_if(stream: impl AsFd, is_type: fn(&FileType) -> bool) -> io::Result<File> {
    let file = File::from(stream.as_fd().try_clone_to_owned()?);
    let is_type = is_type(&file.metadata()?.file_type());
    if is_type { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: &[&str], expected: &[&str]) {
        let mut decoder = LineDecoder { buffer: BytesMut::new(), limit: 8, is_skipping: false };
        let mut seen = Vec::new();
        for piece in pieces {
            decoder.buffer.extend_from_slice(piece.as_bytes());
            while let Some(line) = decoder.next() {
                seen.push(match line {
                    Line::Message(line) => String::from_utf8_lossy(&line).into_owned(),
                    Line::TooLong => "too long".to_owned(),
                });
            }
        }
        assert_eq!(seen, expected, "{pieces:?}");
    }

    #[test]
    fn lines_are_split_across_reads() {
        check(&["ab\ncd", "e\r\n\n \n", "f\n"], &["ab", "cde", "f"]);
        check(&["123456789\nab\n"], &["too long", "ab"]);
        check(&["12345", "67890", "12345", "6\nab\n"], &["too long", "ab"]);
        check(&["no end"], &[]);
    }
}
