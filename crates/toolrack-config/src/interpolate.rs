//! Filling in what a config refers to, when a connection is made.
//!
//! **Invariant:** a value that was filled in is never searched for references.
//! **Invariant:** `Debug` shows what was typed in the file at most, never what was filled in.

use std::collections::HashMap;
use std::fmt;

use crate::diagnostic::{Fault, FaultKind, Severity};
use crate::package::PackageKind;
use crate::server::{EnvValue, McpServerConfig, McpTransport, sorted_names};
use crate::table_reader::join;
use crate::template::{Part, Source, has_references, parts};
use crate::validate::{self, Rule};

/// The variable with the user's home.
const HOME: &str = "HOME";

/// Whoever has the values that configs refer to.
pub trait Lookup {
    /// The value of a name. `Ok(None)` if there is no such name; an error if it exists and cannot be read.
    fn look_up(&self, source: Source, name: &str) -> Result<Option<String>, String>;

    /// What to do about a variable that is not set, if it is not enough to set it.
    fn advice(&self, _variable: &str) -> Option<String> {
        None
    }
}

impl<F> Lookup for F
where
    F: Fn(Source, &str) -> Result<Option<String>, String>,
{
    fn look_up(&self, source: Source, name: &str) -> Result<Option<String>, String> {
        self(source, name)
    }
}

/// A text with everything filled in. It cannot be printed by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Filled {
    value: String,
    template: String,
    /// What was looked up for it, by name.
    found: Vec<(String, String)>,
}

/// How a server is reached, with everything filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResolvedTransport {
    /// See [`McpTransport::Stdio`].
    Stdio {
        /// The program.
        command: Filled,
        /// Its arguments.
        args: Vec<Filled>,
        /// Its variables, without those whose secret is unknown and not required.
        env: HashMap<String, Filled>,
        /// Where it runs.
        cwd: Option<Filled>,
    },
    /// See [`McpTransport::Http`].
    Http {
        /// Where requests go.
        url: Filled,
        /// Sent with every request.
        headers: HashMap<String, Filled>,
    },
    /// See [`McpTransport::Package`].
    Package {
        /// Where the package comes from.
        kind: PackageKind,
        /// Its name there.
        identifier: Filled,
        /// Which one of it.
        version: Option<String>,
        /// Passed to the server.
        args: Vec<Filled>,
        /// Which of its programs is the server.
        program: Option<String>,
        /// Passed to what runs the server.
        runtime_args: Vec<Filled>,
        /// Its variables.
        env: HashMap<String, Filled>,
        /// Where it runs.
        cwd: Option<Filled>,
        /// Sent with every request, if it is an endpoint.
        headers: HashMap<String, Filled>,
    },
}

/// Fills in everything a config refers to, or says everything that is missing.
pub fn interpolate(
    config: &McpServerConfig,
    lookup: &dyn Lookup,
) -> Result<ResolvedTransport, Vec<Fault>> {
    let mut pen = Pen { config, lookup, faults: Vec::new() };
    let resolved = match &config.transport {
        McpTransport::Stdio { command, args, env, cwd } => ResolvedTransport::Stdio {
            command: pen.path("command", command),
            args: pen.list("args", args),
            env: pen.env(env),
            cwd: pen.cwd(cwd.as_deref()),
        },
        McpTransport::Http { url, headers } => ResolvedTransport::Http {
            url: pen.fill("url", url, Rule::Url),
            headers: pen.headers(headers),
        },
        McpTransport::Package { package, env, cwd, headers } => ResolvedTransport::Package {
            kind: package.kind,
            identifier: match package.kind {
                PackageKind::Http => pen.fill("package.identifier", &package.identifier, Rule::Url),
                PackageKind::Binary => pen.path("package.identifier", &package.identifier),
                _ => pen.fill("package.identifier", &package.identifier, Rule::Command),
            },
            version: package.version.clone(),
            args: pen.list("package.args", &package.args),
            program: package.program.clone(),
            runtime_args: pen.list("package.runtime_args", &package.runtime_args),
            env: pen.env(env),
            cwd: pen.cwd(cwd.as_deref()),
            headers: pen.headers(headers),
        },
    };
    if pen.faults.is_empty() { Ok(resolved) } else { Err(pen.faults) }
}

impl Filled {
    /// The value, for the one place that uses it. Named so that every use can be found with `grep`.
    pub fn reveal(&self) -> &str {
        &self.value
    }

    /// The values that were looked up for it, by name, for whoever sees that nobody shows them.
    pub fn found(&self) -> impl Iterator<Item = (&str, &str)> {
        self.found.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The same, given away.
    pub fn into_revealed(self) -> String {
        self.value
    }
}

impl fmt::Debug for Filled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A text without references may be a secret that somebody typed into the file.
        let shown = if has_references(&self.template) { &self.template } else { "…" };
        write!(f, "Filled({shown})")
    }
}

struct Pen<'p> {
    config: &'p McpServerConfig,
    lookup: &'p dyn Lookup,
    faults: Vec<Fault>,
}

impl Pen<'_> {
    fn list(&mut self, field: &str, texts: &[String]) -> Vec<Filled> {
        let each = |(n, it): (usize, &String)| self.fill(&format!("{field}[{n}]"), it, Rule::Any);
        texts.iter().enumerate().map(each).collect()
    }

    fn cwd(&mut self, cwd: Option<&str>) -> Option<Filled> {
        cwd.map(|it| self.path("cwd", it))
    }

    fn headers(&mut self, headers: &HashMap<String, String>) -> HashMap<String, Filled> {
        let mut filled = HashMap::new();
        for (name, text) in sorted(headers) {
            filled.insert(name.to_owned(), self.fill(&join("headers", name), text, Rule::Header));
        }
        filled
    }

    fn env(&mut self, env: &HashMap<String, EnvValue>) -> HashMap<String, Filled> {
        let mut filled = HashMap::new();
        for (name, value) in sorted(env) {
            let field = join("env", name);
            let value = match value {
                EnvValue::Text(text) => Some(self.fill(&field, text, Rule::Value)),
                EnvValue::Secret { secret_ref, required } => {
                    let value = self.find(&field, (Source::Secret, secret_ref));
                    if *required && value == Some(None) {
                        self.missing(&field, Source::Secret, secret_ref);
                    }
                    let template = format!("${{secret:{secret_ref}}}");
                    value.flatten().map(|value| {
                        let found = vec![(secret_ref.clone(), value.clone())];
                        let filled = self.checked(&field, value, (&template, Rule::Value));
                        Filled { found, ..filled }
                    })
                }
            };
            filled.extend(value.map(|it| (name.to_owned(), it)));
        }
        filled
    }

    /// A path. As in a shell, it may begin at the user's home.
    fn path(&mut self, field: &str, template: &str) -> Filled {
        match below_home(template) {
            Some(rest) => self.fill(field, &format!("${{{HOME}}}{rest}"), Rule::Command),
            None => self.fill(field, template, Rule::Command),
        }
    }

    fn fill(&mut self, field: &str, template: &str, rule: Rule) -> Filled {
        let before = self.faults.len();
        let mut value = String::with_capacity(template.len());
        let mut found = Vec::new();
        for part in parts(template) {
            match part {
                Part::Literal(text) | Part::LeftAlone(text) => value.push_str(text),
                Part::Broken(flaw) => self.fault(FaultKind::Invalid, field, flaw.complaint()),
                Part::Reference { source, name, default } => {
                    let filled = self.reference(field, (source, name), default);
                    value.push_str(&filled);
                    if default != Some(filled.as_str()) {
                        found.push((name.to_owned(), filled));
                    }
                }
            }
        }
        // What is missing has been said; the rest of a value that lacks it would only confuse.
        let rule = if self.faults.len() == before { rule } else { Rule::Any };
        Filled { found, ..self.checked(field, value, (template, rule)) }
    }

    fn checked(&mut self, field: &str, value: String, (template, rule): (&str, Rule)) -> Filled {
        if let Some(complaint) = validate::value(&value, rule) {
            self.fault(FaultKind::Invalid, field, complaint.to_owned());
        }
        Filled { value, template: template.to_owned(), found: Vec::new() }
    }

    fn reference(
        &mut self,
        field: &str,
        (source, name): (Source, &str),
        default: Option<&str>,
    ) -> String {
        match (self.find(field, (source, name)), default) {
            // As in a shell, a default also stands in for a value that is empty.
            (Some(Some(value)), Some(default)) if value.is_empty() => default.to_owned(),
            (Some(Some(value)), _) => value,
            (Some(None), Some(default)) => default.to_owned(),
            (Some(None), None) => {
                self.missing(field, source, name);
                String::new()
            }
            (None, _) => String::new(),
        }
    }

    /// The value, or that there is none; nothing if asking failed, which is noted.
    fn find(&mut self, field: &str, (source, name): (Source, &str)) -> Option<Option<String>> {
        let home = match below_home(name).filter(|_| source == Source::File) {
            Some(rest) => self.lookup.look_up(Source::Env, HOME).ok().flatten().map(|it| it + rest),
            None => None,
        };
        match self.lookup.look_up(source, home.as_deref().unwrap_or(name)) {
            Ok(Some(text)) if source == Source::File => {
                let line = text.strip_suffix('\n').unwrap_or(&text);
                Some(Some(line.strip_suffix('\r').unwrap_or(line).to_owned()))
            }
            Ok(found) => Some(found),
            Err(reason) => {
                let message = format!("{} cannot be read: {reason}", source.called(name));
                self.fault(FaultKind::Unresolved, field, message);
                None
            }
        }
    }

    fn missing(&mut self, field: &str, source: Source, name: &str) {
        let advice = match source {
            Source::Env => self.lookup.advice(name),
            Source::Secret | Source::File => None,
        };
        let message = match source {
            Source::Env if advice.is_some() => format!("{} is not set", source.called(name)),
            Source::Env => format!(
                "{} is not set; set it, or write `${{{name}:-default}}`",
                source.called(name)
            ),
            Source::Secret => {
                format!("{} is not stored; store it under that name", source.called(name))
            }
            Source::File => format!("{} does not exist", source.called(name)),
        };
        self.fault(FaultKind::Unresolved, field, message);
        if let Some(fault) = self.faults.last_mut() {
            fault.advice = advice;
        }
    }

    fn fault(&mut self, kind: FaultKind, field: &str, message: String) {
        let origin = &self.config.origin;
        let path = match origin.path() {
            "" => format!("{}.{field}", self.config.name),
            path => format!("{path}.{field}"),
        };
        self.faults.push(Fault {
            severity: Severity::Error,
            kind,
            file: origin.shared_file(),
            at: origin.field(field),
            field: path,
            message,
            nearest: None,
            advice: None,
        });
    }
}

/// What stands behind a `~` that means the user's home. Only a shell knows the homes of others.
fn below_home(path: &str) -> Option<&str> {
    path.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Source {
    fn called(self, name: &str) -> String {
        match self {
            Source::Env => format!("the variable `{name}`"),
            Source::Secret => format!("the secret `{name}`"),
            Source::File => format!("the file `{name}`"),
        }
    }
}

/// In a stable order, so that faults are.
fn sorted<V>(map: &HashMap<String, V>) -> Vec<(&str, &V)> {
    sorted_names(map).into_iter().filter_map(|it| Some((it, map.get(it)?))).collect()
}
