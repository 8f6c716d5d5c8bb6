//! `toolrack doctor`: checks the home directory, the config and each server, stage by stage, and
//! suggests fixes.
//!
//! Servers that work here but fail in the daemon usually differ by environment; the last check
//! covers them.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use futures_util::future::join_all;
use serde::Serialize;
use toolrack::Environment;
use toolrack_auth::LoginStatus;
use toolrack_config::{
    Lookup as _, McpServerConfig, ResolvedTransport, VariableSource, interpolate,
};
use toolrack_daemon::{KeyEntry, KeyFile};
use toolrack_manager::ErrorKind;
use toolrack_service::{
    ErrorCode, ErrorDetail, InsecureHome, InsecurePath, LocalService, McpConfig, McpService as _,
};
use toolrack_stdio::find_program;
use toolrack_transport::sanitize_line;
use uuid::Uuid;

use crate::commands::{Context, keys};
use crate::config_service::{count_servers, find_config, with_service};
use crate::daemon_client::{self, Status};
use crate::error::{CliError, ExitCode, command, server_command};
use crate::server_selection::{Servers, Warnings};
use crate::server_session::token_hint;
use crate::settings::Settings;

const MAX_CHARS: usize = 500;

/// Result of one check.
#[derive(Debug, Clone, Serialize)]
struct Finding {
    detail: String,
    fix: Option<String>,
    #[serde(rename = "health")]
    outcome: Outcome,
    #[serde(rename = "layer")]
    stage: &'static str,
    /// `None` for checks that concern all servers.
    server: Option<String>,
}

/// Outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "&'static str")]
enum Outcome {
    Ok,
    /// Not checked any further.
    Skipped,
    Warning,
    Fail(ExitCode),
}

impl From<Outcome> for &'static str {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Ok => "ok",
            Outcome::Skipped => "skipped",
            Outcome::Warning => "warning",
            Outcome::Fail(_) => "fail",
        }
    }
}

impl Finding {
    fn ok(stage: &'static str, detail: impl Into<String>) -> Self {
        Self { server: None, stage, outcome: Outcome::Ok, detail: detail.into(), fix: None }
    }

    fn fail(stage: &'static str, exit_code: ExitCode, detail: String, fix: String) -> Self {
        Self { server: None, stage, outcome: Outcome::Fail(exit_code), detail, fix: Some(fix) }
    }

    fn for_server(self, server: &str) -> Self {
        Self { server: Some(server.to_owned()), ..self }
    }

    fn line(&self) -> String {
        let server = self.server.as_ref().map(|server| format!("{server}: ")).unwrap_or_default();
        let (stage, outcome) = (self.stage, <&str>::from(self.outcome));
        let detail = sanitize_line(&self.detail, MAX_CHARS);
        let fix = self.fix.as_ref().map(|fix| sanitize_line(fix, MAX_CHARS));
        let fix = fix.map(|fix| format!("\n         fix: {fix}")).unwrap_or_default();
        format!("{outcome:<8} {server}{stage}: {detail}{fix}")
    }
}

/// Runs all checks, or those of one server.
pub(crate) async fn doctor(wanted: Option<String>, context: &Context) -> Result<(), CliError> {
    let home = context.settings.unchecked_home()?;
    let mut findings = vec![check_home(home.dir()), check_secrets(&home.secrets_dir())];
    findings.extend(check_keys(&KeyFile::new(home)));
    findings.extend(check_permissions(&context.settings));
    if context.settings.home().is_err() {
        // A config that another user may have written is not even read.
        return report(&findings, context);
    }
    let servers = match Servers::configured(Warnings::All, context) {
        Ok(servers) => servers,
        Err(failure) => {
            findings.extend(failure.error_details().map(|error_detail| {
                let fix = error_detail.hint.clone().unwrap_or_default();
                Finding::fail("config", failure.exit_code, error_detail.message.clone(), fix)
            }));
            return report(&findings, context);
        }
    };
    if let Some(name) = &wanted {
        servers.server(name)?;
    }
    let file = home.config_file().display();
    let detail = if home.config_file().exists() {
        format!("{file} is valid, with {}", count_servers(servers.configs.len()))
    } else {
        format!("{file} does not exist yet; {} creates it", command("add"))
    };
    findings.push(Finding::ok("config", detail));
    let configs = servers.configs.clone();
    let is_wanted =
        |server: &&McpServerConfig| wanted.as_ref().is_none_or(|name| *name == server.name);
    let wanted = configs.iter().filter(is_wanted);
    let environment = Environment::from_process().with_base_dir(&servers.dir);
    let check_all = async |service: &LocalService| {
        let each = join_all(wanted.map(async |server| {
            let found = check_server(service, server, &environment).await.into_iter();
            found.map(|finding| finding.for_server(&server.name)).collect::<Vec<_>>()
        }));
        context.run_cancellable(async { Ok(each.await.concat()) }).await
    };
    let server_findings = with_service(servers.into_input(), None, context, check_all).await?;
    let daemon_findings = check_daemon(&server_findings, context).await?;
    findings.extend(server_findings);
    findings.extend(daemon_findings);
    report(&findings, context)
}

fn report(findings: &[Finding], context: &Context) -> Result<(), CliError> {
    context.printer.lines(findings, Finding::line);
    let failed = findings.iter().filter_map(|finding| match finding.outcome {
        Outcome::Fail(exit_code) => Some(exit_code),
        _ => None,
    });
    let failed: Vec<ExitCode> = failed.collect();
    let Some(first) = failed.first() else { return Ok(()) };
    let code = match first {
        ExitCode::Auth => ErrorCode::Unauthorized,
        ExitCode::Config => ErrorCode::ValidationError,
        _ => ErrorCode::ServiceUnavailable,
    };
    let checks = if failed.len() == 1 { "check" } else { "checks" };
    let message = format!("{} {checks} failed", failed.len());
    let hint = format!("apply each `fix:`, then run {} again", command("doctor"));
    Err(CliError::new(*first, code, message, hint))
}

/// Checks the data directory.
fn check_home(dir: &Path) -> Finding {
    let path = dir.display();
    let (detail, fix) = match std::fs::metadata(dir) {
        Ok(about) if !about.is_dir() => (
            format!("{path} is not a directory"),
            "move it away, or set `TOOLRACK_HOME` to a directory".to_owned(),
        ),
        Ok(_) => match check_writable(dir) {
            Ok(()) => return Finding::ok("home", format!("{path} exists")),
            Err(error) => (
                format!("{path} is not writable: {error}"),
                format!("run `chmod u+rwx {path}`, or set `TOOLRACK_HOME` to another directory"),
            ),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let mut ancestors = dir.ancestors().skip(1);
            let parent = ancestors.find(|dir| dir.exists()).unwrap_or(Path::new("/"));
            let Err(error) = check_writable(parent) else {
                return Finding::ok("home", format!("{path} is created when needed"));
            };
            let parent = parent.display();
            let fix = format!(
                "check the permissions of {parent}, or set `TOOLRACK_HOME` to another directory"
            );
            (format!("cannot create {path}: {parent}: {error}"), fix)
        }
        Err(error) => (
            format!("{path}: {error}"),
            format!("check the permissions of {path} and its parent directories"),
        ),
    };
    Finding::fail("home", ExitCode::Config, detail, fix)
}

/// Paths of the home that other users can change.
fn check_permissions(settings: &Settings) -> Vec<Finding> {
    let finding = |insecure: &InsecurePath| {
        let is_allowed = settings.insecure_home == InsecureHome::Allow;
        let is_refused = insecure.exposure.is_refused() && !is_allowed;
        let outcome = if is_refused { Outcome::Fail(ExitCode::Config) } else { Outcome::Warning };
        let fix = Some(format!("run `{}`", insecure.repair_command()));
        Finding { fix, outcome, ..Finding::ok("permissions", insecure.to_string()) }
    };
    let found: Vec<Finding> = settings.insecure_paths().iter().map(finding).collect();
    if found.is_empty() {
        return vec![Finding::ok("permissions", "no other user can change the config or the data")];
    }
    found
}

/// Whether files can be created in a directory, without creating one.
fn check_writable(dir: &Path) -> std::io::Result<()> {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    Ok(accessat(CWD, dir, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)?)
}

/// Checks that the secrets directory is private.
fn check_secrets(dir: &Path) -> Finding {
    let path = dir.display();
    match std::fs::metadata(dir) {
        Ok(about) if about.permissions().mode() & 0o077 != 0 => Finding {
            outcome: Outcome::Warning,
            fix: Some(format!("run `chmod 700 {path}`")),
            ..Finding::ok("secrets", format!("{path} is accessible to other users"))
        },
        Ok(_) => Finding::ok("secrets", format!("{path} is private")),
        Err(_absent) => Finding::ok("secrets", "none stored"),
    }
}

/// Checks one server, up to the first failure.
async fn check_server(
    service: &LocalService,
    server: &McpServerConfig,
    environment: &Environment,
) -> Vec<Finding> {
    let name = &server.name;
    let config = match find_config(service, name) {
        Ok(config) if config.enabled => config,
        Ok(_) => {
            return vec![Finding {
                outcome: Outcome::Skipped,
                fix: Some(format!("enable it with {}, if needed", server_command("enable", name))),
                ..Finding::ok("start", "server is disabled")
            }];
        }
        Err(_gone) => return Vec::new(),
    };
    let lookup = |source: VariableSource, name: &str| match source {
        VariableSource::Secret => {
            let found =
                service.secrets().get_for_server(name).map_err(|error| error.to_string())?;
            Ok(found.map(|secret| secret.reveal().to_owned()))
        }
        _ => environment.look_up(source, name),
    };
    let resolved = match interpolate(server, &lookup) {
        Ok(resolved) => resolved,
        Err(missing) => {
            let fix = format!(
                "set the variable, store the secret with `toolrack secret set NAME`, or change \
                 the server with {}",
                server_command("edit", name)
            );
            let fail =
                |detail: String| Finding::fail("values", ExitCode::Config, detail, fix.clone());
            return missing.iter().map(|value| fail(value.to_string())).collect();
        }
    };
    let mut findings =
        vec![Finding::ok("values", "all variables, secrets and files are available")];
    findings.extend(check_program(&resolved, name));
    if findings.iter().all(|finding| finding.outcome == Outcome::Ok) {
        findings.extend(check_login(service, &config).await);
        findings.push(check_connection(service, config.id, server).await);
    }
    findings
}

/// Checks that the program of a local server exists.
fn check_program(resolved: &ResolvedTransport, server: &str) -> Option<Finding> {
    let ResolvedTransport::Stdio { command, cwd, .. } = resolved else { return None };
    let command = command.clone().into_revealed();
    // A relative path depends on the working directory; starting the server will tell.
    if command.contains('/') && cwd.is_some() {
        return None;
    }
    Some(match find_program(&command, None) {
        Ok(path) => Finding::ok("program", path.display().to_string()),
        Err(error) => {
            let edit = server_command("edit", server);
            let fix = format!("install it, or set its full path with {edit}");
            Finding::fail("program", ExitCode::Unreachable, error.to_string(), fix)
        }
    })
}

/// Checks the login of a server over HTTP.
async fn check_login(service: &LocalService, config: &McpConfig) -> Option<Finding> {
    let authorizer = service.authorizer(config.id).ok()?;
    Some(match authorizer.status().await {
        Ok(LoginStatus::LoggedIn { issuer, .. }) => {
            Finding::ok("login", format!("logged in via {issuer}"))
        }
        Ok(_) => Finding::ok("login", "not logged in; not every server requires it"),
        Err(error) => {
            let logout = server_command("logout", &config.name);
            let fix = format!("run {logout}, then {}", server_command("login", &config.name));
            Finding::fail("login", ExitCode::Auth, error.to_string(), fix)
        }
    })
}

/// Starts or connects to a server, and reports the stage that failed.
async fn check_connection(service: &LocalService, id: Uuid, server: &McpServerConfig) -> Finding {
    let name = &server.name;
    let started = service.start(id).await;
    let connection = service.manager().server(name).ok();
    let Err(error) = started else {
        let (offered, total) = connection.map_or((0, 0), |connection| {
            (connection.n_tools(), connection.tool_list().map_or(0, |listing| listing.items.len()))
        });
        return Finding::ok("tools", format!("{offered} of {total} available"));
    };
    let failure = connection.and_then(|connection| connection.state().failure().cloned());
    let (stage, exit_code, usual_fix) =
        classify_failure(failure.as_ref().map(toolrack_manager::Failure::kind), server);
    let hint = failure.as_ref().and_then(|failure| failure.hint()).map(str::to_owned);
    let detail = failure.map_or_else(|| error.to_string(), |failure| failure.reason().to_owned());
    // The server's last output is a clue, not yet a fix.
    let fix = match (hint, stage) {
        (Some(hint), "start" | "handshake" | "package") => format!("{hint}; {usual_fix}"),
        (Some(hint), "connect" | "values") => hint,
        _ => usual_fix,
    };
    Finding::fail(stage, exit_code, detail, fix)
}

/// The failed stage, the exit code and the usual fix for a kind of failure.
fn classify_failure(
    kind: Option<ErrorKind>,
    server: &McpServerConfig,
) -> (&'static str, ExitCode, String) {
    let run = |verb: &str| server_command(verb, &server.name);
    let logs = format!("see its output with {}", run("logs"));
    let (stage, fix) = match kind {
        Some(
            ErrorKind::MissingTool
            | ErrorKind::PackageNotFound
            | ErrorKind::InstallFailed
            | ErrorKind::InstallTimedOut
            | ErrorKind::DockerNotRunning,
        ) => ("package", format!("change the package with {}", run("edit"))),
        Some(ErrorKind::BadConfig | ErrorKind::MissingCredentials) => {
            ("values", format!("change it with {}", run("edit")))
        }
        Some(ErrorKind::NeedsLogin) if server.has_authorization() => ("login", token_hint(server)),
        Some(ErrorKind::NeedsLogin) => ("login", format!("log in with {}", run("login"))),
        Some(ErrorKind::Unreachable) => {
            ("connect", format!("check the URL with {}, the network and the proxy", run("get")))
        }
        Some(ErrorKind::HandshakeTimedOut) => {
            let about = "it may not be an MCP server, or it needs a longer `startup_timeout`";
            ("handshake", format!("{about}; {logs}"))
        }
        Some(ErrorKind::Refused) => ("handshake", format!("it may not be an MCP server; {logs}")),
        _ => ("start", logs),
    };
    let exit_code = match stage {
        "values" => ExitCode::Config,
        "login" => ExitCode::Auth,
        _ => ExitCode::Unreachable,
    };
    (stage, exit_code, fix)
}

/// Failures in the daemon of servers that work here. Other servers have been reported already.
async fn check_daemon(
    server_findings: &[Finding],
    context: &Context,
) -> Result<Vec<Finding>, CliError> {
    let Some(daemon) = daemon_client::find(&context.settings)? else { return Ok(Vec::new()) };
    let healthy = healthy_servers(server_findings);
    Ok(match daemon.statuses().await {
        Ok(all) => all
            .iter()
            .filter(|status| healthy.contains(status.name.as_str()))
            .filter_map(daemon_finding)
            .collect(),
        Err(failure) => {
            let fix = failure.hint().unwrap_or_default().to_owned();
            vec![Finding::fail("daemon", failure.exit_code, failure.summary().message, fix)]
        }
    })
}

/// Keys that should be replaced, or why the keys cannot be read.
fn check_keys(file: &KeyFile) -> Vec<Finding> {
    let entries = match file.list() {
        Ok(entries) => entries,
        Err(error) => {
            let failure = CliError::from(error);
            let (exit_code, detail) = (failure.exit_code, failure.summary().message);
            let fix = failure.hint().unwrap_or_default().to_owned();
            return vec![Finding::fail("keys", exit_code, detail, fix)];
        }
    };
    let legacy = entries.iter().filter(|entry| entry.legacy);
    let warning = |entry: &KeyEntry| Finding {
        outcome: Outcome::Warning,
        fix: Some(keys::legacy_fix(entry)),
        ..Finding::ok("keys", keys::legacy_warning(entry))
    };
    legacy.map(warning).collect()
}

/// Servers without any failed or skipped check.
fn healthy_servers(findings: &[Finding]) -> BTreeSet<&str> {
    let (mut good, mut others) = (BTreeSet::new(), BTreeSet::new());
    for finding in findings {
        let named = if finding.outcome == Outcome::Ok { &mut good } else { &mut others };
        named.extend(finding.server.as_deref());
    }
    &good - &others
}

/// The failure of a server in the daemon, if it has one.
fn daemon_finding(status: &Status) -> Option<Finding> {
    let ErrorDetail { code, message, hint, .. } = status.problem.clone()?.with_reason_as_message();
    let name = &status.name;
    let exit_code = match code {
        // A missing program or package, not a mistyped name.
        ErrorCode::NotFound => ExitCode::Unreachable,
        code => ExitCode::from_error_code(code),
    };
    let usual_fix = || {
        let (restart, logs) = (server_command("restart", name), server_command("logs", name));
        format!("restart it with {restart}, and see its output with {logs}")
    };
    let (detail, fix) = (format!("not running: {message}"), hint.unwrap_or_else(usual_fix));
    Some(Finding::fail("daemon", exit_code, detail, fix).for_server(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolrack_config::McpTransport;

    #[test]
    fn findings_print_the_fix() {
        let failed =
            Finding::fail("start", ExitCode::Unreachable, "exit\u{7} 3".into(), "repair it".into());
        assert_eq!(
            failed.for_server("it").line(),
            "fail     it: start: exit 3\n         fix: repair it"
        );
        assert_eq!(Finding::ok("home", "there").line(), "ok       home: there");
    }

    #[test]
    fn unwritable_home_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("above/home");
        assert_eq!(check_home(&home).outcome, Outcome::Ok);
        if rustix::process::geteuid().is_root() {
            let reason = "root may write everywhere";
            return toolrack_testkit::skipped("unwritable_home_is_reported", reason);
        }
        let mode =
            |mode| std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode));
        mode(0o500).unwrap();
        for dir in [&home, dir.path()] {
            let finding = check_home(dir);
            assert_eq!(finding.outcome, Outcome::Fail(ExitCode::Config), "{finding:?}");
        }
        mode(0o700).unwrap();
    }

    #[track_caller]
    fn check(kind: ErrorKind, stage: &str, exit_code: ExitCode) {
        let server = McpServerConfig::http("it", "http://host/mcp");
        let (found, code, fix) = classify_failure(Some(kind), &server);
        assert_eq!((found, code), (stage, exit_code), "{kind:?}");
        assert!(fix.contains("it"), "{fix}");
    }

    #[test]
    fn every_failure_has_a_stage_and_a_fix() {
        check(ErrorKind::MissingTool, "package", ExitCode::Unreachable);
        check(ErrorKind::BadConfig, "values", ExitCode::Config);
        check(ErrorKind::NeedsLogin, "login", ExitCode::Auth);
        check(ErrorKind::Unreachable, "connect", ExitCode::Unreachable);
        check(ErrorKind::HandshakeTimedOut, "handshake", ExitCode::Unreachable);
        check(ErrorKind::Exited, "start", ExitCode::Unreachable);
        let mut server = McpServerConfig::http("it", "http://host/mcp");
        if let McpTransport::Http { headers, .. } = &mut server.transport {
            headers.insert("authorization".to_owned(), "Bearer ${TOKEN}".to_owned());
        }
        let (_, _, fix) = classify_failure(Some(ErrorKind::NeedsLogin), &server);
        assert_eq!(fix, "change the token in its headers with `toolrack edit it`");
    }

    #[test]
    fn healthy_servers_have_only_ok_findings() {
        let good = |name| Finding::ok("values", "there").for_server(name);
        let failed =
            Finding::fail("start", ExitCode::Unreachable, "exit 3".into(), "repair it".into());
        let skipped = Finding { outcome: Outcome::Skipped, ..Finding::ok("start", "disabled") };
        let findings = [
            Finding::ok("home", "there"),
            good("a"),
            good("b"),
            failed.for_server("b"),
            skipped.for_server("c"),
            good("d"),
        ];
        assert_eq!(healthy_servers(&findings), BTreeSet::from(["a", "d"]));
    }
}
