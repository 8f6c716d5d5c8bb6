//! Waits for those who have a file open while it is replaced: what they are about to write would be lost.
//!
//! The kernel says who opens and closes the file from the moment we begin to look. Whoever opened it before that and
//! writes after the replacement is not seen; a save takes milliseconds, and editors hold no file open that long.
//! Outside of Linux nobody is seen.

use std::fs::File;
#[cfg(target_os = "linux")]
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
#[cfg(target_os = "linux")]
use std::time::Duration;

#[cfg(target_os = "linux")]
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};

/// How long somebody may have the file open before we give up on them.
#[cfg(target_os = "linux")]
const PATIENCE: Duration = Duration::from_secs(1);
#[cfg(target_os = "linux")]
const PAUSE: Duration = Duration::from_millis(1);

/// The openings of one file.
#[derive(Debug)]
pub(super) struct Onlookers {
    events: Option<OwnedFd>,
}

impl Onlookers {
    /// Begins to look. Where the kernel cannot tell, nobody is ever seen.
    pub(super) fn of(file: &File) -> Self {
        Self { events: look(file) }
    }

    /// Waits until everybody who came has gone.
    pub(super) fn wait(&self) {
        if let Some(events) = &self.events {
            wait(events);
        }
    }
}

#[cfg(target_os = "linux")]
fn look(file: &File) -> Option<OwnedFd> {
    use std::os::fd::AsRawFd as _;

    let events = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = WatchFlags::OPEN | WatchFlags::CLOSE_WRITE | WatchFlags::CLOSE_NOWRITE;
    add_watch(&events, path, flags).ok()?;
    Some(events)
}

#[cfg(target_os = "linux")]
fn wait(events: &OwnedFd) {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(events, &mut buffer);
    let mut n_open = 0_i64;
    let mut waited = Duration::ZERO;
    loop {
        while let Ok(event) = reader.next() {
            n_open += if event.events().contains(ReadFlags::OPEN) { 1 } else { -1 };
        }
        if n_open <= 0 || waited >= PATIENCE {
            return;
        }
        std::thread::sleep(PAUSE);
        waited += PAUSE;
    }
}

#[cfg(not(target_os = "linux"))]
fn look(_file: &File) -> Option<OwnedFd> {
    None
}

#[cfg(not(target_os = "linux"))]
fn wait(_events: &OwnedFd) {}
