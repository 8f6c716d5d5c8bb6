//! `toolrack daemon` and `toolrack dashboard`: starts, stops and inspects the background daemon.
//!
//! **Invariant:** the single-use dashboard link is never on a command line, which other users can
//! read. The browser gets the path of a private file that redirects to it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use toolrack_daemon::{
    DEFAULT_ADDR, Daemon as Host, DaemonInfo, DaemonOptions as HostOptions, KeyFile, ShutdownKind,
};
use toolrack_platform::unix_time_ms;
use toolrack_service::{ErrorCode, McpStatus, SharedLookup};
use toolrack_stdio::ProcessHandle;

use crate::args::{DaemonAction, DaemonStartOptions, DashboardOptions};
use crate::commands::{Context, logs};
use crate::config_service::{insert_key, service_options};
use crate::daemon_client::{
    self, Daemon, DaemonEnv, StopRequest, find_any, find_matching, log_file,
};
use crate::error::{CliError, ExitCode, command};
use crate::external_program::open_page;
use crate::printer::{Output, format_ago, format_utc};
use crate::server_selection::{Servers, Warnings};
use crate::settings::{Listen, Settings, Variable, env_var};

/// The daemon gives running calls five seconds, and its servers up to thirty after that. A daemon that gets SIGTERM needs
/// as long as one that was asked.
const STOP_TIMEOUT: Duration = Duration::from_secs(45);
/// How long a daemon that accepts no connection may take, because it may be stopping already. A second signal would cut
/// that short.
const STOPPING_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a killed process may take to disappear.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the guardians of a killed daemon may take to end its servers.
const SERVERS_TIMEOUT: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// `GET /api/daemon`.
#[derive(Debug, Deserialize)]
struct About {
    started_ms: u64,
    n_running_calls: usize,
    /// Absent in older daemons.
    #[serde(default)]
    history: HistoryState,
}

/// What `GET /api/daemon` says about the call history.
#[derive(Debug, Default, Deserialize)]
struct HistoryState {
    n_dropped: u64,
    failure: Option<String>,
    notice: Option<String>,
}

impl HistoryState {
    /// What people should know. Empty if every call is recorded.
    fn warnings(self) -> impl Iterator<Item = String> {
        let lost = (self.n_dropped > 0)
            .then(|| format!("{} calls are missing in the call history", self.n_dropped));
        [self.notice, self.failure, lost].into_iter().flatten()
    }
}

/// Runs a `daemon` subcommand.
pub(crate) async fn daemon(action: DaemonAction, context: &Context) -> Result<(), CliError> {
    match action {
        DaemonAction::Start(options) => start(&options, context).await,
        DaemonAction::Stop => stop(context).await,
        DaemonAction::Status => status(context).await,
        DaemonAction::Logs(options) => logs::daemon_logs(options, context).await,
        DaemonAction::Unit => print_unit(context),
    }
}

async fn start(options: &DaemonStartOptions, context: &Context) -> Result<(), CliError> {
    let (settings, printer) = (&context.settings, &context.printer);
    if let Some(daemon) = find_matching(settings)? {
        daemon.probe().await?;
        let Daemon { running, .. } = daemon;
        let at = location(&running);
        let requested = options.listen.or(settings.listen);
        if let Some(listen) = requested.filter(|listen| !listens_on(&running, *listen)) {
            let message =
                format!("a daemon is already running, but not with `--listen {listen}`: {at}");
            let start = command(format_args!("daemon start --listen {listen}"));
            let hint = format!("stop it with `toolrack daemon stop`, then run {start}");
            let failure = CliError::new(ExitCode::Config, ErrorCode::Conflict, message, hint);
            return Err(failure.with_field("--listen"));
        }
        let text = format!("daemon is already running: {at}");
        printer.done(text, &state_json(&running, "already running"));
        return Ok(());
    }
    let running = daemon_client::start_process(options, context).await?;
    let log = log_file(settings.home()?);
    let text = format!("daemon started: {}\nlog: {}", location(&running), log.display());
    printer.done(text, &state_json(&running, "started"));
    Ok(())
}

/// Whether the daemon listens on the requested address. Port 0 matches any port.
fn listens_on(running: &DaemonInfo, listen: Listen) -> bool {
    match (listen, running.addr) {
        (Listen::None, addr) => addr.is_none(),
        (Listen::Addr(_), None) => false,
        (Listen::Addr(wanted), Some(addr)) => {
            wanted.ip() == addr.ip() && (wanted.port() == 0 || wanted.port() == addr.port())
        }
    }
}

/// Runs the daemon in this process, until a signal or a stop request.
pub(crate) fn run(options: &DaemonStartOptions, context: &Context) -> Result<(), CliError> {
    let home = context.settings.home()?;
    if !options.detached {
        return run_here(options, context);
    }
    daemon_client::make_home(home)?;
    let log = log_file(home);
    let report = daemon_client::StartupReport::redirect_stderr(&log);
    let mut report = report.map_err(|error| daemon_client::cannot_open(&log, &error))?;
    let outcome = run_here(options, context);
    if let Err(error) = &outcome {
        report.error(error);
    }
    outcome
}

fn run_here(options: &DaemonStartOptions, context: &Context) -> Result<(), CliError> {
    let settings = &context.settings;
    let home = settings.home()?;
    Servers::configured(Warnings::None, context)?;
    if options.detached {
        // A new session: the terminal's signals and hangup must not reach the daemon.
        rustix::process::setsid().map_err(std::io::Error::from)?;
    }
    daemon_client::make_home(home)?;
    daemon_client::init_logging(options.detached.then(|| log_file(home)))?;
    raise_file_limit();
    let listen = match options.listen.or(settings.listen) {
        Some(Listen::Addr(addr)) => Some(addr),
        Some(Listen::None) => None,
        None => Some(DEFAULT_ADDR),
    };
    let config = std::path::absolute(home.config_file())?;
    let config = settings.has_explicit_config.then_some(config.as_path());
    let start = daemon_client::start_command(config, settings.agent.as_deref());
    let mut service = service_options(settings)?;
    service.lookup =
        service.lookup.map(|values| Arc::new(DaemonEnv { values, start }) as SharedLookup);
    let options = HostOptions { listen, service, ..HostOptions::default() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ending = runtime.block_on(async {
        let host = Host::start(home.clone(), options).await?;
        tracing::info!(addr = ?host.addr(), socket = %host.socket().display(), "daemon started");
        Ok::<_, CliError>(host.run().await?)
    });
    // Does not wait for blocking threads, which may hang on slow disks.
    runtime.shutdown_background();
    match ending? {
        ShutdownKind::Graceful => Ok(()),
        ShutdownKind::Forced => Err(CliError::interrupted()),
    }
}

/// Raises the limit of open files to the maximum, because every server needs several.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::debug!(%error, "cannot raise the limit of open files");
    }
}

/// Stops the daemon: asks it, then terminates it, then kills it.
async fn stop(context: &Context) -> Result<(), CliError> {
    let (settings, printer) = (&context.settings, &context.printer);
    let Some(daemon) = find_any(settings)? else {
        printer.done("no daemon is running", &json!({ "state": "not running" }));
        return Ok(());
    };
    let pid = daemon.running.pid;
    // Before it ends: afterwards nothing tells its processes from others.
    let processes = DaemonProcesses::open(&daemon.running, context).await?;
    let mut forced_by = None;
    let limit = match daemon.ask_to_stop().await {
        StopRequest::Accepted => STOP_TIMEOUT,
        StopRequest::NotConnected => STOPPING_TIMEOUT,
        // It may have ended since it was found.
        StopRequest::Failed => Duration::ZERO,
    };
    let mut is_stopped = is_released(pid, limit, context).await?;
    if !is_stopped {
        printer.note(format_args!("note: the daemon (process {pid}) does not answer or stop"));
        processes.daemon(&daemon.running)?.terminate()?;
        forced_by = Some("SIGTERM");
        is_stopped = is_released(pid, STOP_TIMEOUT, context).await?;
    }
    if !is_stopped {
        printer.note(format_args!("note: the daemon (process {pid}) does not stop; killing it"));
        processes.daemon(&daemon.running)?.kill()?;
        forced_by = Some("SIGKILL");
        if !is_released(pid, KILL_TIMEOUT, context).await? {
            let message = format!("the daemon (process {pid}) cannot be killed");
            let hint =
                "the system holds it, for example on a network file system; restart the machine";
            return Err(daemon_client::unavailable(&message).with_hint(hint));
        }
    }
    // A daemon that ends by itself has waited for its servers. Otherwise their guardians end them.
    processes.wait_for_servers(context).await?;
    let text = format!("stopped the daemon (process {pid}) and all its servers");
    let mut json = json!({ "state": "stopped", "pid": pid });
    if let Some(signal) = forced_by {
        insert_key(&mut json, "signal", json!(signal));
    }
    printer.done(text, &json);
    Ok(())
}

/// Waits until the instance lock is released, which a daemon does last. Returns whether it was.
async fn is_released(pid: u32, limit: Duration, context: &Context) -> Result<bool, CliError> {
    let home = context.settings.home()?;
    let deadline = Instant::now() + limit;
    while DaemonInfo::find(home)?.is_some_and(|running| running.pid == pid) {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        context.sleep(POLL_INTERVAL).await?;
    }
    Ok(true)
}

/// The processes of a daemon, by handles that a reused pid cannot redirect.
struct DaemonProcesses {
    daemon: Option<ProcessHandle>,
    servers: Vec<ProcessHandle>,
}

impl DaemonProcesses {
    async fn open(running: &DaemonInfo, context: &Context) -> Result<Self, CliError> {
        let (pid, started) = (running.pid, running.start_time);
        let open = move || {
            let daemon = started.and_then(|started| ProcessHandle::open(pid, started).ok()?);
            let servers = daemon.as_ref().map(ProcessHandle::descendants).unwrap_or_default();
            Ok((daemon, servers))
        };
        let (daemon, servers) = context.blocking(open).await?;
        // The lock holder wrote this pid. It is still that process only if it still holds the lock.
        let is_same = DaemonInfo::find(context.settings.home()?)?.as_ref() == Some(running);
        Ok(Self { daemon: daemon.filter(|_| is_same), servers })
    }

    /// The daemon, for signals.
    fn daemon(&self, running: &DaemonInfo) -> Result<&ProcessHandle, CliError> {
        self.daemon.as_ref().ok_or_else(|| {
            // It runs in a container with the same home, or its system has no such handles.
            let pid = running.pid;
            let message = format!("the daemon is not process {pid} of this system");
            daemon_client::unavailable(&message).with_hint("stop it where it was started")
        })
    }

    /// Waits until the servers have ended. The guardians end them; what is left is killed.
    async fn wait_for_servers(&self, context: &Context) -> Result<(), CliError> {
        let deadline = Instant::now() + SERVERS_TIMEOUT;
        let mut is_cleaned_up = false;
        while !self.servers.iter().all(ProcessHandle::has_exited) {
            if Instant::now() >= deadline && !is_cleaned_up {
                context.blocking(|| Ok(toolrack_stdio::kill_orphans())).await?;
                for server in &self.servers {
                    // A process of another user cannot be killed; the error below tells.
                    server.kill().unwrap_or_default();
                }
                is_cleaned_up = true;
            } else if Instant::now() >= deadline + KILL_TIMEOUT {
                let message = "the daemon has stopped, but processes of its servers are left";
                let hint = "find them with `ps -ef`, and end them";
                return Err(daemon_client::unavailable(message).with_hint(hint));
            }
            context.sleep(POLL_INTERVAL).await?;
        }
        Ok(())
    }
}

async fn status(context: &Context) -> Result<(), CliError> {
    let (settings, printer) = (&context.settings, &context.printer);
    let Some(daemon) = find_matching(settings)? else {
        return Err(daemon_client::unavailable("no daemon is running for this home"));
    };
    let home = settings.home()?;
    let about: About = daemon.request(Method::GET, "/api/daemon").await?;
    let servers = daemon.statuses().await?;
    let n_running =
        servers.iter().filter(|server| matches!(server.state, McpStatus::Running { .. }));
    let (n_running, n_servers) = (n_running.count(), servers.len());
    let DaemonInfo { pid, socket, addr, version, config, agent, .. } = &daemon.running;
    // `None` if the file is damaged, which `doctor` and `key list` report.
    let n_keys = KeyFile::new(home).list().ok().map(|keys| keys.len());
    let url = addr.map(|addr| format!("http://{addr}"));
    let document = json!({
        "state": "running", "pid": pid, "version": version, "url": url,
        "mcp": url.as_ref().map(|url| format!("{url}/mcp")), "socket": socket,
        "n_keys": n_keys, "started_at": format_utc(about.started_ms),
        "config": config, "agent": agent, "n_servers": n_servers,
        "n_running_servers": n_running, "n_running_calls": about.n_running_calls,
        "log": log_file(home),
    });
    let started = format_ago(about.started_ms, unix_time_ms());
    let address = match url {
        Some(url) => format!(
            "address   {url}\nendpoint  {url}/mcp (requires a key; see {})",
            command("key list")
        ),
        None => "address   none (Unix socket only)".to_owned(),
    };
    let text = format!(
        "running   process {pid}, version {version}, started {started}\n{address}\n\
         socket    {}\nconfig    {}\nlog       {}\n\
         servers   {n_running} of {n_servers} running\ncalls     {} running",
        socket.display(),
        config.display(),
        log_file(home).display(),
        about.n_running_calls,
    );
    printer.show(text, &document);
    about.history.warnings().for_each(|warning| printer.note(warning));
    Ok(())
}

/// PID and address.
fn location(running: &DaemonInfo) -> String {
    match running.addr {
        Some(addr) => format!("process {}, http://{addr}", running.pid),
        None => format!("process {}, {}", running.pid, running.socket.display()),
    }
}

fn state_json(running: &DaemonInfo, state: &str) -> Value {
    let url = running.addr.map(|addr| format!("http://{addr}"));
    json!({ "state": state, "pid": running.pid, "url": url, "socket": running.socket })
}

/// `POST /api/daemon/link`.
#[derive(Deserialize)]
struct Link {
    url: String,
    seconds: u64,
}

/// `POST /api/daemon/page`: a private HTML file that redirects to the dashboard.
#[derive(Deserialize)]
struct Page {
    file: PathBuf,
    url: String,
}

/// Opens the dashboard, or prints a link to it.
pub(crate) async fn dashboard(
    options: DashboardOptions,
    context: &Context,
) -> Result<(), CliError> {
    let printer = &context.printer;
    let daemon = daemon_client::require(context).await?;
    let needs_listen = |failure: CliError| {
        if failure.summary().code != ErrorCode::Conflict {
            return failure;
        }
        let start = command("daemon start --listen 127.0.0.1:7733");
        failure.with_hint(format!("start the daemon with an address: {start}"))
    };
    if options.no_browser {
        let link = daemon.request(Method::POST, "/api/daemon/link").await;
        let Link { url, seconds } = link.map_err(needs_listen)?;
        printer.show(&url, &json!({ "url": url, "seconds": seconds }));
        if printer.output == Output::Table {
            printer.note(format_args!("note: single-use link, valid for {seconds} s"));
        }
        return Ok(());
    }
    let page = daemon.request(Method::POST, "/api/daemon/page").await;
    let Page { file, url } = page.map_err(needs_listen)?;
    let link = format!("get a link with {}", command("dashboard --no-browser"));
    if let Err(error) = open_page(&file) {
        return Err(CliError::usage(format!("cannot open a browser: {error}"), link));
    }
    let text =
        format!("opened the dashboard in your browser: {url}\nhint: if no page appears, {link}");
    printer.done(text, &json!({ "url": url }));
    Ok(())
}

const UNIT_FILE: &str = "~/.config/systemd/user/toolrack.service";
const ENABLE_COMMAND: &str = "systemctl --user enable --now toolrack";

/// Prints a systemd unit for the current config file and agent.
pub(crate) fn print_unit(context: &Context) -> Result<(), CliError> {
    let (settings, printer) = (&context.settings, &context.printer);
    let program = std::env::current_exe()?.display().to_string();
    let unit = unit_text(&program, &unit_args(settings)?, &unit_env(&env_var));
    let json = json!({ "unit": format!("{unit}\n"), "file": UNIT_FILE, "enable": ENABLE_COMMAND });
    printer.show(unit, &json);
    if printer.output == Output::Table {
        printer.note(format_args!("save this as `{UNIT_FILE}`, then run: {ENABLE_COMMAND}"));
    }
    Ok(())
}

/// Arguments of the daemon in a systemd unit.
fn unit_args(settings: &Settings) -> Result<Vec<String>, CliError> {
    daemon_client::daemon_args(&["daemon", "start", "--foreground"], settings.listen, settings)
}

/// Environment variables that locate the config and data directories.
fn unit_env(value: &dyn Fn(Variable) -> Option<OsString>) -> Vec<(String, String)> {
    let given = |variable: Variable| {
        let value = value(variable).filter(|value| !value.is_empty())?;
        Some((variable.name(), value.to_string_lossy().into_owned()))
    };
    match given(Variable::ToolrackHome) {
        // It overrides the XDG variables.
        Some(home) => vec![home],
        None => {
            [Variable::XdgConfigHome, Variable::XdgDataHome].into_iter().filter_map(given).collect()
        }
    }
}

/// The unit's text. `KillMode=mixed`: the daemon stops its servers itself; after a crash their
/// guardians do, and systemd kills the rest.
fn unit_text(program: &str, options: &[String], variables: &[(String, String)]) -> String {
    let quoted = |text: &str| {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
        format!("\"{text}\"")
    };
    let words = options.iter().map(|word| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
        // Plain words need no quotes; elsewhere `$` is doubled, so that systemd expands no
        // variable.
        if word.chars().all(is_plain) { word.clone() } else { quoted(word).replace('$', "$$") }
    });
    let words: Vec<String> = words.collect();
    let environment = variables
        .iter()
        .map(|(name, value)| format!("\nEnvironment={}", quoted(&format!("{name}={value}"))));
    format!(
        "[Unit]\nDescription=Toolrack: MCP servers behind one endpoint\n\n\
         [Service]\nExecStart={} {}{}\nRestart=on-failure\nKillMode=mixed\n\
         TimeoutStopSec=45\n\n[Install]\nWantedBy=default.target",
        quoted(program).replace('$', "$$"),
        words.join(" "),
        environment.collect::<String>(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::GlobalOptions;
    use crate::settings::resolve;
    use crate::settings::{StdStreams, StreamKind};

    #[test]
    fn port_0_matches_any_port() {
        let check = |addr: Option<&str>, listen: &str, expected: bool| {
            let running = DaemonInfo {
                pid: 7,
                start_time: None,
                socket: "/s".into(),
                addr: addr.map(|addr| addr.parse().unwrap()),
                version: String::new(),
                config: "/c".into(),
                agent: None,
            };
            assert_eq!(
                listens_on(&running, listen.parse().unwrap()),
                expected,
                "{addr:?} {listen}"
            );
        };
        check(Some("127.0.0.1:7733"), "127.0.0.1:7733", true);
        check(Some("127.0.0.1:7733"), "127.0.0.1:0", true);
        check(Some("127.0.0.1:7733"), "127.0.0.1:7734", false);
        check(Some("127.0.0.1:7733"), "[::1]:7733", false);
        check(Some("127.0.0.1:7733"), "none", false);
        check(None, "127.0.0.1:0", false);
        check(None, "none", true);
    }

    #[track_caller]
    fn check(options: &GlobalOptions, set: &[(Variable, &str)], expected: &[&str]) {
        let value = |variable: Variable| {
            let found = set.iter().find(|(name, _)| *name == variable);
            found.map(|(_, value)| OsString::from(value))
        };
        let (stdin, stdout, stderr) = (StreamKind::Pipe, StreamKind::Pipe, StreamKind::Pipe);
        let terminal = StdStreams { stdin, stdout, stderr, columns: None };
        let settings = resolve(options, &value, terminal).unwrap();
        let unit =
            unit_text("/opt/my tools/100%", &unit_args(&settings).unwrap(), &unit_env(&value));
        let lines =
            unit.lines().filter(|line| line.starts_with("ExecStart") || line.starts_with("Env"));
        assert_eq!(lines.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn unit_keeps_config_agent_and_home() {
        let none = GlobalOptions::default;
        let program = |rest: &str| format!("ExecStart=\"/opt/my tools/100%%\" {rest}");
        let plain = program("daemon start --foreground");
        check(&none(), &[(Variable::Home, "/u")], &[&plain]);
        let moved = [(Variable::ToolrackHome, "/h"), (Variable::XdgDataHome, "/d")];
        check(&none(), &moved, &[&plain, "Environment=\"TOOLRACK_HOME=/h\""]);
        let parted = [
            (Variable::Home, "/u"),
            (Variable::XdgConfigHome, "/c %"),
            (Variable::XdgDataHome, "/d"),
        ];
        check(
            &none(),
            &parted,
            &[&plain, "Environment=\"XDG_CONFIG_HOME=/c %%\"", "Environment=\"XDG_DATA_HOME=/d\""],
        );
        let asked = GlobalOptions {
            config: Some("/my $x.toml".into()),
            agent: Some("main".to_owned()),
            ..none()
        };
        let words = program(
            "--config \"/my $$x.toml\" --agent main daemon start --foreground --listen none",
        );
        let set = [(Variable::Home, "/u"), (Variable::ToolrackListen, "none")];
        check(&asked, &set, &[&words]);
    }
}
