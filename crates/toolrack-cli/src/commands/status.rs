//! `toolrack status`: how servers are, as far as that is known without a daemon, or by starting them.

use serde_json::{Value, json};
use toolrack_service::{LocalService, LogKind, LogLine, McpConfig, McpService as _, StatusDetail};

use crate::arguments::server::StatusOptions;
use crate::failure::Failure;
use crate::keeper::with_service;
use crate::output::List;
use crate::surroundings::Surroundings;
use crate::target::Servers;
use crate::trial::{Trial, trial};
use crate::verdict::Verdict;
use crate::{clock, discreet, process};

/// What is known of a server.
#[derive(Debug)]
struct Known {
    config: McpConfig,
    n_tools: usize,
    n_tools_total: Option<usize>,
    /// How the last start went, if it is remembered.
    last: Option<LogLine>,
    trial: Option<Result<Trial, Failure>>,
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
    if options.check {
        // One after the other, so that it is known whose processes there are.
        for it in known.iter_mut().filter(|it| it.config.enabled) {
            it.trial = Some(trial(&it.config.name, surroundings).await);
            if surroundings.stop.is_cancelled() {
                return Err(Failure::interrupted());
            }
        }
    } else {
        surroundings.printer.note(
            "note: without a daemon nothing runs between commands; `--check` starts servers to look at them",
        );
    }
    let now = clock::now();
    surroundings.printer.list(&List {
        columns: &["NAME", "STATE", "WAY", "TOOLS", "PROCESSES", "DETAIL", "NEXT"],
        rows: known.iter().map(|it| row(it, now)).collect(),
        items: known.iter().map(|it| item(it, now).to_string()).collect(),
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

fn look(service: &LocalService, config: McpConfig) -> Known {
    let detail: Option<StatusDetail> = service.status_detail(config.id);
    let happened = service.logs().read(config.id).unwrap_or_default();
    let is_outcome =
        |it: &LogLine| matches!(it.kind, LogKind::Ready | LogKind::Failure | LogKind::NeedsLogin);
    Known {
        n_tools: detail.as_ref().map_or(0, |it| it.n_tools),
        n_tools_total: detail.and_then(|it| it.n_tools_total),
        last: happened.into_iter().rev().find(is_outcome),
        trial: None,
        config,
    }
}

fn standing(known: &Known, now: u64) -> Standing {
    let name = &known.config.name;
    let run = |verb: &str| format!("toolrack {verb} {name}");
    let tell = |state, detail: String, next| Standing { state, detail, next };
    if !known.config.enabled {
        return tell("disabled", String::new(), run("enable"));
    }
    match (&known.trial, &known.last) {
        (Some(Ok(trial)), _) => tell("works", trial.words(), run("tools")),
        (Some(Err(failure)), _) => {
            let message = failure.summary().message;
            match failure.verdict() {
                Verdict::Auth => tell("needs login", message, run("login")),
                _ => tell("failed", message, run("doctor")),
            }
        }
        (None, None) => tell("unknown", "never started".to_owned(), run("start")),
        (None, Some(last)) => {
            let when = clock::ago(last.at, now);
            match last.kind {
                LogKind::Ready => tell("idle", format!("worked {when}"), run("tools")),
                LogKind::NeedsLogin => tell("needs login", when, run("login")),
                _ => tell("failed", format!("{when}: {}", last.text), run("doctor")),
            }
        }
    }
}

fn tools(known: &Known) -> String {
    let (shown, total) = match &known.trial {
        Some(Ok(trial)) => (trial.n_tools, Some(trial.n_tools_total)),
        _ => (known.n_tools, known.n_tools_total),
    };
    total.map_or_else(|| "?".to_owned(), |total| format!("{shown}/{total}"))
}

fn row(known: &Known, now: u64) -> Vec<String> {
    let Standing { state, detail, next } = standing(known, now);
    let processes = match &known.trial {
        Some(Ok(trial)) => process::summary(&trial.processes),
        _ => "-".to_owned(),
    };
    let way = discreet::way(&known.config).to_owned();
    let name = discreet::shown(&known.config.name);
    vec![name, state.to_owned(), way, tools(known), processes, detail, next]
}

fn item(known: &Known, now: u64) -> Value {
    let Standing { state, detail, next } = standing(known, now);
    let (check, problem) = match &known.trial {
        None => (Value::Null, Value::Null),
        Some(Ok(trial)) => (trial.json(), Value::Null),
        Some(Err(failure)) => (Value::Null, json!(failure.summary())),
    };
    json!({
        "name": known.config.name,
        "id": known.config.id,
        "state": state,
        "way": discreet::way(&known.config),
        "n_tools": known.n_tools,
        "n_tools_total": known.n_tools_total,
        "detail": detail,
        "next": next,
        "last_at": known.last.as_ref().map(|it| clock::utc(it.at)),
        "check": check,
        "problem": problem,
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
        Known { config, n_tools: 1, n_tools_total: Some(2), last, trial: None }
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
        let last = |kind| known(Some(kind));
        check(&last(LogKind::Ready), ["idle", "worked 2 min ago", "toolrack tools it"]);
        check(&last(LogKind::Failure), ["failed", "2 min ago: exit 3", "toolrack doctor it"]);
        check(&last(LogKind::NeedsLogin), ["needs login", "2 min ago", "toolrack login it"]);
        let mut tried = last(LogKind::Ready);
        let failure = Failure::new(
            Verdict::Auth,
            toolrack_service::ErrorCode::Unauthorized,
            "no token",
            "log in",
        );
        tried.trial = Some(Err(failure));
        check(&tried, ["needs login", "no token", "toolrack login it"]);
        assert_eq!(tools(&tried), "1/2");
    }
}
