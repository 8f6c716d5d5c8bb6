//! The daemon, as commands use it: found, asked over its socket, and started where nothing can be done without.
//!
//! **Invariant:** only a daemon for the very servers that a command is about is used: one with another config file or
//! for another agent does not count.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use http::{Method, StatusCode};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use toolrack_config::{McpServerConfig, McpTransport};
use toolrack_daemon::{DaemonError, Running};
use toolrack_gateway::TIMEOUT_HEADER;
use toolrack_http::SocketClient;
use toolrack_service::{ErrorCode, Home, McpStatus, ServiceFault};
use url::Url;
use uuid::Uuid;

use crate::args::daemon::DaemonStartOptions;
use crate::context::Surroundings;
use crate::daemon_process;
use crate::error::Failure;
use crate::exit_code::Verdict;
use crate::server_selection::Servers;
use crate::settings::{DaemonUse, Settings};

/// How long an answer of the daemon is waited for. It sets itself shorter limits.
const PATIENCE: Duration = Duration::from_secs(100);

/// How long a daemon may take to notice that the config file has changed.
const NOTICE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);

/// How a server of the daemon is.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Status {
    pub(crate) id: Uuid,
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

/// Why the daemon did not do something, and the status of its answer if there was one.
#[derive(Debug)]
struct Refusal {
    status: Option<StatusCode>,
    failure: Failure,
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self { status: None, failure }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        refusal.failure
    }
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
    Ok(of_home(settings)?.filter(|it| it.running_for(settings)))
}

/// The daemon of this home, if one runs. One for other servers is refused.
pub(crate) fn of_servers(settings: &Settings) -> Result<Option<Daemon>, Failure> {
    match of_home(settings)? {
        Some(other) if !other.running_for(settings) => Err(for_others(&other.running)),
        found => Ok(found),
    }
}

fn for_others(running: &Running) -> Failure {
    let agent = running.agent.as_ref().map(|it| format!(" and the agent `{it}`"));
    let message = format!(
        "the daemon of this home (process {}) is for other servers: for {}{}",
        running.pid,
        running.config.display(),
        agent.unwrap_or_default(),
    );
    let hint =
        "end it with `toolrack daemon stop`, or use it with the same `--config` and `--agent`";
    Failure::new(Verdict::Config, ErrorCode::Conflict, message, hint)
}

/// The same, started if none runs.
pub(crate) async fn require(surroundings: &Surroundings) -> Result<Daemon, Failure> {
    let settings = &surroundings.settings;
    if let Some(daemon) = find(settings)? {
        return Ok(daemon);
    }
    if settings.daemon != DaemonUse::Never {
        of_servers(settings)?;
    }
    if settings.daemon != DaemonUse::Usual {
        return Err(missing("this needs a daemon, and none may be started"));
    }
    daemon_process::start(&DaemonStartOptions::default(), surroundings).await?;
    find(settings)?.ok_or_else(|| missing("the daemon ended right after it began"))
}

fn missing(message: &str) -> Failure {
    let hint = "start one with `toolrack daemon start`";
    Failure::new(Verdict::Unreachable, ErrorCode::ServiceUnavailable, message, hint)
}

impl Daemon {
    /// Whether it has the config file and the agent that are meant.
    fn running_for(&self, settings: &Settings) -> bool {
        let config = settings.home().ok().map(Home::config_file);
        let config = config.and_then(|it| std::path::absolute(it).ok());
        let Running { config: theirs, agent, .. } = &self.running;
        *agent == settings.agent && config.as_ref() == Some(theirs)
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, target: &str) -> Result<T, Failure> {
        Ok(self.ask(Method::GET, target, None).await?)
    }

    pub(crate) async fn post<T: DeserializeOwned>(&self, target: &str) -> Result<T, Failure> {
        Ok(self.ask(Method::POST, target, None).await?)
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        target: &str,
        body: Option<Value>,
    ) -> Result<T, Refusal> {
        let body = body.map(|it| it.to_string().into());
        let asked = self.client.ask(method, target, body, PATIENCE).await;
        let answer = asked.map_err(|error| {
            let message = format!("the daemon (process {}) {error}", self.running.pid);
            missing(&message)
                .advising("look at it with `toolrack daemon status`; `--no-daemon` does it without")
        })?;
        if !answer.status.is_success() {
            return Err(refused(answer.status, &answer.body));
        }
        let body: &[u8] = if answer.body.is_empty() { b"null" } else { &answer.body };
        serde_json::from_slice(body).map_err(|error| {
            let message = format!("the daemon answers in a way that is not understood: {error}");
            let hint = "it may be of another version: `toolrack daemon stop`, then start it again";
            missing(&message).advising(hint).into()
        })
    }

    /// Does something with a server, and waits for its outcome.
    pub(crate) async fn act(&self, server: &str, verb: &str) -> Result<Status, Failure> {
        Ok(self.order(server, verb).await?)
    }

    async fn order(&self, server: &str, verb: &str) -> Result<Status, Refusal> {
        let target = path(&["api", "servers", server, verb]);
        self.ask(Method::POST, &target, None).await
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
            match self.order(name, verb).await {
                // It takes longer than one answer does.
                Ok(status) if status.state == McpStatus::Starting => verb = "start",
                Ok(status) => return Ok(status),
                Err(refusal) if refusal.is_unheard() => self.hear_of(name, deadline).await?,
                Err(refusal) => return Err(not_connected(name, refusal.failure)),
            }
        }
    }

    /// Waits until the daemon has read a server from the file. Nothing is started by looking.
    async fn hear_of(&self, name: &str, deadline: Instant) -> Result<(), Failure> {
        let target = path(&["api", "servers", name]);
        while Instant::now() < deadline {
            sleep(LOOK).await;
            match self.ask::<IgnoredAny>(Method::GET, &target, None).await {
                Ok(_) => return Ok(()),
                Err(refusal) if refusal.is_unheard() => {}
                Err(refusal) => return Err(refusal.into()),
            }
        }
        let pid = self.running.pid;
        let message = format!("the daemon (process {pid}) has not read `{name}` from the config");
        let hint = "its log says why; `toolrack daemon status` shows where that is";
        Err(missing(&message).advising(hint))
    }

    /// The same servers, reached by way of the daemon. What the daemon looks after is left to it; it is told how long
    /// a request may take, if it is limited.
    pub(crate) fn reroute(&self, servers: Servers, timeout: Option<Duration>) -> Servers {
        let configs = servers.configs.iter().map(|it| self.rerouted(it, timeout));
        Servers { configs: configs.collect(), ..servers }
    }

    fn rerouted(&self, config: &McpServerConfig, timeout: Option<Duration>) -> McpServerConfig {
        let target = path(&["mcp", "server", &config.name]);
        let told = timeout.map(|it| (TIMEOUT_HEADER.to_owned(), it.as_millis().to_string()));
        let headers: HashMap<String, String> = told.into_iter().collect();
        let transport = McpTransport::Http { url: self.url(&target), headers };
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

impl Refusal {
    /// Whether the daemon does not know the server that it was asked about.
    fn is_unheard(&self) -> bool {
        self.status == Some(StatusCode::NOT_FOUND)
    }
}

/// What the daemon says went wrong.
fn refused(status: StatusCode, body: &[u8]) -> Refusal {
    let Ok(fault) = serde_json::from_slice::<ServiceFault>(body) else {
        return missing("the daemon refuses it, and does not say why").into();
    };
    let fault = fault.in_detail();
    let verdict = match (status, fault.code) {
        // It is the program of a server that is not there, and nothing that was typed.
        (StatusCode::FAILED_DEPENDENCY, ErrorCode::NotFound) => Verdict::Unreachable,
        (_, code) => Verdict::of(code),
    };
    let is_helpful = fault.hint.is_some();
    let failure = Failure::all(verdict, vec![fault]);
    let general = "`toolrack status` shows how servers are";
    let failure = if is_helpful { failure } else { failure.advising(general) };
    Refusal { status: Some(status), failure }
}

/// Why a server does not run, in the words that are used without a daemon.
fn not_connected(name: &str, failure: Failure) -> Failure {
    let message = failure.summary().message;
    // What is said of the server itself names it first.
    let is_named = message.starts_with(&format!("`{name}`"));
    let told = format!("`{name}` is not connected: {message}");
    if is_named { failure } else { failure.saying(told) }
}

impl From<DaemonError> for Failure {
    fn from(error: DaemonError) -> Self {
        let hint = error.hint();
        let message = toolrack_manager::with_causes(&error);
        let failure = match error {
            // What is wrong with the config has a hint of its own.
            DaemonError::Service(error) => {
                return Failure::of(error, "mend the config file with `toolrack edit`");
            }
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
        let refusal = refused(StatusCode::FORBIDDEN, said);
        let Refusal { failure, .. } = &refusal;
        assert_eq!((failure.verdict(), failure.hint()), (Verdict::Denied, Some("ask")));
        assert!(!refusal.is_unheard());
        let odd = refused(StatusCode::BAD_GATEWAY, b"oops");
        assert_eq!(odd.failure.verdict(), Verdict::Unreachable);
    }

    #[test]
    fn a_missing_program_is_no_missing_server() {
        let said = br#"{"code":"NOT_FOUND","message":"Package not found","hint":"no `git`; get it","reason":"no `git`"}"#;
        let refusal = refused(StatusCode::FAILED_DEPENDENCY, said);
        assert!(!refusal.is_unheard());
        let failure = not_connected("git", refusal.into());
        assert_eq!(failure.verdict(), Verdict::Unreachable);
        let ServiceFault { message, hint, .. } = failure.summary();
        assert_eq!(message, "`git` is not connected: no `git`");
        assert_eq!(hint.as_deref(), Some("get it"));
        let said = br#"{"code":"NOT_FOUND","message":"no server has this id or name"}"#;
        let refusal = refused(StatusCode::NOT_FOUND, said);
        assert!(refusal.is_unheard());
        assert_eq!(Failure::from(refusal).verdict(), Verdict::Usage);
    }
}
