//! The one place that prints: results to stdout, talk to stderr.

use std::fmt;

#[expect(clippy::print_stdout, reason = "a program's results go to stdout")]
pub(crate) fn line(text: impl fmt::Display) {
    println!("{text}");
}

#[expect(clippy::print_stderr, reason = "what is going on is talk, not a result")]
pub(crate) fn talk(text: impl fmt::Display) {
    eprintln!("  … {text}");
}
