//! System calls without a safe wrapper.
//!
//! **Invariant:** this is the only file with `unsafe` code.

#![expect(unsafe_code, reason = "each block says why it is sound")]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal, setsid};

/// Signals that a guardian reads from a file descriptor instead of dying from them.
const HANDLED_SIGNALS: [libc::c_int; 4] =
    [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// Size from which the allocator maps a block by itself, so that the block returns to the system when it is freed.
#[cfg(target_env = "gnu")]
const MMAP_THRESHOLD_BYTES: libc::c_int = 128 << 10;

/// Makes the allocator return every freed block of 128 KiB and more to the system at once.
///
/// This is the default size of glibc, but glibc raises it to that of the largest freed block, up to 32 MiB. Then one
/// list of a hostile server leaves more than 100 MiB in the process for good. For programs that run for long and are
/// the only user of their allocator, such as the daemon. Other allocators are left alone.
pub fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes only numbers. It may be called at any time; a refused value changes nothing.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES);
    }
}

/// Returns smaller freed blocks to the system too, which takes milliseconds.
///
/// glibc keeps them, because blocks that are still used lie between them. After a list of ten thousand entries was
/// dropped, that is as much memory as the list took.
pub fn trim_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes only a number. It may be called at any time and from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Closes every file descriptor except the standard ones. Only for a program that has just started and has opened
/// nothing itself: everything open then was inherited by accident.
pub(crate) fn close_inherited() -> io::Result<()> {
    // SAFETY: takes only numbers. The caller guarantees that no code in this process owns a descriptor above 2 yet, so
    // no owned descriptor is closed.
    let outcome = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Blocks every signal for this thread, because a server may send any of them, and returns a file descriptor to read
/// [`HANDLED_SIGNALS`] from.
pub(crate) fn signal_fd() -> io::Result<OwnedFd> {
    let mask = signal_set(&HANDLED_SIGNALS);
    let mut all = MaybeUninit::uninit();
    // SAFETY: `sigfillset` initializes the whole set before it is used, both sets outlive the calls, the null pointer
    // requests no old mask, and -1 requests a new descriptor, which has no other owner.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        if libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        match libc::signalfd(-1, &raw const mask, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            descriptor => Ok(OwnedFd::from_raw_fd(descriptor)),
        }
    }
}

/// The signals in a buffer that was read from [`signal_fd`].
pub(crate) fn signals_in(buffer: &[u8]) -> impl Iterator<Item = u32> {
    let size = size_of::<libc::signalfd_siginfo>();
    // The first field is the signal number.
    buffer
        .chunks_exact(size)
        .filter_map(|record| record.first_chunk::<4>())
        .map(|number| u32::from_ne_bytes(*number))
}

/// Starts the child in a session of its own, with all signals unblocked, and has the kernel kill it when `guardian`
/// dies. `guardian` has to be the process of the calling thread.
pub(crate) fn in_own_session(command: &mut Command, guardian: Pid) -> &mut Command {
    let no_signals = signal_set(&[]);
    let prepare = move || {
        setsid()?;
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // If the guardian died before the call above, the kernel would never send the signal.
        if getppid() != Some(guardian) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        // SAFETY: `no_signals` is an initialized set, and the null pointer requests no old mask.
        match unsafe {
            libc::sigprocmask(libc::SIG_SETMASK, &raw const no_signals, ptr::null_mut())
        } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec the closure makes only async-signal-safe calls: four system calls, no allocation,
    // no lock.
    unsafe { command.pre_exec(prepare) }
}

fn signal_set(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut mask = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initializes the whole set before `sigaddset` uses it.
    unsafe {
        libc::sigemptyset(mask.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(mask.as_mut_ptr(), *signal);
        }
        mask.assume_init()
    }
}
