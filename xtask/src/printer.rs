//! Output of the commands: results to stdout, errors to stderr.

/// Prints to stdout.
#[expect(clippy::print_stdout, reason = "these commands exist to be read in a terminal")]
pub(crate) fn print(text: &str) {
    println!("{text}");
}

/// Prints to stderr.
#[expect(clippy::print_stderr, reason = "these commands exist to be read in a terminal")]
pub(crate) fn print_error(text: &str) {
    eprintln!("{text}");
}
