//! What values have to be like, one by one. Used when a file is read, and again on what was filled in.

use url::Url;

use crate::diagnostic::FaultKind;
use crate::template::{Part, has_references, parts};

/// What a text is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A program or a folder.
    Command,
    /// A program without arguments, which may have been written with them.
    LoneCommand,
    /// An argument.
    Any,
    /// A variable.
    Value,
    Url,
    Header,
}

/// What is to be said about a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Wrong(String),
    Odd(String),
}

/// Names that mean something else where names of servers are typed or stored.
const RESERVED: [&str; 3] = ["toolrack", ".", ".."];

/// How long a name may be, in bytes.
const LONGEST_NAME: usize = 128;

/// What is wrong with the name of a server.
pub(crate) fn server_name(name: &str) -> Option<(FaultKind, &'static str)> {
    if name.trim().is_empty() {
        return Some((FaultKind::Missing, "is required and must not be empty"));
    }
    if RESERVED.contains(&name) {
        return Some((FaultKind::Reserved, "is reserved; choose another name"));
    }
    if name.trim() != name {
        return Some((FaultKind::Invalid, "has spaces around it; take them out"));
    }
    if name.contains(|it: char| it.is_control() || matches!(it, '/' | '\\')) {
        return Some((FaultKind::Invalid, "must not contain slashes or control characters"));
    }
    let long = name.len() > LONGEST_NAME;
    long.then_some((FaultKind::Invalid, "is longer than 128 bytes; choose a shorter one"))
}

/// Whether a header can be called this.
pub(crate) fn header_name(name: &str) -> bool {
    let letter = |it: char| it.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(it);
    !name.is_empty() && name.chars().all(letter)
}

/// Whether a variable can be called this.
pub(crate) fn variable_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

/// Everything to be said about a text as it stands in a file.
pub(crate) fn text(text: &str, rule: Rule) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = parts(text)
        .into_iter()
        .filter_map(|it| {
            match it {
            Part::Broken(flaw) => Some(Verdict::Wrong(flaw.complaint())),
            // The text is not shown: it may be a password that happens to look like this.
            Part::LeftAlone(_) => Some(Verdict::Odd(
                "holds a `${` that is no reference and is passed on as it is; write `$${` to say so"
                    .to_owned(),
            )),
            Part::Literal(_) | Part::Reference { .. } => None,
        }
        })
        .collect();
    let complaint = match rule {
        // What stands around references can be judged before they are filled in.
        Rule::Url if has_references(text) => user(&outline(text)),
        _ if has_references(text) => None,
        _ => value(text, rule),
    };
    verdicts.extend(complaint.map(|it| Verdict::Wrong(it.to_owned())));
    if rule != Rule::Any && text.trim() != text && !text.trim().is_empty() {
        verdicts.push(Verdict::Odd("has spaces around it; are they meant?".to_owned()));
    }
    if rule == Rule::LoneCommand && text.trim().contains(' ') && !text.contains(['/', '\\']) {
        let complaint = "holds a space, and no shell splits it; put arguments into `args`";
        verdicts.push(Verdict::Odd(complaint.to_owned()));
    }
    verdicts
}

/// What is wrong with a value that goes out as it is. Says nothing of the value itself, which may be secret.
pub(crate) fn value(value: &str, rule: Rule) -> Option<&'static str> {
    match rule {
        Rule::Command | Rule::LoneCommand if value.trim().is_empty() => Some("must not be empty"),
        Rule::Url => url(value),
        Rule::Header if value.contains(|it: char| it.is_control() && it != '\t') => {
            Some("must not contain line breaks or other control characters")
        }
        Rule::Header if !value.is_ascii() => Some("must be plain ASCII to be sent as a header"),
        _ if value.contains('\0') => Some("must not contain the NUL character"),
        _ => None,
    }
}

fn url(text: &str) -> Option<&'static str> {
    match Url::parse(text) {
        Err(_malformed) if text.trim().is_empty() => Some("must not be empty"),
        Err(_malformed) if !text.contains("://") => {
            Some("is no URL; write all of it, as in `https://example.com/mcp`")
        }
        Err(_malformed) => Some("is no URL; check host, port and special characters"),
        // A socket of this machine.
        Ok(url) if url.scheme() == "unix" && text.starts_with("unix:/") => None,
        Ok(url) if !matches!(url.scheme(), "http" | "https") => {
            Some("must begin with `https://` or `http://`")
        }
        Ok(_) => user(text),
    }
}

/// Addresses are shown and logged in many places, and nobody sends what stands before the host.
fn user(text: &str) -> Option<&'static str> {
    let url = Url::parse(text).ok()?;
    let has_user = !url.username().is_empty() || url.password().is_some();
    has_user.then_some(
        "must not hold a name or password; send them in a header, as in `Authorization: Basic …`",
    )
}

/// A template with something in place of each reference.
fn outline(text: &str) -> String {
    let piece = |part| match part {
        Part::Literal(text) | Part::LeftAlone(text) => text,
        Part::Reference { .. } | Part::Broken(_) => "x",
    };
    parts(text).into_iter().map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn name(text: &str, expected: Option<FaultKind>) {
        assert_eq!(server_name(text).map(|it| it.0), expected, "{text:?}");
    }

    #[test]
    fn names_of_servers_are_plain() {
        name("git-hub 2", None);
        name("io.github.user", None);
        name("", Some(FaultKind::Missing));
        name("  ", Some(FaultKind::Missing));
        name(" a", Some(FaultKind::Invalid));
        name("a/b", Some(FaultKind::Invalid));
        name("a\nb", Some(FaultKind::Invalid));
        name("toolrack", Some(FaultKind::Reserved));
        name("..", Some(FaultKind::Reserved));
        name(&"x".repeat(129), Some(FaultKind::Invalid));
    }

    #[track_caller]
    fn check(text: &str, rule: Rule, expected: &str) {
        let said: Vec<_> = super::text(text, rule)
            .into_iter()
            .map(|it| match it {
                Verdict::Wrong(_) => 'w',
                Verdict::Odd(_) => 'o',
            })
            .collect();
        assert_eq!(said.into_iter().collect::<String>(), expected, "{text:?}");
    }

    #[test]
    fn texts_have_rules() {
        check("npx", Rule::LoneCommand, "");
        check("", Rule::Command, "w");
        check("npx -y server", Rule::LoneCommand, "o");
        check("/opt/my server/run", Rule::LoneCommand, "");
        check(" npx", Rule::Command, "o");
        check("https://example.com/mcp", Rule::Url, "");
        check("example.com/mcp", Rule::Url, "w");
        check("ftp://example.com", Rule::Url, "w");
        check("https://", Rule::Url, "w");
        check("${BASE}/mcp", Rule::Url, "");
        check("https://${HOST}:${PORT}/mcp", Rule::Url, "");
        check("https://example.com/${PATH:-a@b}/c@d", Rule::Url, "");
        check("unix:/run/a@b.sock:/mcp", Rule::Url, "");
        for user in ["name:pass", "name", ":pass", "name:${PASS}", "${NAME}", "${NAME}:${PASS}"] {
            check(&format!("https://{user}@example.com/mcp"), Rule::Url, "w");
        }
        check("a\nb", Rule::Header, "w");
        check("Bearer ${TOKEN}", Rule::Header, "");
        check("${keyring:x}", Rule::Header, "w");
        check("${v%.*}", Rule::Any, "o");
        check("a\0b", Rule::Any, "w");
        check(" spaces are fine ", Rule::Any, "");
    }

    #[test]
    fn headers_and_variables_have_names() {
        assert!(header_name("X-Api_Key") && !header_name("X Api") && !header_name(""));
        assert!(!header_name("Ä") && !header_name("a:b"));
        assert!(variable_name("A.b") && !variable_name("A=b") && !variable_name(""));
    }
}
