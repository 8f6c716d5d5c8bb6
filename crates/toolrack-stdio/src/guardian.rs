//! The guardian: a tiny process that holds one server, and ends everything the server has started.
//!
//! It is this very program, started again with one word. It has no runtime and one thread; it waits for
//! its owner to speak, for its owner to vanish, and for its children to end.
//!
//! **Invariant:** it ends only after every descendant of the server that can be reached has ended.

#[cfg(target_os = "linux")]
mod event_loop;
#[cfg(target_os = "linux")]
mod process_tree;
#[cfg(target_os = "linux")]
mod protocol;
mod shutdown;

#[cfg(target_os = "linux")]
pub(crate) use linux::{ARGUMENT, is_ready};
#[cfg(target_os = "linux")]
pub(crate) use protocol::{REPORT_BYTES, Report, encode_launch, encode_stop};
pub(crate) use shutdown::{Climb, Event, Order};

/// Makes this program able to guard the servers it starts. To be called first thing in `main`.
///
/// First thing means before a runtime is built: call it in a plain `fn main` and build the runtime behind it.
/// With `#[tokio::main]` the runtime is already there, and a guardian has no use for its threads.
///
/// If the program was started to be a guardian, this does not return: it does a guardian's work and
/// ends the process. Otherwise it returns at once, and servers started later are guarded by copies of
/// this program.
///
/// Guardians need Linux. Elsewhere this does nothing, and servers are kept by their process group alone.
pub fn init() {
    #[cfg(target_os = "linux")]
    linux::init();
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::OsStr;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::event_loop;

    /// The one argument that makes a program a guardian.
    pub(crate) const ARGUMENT: &str = "__guard";

    static READY: AtomicBool = AtomicBool::new(false);

    pub(super) fn init() {
        if std::env::args_os().nth(1).as_deref() == Some(OsStr::new(ARGUMENT)) {
            let code = event_loop::run();
            #[expect(clippy::exit, reason = "the program around us must not begin its own work")]
            std::process::exit(code);
        }
        READY.store(true, Ordering::Release);
    }

    /// Whether copies of this program can be guardians.
    pub(crate) fn is_ready() -> bool {
        READY.load(Ordering::Acquire)
    }
}
