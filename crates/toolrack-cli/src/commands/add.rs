//! `toolrack add`: adds a server from a command, a URL or a package. `toolrack add-json`: adds a
//! server from its entry in any tool's config, or from a whole config with one server.
//!
//! **Invariant:** no message of `add-json` repeats a value, because it may be a secret.

use std::collections::HashMap;
use std::io::{self, Read as _};
use std::path::Path;

use serde_json::{Map, Value, json};
use toolrack_config::{
    ConfigFile, Diagnostic, Dialect, EnvValue, McpTransport, Package, PackageKind, Parsed,
    ServerEntry, Settings as ServerSettings, Severity, detect, join, read_as,
};
use toolrack_service::{
    ConfigInput, ErrorCode, ErrorDetail, LocalService, McpConfig, McpService as _, ServiceError,
};

use crate::args::{AddJsonOptions, AddOptions, TransportKind};
use crate::commands::servers::check_server;
use crate::commands::{Context, credentials};
use crate::config_secrets::{extract_secrets, is_reference};
use crate::config_service::{change_json, config_path, insert_key, with_service};
use crate::error::{CliError, ExitCode, command, server_command};
use crate::server_selection::parse_header;
use crate::working_dir;

/// Hint for invalid arguments.
const EXAMPLES_HINT: &str = "see `toolrack add --help` for examples";

/// Whether a new server is started once, as a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    Yes,
    No,
}

/// Adds a server to the config.
pub(crate) async fn add(options: Box<AddOptions>, context: &Context) -> Result<(), CliError> {
    let config = McpConfig::from_entry(&build_entry(&options)?);
    let is_checked = !options.no_check && !options.disabled;
    create(config, if is_checked { Check::Yes } else { Check::No }, context).await
}

/// Adds a server to the config and checks that it starts. A server that fails the check stays in
/// the config.
async fn create(mut config: McpConfig, check: Check, context: &Context) -> Result<(), CliError> {
    let printer = &context.printer;
    let name = config.name.clone();
    let cwd = std::env::current_dir().ok();
    let dir_note = cwd.and_then(|dir| working_dir::set_if_relative(&mut config, &dir));
    // Only the names, for a warning: the config is stored as typed.
    let secret_names = extract_secrets(config.clone()).names;
    let (file, mut json) =
        with_service(ConfigInput::File, None, context, async |service: &LocalService| {
            prompt_missing_secrets(service, &config, context).await?;
            let id = service
                .create(config.clone())
                .map_err(|error| create_error(&config.name, error))?;
            let config = McpConfig { id, ..config };
            let file = config_path(service);
            let file = match &context.settings.agent {
                Some(agent) => format!("{file} for agent `{agent}`"),
                None => file,
            };
            Ok((file, change_json(service, &config)))
        })
        .await?;
    if let Some(note) = dir_note {
        printer.note(note);
    }
    for name in secret_names {
        printer.note(format_args!(
            "note: the value of `{name}` is plain text in the config file; to keep it out, use \
             `toolrack secret set` with `--env-secret` or `${{secret:NAME}}`"
        ));
    }
    let added = format!("added `{name}` to {file}");
    if check == Check::No {
        printer.done(added, &json);
        return Ok(());
    }
    let run = |verb: &str| server_command(verb, &name);
    let checked = check_server(&name, context).await;
    insert_key(&mut json, "check", json!(checked.as_ref().ok()));
    let (text, outcome) = match checked {
        Ok(checked) => (format!("{added}\ncheck passed: {}", checked.describe()), Ok(())),
        Err(failure) if failure.exit_code == ExitCode::Interrupted => {
            let (check, remove) = (run("status --check"), run("remove"));
            let hint = format!("check it with {check}, or remove it with {remove}");
            (format!("{added} without checking it"), Err(failure.with_hint(hint)))
        }
        Err(failure) => {
            let (edit, remove) = (run("edit"), run("remove"));
            let advice = format!("change it with {edit}, or remove it with {remove}");
            (format!("{added}, but the check failed; {advice}"), Err(failure))
        }
    };
    printer.done(text, &json);
    outcome
}

/// Maps an error of the service to the name and URL that were typed.
fn create_error(name: &str, error: ServiceError) -> CliError {
    let is_about = |field: &str| {
        error.details().iter().any(|error_detail| error_detail.field.as_deref() == Some(field))
    };
    match error.code() {
        ErrorCode::Conflict if is_about("name") => {
            let (edit, remove) = (server_command("edit", name), server_command("remove", name));
            CliError::from(error).with_hint(format!(
                "change the existing server with {edit}, remove it with {remove}, or choose \
                 another name"
            ))
        }
        ErrorCode::ValidationError if is_about("name") || is_about("transport.url") => {
            let with_subject = |error_detail: &ErrorDetail| {
                let message = match error_detail.field.as_deref() {
                    Some("name") if !name.trim().is_empty() => {
                        format!("the name `{name}` {}", error_detail.message)
                    }
                    // The URL itself may contain a password.
                    Some("transport.url") => format!("the URL {}", error_detail.message),
                    _ => error_detail.message.clone(),
                };
                ErrorDetail { message, ..error_detail.clone() }
            };
            let error_details = error.details().iter().map(with_subject).collect();
            CliError::from_details(ExitCode::Config, error_details).with_hint(EXAMPLES_HINT)
        }
        _ => CliError::from_service(error, EXAMPLES_HINT),
    }
}

/// Prompts for secrets that the server needs and that are not stored. Without a terminal, the
/// service rejects the server.
async fn prompt_missing_secrets(
    service: &LocalService,
    config: &McpConfig,
    context: &Context,
) -> Result<(), CliError> {
    if !context.settings.streams.is_interactive() {
        return Ok(());
    }
    for secret in config.env_vars.values().filter_map(|variable| variable.secret_ref.as_ref()) {
        let stored = service.secrets().get(secret)?;
        if stored.is_none_or(|stored| stored.reveal().is_empty()) {
            let value = credentials::read_secret(secret, context).await?;
            service.set_secret(secret, value).await?;
        }
    }
    Ok(())
}

/// Builds the config entry from the options.
fn build_entry(options: &AddOptions) -> Result<ServerEntry, CliError> {
    let list = |list: &Vec<String>| (!list.is_empty()).then(|| list.clone());
    let settings = ServerSettings {
        timeout: options.timeout,
        allow: list(&options.allow),
        deny: list(&options.deny),
        ..ServerSettings::default()
    };
    let entry = ServerEntry::new(options.name.clone(), transport(options)?);
    Ok(ServerEntry { enabled: !options.disabled, settings, ..entry })
}

fn transport(options: &AddOptions) -> Result<McpTransport, CliError> {
    let is_http = match (options.transport, &options.url) {
        (Some(TransportKind::Stdio), Some(_)) => {
            return Err(conflict("`--transport stdio`", "a URL"));
        }
        (Some(TransportKind::Http | TransportKind::Sse), None) => {
            let add = command("add --transport http NAME https://host/mcp");
            let hint = format!("for example: {add}");
            return Err(CliError::usage("missing server URL", hint).with_field("URL"));
        }
        (_, url) => url.is_some(),
    };
    let package = package(options);
    if is_http && package.is_none() {
        return remote(options);
    }
    if !options.header.is_empty() {
        let hint = "use `--env NAME=VALUE` instead";
        let failure = CliError::usage("`--header` only applies to servers over HTTP", hint);
        return Err(failure.with_field("--header"));
    }
    let cwd = options.cwd.as_ref().map(|dir| absolute_path(&dir.to_string_lossy()));
    if let Some(package) = package {
        let (env, headers) = (variables(options)?, HashMap::new());
        return Ok(McpTransport::Package { package, env, cwd, headers });
    }
    let Some((command, args)) = options.command.split_first() else {
        let name = &options.name;
        let hint = format!(
            "give a command, e.g. {}, or a URL, e.g. {}",
            command(format_args!("add {name} -- npx -y some-server")),
            command(format_args!("add {name} https://host/mcp"))
        );
        return Err(CliError::usage("missing command or URL of the server", hint));
    };
    Ok(McpTransport::Stdio {
        command: absolute_program(command, options.cwd.as_deref()),
        args: args.to_vec(),
        env: variables(options)?,
        cwd,
    })
}

fn package(options: &AddOptions) -> Option<Package> {
    let package = &options.package;
    let given = [
        (PackageKind::Npm, &package.npm),
        (PackageKind::Pypi, &package.pypi),
        (PackageKind::Docker, &package.docker),
        (PackageKind::Binary, &package.binary),
    ];
    let mut given = given.into_iter().filter_map(|(kind, given)| Some((kind, given.as_deref()?)));
    let (kind, identifier) = given.next()?;
    let (identifier, version) = split_version(kind, identifier);
    Some(Package {
        kind,
        identifier: identifier.to_owned(),
        version: version.map(str::to_owned),
        args: options.command.clone(),
        program: None,
        runtime_hint: None,
        runtime_args: Vec::new(),
    })
}

fn remote(options: &AddOptions) -> Result<McpTransport, CliError> {
    let url = options.url.clone().unwrap_or_default();
    if !url.contains("://") && !is_reference(&url) {
        let message = format!("`{}` is not a valid URL", toolrack_config::without_secrets(&url));
        let add = command(format_args!("add {} -- npx …", options.name));
        let hint = format!("a URL begins with `https://`; put a command after `--`, e.g. {add}");
        return Err(CliError::usage(message, hint).with_field("URL"));
    }
    if !options.command.is_empty() {
        return Err(conflict("a URL", "a command"));
    }
    let is_local = !options.env.is_empty() || !options.env_secret.is_empty();
    if is_local || options.cwd.is_some() {
        let hint = "use `--header 'NAME: VALUE'` instead";
        let message = "`--env`, `--env-secret` and `--cwd` only apply to local servers";
        return Err(CliError::usage(message, hint));
    }
    let headers: Result<_, CliError> =
        options.header.iter().map(|header| parse_header(header)).collect();
    Ok(McpTransport::Http { url, headers: headers? })
}

/// Makes the program's path absolute, because the daemon has another working directory. A bare name
/// is looked up in PATH at each start.
fn absolute_program(command: &str, cwd: Option<&Path>) -> String {
    if command.contains('/') && cwd.is_none() { absolute_path(command) } else { command.to_owned() }
}

/// Makes a path absolute, unless it contains a `${…}` reference.
fn absolute_path(path: &str) -> String {
    let found = (!is_reference(path)).then(|| std::path::absolute(path).ok()).flatten();
    found
        .and_then(|path| path.into_os_string().into_string().ok())
        .unwrap_or_else(|| path.to_owned())
}

/// Splits `name@1.2` and `name==1.2`. The tag of an image stays part of its identifier.
fn split_version(kind: PackageKind, identifier: &str) -> (&str, Option<&str>) {
    let split = match kind {
        // The last `@`: the first one may be that of a scope, as in `@scope/name@1.2`.
        PackageKind::Npm => identifier.rsplit_once('@').filter(|(name, _)| !name.is_empty()),
        PackageKind::Pypi => identifier.split_once("==").or_else(|| identifier.split_once('@')),
        _ => None,
    };
    split.map_or((identifier, None), |(name, version)| (name, Some(version)))
}

fn variables(options: &AddOptions) -> Result<HashMap<String, EnvValue>, CliError> {
    let plain = options.env.iter().map(|variable| {
        let (name, value) = parse_pair(variable, "--env", "NAME=VALUE")?;
        Ok((name, EnvValue::Text(value)))
    });
    let secret = options.env_secret.iter().map(|variable| {
        let (name, secret_ref) = parse_pair(variable, "--env-secret", "NAME=SECRET")?;
        Ok((name, EnvValue::Secret { secret_ref, required: true }))
    });
    plain.chain(secret).collect()
}

/// Errors do not repeat the value, because it may be a secret.
fn parse_pair(text: &str, option: &str, shape: &str) -> Result<(String, String), CliError> {
    let missing = match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => return Ok((name.to_owned(), value.to_owned())),
        Some(_) => "name before `=`",
        None => "`=`",
    };
    let message = format!("`{option}` has no {missing}");
    Err(CliError::usage(message, format!("use `{option} {shape}`")).with_field(option))
}

fn conflict(one: &str, other: &str) -> CliError {
    CliError::usage(format!("{one} and {other} cannot be used together"), "remove one of them")
}

/// Maximum size of the JSON.
const MAX_INPUT_BYTES: u64 = 1 << 20;

/// Adds a server from JSON.
pub(crate) async fn add_json(options: AddJsonOptions, context: &Context) -> Result<(), CliError> {
    let text = match options.json.as_str() {
        "-" => {
            let mut text = String::new();
            let read = move || {
                io::stdin().take(MAX_INPUT_BYTES).read_to_string(&mut text)?;
                Ok(text)
            };
            context.blocking(read).await?
        }
        _ => options.json,
    };
    let (config, warnings) = parse_entry(&options.name, &text)?;
    for warning in &warnings {
        context.printer.note(format_args!("note: {warning}"));
    }
    create(config, if options.no_check { Check::No } else { Check::Yes }, context).await
}

const ENTRY_HINT: &str =
    r#"for example: '{"command": "npx", "args": ["-y", "some-server"]}' or '{"url": "…"}'"#;
/// Keys under which tools list their servers.
const SERVER_KEYS: [&str; 6] =
    ["mcpServers", "servers", "mcp", "context_servers", "extensions", "mcp_servers"];

/// Parses an entry and gives it `name`. Also returns the warnings about unknown keys and settings
/// without an effect.
fn parse_entry(name: &str, text: &str) -> Result<(McpConfig, Vec<Diagnostic>), CliError> {
    let invalid = |message: &str| Err(CliError::usage(message, ENTRY_HINT).with_field("JSON"));
    let mut entry = match serde_json::from_str(text) {
        Ok(Value::Object(entry)) => entry,
        Ok(_) => return invalid("the JSON is not an object"),
        Err(error) => {
            // Without the parser's message, which may quote a value.
            let (line, column) = (error.line(), error.column());
            return invalid(&format!("not valid JSON: line {line}, column {column}"));
        }
    };
    if entry.get("package").is_some_and(Value::is_object) {
        // The service's own JSON format.
        entry.insert("name".to_owned(), json!(name));
        return Ok((McpConfig::from_json(&Value::Object(entry))?, Vec::new()));
    }
    let is_full_config =
        SERVER_KEYS.iter().any(|key| entry.get(*key).is_some_and(Value::is_object));
    let reading = if is_full_config {
        read_as(detect("", text), "", text)
    } else {
        parse_bare_entry(name, &entry)
    };
    let (file, warnings) = reading.accept().map_err(|diagnostics| invalid_entry(&diagnostics))?;
    let entries: Vec<&ServerEntry> = file.entries().collect();
    let entry = match entries.as_slice() {
        [entry] => ServerEntry { name: name.to_owned(), ..(*entry).clone() },
        [] => return invalid("no server in this JSON"),
        entries => match entries.iter().find(|entry| entry.name == name) {
            Some(entry) => (*entry).clone(),
            None => {
                let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
                let message = format!("several servers in this JSON: {}", names.join(", "));
                let import = command("import FILE");
                let hint = format!("give the name of one of them, or import all with {import}");
                return Err(CliError::usage(message, hint).with_field("NAME"));
            }
        },
    };
    Ok((McpConfig::from_entry(&entry), warnings))
}

/// Parses an entry without its list, in the dialect that its keys suggest.
fn parse_bare_entry(name: &str, entry: &Map<String, Value>) -> Parsed<ConfigFile> {
    let (dialect, list) = dialect_of(entry);
    let text = json!({ list: { name: entry } }).to_string();
    let mut reading = read_as(dialect, "", &text);
    let wrapper = join(list, name);
    for diagnostic in &mut reading.diagnostics {
        // The position refers to the wrapper, which the user has not typed.
        diagnostic.at = None;
        let field =
            diagnostic.field.strip_prefix(&wrapper).map(|field| field.trim_start_matches('.'));
        diagnostic.field = field.unwrap_or(&diagnostic.field).to_owned();
    }
    reading
}

/// The dialect of an entry, and the key under which it is listed.
fn dialect_of(entry: &Map<String, Value>) -> (Dialect, &'static str) {
    let has = |keys: &[&str]| keys.iter().any(|key| entry.contains_key(*key));
    let kind = entry.get("type").and_then(Value::as_str).unwrap_or_default();
    let command = entry.get("command");
    if has(&["cmd", "uri", "envs", "env_keys"]) {
        (Dialect::Goose, "extensions")
    } else if matches!(kind, "local" | "remote") || command.is_some_and(Value::is_array) {
        (Dialect::OpenCode, "mcp")
    } else if has(&["source"]) || command.is_some_and(Value::is_object) {
        (Dialect::Zed, "context_servers")
    } else {
        (Dialect::McpServers, "mcpServers")
    }
}

fn invalid_entry(diagnostics: &[Diagnostic]) -> CliError {
    let (errors, others): (Vec<&Diagnostic>, Vec<&Diagnostic>) =
        diagnostics.iter().partition(|diagnostic| diagnostic.severity == Severity::Error);
    // A misspelled key is usually why a required one is missing.
    let misspelled = others.into_iter().filter(|diagnostic| diagnostic.suggestion.is_some());
    CliError::from_diagnostics(ExitCode::Usage, errors.into_iter().chain(misspelled), ENTRY_HINT)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::args::PackageOptions;
    use crate::config_secrets;

    fn describe(options: &AddOptions) -> String {
        let config = match build_entry(options) {
            Ok(entry) => McpConfig::from_entry(&entry),
            Err(failure) => return format!("error: {}", failure.summary().message),
        };
        let (transport, target) =
            (config_secrets::transport_name(&config), config_secrets::target(&config));
        let env = json!(config.env_vars.keys().collect::<Vec<_>>());
        let rest = &json!(config)["config"];
        format!("{transport} {target} {env} {rest}")
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[track_caller]
    fn check(options: AddOptions, expected: &str) {
        assert_eq!(describe(&AddOptions { name: "x".to_owned(), ..options }), expected);
    }

    fn none() -> AddOptions {
        AddOptions::default()
    }

    #[test]
    fn program_paths_become_absolute() {
        let cwd_path = std::env::current_dir().unwrap();
        let check = |command: &str, cwd: Option<&str>, expected: &str| {
            assert_eq!(absolute_program(command, cwd.map(Path::new)), expected);
        };
        check("npx", None, "npx");
        check("/usr/bin/env", None, "/usr/bin/env");
        check("./server", None, cwd_path.join("server").to_str().unwrap());
        check("bin/server", None, cwd_path.join("bin/server").to_str().unwrap());
        check("bin/server", Some("/srv"), "bin/server");
        check("${HOME}/server", None, "${HOME}/server");
    }

    #[test]
    fn server_is_a_command_url_or_package() {
        check(
            AddOptions {
                command: words(&["npx", "-y", "s"]),
                env: words(&["A=1=2"]),
                env_secret: words(&["T=t"]),
                cwd: Some("/srv".into()),
                allow: words(&["a*"]),
                ..none()
            },
            r#"stdio npx -y s ["A","T"] {"allow":["a*"],"args":["-y","s"],"cwd":"/srv"}"#,
        );
        check(
            AddOptions {
                url: Some("https://h/mcp".to_owned()),
                header: words(&["A: b"]),
                transport: Some(TransportKind::Sse),
                ..none()
            },
            r#"http https://h/mcp [] {"headers":{"A":"b"}}"#,
        );
        let npm = |package: &str| PackageOptions {
            npm: Some(package.to_owned()),
            ..PackageOptions::default()
        };
        check(
            AddOptions { package: npm("@a/b@1.2"), command: words(&["--x"]), ..none() },
            r#"npm @a/b@1.2 --x [] {"args":["--x"]}"#,
        );
        check(AddOptions { package: npm("@a/b"), ..none() }, "npm @a/b [] null");
        let pypi = PackageOptions { pypi: Some("a==2".to_owned()), ..PackageOptions::default() };
        check(AddOptions { package: pypi, ..none() }, "pypi a@2 [] null");
        let docker = PackageOptions { docker: Some("h:5/a:1".into()), ..PackageOptions::default() };
        check(AddOptions { package: docker, ..none() }, "docker h:5/a:1 [] null");
    }

    #[test]
    fn conflicting_options_are_rejected() {
        let url = || Some("https://h/mcp".to_owned());
        check(none(), "error: missing command or URL of the server");
        check(
            AddOptions { transport: Some(TransportKind::Http), ..none() },
            "error: missing server URL",
        );
        check(
            AddOptions { transport: Some(TransportKind::Stdio), url: url(), ..none() },
            "error: `--transport stdio` and a URL cannot be used together",
        );
        check(
            AddOptions { url: url(), command: words(&["x"]), ..none() },
            "error: a URL and a command cannot be used together",
        );
        check(
            AddOptions { url: Some("npx".to_owned()), ..none() },
            "error: `npx` is not a valid URL",
        );
        check(
            AddOptions { url: url(), env: words(&["A=1"]), ..none() },
            "error: `--env`, `--env-secret` and `--cwd` only apply to local servers",
        );
        check(
            AddOptions { command: words(&["x"]), header: words(&["A: b"]), ..none() },
            "error: `--header` only applies to servers over HTTP",
        );
        check(
            AddOptions { command: words(&["x"]), env: words(&["s3cret"]), ..none() },
            "error: `--env` has no `=`",
        );
        check(
            AddOptions { command: words(&["x"]), env_secret: words(&["=s3cret"]), ..none() },
            "error: `--env-secret` has no name before `=`",
        );
    }

    #[track_caller]
    fn check_entry(text: &str, expected: &str) {
        let described = match parse_entry("it", text) {
            Ok((config, warnings)) => {
                assert_eq!(config.name, "it");
                let timeout = config.config.get("timeout").map(ToString::to_string);
                let words =
                    [config_secrets::transport_name(&config), &config_secrets::target(&config)]
                        .join(" ");
                let timeout =
                    timeout.map(|timeout| format!(" timeout={timeout}")).unwrap_or_default();
                format!("{words}{timeout}{}", if warnings.is_empty() { "" } else { " (warnings)" })
            }
            Err(failure) => format!("error: {}", failure.error_details().next().unwrap().message),
        };
        assert_eq!(described, expected, "{text}");
    }

    #[test]
    fn entries_of_all_dialects_are_parsed() {
        check_entry(r#"{"command": "npx", "args": ["-y", "x"]}"#, "stdio npx -y x");
        check_entry(r#"{"type": "http", "url": "https://h/mcp"}"#, "http https://h/mcp");
        check_entry(
            r#"{"serverUrl": "https://h/mcp", "timeout": 5000}"#,
            r#"http https://h/mcp timeout="5s""#,
        );
        check_entry(r#"{"type": "local", "command": ["npx", "x"]}"#, "stdio npx x");
        check_entry(r#"{"type": "remote", "url": "https://h/mcp"}"#, "http https://h/mcp");
        check_entry(
            r#"{"cmd": "uvx", "args": ["x"], "type": "stdio", "timeout": 5}"#,
            r#"stdio uvx x timeout="5s""#,
        );
        check_entry(r#"{"command": {"path": "node", "args": ["s.js"]}}"#, "stdio node s.js");
        check_entry(
            r#"{"package": {"package_type": "npm", "identifier": "@a/b"}, "transport": "stdio"}"#,
            "npm @a/b",
        );
        check_entry(r#"{"mcpServers": {"other": {"command": "x"}}}"#, "stdio x");
        check_entry(r#"{"servers": {"it": {"command": "x"}, "b": {"command": "y"}}}"#, "stdio x");
    }

    #[test]
    fn invalid_entries_hide_their_values() {
        check_entry("{", "error: not valid JSON: line 1, column 1");
        check_entry("[1]", "error: the JSON is not an object");
        check_entry(r#"{"mcpServers": {}}"#, "error: no server in this JSON");
        check_entry(
            r#"{"mcpServers": {"a": {"command": "x"}, "b": {"command": "x"}}}"#,
            "error: several servers in this JSON: a, b",
        );
        check_entry(
            r#"{"command": 5}"#,
            "error: command: must be a string; write `\"5\"`, not an integer",
        );
        check_entry(
            r#"{"mcpServers": {"a": {"command": 5}}}"#,
            "error: 1:34: mcpServers.a.command: must be a string; write `\"5\"`, not an integer",
        );
        let failure = parse_entry("it", r#"{"comand": "s3cret", "url": 7}"#).unwrap_err();
        assert!(!format!("{failure:?}").contains("s3cret"), "{failure:?}");
    }
}
