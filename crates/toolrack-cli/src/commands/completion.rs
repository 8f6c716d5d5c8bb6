//! Shell completion: `toolrack completion` prints a script, which calls `toolrack __complete` for
//! candidates.
//!
//! **Invariant:** completion starts no server and prints no errors, because the user is in the
//! middle of typing.
//!
//! **Invariant:** shells insert candidates verbatim, and names come from servers, so only names
//! that every shell takes as one plain word are offered.
//!
//! Not `clap_complete`: its dynamic engine is an unstable feature, its completers do not see the
//! words before (the arguments of a tool depend on the tool), and it offers options and hidden
//! commands where only names belong.

use std::future::ready;

use clap::{Arg, Command, CommandFactory as _};
use serde_json::Value;
use toolrack_manager::ToolWithServer;
use toolrack_transport::sanitize_line;

use crate::args::{Cli, RequestOptions, Shell};
use crate::commands::import::SOURCE_TOOLS;
use crate::commands::{Context, tools};
use crate::error::CliError;
use crate::server_selection::{ServerSource, Servers, Warnings};
use crate::server_session::{ServerSession, with_session};
use crate::tool_args::schema::Schema;

/// Prints the script for a shell.
pub(crate) fn completion(
    shell: Shell,
    context: &Context,
) -> impl Future<Output = Result<(), CliError>> {
    let script = match shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
    };
    context.printer.data(script.as_bytes());
    ready(Ok(()))
}

const BASH: &str = r#"_toolrack() {
    local IFS=$'\n'
    local words=("${COMP_WORDS[@]:1:COMP_CWORD}")
    COMPREPLY=($(toolrack __complete -- "${words[@]}" 2>/dev/null | cut -f1))
    case "${COMPREPLY[*]}" in
        *=) compopt -o nospace 2>/dev/null ;;
    esac
}
complete -o default -F _toolrack toolrack
"#;

const ZSH: &str = r#"#compdef toolrack
_toolrack() {
    local line
    local -a found
    for line in "${(@f)$(toolrack __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] && found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    if (( $#found )); then
        _describe toolrack found
    else
        _files
    fi
}
compdef _toolrack toolrack
"#;

const FISH: &str = "complete -c toolrack -e
complete -c toolrack -f -a \\
    '(toolrack __complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
";

/// Prints one candidate per line, followed by a tab and a description.
pub(crate) async fn complete(words: Vec<String>, context: &Context) -> Result<(), CliError> {
    let known = load_known(context).await.unwrap_or_default();
    for candidate in candidates(&Cli::command(), &words, &known) {
        let about = sanitize_line(&candidate.about, 80);
        context.printer.line(format_args!("{}\t{about}", candidate.text));
    }
    Ok(())
}

async fn load_known(context: &Context) -> Option<KnownNames> {
    // Without the warnings, which would end up in the middle of the line being typed.
    let servers = Servers::configured(Warnings::None, context).ok()?;
    let names = servers.names().map(str::to_owned).collect();
    let list_tools = async |session: &ServerSession| {
        session.list_cached().await?;
        let known_tool = |tool: &ToolWithServer| {
            let schema: Value =
                serde_json::from_str(tool.tool().input_schema.get()).unwrap_or_default();
            let arguments = Schema::new(&schema).property_names().into_iter().map(str::to_owned);
            let text = tools::typed_name(tool, ServerSource::Configured);
            let candidate = Candidate { text, about: tools::description(tool.tool()) };
            (candidate, arguments.collect())
        };
        Ok(session.manager().all_tools().iter().map(known_tool).collect())
    };
    let tools =
        with_session(servers, &RequestOptions::default(), context, list_tools).await.ok()?;
    Some(KnownNames { servers: names, tools })
}

/// Longer names are not offered.
const MAX_CHARS: usize = 200;

/// Names known from the config and the tool cache, without starting a server.
#[derive(Debug, Default)]
struct KnownNames {
    servers: Vec<String>,
    /// The cached tools, with their arguments.
    tools: Vec<(Candidate, Vec<String>)>,
}

/// A completion candidate.
#[derive(Debug, Clone)]
struct Candidate {
    text: String,
    about: String,
}

/// Candidates for the last word. Nothing is offered after `--`, where the server's own arguments
/// begin.
fn candidates(root: &Command, words: &[String], known: &KnownNames) -> Vec<Candidate> {
    let Some((last, before)) = words.split_last() else { return Vec::new() };
    if before.iter().any(|word| word == "--") {
        return Vec::new();
    }
    let mut command = root;
    let mut positionals: Vec<&str> = Vec::new();
    // An option whose value comes next.
    let mut pending: Option<&Arg> = None;
    for word in before {
        if pending.take().is_some() {
            continue;
        }
        if word.starts_with('-') {
            let is_typed = |arg: &&Arg| {
                let is_long = arg.get_long().is_some_and(|long| *word == format!("--{long}"));
                is_long || arg.get_short().is_some_and(|short| *word == format!("-{short}"))
            };
            let option = command.get_arguments().chain(root.get_arguments()).find(is_typed);
            pending = option.filter(|option| option.get_action().takes_values());
        } else if std::ptr::eq(command, root) {
            let Some(subcommand) = root.find_subcommand(word) else { return Vec::new() };
            command = subcommand;
        } else {
            positionals.push(word);
        }
    }
    let found = match pending {
        Some(option) if option.get_long() == Some("server") => names_with(&known.servers, ""),
        Some(option) => values(option),
        None if last.starts_with('-') => {
            let options = command.get_arguments().chain(root.get_arguments());
            let flag =
                |arg: &Arg| Some(candidate(&format!("--{}", arg.get_long()?), arg.get_help()));
            options.filter(|option| !option.is_hide_set()).filter_map(flag).collect()
        }
        None if std::ptr::eq(command, root) => subcommands(root),
        None => positional(command, &positionals, known),
    };
    let fits = |candidate: &Candidate| {
        candidate.text.starts_with(last.as_str()) && is_shell_safe(&candidate.text)
    };
    found.into_iter().filter(fits).collect()
}

/// Whether every shell takes the text literally.
fn is_shell_safe(text: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:@%+=,".contains(c);
    text.chars().all(is_plain) && sanitize_line(text, MAX_CHARS) == text
}

fn subcommands(command: &Command) -> Vec<Candidate> {
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    shown.map(|command| candidate(command.get_name(), command.get_about())).collect()
}

fn values(option: &Arg) -> Vec<Candidate> {
    let values = option.get_possible_values();
    values.iter().map(|value| candidate(value.get_name(), value.get_help())).collect()
}

fn positional(command: &Command, typed: &[&str], known: &KnownNames) -> Vec<Candidate> {
    match (command.get_name(), typed) {
        ("read", []) => names_with(&known.servers, ""),
        ("prompt", []) => names_with(&known.servers, "."),
        ("import", []) => {
            let tools = SOURCE_TOOLS.iter().map(|tool| tool.name.to_owned());
            names_with(&tools.collect::<Vec<_>>(), "")
        }
        ("call", []) => known.tools.iter().map(|(tool, _)| tool.clone()).collect(),
        ("call", [tool, ..]) => {
            let known = known.tools.iter().find(|(known, _)| known.text == *tool);
            known.map(|(_, arguments)| names_with(arguments, "=")).unwrap_or_default()
        }
        (_, typed) => match command.get_positionals().nth(typed.len()) {
            Some(place) if place.get_id() == "server" => names_with(&known.servers, ""),
            Some(place) => values(place),
            None if typed.is_empty() => subcommands(command),
            None => Vec::new(),
        },
    }
}

fn names_with(names: &[String], end: &str) -> Vec<Candidate> {
    // `-` begins an option; zsh expands `=name` to the path of a program.
    let names = names.iter().filter(|name| !name.starts_with(['-', '=']));
    let all = names.map(|name| Candidate { text: format!("{name}{end}"), about: String::new() });
    all.collect()
}

fn candidate(text: &str, about: Option<&clap::builder::StyledStr>) -> Candidate {
    let about = about.map(ToString::to_string).unwrap_or_default();
    Candidate { text: text.to_owned(), about }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, arguments: &[&str]) -> (Candidate, Vec<String>) {
        let arguments = arguments.iter().map(|&name| name.to_owned()).collect();
        (Candidate { text: name.to_owned(), about: String::new() }, arguments)
    }

    #[track_caller]
    fn check(line: &str, expected: &[&str]) {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let known = KnownNames {
            servers: vec!["git".to_owned(), "mail".to_owned()],
            tools: vec![
                tool("git.log", &["limit", "path"]),
                tool("mail.$(touch x)", &[]),
                tool("mail.a;id", &[]),
                tool(
                    "mail.über",
                    &["größe", "a`id`", "b$(id>x)", "*", "a b", "--config", "=id", "x\u{3164}"],
                ),
            ],
        };
        let found = candidates(&Cli::command(), &words, &known);
        let found: Vec<&str> = found.iter().map(|candidate| candidate.text.as_str()).collect();
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn commands_names_options_and_values_are_completed() {
        check("ca", &["call"]);
        check("-q pro", &["prompts", "prompt"]);
        check("__", &[]);
        check("tools ", &["git", "mail"]);
        check("tools m", &["mail"]);
        check("-o json call g", &["git.log"]);
        check("call git.log ", &["limit=", "path="]);
        check("call git.log p", &["path="]);
        check("call --dr", &["--dry-run"]);
        check("tools --sc", &["--schema"]);
        check("tools -o j", &["json"]);
        check("tools --output y", &["yaml"]);
        check("tools --config ", &[]);
        check("prompt ma", &["mail."]);
        check("completion ", &["bash", "zsh", "fish"]);
        check("call echo -- np", &[]);
        check("unknown x", &[]);
        check("unknown c", &[]);
        check("doctor ", &["git", "mail"]);
        check("logs -f m", &["mail"]);
        check("add ", &[]);
        check("secret s", &["set"]);
        check("secret set ", &[]);
        check("import cl", &["claude", "claude-desktop"]);
        check("add --transport h", &["http"]);
        check("serve --server g", &["git"]);
        check("serve --ht", &[]);
        check("daemon st", &["start", "stop", "status"]);
    }

    #[test]
    fn unsafe_candidates_are_not_offered() {
        check("call mail.", &["mail.über"]);
        check("call mail.über ", &["größe="]);
        check("call mail.über --con", &["--config"]);
    }
}
