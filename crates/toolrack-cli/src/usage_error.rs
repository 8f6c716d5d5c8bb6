//! Usage errors: clap's message without its tips, and a hint of ours.
//!
//! **Invariant:** a hint repeats no typed value, because it may be a secret.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Error};

use crate::args::Cli;
use crate::suggest::similar_names;

const HELP: &str = "run it with `--help` to see what can be typed";

/// The message and the usage line. Clap's tips are left to [`hint`], which knows more.
pub(crate) fn render(error: &Error) -> String {
    let text = error.render().to_string();
    let is_told = |line: &&str| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with("tip: ") && !line.starts_with("For more information")
    };
    text.lines().filter(is_told).collect::<Vec<_>>().join("\n")
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
    let mut rest = typed.iter().map(String::as_str).take_while(|word| *word != "--");
    let verb = rest.find(|word| known.find_subcommand(word).is_some());
    let stray = first(error, ContextKind::InvalidArg).unwrap_or_default();
    match (error.kind(), verb, meant(error)) {
        (_, _, Some(meant)) => format!("did you mean `{meant}`? If not, {HELP}"),
        (ErrorKind::UnknownArgument, Some("call"), None) if stray.starts_with("--") => {
            let name = stray.trim_start_matches('-');
            format!("arguments of a tool are written without dashes, as in `{name}=…`; {HELP}")
        }
        (ErrorKind::UnknownArgument, Some("add"), None) => command_of(rest, &stray),
        _ => HELP.to_owned(),
    }
}

/// Hint for an unknown option of `add`, which most likely belongs to a command without `--` before
/// it.
fn command_of<'a>(mut rest: impl Iterator<Item = &'a str>, stray: &str) -> String {
    match (rest.next(), rest.next()) {
        (Some(name), Some(program))
            if !name.starts_with('-') && !program.starts_with('-') && !program.contains("://") =>
        {
            format!("a command comes behind `--`: `toolrack add {name} -- {program} {stray} …`")
        }
        _ => format!("a command comes behind `--`, as in `toolrack add NAME -- npx …`; {HELP}"),
    }
}

/// Clap's suggestion that is most similar to what was typed. Clap returns several, in no useful
/// order.
fn meant(error: &Error) -> Option<String> {
    let pairs = [
        (ContextKind::InvalidSubcommand, ContextKind::SuggestedSubcommand),
        (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        (ContextKind::InvalidValue, ContextKind::SuggestedValue),
    ];
    pairs.into_iter().find_map(|(wrong, right)| {
        let (wrong, rights) = (first(error, wrong)?, all(error, right));
        let bare = |name: &str| name.trim_start_matches('-').to_owned();
        let bares: Vec<String> = rights.iter().map(|name| bare(name)).collect();
        let nearest = *similar_names(&bare(&wrong), bares.iter().map(String::as_str)).first()?;
        rights.into_iter().find(|name| bare(name) == nearest)
    })
}

fn first(error: &Error, kind: ContextKind) -> Option<String> {
    all(error, kind).into_iter().next()
}

fn all(error: &Error, kind: ContextKind) -> Vec<String> {
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
    fn a_line_that_is_wrong_says_how_it_is_right() {
        check("cal echo", &format!("did you mean `call`? If not, {HELP}"));
        check("demoo", &format!("did you mean `demo`? If not, {HELP}"));
        check("call", HELP);
        check("call e.x --timout 3", &format!("did you mean `--timeout`? If not, {HELP}"));
        check("-o jso list", &format!("did you mean `json`? If not, {HELP}"));
        let dashes = format!("arguments of a tool are written without dashes, as in `a=…`; {HELP}");
        check("call e.x --a s3cret", &dashes);
        check("call e.x --a=s3cret", &dashes);
        let command = "a command comes behind `--`: `toolrack add x -- npx -y …`";
        check("add x npx -y s3cret", command);
        check("--agent main add x npx -y s3cret", command);
        let general =
            format!("a command comes behind `--`, as in `toolrack add NAME -- npx …`; {HELP}");
        check("add x https://host/mcp --zz", &general);
    }
}
