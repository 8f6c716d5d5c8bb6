//! Unvalidated server entry, shared by all formats, and its conversion to a valid one.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Map, Value};

use crate::config_file::{ServerEntry, Settings};
use crate::diagnostics::{DiagnosticKind, Diagnostics, SourceLocation};
use crate::interpolate::has_secret;
use crate::server::{EnvValue, McpTransport, Package, PackageKind};
use crate::table_reader::{TableReader, join};
use crate::validate::{self, TextRule};

/// A server as written in a file, before validation.
#[derive(Debug, Default)]
pub(crate) struct RawServer {
    /// Path to the entry in its file.
    pub(crate) path: String,
    pub(crate) at: usize,
    /// Position of each field, by our name for it. A field with a position but no value was reported already.
    pub(crate) locations: BTreeMap<String, usize>,
    pub(crate) name: String,
    pub(crate) id: Option<String>,
    pub(crate) enabled: Option<bool>,
    /// Transport named by the file.
    pub(crate) transport: Option<TransportKind>,
    pub(crate) command: Option<String>,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, EnvValue)>,
    pub(crate) cwd: Option<String>,
    pub(crate) url: Option<String>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) package: Option<Package>,
    pub(crate) settings: Settings,
    /// The entry as `toolrack.toml` has it.
    pub(crate) table: Option<Map<String, Value>>,
}

/// Transport of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransportKind {
    Stdio,
    Http,
    Package,
}

impl RawServer {
    /// Reads the keys that all formats share, by our names for them.
    pub(crate) fn from_table(fields: &mut TableReader<'_>) -> Self {
        let disabled = fields.flag("disabled");
        Self {
            path: fields.path.clone(),
            at: fields.node.at,
            locations: fields.locations.clone(),
            name: fields.text("name").unwrap_or_default(),
            enabled: disabled.map(|disabled| !disabled).or(fields.flag("enabled")),
            command: fields.text("command"),
            args: fields.texts("args").unwrap_or_default(),
            env: fields.env("env"),
            cwd: fields.text("cwd"),
            url: fields.text("url"),
            headers: fields.map("headers"),
            settings: Settings::from_table(fields),
            ..Self::default()
        }
    }

    /// The entry, if it has no errors.
    pub(crate) fn accept(self, diagnostics: &mut Diagnostics<'_>) -> Option<ServerEntry> {
        let before = diagnostics.n_errors();
        self.check_name(diagnostics);
        let kind = self.transport_kind(diagnostics);
        if let Some(kind) = kind {
            self.check_values(diagnostics, kind);
        }
        // Errors of this entry only: the other entries of the file stay usable.
        let kind = kind.filter(|_| diagnostics.n_errors() == before)?;
        let fields = self.locations.into_iter();
        let fields = fields.map(|(field, at)| (field, diagnostics.position(at))).collect();
        let at = diagnostics.position(self.at);
        let origin = SourceLocation::new(diagnostics.file(), self.path, at, fields, self.table);
        let env: HashMap<_, _> = self.env.into_iter().collect();
        let headers: HashMap<_, _> = self.headers.into_iter().collect();
        let transport = match kind {
            TransportKind::Stdio => {
                McpTransport::Stdio { command: self.command?, args: self.args, env, cwd: self.cwd }
            }
            TransportKind::Http => McpTransport::Http { url: self.url?, headers },
            TransportKind::Package => {
                McpTransport::Package { package: self.package?, env, cwd: self.cwd, headers }
            }
        };
        Some(ServerEntry {
            name: self.name,
            id: self.id,
            enabled: self.enabled.unwrap_or(true),
            transport,
            settings: self.settings,
            origin,
        })
    }

    fn location(&self, field: &str) -> usize {
        self.locations.get(field).copied().unwrap_or(self.at)
    }

    fn field(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    fn error(
        &self,
        diagnostics: &mut Diagnostics<'_>,
        kind: DiagnosticKind,
        field: &str,
        message: &str,
    ) {
        diagnostics.error(kind, self.location(field), &self.field(field), message);
    }

    fn warn(
        &self,
        diagnostics: &mut Diagnostics<'_>,
        kind: DiagnosticKind,
        field: &str,
        message: &str,
    ) {
        diagnostics.warn(kind, self.location(field), &self.field(field), message);
    }

    fn check_name(&self, diagnostics: &mut Diagnostics<'_>) {
        let Some((kind, message)) = validate::server_name(&self.name) else { return };
        // A missing name was reported already.
        if !(self.name.is_empty() && self.locations.contains_key("name")) {
            self.error(diagnostics, kind, "name", message);
        }
    }

    fn transport_kind(&self, diagnostics: &mut Diagnostics<'_>) -> Option<TransportKind> {
        let fields = [
            ("command", TransportKind::Stdio),
            ("url", TransportKind::Http),
            ("package", TransportKind::Package),
        ];
        // By position and not by value: an invalid `command` still says that a process was meant.
        let given = fields.into_iter().filter(|(field, _)| self.locations.contains_key(*field));
        let given: Vec<TransportKind> = given.map(|(_, kind)| kind).collect();
        let package = self.package.as_ref().map(|package| package.kind);
        match choose_transport(self.transport, &given, package) {
            Ok(kind) => Some(kind),
            Err((kind, field, message)) => {
                self.error(diagnostics, kind, field, message);
                None
            }
        }
    }

    fn check_values(&self, diagnostics: &mut Diagnostics<'_>, kind: TransportKind) {
        let endpoint = kind == TransportKind::Http
            || self.package.as_ref().is_some_and(|package| package.kind == PackageKind::Http);
        let idle: &[&str] =
            if endpoint { &["args", "env", "cwd", "sandbox"] } else { &["headers"] };
        for field in idle.iter().filter(|idle| self.locations.contains_key(**idle)) {
            let message = if endpoint {
                "has no effect on an HTTP server"
            } else {
                "has no effect on a stdio server"
            };
            self.warn(diagnostics, DiagnosticKind::Conflict, field, message);
        }
        for (field, text, rule) in self.texts(kind) {
            for check in validate::text(text, rule) {
                match check {
                    validate::TextCheck::Invalid(message) => {
                        self.error(diagnostics, DiagnosticKind::Invalid, &field, &message);
                    }
                    validate::TextCheck::Suspicious(message) => {
                        self.warn(diagnostics, DiagnosticKind::Invalid, &field, &message);
                    }
                }
            }
        }
        self.check_names(diagnostics);
        self.check_arguments(diagnostics, kind);
    }

    /// Every user of the machine can list processes with their arguments.
    fn check_arguments(&self, diagnostics: &mut Diagnostics<'_>, kind: TransportKind) {
        let is_argument = |field: &str| field == "command" || field.contains("args[");
        for (field, text, _) in self.texts(kind).iter().filter(|(field, ..)| is_argument(field)) {
            if has_secret(text) {
                let message = "exposes the secret to other users of this machine in the process list; \
                                 pass it in `env` if the server supports it";
                self.warn(diagnostics, DiagnosticKind::Exposed, field, message);
            }
        }
    }

    fn check_names(&self, diagnostics: &mut Diagnostics<'_>) {
        let mut seen = HashSet::new();
        for (name, _) in &self.headers {
            let field = join("headers", name);
            if !validate::header_name(name) {
                let message = "is not a valid header name; use letters, digits and `-`";
                self.error(diagnostics, DiagnosticKind::Invalid, &field, message);
            }
            // RFC 9110 §5.1: names are case-insensitive, so two spellings would send
            // one header twice.
            if !seen.insert(name.to_ascii_lowercase()) {
                let message = "is a duplicate; header names are case-insensitive";
                self.error(diagnostics, DiagnosticKind::Duplicate, &field, message);
            }
        }
        for (name, _) in self.env.iter().filter(|(name, _)| !validate::variable_name(name)) {
            let field = join("env", name);
            let message = "is not a valid variable name; it must not be empty or contain `=`";
            self.error(diagnostics, DiagnosticKind::Invalid, &field, message);
        }
    }

    /// Every text with references, and its rule.
    fn texts(&self, kind: TransportKind) -> Vec<(String, &str, TextRule)> {
        let mut texts: Vec<(String, &str, TextRule)> = Vec::new();
        if let (TransportKind::Stdio, Some(command)) = (kind, &self.command) {
            // People copy a whole command line into `command`.
            let rule = if self.args.is_empty() { TextRule::LoneCommand } else { TextRule::Command };
            texts.push(("command".to_owned(), command, rule));
        }
        if let (TransportKind::Http, Some(url)) = (kind, &self.url) {
            texts.push(("url".to_owned(), url, TextRule::Url));
        }
        if let Some(package) = &self.package {
            let rule = match package.kind {
                PackageKind::Http => TextRule::Url,
                _ => TextRule::Command,
            };
            texts.push(("package.identifier".to_owned(), &package.identifier, rule));
            let lists = [("args", &package.args), ("runtime_args", &package.runtime_args)];
            for (key, list) in lists {
                let each = list.iter().enumerate();
                let field = |n| format!("package.{key}[{n}]");
                texts.extend(each.map(|(n, each)| (field(n), &**each, TextRule::Any)));
            }
        }
        let args = self.args.iter().enumerate();
        texts.extend(args.map(|(n, item)| (format!("args[{n}]"), &**item, TextRule::Any)));
        if let Some(cwd) = &self.cwd {
            texts.push(("cwd".to_owned(), cwd, TextRule::Command));
        }
        for (name, value) in &self.env {
            if let EnvValue::Text(text) = value {
                texts.push((join("env", name), text, TextRule::Value));
            }
        }
        for (name, value) in &self.headers {
            texts.push((join("headers", name), value, TextRule::Header));
        }
        texts
    }
}

type Violation = (DiagnosticKind, &'static str, &'static str);

/// Chooses the transport from the named one, the given fields and the package type.
fn choose_transport(
    named: Option<TransportKind>,
    given: &[TransportKind],
    package: Option<PackageKind>,
) -> Result<TransportKind, Violation> {
    let conflict = |field, message| Err((DiagnosticKind::Conflict, field, message));
    match (named, given) {
        (_, [TransportKind::Stdio, TransportKind::Http, ..]) => {
            conflict("url", "cannot be combined with `command`; remove one of them")
        }
        (_, [_, TransportKind::Package, ..]) => {
            conflict("package", "cannot be combined with `command` or `url`; keep one of them")
        }
        (None, []) => Err((
            DiagnosticKind::Missing,
            "transport",
            "is missing; set `command`, `url` or `package`",
        )),
        (Some(TransportKind::Stdio), []) => {
            Err((DiagnosticKind::Missing, "command", "is required for a `stdio` server"))
        }
        (Some(_), []) => Err((DiagnosticKind::Missing, "url", "is required for an `http` server")),
        (Some(TransportKind::Stdio), [TransportKind::Http, ..]) => {
            conflict("transport", "is `stdio`, but `url` is set; use `http`, or set `command`")
        }
        (Some(TransportKind::Http), [TransportKind::Stdio, ..]) => {
            conflict("transport", "is `http`, but `command` is set; use `stdio`, or set `url`")
        }
        (Some(named), [TransportKind::Package, ..]) => match (named, package) {
            (TransportKind::Stdio, Some(PackageKind::Http)) => conflict(
                "transport",
                "is `stdio`, but the package is an HTTP endpoint; remove `transport`",
            ),
            (TransportKind::Http, Some(kind)) if kind != PackageKind::Http => {
                conflict("transport", "is `http`, but the package is a program; remove `transport`")
            }
            _ => Ok(TransportKind::Package),
        },
        (_, [only, ..]) => Ok(*only),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(
        named: Option<TransportKind>,
        given: &[TransportKind],
        expected: Result<TransportKind, &str>,
    ) {
        let chosen =
            choose_transport(named, given, Some(PackageKind::Npm)).map_err(|error| error.1);
        assert_eq!(chosen, expected, "{named:?} {given:?}");
    }

    #[test]
    fn transport_is_chosen() {
        use TransportKind::{Http, Package, Stdio};
        check(None, &[Stdio], Ok(Stdio));
        check(None, &[Http], Ok(Http));
        check(None, &[Package], Ok(Package));
        check(None, &[], Err("transport"));
        check(None, &[Stdio, Http], Err("url"));
        check(None, &[Stdio, Package], Err("package"));
        check(Some(Stdio), &[Stdio], Ok(Stdio));
        check(Some(Stdio), &[], Err("command"));
        check(Some(Stdio), &[Http], Err("transport"));
        check(Some(Stdio), &[Stdio, Http], Err("url"));
        check(Some(Stdio), &[Package], Ok(Package));
        check(Some(Http), &[Http], Ok(Http));
        check(Some(Http), &[], Err("url"));
        check(Some(Http), &[Stdio], Err("transport"));
        check(Some(Http), &[Package], Err("transport"));
    }
}
