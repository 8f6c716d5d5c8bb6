//! The daemon, as commands use it: found, asked over its socket, and started where nothing can be done without.
//!
//! **Invariant:** only a daemon for the very servers that a command is about is used: one with another config file or
//! for another agent does not count.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use toolrack_config::{McpServerConfig, McpTransport};
use toolrack_daemon::{DaemonError, Running};
use toolrack_http::SocketClient;
use toolrack_service::{ErrorCode, Home, McpStatus, ServiceFault};
use url::Url;

use crate::arguments::daemon::DaemonStartOptions;
use crate::detach;
use crate::failure::Failure;
use crate::settings::{DaemonUse, Settings};
use crate::surroundings::Surroundings;
use crate::target::Servers;
use crate::verdict::Verdict;

/// How long an answer of the daemon is waited for. It sets itself shorter limits.
const PATIENCE: Duration = Duration::from_secs(100);

/// How long a daemon may take to notice that the config file has changed.
const NOTICE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);

/// How a server of the daemon is.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Status {
    pub(crate) name: String,
    #[serde(rename = "status")]
    pub(crate) state: McpStatus,
    /// What it is doing, in one word.
    pub(crate) phase: String,
    pub(crate) problem: Option<ServiceFault>,
    pub(crate) n_tools: usize,
    pub(crate) n_tools_total: Option<usize>,
    pub(crate) retry_in_ms: Option<u64>,
    /// The process below which everything of it runs.
    pub(crate) process: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct Statuses {
    servers: Vec<Status>,
}

/// A daemon that runs, and the way to it.
#[derive(Debug, Clone)]
pub(crate) struct Daemon {
    pub(crate) running: Running,
    client: SocketClient,
}

/// The daemon of this home, whatever it is for.
pub(crate) fn of_home(settings: &Settings) -> Result<Option<Daemon>, Failure> {
    let running = Running::find(settings.home()?)?;
    Ok(running.map(|running| Daemon { client: SocketClient::new(&running.socket), running }))
}

/// The daemon that runs for the servers that are meant, if it may be used.
pub(crate) fn find(settings: &Settings) -> Result<Option<Daemon>, Failure> {
    if settings.daemon == DaemonUse::Never {
        return Ok(None);
    }
    let is_for_us = |it: &Daemon| {
        let config = settings.home().ok().map(Home::config_file);
        let config = config.and_then(|it| std::path::absolute(it).ok());
        it.running.agent == settings.agent && config.as_deref() == Some(it.running.config.as_path())
    };
    Ok(of_home(settings)?.filter(is_for_us))
}

/// The same, started if none runs.
pub(crate) async fn require(surroundings: &Surroundings) -> Result<Daemon, Failure> {
    let settings = &surroundings.settings;
    if let Some(daemon) = find(settings)? {
        return Ok(daemon);
    }
    if let Some(other) = of_home(settings)?
        && settings.daemon != DaemonUse::Never
    {
        return Err(Failure::config(
            format!("the daemon of this home (process {}) is for other servers", other.running.pid),
            "it has another config file or agent; end it with `toolrack daemon stop`",
        ));
    }
    if settings.daemon != DaemonUse::Usual {
        return Err(missing("this needs a daemon, and none may be started"));
    }
    detach::start(&DaemonStartOptions::default(), surroundings).await?;
    find(settings)?.ok_or_else(|| missing("the daemon ended right after it began"))
}

fn missing(message: &str) -> Failure {
    let hint = "start one with `toolrack daemon start`";
    Failure::new(Verdict::Unreachable, ErrorCode::ServiceUnavailable, message, hint)
}

impl Daemon {
    pub(crate) async fn get<T: DeserializeOwned>(&self, target: &str) -> Result<T, Failure> {
        self.ask(http::Method::GET, target, None).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(&self, target: &str) -> Result<T, Failure> {
        self.ask(http::Method::POST, target, None).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: http::Method,
        target: &str,
        body: Option<Value>,
    ) -> Result<T, Failure> {
        let body = body.map(|it| it.to_string().into());
        let asked = self.client.ask(method, target, body, PATIENCE).await;
        let answer = asked.map_err(|error| {
            let message = format!("the daemon (process {}) {error}", self.running.pid);
            missing(&message)
                .advising("look at it with `toolrack daemon status`; `--no-daemon` does it without")
        })?;
        if !answer.status.is_success() {
            return Err(refused(&answer.body));
        }
        let body: &[u8] = if answer.body.is_empty() { b"null" } else { &answer.body };
        serde_json::from_slice(body).map_err(|error| {
            let message = format!("the daemon answers in a way that is not understood: {error}");
            missing(&message).advising(
                "it may be of another version: `toolrack daemon stop`, then start it again",
            )
        })
    }

    /// Does something with a server, and waits for its outcome.
    pub(crate) async fn act(&self, server: &str, verb: &str) -> Result<Status, Failure> {
        self.post(&format!("{}/{verb}", path(&["api", "servers", server]))).await
    }

    /// How all its servers are.
    pub(crate) async fn statuses(&self) -> Result<Vec<Status>, Failure> {
        let Statuses { servers } = self.get("/api/agents/mcp").await?;
        Ok(servers)
    }

    /// Sees that a server runs. One that was written into the file a moment ago is waited for.
    pub(crate) async fn start_server(&self, name: &str) -> Result<Status, Failure> {
        self.bring(name, "start").await
    }

    /// Does something with a server after which it runs, and waits until it does.
    pub(crate) async fn bring(&self, name: &str, verb: &str) -> Result<Status, Failure> {
        let deadline = Instant::now() + NOTICE;
        let mut verb = verb;
        loop {
            match self.act(name, verb).await {
                // It takes longer than one answer does.
                Ok(status) if status.state == McpStatus::Starting => verb = "start",
                Ok(status) => return Ok(status),
                Err(failure)
                    if failure.summary().code == ErrorCode::NotFound
                        && Instant::now() < deadline =>
                {
                    sleep(LOOK).await;
                }
                Err(failure) => {
                    let message = failure.summary().message;
                    let is_named = message.contains(&format!("`{name}`"));
                    let told = format!("`{name}` is not connected: {message}");
                    return Err(if is_named { failure } else { failure.saying(told) });
                }
            }
        }
    }

    /// The same servers, reached by way of the daemon. What the daemon looks after is left to it.
    pub(crate) fn reroute(&self, servers: Servers) -> Servers {
        let configs = servers.configs.iter().map(|it| self.rerouted(it));
        Servers { configs: configs.collect(), ..servers }
    }

    fn rerouted(&self, config: &McpServerConfig) -> McpServerConfig {
        let target = path(&["mcp", "server", &config.name]);
        let transport = McpTransport::Http { url: self.url(&target), headers: HashMap::new() };
        McpServerConfig {
            enabled: config.enabled,
            timeout: config.timeout,
            max_timeout: config.max_timeout,
            startup_timeout: config.startup_timeout,
            max_output_bytes: config.max_output_bytes,
            max_message_bytes: config.max_message_bytes,
            allow: config.allow.clone(),
            deny: config.deny.clone(),
            ..McpServerConfig::new(config.name.as_str(), transport)
        }
    }

    /// The address of something of the daemon. A `$` in it stands for itself.
    pub(crate) fn url(&self, target: &str) -> String {
        format!("unix:{}:{target}", self.running.socket.display()).replace("${", "$${")
    }
}

/// A path of these parts, with whatever they hold written so that it means itself.
pub(crate) fn path(parts: &[&str]) -> String {
    let Ok(mut url) = Url::parse("http://localhost") else { return String::new() };
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.clear().extend(parts);
    }
    url.path().to_owned()
}

/// What the daemon says went wrong.
fn refused(body: &[u8]) -> Failure {
    let Ok(fault) = serde_json::from_slice::<ServiceFault>(body) else {
        return missing("the daemon refuses it, and does not say why");
    };
    let is_helpful = fault.hint.is_some();
    let failure = Failure::all(Verdict::of(fault.code), vec![fault]);
    if is_helpful { failure } else { failure.advising("`toolrack status` shows how servers are") }
}

impl From<DaemonError> for Failure {
    fn from(error: DaemonError) -> Self {
        let hint = error.hint();
        let message = toolrack_manager::with_causes(&error);
        let failure = match error {
            DaemonError::Service(error) => Failure::from(error),
            DaemonError::Running { .. } => {
                Failure::new(Verdict::Config, ErrorCode::Conflict, message, String::new())
            }
            DaemonError::NotLoopback(_) | DaemonError::Address { .. } => {
                Failure::config(message, "").at("--listen")
            }
            _ => Failure::new(Verdict::Unreachable, ErrorCode::Internal, message, ""),
        };
        failure.advising(hint.unwrap_or_else(|| {
            "look at the rights and the space of the folder of this home".to_owned()
        }))
    }
}

/// Where the log of the daemon of a home is.
pub(crate) fn log_file(home: &Home) -> PathBuf {
    home.dir().join("daemon.log")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_themselves_in_a_path() {
        let check = |parts: &[&str], expected: &str| assert_eq!(path(parts), expected);
        check(&["api", "servers", "git"], "/api/servers/git");
        check(&["mcp", "server", "a/b ?#%"], "/mcp/server/a%2Fb%20%3F%23%25");
    }

    #[test]
    fn what_the_daemon_says_becomes_a_failure_with_its_own_code() {
        let said = br#"{"code":"DENIED","message":"no","hint":"ask"}"#;
        let failure = refused(said);
        assert_eq!((failure.verdict(), failure.hint()), (Verdict::Denied, Some("ask")));
        assert_eq!(refused(b"oops").verdict(), Verdict::Unreachable);
    }
}
