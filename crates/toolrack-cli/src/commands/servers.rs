//! `toolrack list`, `get` and `status`: configured servers, their configuration and their state;
//! the health check of a server.
//!
//! The state comes from the daemon, from the last recorded start, or from starting the servers
//! (`status --check`).

use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use toolrack_platform::{Process, ProcessTable, unix_time_ms};
use toolrack_service::{
    ErrorCode, ErrorDetail, LocalService, LogKind, LogLine, McpConfig, McpService as _, McpStatus,
};

use crate::args::{GetOptions, RequestOptions, StatusOptions};
use crate::commands::Context;
use crate::config_secrets;
use crate::config_service::{config_path, with_server, with_service};
use crate::daemon_client::{self, Status};
use crate::error::{CliError, ExitCode, command, command_line, shell_quote};
use crate::printer::{List, format_ago, format_utc};
use crate::server_selection::{Servers, Warnings};
use crate::server_session::{ServerSession, last_outcome, with_session};

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

/// Prints the status of one or all servers.
pub(crate) async fn status(options: StatusOptions, context: &Context) -> Result<(), CliError> {
    let servers = Servers::configured(Warnings::Usual, context)?;
    if let Some(name) = &options.server {
        servers.server(name)?;
    }
    let is_wanted = |name: &str| options.server.as_deref().is_none_or(|wanted| wanted == name);
    let with_token = servers.configs.iter().filter(|config| config.has_authorization());
    let with_token: Vec<String> = with_token.map(|config| config.name.clone()).collect();
    let find_rows = async |service: &LocalService| {
        let configs = service.list().into_iter().filter(|config| is_wanted(&config.name));
        let last_known = |config: McpConfig| {
            let detail = service.status_detail(config.id);
            ServerRow {
                has_token: with_token.contains(&config.name),
                n_tools: detail.as_ref().map_or(0, |detail| detail.n_tools),
                n_tools_total: detail.and_then(|detail| detail.n_tools_total),
                last: last_outcome(service.logs().read(config.id).unwrap_or_default()),
                checked: None,
                daemon: None,
                config,
            }
        };
        Ok(configs.map(last_known).collect::<Vec<_>>())
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
        let statuses = daemon.statuses().await?;
        let process_table = ProcessTable::scan();
        for row in &mut rows {
            let Some(status) = statuses.iter().find(|one| one.name == row.config.name) else {
                continue;
            };
            (row.n_tools, row.n_tools_total) = (status.n_tools, status.n_tools_total);
            let processes = status.process.map(|pid| process_table.descendants(pid));
            row.daemon = Some((status.clone(), processes.unwrap_or_default()));
        }
    } else {
        context.printer.note(
            "note: without a daemon, servers run only during a command; use `--check` to start and \
             check them",
        );
    }
    let now = unix_time_ms();
    let columns = &["NAME", "STATE", "TRANSPORT", "TOOLS", "PROCESSES", "DETAIL", "NEXT"];
    let mut list = List::new(columns);
    for row in &rows {
        let (cells, item) = render_row(row, now);
        list.push(cells, &item);
    }
    context.printer.list(&list);
    match rows.iter().find_map(|row| row.checked.as_ref()?.as_ref().err()) {
        None => Ok(()),
        Some(first) => Err(CliError::new(
            first.exit_code,
            first.summary().code,
            "some servers failed the check",
            format!("run {} for details", command("doctor")),
        )),
    }
}

/// The state of a server, its detail, and the command to run next.
fn state_of(row: &ServerRow, now: u64) -> (&'static str, String, &'static str) {
    let unauthorized = |detail| {
        let (state, verb) =
            if row.has_token { ("needs token", "edit") } else { ("needs login", "login") };
        (state, detail, verb)
    };
    if !row.config.enabled {
        return ("disabled", String::new(), "enable");
    }
    if let Some((status, _)) = &row.daemon {
        return match &status.state {
            McpStatus::Running { .. } => ("running", String::new(), "tools"),
            McpStatus::Starting => ("starting", status.phase.clone(), "logs -f"),
            McpStatus::Disabled => ("disabled", String::new(), "enable"),
            McpStatus::Stopped => ("stopped", String::new(), "start"),
            McpStatus::Error { message } => {
                match status.problem.clone().map(ErrorDetail::with_reason_as_message) {
                    Some(problem) if problem.code == ErrorCode::Unauthorized => {
                        unauthorized(problem.message)
                    }
                    problem => {
                        let message = problem.map_or(message.clone(), |problem| problem.message);
                        let retry = status.retry_in_ms.map(|ms| ms.div_ceil(1000));
                        let retry = retry.map(|seconds| format!("; retry in {seconds} s"));
                        ("failed", message + &retry.unwrap_or_default(), "doctor")
                    }
                }
            }
        };
    }
    match (&row.checked, &row.last) {
        (Some(Ok(checked)), _) => ("ok", checked.describe(), "tools"),
        (Some(Err(failure)), _) if failure.exit_code == ExitCode::Auth => {
            unauthorized(failure.summary().message)
        }
        (Some(Err(failure)), _) => ("failed", failure.summary().message, "doctor"),
        (None, None) => ("unknown", "never started".to_owned(), "start"),
        (None, Some(last)) => {
            let when = format_ago(last.at, now);
            match last.kind {
                LogKind::Ready => ("idle", format!("last start {when}"), "tools"),
                LogKind::NeedsLogin => unauthorized(when),
                _ => ("failed", format!("{when}: {}", last.text), "doctor"),
            }
        }
    }
}

/// The cells of a server in the table, and its JSON.
fn render_row(row: &ServerRow, now: u64) -> (Vec<String>, Value) {
    let (state, detail, verb) = state_of(row, now);
    let next = command_line(format_args!("{verb} {}", shell_quote(&row.config.name)));
    let transport = config_secrets::transport_name(&row.config);
    let checked = row.checked.as_ref().and_then(|checked| checked.as_ref().ok());
    let (offered, total) = checked.map_or((row.n_tools, row.n_tools_total), |checked| {
        (checked.n_tools, Some(checked.n_tools_total))
    });
    let tools = total.map_or_else(|| "?".to_owned(), |total| format!("{offered}/{total}"));
    let in_daemon = row.daemon.as_ref().map_or(&[][..], |(_, processes)| processes);
    let processes = match checked {
        Some(checked) => summarize_processes(&checked.processes),
        None if in_daemon.is_empty() => "-".to_owned(),
        None => summarize_processes(in_daemon),
    };
    let problem = match &row.checked {
        None => row.daemon.as_ref().and_then(|(status, _)| status.problem.clone()),
        Some(checked) => checked.as_ref().err().map(CliError::summary),
    };
    let item = json!({
        "name": row.config.name,
        "id": row.config.id,
        "state": state,
        "way": transport,
        "n_tools": row.n_tools,
        "n_tools_total": row.n_tools_total,
        "detail": detail,
        "next": next,
        "last_at": row.last.as_ref().map(|line| format_utc(line.at)),
        "check": checked,
        "problem": problem,
        "processes": in_daemon,
    });
    let name = config_secrets::display_line(&row.config.name);
    (vec![name, state.to_owned(), transport.to_owned(), tools, processes, detail, next], item)
}

/// Lists the configured servers.
pub(crate) async fn list(context: &Context) -> Result<(), CliError> {
    let printer = &context.printer;
    // Prints warnings about the file, and rejects an unknown agent.
    let servers = Servers::configured(Warnings::Usual, context)?;
    let list = async |service: &LocalService| Ok(service.list());
    let configs = with_service(servers.into_input(), None, context, list).await?;
    if configs.is_empty() {
        printer.note(format_args!("note: no servers configured; {}", Servers::how_to_add()));
    }
    let mut list = List::new(&["NAME", "ENABLED", "TRANSPORT", "TARGET"]);
    for config in &configs {
        let name = config_secrets::display_line(&config.name);
        let transport = config_secrets::transport_name(config).to_owned();
        let row = vec![name, yes_no(config).to_owned(), transport, config_secrets::target(config)];
        list.push(row, &config_secrets::redacted_document(config));
    }
    printer.list(&list);
    Ok(())
}

fn yes_no(config: &McpConfig) -> &'static str {
    if config.enabled { "yes" } else { "no" }
}

/// Prints a server's configuration. Values that may be secret are redacted, unless requested.
pub(crate) async fn get(options: GetOptions, context: &Context) -> Result<(), CliError> {
    let found =
        async |service: &LocalService, config: McpConfig| Ok((config, config_path(service)));
    let (config, file) = with_server(&options.server, None, context, found).await?;
    let document = if options.show_values {
        json!(config)
    } else {
        config_secrets::redacted_document(&config)
    };
    context.printer.show(render_config(&config, &document, &file), &document);
    Ok(())
}

/// One setting per line.
fn render_config(config: &McpConfig, document: &Value, file: &str) -> String {
    let mut lines = vec![
        key_line("name", &config.name),
        key_line("enabled", yes_no(config)),
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

/// Result of a successful check.
#[derive(Debug, Serialize)]
pub(crate) struct ServerCheck {
    n_tools: usize,
    n_tools_total: usize,
    revision: String,
    ready_ms: u64,
    processes: Vec<Process>,
}

impl ServerCheck {
    /// One line, to follow the name of the server. The number of tools says how many of them the
    /// allow and deny rules let through.
    pub(crate) fn describe(&self) -> String {
        let tools = match (self.n_tools, self.n_tools_total) {
            (1, 1) => "1 tool".to_owned(),
            (offered, total) if offered == total => format!("{total} tools"),
            (offered, total) => format!("{offered} of {total} tools"),
        };
        format!("{tools}, protocol {}, ready in {} ms", self.revision, self.ready_ms)
    }
}

/// Starts or connects to a configured server, counts its tools and processes, and stops it again.
///
/// Its processes are the descendants of its guardian, a child of this process.
pub(crate) async fn check_server(name: &str, context: &Context) -> Result<ServerCheck, CliError> {
    // Warnings about the config file have been printed by the command.
    let servers = Servers::configured(Warnings::None, context)?.only(name)?;
    let started = Instant::now();
    // Checked separately from the instance that the daemon may run.
    let context = &context.without_daemon();
    with_session(servers, &RequestOptions::default(), context, async |session: &ServerSession| {
        let connection = session.connect(name).await?;
        let revision = connection.client().map(|client| client.revision().to_string());
        let ready_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let own = std::process::id();
        let mut processes = ProcessTable::scan().descendants(own);
        // The children of this process are the guardians, which adopt what a server leaves behind.
        processes.retain(|process| process.parent != own);
        Ok(ServerCheck {
            n_tools: connection.n_tools(),
            n_tools_total: connection.tool_list().map_or(0, |listing| listing.items.len()),
            revision: revision.unwrap_or_default(),
            ready_ms,
            processes,
        })
    })
    .await
}

/// The PIDs and their total memory.
#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
fn summarize_processes(processes: &[Process]) -> String {
    let pids: Vec<String> = processes.iter().map(|process| process.pid.to_string()).collect();
    let bytes: u64 = processes.iter().map(|process| process.memory_bytes).sum();
    match pids.as_slice() {
        [] => String::new(),
        pids => format!("{} ({:.1} MiB)", pids.join(" "), bytes as f64 / f64::from(1 << 20)),
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
        let (cells, item) = render_row(known, 120_000);
        let printed = [&cells[1], &cells[5], &cells[6]];
        assert_eq!(printed, expected);
        assert_eq!(["state", "detail", "next"].map(|key| &item[key]), expected);
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
        assert_eq!(render_row(&tried, 0).0[3], "1/2");
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

    #[test]
    fn process_summary_has_pids_and_memory() {
        let process = |pid| Process { pid, parent: 1, name: "x".to_owned(), memory_bytes: 3 << 19 };
        assert_eq!(summarize_processes(&[]), "");
        assert_eq!(summarize_processes(&[process(7), process(8)]), "7 8 (3.0 MiB)");
    }
}
