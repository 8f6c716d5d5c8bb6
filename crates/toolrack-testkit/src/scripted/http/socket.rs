//! One connection of a client: bytes out, and the three ways to end it.
//!
//! **Invariant:** a client that reads nothing for ten seconds is taken for gone, so nobody waits for it forever.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const WRITE_PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    closed: AtomicBool,
}

impl Socket {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE_PATIENCE))?;
        Ok(Self { stream, closed: AtomicBool::new(false) })
    }

    /// Writes everything, or closes the connection and says `false`.
    pub(super) fn write(&self, bytes: &[u8]) -> bool {
        if self.is_closed() {
            return false;
        }
        let written = (&self.stream).write_all(bytes).is_ok();
        if !written {
            self.close();
        }
        written
    }

    /// Ends the connection in good order; whoever reads from it sees the end.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        // It may be closed already.
        self.stream.shutdown(Shutdown::Both).unwrap_or_default();
    }

    /// Ends the connection by a reset, which also takes back what the client has not read yet.
    pub(super) fn reset(&self) {
        self.closed.store(true, Ordering::Relaxed);
        let linger = Some(Duration::ZERO);
        let set = rustix::net::sockopt::set_socket_linger(&self.stream, linger);
        // Dissolving the association sends the reset at once, whoever else holds the socket.
        if set.is_err() || rustix::net::connect_unspec(&self.stream).is_err() {
            // Some kernels refuse that while somebody reads. Then the last to let go of the socket sends it.
            self.stream.shutdown(Shutdown::Read).unwrap_or_default();
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }
}
