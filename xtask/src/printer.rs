//! All speech of these commands: what was asked for to stdout, trouble to stderr.

/// Says one line, or several, to whoever ran the command.
#[expect(clippy::print_stdout, reason = "these commands exist to be read in a terminal")]
pub(crate) fn say(text: &str) {
    println!("{text}");
}

/// Says what went wrong, apart from the output.
#[expect(clippy::print_stderr, reason = "these commands exist to be read in a terminal")]
pub(crate) fn complain(text: &str) {
    eprintln!("{text}");
}
