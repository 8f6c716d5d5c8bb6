//! The help of the program as a whole: its commands in groups.

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _};

use crate::args::Arguments;
use crate::exit_code::Verdict;
use crate::settings::Variable;

/// Every command that people use, in the order in which it is shown.
pub(crate) const GROUPS: &[(&str, &[&str])] = &[
    ("Tools", &["tools", "call", "search"]),
    ("Resources and prompts", &["resources", "read", "prompts", "prompt"]),
    (
        "Servers",
        &[
            "add", "add-json", "list", "get", "edit", "remove", "enable", "disable", "start",
            "stop", "restart", "status", "logs",
        ],
    ),
    ("Daemon", &["daemon", "serve", "dashboard", "history"]),
    ("Logins and secrets", &["login", "logout", "secret"]),
    ("Config", &["import", "config", "doctor"]),
    ("More", &["completion", "demo"]),
];

const END: &str = "\
Try it:
  toolrack demo
  toolrack tools -- npx -y @modelcontextprotocol/server-everything

Run `toolrack COMMAND --help` for more about a command.";

/// The command line with its help in groups.
pub(crate) fn command() -> Command {
    let command = Arguments::command();
    let mut groups = String::new();
    for (heading, names) in GROUPS {
        // Writing to a string cannot fail.
        writeln!(groups, "{heading}:").unwrap_or_default();
        for name in *names {
            let Some(verb) = command.find_subcommand(name) else { continue };
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            write!(groups, "  {name:<12} {about}").unwrap_or_default();
            for alias in verb.get_visible_aliases() {
                write!(groups, " [alias: {alias}]").unwrap_or_default();
            }
            groups.push('\n');
        }
        groups.push('\n');
    }
    let template = format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}\n"
    );
    command.help_template(template).after_help(END).after_long_help(format!("{}\n{END}", tables()))
}

/// The exit codes and the environment, which only `--help` shows.
fn tables() -> String {
    let mut text = "Exit codes:\n".to_owned();
    for verdict in Verdict::ALL {
        writeln!(text, "  {:<16} {}", verdict.code(), verdict.meaning()).unwrap_or_default();
    }
    text.push_str("\nEnvironment:\n");
    for variable in Variable::ALL {
        writeln!(text, "  {:<21} {}", variable.name(), variable.meaning()).unwrap_or_default();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let command = Arguments::command();
        let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
        let mut shown: Vec<&str> = shown.map(Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, shown);
    }
}
