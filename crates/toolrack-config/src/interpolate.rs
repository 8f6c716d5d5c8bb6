//! Interpolation of `${VAR}`, `${VAR:-default}`, `${env:VAR}`, `${secret:name}` and `${file:path}` at
//! connection time. `$${` is a literal `${`.
//!
//! **Invariant:** a template is split once; resolved values are never searched for references.
//! **Invariant:** `Debug` shows the template at most, never a resolved value.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use crate::diagnostics::{Diagnostic, DiagnosticKind};
use crate::server::{ConfigText, EnvValue, McpServerConfig, McpTransport, Package, PackageKind};
use crate::suggest::suggest;
use crate::table_reader::join;
use crate::validate::{self, TextRule};

/// Variable with the home directory.
const HOME: &str = "HOME";

/// Source of values: environment, secrets and files.
pub trait Lookup {
    /// The value of a name. `Ok(None)` if it does not exist; an error if it cannot be read.
    fn look_up(&self, source: VariableSource, name: &str) -> Result<Option<String>, String>;

    /// Advice for a variable that is not set, if setting it is not enough.
    fn advice(&self, _variable: &str) -> Option<String> {
        None
    }
}

impl<F> Lookup for F
where
    F: Fn(VariableSource, &str) -> Result<Option<String>, String>,
{
    fn look_up(&self, source: VariableSource, name: &str) -> Result<Option<String>, String> {
        self(source, name)
    }
}

/// A resolved text. Cannot be printed by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Resolved {
    value: String,
    template: String,
    /// Looked-up values by name.
    found: Vec<(String, String)>,
}

/// Transport with all references resolved. The variable of an optional secret that does not exist is empty.
pub type ResolvedTransport = McpTransport<Resolved, Resolved>;

/// Resolves all references of a config, or reports everything that is missing.
pub fn interpolate(
    config: &McpServerConfig,
    lookup: &dyn Lookup,
) -> Result<ResolvedTransport, Vec<Diagnostic>> {
    let mut interpolator = Interpolator { config, lookup, diagnostics: Vec::new() };
    let resolved = match &config.transport {
        McpTransport::Stdio { command, args, env, cwd } => McpTransport::Stdio {
            command: interpolator.path("command", command),
            args: interpolator.list("args", args),
            env: interpolator.env(env),
            cwd: cwd.as_ref().map(|cwd| interpolator.path("cwd", cwd)),
        },
        McpTransport::Http { url, headers } => McpTransport::Http {
            url: interpolator.fill("url", url, TextRule::Url),
            headers: interpolator.headers(headers),
        },
        McpTransport::Package { package, env, cwd, headers } => McpTransport::Package {
            package: interpolator.package(package),
            env: interpolator.env(env),
            cwd: cwd.as_ref().map(|cwd| interpolator.path("cwd", cwd)),
            headers: interpolator.headers(headers),
        },
    };
    if interpolator.diagnostics.is_empty() { Ok(resolved) } else { Err(interpolator.diagnostics) }
}

impl Resolved {
    /// The value. The name makes every use easy to find.
    pub fn reveal(&self) -> &str {
        &self.value
    }

    /// Looked-up values by name, for redaction.
    pub fn found(&self) -> impl Iterator<Item = (&str, &str)> {
        self.found.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The value, by move.
    pub fn into_revealed(self) -> String {
        self.value
    }
}

impl ConfigText for Resolved {
    fn shown(&self) -> String {
        // Text without references may be a secret typed into the file.
        let shown = if has_references(&self.template) { &self.template } else { "…" };
        format!("Resolved({shown})")
    }

    fn shown_argument(&self) -> String {
        self.shown()
    }
}

impl fmt::Debug for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

struct Interpolator<'p> {
    config: &'p McpServerConfig,
    lookup: &'p dyn Lookup,
    diagnostics: Vec<Diagnostic>,
}

impl Interpolator<'_> {
    fn list(&mut self, field: &str, texts: &[String]) -> Vec<Resolved> {
        let each = |(n, value): (usize, &String)| {
            self.fill(&format!("{field}[{n}]"), value, TextRule::Any)
        };
        texts.iter().enumerate().map(each).collect()
    }

    fn package(&mut self, package: &Package) -> Package<Resolved> {
        let (field, identifier) = ("package.identifier", &package.identifier);
        Package {
            kind: package.kind,
            identifier: match package.kind {
                PackageKind::Http => self.fill(field, identifier, TextRule::Url),
                PackageKind::Binary => self.path(field, identifier),
                _ => self.fill(field, identifier, TextRule::Command),
            },
            version: package.version.clone(),
            args: self.list("package.args", &package.args),
            program: package.program.clone(),
            runtime_hint: package.runtime_hint.clone(),
            runtime_args: self.list("package.runtime_args", &package.runtime_args),
        }
    }

    fn headers(&mut self, headers: &HashMap<String, String>) -> HashMap<String, Resolved> {
        let fill = |(name, text): (&String, &String)| {
            (name.clone(), self.fill(&join("headers", name), text, TextRule::Header))
        };
        // Sorted by name, here and below, so that diagnostics are stable.
        BTreeMap::from_iter(headers).into_iter().map(fill).collect()
    }

    fn env(&mut self, env: &HashMap<String, EnvValue>) -> HashMap<String, Resolved> {
        let fill = |(name, value): (&String, &EnvValue)| {
            let field = join("env", name);
            let value = match value {
                EnvValue::Text(text) => self.fill(&field, text, TextRule::Value),
                EnvValue::Secret { secret_ref, required } => {
                    let value = self.find(&field, VariableSource::Secret, secret_ref);
                    // A failed lookup is an error of its own, even for an optional secret.
                    if *required && value == Some(None) {
                        self.missing(&field, VariableSource::Secret, secret_ref);
                    }
                    let value = value.flatten();
                    let found = value.iter().map(|value| (secret_ref.clone(), value.clone()));
                    let found = found.collect();
                    let template = format!("${{secret:{secret_ref}}}");
                    let value = value.unwrap_or_default();
                    Resolved { found, ..self.checked(&field, value, &template, TextRule::Value) }
                }
            };
            (name.clone(), value)
        };
        BTreeMap::from_iter(env).into_iter().map(fill).collect()
    }

    /// A path; a leading `~` is the home directory.
    fn path(&mut self, field: &str, template: &str) -> Resolved {
        match below_home(template) {
            // As a reference, so that an unset `HOME` is reported like any other variable.
            Some(rest) => self.fill(field, &format!("${{{HOME}}}{rest}"), TextRule::Command),
            None => self.fill(field, template, TextRule::Command),
        }
    }

    fn fill(&mut self, field: &str, template: &str, rule: TextRule) -> Resolved {
        let before = self.diagnostics.len();
        let mut value = String::with_capacity(template.len());
        let mut found = Vec::new();
        for part in parts(template) {
            match part {
                Part::Literal(text) | Part::Verbatim(text) => value.push_str(text),
                Part::Invalid(message) => {
                    self.diagnostic(DiagnosticKind::Invalid, field, message);
                }
                Part::Reference { source, name, default } => {
                    let filled = self.reference(field, source, name, default);
                    value.push_str(&filled);
                    // A default stands in the file and is no secret; redacting it would
                    // damage ordinary text.
                    if default != Some(filled.as_str()) {
                        found.push((name.to_owned(), filled));
                    }
                }
            }
        }
        // The missing value was reported; validating the rest would only confuse.
        let rule = if self.diagnostics.len() == before { rule } else { TextRule::Any };
        Resolved { found, ..self.checked(field, value, template, rule) }
    }

    fn checked(&mut self, field: &str, value: String, template: &str, rule: TextRule) -> Resolved {
        if let Some(message) = validate::value(&value, rule) {
            self.diagnostic(DiagnosticKind::Invalid, field, message.to_owned());
        }
        Resolved { value, template: template.to_owned(), found: Vec::new() }
    }

    fn reference(
        &mut self,
        field: &str,
        source: VariableSource,
        name: &str,
        default: Option<&str>,
    ) -> String {
        // A failed lookup was reported; the result is thrown away.
        let Some(found) = self.find(field, source, name) else { return String::new() };
        match (found, default) {
            // As in a shell, a default also replaces an empty value.
            (Some(value), _) if !value.is_empty() || default.is_none() => value,
            (_, Some(default)) => default.to_owned(),
            (_, None) => {
                self.missing(field, source, name);
                String::new()
            }
        }
    }

    /// The value, or `None` if it does not exist. Outer `None` if the lookup failed, which is reported.
    fn find(&mut self, field: &str, source: VariableSource, name: &str) -> Option<Option<String>> {
        let path = below_home(name).filter(|_| source == VariableSource::File).and_then(|rest| {
            let home = self.lookup.look_up(VariableSource::Env, HOME).ok()?;
            Some(home? + rest)
        });
        match self.lookup.look_up(source, path.as_deref().unwrap_or(name)) {
            // Editors end a file with a line break, which is not part of a key or token.
            Ok(Some(text)) if source == VariableSource::File => {
                let line = text.strip_suffix('\n').unwrap_or(&text);
                Some(Some(line.strip_suffix('\r').unwrap_or(line).to_owned()))
            }
            Ok(found) => Some(found),
            Err(reason) => {
                let message = format!("{} cannot be read: {reason}", source.describe(name));
                self.diagnostic(DiagnosticKind::Unresolved, field, message);
                None
            }
        }
    }

    fn missing(&mut self, field: &str, source: VariableSource, name: &str) {
        let advice = match source {
            VariableSource::Env => self.lookup.advice(name),
            VariableSource::Secret | VariableSource::File => None,
        };
        let described = source.describe(name);
        let message = match source {
            VariableSource::Env if advice.is_some() => format!("{described} is not set"),
            VariableSource::Env => {
                format!("{described} is not set; set it, or write `${{{name}:-default}}`")
            }
            VariableSource::Secret => {
                format!("{described} does not exist; create it with that name")
            }
            VariableSource::File => format!("{described} does not exist"),
        };
        self.diagnostic(DiagnosticKind::Unresolved, field, message);
        if let Some(diagnostic) = self.diagnostics.last_mut() {
            diagnostic.advice = advice;
        }
    }

    fn diagnostic(&mut self, kind: DiagnosticKind, field: &str, message: String) {
        let origin = &self.config.origin;
        let path = match origin.path() {
            "" => format!("{}.{field}", self.config.name),
            path => format!("{path}.{field}"),
        };
        let (file, at) = (origin.file().unwrap_or_default(), origin.field(field));
        self.diagnostics.push(Diagnostic::error(kind, file, at, (path, message)));
    }
}

/// The rest after a leading `~`. `~user` is not supported.
fn below_home(path: &str) -> Option<&str> {
    path.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Source of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VariableSource {
    /// Environment variable.
    Env,
    /// Stored secret.
    Secret,
    /// File content, without a trailing newline.
    File,
}

/// Part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part<'t> {
    Literal(&'t str),
    Reference {
        source: VariableSource,
        name: &'t str,
        default: Option<&'t str>,
    },
    /// An invalid reference, with the message about it.
    Invalid(String),
    /// Text that only looks like a reference, such as `${v%.*}` for a shell, passed on verbatim.
    Verbatim(&'t str),
}

/// Splits a template into parts.
pub(crate) fn parts(text: &str) -> Vec<Part<'_>> {
    // The usual case.
    if !text.contains("${") && !text.is_empty() {
        return vec![Part::Literal(text)];
    }
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        // `$${` is an escape.
        let (before, reference) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            parts.extend([Part::Literal(before), Part::Literal("${")]);
            rest = reference.strip_prefix("${").unwrap_or_default();
            continue;
        }
        parts.push(Part::Literal(before));
        let Some(end) = reference.find('}') else {
            parts.push(Part::Verbatim(reference));
            rest = "";
            break;
        };
        let (reference, tail) = reference.split_at(end + 1);
        parts.push(part(reference));
        rest = tail;
    }
    parts.push(Part::Literal(rest));
    parts.retain(|part| *part != Part::Literal(""));
    parts
}

fn part(reference: &str) -> Part<'_> {
    let inner =
        reference.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')).unwrap_or_default();
    let (head, default) = match inner.split_once(":-") {
        Some((head, default)) => (head, Some(default)),
        None => (inner, None),
    };
    let known = match head.split_once(':') {
        None if is_variable(head) => Some((VariableSource::Env, head)),
        None => None,
        Some((word, name)) => match (SOURCES.iter().find(|source| source.0 == word), name.trim()) {
            (_, "") => None,
            (Some((_, source, _)), name) => Some((*source, name)),
            // Probably a misspelled source; the shell forms start with another character.
            (None, name) if is_variable(word) && !name.starts_with(shell_letter) => {
                return Part::Invalid(unknown_source(word));
            }
            (None, _) => None,
        },
    };
    match (known, default) {
        // The reference ends at the first `}`, so a nested one would be cut in half.
        (Some(_), Some(default)) if default.contains("${") => {
            Part::Invalid("a default cannot contain another reference".to_owned())
        }
        (Some((source, name)), default) => Part::Reference { source, name, default },
        // Arguments such as `sh -c 'echo ${v%.*}'` must reach the shell as they are.
        (None, _) => Part::Verbatim(reference),
    }
}

/// First characters after the colon in shell forms: `${v:=x}`, `${v:0:3}`.
fn shell_letter(letter: char) -> bool {
    matches!(letter, '=' | '?' | '+' | '-' | ' ') || letter.is_ascii_digit()
}

fn is_variable(name: &str) -> bool {
    let letter = |value: char| value.is_ascii_alphanumeric() || value == '_';
    name.chars().all(letter)
        && !name.is_empty()
        && !name.starts_with(|value: char| value.is_ascii_digit())
}

/// Whether there is a reference.
pub(crate) fn has_references(text: &str) -> bool {
    text.contains("${")
        && parts(text).iter().any(|part| matches!(part, Part::Reference { .. } | Part::Invalid(_)))
}

/// Whether there is a secret reference. One with a default is a setting rather than a secret.
pub(crate) fn has_secret(text: &str) -> bool {
    let is_secret = |part: &Part<'_>| {
        matches!(part, Part::Reference { source: VariableSource::Secret, default: None, .. })
    };
    text.contains("${") && parts(text).iter().any(is_secret)
}

/// Escapes references.
pub(crate) fn escaped(text: &str) -> String {
    text.replace("${", "$${")
}

/// Sources by their prefix before the colon, each with its noun.
const SOURCES: [(&str, VariableSource, &str); 3] = [
    ("env", VariableSource::Env, "variable"),
    ("secret", VariableSource::Secret, "secret"),
    ("file", VariableSource::File, "file"),
];

impl VariableSource {
    fn describe(self, name: &str) -> String {
        let noun = SOURCES.iter().find(|source| source.1 == self).map_or("", |source| source.2);
        format!("the {noun} `{name}`")
    }
}

/// Message about an unknown source, with the fix.
fn unknown_source(word: &str) -> String {
    match suggest(word, SOURCES.map(|source| source.0)) {
        Some(near) => format!("`${{{word}:…}}` is not a valid source; did you mean `{near}`?"),
        None => format!(
            "`${{{word}:…}}` is not a valid source; use `env`, `secret` or `file`, or write `$${{`"
        ),
    }
}

#[cfg(test)]
mod template_tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[Part<'_>]) {
        assert_eq!(parts(text), expected, "{text}");
    }

    fn env(name: &str) -> Part<'_> {
        Part::Reference { source: VariableSource::Env, name, default: None }
    }

    #[test]
    fn references_are_found() {
        check("plain $5 {x}", &[Part::Literal("plain $5 {x}")]);
        check("", &[]);
        check("Bearer ${TOKEN}!", &[Part::Literal("Bearer "), env("TOKEN"), Part::Literal("!")]);
        check("${A}${env:B}", &[env("A"), env("B")]);
        check("${env:ProgramFiles(x86)}", &[env("ProgramFiles(x86)")]);
        let default = |default| Part::Reference { source: VariableSource::Env, name: "A", default };
        check("${A:-x:-y}", &[default(Some("x:-y"))]);
        check("${A:-}", &[default(Some(""))]);
        let named = |source, name| Part::Reference { source, name, default: None };
        check("${secret:gh-token}", &[named(VariableSource::Secret, "gh-token")]);
        check("${file:C:\\key}", &[named(VariableSource::File, "C:\\key")]);
    }

    #[test]
    fn escaped_references_are_literal() {
        check("a$${B}", &[Part::Literal("a"), Part::Literal("${"), Part::Literal("B}")]);
        assert_eq!(escaped("${A} $${B}"), "$${A} $$${B}");
        check("$$$${A}", &[Part::Literal("$$"), Part::Literal("${"), Part::Literal("A}")]);
    }

    #[test]
    fn shell_expansions_are_passed_verbatim() {
        for text in ["${v%.*}", "${v:=x}", "${v:0:3}", "${}", "${ A }", "${A", "${1}", "${env:}"] {
            check(text, &[Part::Verbatim(text)]);
        }
    }

    #[test]
    fn flaws_are_named() {
        let invalid = |message: &str| Part::Invalid(message.to_owned());
        let unknown =
            "`${keyring:…}` is not a valid source; use `env`, `secret` or `file`, or write `$${`";
        check("${keyring:x}", &[invalid(unknown)]);
        let near = "`${secrets:…}` is not a valid source; did you mean `secret`?";
        check("${secrets:x}", &[invalid(near)]);
        let nested = "a default cannot contain another reference";
        check("${A:-${B}}", &[invalid(nested), Part::Literal("}")]);
    }
}
