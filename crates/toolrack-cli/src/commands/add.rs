//! `toolrack add`: adds a server from a command, a URL or a package.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;
use toolrack_config::{
    EnvValue, McpTransport, Package, PackageKind, ServerEntry, Settings as ServerSettings,
};
use toolrack_service::{
    ErrorCode, LocalService, McpConfig, McpService as _, ServiceError, ServiceFault,
};

use crate::args::servers::{AddOptions, TransportKind};
use crate::check_server::check_server;
use crate::commands::credentials;
use crate::config_secrets::{extract_secrets, is_reference};
use crate::config_service::{change_json, config_path, insert_key, with_service};
use crate::context::Context;
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::server_selection::parse_header;
use crate::suggested_command::shell_quote;
use crate::working_dir;

/// Hint for invalid arguments.
const EXAMPLES_HINT: &str = "change what was typed; `toolrack add --help` has examples";

/// Whether a new server is started once, as a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    Yes,
    No,
}

/// Adds a server to the config.
pub(crate) async fn add(options: &AddOptions, context: &Context) -> Result<(), CliError> {
    let config = McpConfig::of_entry(&build_entry(options)?);
    let is_tried = !options.no_check && !options.disabled;
    let check = if is_tried { Check::Yes } else { Check::No };
    create(config, check, context).await
}

/// Adds a server to the config and checks that it starts. A server that fails the check stays in
/// the config.
pub(crate) async fn create(
    mut config: McpConfig,
    check: Check,
    context: &Context,
) -> Result<(), CliError> {
    let printer = &context.printer;
    let name = config.name.clone();
    let here = std::env::current_dir();
    let settled = here.ok().and_then(|dir| working_dir::set_if_relative(&mut config, &dir));
    let plain = extract_secrets(config.clone()).names;
    let (file, mut json) = with_service(context, None, async |service: &LocalService| {
        prompt_missing_secrets(service, &config, context).await?;
        let id =
            service.create(config.clone()).map_err(|error| create_error(&config.name, error))?;
        let config = McpConfig { id, ..config };
        Ok((destination(service, context), change_json(service, &config)))
    })
    .await?;
    if let Some(note) = settled {
        printer.note(note);
    }
    for name in plain {
        printer.note(format_args!(
            "note: the value of `{name}` stands in the config file; `toolrack secret set` and \
             `--env-secret` or `${{secret:NAME}}` keep it out"
        ));
    }
    if check == Check::No {
        printer.done(format_args!("`{name}` is added to {file}"), &json);
        return Ok(());
    }
    let typed = shell_quote(&name);
    match check_server(&name, context).await {
        Ok(checked) => {
            insert_key(&mut json, "check", checked.to_json());
            let words = checked.describe();
            printer.done(format_args!("`{name}` is added to {file}\nit works: {words}"), &json);
            Ok(())
        }
        Err(failure) => {
            insert_key(&mut json, "check", Value::Null);
            if failure.exit_code() == ExitCode::Interrupted {
                printer
                    .done(format_args!("`{name}` is added to {file}, and was not checked"), &json);
                let hint = format!(
                    "`toolrack status --check {typed}` checks it, `toolrack remove {typed}` removes it"
                );
                return Err(failure.with_hint(hint));
            }
            printer.done(
                format_args!(
                    "`{name}` is added to {file}, but does not work yet; `toolrack edit {typed}` \
                     changes it, `toolrack remove {typed}` removes it"
                ),
                &json,
            );
            Err(failure)
        }
    }
}

/// Maps an error of the service to the name and URL that were typed.
fn create_error(name: &str, error: ServiceError) -> CliError {
    let typed = shell_quote(name);
    let is_about =
        |field: &str| error.faults().iter().any(|fault| fault.field.as_deref() == Some(field));
    match error.code() {
        ErrorCode::Conflict if is_about("name") => CliError::from(error).with_hint(format!(
            "`toolrack edit {typed}` changes that server, `toolrack remove {typed}` removes it; or choose another name"
        )),
        ErrorCode::ValidationError if is_about("name") || is_about("transport.url") => {
            let with_subject = |fault: &ServiceFault| {
                let message = match fault.field.as_deref() {
                    Some("name") if !name.trim().is_empty() => {
                        format!("the name `{name}` {}", fault.message)
                    }
                    // The URL itself may contain a password.
                    Some("transport.url") => format!("the address {}", fault.message),
                    _ => fault.message.clone(),
                };
                ServiceFault { message, ..fault.clone() }
            };
            let faults = error.faults().iter().map(with_subject).collect();
            CliError::from_faults(ExitCode::Config, faults).with_hint(EXAMPLES_HINT)
        }
        _ => CliError::from_service(error, EXAMPLES_HINT),
    }
}

/// The file, and the agent if one is given.
fn destination(service: &LocalService, context: &Context) -> String {
    let file = config_path(service);
    match &context.settings.agent {
        Some(agent) => format!("{file}, for the agent `{agent}`"),
        None => file,
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
        if service.secrets().get(secret)?.is_none() {
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
            return Err(conflict("`--transport stdio`", "an address"));
        }
        (Some(TransportKind::Http | TransportKind::Sse), None) => {
            let hint = "write it as in `toolrack add --transport http NAME https://host/mcp`";
            return Err(
                CliError::usage("the address of the server is missing", hint).with_field("URL")
            );
        }
        (_, url) => url.is_some(),
    };
    match package(options) {
        Some((kind, identifier)) => packaged(kind, identifier, options),
        None if is_http => remote(options),
        None => local(options),
    }
}

fn package(options: &AddOptions) -> Option<(PackageKind, &str)> {
    let package = &options.package;
    let given = [
        (PackageKind::Npm, &package.npm),
        (PackageKind::Pypi, &package.pypi),
        (PackageKind::Docker, &package.docker),
        (PackageKind::Binary, &package.binary),
    ];
    given.into_iter().find_map(|(kind, identifier)| Some((kind, identifier.as_deref()?)))
}

fn remote(options: &AddOptions) -> Result<McpTransport, CliError> {
    let url = options.url.clone().unwrap_or_default();
    if !url.contains("://") && !is_reference(&url) {
        let message = format!("`{}` is no address", toolrack_config::without_secrets(&url));
        let name = &options.name;
        let hint = format!(
            "an address begins with `https://`; a command comes behind `--`, as in `toolrack add {name} -- npx …`"
        );
        return Err(CliError::usage(message, hint).with_field("URL"));
    }
    if !options.command.is_empty() {
        return Err(conflict("an address", "a command"));
    }
    let is_local = !options.env.is_empty() || !options.env_secret.is_empty();
    if is_local || options.cwd.is_some() {
        let hint = "send what it needs with `--header 'NAME: VALUE'`";
        let message = "`--env`, `--env-secret` and `--cwd` are for servers that are started here";
        return Err(CliError::usage(message, hint));
    }
    let headers: Result<_, CliError> =
        options.header.iter().map(|header| parse_header(header)).collect();
    Ok(McpTransport::Http { url, headers: headers? })
}

fn local(options: &AddOptions) -> Result<McpTransport, CliError> {
    reject_headers(options)?;
    let Some((command, args)) = options.command.split_first() else {
        let name = &options.name;
        let hint = format!(
            "give a command, `toolrack add {name} -- npx -y some-server`, or an address, \
             `toolrack add {name} https://host/mcp`"
        );
        return Err(CliError::usage("it is not said how the server is started or reached", hint));
    };
    Ok(McpTransport::Stdio {
        command: absolute_program(command, options.cwd.as_deref()),
        args: args.to_vec(),
        env: variables(options)?,
        cwd: cwd(options),
    })
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

fn packaged(
    kind: PackageKind,
    identifier: &str,
    options: &AddOptions,
) -> Result<McpTransport, CliError> {
    reject_headers(options)?;
    let (identifier, version) = split_version(kind, identifier);
    let package = Package {
        kind,
        identifier: identifier.to_owned(),
        version: version.map(str::to_owned),
        args: options.command.clone(),
        program: None,
        runtime_args: Vec::new(),
    };
    let (env, cwd) = (variables(options)?, cwd(options));
    Ok(McpTransport::Package { package, env, cwd, headers: HashMap::new() })
}

/// Splits `name@1.2` and `name==1.2`. The tag of an image stays part of its identifier.
fn split_version(kind: PackageKind, identifier: &str) -> (&str, Option<&str>) {
    let split = match kind {
        PackageKind::Npm => identifier.rsplit_once('@').filter(|(name, _)| !name.is_empty()),
        PackageKind::Pypi => identifier.split_once("==").or_else(|| identifier.split_once('@')),
        _ => None,
    };
    split.map_or((identifier, None), |(name, version)| (name, Some(version)))
}

fn reject_headers(options: &AddOptions) -> Result<(), CliError> {
    if options.header.is_empty() {
        return Ok(());
    }
    let hint = "give the server what it needs with `--env NAME=VALUE`";
    Err(CliError::usage("`--header` is for servers over HTTP", hint).with_field("--header"))
}

fn cwd(options: &AddOptions) -> Option<String> {
    options.cwd.as_ref().map(|dir| absolute_path(&dir.to_string_lossy()))
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
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) => {
            let message = format!("a `{option}` has no name before its `=`");
            Err(CliError::usage(message, format!("write it as `{option} {shape}`"))
                .with_field(option))
        }
        None => {
            let message = format!("a `{option}` has no `=`");
            Err(CliError::usage(message, format!("write it as `{option} {shape}`"))
                .with_field(option))
        }
    }
}

fn conflict(one: &str, other: &str) -> CliError {
    CliError::usage(format!("{one} and {other} exclude each other"), "leave one of them out")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::args::servers::PackageOptions;
    use crate::config_secrets::{self, Values};

    fn told(options: &AddOptions) -> String {
        let config = match build_entry(options) {
            Ok(entry) => McpConfig::of_entry(&entry),
            Err(failure) => return format!("error: {}", failure.faults()[0].message),
        };
        let (transport, target) =
            (config_secrets::transport_name(&config), config_secrets::target(&config));
        let env = json!(config.env_vars.keys().collect::<Vec<_>>());
        let rest = &config_secrets::to_document(&config, Values::Shown)["config"];
        format!("{transport} {target} {env} {rest}")
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[track_caller]
    fn check(options: AddOptions, expected: &str) {
        assert_eq!(told(&AddOptions { name: "x".to_owned(), ..options }), expected);
    }

    fn none() -> AddOptions {
        AddOptions::default()
    }

    #[test]
    fn a_program_is_found_from_everywhere() {
        let here = std::env::current_dir().unwrap();
        let check = |command: &str, cwd: Option<&str>, expected: &str| {
            assert_eq!(absolute_program(command, cwd.map(Path::new)), expected);
        };
        check("npx", None, "npx");
        check("/usr/bin/env", None, "/usr/bin/env");
        check("./server", None, here.join("server").to_str().unwrap());
        check("bin/server", None, here.join("bin/server").to_str().unwrap());
        check("bin/server", Some("/srv"), "bin/server");
        check("${HOME}/server", None, "${HOME}/server");
    }

    #[test]
    fn a_server_is_a_command_an_address_or_a_package() {
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
    fn what_does_not_fit_together_is_said() {
        let url = || Some("https://h/mcp".to_owned());
        check(none(), "error: it is not said how the server is started or reached");
        check(
            AddOptions { transport: Some(TransportKind::Http), ..none() },
            "error: the address of the server is missing",
        );
        check(
            AddOptions { transport: Some(TransportKind::Stdio), url: url(), ..none() },
            "error: `--transport stdio` and an address exclude each other",
        );
        check(
            AddOptions { url: url(), command: words(&["x"]), ..none() },
            "error: an address and a command exclude each other",
        );
        check(AddOptions { url: Some("npx".to_owned()), ..none() }, "error: `npx` is no address");
        check(
            AddOptions { url: url(), env: words(&["A=1"]), ..none() },
            "error: `--env`, `--env-secret` and `--cwd` are for servers that are started here",
        );
        check(
            AddOptions { command: words(&["x"]), header: words(&["A: b"]), ..none() },
            "error: `--header` is for servers over HTTP",
        );
        check(
            AddOptions { command: words(&["x"]), env: words(&["s3cret"]), ..none() },
            "error: a `--env` has no `=`",
        );
        check(
            AddOptions { command: words(&["x"]), env_secret: words(&["=s3cret"]), ..none() },
            "error: a `--env-secret` has no name before its `=`",
        );
    }
}
