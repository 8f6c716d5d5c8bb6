//! `toolrack list`, `get` and `status`: configured servers, their configuration and their state.
//!
//! The state comes from the daemon, from the last recorded start, or from starting the servers
//! (`status --check`).

use serde_json::{Value, json};
use toolrack_platform::unix_time_ms;
use toolrack_service::{
    ErrorCode, ErrorDetail, LocalService, LogKind, LogLine, McpConfig, McpService as _, McpStatus,
    StatusDetail,
};

use crate::args::servers::{GetOptions, StatusOptions};
use crate::check_server::{self, Process, ProcessTable, ServerCheck, check_server};
use crate::config_secrets::{self, Values};
use crate::config_service::{config_path, with_server, with_service};
use crate::context::Context;
use crate::daemon_client::{self, Daemon, Status};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::fan_out::last_outcome;
use crate::output::{self, List};
use crate::server_selection::Servers;
use crate::suggested_command::{command, command_line, shell_quote};

/// A server with its known state.
#[derive(Debug)]
struct ServerRow {
    config: McpConfig,
    /// Whether its headers contain a token, so that `login` does not apply.
    has_token: bool,
    n_tools: usize,
    n_tools_total: Option<usize>,
    /// Outcome of the last start, from the log.
    last: Option<LogLine>,
    checked: Option<Result<ServerCheck, CliError>>,
    /// Status in the daemon, and the processes there.
    daemon: Option<(Status, Vec<Process>)>,
}

/// The printed state of a server.
#[derive(Debug, PartialEq, Eq)]
struct ServerState {
    state: &'static str,
    detail: String,
    next: String,
}

/// Prints the status of one or all servers.
pub(crate) async fn status(options: StatusOptions, context: &Context) -> Result<(), CliError> {
    let servers = Servers::configured(context)?;
    if let Some(name) = &options.server {
        servers.server(name)?;
    }
    let is_wanted = |name: &str| options.server.as_deref().is_none_or(|wanted| wanted == name);
    let with_token = servers.configs.iter().filter(|config| config.has_authorization());
    let with_token: Vec<String> = with_token.map(|config| config.name.clone()).collect();
    let find_rows = async |service: &LocalService| {
        let configs = service.list().into_iter().filter(|config| is_wanted(&config.name));
        Ok(configs.map(|config| last_known(service, config, &with_token)).collect::<Vec<_>>())
    };
    let mut rows = with_service(servers.into_input(), None, context, find_rows).await?;
    if options.check {
        // One at a time, so that the processes can be attributed to their server.
        for row in rows.iter_mut().filter(|row| row.config.enabled) {
            row.checked = Some(check_server(&row.config.name, context).await);
            if context.cancellation.is_cancelled() {
                return Err(CliError::interrupted());
            }
        }
    } else if let Some(daemon) = daemon_client::find(&context.settings)? {
        add_daemon_status(&daemon, &mut rows).await?;
    } else {
        context.printer.note(
            "note: without a daemon, servers run only during a command; use `--check` to start and \
             check them",
        );
    }
    let now = unix_time_ms();
    context.printer.list(&List {
        columns: &["NAME", "STATE", "TRANSPORT", "TOOLS", "PROCESSES", "DETAIL", "NEXT"],
        rows: rows.iter().map(|row| status_row(row, now)).collect(),
        items: rows.iter().map(|row| status_json(row, now).to_string()).collect(),
    });
    match rows.iter().find_map(|row| row.checked.as_ref()?.as_ref().err()) {
        None => Ok(()),
        Some(first) => Err(CliError::new(
            first.exit_code(),
            first.summary().code,
            "some servers failed the check",
            format!("run {} for details", command("doctor")),
        )),
    }
}

/// Adds the status from the daemon.
async fn add_daemon_status(daemon: &Daemon, rows: &mut [ServerRow]) -> Result<(), CliError> {
    let statuses = daemon.statuses().await?;
    let process_table = ProcessTable::read();
    for row in rows {
        let Some(status) = statuses.iter().find(|one| one.name == row.config.name) else {
            continue;
        };
        (row.n_tools, row.n_tools_total) = (status.n_tools, status.n_tools_total);
        let processes =
            status.process.map(|pid| process_table.descendants(pid)).unwrap_or_default();
        row.daemon = Some((status.clone(), processes));
    }
    Ok(())
}

fn last_known(service: &LocalService, config: McpConfig, with_token: &[String]) -> ServerRow {
    let detail: Option<StatusDetail> = service.status_detail(config.id);
    let log = service.logs().read(config.id).unwrap_or_default();
    ServerRow {
        has_token: with_token.contains(&config.name),
        n_tools: detail.as_ref().map_or(0, |detail| detail.n_tools),
        n_tools_total: detail.and_then(|detail| detail.n_tools_total),
        last: last_outcome(log),
        checked: None,
        daemon: None,
        config,
    }
}

fn state_of(row: &ServerRow, now: u64) -> ServerState {
    let name = shell_quote(&row.config.name);
    let run = |verb: &str| command_line(format_args!("{verb} {name}"));
    let tell = |state, detail: String, next| ServerState { state, detail, next };
    let unauthorized =
        if row.has_token { ("needs token", "edit") } else { ("needs login", "login") };
    if !row.config.enabled {
        return tell("disabled", String::new(), run("enable"));
    }
    if let Some((status, _)) = &row.daemon {
        let (state, detail, verb) = daemon_state_of(status, unauthorized);
        return tell(state, detail, run(verb));
    }
    match (&row.checked, &row.last) {
        (Some(Ok(checked)), _) => tell("ok", checked.describe(), run("tools")),
        (Some(Err(failure)), _) => {
            let message = failure.summary().message;
            match failure.exit_code() {
                ExitCode::Auth => tell(unauthorized.0, message, run(unauthorized.1)),
                _ => tell("failed", message, run("doctor")),
            }
        }
        (None, None) => tell("unknown", "never started".to_owned(), run("start")),
        (None, Some(last)) => {
            let when = output::format_ago(last.at, now);
            match last.kind {
                LogKind::Ready => tell("idle", format!("last start {when}"), run("tools")),
                LogKind::NeedsLogin => tell(unauthorized.0, when, run(unauthorized.1)),
                _ => tell("failed", format!("{when}: {}", last.text), run("doctor")),
            }
        }
    }
}

/// State, detail and next command of a server in the daemon. `unauthorized` holds the state and the
/// command for a server that needs credentials.
fn daemon_state_of(
    status: &Status,
    unauthorized: (&'static str, &'static str),
) -> (&'static str, String, &'static str) {
    match &status.state {
        McpStatus::Running { .. } => ("running", String::new(), "tools"),
        McpStatus::Starting => ("starting", status.phase.clone(), "logs -f"),
        McpStatus::Disabled => ("disabled", String::new(), "enable"),
        McpStatus::Stopped => ("stopped", String::new(), "start"),
        McpStatus::Error { message } => {
            match status.problem.clone().map(ErrorDetail::with_reason_as_message) {
                Some(problem) if problem.code == ErrorCode::Unauthorized => {
                    (unauthorized.0, problem.message, unauthorized.1)
                }
                problem => {
                    let message =
                        problem.map_or_else(|| message.clone(), |problem| problem.message);
                    let retry =
                        status.retry_in_ms.map(|ms| format!("; retry in {} s", ms.div_ceil(1000)));
                    ("failed", format!("{message}{}", retry.unwrap_or_default()), "doctor")
                }
            }
        }
    }
}

fn tool_count(row: &ServerRow) -> String {
    let (offered, total) = match &row.checked {
        Some(Ok(checked)) => (checked.n_tools, Some(checked.n_tools_total)),
        _ => (row.n_tools, row.n_tools_total),
    };
    total.map_or_else(|| "?".to_owned(), |total| format!("{offered}/{total}"))
}

fn status_row(row: &ServerRow, now: u64) -> Vec<String> {
    let ServerState { state, detail, next } = state_of(row, now);
    let processes = match (&row.checked, &row.daemon) {
        (Some(Ok(checked)), _) => check_server::summarize_processes(&checked.processes),
        (_, Some((_, processes))) if !processes.is_empty() => {
            check_server::summarize_processes(processes)
        }
        _ => "-".to_owned(),
    };
    let transport = config_secrets::transport_name(&row.config).to_owned();
    let name = config_secrets::display_line(&row.config.name);
    vec![name, state.to_owned(), transport, tool_count(row), processes, detail, next]
}

fn status_json(row: &ServerRow, now: u64) -> Value {
    let ServerState { state, detail, next } = state_of(row, now);
    let (check, problem) = match &row.checked {
        None => {
            let problem = row.daemon.as_ref().and_then(|(status, _)| status.problem.as_ref());
            (Value::Null, json!(problem))
        }
        Some(Ok(checked)) => (checked.to_json(), Value::Null),
        Some(Err(failure)) => (Value::Null, json!(failure.summary())),
    };
    let processes = row.daemon.as_ref().map(|(_, processes)| processes.as_slice());
    let processes: Vec<Value> =
        processes.unwrap_or_default().iter().map(Process::to_json).collect();
    json!({
        "name": row.config.name,
        "id": row.config.id,
        "state": state,
        "way": config_secrets::transport_name(&row.config),
        "n_tools": row.n_tools,
        "n_tools_total": row.n_tools_total,
        "detail": detail,
        "next": next,
        "last_at": row.last.as_ref().map(|line| output::format_utc(line.at)),
        "check": check,
        "problem": problem,
        "processes": processes,
    })
}

/// Lists the configured servers.
pub(crate) async fn list(context: &Context) -> Result<(), CliError> {
    let printer = &context.printer;
    // Prints warnings about the file, and rejects an unknown agent.
    let servers = Servers::configured(context)?;
    let list = async |service: &LocalService| Ok(service.list());
    let configs = with_service(servers.into_input(), None, context, list).await?;
    if configs.is_empty() {
        printer.note(format_args!("note: no servers configured; {}", Servers::how_to_add()));
    }
    printer.list(&List {
        columns: &["NAME", "ENABLED", "TRANSPORT", "TARGET"],
        rows: configs.iter().map(list_row).collect(),
        items: configs
            .iter()
            .map(|config| config_secrets::to_document(config, Values::Hidden).to_string())
            .collect(),
    });
    Ok(())
}

fn list_row(config: &McpConfig) -> Vec<String> {
    let name = config_secrets::display_line(&config.name);
    let enabled = if config.enabled { "yes" } else { "no" };
    let transport = config_secrets::transport_name(config);
    vec![name, enabled.to_owned(), transport.to_owned(), config_secrets::target(config)]
}

/// Prints a server's configuration. Values that may be secret are redacted, unless requested.
pub(crate) async fn get(options: GetOptions, context: &Context) -> Result<(), CliError> {
    let found =
        async |service: &LocalService, config: McpConfig| Ok((config, config_path(service)));
    let (config, file) = with_server(&options.server, None, context, found).await?;
    let values = if options.show_values { Values::Shown } else { Values::Hidden };
    let document = config_secrets::to_document(&config, values);
    context.printer.show(render_config(&config, &document, &file), &document);
    Ok(())
}

/// One setting per line.
fn render_config(config: &McpConfig, document: &Value, file: &str) -> String {
    let mut lines = vec![
        key_line("name", &config.name),
        key_line("enabled", if config.enabled { "yes" } else { "no" }),
        key_line("transport", config_secrets::transport_name(config)),
        key_line("target", &config_secrets::target(config)),
    ];
    let variables = document.get("env_vars");
    for (name, variable) in &config.env_vars {
        let value = variables
            .and_then(|variables| variables.get(name)?.get("value")?.as_str())
            .unwrap_or_default();
        let value = match (&variable.secret_ref, variable.required) {
            (Some(secret), true) => format!("secret `{secret}`"),
            (Some(secret), false) => format!("secret `{secret}`, if stored"),
            (None, _) => value.to_owned(),
        };
        lines.push(key_line("env", &format!("{name}={value}")));
    }
    let rest = document.get("config").and_then(Value::as_object);
    for (key, value) in rest.into_iter().flatten().filter(|(key, _)| *key != "args") {
        match value {
            Value::Object(members) => {
                lines.extend(members.iter().map(|(name, value)| {
                    key_line(key, &format!("{name}: {}", render_value(value)))
                }));
            }
            value => lines.push(key_line(key, &render_value(value))),
        }
    }
    lines.push(key_line("id", &config.id.to_string()));
    lines.push(key_line("file", file));
    lines.join("\n")
}

fn key_line(key: &str, value: &str) -> String {
    format!("{key:<16} {}", config_secrets::display_line(value))
}

fn render_value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(render_value).collect::<Vec<_>>().join(", "),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(last: Option<LogKind>) -> ServerRow {
        let config = json!({
            "name": "it", "transport": "stdio",
            "package": { "package_type": "binary", "identifier": "x" },
        });
        let line = |kind| LogLine { at: 0, kind, text: "exit 3".to_owned() };
        let config = McpConfig::from_json(&config).unwrap();
        let last = last.map(line);
        ServerRow {
            config,
            has_token: false,
            n_tools: 1,
            n_tools_total: Some(2),
            last,
            checked: None,
            daemon: None,
        }
    }

    #[track_caller]
    fn check(known: &ServerRow, expected: [&str; 3]) {
        let ServerState { state, detail, next } = state_of(known, 120_000);
        assert_eq!([state, &detail, &next], expected);
    }

    #[test]
    fn every_state_has_a_next_command() {
        let mut disabled = known(None);
        disabled.config.enabled = false;
        check(&disabled, ["disabled", "", "toolrack enable it"]);
        check(&known(None), ["unknown", "never started", "toolrack start it"]);
        let mut hostile = known(None);
        hostile.config.name = "$(touch\u{202e} x)".to_owned();
        check(&hostile, ["unknown", "never started", "toolrack start '$(touch x)'"]);
        let last = |kind| known(Some(kind));
        check(&last(LogKind::Ready), ["idle", "last start 2 min ago", "toolrack tools it"]);
        check(&last(LogKind::Failure), ["failed", "2 min ago: exit 3", "toolrack doctor it"]);
        check(&last(LogKind::NeedsLogin), ["needs login", "2 min ago", "toolrack login it"]);
        let mut tried = last(LogKind::Ready);
        let failure = CliError::new(ExitCode::Auth, ErrorCode::Unauthorized, "no token", "log in");
        tried.checked = Some(Err(failure));
        check(&tried, ["needs login", "no token", "toolrack login it"]);
        assert_eq!(tool_count(&tried), "1/2");
        tried.has_token = true;
        check(&tried, ["needs token", "no token", "toolrack edit it"]);
        let unauthorized = ServerRow { has_token: true, ..last(LogKind::NeedsLogin) };
        check(&unauthorized, ["needs token", "2 min ago", "toolrack edit it"]);
    }

    #[track_caller]
    fn check_live(state: McpStatus, problem: Option<ErrorDetail>, expected: [&str; 3]) {
        let status = Status {
            id: uuid::Uuid::nil(),
            name: "it".to_owned(),
            state,
            phase: "connecting".to_owned(),
            problem,
            n_tools: 1,
            n_tools_total: None,
            retry_in_ms: Some(1200),
            process: None,
        };
        let daemon = Some((status, Vec::new()));
        check(&ServerRow { daemon, ..known(Some(LogKind::Failure)) }, expected);
    }

    #[test]
    fn daemon_status_overrides_the_log() {
        let running = McpStatus::Running { tools: Vec::new() };
        check_live(running, None, ["running", "", "toolrack tools it"]);
        check_live(McpStatus::Starting, None, ["starting", "connecting", "toolrack logs -f it"]);
        check_live(McpStatus::Stopped, None, ["stopped", "", "toolrack start it"]);
        let error = || McpStatus::Error { message: "exit 3".to_owned() };
        check_live(error(), None, ["failed", "exit 3; retry in 2 s", "toolrack doctor it"]);
        let worded = ErrorDetail {
            reason: Some("no `npx`".to_owned()),
            ..ErrorDetail::new(ErrorCode::NotFound, "exit 3")
        };
        check_live(
            error(),
            Some(worded),
            ["failed", "no `npx`; retry in 2 s", "toolrack doctor it"],
        );
        let login = ErrorDetail::new(ErrorCode::Unauthorized, "exit 3");
        check_live(error(), Some(login), ["needs login", "exit 3", "toolrack login it"]);
    }
}
