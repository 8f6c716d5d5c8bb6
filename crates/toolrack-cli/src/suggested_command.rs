//! Commands in hints, with the `--config` and `--agent` that the user typed.
//!
//! Without them the suggested command would use other servers. Settings from the environment need
//! no repetition. Commands that do not depend on the servers, such as `toolrack daemon stop`,
//! `toolrack secret list` and `--help`, are plain text.

use std::fmt;
use std::path::Path;
use std::sync::OnceLock;

use toolrack_transport::sanitize_line;

use crate::args::GlobalOptions;

/// The options of this process that select servers.
static TYPED_FLAGS: OnceLock<String> = OnceLock::new();

/// Remembers the options of this process. `main` calls it, before anything else can fail.
pub(crate) fn remember_flags(options: &GlobalOptions) {
    TYPED_FLAGS.get_or_init(|| flags(options.config.as_deref(), options.agent.as_deref()));
}

/// The options that select servers, quoted for the shell and each followed by a space.
pub(crate) fn flags(config: Option<&Path>, agent: Option<&str>) -> String {
    let config = config.map(|path| format!("--config {} ", shell_quote(&path.to_string_lossy())));
    let agent = agent.map(|agent| format!("--agent {} ", shell_quote(agent)));
    config.into_iter().chain(agent).collect()
}

/// The command `toolrack WORDS` for the servers of this process.
pub(crate) fn command_line(words: impl fmt::Display) -> String {
    format!("toolrack {}{words}", TYPED_FLAGS.get().map_or("", String::as_str))
}

/// The same in backquotes, for a sentence.
pub(crate) fn command(words: impl fmt::Display) -> String {
    format!("`{}`", command_line(words))
}

/// A command on one server, in backquotes.
pub(crate) fn server_command(verb: &str, server: &str) -> String {
    command(format_args!("{verb} {}", shell_quote(server)))
}

/// Quotes a word for the shell, without control and invisible characters.
pub(crate) fn shell_quote(text: &str) -> String {
    // A name of a server may contain escape sequences, and users copy the command
    // from the terminal.
    let text = sanitize_line(text, usize::MAX);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggested_commands_repeat_flags() {
        let check = |config: Option<&str>, agent, expected: &str| {
            assert_eq!(flags(config.map(Path::new), agent), expected);
        };
        check(None, None, "");
        check(Some("new.toml"), None, "--config new.toml ");
        check(None, Some("main"), "--agent main ");
        check(Some("my file.toml"), Some("it's"), r"--config 'my file.toml' --agent 'it'\''s' ");
        // Tests run without the flags of a command line.
        assert_eq!(command("edit"), "`toolrack edit`");
        assert_eq!(server_command("logs -f", "my it"), "`toolrack logs -f 'my it'`");
    }
}
