//! Plain requests over a Unix socket, for a program that talks to its own daemon. No protocol of ours is in them.
//!
//! **Invariant:** an answer comes within the patience or not at all, and never has more than the limit.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use tokio::time::timeout;

use crate::connect::socket;
use crate::endpoint_url::{Address, AddressFault};
use crate::http1::Lane;
use crate::request_headers::Beside;
use crate::request_sender::{Dispatch, Usual};

/// The most that an answer may have.
const LIMIT_BYTES: usize = 64 << 20;

/// Somebody who listens on a socket of this machine.
#[derive(Debug, Clone)]
pub struct SocketClient {
    path: PathBuf,
}

/// An answer, whole.
#[derive(Debug, Clone)]
pub struct SocketAnswer {
    /// Its status.
    pub status: StatusCode,
    /// What it says.
    pub body: Bytes,
}

impl SocketClient {
    /// Whoever listens on the socket with this path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sends a request for `target`, such as `/api/tools?server=git`, on a connection of its own. A body is JSON.
    ///
    /// # Errors
    ///
    /// When nobody listens, or the answer is not there in time, breaks off or is too long.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection; whether the request is fulfilled is for the other side to say.
    pub async fn ask(
        &self,
        method: Method,
        target: &str,
        body: Option<Bytes>,
        patience: Duration,
    ) -> io::Result<SocketAnswer> {
        let late = |_elapsed| {
            let reason = format!("no answer within {patience:?}");
            Err(io::Error::new(io::ErrorKind::TimedOut, reason))
        };
        timeout(patience, self.exchange(method, target, body)).await.unwrap_or_else(late)
    }

    async fn exchange(
        &self,
        method: Method,
        target: &str,
        body: Option<Bytes>,
    ) -> io::Result<SocketAnswer> {
        let address = Address::parse(&format!("unix:{}:{target}", self.path.display()));
        let address = address.map_err(|fault| match fault {
            AddressFault::Unreadable(reason) | AddressFault::Elsewhere(reason) => {
                io::Error::new(io::ErrorKind::InvalidInput, reason)
            }
        })?;
        let mut usual = HeaderMap::new();
        if body.is_some() {
            usual.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let dispatch = Dispatch {
            verb: &method,
            address: &address,
            usual: &Usual::new(usual),
            beside: &Beside::default(),
            authorization: None,
            body: body.as_deref().unwrap_or_default(),
        };
        let mut lane = Lane::new(socket(&self.path).await?);
        let head = lane.send(&dispatch, None).await.map_err(|silence| silence.error)?;
        let mut whole = BytesMut::new();
        while let Some(piece) = std::future::poll_fn(|context| lane.poll_piece(context)).await? {
            if whole.len() + piece.len() > LIMIT_BYTES {
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the answer is too long"));
            }
            whole.extend_from_slice(&piece);
        }
        Ok(SocketAnswer { status: head.status, body: whole.freeze() })
    }
}
