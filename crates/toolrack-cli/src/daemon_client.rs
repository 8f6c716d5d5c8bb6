//! Client of the daemon's API over its Unix socket: finds the daemon, starts it where required, and
//! sends requests.
//!
//! **Invariant:** a command uses only a daemon with the same config file and agent.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use http::{Method, StatusCode};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::time::{Instant, sleep};
use toolrack_config::{McpServerConfig, McpTransport};
use toolrack_daemon::{DaemonError, DaemonInfo};
use toolrack_gateway::TIMEOUT_HEADER;
use toolrack_http::UnixClient;
use toolrack_service::{ErrorCode, ErrorDetail, Home, McpStatus};
use url::Url;
use uuid::Uuid;

use crate::args::daemon::DaemonStartOptions;
use crate::context::Context;
use crate::daemon_process;
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::settings::{DaemonUse, Settings};
use crate::suggested_command::command;

/// Maximum time to wait for a response. The daemon's own limits are shorter.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(100);

/// How long the daemon may take to notice a change of the config file.
const CONFIG_RELOAD_WAIT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Status of a server in the daemon.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Status {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    #[serde(rename = "status")]
    pub(crate) state: McpStatus,
    /// The connection phase, in one word.
    pub(crate) phase: String,
    pub(crate) problem: Option<ErrorDetail>,
    pub(crate) n_tools: usize,
    pub(crate) n_tools_total: Option<usize>,
    pub(crate) retry_in_ms: Option<u64>,
    /// The process whose descendants are the server's processes.
    pub(crate) process: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct Statuses {
    servers: Vec<Status>,
}

/// A running daemon and its client.
#[derive(Debug, Clone)]
pub(crate) struct Daemon {
    pub(crate) running: DaemonInfo,
    client: UnixClient,
}

/// The daemon of this home, for any config file.
pub(crate) fn find_any(settings: &Settings) -> Result<Option<Daemon>, CliError> {
    let running = DaemonInfo::find(settings.home()?)?;
    Ok(running.map(|running| Daemon { client: UnixClient::new(&running.socket), running }))
}

/// The daemon for the current config file and agent, unless `--no-daemon` is given.
pub(crate) fn find(settings: &Settings) -> Result<Option<Daemon>, CliError> {
    if settings.daemon == DaemonUse::Never {
        return Ok(None);
    }
    Ok(find_any(settings)?.filter(|daemon| daemon.serves(settings)))
}

/// The daemon of this home. A daemon for another config file or agent is an error.
pub(crate) fn find_matching(settings: &Settings) -> Result<Option<Daemon>, CliError> {
    match find_any(settings)? {
        Some(other) if !other.serves(settings) => Err(wrong_daemon(&other.running)),
        found => Ok(found),
    }
}

fn wrong_daemon(running: &DaemonInfo) -> CliError {
    let agent = running.agent.as_ref().map(|agent| format!(" and agent `{agent}`"));
    let message = format!(
        "the daemon of this home (process {}) uses another config: {}{}",
        running.pid,
        running.config.display(),
        agent.unwrap_or_default(),
    );
    let hint = "stop it with `toolrack daemon stop`, or use the same `--config` and `--agent`";
    CliError::new(ExitCode::Config, ErrorCode::Conflict, message, hint)
}

/// The daemon for the current config file and agent, started if necessary.
pub(crate) async fn require(context: &Context) -> Result<Daemon, CliError> {
    let settings = &context.settings;
    if let Some(daemon) = find(settings)? {
        return Ok(daemon);
    }
    // A daemon for another config is a clearer error than a failed start, because one home
    // has one daemon.
    if settings.daemon != DaemonUse::Never {
        find_matching(settings)?;
    }
    if settings.daemon != DaemonUse::Auto {
        return Err(unavailable("this command requires a daemon, and starting one is disabled"));
    }
    daemon_process::start(&DaemonStartOptions::default(), context).await?;
    find(settings)?.ok_or_else(|| unavailable("the daemon exited right after it started"))
}

/// Error: there is no usable daemon.
pub(crate) fn unavailable(message: &str) -> CliError {
    let hint = format!("start one with {}", command("daemon start"));
    CliError::new(ExitCode::Unreachable, ErrorCode::ServiceUnavailable, message, hint)
}

impl Daemon {
    /// Whether it has the same config file and agent.
    fn serves(&self, settings: &Settings) -> bool {
        let config = settings.home().ok().map(Home::config_file);
        // The daemon writes an absolute path; `--config` may be relative to this directory.
        let config = config.and_then(|file| std::path::absolute(file).ok());
        let DaemonInfo { config: theirs, agent, .. } = &self.running;
        *agent == settings.agent && config.as_ref() == Some(theirs)
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, target: &str) -> Result<T, CliError> {
        self.request(Method::GET, target).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(&self, target: &str) -> Result<T, CliError> {
        self.request(Method::POST, target).await
    }

    async fn request<T: DeserializeOwned>(
        &self,
        method: Method,
        target: &str,
    ) -> Result<T, CliError> {
        let asked = self.client.request(method, target, None, RESPONSE_TIMEOUT).await;
        let answer = asked.map_err(|error| {
            let message = format!("the daemon (process {}) {error}", self.running.pid);
            let status = command("daemon status");
            unavailable(&message).with_hint(format!("check it with {status}, or use `--no-daemon`"))
        })?;
        if !answer.status.is_success() {
            return Err(api_error(answer.status, &answer.body));
        }
        // Responses such as 202 have no body.
        let body: &[u8] = if answer.body.is_empty() { b"null" } else { &answer.body };
        serde_json::from_slice(body).map_err(|error| {
            let message = format!("cannot parse the daemon's response: {error}");
            let hint = "it may be another version; run `toolrack daemon stop`, then start it \
                 again";
            unavailable(&message).with_hint(hint)
        })
    }

    /// Runs an action on a server, and waits for the result.
    pub(crate) async fn act(&self, server: &str, verb: &str) -> Result<Status, CliError> {
        self.post(&path(&["api", "servers", server, verb])).await
    }

    /// Status of all its servers.
    pub(crate) async fn statuses(&self) -> Result<Vec<Status>, CliError> {
        let Statuses { servers } = self.get("/api/agents/mcp").await?;
        Ok(servers)
    }

    /// Runs an action that starts a server, and waits until it is running. A server that was just
    /// added is waited for.
    pub(crate) async fn act_and_wait(&self, name: &str, verb: &str) -> Result<Status, CliError> {
        // Once for all rounds: a server that never appears must not be waited for again and again.
        let deadline = Instant::now() + CONFIG_RELOAD_WAIT;
        let mut verb = verb;
        loop {
            match self.act(name, verb).await {
                // The daemon answers before a slow server is ready; asking again waits on.
                Ok(status) if status.state == McpStatus::Starting => verb = "start",
                Ok(status) => return Ok(status),
                Err(failure) if is_unknown_server(&failure) => {
                    self.wait_until_known(name, deadline).await?;
                }
                Err(failure) => return Err(not_connected(name, failure)),
            }
        }
    }

    /// Polls until the daemon has read a server from the config file. A GET starts nothing.
    async fn wait_until_known(&self, name: &str, deadline: Instant) -> Result<(), CliError> {
        let target = path(&["api", "servers", name]);
        while Instant::now() < deadline {
            sleep(POLL_INTERVAL).await;
            match self.get::<IgnoredAny>(&target).await {
                Ok(_) => return Ok(()),
                Err(failure) if is_unknown_server(&failure) => {}
                Err(failure) => return Err(failure),
            }
        }
        let pid = self.running.pid;
        let message = format!("the daemon (process {pid}) has not loaded `{name}` from the config");
        let hint = format!("see its log with {}", command("daemon logs"));
        Err(unavailable(&message).with_hint(hint))
    }

    /// The same servers, connected through the daemon, which is told the request timeout if there
    /// is one.
    pub(crate) fn endpoints(
        &self,
        configs: &[McpServerConfig],
        timeout: Option<Duration>,
    ) -> Vec<McpServerConfig> {
        let header =
            timeout.map(|timeout| (TIMEOUT_HEADER.to_owned(), timeout.as_millis().to_string()));
        let headers: HashMap<String, String> = header.into_iter().collect();
        let endpoint = |config: &McpServerConfig| {
            let url = self.url(&path(&["mcp", "server", &config.name]));
            let transport = McpTransport::Http { url, headers: headers.clone() };
            McpServerConfig {
                enabled: config.enabled,
                timeout: config.timeout,
                max_timeout: config.max_timeout,
                startup_timeout: config.startup_timeout,
                max_output_bytes: config.max_output_bytes,
                max_message_bytes: config.max_message_bytes,
                allow: config.allow.clone(),
                deny: config.deny.clone(),
                // The rest of the config applies in the daemon, which runs the real server.
                ..McpServerConfig::new(config.name.as_str(), transport)
            }
        };
        configs.iter().map(endpoint).collect()
    }

    /// URL of a path in the daemon's API. `${` is escaped, because configs expand it.
    pub(crate) fn url(&self, target: &str) -> String {
        format!("unix:{}:{target}", self.running.socket.display()).replace("${", "$${")
    }
}

/// Builds a path from segments, with percent-encoding.
pub(crate) fn path(parts: &[&str]) -> String {
    let Ok(mut url) = Url::parse("http://localhost") else { return String::new() };
    if let Ok(mut segments) = url.path_segments_mut() {
        // Segment by segment: a slash in a name must not become part of the path.
        segments.clear().extend(parts);
    }
    url.path().to_owned()
}

/// Whether the daemon does not know the server. A missing program has another exit code.
fn is_unknown_server(failure: &CliError) -> bool {
    failure.exit_code() == ExitCode::Usage && failure.summary().code == ErrorCode::NotFound
}

/// Converts an error response.
fn api_error(status: StatusCode, body: &[u8]) -> CliError {
    let Ok(error_detail) = serde_json::from_slice::<ErrorDetail>(body) else {
        return unavailable("the daemon rejected the request without a reason");
    };
    let mut error_detail = error_detail.with_reason_as_message();
    let exit_code = match (status, error_detail.code) {
        // The server's program is missing; the name was not mistyped.
        (StatusCode::FAILED_DEPENDENCY, ErrorCode::NotFound) => ExitCode::Unreachable,
        (_, code) => ExitCode::from_error_code(code),
    };
    error_detail.hint.get_or_insert_with(|| format!("see {}", command("status")));
    CliError::from_details(exit_code, vec![error_detail])
}

/// Words the error as it is worded without a daemon.
fn not_connected(name: &str, failure: CliError) -> CliError {
    let ErrorDetail { message, field, .. } = failure.summary();
    match field {
        // About the server's entry, such as a disabled server, and not about a failed start.
        Some(_) => failure,
        None => failure.with_message(format!("`{name}` is not connected: {message}")),
    }
}

impl From<DaemonError> for CliError {
    fn from(error: DaemonError) -> Self {
        let hint = match &error {
            DaemonError::AlreadyRunning { .. } => {
                Some("use the running daemon, or stop it with `toolrack daemon stop`".to_owned())
            }
            DaemonError::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => Some(
                "another program uses this port; choose another one with `toolrack daemon start --listen \
                 127.0.0.1:0` (0 picks a free port) or with `TOOLRACK_LISTEN`"
                    .to_owned(),
            ),
            error => error.hint(),
        };
        let message = toolrack_manager::error_chain(&error);
        let failure = match error {
            // Config errors have their own hint.
            DaemonError::Service(error) => {
                let hint = format!("fix the config file with {}", command("edit"));
                return CliError::from_service(error, &hint);
            }
            DaemonError::AlreadyRunning { .. } => {
                CliError::new(ExitCode::Config, ErrorCode::Conflict, message, String::new())
            }
            DaemonError::NotLoopback(_) | DaemonError::Listen { .. } => {
                CliError::config(message, "").with_field("--listen")
            }
            _ => CliError::new(ExitCode::Unreachable, ErrorCode::Internal, message, ""),
        };
        failure.with_hint(hint.unwrap_or_else(|| {
            "check the permissions and free space of the data directory".to_owned()
        }))
    }
}

/// Path of the daemon log.
pub(crate) fn log_file(home: &Home) -> PathBuf {
    home.dir().join("daemon.log")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_segments_are_encoded() {
        let check = |parts: &[&str], expected: &str| assert_eq!(path(parts), expected);
        check(&["api", "servers", "git"], "/api/servers/git");
        check(&["mcp", "server", "a/b ?#%"], "/mcp/server/a%2Fb%20%3F%23%25");
    }

    #[test]
    fn daemon_errors_keep_their_code() {
        let json = br#"{"code":"DENIED","message":"no","hint":"ask"}"#;
        let failure = api_error(StatusCode::FORBIDDEN, json);
        assert_eq!((failure.exit_code(), failure.hint()), (ExitCode::Denied, Some("ask")));
        assert!(!is_unknown_server(&failure));
        let malformed = api_error(StatusCode::BAD_GATEWAY, b"oops");
        assert_eq!(malformed.exit_code(), ExitCode::Unreachable);
    }

    #[test]
    fn missing_program_is_not_an_unknown_server() {
        let json = br#"{"code":"NOT_FOUND","message":"Package not found","hint":"no `git`; get it","reason":"no `git`"}"#;
        let error = api_error(StatusCode::FAILED_DEPENDENCY, json);
        assert!(!is_unknown_server(&error));
        let failure = not_connected("git", error);
        assert_eq!(failure.exit_code(), ExitCode::Unreachable);
        let ErrorDetail { message, hint, .. } = failure.summary();
        assert_eq!(message, "`git` is not connected: no `git`");
        assert_eq!(hint.as_deref(), Some("get it"));
        let json = br#"{"code":"NOT_FOUND","message":"no server has this id or name"}"#;
        let error = api_error(StatusCode::NOT_FOUND, json);
        assert!(is_unknown_server(&error));
        assert_eq!(error.exit_code(), ExitCode::Usage);
        let json = br#"{"code":"CONFLICT","message":"`git` is disabled","field":"enabled"}"#;
        let disabled = not_connected("git", api_error(StatusCode::CONFLICT, json));
        assert_eq!(disabled.summary().message, "`git` is disabled");
    }
}
