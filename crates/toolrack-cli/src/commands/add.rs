//! `toolrack add`: a server from a command, an address or a package.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;
use toolrack_config::{
    EnvValue, McpTransport, Package, PackageKind, ServerEntry, Settings as Said,
};
use toolrack_service::{
    ErrorCode, LocalService, McpConfig, McpService as _, ServiceError, ServiceFault,
};

use crate::args::servers::{AddOptions, Way};
use crate::check_server::check_server;
use crate::commands::credentials;
use crate::config_secrets::{extract_secrets, is_reference};
use crate::config_service::{changed, file_of, put, with_service};
use crate::context::Surroundings;
use crate::error::Failure;
use crate::exit_code::Verdict;
use crate::server_selection::parse_header;
use crate::suggested_command::word;
use crate::working_dir;

/// What helps whoever typed something wrongly.
const EXAMPLES: &str = "change what was typed; `toolrack add --help` has examples";

/// Whether a new server is started once, to see whether it works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    Yes,
    No,
}

/// Adds a server to the config.
pub(crate) async fn add(options: &AddOptions, surroundings: &Surroundings) -> Result<(), Failure> {
    let config = McpConfig::of_entry(&draft(options)?);
    let is_tried = !options.no_check && !options.disabled;
    let check = if is_tried { Check::Yes } else { Check::No };
    create(config, check, surroundings).await
}

/// Writes a new server down, and sees whether it works. One that does not stays in the config.
pub(crate) async fn create(
    mut config: McpConfig,
    check: Check,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    let printer = &surroundings.printer;
    let name = config.name.clone();
    let here = std::env::current_dir();
    let settled = here.ok().and_then(|it| working_dir::settle(&mut config, &it));
    let plain = extract_secrets(config.clone()).names;
    let (file, mut said) = with_service(surroundings, None, async |service: &LocalService| {
        fill_in_secrets(service, &config, surroundings).await?;
        let id = service.create(config.clone()).map_err(|error| refused(&config.name, error))?;
        let config = McpConfig { id, ..config };
        Ok((place(service, surroundings), changed(service, &config)))
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
        printer.done(format_args!("`{name}` is added to {file}"), &said);
        return Ok(());
    }
    let typed = word(&name);
    match check_server(&name, surroundings).await {
        Ok(trial) => {
            put(&mut said, "check", trial.json());
            let words = trial.words();
            printer.done(format_args!("`{name}` is added to {file}\nit works: {words}"), &said);
            Ok(())
        }
        Err(failure) => {
            put(&mut said, "check", Value::Null);
            if failure.verdict() == Verdict::Interrupted {
                printer
                    .done(format_args!("`{name}` is added to {file}, and was not checked"), &said);
                let hint = format!(
                    "`toolrack status --check {typed}` checks it, `toolrack remove {typed}` removes it"
                );
                return Err(failure.advising(hint));
            }
            printer.done(
                format_args!(
                    "`{name}` is added to {file}, but does not work yet; `toolrack edit {typed}` \
                     changes it, `toolrack remove {typed}` removes it"
                ),
                &said,
            );
            Err(failure)
        }
    }
}

/// Why a new server is not taken, in the words of whoever typed its name.
fn refused(name: &str, error: ServiceError) -> Failure {
    let typed = word(name);
    let is_about = |field: &str| error.faults().iter().any(|it| it.field.as_deref() == Some(field));
    match error.code() {
        ErrorCode::Conflict if is_about("name") => Failure::from(error).advising(format!(
            "`toolrack edit {typed}` changes that server, `toolrack remove {typed}` removes it; or choose another name"
        )),
        ErrorCode::ValidationError if is_about("name") || is_about("transport.url") => {
            let with_subject = |it: &ServiceFault| {
                let message = match it.field.as_deref() {
                    Some("name") if !name.trim().is_empty() => {
                        format!("the name `{name}` {}", it.message)
                    }
                    // The address itself may hold a password.
                    Some("transport.url") => format!("the address {}", it.message),
                    _ => it.message.clone(),
                };
                ServiceFault { message, ..it.clone() }
            };
            let faults = error.faults().iter().map(with_subject).collect();
            Failure::all(Verdict::Config, faults).advising(EXAMPLES)
        }
        _ => Failure::of(error, EXAMPLES),
    }
}

/// Where a new server stands, as people are told.
fn place(service: &LocalService, surroundings: &Surroundings) -> String {
    let file = file_of(service);
    match &surroundings.settings.agent {
        Some(agent) => format!("{file}, for the agent `{agent}`"),
        None => file,
    }
}

/// Asks a person for secrets that the server needs and nobody has stored. Without a person, the service refuses.
async fn fill_in_secrets(
    service: &LocalService,
    config: &McpConfig,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    if !surroundings.settings.terminal.has_person() {
        return Ok(());
    }
    for secret in config.env_vars.values().filter_map(|it| it.secret_ref.as_ref()) {
        if service.secrets().get(secret)?.is_none() {
            let value = credentials::read_secret(secret, surroundings).await?;
            service.set_secret(secret, value).await?;
        }
    }
    Ok(())
}

/// The entry that the options describe.
fn draft(options: &AddOptions) -> Result<ServerEntry, Failure> {
    let list = |list: &Vec<String>| (!list.is_empty()).then(|| list.clone());
    let settings = Said {
        timeout: options.timeout,
        allow: list(&options.allow),
        deny: list(&options.deny),
        ..Said::default()
    };
    let entry = ServerEntry::new(options.name.clone(), transport(options)?);
    Ok(ServerEntry { enabled: !options.disabled, settings, ..entry })
}

fn transport(options: &AddOptions) -> Result<McpTransport, Failure> {
    let is_http = match (options.transport, &options.url) {
        (Some(Way::Stdio), Some(_)) => return Err(not_both("`--transport stdio`", "an address")),
        (Some(Way::Http | Way::Sse), None) => {
            let hint = "write it as in `toolrack add --transport http NAME https://host/mcp`";
            return Err(Failure::usage("the address of the server is missing", hint).at("URL"));
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
    given.into_iter().find_map(|(kind, it)| Some((kind, it.as_deref()?)))
}

fn remote(options: &AddOptions) -> Result<McpTransport, Failure> {
    let url = options.url.clone().unwrap_or_default();
    if !url.contains("://") && !is_reference(&url) {
        let message = format!("`{}` is no address", toolrack_config::without_secrets(&url));
        let name = &options.name;
        let hint = format!(
            "an address begins with `https://`; a command comes behind `--`, as in `toolrack add {name} -- npx …`"
        );
        return Err(Failure::usage(message, hint).at("URL"));
    }
    if !options.command.is_empty() {
        return Err(not_both("an address", "a command"));
    }
    let is_local = !options.env.is_empty() || !options.env_secret.is_empty();
    if is_local || options.cwd.is_some() {
        let hint = "send what it needs with `--header 'NAME: VALUE'`";
        let message = "`--env`, `--env-secret` and `--cwd` are for servers that are started here";
        return Err(Failure::usage(message, hint));
    }
    let headers: Result<_, Failure> = options.header.iter().map(|it| parse_header(it)).collect();
    Ok(McpTransport::Http { url, headers: headers? })
}

fn local(options: &AddOptions) -> Result<McpTransport, Failure> {
    no_headers(options)?;
    let Some((command, args)) = options.command.split_first() else {
        let name = &options.name;
        let hint = format!(
            "give a command, `toolrack add {name} -- npx -y some-server`, or an address, \
             `toolrack add {name} https://host/mcp`"
        );
        return Err(Failure::usage("it is not said how the server is started or reached", hint));
    };
    Ok(McpTransport::Stdio {
        command: from_anywhere(command, options.cwd.as_deref()),
        args: args.to_vec(),
        env: variables(options)?,
        cwd: cwd(options),
    })
}

/// The program as it is found from every directory, also from that of a daemon. A bare name is looked up when
/// the server is started.
fn from_anywhere(command: &str, cwd: Option<&Path>) -> String {
    if command.contains('/') && cwd.is_none() { whole(command) } else { command.to_owned() }
}

/// A path from the root, unless it is one already or is only known when the server is started.
fn whole(path: &str) -> String {
    let found = (!is_reference(path)).then(|| std::path::absolute(path).ok()).flatten();
    found.and_then(|it| it.into_os_string().into_string().ok()).unwrap_or_else(|| path.to_owned())
}

fn packaged(
    kind: PackageKind,
    identifier: &str,
    options: &AddOptions,
) -> Result<McpTransport, Failure> {
    no_headers(options)?;
    let (identifier, version) = versioned(kind, identifier);
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

/// A package and its version, as people write them: `name@1.2`, `name==1.2`. A tag is part of its image.
fn versioned(kind: PackageKind, identifier: &str) -> (&str, Option<&str>) {
    let split = match kind {
        PackageKind::Npm => identifier.rsplit_once('@').filter(|(name, _)| !name.is_empty()),
        PackageKind::Pypi => identifier.split_once("==").or_else(|| identifier.split_once('@')),
        _ => None,
    };
    split.map_or((identifier, None), |(name, version)| (name, Some(version)))
}

fn no_headers(options: &AddOptions) -> Result<(), Failure> {
    if options.header.is_empty() {
        return Ok(());
    }
    let hint = "give the server what it needs with `--env NAME=VALUE`";
    Err(Failure::usage("`--header` is for servers over HTTP", hint).at("--header"))
}

fn cwd(options: &AddOptions) -> Option<String> {
    options.cwd.as_ref().map(|it| whole(&it.to_string_lossy()))
}

fn variables(options: &AddOptions) -> Result<HashMap<String, EnvValue>, Failure> {
    let plain = options.env.iter().map(|it| {
        let (name, value) = pair(it, "--env", "NAME=VALUE")?;
        Ok((name, EnvValue::Text(value)))
    });
    let secret = options.env_secret.iter().map(|it| {
        let (name, secret_ref) = pair(it, "--env-secret", "NAME=SECRET")?;
        Ok((name, EnvValue::Secret { secret_ref, required: true }))
    });
    plain.chain(secret).collect()
}

/// The value may be secret, so it is in no error.
fn pair(text: &str, option: &str, shape: &str) -> Result<(String, String), Failure> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) => {
            let message = format!("a `{option}` has no name before its `=`");
            Err(Failure::usage(message, format!("write it as `{option} {shape}`")).at(option))
        }
        None => {
            let message = format!("a `{option}` has no `=`");
            Err(Failure::usage(message, format!("write it as `{option} {shape}`")).at(option))
        }
    }
}

fn not_both(one: &str, other: &str) -> Failure {
    Failure::usage(format!("{one} and {other} exclude each other"), "leave one of them out")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::args::servers::PackageOptions;
    use crate::config_secrets::{self, Values};

    fn told(options: &AddOptions) -> String {
        let config = match draft(options) {
            Ok(entry) => McpConfig::of_entry(&entry),
            Err(failure) => return format!("error: {}", failure.faults()[0].message),
        };
        let (way, target) =
            (config_secrets::transport_name(&config), config_secrets::target(&config));
        let env = json!(config.env_vars.keys().collect::<Vec<_>>());
        let rest = &config_secrets::to_document(&config, Values::Shown)["config"];
        format!("{way} {target} {env} {rest}")
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|&it| it.to_owned()).collect()
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
            assert_eq!(from_anywhere(command, cwd.map(Path::new)), expected);
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
                transport: Some(Way::Sse),
                ..none()
            },
            r#"http https://h/mcp [] {"headers":{"A":"b"}}"#,
        );
        let npm =
            |it: &str| PackageOptions { npm: Some(it.to_owned()), ..PackageOptions::default() };
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
            AddOptions { transport: Some(Way::Http), ..none() },
            "error: the address of the server is missing",
        );
        check(
            AddOptions { transport: Some(Way::Stdio), url: url(), ..none() },
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
