//! `toolrack status`: how servers are, by word of the daemon, as far as it is known without one, or by starting them.

use serde_json::{Value, json};
use toolrack_config::McpServerConfig;
use toolrack_service::{
    ErrorCode, LocalService, LogKind, LogLine, McpConfig, McpService as _, McpStatus, ServiceFault,
    StatusDetail,
};

use crate::args::servers::StatusOptions;
use crate::check_server::{Trial, trial};
use crate::config_service::with_service;
use crate::context::Surroundings;
use crate::daemon_client::{self, Daemon, Status};
use crate::error::Failure;
use crate::exit_code::Verdict;
use crate::output::List;
use crate::process::{Census, Process};
use crate::server_selection::Servers;
use crate::suggested_command::{Aim, word};
use crate::unlisted_servers::last_outcome;
use crate::{process, redacted_config, time_format};

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
        Ok(configs.map(|it| look(service, it)).collect::<Vec<_>>())
    })
    .await?;
    for it in &mut known {
        let server = servers.server(&it.config.name);
        it.has_token = server.is_ok_and(McpServerConfig::has_authorization);
    }
    if options.check {
        // One after the other, so that it is known whose processes there are.
        for it in known.iter_mut().filter(|it| it.config.enabled) {
            it.trial = Some(trial(&it.config.name, surroundings).await);
            if surroundings.stop.is_cancelled() {
                return Err(Failure::interrupted());
            }
        }
    } else if let Some(daemon) = daemon_client::find(&surroundings.settings)? {
        ask(&daemon, &mut known).await?;
    } else {
        surroundings.printer.note(
            "note: without a daemon nothing runs between commands; `--check` starts servers to look at them",
        );
    }
    let (now, aim) = (time_format::now(), &surroundings.settings.aim);
    surroundings.printer.list(&List {
        columns: &["NAME", "STATE", "WAY", "TOOLS", "PROCESSES", "DETAIL", "NEXT"],
        rows: known.iter().map(|it| row(it, now, aim)).collect(),
        items: known.iter().map(|it| item(it, now, aim).to_string()).collect(),
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
async fn ask(daemon: &Daemon, known: &mut [Known]) -> Result<(), Failure> {
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

fn look(service: &LocalService, config: McpConfig) -> Known {
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

fn standing(known: &Known, now: u64) -> Standing {
    let name = word(&known.config.name);
    let run = |verb: &str| format!("toolrack {verb} {name}");
    let tell = |state, detail: String, next| Standing { state, detail, next };
    let barred = if known.has_token { ("needs token", "edit") } else { ("needs login", "login") };
    if !known.config.enabled {
        return tell("disabled", String::new(), run("enable"));
    }
    if let Some((status, _)) = &known.live {
        let (state, detail, verb) = live_standing(status, barred);
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
            let when = time_format::ago(last.at, now);
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
fn live_standing(
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

fn tools(known: &Known) -> String {
    let (shown, total) = match &known.trial {
        Some(Ok(trial)) => (trial.n_tools, Some(trial.n_tools_total)),
        _ => (known.n_tools, known.n_tools_total),
    };
    total.map_or_else(|| "?".to_owned(), |total| format!("{shown}/{total}"))
}

fn row(known: &Known, now: u64, aim: &Aim) -> Vec<String> {
    let Standing { state, detail, next } = standing(known, now);
    let processes = match &known.trial {
        Some(Ok(trial)) => process::summary(&trial.processes),
        _ => match &known.live {
            Some((_, processes)) if !processes.is_empty() => process::summary(processes),
            _ => "-".to_owned(),
        },
    };
    let way = redacted_config::way(&known.config).to_owned();
    let name = redacted_config::shown(&known.config.name);
    vec![name, state.to_owned(), way, tools(known), processes, detail, aim.command(&next)]
}

fn item(known: &Known, now: u64, aim: &Aim) -> Value {
    let Standing { state, detail, next } = standing(known, now);
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
        "way": redacted_config::way(&known.config),
        "n_tools": known.n_tools,
        "n_tools_total": known.n_tools_total,
        "detail": detail,
        "next": aim.command(&next),
        "last_at": known.last.as_ref().map(|it| time_format::utc(it.at)),
        "check": check,
        "problem": problem,
        "processes": processes,
    })
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
        let Standing { state, detail, next } = standing(known, 120_000);
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
        assert_eq!(tools(&tried), "1/2");
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
