//! Interpolation of `${VAR}`, `${VAR:-default}`, `${env:VAR}`, `${secret:name}` and `${file:path}` at
//! connection time. `$${` is a literal `${`.
//!
//! **Invariant:** a template is split once; resolved values are never searched for references.
//! **Invariant:** `Debug` shows the template at most, never a resolved value.

use std::collections::HashMap;
use std::fmt;

use crate::diagnostics::{Diagnostic, DiagnosticKind};
use crate::server::{EnvValue, McpServerConfig, McpTransport, PackageKind, sorted_names};
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

/// Transport with all references resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResolvedTransport {
    /// See [`McpTransport::Stdio`].
    Stdio {
        /// Program.
        command: Resolved,
        /// Arguments.
        args: Vec<Resolved>,
        /// Environment, without optional secrets that do not exist.
        env: HashMap<String, Resolved>,
        /// Working directory.
        cwd: Option<Resolved>,
    },
    /// See [`McpTransport::Http`].
    Http {
        /// Endpoint URL.
        url: Resolved,
        /// Request headers.
        headers: HashMap<String, Resolved>,
    },
    /// See [`McpTransport::Package`].
    Package {
        /// Package registry.
        kind: PackageKind,
        /// Package name.
        identifier: Resolved,
        /// Version.
        version: Option<String>,
        /// Arguments of the server.
        args: Vec<Resolved>,
        /// Program within the package.
        program: Option<String>,
        /// Arguments of the package runner.
        runtime_args: Vec<Resolved>,
        /// Environment.
        env: HashMap<String, Resolved>,
        /// Working directory.
        cwd: Option<Resolved>,
        /// Request headers, for an HTTP package.
        headers: HashMap<String, Resolved>,
    },
}

/// Resolves all references of a config, or reports everything that is missing.
pub fn interpolate(
    config: &McpServerConfig,
    lookup: &dyn Lookup,
) -> Result<ResolvedTransport, Vec<Diagnostic>> {
    let mut interpolator = Interpolator { config, lookup, diagnostics: Vec::new() };
    let resolved = match &config.transport {
        McpTransport::Stdio { command, args, env, cwd } => ResolvedTransport::Stdio {
            command: interpolator.path("command", command),
            args: interpolator.list("args", args),
            env: interpolator.env(env),
            cwd: interpolator.cwd(cwd.as_deref()),
        },
        McpTransport::Http { url, headers } => ResolvedTransport::Http {
            url: interpolator.fill("url", url, TextRule::Url),
            headers: interpolator.headers(headers),
        },
        McpTransport::Package { package, env, cwd, headers } => ResolvedTransport::Package {
            kind: package.kind,
            identifier: match package.kind {
                PackageKind::Http => {
                    interpolator.fill("package.identifier", &package.identifier, TextRule::Url)
                }
                PackageKind::Binary => interpolator.path("package.identifier", &package.identifier),
                _ => {
                    interpolator.fill("package.identifier", &package.identifier, TextRule::Command)
                }
            },
            version: package.version.clone(),
            args: interpolator.list("package.args", &package.args),
            program: package.program.clone(),
            runtime_args: interpolator.list("package.runtime_args", &package.runtime_args),
            env: interpolator.env(env),
            cwd: interpolator.cwd(cwd.as_deref()),
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

impl fmt::Debug for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Text without references may be a secret typed into the file.
        let shown = if has_references(&self.template) { &self.template } else { "…" };
        write!(f, "Resolved({shown})")
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

    fn cwd(&mut self, cwd: Option<&str>) -> Option<Resolved> {
        cwd.map(|item| self.path("cwd", item))
    }

    fn headers(&mut self, headers: &HashMap<String, String>) -> HashMap<String, Resolved> {
        let mut filled = HashMap::new();
        for (name, text) in sorted(headers) {
            filled
                .insert(name.to_owned(), self.fill(&join("headers", name), text, TextRule::Header));
        }
        filled
    }

    fn env(&mut self, env: &HashMap<String, EnvValue>) -> HashMap<String, Resolved> {
        let mut filled = HashMap::new();
        for (name, value) in sorted(env) {
            let field = join("env", name);
            let value = match value {
                EnvValue::Text(text) => Some(self.fill(&field, text, TextRule::Value)),
                EnvValue::Secret { secret_ref, required } => {
                    let value = self.find(&field, (VariableSource::Secret, secret_ref));
                    // A failed lookup is an error of its own, even for an optional secret.
                    if *required && value == Some(None) {
                        self.missing(&field, VariableSource::Secret, secret_ref);
                    }
                    let template = format!("${{secret:{secret_ref}}}");
                    value.flatten().map(|value| {
                        let found = vec![(secret_ref.clone(), value.clone())];
                        let filled = self.checked(&field, value, (&template, TextRule::Value));
                        Resolved { found, ..filled }
                    })
                }
            };
            filled.extend(value.map(|value| (name.to_owned(), value)));
        }
        filled
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
                Part::Invalid(error) => {
                    self.diagnostic(DiagnosticKind::Invalid, field, error.message());
                }
                Part::Reference { source, name, default } => {
                    let filled = self.reference(field, (source, name), default);
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
        Resolved { found, ..self.checked(field, value, (template, rule)) }
    }

    fn checked(
        &mut self,
        field: &str,
        value: String,
        (template, rule): (&str, TextRule),
    ) -> Resolved {
        if let Some(message) = validate::value(&value, rule) {
            self.diagnostic(DiagnosticKind::Invalid, field, message.to_owned());
        }
        Resolved { value, template: template.to_owned(), found: Vec::new() }
    }

    fn reference(
        &mut self,
        field: &str,
        (source, name): (VariableSource, &str),
        default: Option<&str>,
    ) -> String {
        match (self.find(field, (source, name)), default) {
            // As in a shell, a default also replaces an empty value.
            (Some(Some(value)), Some(default)) if value.is_empty() => default.to_owned(),
            (Some(Some(value)), _) => value,
            (Some(None), Some(default)) => default.to_owned(),
            (Some(None), None) => {
                self.missing(field, source, name);
                String::new()
            }
            // The failure was reported; the result is thrown away.
            (None, _) => String::new(),
        }
    }

    /// The value, or `None` if it does not exist. Outer `None` if the lookup failed, which is reported.
    fn find(
        &mut self,
        field: &str,
        (source, name): (VariableSource, &str),
    ) -> Option<Option<String>> {
        let home = match below_home(name).filter(|_| source == VariableSource::File) {
            Some(rest) => self
                .lookup
                .look_up(VariableSource::Env, HOME)
                .ok()
                .flatten()
                .map(|look_up| look_up + rest),
            None => None,
        };
        match self.lookup.look_up(source, home.as_deref().unwrap_or(name)) {
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
        let message = match source {
            VariableSource::Env if advice.is_some() => {
                format!("{} is not set", source.describe(name))
            }
            VariableSource::Env => format!(
                "{} is not set; set it, or write `${{{name}:-default}}`",
                source.describe(name)
            ),
            VariableSource::Secret => {
                format!("{} does not exist; create it with that name", source.describe(name))
            }
            VariableSource::File => format!("{} does not exist", source.describe(name)),
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
        let (file, at) = (origin.shared_file(), origin.field(field));
        self.diagnostics.push(Diagnostic::error(kind, file, at, (path, message)));
    }
}

/// The rest after a leading `~`. `~user` is not supported.
fn below_home(path: &str) -> Option<&str> {
    path.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl VariableSource {
    fn describe(self, name: &str) -> String {
        match self {
            VariableSource::Env => format!("the variable `{name}`"),
            VariableSource::Secret => format!("the secret `{name}`"),
            VariableSource::File => format!("the file `{name}`"),
        }
    }
}

/// Sorted by name, so that diagnostics are stable.
fn sorted<V>(map: &HashMap<String, V>) -> Vec<(&str, &V)> {
    sorted_names(map)
        .into_iter()
        .filter_map(|sorted_name| Some((sorted_name, map.get(sorted_name)?)))
        .collect()
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
    /// An invalid reference.
    Invalid(ReferenceError<'t>),
    /// Text that only looks like a reference, such as `${v%.*}` for a shell, passed on verbatim.
    Verbatim(&'t str),
}

/// Invalid reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReferenceError<'t> {
    UnknownSource(&'t str),
    NestedDefault,
}

/// Splits a template into parts.
pub(crate) fn parts(text: &str) -> Vec<Part<'_>> {
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
        Some((word, name)) => match (VariableSource::from_word(word), name.trim()) {
            (_, "") => None,
            (Some(source), name) => Some((source, name)),
            // Probably a misspelled source; the shell forms start with another character.
            (None, name) if is_variable(word) && !name.starts_with(shell_letter) => {
                return Part::Invalid(ReferenceError::UnknownSource(word));
            }
            (None, _) => None,
        },
    };
    match (known, default) {
        // The reference ends at the first `}`, so a nested one would be cut in half.
        (Some(_), Some(default)) if default.contains("${") => {
            Part::Invalid(ReferenceError::NestedDefault)
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
    parts(text).iter().any(|part| matches!(part, Part::Reference { .. } | Part::Invalid(_)))
}

/// Whether there is a secret reference. One with a default is a setting rather than a secret.
pub(crate) fn has_secret(text: &str) -> bool {
    parts(text).iter().any(|part| {
        matches!(part, Part::Reference { source: VariableSource::Secret, default: None, .. })
    })
}

/// Escapes references.
pub(crate) fn escaped(text: &str) -> String {
    text.replace("${", "$${")
}

impl VariableSource {
    /// Prefixes before the colon.
    pub(crate) const WORDS: [&'static str; 3] = ["env", "secret", "file"];

    fn from_word(word: &str) -> Option<Self> {
        match word {
            "env" => Some(Self::Env),
            "secret" => Some(Self::Secret),
            "file" => Some(Self::File),
            _ => None,
        }
    }
}

impl ReferenceError<'_> {
    /// Message with the fix.
    pub(crate) fn message(&self) -> String {
        match self {
            ReferenceError::UnknownSource(word) => match suggest(word, VariableSource::WORDS) {
                Some(near) => {
                    format!("`${{{word}:…}}` is not a valid source; did you mean `{near}`?")
                }
                None => format!(
                    "`${{{word}:…}}` is not a valid source; use `env`, `secret` or `file`, or write `$${{`"
                ),
            },
            ReferenceError::NestedDefault => {
                "a default cannot contain another reference".to_owned()
            }
        }
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
        check("${keyring:x}", &[Part::Invalid(ReferenceError::UnknownSource("keyring"))]);
        check("${A:-${B}}", &[Part::Invalid(ReferenceError::NestedDefault), Part::Literal("}")]);
        assert!(
            ReferenceError::UnknownSource("secrets").message().contains("did you mean `secret`")
        );
    }
}
