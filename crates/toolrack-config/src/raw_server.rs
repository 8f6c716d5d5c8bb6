//! From what a file says about a server to an entry that can be trusted, or every reason why not.
//! Shared by our own format and all the others.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::config_file::{ServerEntry, Settings};
use crate::diagnostic::FaultKind;
use crate::diagnostics::Notes;
use crate::package::{Package, PackageKind};
use crate::server::{EnvValue, McpTransport};
use crate::source_location::Origin;
use crate::table_reader::{Fields, join};
use crate::template::has_secret;
use crate::validate;

/// A server as a file describes it, before anybody has asked whether it makes sense.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// The way to the entry in its file.
    pub(crate) path: String,
    pub(crate) at: usize,
    /// Where each field is, by our name for it. One that is here without a value was wrong already.
    pub(crate) places: BTreeMap<String, usize>,
    pub(crate) name: String,
    pub(crate) id: Option<String>,
    pub(crate) enabled: Option<bool>,
    /// Which kind of transport the file names, if it does.
    pub(crate) transport: Option<Way>,
    pub(crate) command: Option<String>,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, EnvValue)>,
    pub(crate) cwd: Option<String>,
    pub(crate) url: Option<String>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) package: Option<Package>,
    pub(crate) settings: Settings,
}

/// A way to reach a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Process,
    Endpoint,
    Package,
}

impl Draft {
    /// A draft of the table it was read from, with the places of its fields.
    pub(crate) fn of(fields: &Fields, name: &str) -> Self {
        Self {
            path: fields.path.clone(),
            at: fields.at,
            places: fields.places.clone(),
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Says that one of our fields stands under another name in the file, with all its parts.
    pub(crate) fn renamed(&mut self, theirs: &str, ours: &str) {
        let moved: Vec<_> = self
            .places
            .iter()
            .filter_map(|(field, at)| Some((field.strip_prefix(theirs)?, *at)))
            .filter(|(tail, _)| tail.is_empty() || tail.starts_with(['.', '[']))
            .map(|(tail, at)| (format!("{ours}{tail}"), at))
            .collect();
        self.places.extend(moved);
    }

    /// The entry, if nothing is wrong that keeps it from being one.
    pub(crate) fn accept(self, notes: &mut Notes<'_>) -> Option<ServerEntry> {
        let before = notes.n_errors();
        self.check_name(notes);
        let way = self.way(notes);
        if let Some(way) = way {
            self.check_values(notes, way);
        }
        let way = way.filter(|_| notes.n_errors() == before)?;
        let fields = self.places.iter().map(|(field, at)| (field.clone(), notes.position(*at)));
        let fields = fields.collect();
        let origin = Origin::new(notes.file(), self.path, notes.position(self.at), fields);
        let env: HashMap<_, _> = self.env.into_iter().collect();
        let headers: HashMap<_, _> = self.headers.into_iter().collect();
        let transport = match way {
            Way::Process => {
                McpTransport::Stdio { command: self.command?, args: self.args, env, cwd: self.cwd }
            }
            Way::Endpoint => McpTransport::Http { url: self.url?, headers },
            Way::Package => {
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

    fn place(&self, field: &str) -> usize {
        self.places.get(field).copied().unwrap_or(self.at)
    }

    fn field(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    fn check_name(&self, notes: &mut Notes<'_>) {
        let Some((kind, complaint)) = validate::server_name(&self.name) else { return };
        // A name that is missing altogether has been complained about.
        if !(self.name.is_empty() && self.places.contains_key("name")) {
            notes.error(kind, self.place("name"), &self.field("name"), complaint);
        }
    }

    fn way(&self, notes: &mut Notes<'_>) -> Option<Way> {
        let mut given = Vec::new();
        for (field, way) in
            [("command", Way::Process), ("url", Way::Endpoint), ("package", Way::Package)]
        {
            if self.places.contains_key(field) {
                given.push(way);
            }
        }
        match choose(self.transport, &given, self.package.as_ref().map(|it| it.kind)) {
            Ok(way) => Some(way),
            Err((kind, field, complaint)) => {
                notes.error(kind, self.place(field), &self.field(field), complaint);
                None
            }
        }
    }

    fn check_values(&self, notes: &mut Notes<'_>, way: Way) {
        let endpoint = way == Way::Endpoint
            || self.package.as_ref().is_some_and(|it| it.kind == PackageKind::Http);
        let idle: &[&str] =
            if endpoint { &["args", "env", "cwd", "sandbox"] } else { &["headers"] };
        for field in idle.iter().filter(|it| self.places.contains_key(**it)) {
            let complaint = if endpoint {
                "has no effect on a server that is reached by its URL"
            } else {
                "has no effect on a server that runs as a process"
            };
            notes.warn(FaultKind::Conflict, self.place(field), &self.field(field), complaint);
        }
        for (field, text, rule) in self.texts(way) {
            for verdict in validate::text(text, rule) {
                let (at, path) = (self.place(&field), self.field(&field));
                match verdict {
                    validate::Verdict::Wrong(complaint) => {
                        notes.error(FaultKind::Invalid, at, &path, &complaint);
                    }
                    validate::Verdict::Odd(complaint) => {
                        notes.warn(FaultKind::Invalid, at, &path, &complaint);
                    }
                }
            }
        }
        self.check_names(notes);
        self.check_arguments(notes, way);
    }

    /// Everybody on the machine can list the processes on it, with their arguments.
    fn check_arguments(&self, notes: &mut Notes<'_>, way: Way) {
        let is_argument = |field: &str| field == "command" || field.contains("args[");
        for (field, text, _) in self.texts(way).iter().filter(|(field, ..)| is_argument(field)) {
            if has_secret(text) {
                let complaint = "shows the secret to other users of this machine, in the list of processes; \
                                 give it by `env` if the server takes it there";
                notes.warn(FaultKind::Exposed, self.place(field), &self.field(field), complaint);
            }
        }
    }

    fn check_names(&self, notes: &mut Notes<'_>) {
        let mut seen = HashSet::new();
        for (name, _) in &self.headers {
            let field = join("headers", name);
            if !validate::header_name(name) {
                let complaint = "is no header name; use letters, digits and `-`";
                notes.error(FaultKind::Invalid, self.place(&field), &self.field(&field), complaint);
            }
            if !seen.insert(name.to_ascii_lowercase()) {
                let complaint = "is here twice; upper and lower case are the same in header names";
                notes.error(
                    FaultKind::Duplicate,
                    self.place(&field),
                    &self.field(&field),
                    complaint,
                );
            }
        }
        for (name, _) in self.env.iter().filter(|(name, _)| !validate::variable_name(name)) {
            let field = join("env", name);
            let complaint = "is no variable name; it must not be empty or contain `=`";
            notes.error(FaultKind::Invalid, self.place(&field), &self.field(&field), complaint);
        }
    }

    /// Every text with references in it, and what it has to be.
    fn texts(&self, way: Way) -> Vec<(String, &str, validate::Rule)> {
        let mut texts: Vec<(String, &str, validate::Rule)> = Vec::new();
        if let (Way::Process, Some(command)) = (way, &self.command) {
            let rule = if self.args.is_empty() {
                validate::Rule::LoneCommand
            } else {
                validate::Rule::Command
            };
            texts.push(("command".to_owned(), command, rule));
        }
        if let (Way::Endpoint, Some(url)) = (way, &self.url) {
            texts.push(("url".to_owned(), url, validate::Rule::Url));
        }
        if let Some(package) = &self.package {
            let rule = match package.kind {
                PackageKind::Http => validate::Rule::Url,
                _ => validate::Rule::Command,
            };
            texts.push(("package.identifier".to_owned(), &package.identifier, rule));
            let lists = [("args", &package.args), ("runtime_args", &package.runtime_args)];
            for (key, list) in lists {
                let each = list.iter().enumerate();
                let field = |n| format!("package.{key}[{n}]");
                texts.extend(each.map(|(n, it)| (field(n), &**it, validate::Rule::Any)));
            }
        }
        let args = self.args.iter().enumerate();
        texts.extend(args.map(|(n, it)| (format!("args[{n}]"), &**it, validate::Rule::Any)));
        if let Some(cwd) = &self.cwd {
            texts.push(("cwd".to_owned(), cwd, validate::Rule::Command));
        }
        for (name, value) in &self.env {
            if let EnvValue::Text(text) = value {
                texts.push((join("env", name), text, validate::Rule::Value));
            }
        }
        for (name, value) in &self.headers {
            texts.push((join("headers", name), value, validate::Rule::Header));
        }
        texts
    }
}

type Complaint = (FaultKind, &'static str, &'static str);

/// How a server is reached: the transport that is named, what is given for it, and the kind of package.
fn choose(
    named: Option<Way>,
    given: &[Way],
    package: Option<PackageKind>,
) -> Result<Way, Complaint> {
    let conflict = |field, complaint| Err((FaultKind::Conflict, field, complaint));
    match (named, given) {
        (_, [Way::Process, Way::Endpoint, ..]) => {
            conflict("url", "excludes `command`; keep the one that is meant")
        }
        (_, [_, Way::Package, ..]) => {
            conflict("package", "excludes `command` and `url`; keep the one that is meant")
        }
        (None, []) => {
            Err((FaultKind::Missing, "transport", "is unknown; give `command`, `url` or `package`"))
        }
        (Some(Way::Process), []) => {
            Err((FaultKind::Missing, "command", "is required for a server on `stdio`"))
        }
        (Some(_), []) => Err((FaultKind::Missing, "url", "is required for a server on `http`")),
        (Some(Way::Process), [Way::Endpoint, ..]) => {
            conflict("transport", "is `stdio`, but there is an `url`; write `http`, or a `command`")
        }
        (Some(Way::Endpoint), [Way::Process, ..]) => {
            conflict("transport", "is `http`, but there is a `command`; write `stdio`, or an `url`")
        }
        (Some(named), [Way::Package, ..]) => match (named, package) {
            (Way::Process, Some(PackageKind::Http)) => {
                conflict("transport", "is `stdio`, but the package is an endpoint; leave it out")
            }
            (Way::Endpoint, Some(kind)) if kind != PackageKind::Http => {
                conflict("transport", "is `http`, but the package is a program; leave it out")
            }
            _ => Ok(Way::Package),
        },
        (_, [only, ..]) => Ok(*only),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(named: Option<Way>, given: &[Way], expected: Result<Way, &str>) {
        let chosen = choose(named, given, Some(PackageKind::Npm)).map_err(|it| it.1);
        assert_eq!(chosen, expected, "{named:?} {given:?}");
    }

    #[test]
    fn a_server_is_reached_in_one_way() {
        use Way::{Endpoint, Package, Process};
        check(None, &[Process], Ok(Process));
        check(None, &[Endpoint], Ok(Endpoint));
        check(None, &[Package], Ok(Package));
        check(None, &[], Err("transport"));
        check(None, &[Process, Endpoint], Err("url"));
        check(None, &[Process, Package], Err("package"));
        check(Some(Process), &[Process], Ok(Process));
        check(Some(Process), &[], Err("command"));
        check(Some(Process), &[Endpoint], Err("transport"));
        check(Some(Process), &[Process, Endpoint], Err("url"));
        check(Some(Process), &[Package], Ok(Package));
        check(Some(Endpoint), &[Endpoint], Ok(Endpoint));
        check(Some(Endpoint), &[], Err("url"));
        check(Some(Endpoint), &[Process], Err("transport"));
        check(Some(Endpoint), &[Package], Err("transport"));
    }
}
