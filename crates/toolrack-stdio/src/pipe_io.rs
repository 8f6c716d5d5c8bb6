//! Pipes read and written with one system call, whatever the runtime believes of them.
//!
//! The runtime tries neither before it has heard from the system that it may, and it hears late of what came
//! while it was busy.

use std::io;
use std::pin::pin;

use rustix::io::retry_on_intr;
use tokio::net::unix::pipe::{Receiver, Sender};

/// How much is read at once.
const READ_BYTES: usize = 4 << 10;

/// What is read at most after the server has ended: no more than a pipe can have held.
pub(crate) const LAST_WORDS_BYTES: usize = 1 << 20;

/// Reads to the end, or until `gone` says that nothing is left that could write, and all that it has written.
pub(crate) async fn read_out(
    pipe: &Receiver,
    gone: impl Future<Output = ()>,
    mut take: impl FnMut(&[u8]),
) {
    let mut gone = pin!(gone);
    let mut hear = |buffer: &[u8], n_bytes| take(buffer.get(..n_bytes).unwrap_or_default());
    loop {
        let ready = tokio::select! {
            ready = pipe.readable() => ready,
            () = &mut gone => break,
        };
        if ready.is_err() {
            return;
        }
        // Held only while there is something to read.
        let mut buffer = vec![0; READ_BYTES];
        match pipe.try_read(&mut buffer) {
            Ok(n_bytes @ 1..) => hear(&buffer, n_bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => return,
        }
    }
    let mut buffer = vec![0; READ_BYTES];
    let mut n_left = LAST_WORDS_BYTES;
    while n_left > 0
        && let Ok(n_bytes @ 1..) = read_plainly(pipe, &mut buffer)
    {
        hear(&buffer, n_bytes);
        n_left = n_left.saturating_sub(n_bytes);
    }
}

pub(crate) fn read_plainly(pipe: &Receiver, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::read(pipe, &mut *buffer))?)
}

pub(crate) fn write_plainly(pipe: &Sender, bytes: &[u8]) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::write(pipe, bytes))?)
}

#[cfg(test)]
mod tests {
    use tokio::net::unix::pipe;

    use super::*;

    #[tokio::test]
    async fn last_words_are_read_although_nobody_is_left() {
        let (sender, receiver) = pipe::pipe().unwrap();
        let said = "x".repeat(3 * READ_BYTES);
        assert_eq!(write_plainly(&sender, said.as_bytes()).unwrap(), said.len());
        let mut heard = Vec::new();
        let gone = std::future::ready(());
        read_out(&receiver, gone, |bytes| heard.extend_from_slice(bytes)).await;
        assert_eq!(heard.len(), said.len());
        drop(sender);
        read_out(&receiver, std::future::pending(), |_| panic!("nothing was said")).await;
    }

    #[tokio::test]
    async fn what_the_runtime_has_not_heard_of_is_read() {
        let (sender, receiver) = pipe::pipe().unwrap();
        assert_eq!(write_plainly(&sender, b"last words").unwrap(), 10);
        let mut words = [0; 20];
        let unheard = receiver.try_read(&mut words).unwrap_err();
        assert_eq!(unheard.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(read_plainly(&receiver, &mut words).unwrap(), 10);
        let nothing = read_plainly(&receiver, &mut words).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }
}
