//! This process's own input and output, read and written without a thread for each.
//!
//! Clients give a server pipes or sockets, and the runtime can wait for both. What else there may be, such as a
//! terminal, is left to threads.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream as Socket;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{UnixStream, unix::pipe};

/// Where a client's messages come from.
pub type Input = Box<dyn AsyncRead + Send + Unpin>;
/// Where a client's answers go.
pub type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// What a file descriptor is, as far as waiting for it goes.
enum Kind {
    Pipe,
    Socket(Socket),
    Other,
}

/// Standard input and output. Has to be called within a tokio runtime.
pub fn standard_streams() -> (Input, Output) {
    let input = waited_input().unwrap_or_else(|| Box::new(tokio::io::stdin()));
    let output = waited_output().unwrap_or_else(|| Box::new(tokio::io::stdout()));
    (input, output)
}

fn waited_input() -> Option<Input> {
    match kind(io::stdin().as_fd()).ok()? {
        // Opened anew, so that whoever shares the pipe with us does not find it changed.
        Kind::Pipe => {
            Some(Box::new(pipe::OpenOptions::new().open_receiver("/proc/self/fd/0").ok()?))
        }
        Kind::Socket(socket) => Some(Box::new(UnixStream::from_std(socket).ok()?)),
        Kind::Other => None,
    }
}

fn waited_output() -> Option<Output> {
    match kind(io::stdout().as_fd()).ok()? {
        Kind::Pipe => Some(Box::new(pipe::OpenOptions::new().open_sender("/proc/self/fd/1").ok()?)),
        Kind::Socket(socket) => Some(Box::new(UnixStream::from_std(socket).ok()?)),
        Kind::Other => None,
    }
}

fn kind(descriptor: BorrowedFd<'_>) -> io::Result<Kind> {
    let file = File::from(descriptor.try_clone_to_owned()?);
    let kind = file.metadata()?.file_type();
    if kind.is_fifo() {
        return Ok(Kind::Pipe);
    }
    if !kind.is_socket() {
        return Ok(Kind::Other);
    }
    let socket = Socket::from(std::os::fd::OwnedFd::from(file));
    socket.set_nonblocking(true)?;
    Ok(Kind::Socket(socket))
}
