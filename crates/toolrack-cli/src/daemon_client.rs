//! Client of the daemon's API over its Unix socket: finds the daemon, starts it where required, and
//! sends requests. The background process: spawning, log file and environment.
//!
//! The daemon is this program in a session of its own. An error before it is ready comes as JSON over
//! a pipe and is reported here; the log may be on a full disk.
//!
//! **Invariant:** a command uses only a daemon with the same config file and agent.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use clap::ValueEnum as _;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::time::{Instant, sleep};
use toolrack_config::{Lookup, McpServerConfig, McpTransport, VariableSource};
use toolrack_daemon::{DaemonError, DaemonInfo};
use toolrack_gateway::TIMEOUT_HEADER;
use toolrack_http::UnixClient;
use toolrack_platform::{ensure_regular, private_options};
use toolrack_service::{ErrorCode, ErrorDetail, Home, InsecureHome, McpStatus, SharedLookup};
use tracing::Level;
use url::Url;
use uuid::Uuid;

use crate::args::DaemonStartOptions;
use crate::commands::Context;
use crate::error::{CliError, ExitCode, command, flags};
use crate::server_selection::{Servers, Warnings};
use crate::settings::{DaemonUse, Listen, Settings, Variable, env_var};

/// Maximum time to wait for a response. The daemon's own limits are shorter.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(100);

/// After this time without a response, the daemon is asked whether it still answers, and then again
/// and again.
const PROBE_DELAY: Duration = Duration::from_secs(1);
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// How long a daemon that works may take for a request that costs it nothing.
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

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
    need: DaemonNeed,
}

/// Whether a command can do its work without a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DaemonNeed {
    Optional,
    Required,
}

/// What a daemon made of the request to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopRequest {
    Accepted,
    /// It accepts no connection: it may be stopping, or its socket was removed.
    NotConnected,
    /// It does not answer, or with an error.
    Failed,
}

/// The daemon of this home, for any config file.
pub(crate) fn find_any(settings: &Settings) -> Result<Option<Daemon>, CliError> {
    let running = DaemonInfo::find(settings.home()?)?;
    let need = DaemonNeed::Required;
    Ok(running.map(|running| Daemon { client: UnixClient::new(&running.socket), running, need }))
}

/// The daemon for the current config file and agent, unless `--no-daemon` is given.
pub(crate) fn find(settings: &Settings) -> Result<Option<Daemon>, CliError> {
    if settings.daemon == DaemonUse::Never {
        return Ok(None);
    }
    let found = find_any(settings)?.filter(|daemon| daemon.serves(settings));
    Ok(found.map(|daemon| Daemon { need: DaemonNeed::Optional, ..daemon }))
}

/// The daemon of this home. A daemon for another config file or agent is an error.
pub(crate) fn find_matching(settings: &Settings) -> Result<Option<Daemon>, CliError> {
    let found = find_any(settings)?;
    let Some(other) = found.as_ref().filter(|found| !found.serves(settings)) else {
        return Ok(found);
    };
    let running = &other.running;
    let agent = running.agent.as_ref().map(|agent| format!(" and agent `{agent}`"));
    let message = format!(
        "the daemon of this home (process {}) uses another config: {}{}",
        running.pid,
        running.config.display(),
        agent.unwrap_or_default(),
    );
    let hint = "stop it with `toolrack daemon stop`, or use the same `--config` and `--agent`";
    Err(CliError::new(ExitCode::Config, ErrorCode::Conflict, message, hint))
}

/// The daemon for the current config file and agent, started if necessary.
pub(crate) async fn require(context: &Context) -> Result<Daemon, CliError> {
    let settings = &context.settings;
    let find = || find(settings).map(|found| found.map(Daemon::required));
    if let Some(daemon) = find()? {
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
    start_process(&DaemonStartOptions::default(), context).await?;
    find()?.ok_or_else(|| unavailable("the daemon exited right after it started"))
}

/// Error: there is no usable daemon.
pub(crate) fn unavailable(message: &str) -> CliError {
    let hint = format!("start one with {}", command("daemon start"));
    CliError::new(ExitCode::Unreachable, ErrorCode::ServiceUnavailable, message, hint)
}

impl Daemon {
    fn required(self) -> Self {
        Self { need: DaemonNeed::Required, ..self }
    }

    /// Whether it has the same config file and agent.
    fn serves(&self, settings: &Settings) -> bool {
        let config = settings.home().ok().map(Home::config_file);
        // The daemon writes an absolute path; `--config` may be relative to this directory.
        let config = config.and_then(|file| std::path::absolute(file).ok());
        let DaemonInfo { config: theirs, agent, .. } = &self.running;
        *agent == settings.agent && config.as_ref() == Some(theirs)
    }

    /// Sends a request to the API.
    pub(crate) async fn request<T: DeserializeOwned>(
        &self,
        method: Method,
        target: &str,
    ) -> Result<T, CliError> {
        let asked = self.client.request(method, target, None, RESPONSE_TIMEOUT);
        let asked = async { asked.await.map_err(|error| self.unreachable(&error)) };
        // Boxed: the future of a request is large, and some commands send several.
        let answer = Box::pin(self.while_alive(asked)).await?;
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

    /// Awaits `work`, which depends on the daemon, as long as the daemon answers. A daemon that is
    /// stopped or stuck accepts connections, so only a request that costs it nothing can tell.
    ///
    /// # Cancel safety
    ///
    /// Drops `work` when the daemon does not answer.
    pub(crate) async fn while_alive<T>(
        &self,
        work: impl Future<Output = Result<T, CliError>>,
    ) -> Result<T, CliError> {
        let watch = async {
            sleep(PROBE_DELAY).await;
            loop {
                if let Err(error) = self.probe().await {
                    return error;
                }
                sleep(PROBE_INTERVAL).await;
            }
        };
        tokio::select! {
            biased;
            outcome = work => outcome,
            error = watch => Err(error),
        }
    }

    /// Checks that the daemon answers. A daemon that is shutting down refuses connections and still
    /// finishes its calls, so that is not an error.
    pub(crate) async fn probe(&self) -> Result<(), CliError> {
        match self.client.request(Method::GET, "/api/daemon", None, PROBE_TIMEOUT).await {
            Err(error) if is_unresponsive(&error) => Err(self.unreachable(&error)),
            _ => Ok(()),
        }
    }

    /// Asks the daemon to stop.
    pub(crate) async fn ask_to_stop(&self) -> StopRequest {
        let asked = self.client.request(Method::POST, "/api/daemon/stop", None, PROBE_TIMEOUT);
        match asked.await {
            Ok(answer) if answer.status.is_success() => StopRequest::Accepted,
            Ok(answer) => {
                tracing::debug!(status = %answer.status, "the daemon refuses to stop");
                StopRequest::Failed
            }
            Err(error) => match error.kind() {
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
                    StopRequest::NotConnected
                }
                _ => StopRequest::Failed,
            },
        }
    }

    fn unreachable(&self, error: &io::Error) -> CliError {
        let pid = self.running.pid;
        let message = if is_unresponsive(error) {
            format!("the daemon (process {pid}) does not answer")
        } else {
            format!("cannot reach the daemon (process {pid}): {error}")
        };
        // Not `daemon status`, which needs an answer too.
        let hint = match self.need {
            DaemonNeed::Optional => "end it with `toolrack daemon stop`, or use `--no-daemon`",
            DaemonNeed::Required => "end it with `toolrack daemon stop`",
        };
        unavailable(&message).with_hint(hint)
    }

    /// Runs an action on a server, and waits for the result.
    pub(crate) async fn act(&self, server: &str, verb: &str) -> Result<Status, CliError> {
        self.request(Method::POST, &path(&["api", "servers", server, verb])).await
    }

    /// Status of all its servers.
    pub(crate) async fn statuses(&self) -> Result<Vec<Status>, CliError> {
        let Statuses { servers } = self.request(Method::GET, "/api/agents/mcp").await?;
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
            match self.request::<IgnoredAny>(Method::GET, &target).await {
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
        let timeout = timeout.map(|timeout| timeout.as_millis().to_string());
        let headers: HashMap<String, String> =
            timeout.map(|ms| (TIMEOUT_HEADER.to_owned(), ms)).into_iter().collect();
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
                max_list_bytes: config.max_list_bytes,
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
    failure.exit_code == ExitCode::Usage && failure.summary().code == ErrorCode::NotFound
}

/// Whether the daemon is there and does not answer. `WouldBlock`: its queue of connections is full.
fn is_unresponsive(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
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
    // A sentence about the server itself, such as "`x` is disabled" or "`x` is still starting", is
    // complete; the reason of a failed start is not.
    if field.is_some() || message.starts_with(&format!("`{name}` ")) {
        return failure;
    }
    failure.with_message(format!("`{name}` is not connected: {message}")).with_login_hint(name)
}

impl From<DaemonError> for CliError {
    fn from(error: DaemonError) -> Self {
        let hint = match &error {
            DaemonError::AlreadyRunning { pid: Some(_), .. } => {
                Some("use the running daemon, or stop it with `toolrack daemon stop`".to_owned())
            }
            DaemonError::Listen { other_user: Some(_), .. } => Some(
                "choose another port with `toolrack daemon start --listen 127.0.0.1:0` (0 picks a free port) or \
                 with `TOOLRACK_LISTEN`; clients that are configured for this port send their keys to that \
                 program, so replace each one with `toolrack key rotate NAME`"
                    .to_owned(),
            ),
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
    home.log_file()
}

/// Maximum time until the daemon is ready. It does not wait for its servers.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(20);
const STARTUP_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long to look for a daemon that won the race for the instance lock, or whose lock file was
/// removed, until it has written its address.
const OTHER_DAEMON_WAIT: Duration = Duration::from_secs(10);
/// Maximum read of its errors, and the size of a pipe.
const MAX_READ_BYTES: usize = 64 << 10;

/// Starts the daemon in the background, and waits until it is ready.
pub(crate) async fn start_process(
    options: &DaemonStartOptions,
    context: &Context,
) -> Result<DaemonInfo, CliError> {
    let settings = &context.settings;
    let home = settings.home()?;
    // Report config errors before creating anything.
    Servers::configured(Warnings::None, context)?;
    let log = log_file(home);
    make_home(home)?;
    // Its errors are requested as JSON, to be parsed here.
    let words = ["-o", "json", "daemon", "start", "--foreground", "--detached"];
    let listen = options.listen.or(settings.listen);
    let mut child = spawn(daemon_args(&words, listen, settings)?)?;
    let mut deadline = Instant::now() + STARTUP_TIMEOUT;
    // The error of our daemon, if another one may have won the race for the instance lock.
    let mut lost_race = None;
    loop {
        // Polls the lock file, which the daemon writes when its sockets are ready.
        let found = DaemonInfo::find(home)?;
        if let Some(running) =
            found.filter(|running| running.pid == child.id() || lost_race.is_some())
        {
            return Ok(running);
        }
        if lost_race.is_none()
            && let Some(status) = child.try_wait()?
        {
            let failure = exit_error(status.code(), &read_errors(&mut child), &log);
            match failure.summary().code {
                // Two commands started a daemon at once; the other one serves both.
                ErrorCode::Conflict => deadline = Instant::now() + OTHER_DAEMON_WAIT,
                _ => return Err(failure),
            }
            lost_race = Some(failure);
        }
        if Instant::now() >= deadline {
            return Err(lost_race.unwrap_or_else(|| startup_timeout(&mut child, &log)));
        }
        context.sleep(STARTUP_POLL_INTERVAL).await?;
    }
}

/// Why the daemon exited early, from its errors.
fn exit_error(code: Option<i32>, errors: &str, log: &Path) -> CliError {
    let exit_code =
        ExitCode::value_variants().iter().find(|exit_code| Some(**exit_code as i32) == code);
    // The last error that was printed as JSON.
    let last_error = errors.lines().rev().find_map(|line| serde_json::from_str(line).ok());
    match (last_error, exit_code) {
        (Some(error_detail), Some(exit_code)) => {
            CliError::from_details(*exit_code, vec![error_detail])
        }
        _ => unavailable("the daemon exited before it was ready")
            .with_hint(format!("see its log: {}", log.display())),
    }
}

/// What a daemon that has exited wrote to the pipe. Does not wait for more: another process may have
/// inherited the pipe.
fn read_errors(child: &mut Child) -> String {
    let Some(pipe) = child.stderr.take() else { return String::new() };
    if rustix::io::ioctl_fionbio(&pipe, true).is_err() {
        return String::new();
    }
    let mut bytes = Vec::new();
    // It ends with `WouldBlock` if the pipe is still open; what was read is kept.
    pipe.take(MAX_READ_BYTES as u64).read_to_end(&mut bytes).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The pipe to the command that starts a daemon in the background.
#[derive(Debug)]
pub(crate) struct StartupReport(File);

impl StartupReport {
    /// Turns stderr from the pipe to the log, so that the processes of the daemon do not inherit
    /// the pipe.
    pub(crate) fn redirect_stderr(log: &Path) -> io::Result<Self> {
        let pipe = rustix::io::fcntl_dupfd_cloexec(io::stderr(), 3)?;
        rustix::stdio::dup2_stderr(&open_log(log)?)?;
        Ok(Self(File::from(pipe)))
    }

    /// Reports why the daemon does not start.
    pub(crate) fn error(&mut self, error: &CliError) {
        let line = serde_json::to_string(&error.summary()).unwrap_or_default();
        // The command may have been interrupted; the log has the error too.
        writeln!(self.0, "{line}").unwrap_or_default();
    }
}

fn startup_timeout(child: &mut Child, log: &Path) -> CliError {
    // Its servers end with it: their guardians notice.
    let killed = child.kill().and_then(|()| child.wait());
    let message = match killed {
        Ok(_) => "the daemon was not ready in time and was stopped".to_owned(),
        Err(error) => format!("the daemon was not ready in time and cannot be stopped: {error}"),
    };
    unavailable(&message).with_hint(format!("see its log: {}", log.display()))
}

/// Arguments that start a daemon for the current servers, in a process with another working
/// directory.
pub(crate) fn daemon_args(
    words: &[&str],
    listen: Option<Listen>,
    settings: &Settings,
) -> Result<Vec<String>, CliError> {
    let mut args = Vec::new();
    if settings.has_explicit_config {
        let file = std::path::absolute(settings.home()?.config_file())?;
        let text = file.to_str().ok_or_else(|| {
            let message = format!("the path {} is not valid UTF-8", file.display());
            CliError::config(message, "rename the file or its directory").with_field("--config")
        })?;
        args.extend(["--config".to_owned(), text.to_owned()]);
    }
    if settings.insecure_home == InsecureHome::Allow {
        args.push("--allow-insecure-home".to_owned());
    }
    if let Some(agent) = &settings.agent {
        args.extend(["--agent".to_owned(), agent.clone()]);
    }
    args.extend(words.iter().map(|&word| word.to_owned()));
    if let Some(listen) = listen {
        args.extend(["--listen".to_owned(), listen.to_string()]);
    }
    Ok(args)
}

fn spawn(arguments: Vec<String>) -> io::Result<Child> {
    let program = std::env::current_exe()?;
    #[expect(clippy::disallowed_methods, reason = "the daemon is this program, not a server")]
    let mut command = Command::new(program);
    if let Some(dir) = env_var(Variable::Home).filter(|dir| Path::new(dir).is_dir()) {
        // The daemon may outlive the current directory.
        command.current_dir(dir);
    }
    let command = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::piped()).spawn()
}

/// Opens the log for appending, readable by its owner only.
pub(crate) fn open_log(path: &Path) -> io::Result<File> {
    let file = private_options().create(true).append(true).open(path)?;
    ensure_regular(&file)?;
    Ok(file)
}

/// Creates the data directory.
pub(crate) fn make_home(home: &Home) -> Result<(), CliError> {
    let dir = home.dir();
    toolrack_platform::create_private_dir(dir).map_err(|error| {
        let hint = "check the permissions of it and its parent directories, or set \
             `TOOLRACK_HOME` to another directory";
        cannot_open(dir, &error).with_hint(hint)
    })
}

pub(crate) fn cannot_open(path: &Path, error: &io::Error) -> CliError {
    let message = format!("cannot create or open {}: {error}", path.display());
    CliError::from(io::Error::new(error.kind(), message))
}

/// Size at which the log is rotated. One old file is kept.
const MAX_LOG_BYTES: u64 = 2 << 20;

/// A log file with rotation.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    file: File,
    n_bytes: u64,
}

impl LogFile {
    fn open(path: PathBuf) -> io::Result<Self> {
        let file = open_log(&path)?;
        let n_bytes = file.metadata()?.len();
        Ok(Self { path, file, n_bytes })
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.n_bytes >= MAX_LOG_BYTES {
            // Not a rename: an earlier version, or a program that writes to the same file, may have let it grow.
            let file = private_options().read(true).open(&self.path)?;
            let max_bytes = usize::try_from(MAX_LOG_BYTES).unwrap_or(usize::MAX);
            let tail = toolrack_service::read_tail(&file, max_bytes)?;
            toolrack_platform::replace(&self.path.with_extension("log.old"), &tail)?;
            self.file.set_len(0)?;
            self.n_bytes = 0;
        }
        let n_bytes = self.file.write(bytes)?;
        self.n_bytes = self.n_bytes.saturating_add(n_bytes as u64);
        Ok(n_bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Sends tracing output to a file, or to stderr.
pub(crate) fn init_logging(path: Option<PathBuf>) -> io::Result<()> {
    let format = tracing_subscriber::fmt().with_max_level(Level::INFO).with_ansi(false);
    match path {
        Some(path) => format.with_writer(Mutex::new(LogFile::open(path)?)).init(),
        None => format.with_writer(io::stderr).init(),
    }
    Ok(())
}

/// Environment lookup of a daemon: variables set after its start never reach it, and hints say so.
pub(crate) struct DaemonEnv {
    pub(crate) values: SharedLookup,
    /// The command that starts the daemon for the same servers.
    pub(crate) start: String,
}

impl Lookup for DaemonEnv {
    fn look_up(&self, source: VariableSource, name: &str) -> Result<Option<String>, String> {
        self.values.look_up(source, name)
    }

    fn advice(&self, variable: &str) -> Option<String> {
        Some(format!(
            "the daemon was started without `{variable}`; set it, run `toolrack daemon stop`, then `{}`",
            self.start
        ))
    }
}

/// The command that starts a daemon for this config file and agent.
pub(crate) fn start_command(config: Option<&Path>, agent: Option<&str>) -> String {
    format!("toolrack {}daemon start", flags(config, agent))
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
        assert_eq!((failure.exit_code, failure.hint()), (ExitCode::Denied, Some("ask")));
        assert!(!is_unknown_server(&failure));
        let malformed = api_error(StatusCode::BAD_GATEWAY, b"oops");
        assert_eq!(malformed.exit_code, ExitCode::Unreachable);
    }

    #[test]
    fn port_of_another_user_is_reported() {
        let listen = |other_user| {
            let (addr, source) = (toolrack_daemon::DEFAULT_ADDR, io::ErrorKind::AddrInUse.into());
            CliError::from(DaemonError::Listen { addr, other_user, source })
        };
        let failure = listen(Some(1001));
        let ErrorDetail { message, hint, .. } = failure.summary();
        assert!(message.contains("a program of another user (uid 1001) listens"), "{message}");
        assert!(hint.unwrap().contains("`toolrack key rotate NAME`"));
        let ErrorDetail { message, hint, .. } = listen(None).summary();
        assert!(
            !message.contains("another user") && !hint.unwrap().contains("rotate"),
            "{message}"
        );
    }

    #[test]
    fn missing_program_is_not_an_unknown_server() {
        let json = br#"{"code":"NOT_FOUND","message":"Package not found","hint":"no `git`; get it","reason":"no `git`"}"#;
        let error = api_error(StatusCode::FAILED_DEPENDENCY, json);
        assert!(!is_unknown_server(&error));
        let failure = not_connected("git", error);
        assert_eq!(failure.exit_code, ExitCode::Unreachable);
        let ErrorDetail { message, hint, .. } = failure.summary();
        assert_eq!(message, "`git` is not connected: no `git`");
        assert_eq!(hint.as_deref(), Some("get it"));
        let json = br#"{"code":"NOT_FOUND","message":"no server has this id or name"}"#;
        let error = api_error(StatusCode::NOT_FOUND, json);
        assert!(is_unknown_server(&error));
        assert_eq!(error.exit_code, ExitCode::Usage);
        let json = br#"{"code":"CONFLICT","message":"`git` is disabled","field":"enabled"}"#;
        let disabled = not_connected("git", api_error(StatusCode::CONFLICT, json));
        assert_eq!(disabled.summary().message, "`git` is disabled");
    }

    #[test]
    fn server_is_named_once() {
        let json = br#"{"code":"NETWORK_ERROR","message":"`git` is still starting"}"#;
        let failure = not_connected("git", api_error(StatusCode::GATEWAY_TIMEOUT, json));
        assert_eq!(failure.summary().message, "`git` is still starting");
    }

    #[test]
    fn last_error_of_a_failed_start_is_reported() {
        let check = |text: &str, expected: (ErrorCode, &str)| {
            let summary = exit_error(Some(2), text, Path::new("/log")).summary();
            assert_eq!((summary.code, summary.message.as_str()), expected);
        };
        let json = "x\n{\"code\":\"CONFLICT\",\"message\":\"a\"}\nbye\n";
        check(json, (ErrorCode::Conflict, "a"));
        let unknown = "the daemon exited before it was ready";
        check("nothing", (ErrorCode::ServiceUnavailable, unknown));
    }

    #[test]
    fn long_log_is_rotated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("daemon.log");
        let mut log = LogFile::open(path.clone()).unwrap();
        log.write_all(&vec![b'x'; 2 << 20]).unwrap();
        log.write_all(b"new\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new\n");
        assert_eq!(std::fs::metadata(dir.path().join("daemon.log.old")).unwrap().len(), 2 << 20);
    }

    #[test]
    fn start_command_keeps_config_and_agent() {
        let check = |config: Option<&str>, agent, expected: &str| {
            assert_eq!(start_command(config.map(Path::new), agent), expected);
        };
        check(None, None, "toolrack daemon start");
        check(Some("/c.toml"), Some("a"), "toolrack --config /c.toml --agent a daemon start");
        check(Some("/my c.toml"), None, "toolrack --config '/my c.toml' daemon start");
    }
}
