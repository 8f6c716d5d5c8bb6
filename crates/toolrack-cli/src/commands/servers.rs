//! `toolrack status`: how servers are, by word of the daemon, as far as it is known without one, or by starting them.

use serde_json::{Value, json};
use toolrack_config::McpServerConfig;
use toolrack_service::{
    ErrorCode, LocalService, LogKind, LogLine, McpConfig, McpService as _, McpStatus, ServiceFault,
    StatusDetail,
};

use crate::args::servers::{GetOptions, StatusOptions};
use crate::check_server::{self, Census, Process, Trial, check_server};
use crate::config_secrets::{self, Values};
use crate::config_service::{file_of, find, must_exist, with_service};
use crate::context::Surroundings;
use crate::daemon_client::{self, Daemon, Status};
use crate::error::Failure;
use crate::exit_code::Verdict;
use crate::fan_out::last_outcome;
use crate::output::{self, List, Output};
use crate::server_selection::Servers;
use crate::suggested_command::{Aim, word};

/// What is known of a server.
#[derive(Debug)]
struct Known {
    config: McpConfig,
    /// Its headers say who we are, so that nobody logs in.
    has_token: bool,
    n_tools: usize,
    n_tools_total: Option<usize>,
    /// How the last start went, if it is remembered.
    last: Option<LogLine>,
    trial: Option<Result<Trial, Failure>>,
    /// What the daemon says, and what runs.
    live: Option<(Status, Vec<Process>)>,
}

/// How a server is, in words.
#[derive(Debug, PartialEq, Eq)]
struct Standing {
    state: &'static str,
    detail: String,
    next: String,
}

/// Shows how servers are.
pub(crate) async fn status(
    options: &StatusOptions,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    let servers = Servers::configured(&surroundings.settings, &surroundings.printer)?;
    if let Some(name) = &options.server {
        servers.server(name)?;
    }
    let is_wanted = |name: &str| options.server.as_deref().is_none_or(|it| it == name);
    let mut known = with_service(surroundings, None, async |service: &LocalService| {
        let configs = service.list().into_iter().filter(|it| is_wanted(&it.name));
        Ok(configs.map(|it| last_known(service, it)).collect::<Vec<_>>())
    })
    .await?;
    for it in &mut known {
        let server = servers.server(&it.config.name);
        it.has_token = server.is_ok_and(McpServerConfig::has_authorization);
    }
    if options.check {
        // One after the other, so that it is known whose processes there are.
        for it in known.iter_mut().filter(|it| it.config.enabled) {
            it.trial = Some(check_server(&it.config.name, surroundings).await);
            if surroundings.stop.is_cancelled() {
                return Err(Failure::interrupted());
            }
        }
    } else if let Some(daemon) = daemon_client::find(&surroundings.settings)? {
        add_daemon_status(&daemon, &mut known).await?;
    } else {
        surroundings.printer.note(
            "note: without a daemon nothing runs between commands; `--check` starts servers to look at them",
        );
    }
    let (now, aim) = (output::now_ms(), &surroundings.settings.aim);
    surroundings.printer.list(&List {
        columns: &["NAME", "STATE", "WAY", "TOOLS", "PROCESSES", "DETAIL", "NEXT"],
        rows: known.iter().map(|it| status_row(it, now, aim)).collect(),
        items: known.iter().map(|it| status_json(it, now, aim).to_string()).collect(),
    });
    match known.iter().find_map(|it| it.trial.as_ref()?.as_ref().err()) {
        None => Ok(()),
        Some(first) => Err(Failure::new(
            first.verdict(),
            first.summary().code,
            "not every server works",
            "run `toolrack doctor` to see what to do",
        )),
    }
}

/// Adds what the daemon knows.
async fn add_daemon_status(daemon: &Daemon, known: &mut [Known]) -> Result<(), Failure> {
    let statuses = daemon.statuses().await?;
    let census = Census::take();
    for it in known {
        let Some(status) = statuses.iter().find(|one| one.name == it.config.name) else { continue };
        (it.n_tools, it.n_tools_total) = (status.n_tools, status.n_tools_total);
        let processes = status.process.map(|pid| census.below(pid)).unwrap_or_default();
        it.live = Some((status.clone(), processes));
    }
    Ok(())
}

fn last_known(service: &LocalService, config: McpConfig) -> Known {
    let detail: Option<StatusDetail> = service.status_detail(config.id);
    let happened = service.logs().read(config.id).unwrap_or_default();
    Known {
        has_token: false,
        n_tools: detail.as_ref().map_or(0, |it| it.n_tools),
        n_tools_total: detail.and_then(|it| it.n_tools_total),
        last: last_outcome(happened),
        trial: None,
        live: None,
        config,
    }
}

fn state_of(known: &Known, now: u64) -> Standing {
    let name = word(&known.config.name);
    let run = |verb: &str| format!("toolrack {verb} {name}");
    let tell = |state, detail: String, next| Standing { state, detail, next };
    let barred = if known.has_token { ("needs token", "edit") } else { ("needs login", "login") };
    if !known.config.enabled {
        return tell("disabled", String::new(), run("enable"));
    }
    if let Some((status, _)) = &known.live {
        let (state, detail, verb) = daemon_state_of(status, barred);
        return tell(state, detail, run(verb));
    }
    match (&known.trial, &known.last) {
        (Some(Ok(trial)), _) => tell("works", trial.words(), run("tools")),
        (Some(Err(failure)), _) => {
            let message = failure.summary().message;
            match failure.verdict() {
                Verdict::Auth => tell(barred.0, message, run(barred.1)),
                _ => tell("failed", message, run("doctor")),
            }
        }
        (None, None) => tell("unknown", "never started".to_owned(), run("start")),
        (None, Some(last)) => {
            let when = output::format_ago(last.at, now);
            match last.kind {
                LogKind::Ready => tell("idle", format!("worked {when}"), run("tools")),
                LogKind::NeedsLogin => tell(barred.0, when, run(barred.1)),
                _ => tell("failed", format!("{when}: {}", last.text), run("doctor")),
            }
        }
    }
}

/// How a server of the daemon is: its state, the detail, and what to run next. `barred` is the first and the last
/// of these for one that does not let us in.
fn daemon_state_of(
    status: &Status,
    barred: (&'static str, &'static str),
) -> (&'static str, String, &'static str) {
    match &status.state {
        McpStatus::Running { .. } => ("running", String::new(), "tools"),
        McpStatus::Starting => ("starting", status.phase.clone(), "logs -f"),
        McpStatus::Disabled => ("disabled", String::new(), "enable"),
        McpStatus::Stopped => ("stopped", String::new(), "start"),
        McpStatus::Error { message } => match status.problem.clone().map(ServiceFault::in_detail) {
            Some(problem) if problem.code == ErrorCode::Unauthorized => {
                (barred.0, problem.message, barred.1)
            }
            problem => {
                let message = problem.map_or_else(|| message.clone(), |it| it.message);
                let again =
                    status.retry_in_ms.map(|it| format!("; again in {} s", it.div_ceil(1000)));
                ("failed", format!("{message}{}", again.unwrap_or_default()), "doctor")
            }
        },
    }
}

fn tool_count(known: &Known) -> String {
    let (shown, total) = match &known.trial {
        Some(Ok(trial)) => (trial.n_tools, Some(trial.n_tools_total)),
        _ => (known.n_tools, known.n_tools_total),
    };
    total.map_or_else(|| "?".to_owned(), |total| format!("{shown}/{total}"))
}

fn status_row(known: &Known, now: u64, aim: &Aim) -> Vec<String> {
    let Standing { state, detail, next } = state_of(known, now);
    let processes = match &known.trial {
        Some(Ok(trial)) => check_server::summarize(&trial.processes),
        _ => match &known.live {
            Some((_, processes)) if !processes.is_empty() => check_server::summarize(processes),
            _ => "-".to_owned(),
        },
    };
    let way = config_secrets::transport_name(&known.config).to_owned();
    let name = config_secrets::display_line(&known.config.name);
    vec![name, state.to_owned(), way, tool_count(known), processes, detail, aim.command(&next)]
}

fn status_json(known: &Known, now: u64, aim: &Aim) -> Value {
    let Standing { state, detail, next } = state_of(known, now);
    let (check, problem) = match &known.trial {
        None => {
            let problem = known.live.as_ref().and_then(|(status, _)| status.problem.as_ref());
            (Value::Null, json!(problem))
        }
        Some(Ok(trial)) => (trial.json(), Value::Null),
        Some(Err(failure)) => (Value::Null, json!(failure.summary())),
    };
    let processes = known.live.as_ref().map(|(_, processes)| processes.as_slice());
    let processes: Vec<Value> = processes.unwrap_or_default().iter().map(Process::json).collect();
    json!({
        "name": known.config.name,
        "id": known.config.id,
        "state": state,
        "way": config_secrets::transport_name(&known.config),
        "n_tools": known.n_tools,
        "n_tools_total": known.n_tools_total,
        "detail": detail,
        "next": aim.command(&next),
        "last_at": known.last.as_ref().map(|it| output::format_utc(it.at)),
        "check": check,
        "problem": problem,
        "processes": processes,
    })
}

/// Lists the servers of the config.
pub(crate) async fn list(surroundings: &Surroundings) -> Result<(), Failure> {
    let printer = &surroundings.printer;
    // What is odd about the file is told here, and an agent that nobody knows is refused.
    Servers::configured(&surroundings.settings, printer)?;
    let configs = with_service(surroundings, None, async |it: &LocalService| Ok(it.list())).await?;
    if configs.is_empty() {
        printer.note(
            "note: there is no server in the config; `toolrack add` adds one, `toolrack import` takes over \
             those of other tools",
        );
    }
    printer.list(&List {
        columns: &["NAME", "ENABLED", "WAY", "TARGET"],
        rows: configs.iter().map(list_row).collect(),
        items: configs
            .iter()
            .map(|it| config_secrets::to_document(it, Values::Hidden).to_string())
            .collect(),
    });
    Ok(())
}

fn list_row(config: &McpConfig) -> Vec<String> {
    let enabled = if config.enabled { "yes" } else { "no" };
    let (way, target) = (config_secrets::transport_name(config), config_secrets::target(config));
    vec![config_secrets::display_line(&config.name), enabled.to_owned(), way.to_owned(), target]
}

/// Shows a server. Values that may be secret are hidden unless they are asked for.
pub(crate) async fn get(options: &GetOptions, surroundings: &Surroundings) -> Result<(), Failure> {
    must_exist(&options.server, surroundings)?;
    let (config, file) = with_service(surroundings, None, async |service: &LocalService| {
        Ok((find(service, &options.server)?, file_of(service)))
    })
    .await?;
    let values = if options.show_values { Values::Shown } else { Values::Hidden };
    let document = config_secrets::to_document(&config, values);
    match surroundings.printer.output() {
        Output::Table => surroundings.printer.line(render_config(&config, &document, &file)),
        _ => surroundings.printer.document(&document.to_string()),
    }
    Ok(())
}

/// One thing to a line.
fn render_config(config: &McpConfig, document: &Value, file: &str) -> String {
    let mut lines = vec![
        key_line("name", &config.name),
        key_line("enabled", if config.enabled { "yes" } else { "no" }),
        key_line("way", config_secrets::transport_name(config)),
        key_line("target", &config_secrets::target(config)),
    ];
    let variables = document.get("env_vars");
    for (name, variable) in &config.env_vars {
        let value =
            variables.and_then(|it| it.get(name)?.get("value")?.as_str()).unwrap_or_default();
        let value = match (&variable.secret_ref, variable.required) {
            (Some(secret), true) => format!("secret `{secret}`"),
            (Some(secret), false) => format!("secret `{secret}`, if there is one"),
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
                }))
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

    fn known(last: Option<LogKind>) -> Known {
        let config = json!({
            "name": "it", "transport": "stdio",
            "package": { "package_type": "binary", "identifier": "x" },
        });
        let line = |kind| LogLine { at: 0, kind, text: "exit 3".to_owned() };
        let config = McpConfig::from_json(&config).unwrap();
        let last = last.map(line);
        Known {
            config,
            has_token: false,
            n_tools: 1,
            n_tools_total: Some(2),
            last,
            trial: None,
            live: None,
        }
    }

    #[track_caller]
    fn check(known: &Known, expected: [&str; 3]) {
        let Standing { state, detail, next } = state_of(known, 120_000);
        assert_eq!([state, &detail, &next], expected);
    }

    #[test]
    fn every_standing_has_a_next_step() {
        let mut disabled = known(None);
        disabled.config.enabled = false;
        check(&disabled, ["disabled", "", "toolrack enable it"]);
        check(&known(None), ["unknown", "never started", "toolrack start it"]);
        let mut odd = known(None);
        odd.config.name = "$(touch\u{202e} x)".to_owned();
        check(&odd, ["unknown", "never started", "toolrack start '$(touch x)'"]);
        let last = |kind| known(Some(kind));
        check(&last(LogKind::Ready), ["idle", "worked 2 min ago", "toolrack tools it"]);
        check(&last(LogKind::Failure), ["failed", "2 min ago: exit 3", "toolrack doctor it"]);
        check(&last(LogKind::NeedsLogin), ["needs login", "2 min ago", "toolrack login it"]);
        let mut tried = last(LogKind::Ready);
        let failure = Failure::new(Verdict::Auth, ErrorCode::Unauthorized, "no token", "log in");
        tried.trial = Some(Err(failure));
        check(&tried, ["needs login", "no token", "toolrack login it"]);
        assert_eq!(tool_count(&tried), "1/2");
        tried.has_token = true;
        check(&tried, ["needs token", "no token", "toolrack edit it"]);
        let barred = Known { has_token: true, ..last(LogKind::NeedsLogin) };
        check(&barred, ["needs token", "2 min ago", "toolrack edit it"]);
    }

    #[track_caller]
    fn check_live(state: McpStatus, problem: Option<ServiceFault>, expected: [&str; 3]) {
        let status = Status {
            id: uuid::Uuid::nil(),
            name: "it".to_owned(),
            state,
            phase: "handshake".to_owned(),
            problem,
            n_tools: 1,
            n_tools_total: None,
            retry_in_ms: Some(1200),
            process: None,
        };
        let live = Some((status, Vec::new()));
        check(&Known { live, ..known(Some(LogKind::Failure)) }, expected);
    }

    #[test]
    fn the_daemon_knows_better_than_what_is_remembered() {
        let running = McpStatus::Running { tools: Vec::new() };
        check_live(running, None, ["running", "", "toolrack tools it"]);
        check_live(McpStatus::Starting, None, ["starting", "handshake", "toolrack logs -f it"]);
        check_live(McpStatus::Stopped, None, ["stopped", "", "toolrack start it"]);
        let error = || McpStatus::Error { message: "exit 3".to_owned() };
        check_live(error(), None, ["failed", "exit 3; again in 2 s", "toolrack doctor it"]);
        let worded = ServiceFault {
            reason: Some("no `npx`".to_owned()),
            ..ServiceFault::new(ErrorCode::NotFound, "exit 3")
        };
        check_live(
            error(),
            Some(worded),
            ["failed", "no `npx`; again in 2 s", "toolrack doctor it"],
        );
        let login = ServiceFault::new(ErrorCode::Unauthorized, "exit 3");
        check_live(error(), Some(login), ["needs login", "exit 3", "toolrack login it"]);
    }
}
