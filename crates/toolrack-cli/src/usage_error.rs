//! Usage errors: clap's message without its tips, and a hint of ours.
//!
//! **Invariant:** a hint repeats no typed value, because it may be a secret.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory as _, Error};

use crate::args::Cli;
use toolrack_config::similar_names;

/// The message and the usage line. Clap's tips are left to [`hint`], which knows more.
pub(crate) fn render(error: &Error) -> String {
    let text = error.render().to_string();
    let is_kept = |line: &&str| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with("tip: ") && !line.starts_with("For more information")
    };
    text.lines().filter(is_kept).collect::<Vec<_>>().join("\n")
}

/// The message on one line, without the usage.
pub(crate) fn message(error: &Error) -> String {
    let text = error.render().to_string();
    let lines: Vec<&str> =
        text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    let message = lines.join(" ");
    message.strip_prefix("error: ").unwrap_or(&message).to_owned()
}

/// The hint of a usage error.
pub(crate) fn hint(error: &Error, typed: &[String]) -> String {
    let known = Cli::command();
    let help = see_help(&known, typed);
    // Words after `--` belong to the server.
    let mut rest = typed.iter().map(String::as_str).take_while(|word| *word != "--");
    let subcommand = rest.find(|word| known.find_subcommand(word).is_some());
    let stray = values(error, ContextKind::InvalidArg).into_iter().next().unwrap_or_default();
    match (error.kind(), subcommand, suggestion(error)) {
        (_, _, Some(suggestion)) => format!("did you mean `{suggestion}`? Otherwise, {help}"),
        (ErrorKind::UnknownArgument, Some("call"), None) if stray.starts_with("--") => {
            let name = stray.trim_start_matches('-');
            format!("tool arguments have no dashes: `{name}=…`; {help}")
        }
        (ErrorKind::UnknownArgument, Some("add"), None) => missing_separator(rest, &stray, &help),
        _ => help,
    }
}

/// Points to the help of the command that was typed, as far as it is known.
fn see_help(root: &Command, typed: &[String]) -> String {
    let mut command = root;
    let mut path = "toolrack".to_owned();
    for word in typed.iter().take_while(|word| *word != "--") {
        if let Some(subcommand) = command.find_subcommand(word) {
            path = format!("{path} {}", subcommand.get_name());
            command = subcommand;
        }
    }
    format!("see `{path} --help`")
}

/// Hint for an unknown option of `add`, which most likely belongs to a command without `--` before
/// it.
fn missing_separator<'a>(
    mut rest: impl Iterator<Item = &'a str>,
    stray: &str,
    help: &str,
) -> String {
    match (rest.next(), rest.next()) {
        (Some(name), Some(program))
            if !name.starts_with('-') && !program.starts_with('-') && !program.contains("://") =>
        {
            format!("put the command after `--`: `toolrack add {name} -- {program} {stray} …`")
        }
        _ => format!("put the command after `--`, e.g. `toolrack add NAME -- npx …`; {help}"),
    }
}

/// Clap's suggestion that is most similar to the typed word. Clap returns several, in no useful
/// order.
fn suggestion(error: &Error) -> Option<String> {
    let pairs = [
        (ContextKind::InvalidSubcommand, ContextKind::SuggestedSubcommand),
        (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        (ContextKind::InvalidValue, ContextKind::SuggestedValue),
    ];
    pairs.into_iter().find_map(|(wrong, right)| {
        let (wrong, rights) = (values(error, wrong).into_iter().next()?, values(error, right));
        let bare = |name: &str| name.trim_start_matches('-').to_owned();
        let bares: Vec<String> = rights.iter().map(|name| bare(name)).collect();
        let nearest = *similar_names(&bare(&wrong), bares.iter().map(String::as_str)).first()?;
        rights.into_iter().find(|name| bare(name) == nearest)
    })
}

fn values(error: &Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let typed: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let all = std::iter::once("toolrack".to_owned()).chain(typed.clone());
        let error = Cli::command().try_get_matches_from(all).unwrap_err();
        let (hint, rendered) = (hint(&error, &typed), render(&error));
        assert_eq!(hint, expected, "{line}");
        assert!(!format!("{hint}{rendered}").contains("s3cret"), "{hint}\n{rendered}");
        assert!(rendered.starts_with("error: ") && !rendered.contains("tip:"), "{rendered}");
    }

    #[test]
    fn usage_errors_have_hints() {
        check("cal echo", "did you mean `call`? Otherwise, see `toolrack --help`");
        check("demoo", "did you mean `demo`? Otherwise, see `toolrack --help`");
        let help = "see `toolrack call --help`";
        check("call", help);
        check("daemon start --what", "see `toolrack daemon start --help`");
        check("call e.x --timout 3", &format!("did you mean `--timeout`? Otherwise, {help}"));
        check("-o jso list", "did you mean `json`? Otherwise, see `toolrack list --help`");
        let dashes = format!("tool arguments have no dashes: `a=…`; {help}");
        check("call e.x --a s3cret", &dashes);
        check("call e.x --a=s3cret", &dashes);
        let command = "put the command after `--`: `toolrack add x -- npx -y …`";
        check("add x npx -y s3cret", command);
        check("--agent main add x npx -y s3cret", command);
        check(
            "add x https://host/mcp --zz",
            "put the command after `--`, e.g. `toolrack add NAME -- npx …`; see `toolrack add --help`",
        );
    }
}
