//! A lock that every process and every thread respects, and which the kernel frees when its holder dies.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;

/// The longest pause between two looks at the lock.
const PAUSE: Duration = Duration::from_millis(8);

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: OwnedFd,
}

/// Waits for the lock of a file, and at most for `patience`. `TimedOut` is the error if that is over.
pub(super) fn lock(dir: impl AsFd, name: &OsStr, patience: Duration) -> io::Result<Lock> {
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?;
    let mut waited = Duration::ZERO;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Lock { _file: file }),
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(other) => return Err(other.into()),
        }
        if waited >= patience {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // By chance, so that of several who wait none is always the last to look.
        let pause = PAUSE.mul_f64(fastrand::f64().max(0.1));
        thread::sleep(pause);
        waited += pause;
    }
}
