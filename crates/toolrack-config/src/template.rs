//! Text with references in it: `${VAR}`, `${VAR:-default}`, `${env:VAR}`, `${secret:name}`,
//! `${file:path}`; `$${` is a `${` that is meant as it is.
//!
//! **Invariant:** a template is cut into parts once. What is filled in is never looked at again.

use crate::diagnostics::nearest;

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// A variable of the environment.
    Env,
    /// A secret of the store.
    Secret,
    /// The content of a file. One line end at its end is not part of the value.
    File,
}

/// A piece of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part<'t> {
    Literal(&'t str),
    Reference {
        source: Source,
        name: &'t str,
        default: Option<&'t str>,
    },
    /// Something that can only be a reference and cannot be filled in.
    Broken(Flaw<'t>),
    /// Something that begins like a reference and is passed on as it is, such as `${v%.*}` for a shell.
    LeftAlone(&'t str),
}

/// What is wrong with a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Flaw<'t> {
    UnknownSource(&'t str),
    NestedDefault,
}

/// Cuts a template into its parts.
pub(crate) fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        // An escape is one dollar sign more, right before it.
        let (before, reference) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            parts.extend([Part::Literal(before), Part::Literal("${")]);
            rest = reference.strip_prefix("${").unwrap_or_default();
            continue;
        }
        parts.push(Part::Literal(before));
        let Some(end) = reference.find('}') else {
            parts.push(Part::LeftAlone(reference));
            rest = "";
            break;
        };
        let (reference, tail) = reference.split_at(end + 1);
        parts.push(part(reference));
        rest = tail;
    }
    parts.push(Part::Literal(rest));
    parts.retain(|it| *it != Part::Literal(""));
    parts
}

fn part(reference: &str) -> Part<'_> {
    let inner =
        reference.strip_prefix("${").and_then(|it| it.strip_suffix('}')).unwrap_or_default();
    let (head, default) = match inner.split_once(":-") {
        Some((head, default)) => (head, Some(default)),
        None => (inner, None),
    };
    let known = match head.split_once(':') {
        None if is_variable(head) => Some((Source::Env, head)),
        None => None,
        Some((word, name)) => match (Source::of(word), name.trim()) {
            (_, "") => None,
            (Some(source), name) => Some((source, name)),
            (None, name) if is_variable(word) && !name.starts_with(shell_letter) => {
                return Part::Broken(Flaw::UnknownSource(word));
            }
            (None, _) => None,
        },
    };
    match (known, default) {
        (Some(_), Some(default)) if default.contains("${") => Part::Broken(Flaw::NestedDefault),
        (Some((source, name)), default) => Part::Reference { source, name, default },
        (None, _) => Part::LeftAlone(reference),
    }
}

/// What follows the colon in forms that only a shell knows: `${v:=x}`, `${v:0:3}`.
fn shell_letter(letter: char) -> bool {
    matches!(letter, '=' | '?' | '+' | '-' | ' ') || letter.is_ascii_digit()
}

fn is_variable(name: &str) -> bool {
    let letter = |it: char| it.is_ascii_alphanumeric() || it == '_';
    name.chars().all(letter)
        && !name.is_empty()
        && !name.starts_with(|it: char| it.is_ascii_digit())
}

/// Whether anything is to be filled in.
pub(crate) fn has_references(text: &str) -> bool {
    parts(text).iter().any(|it| matches!(it, Part::Reference { .. } | Part::Broken(_)))
}

/// Whether a stored secret is to be filled in. What has a default is a setting rather than a secret.
pub(crate) fn has_secret(text: &str) -> bool {
    parts(text)
        .iter()
        .any(|it| matches!(it, Part::Reference { source: Source::Secret, default: None, .. }))
}

/// Makes text that means itself.
pub(crate) fn escaped(text: &str) -> String {
    text.replace("${", "$${")
}

impl Source {
    /// The words before the colon.
    pub(crate) const WORDS: [&'static str; 3] = ["env", "secret", "file"];

    fn of(word: &str) -> Option<Self> {
        match word {
            "env" => Some(Self::Env),
            "secret" => Some(Self::Secret),
            "file" => Some(Self::File),
            _ => None,
        }
    }
}

impl Flaw<'_> {
    /// What is wrong and what to do.
    pub(crate) fn complaint(&self) -> String {
        match self {
            Flaw::UnknownSource(word) => match nearest(word, Source::WORDS) {
                Some(near) => {
                    format!("`${{{word}:…}}` is no source of values; did you mean `{near}`?")
                }
                None => format!(
                    "`${{{word}:…}}` is no source of values; use `env`, `secret` or `file`, or write `$${{`"
                ),
            },
            Flaw::NestedDefault => "a default cannot hold another reference".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[Part<'_>]) {
        assert_eq!(parts(text), expected, "{text}");
    }

    fn env(name: &str) -> Part<'_> {
        Part::Reference { source: Source::Env, name, default: None }
    }

    #[test]
    fn references_are_found() {
        check("plain $5 {x}", &[Part::Literal("plain $5 {x}")]);
        check("", &[]);
        check("Bearer ${TOKEN}!", &[Part::Literal("Bearer "), env("TOKEN"), Part::Literal("!")]);
        check("${A}${env:B}", &[env("A"), env("B")]);
        check("${env:ProgramFiles(x86)}", &[env("ProgramFiles(x86)")]);
        let default = |default| Part::Reference { source: Source::Env, name: "A", default };
        check("${A:-x:-y}", &[default(Some("x:-y"))]);
        check("${A:-}", &[default(Some(""))]);
        let named = |source, name| Part::Reference { source, name, default: None };
        check("${secret:gh-token}", &[named(Source::Secret, "gh-token")]);
        check("${file:C:\\key}", &[named(Source::File, "C:\\key")]);
    }

    #[test]
    fn what_is_escaped_means_itself() {
        check("a$${B}", &[Part::Literal("a"), Part::Literal("${"), Part::Literal("B}")]);
        assert_eq!(escaped("${A} $${B}"), "$${A} $$${B}");
        check("$$$${A}", &[Part::Literal("$$"), Part::Literal("${"), Part::Literal("A}")]);
    }

    #[test]
    fn forms_of_a_shell_are_left_alone() {
        for text in ["${v%.*}", "${v:=x}", "${v:0:3}", "${}", "${ A }", "${A", "${1}", "${env:}"] {
            check(text, &[Part::LeftAlone(text)]);
        }
    }

    #[test]
    fn flaws_are_named() {
        check("${keyring:x}", &[Part::Broken(Flaw::UnknownSource("keyring"))]);
        check("${A:-${B}}", &[Part::Broken(Flaw::NestedDefault), Part::Literal("}")]);
        assert!(Flaw::UnknownSource("secrets").complaint().contains("did you mean `secret`"));
    }
}
