//! Commands in hints, completed with the `--config` and `--agent` that the user typed.
//!
//! Without them the suggested command would use other servers. Settings from the environment need
//! no repetition.

use std::path::Path;

use toolrack_transport::sanitize_line;

use crate::args::GlobalOptions;

/// Start of a command in a text.
const COMMAND_START: &str = "`toolrack ";
/// Commands that do not depend on the servers.
const SERVER_INDEPENDENT: [&str; 3] = ["-", "daemon stop", "secret "];

/// The flags that select servers, quoted for the shell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EchoedFlags {
    config: Option<String>,
    agent: Option<String>,
}

impl EchoedFlags {
    pub(crate) fn from_options(options: &GlobalOptions) -> Self {
        Self::new(options.config.as_deref(), options.agent.as_deref())
    }

    /// Flags for a config file and an agent.
    pub(crate) fn new(config: Option<&Path>, agent: Option<&str>) -> Self {
        Self {
            config: config.map(|path| shell_quote(&path.to_string_lossy())),
            agent: agent.map(shell_quote),
        }
    }

    /// Adds the flags to a command.
    pub(crate) fn apply_to_command(&self, command: &str) -> String {
        match command.strip_prefix("toolrack ") {
            Some(rest) => format!("toolrack {}{rest}", self.flags_for(rest)),
            None => command.to_owned(),
        }
    }

    /// Adds the flags to every command in a text.
    pub(crate) fn apply_to_text(&self, text: &str) -> String {
        let mut pieces = text.split(COMMAND_START);
        let mut result = pieces.next().unwrap_or_default().to_owned();
        for rest in pieces {
            let command = rest.split('`').next().unwrap_or_default();
            result.push_str(COMMAND_START);
            result.push_str(&self.flags_for(command));
            result.push_str(rest);
        }
        result
    }

    fn flags_for(&self, command: &str) -> String {
        if SERVER_INDEPENDENT.iter().any(|prefix| command.starts_with(prefix)) {
            return String::new();
        }
        // A file that is imported must not also become the config file.
        let is_source = |file: &&String| command.strip_prefix("import ") == Some(file.as_str());
        let config = self.config.as_ref().filter(|config| !is_source(config));
        let config = config.map(|config| format!("--config {config} "));
        let agent = self.agent.as_ref().map(|agent| format!("--agent {agent} "));
        config.into_iter().chain(agent).collect()
    }
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

    #[track_caller]
    fn check((config, agent): (Option<&str>, Option<&str>), text: &str, expected: &str) {
        let options = GlobalOptions {
            config: config.map(Into::into),
            agent: agent.map(str::to_owned),
            ..GlobalOptions::default()
        };
        assert_eq!(EchoedFlags::from_options(&options).apply_to_text(text), expected);
    }

    #[test]
    fn suggested_commands_repeat_flags() {
        let two = "`toolrack edit z` changes it, `toolrack remove z` removes it";
        check((None, None), two, two);
        check(
            (Some("new.toml"), None),
            two,
            "`toolrack --config new.toml edit z` changes it, `toolrack --config new.toml remove z` removes it",
        );
        let edit = "fix it with `toolrack edit`";
        check((None, Some("main")), edit, "fix it with `toolrack --agent main edit`");
        check(
            (Some("my file.toml"), Some("it's")),
            edit,
            r"fix it with `toolrack --config 'my file.toml' --agent 'it'\''s' edit`",
        );
        for same in [
            "run `toolrack --help`",
            "end it with `toolrack daemon stop`",
            "`toolrack secret set NAME` stores one",
            "import its servers with `toolrack import new.toml`",
            "the daemon of toolrack listens",
        ] {
            check((Some("new.toml"), None), same, same);
        }
        let echoed_flags = EchoedFlags { config: None, agent: Some("main".to_owned()) };
        assert_eq!(
            echoed_flags.apply_to_command("toolrack logs -f it"),
            "toolrack --agent main logs -f it"
        );
    }
}
