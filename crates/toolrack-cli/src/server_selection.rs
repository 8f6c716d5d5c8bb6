//! Server selection: the servers of the config file or an ad-hoc one, and the server and item that
//! a typed name means.
//!
//! **Invariant:** resolving a name starts no server.

use std::io;
use std::path::{Path, PathBuf};

use toolrack_config::{
    ConfigFile, Diagnostic, DiagnosticKind, Dialect, EnvValue, McpServerConfig, McpTransport,
    Severity, ToolNaming, read,
};
use toolrack_platform::read_at_most;
use toolrack_service::{ErrorCode, ErrorDetail};

use crate::args::TargetOptions;
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::import_sources::dialect_name;
use crate::printer::Printer;
use crate::settings::Settings;
use crate::suggested_command::shell_quote;
use toolrack_config::{did_you_mean, similar_names};

/// Maximum size of the config file.
const FILE_LIMIT_BYTES: u64 = 16 << 20;
/// A project's config file. It is ignored, because a cloned repository must not be able to start
/// programs.
const PROJECT_FILE: &str = ".toolrack.toml";

/// Programs that download and run a package.
const PACKAGE_LAUNCHERS: &[&str] = &["npx", "bunx", "pnpx", "uvx"];

/// The servers that a command can use.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) configs: Vec<McpServerConfig>,
    pub(crate) names: ToolNaming,
    /// Base directory of relative `${file:…}` references.
    pub(crate) dir: PathBuf,
    pub(crate) source: ServerSource,
}

/// Where the servers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerSource {
    /// One server from the command line.
    AdHoc,
    Configured,
}

impl Servers {
    /// The ad-hoc server, or the configured ones.
    pub(crate) fn find(
        target: &TargetOptions,
        settings: &Settings,
        printer: &Printer,
    ) -> Result<Self, CliError> {
        let mut servers = if target.is_given() {
            let configs = vec![ad_hoc(target)?];
            Self {
                configs,
                names: ToolNaming::default(),
                dir: PathBuf::new(),
                source: ServerSource::AdHoc,
            }
        } else {
            Self::configured(settings, printer)?
        };
        for config in &mut servers.configs {
            config.startup_timeout = target.startup_timeout.unwrap_or(config.startup_timeout);
        }
        Ok(servers)
    }

    /// The configured servers. Prints warnings about the file, except about secrets in arguments,
    /// which not every command needs to repeat.
    pub(crate) fn configured(settings: &Settings, printer: &Printer) -> Result<Self, CliError> {
        Self::load_with_warnings(settings, printer, |diagnostic| {
            diagnostic.kind != DiagnosticKind::Exposed
        })
    }

    /// The configured servers. Prints all warnings.
    pub(crate) fn configured_with_all_warnings(
        settings: &Settings,
        printer: &Printer,
    ) -> Result<Self, CliError> {
        Self::load_with_warnings(settings, printer, |_| true)
    }

    fn load_with_warnings(
        settings: &Settings,
        printer: &Printer,
        is_printed: fn(&Diagnostic) -> bool,
    ) -> Result<Self, CliError> {
        if Path::new(PROJECT_FILE).exists() {
            printer.note(format_args!(
                "note: `{PROJECT_FILE}` is ignored: project configs are \
                 not trusted"
            ));
        }
        let (servers, warnings) = Self::from_file(settings);
        for warning in warnings.iter().filter(|warning| is_printed(warning)) {
            printer.note(format_args!("warning: {warning}"));
        }
        servers
    }

    /// Checks that the config file is valid, without printing warnings.
    pub(crate) fn validate(settings: &Settings) -> Result<(), CliError> {
        Self::from_file(settings).0.map(drop)
    }

    fn from_file(settings: &Settings) -> (Result<Self, CliError>, Vec<Diagnostic>) {
        match load(settings) {
            Ok(Loaded { file, warnings }) => (Self::for_agent(&file, settings), warnings),
            Err((failure, warnings)) => (Err(failure), warnings),
        }
    }

    fn for_agent(file: &ConfigFile, settings: &Settings) -> Result<Self, CliError> {
        let path = settings.home()?.config_file();
        let dir = path.parent().unwrap_or(Path::new("")).to_owned();
        let configs = match &settings.agent {
            None => file.resolve_defaults(),
            Some(agent) if file.agents.iter().any(|known| known.id == *agent) => {
                file.resolve(agent)
            }
            Some(agent) => {
                let suggestion = did_you_mean(&similar_names(
                    agent,
                    file.agents.iter().map(|agent| agent.id.as_str()),
                ));
                let message = format!("agent `{agent}` not found in the config file{suggestion}");
                return Err(CliError::unknown(
                    message,
                    "agents are defined by `id` in `[[agents]]`",
                ));
            }
        };
        Ok(Self { configs, names: file.names(), dir, source: ServerSource::Configured })
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.configs.iter().map(|config| config.name.as_str())
    }

    /// A server by name.
    pub(crate) fn server(&self, name: &str) -> Result<&McpServerConfig, CliError> {
        if self.configs.is_empty() {
            return Err(Self::no_servers());
        }
        self.configs.iter().find(|config| config.name == name).ok_or_else(|| {
            let suggestion = did_you_mean(&similar_names(name, self.names()));
            let all: Vec<&str> = self.names().collect();
            let hint = format!("configured servers: {}", all.join(", "));
            CliError::unknown(format!("server `{name}` not found{suggestion}"), hint)
        })
    }

    /// The only enabled server.
    pub(crate) fn single_enabled(&self) -> Option<&McpServerConfig> {
        let mut enabled = self.configs.iter().filter(|config| config.enabled);
        enabled.next().filter(|_| enabled.next().is_none())
    }

    /// Error: no servers are configured.
    pub(crate) fn no_servers() -> CliError {
        let hint = "add one with `toolrack add`, or import servers from other tools with `toolrack \
                 import`";
        CliError::config("no servers configured", hint)
    }

    /// The same, where an ad-hoc server is possible.
    pub(crate) fn no_server_given() -> CliError {
        let hint = "add one with `toolrack add`, or use an ad-hoc server: `-- COMMAND…` or \
             `--url URL`";
        Self::no_servers().with_hint(hint)
    }

    /// Keeps only some servers, so that no other one is started.
    #[must_use]
    pub(crate) fn filter(mut self, is_wanted: impl Fn(&str) -> bool) -> Self {
        self.configs.retain(|config| is_wanted(&config.name));
        self
    }
}

/// A valid config file and its warnings.
#[derive(Default)]
struct Loaded {
    file: ConfigFile,
    warnings: Vec<Diagnostic>,
}

/// Loads the config file. A missing file counts as empty, unless it was named explicitly.
fn load(settings: &Settings) -> Result<Loaded, (CliError, Vec<Diagnostic>)> {
    let without_warnings = |failure: CliError| (failure, Vec::new());
    let path = settings.home().map_err(without_warnings)?.config_file();
    let text = match read_at_most(path, FILE_LIMIT_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !settings.has_explicit_config => {
            return Ok(Loaded::default());
        }
        Err(error) => return Err(without_warnings(unreadable(path, &error))),
    };
    let path_text = path.display().to_string();
    let reading = read(&path_text, &text);
    if reading.value.dialect != Dialect::Toolrack {
        return Err(without_warnings(foreign_config(&path_text, reading.value.dialect)));
    }
    let (errors, warnings): (Vec<Diagnostic>, Vec<Diagnostic>) = reading
        .diagnostics
        .into_iter()
        .partition(|diagnostic| diagnostic.severity == Severity::Error);
    if errors.is_empty() {
        return Ok(Loaded { file: reading.value, warnings });
    }
    Err((config_error(&errors), warnings))
}

fn unreadable(path: &Path, error: &io::Error) -> CliError {
    let message = format!("cannot read the config file {}: {error}", path.display());
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "check the path; `toolrack add` creates the file",
        _ => "check the path and its permissions",
    };
    CliError::config(message, hint)
}

/// Configs of other tools are imported, not used, because toolrack must not write to them.
fn foreign_config(path_text: &str, dialect: Dialect) -> CliError {
    let message =
        format!("{path_text} is not a toolrack config; its format is {}", dialect_name(dialect));
    let file = shell_quote(path_text);
    CliError::config(message, format!("import its servers with `toolrack import {file}`"))
}

/// All errors of a config file.
fn config_error(diagnostics: &[Diagnostic]) -> CliError {
    let to_error_detail = |diagnostic: &Diagnostic| {
        let error_detail = ErrorDetail::new(ErrorCode::ValidationError, diagnostic.to_string())
            .with_hint("fix these lines with `toolrack edit`; nothing was started");
        if diagnostic.field.is_empty() {
            error_detail
        } else {
            error_detail.with_field(diagnostic.field.clone())
        }
    };
    CliError::from_details(ExitCode::Config, diagnostics.iter().map(to_error_detail).collect())
}

/// The config of the ad-hoc server.
fn ad_hoc(target: &TargetOptions) -> Result<McpServerConfig, CliError> {
    if let Some(url) = &target.url {
        let mut headers = Vec::new();
        for header in &target.header {
            headers.push(parse_header(header)?);
        }
        let transport =
            McpTransport::Http { url: url.clone(), headers: headers.into_iter().collect() };
        return Ok(McpServerConfig::new(host(url), transport));
    }
    let mut words = target.command.iter();
    let command = words.next().cloned().unwrap_or_default();
    let mut env = Vec::new();
    for variable in &target.env {
        env.push(parse_variable(variable)?);
    }
    let name = server_name(&target.command);
    let transport = McpTransport::Stdio {
        command: escape_references(&command),
        args: words.map(|word| escape_references(word)).collect(),
        env: env.into_iter().collect(),
        cwd: target.cwd.as_ref().map(|dir| escape_references(&dir.to_string_lossy())),
    };
    Ok(McpServerConfig::new(name, transport))
}

/// Name of the ad-hoc server: its program, or the package that a launcher runs.
fn server_name(command: &[String]) -> String {
    let stem =
        |word: &str| Path::new(word).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let mut words = command.iter();
    let program = words.next().and_then(|word| stem(word)).unwrap_or_default();
    if !PACKAGE_LAUNCHERS.contains(&program.as_str()) {
        return program;
    }
    let package =
        words.find(|word| !word.starts_with('-')).and_then(|word| word.rsplit('/').next());
    let name = package.and_then(|package| package.split('@').next()).unwrap_or_default();
    if name.is_empty() { program } else { name.to_owned() }
}

/// Escapes `${`: the shell has already expanded what it should.
fn escape_references(text: &str) -> String {
    text.replace("${", "$${")
}

fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

/// Errors do not repeat the value, because it may be a secret.
pub(crate) fn parse_header(header: &str) -> Result<(String, String), CliError> {
    match header.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err(CliError::usage(
            "`--header` has no name before `:`",
            "for example: `--header 'Authorization: Bearer ${TOKEN}'`",
        )
        .with_field("--header")),
    }
}

fn parse_variable(variable: &str) -> Result<(String, EnvValue), CliError> {
    let (name, value) = match variable.split_once('=') {
        Some((name, value)) => (name, escape_references(value)),
        // As a reference: the value is read when the server starts and stays out of messages.
        None => (variable, format!("${{{variable}}}")),
    };
    if name.is_empty() {
        let hint = "use `--env NAME=VALUE`, or `--env NAME` for its current value";
        return Err(CliError::usage("`--env` has no name before `=`", hint).with_field("--env"));
    }
    Ok((name.to_owned(), EnvValue::Text(value)))
}

/// Separators between a server and an item, as typed.
const SEPARATORS: [&str; 2] = [".", "/"];
/// Separators in public names.
const PUBLIC_SEPARATORS: [&str; 2] = ["__", "_"];

/// A server and one of its tools or prompts, by the server's own name for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResolvedName {
    pub(crate) server: String,
    pub(crate) item: String,
}

impl ResolvedName {
    fn new(server: &str, item: &str) -> Self {
        Self { server: server.to_owned(), item: item.to_owned() }
    }
}

/// Resolves `server.tool` and `server/tool`. The longest matching server name wins.
pub(crate) fn resolve_typed(typed: &str, servers: &Servers) -> Option<ResolvedName> {
    match servers.source {
        ServerSource::AdHoc => Some(ResolvedName::new(servers.names().next()?, typed)),
        ServerSource::Configured => split_name(typed, servers, &SEPARATORS),
    }
}

/// Resolves a public name.
pub(crate) fn resolve_public(typed: &str, servers: &Servers) -> Option<ResolvedName> {
    let typed = typed.strip_prefix("mcp__").unwrap_or(typed);
    split_name(typed, servers, &PUBLIC_SEPARATORS)
}

fn split_name(typed: &str, servers: &Servers, separators: &[&str]) -> Option<ResolvedName> {
    let behind = |name: &str| {
        let rest = typed.strip_prefix(name)?;
        separators
            .iter()
            .find_map(|separator| rest.strip_prefix(separator))
            .filter(|item| !item.is_empty())
    };
    let found = servers.names().filter_map(|name| Some((name, behind(name)?)));
    // With servers `db` and `db.prod`, `db.prod.query` belongs to the longer one, as
    // in the manager.
    found.max_by_key(|(name, _)| name.len()).map(|(name, rest)| ResolvedName::new(name, rest))
}

/// Resolves a bare name if only one server is enabled.
pub(crate) fn resolve_single(typed: &str, servers: &Servers) -> Option<ResolvedName> {
    servers.single_enabled().map(|server| ResolvedName::new(&server.name, typed))
}

/// Checks that a bare tool name belongs to one server only. Returns a note if `unlisted` servers
/// may have it, too.
pub(crate) fn check_bare_name(
    typed: &str,
    owners: &[&str],
    unlisted: &[&str],
) -> Result<Option<String>, CliError> {
    match owners {
        [owner] if !unlisted.is_empty() => Ok(Some(format!(
            "note: `{typed}` is taken as `{owner}.{typed}`; the tools of {} are unknown",
            unlisted.join(", ")
        ))),
        [] | [_] => Ok(None),
        [first, ..] => {
            let spellings: Vec<String> =
                owners.iter().map(|server| format!("{server}.{typed}")).collect();
            let message =
                format!("several servers have a tool `{typed}`: `{}`", spellings.join("`, `"));
            let first = shell_quote(&format!("{first}.{typed}"));
            let hint = format!("specify the server, e.g. `toolrack call {first}`");
            Err(CliError::usage(message, hint))
        }
    }
}

/// Error: unknown name. `spellings` are the known names.
pub(crate) fn unknown_name<'a>(
    what: &str,
    typed: &str,
    servers: &Servers,
    spellings: impl Iterator<Item = &'a str>,
) -> CliError {
    if servers.configs.is_empty() {
        return Servers::no_server_given();
    }
    let suggestion = did_you_mean(&similar_names(typed, spellings));
    let start =
        SEPARATORS.iter().find_map(|separator| typed.split_once(separator)).map(|(start, _)| start);
    let server = start.map(|start| similar_names(start, servers.names())).unwrap_or_default();
    let message = match (suggestion.is_empty(), start) {
        (true, Some(start)) => {
            format!("server `{start}` not found{}", did_you_mean(&server))
        }
        _ => format!("{what} `{typed}` not found{suggestion}"),
    };
    let names: Vec<&str> = servers.names().collect();
    let hint = format!("use `server.{what}`; configured servers: {}", names.join(", "));
    CliError::unknown(message, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn ad_hoc_command_is_a_server() {
        let target = TargetOptions {
            command: strings(&["/opt/bin/server.js", "--dir", "${HOME}"]),
            env: strings(&["A=${b}", "TOKEN"]),
            ..TargetOptions::default()
        };
        let config = ad_hoc(&target).unwrap();
        let McpTransport::Stdio { command, args, env, cwd } = config.transport else { panic!() };
        assert_eq!((config.name.as_str(), command.as_str()), ("server", "/opt/bin/server.js"));
        assert_eq!((args, cwd), (strings(&["--dir", "$${HOME}"]), None));
        assert_eq!(env.get("A"), Some(&EnvValue::Text("$${b}".to_owned())));
        assert_eq!(env.get("TOKEN"), Some(&EnvValue::Text("${TOKEN}".to_owned())));
    }

    #[test]
    fn ad_hoc_server_is_named_after_program_or_package() {
        for (command, name) in [
            ("/opt/bin/server.js", "server"),
            ("npx -y @scope/server-git@1.2.3 --dir x", "server-git"),
            ("uvx mcp-server-time", "mcp-server-time"),
            ("npx", "npx"),
            ("npx -y", "npx"),
            ("sh -c x", "sh"),
        ] {
            let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
            assert_eq!(server_name(&command), name);
        }
    }

    #[test]
    fn ad_hoc_url_is_a_server() {
        let target = TargetOptions {
            url: Some("https://me:pw@host:8080/mcp?key=1".to_owned()),
            header: strings(&["Authorization: Bearer ${TOKEN}"]),
            ..TargetOptions::default()
        };
        let config = ad_hoc(&target).unwrap();
        let McpTransport::Http { headers, .. } = config.transport else { panic!() };
        assert_eq!(config.name, "host:8080");
        assert_eq!(headers.get("Authorization").map(String::as_str), Some("Bearer ${TOKEN}"));
    }

    #[test]
    fn invalid_headers_and_variables_hide_their_values() {
        for (failure, field) in [
            (parse_header("s3cret").unwrap_err(), "--header"),
            (parse_header(": s3cret").unwrap_err(), "--header"),
            (parse_variable("=s3cret").unwrap_err(), "--env"),
        ] {
            assert_eq!(failure.error_details()[0].field.as_deref(), Some(field));
            assert!(!format!("{failure:?}").contains("s3cret"));
        }
    }

    fn servers(source: ServerSource, names: &[&str]) -> Servers {
        let configs = names.iter().map(|name| McpServerConfig::stdio(*name, "x", &[])).collect();
        Servers { configs, names: ToolNaming::default(), dir: PathBuf::new(), source }
    }

    #[track_caller]
    fn check(found: Option<ResolvedName>, expected: Option<(&str, &str)>) {
        assert_eq!(found, expected.map(|(server, item)| ResolvedName::new(server, item)));
    }

    #[test]
    fn names_resolve_to_server_and_tool() {
        let both = servers(ServerSource::Configured, &["git", "git.hub", "my_server"]);
        check(resolve_typed("git.log", &both), Some(("git", "log")));
        check(resolve_typed("git/log", &both), Some(("git", "log")));
        check(resolve_typed("git.hub.log", &both), Some(("git.hub", "log")));
        check(resolve_typed("git_log", &both), None);
        check(resolve_typed("git.", &both), None);
        check(resolve_typed("svn.log", &both), None);
        check(resolve_public("git_log", &both), Some(("git", "log")));
        check(resolve_public("mcp__git__log", &both), Some(("git", "log")));
        check(resolve_public("my_server_do_it", &both), Some(("my_server", "do_it")));
        check(resolve_public("svn_log", &both), None);
    }

    #[test]
    fn ad_hoc_server_takes_names_verbatim() {
        let typed = servers(ServerSource::AdHoc, &["npx"]);
        check(resolve_typed("a.b/c", &typed), Some(("npx", "a.b/c")));
        check(resolve_single("x", &typed), Some(("npx", "x")));
        check(resolve_single("x", &servers(ServerSource::Configured, &["a", "b"])), None);
    }

    #[track_caller]
    fn check_bare(owners: &[&str], unlisted: &[&str], expected: Result<Option<&str>, &str>) {
        let found = check_bare_name("echo", owners, unlisted)
            .map_err(|error| error.error_details()[0].message.clone());
        assert_eq!(found, expected.map(|note| note.map(str::to_owned)).map_err(str::to_owned));
    }

    #[test]
    fn bare_tool_name_must_be_unique() {
        check_bare(&[], &["c"], Ok(None));
        check_bare(&["a"], &[], Ok(None));
        let note = "note: `echo` is taken as `a.echo`; the tools of b, c are unknown";
        check_bare(&["a"], &["b", "c"], Ok(Some(note)));
        let several = "several servers have a tool `echo`: `a.echo`, `b.echo`";
        check_bare(&["a", "b"], &["c"], Err(several));
    }

    #[track_caller]
    fn check_unknown(typed: &str, expected: &str) {
        let known = ["git.log", "git_log", "git.show"];
        let servers = servers(ServerSource::Configured, &["git", "mail"]);
        let failure = unknown_name("tool", typed, &servers, known.into_iter());
        assert_eq!(failure.error_details()[0].message, expected);
    }

    #[test]
    fn unknown_names_get_suggestions() {
        check_unknown("git.lgo", "tool `git.lgo` not found; did you mean `git.log` or `git_log`?");
        check_unknown("gti.xxxxxxxx", "server `gti` not found; did you mean `git`?");
        check_unknown("zzz", "tool `zzz` not found");
    }
}
