//! The worst neighbour: a server that floods its output, spins a core, and reads no more.

use std::io::{self, Write};
use std::thread;

use rustix::process::{Signal, set_parent_process_death_signal};

/// Well-formed, and of no use to anybody: a notification that nobody knows, and an answer that nobody waits for.
const NONSENSE: &[u8] = b"\
    {\"jsonrpc\":\"2.0\",\"method\":\"notifications/nonsense\",\"params\":{\"of\":\"no use to anybody\"}}\n\
    {\"jsonrpc\":\"2.0\",\"id\":999999999,\"result\":{\"content\":[]}}\n";

/// How much is written at once: what a pipe holds.
const WRITE_BYTES: usize = 64 * 1024;

/// Goes on until nobody reads the output, or until whoever started the process is gone.
pub(super) fn flood(output: &mut impl Write) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    thread::spawn(|| {
        loop {
            std::hint::spin_loop();
        }
    });
    let nonsense = NONSENSE.repeat(WRITE_BYTES / NONSENSE.len());
    loop {
        output.write_all(&nonsense)?;
    }
}
