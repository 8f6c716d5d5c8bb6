//! Program `demo-server`: a small, correct MCP server of both eras over stdio.
//!
//! `demo-server --first-byte FILE` writes the monotonic time at which the first byte arrived to this file, in
//! nanoseconds: for the benchmark of the command-line program.

use std::fs::File;
use std::io::{self, BufRead as _, Write as _};

use rustix::time::{ClockId, clock_gettime};

fn main() -> io::Result<()> {
    let mut stdin = io::stdin().lock();
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|option| option == "--first-byte")
        && let Some(path) = args.next()
    {
        stdin.fill_buf()?;
        let now = clock_gettime(ClockId::Monotonic);
        write!(File::create(path)?, "{}{:09}", now.tv_sec, now.tv_nsec)?;
    }
    toolrack_demo::serve(stdin, io::stdout())
}
