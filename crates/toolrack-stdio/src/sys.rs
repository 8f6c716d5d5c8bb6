//! The few calls to the system that have no safe form, and nothing else.
//!
//! **Invariant:** this is the only file with `unsafe` in it.

#![expect(unsafe_code, reason = "each block says why it is sound")]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal, setsid};

/// Signals a guardian hears instead of dying from them.
const HEARD: [libc::c_int; 4] = [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// Closes every descriptor beyond the three standard ones. Only for a program that has just begun and
/// has opened nothing itself: whatever is open then was left open by whoever started it.
pub(crate) fn close_inherited() -> io::Result<()> {
    // SAFETY: takes numbers only. The caller promises that nobody in this process owns a descriptor
    // above 2 yet, so none is closed behind its owner's back.
    let outcome = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Blocks the signals of [`HEARD`] for this thread and gives a descriptor to read them from.
pub(crate) fn hear_signals() -> io::Result<OwnedFd> {
    let mask = mask_of(&HEARD);
    // SAFETY: `mask` is an initialized set that outlives both calls, a null pointer asks for nothing
    // back, and -1 asks for a new descriptor, which nobody else owns.
    unsafe {
        if libc::sigprocmask(libc::SIG_SETMASK, &raw const mask, ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        match libc::signalfd(-1, &raw const mask, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            descriptor => Ok(OwnedFd::from_raw_fd(descriptor)),
        }
    }
}

/// Which signals are in a buffer read from the descriptor of [`hear_signals`].
pub(crate) fn signals_in(buffer: &[u8]) -> impl Iterator<Item = u32> {
    let size = size_of::<libc::signalfd_siginfo>();
    // The number of the signal is the first field.
    buffer
        .chunks_exact(size)
        .filter_map(|record| record.first_chunk::<4>())
        .map(|number| u32::from_ne_bytes(*number))
}

/// Makes the child the leader of a session of its own, lets every signal reach it, and has it killed
/// when `guardian`, which must be this very thread's process, dies.
pub(crate) fn in_own_session(command: &mut Command, guardian: Pid) -> &mut Command {
    let nothing = mask_of(&[]);
    let prepare = move || {
        setsid()?;
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The guardian may have died before the line above; then nobody would ever kill us.
        if getppid() != Some(guardian) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        // SAFETY: `nothing` is an initialized set, and a null pointer asks for nothing back.
        match unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const nothing, ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec only calls are made that are safe there: four system calls, no
    // allocation, no lock.
    unsafe { command.pre_exec(prepare) }
}

fn mask_of(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut mask = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initializes the whole set, and `sigaddset` gets it only afterwards.
    unsafe {
        libc::sigemptyset(mask.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(mask.as_mut_ptr(), *signal);
        }
        mask.assume_init()
    }
}
