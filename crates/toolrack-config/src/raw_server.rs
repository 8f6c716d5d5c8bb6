//! Unvalidated server entry, shared by all formats, and its conversion to a valid one.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use crate::config_file::{ServerEntry, Settings};
use crate::diagnostics::{DiagnosticKind, SourceLocation};
use crate::interpolate::has_secret;
use crate::server::{EnvValue, McpTransport, Package, PackageKind};
use crate::table_reader::{Place, TableReader, join, join_index};
use crate::tree::Node;
use crate::validate::{self, TextRule};

/// A server as written in a file, before validation.
#[derive(Debug)]
pub(crate) struct RawServer<'d> {
    /// The entry, and its fields by our names for them. A field with a position but no value was reported already.
    pub(crate) place: Place<'d>,
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
    pub(crate) table: Option<Node>,
}

/// Transport of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransportKind {
    Stdio,
    Http,
    Package,
}

impl<'d> RawServer<'d> {
    /// Reads the keys that all formats share, by our names for them.
    pub(crate) fn from_table(fields: &mut TableReader<'d, '_>) -> Self {
        let disabled: Option<bool> = fields.take("disabled");
        Self {
            place: fields.place.clone(),
            name: fields.take("name").unwrap_or_default(),
            enabled: disabled.map(|disabled| !disabled).or(fields.take("enabled")),
            command: fields.take("command"),
            args: fields.take("args").unwrap_or_default(),
            env: fields.take("env").unwrap_or_default(),
            cwd: fields.take("cwd"),
            url: fields.take("url"),
            headers: fields.take("headers").unwrap_or_default(),
            settings: Settings::from_table(fields),
            id: None,
            transport: None,
            package: None,
            table: None,
        }
    }

    /// The entry, if it has no errors.
    pub(crate) fn accept(mut self) -> Option<ServerEntry> {
        let place = self.place.clone();
        let before = place.diagnostics.n_errors();
        // A missing name was reported already.
        if let Some((kind, message)) = validate::server_name(&self.name)
            && !(self.name.is_empty() && place.has("name"))
        {
            place.error(kind, "name", message);
        }
        let kind = self.transport_kind();
        if let Some(kind) = kind {
            self.check_values(&place, kind);
        }
        // Errors of this entry only: the other entries of the file stay usable.
        let kind = kind.filter(|_| place.diagnostics.n_errors() == before)?;
        let origin = SourceLocation::new(&place, self.table);
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

    fn transport_kind(&self) -> Option<TransportKind> {
        let fields = [
            ("command", TransportKind::Stdio),
            ("url", TransportKind::Http),
            ("package", TransportKind::Package),
        ];
        // By position and not by value: an invalid `command` still says that a process was meant.
        let given = fields.into_iter().filter(|(field, _)| self.place.has(field));
        let given: Vec<TransportKind> = given.map(|(_, kind)| kind).collect();
        let package = self.package.as_ref().map(|package| package.kind);
        choose_transport(self.transport, &given, package)
            .map_err(|(kind, field, message)| self.place.error(kind, field, message))
            .ok()
    }

    fn check_values(&mut self, place: &Place<'_>, kind: TransportKind) {
        let endpoint = kind == TransportKind::Http
            || self.package.as_ref().is_some_and(|package| package.kind == PackageKind::Http);
        let (unused, message): (&[&str], _) = if endpoint {
            (&["args", "env", "cwd", "sandbox"], "has no effect on an HTTP server")
        } else {
            (&["headers"], "has no effect on a stdio server")
        };
        for field in unused.iter().filter(|field| place.has(field)) {
            place.warn(DiagnosticKind::Conflict, field, message);
        }
        for (field, text, rule) in self.texts() {
            for (severity, message) in validate::text(text, rule) {
                place.report(severity, DiagnosticKind::Invalid, &field, &message);
            }
            // Every user of the machine can list processes with their arguments.
            if (field == "command" || field.contains("args[")) && has_secret(text) {
                let message = "exposes the secret to other users of this machine in the process list; \
                                 pass it in `env` if the server supports it";
                place.warn(DiagnosticKind::Exposed, &field, message);
            }
        }
        self.check_names();
    }

    fn check_names(&self) {
        let place = &self.place;
        let mut seen = HashSet::new();
        for (name, _) in &self.headers {
            let field = join("headers", name);
            if !validate::header_name(name) {
                let message = "is not a valid header name; use letters, digits and `-`";
                place.error(DiagnosticKind::Invalid, &field, message);
            }
            // RFC 9110 §5.1: names are case-insensitive, so two spellings would send
            // one header twice.
            if !seen.insert(name.to_ascii_lowercase()) {
                let message = "is a duplicate; header names are case-insensitive";
                place.error(DiagnosticKind::Duplicate, &field, message);
            }
        }
        for (name, _) in self.env.iter().filter(|(name, _)| !validate::variable_name(name)) {
            let message = "is not a valid variable name; it must not be empty or contain `=`";
            place.error(DiagnosticKind::Invalid, &join("env", name), message);
        }
    }

    /// Every text with references, with its field and rule.
    pub(crate) fn texts(&mut self) -> Vec<(Cow<'static, str>, &mut String, TextRule)> {
        let mut texts: Vec<(Cow<'static, str>, &mut String, TextRule)> = Vec::new();
        if let Some(command) = &mut self.command {
            // People copy a whole command line into `command`.
            let rule = if self.args.is_empty() { TextRule::LoneCommand } else { TextRule::Command };
            texts.push(("command".into(), command, rule));
        }
        if let Some(url) = &mut self.url {
            texts.push(("url".into(), url, TextRule::Url));
        }
        let mut lists = vec![("args", &mut self.args)];
        if let Some(package) = &mut self.package {
            let rule = match package.kind {
                PackageKind::Http => TextRule::Url,
                _ => TextRule::Command,
            };
            texts.push(("package.identifier".into(), &mut package.identifier, rule));
            lists.push(("package.args", &mut package.args));
            lists.push(("package.runtime_args", &mut package.runtime_args));
        }
        for (key, list) in lists {
            let field = |index| join_index(key, index).into();
            let each = list.iter_mut().enumerate();
            texts.extend(each.map(|(index, text)| (field(index), text, TextRule::Any)));
        }
        if let Some(cwd) = &mut self.cwd {
            texts.push(("cwd".into(), cwd, TextRule::Command));
        }
        for (name, value) in &mut self.env {
            if let EnvValue::Text(text) = value {
                texts.push((join("env", name).into(), text, TextRule::Value));
            }
        }
        for (name, value) in &mut self.headers {
            texts.push((join("headers", name).into(), value, TextRule::Header));
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
