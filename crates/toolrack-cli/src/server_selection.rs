//! Server selection: the servers of the config file or an ad-hoc one, and the server and item that
//! a typed name means.
//!
//! **Invariant:** resolving a name starts no server.

use std::io;
use std::path::{Path, PathBuf};

use toolrack_config::{
    ConfigFile, Diagnostic, DiagnosticKind, EnvValue, McpServerConfig, McpTransport, Severity,
    ToolNaming, did_you_mean, similar_names,
};
use toolrack_service::{ConfigInput, ConfigStore, LoadError, StoredConfig};
use toolrack_stdio::Guardian;

use crate::args::TargetOptions;
use crate::commands::Context;
use crate::commands::import::dialect_name;
use crate::error::{CliError, ExitCode, command, flags, server_command, shell_quote};
use crate::settings::Settings;

/// A project's config file. It is ignored, because a cloned repository must not be able to start
/// programs.
const PROJECT_FILE: &str = ".toolrack.toml";

/// Programs that download and run a package.
const PACKAGE_LAUNCHERS: &[&str] = &["npx", "bunx", "pnpx", "uvx"];

/// The servers that a command can use.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) configs: Vec<McpServerConfig>,
    /// The config file that has these servers.
    pub(crate) stored: Option<StoredConfig>,
    pub(crate) names: ToolNaming,
    /// Base directory of relative `${file:…}` references.
    pub(crate) dir: PathBuf,
    pub(crate) source: ServerSource,
    /// The guardian of the server that starts first.
    pub(crate) guardian: Guardian,
}

/// Where the servers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerSource {
    /// One server from the command line.
    AdHoc,
    Configured,
}

/// Which warnings about the config file are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Warnings {
    All,
    /// Except about secrets in arguments, which not every command needs to repeat.
    Usual,
    None,
}

impl Servers {
    /// The ad-hoc server, or the configured ones. A missing config file counts as empty, unless it
    /// was named explicitly.
    pub(crate) fn select(
        target: &TargetOptions,
        warnings: Warnings,
        context: &Context,
    ) -> Result<Self, CliError> {
        Self::select_for(None, target, warnings, context)
    }

    /// The same, without the other servers if `typed` names a server and one of its items.
    pub(crate) fn select_for(
        typed: Option<&str>,
        target: &TargetOptions,
        warnings: Warnings,
        context: &Context,
    ) -> Result<Self, CliError> {
        if target.is_given() {
            let mut config = ad_hoc(target)?;
            config.startup_timeout = target.startup_timeout.unwrap_or(config.startup_timeout);
            let (names, dir) = (ToolNaming::default(), PathBuf::new());
            let (configs, source) = (vec![config], ServerSource::AdHoc);
            let guardian = Guardian::Auto;
            return Ok(Self { configs, stored: None, names, dir, source, guardian });
        }
        let Context { settings, printer, .. } = context;
        if warnings != Warnings::None && Path::new(PROJECT_FILE).exists() {
            let reason = "project configs are not trusted";
            printer.note(format_args!("note: `{PROJECT_FILE}` is ignored: {reason}"));
        }
        let path = settings.home()?.config_file();
        if warnings != Warnings::None {
            for insecure in settings.insecure_paths() {
                let repair = insecure.repair_command();
                printer.note(format_args!("warning: {insecure}; run `{repair}`"));
            }
        }
        let loaded = match ConfigStore::new(path).load() {
            Err(error) if is_missing(&error) && !settings.has_explicit_config => {
                Ok(StoredConfig::default())
            }
            loaded => loaded,
        };
        let diagnostics: &[Diagnostic] = match &loaded {
            Ok(stored) => &stored.warnings,
            Err(LoadError::Invalid(diagnostics)) => diagnostics,
            Err(_) => &[],
        };
        let is_shown = |diagnostic: &&Diagnostic| match warnings {
            Warnings::All => true,
            Warnings::Usual => diagnostic.kind != DiagnosticKind::Exposed,
            Warnings::None => false,
        };
        let all = diagnostics.iter().filter(|diagnostic| diagnostic.severity != Severity::Error);
        for warning in all.filter(is_shown) {
            printer.note(format_args!("warning: {warning}"));
        }
        let mut stored = loaded.map_err(|error| load_error(error, path, settings))?;
        if let Some(timeout) = target.startup_timeout {
            stored.file.set_startup_timeout(timeout);
        }
        if let Some(typed) = typed {
            keep_named(&mut stored.file, typed, settings.agent.as_deref());
        }
        let file = &stored.file;
        let configs = match &settings.agent {
            None => file.resolve_defaults(),
            Some(agent) if file.agents.iter().any(|known| known.id == *agent) => {
                file.resolve(agent)
            }
            Some(agent) => {
                let known = file.agents.iter().map(|agent| agent.id.as_str());
                let suggestion = did_you_mean(&similar_names(agent, known));
                let message = format!("agent `{agent}` not found in the config file{suggestion}");
                let hint = "agents are defined by `id` in `[[agents]]`";
                return Err(CliError::unknown(message, hint));
            }
        };
        let (names, dir) = (file.names(), path.parent().unwrap_or(Path::new("")).to_owned());
        let (source, guardian) = (ServerSource::Configured, Guardian::Auto);
        Ok(Self { configs, stored: Some(stored), names, dir, source, guardian })
    }

    /// The configured servers.
    pub(crate) fn configured(warnings: Warnings, context: &Context) -> Result<Self, CliError> {
        Self::select(&TargetOptions::default(), warnings, context)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.configs.iter().map(|config| config.name.as_str())
    }

    /// The config file, as the service takes it.
    pub(crate) fn into_input(self) -> ConfigInput {
        self.stored.map_or(ConfigInput::File, ConfigInput::Stored)
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

    /// How to add a server.
    pub(crate) fn how_to_add() -> String {
        let (add, import) = (command("add"), command("import"));
        format!("add one with {add}, or import servers from other tools with {import}")
    }

    /// Error: no servers are configured.
    pub(crate) fn no_servers() -> CliError {
        CliError::config("no servers configured", Self::how_to_add())
    }

    /// The same, where an ad-hoc server is possible.
    pub(crate) fn no_server_given() -> CliError {
        Self::no_servers().with_hint(format!(
            "add one with {}, or use an ad-hoc server: `-- COMMAND…` or `--url URL`",
            command("add")
        ))
    }

    /// Only the named server, so that no other one is started.
    pub(crate) fn only(self, name: &str) -> Result<Self, CliError> {
        self.server(name)?;
        Ok(self.filter(|server| server == name))
    }

    /// Keeps only some servers, so that no other one is started.
    #[must_use]
    pub(crate) fn filter(mut self, is_wanted: impl Fn(&str) -> bool) -> Self {
        self.configs.retain(|config| is_wanted(&config.name));
        if let Some(StoredConfig { file, .. }) = &mut self.stored {
            retain(file, is_wanted);
        }
        self
    }
}

fn retain(file: &mut ConfigFile, is_wanted: impl Fn(&str) -> bool) {
    file.defaults.retain(|entry| is_wanted(&entry.name));
    for agent in &mut file.agents {
        agent.mcp.retain(|entry| is_wanted(&entry.name));
    }
}

/// Removes all servers but the one that `typed` names, if it names one of this agent.
fn keep_named(file: &mut ConfigFile, typed: &str, agent: Option<&str>) {
    let own = file.agents.iter().filter(|known| Some(known.id.as_str()) == agent);
    let entries = file.defaults.iter().chain(own.flat_map(|agent| &agent.mcp));
    let names = entries.map(|entry| entry.name.as_str());
    if let Some(named) = split_name(typed, names, &SEPARATORS) {
        retain(file, |server| server == named.server);
    }
}

fn is_missing(error: &LoadError) -> bool {
    matches!(error, LoadError::Unreadable(error) if error.kind() == io::ErrorKind::NotFound)
}

/// The error of a config file that cannot be used.
pub(crate) fn load_error(error: LoadError, path: &Path, settings: &Settings) -> CliError {
    let is_missing = is_missing(&error);
    let path = path.display().to_string();
    match error {
        LoadError::Unreadable(error) => {
            let message = format!("cannot read the config file {path}: {error}");
            let hint = if is_missing {
                format!("check the path; {} creates the file", command("add"))
            } else {
                "check the path and its permissions".to_owned()
            };
            CliError::config(message, hint)
        }
        // Imported, not used, because toolrack must not write to configs of other tools.
        LoadError::Foreign(dialect) => {
            let format = dialect_name(dialect);
            let message = format!("{path} is not a toolrack config; its format is {format}");
            // Without `--config`: a file that is imported must not also become the config file.
            let flags = flags(None, settings.agent.as_deref());
            let import = format!("`toolrack {flags}import {}`", shell_quote(&path));
            CliError::config(message, format!("import its servers with {import}"))
        }
        LoadError::Invalid(mut diagnostics) => {
            diagnostics.retain(|diagnostic| diagnostic.severity == Severity::Error);
            let hint = format!("fix these lines with {}; nothing was started", command("edit"));
            CliError::from_diagnostics(ExitCode::Config, &diagnostics, &hint)
        }
    }
}

/// The config of the ad-hoc server.
fn ad_hoc(target: &TargetOptions) -> Result<McpServerConfig, CliError> {
    if let Some(url) = &target.url {
        let headers = target.header.iter().map(|header| parse_header(header));
        let headers = headers.collect::<Result<_, CliError>>()?;
        let transport = McpTransport::Http { url: url.clone(), headers };
        return Ok(McpServerConfig::new(host(url), transport));
    }
    let mut words = target.command.iter().map(|word| escape_references(word));
    let env = target.env.iter().map(|variable| parse_variable(variable));
    let transport = McpTransport::Stdio {
        command: words.next().unwrap_or_default(),
        args: words.collect(),
        env: env.collect::<Result<_, CliError>>()?,
        cwd: target.cwd.as_ref().map(|dir| escape_references(&dir.to_string_lossy())),
    };
    Ok(McpServerConfig::new(server_name(&target.command), transport))
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
        ServerSource::Configured => split_name(typed, servers.names(), &SEPARATORS),
    }
}

/// Resolves a public name.
pub(crate) fn resolve_public(typed: &str, servers: &Servers) -> Option<ResolvedName> {
    let typed = typed.strip_prefix("mcp__").unwrap_or(typed);
    split_name(typed, servers.names(), &PUBLIC_SEPARATORS)
}

fn split_name<'n>(
    typed: &str,
    names: impl Iterator<Item = &'n str>,
    separators: &[&str],
) -> Option<ResolvedName> {
    let behind = |name: &str| {
        let rest = typed.strip_prefix(name)?;
        separators
            .iter()
            .find_map(|separator| rest.strip_prefix(separator))
            .filter(|item| !item.is_empty())
    };
    let found = names.filter_map(|name| Some((name, behind(name)?)));
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
            let call = server_command("call", &format!("{first}.{typed}"));
            let hint = format!("specify the server, e.g. {call}");
            Err(CliError::usage(message, hint))
        }
    }
}

/// Error: unknown name. `spellings` are the known names.
pub(crate) fn unknown_name(
    what: &str,
    typed: &str,
    configs: &[McpServerConfig],
    spellings: &[String],
) -> CliError {
    if configs.is_empty() {
        return Servers::no_server_given();
    }
    let names: Vec<&str> = configs.iter().map(|config| config.name.as_str()).collect();
    let suggestion = did_you_mean(&similar_names(typed, spellings.iter().map(String::as_str)));
    let start = SEPARATORS.iter().find_map(|separator| typed.split_once(separator));
    let message = match start.filter(|_| suggestion.is_empty()) {
        Some((start, _)) => {
            let similar = similar_names(start, names.iter().copied());
            format!("server `{start}` not found{}", did_you_mean(&similar))
        }
        None => format!("{what} `{typed}` not found{suggestion}"),
    };
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
            assert_eq!(failure.summary().field.as_deref(), Some(field));
            assert!(!format!("{failure:?}").contains("s3cret"));
        }
    }

    fn servers(source: ServerSource, names: &[&str]) -> Servers {
        let configs = names.iter().map(|name| McpServerConfig::stdio(*name, "x", &[])).collect();
        let (names, dir) = (ToolNaming::default(), PathBuf::new());
        Servers { configs, stored: None, names, dir, source, guardian: Guardian::Auto }
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
        let found =
            check_bare_name("echo", owners, unlisted).map_err(|error| error.summary().message);
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
        let known = strings(&["git.log", "git_log", "git.show"]);
        let servers = servers(ServerSource::Configured, &["git", "mail"]);
        let failure = unknown_name("tool", typed, &servers.configs, &known);
        assert_eq!(failure.summary().message, expected);
    }

    #[test]
    fn unknown_names_get_suggestions() {
        check_unknown("git.lgo", "tool `git.lgo` not found; did you mean `git.log` or `git_log`?");
        check_unknown("gti.xxxxxxxx", "server `gti` not found; did you mean `git`?");
        check_unknown("zzz", "tool `zzz` not found");
    }
}
