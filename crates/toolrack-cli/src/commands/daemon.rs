//! `toolrack daemon`: servers that stay up between commands.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use toolrack_daemon::{
    DEFAULT_ADDR, Daemon as Host, DaemonOptions as HostOptions, Ending, Running, token_file,
};
use toolrack_service::{ErrorCode, McpStatus, ServiceOptions, SharedLookup};

use crate::args::daemon::{DaemonAction, DaemonStartOptions};
use crate::commands::{daemon_logs, systemd_unit};
use crate::config_service::service_options;
use crate::context::Surroundings;
use crate::daemon_client::{Daemon, log_file, of_home, of_servers};
use crate::daemon_env::{Inherited, start_command};
use crate::error::Failure;
use crate::exit_code::Verdict;
use crate::output::Output;
use crate::server_selection::Servers;
use crate::settings::{Listen, Settings};
use crate::{daemon_log, daemon_process, time_format};

/// How long a daemon may take to end: it gives calls five seconds, and its servers some more.
const END_PATIENCE: Duration = Duration::from_secs(45);
const LOOK: Duration = Duration::from_millis(10);

/// What a daemon says of itself.
#[derive(Debug, Deserialize)]
struct About {
    started_ms: u64,
    n_running_calls: usize,
}

/// Does what was asked of the daemon.
pub(crate) async fn daemon(
    action: DaemonAction,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    match action {
        DaemonAction::Start(options) => start(&options, surroundings).await,
        DaemonAction::Stop => stop(surroundings).await,
        DaemonAction::Status => status(surroundings).await,
        DaemonAction::Logs(options) => daemon_logs::logs(&options, surroundings).await,
        DaemonAction::Unit => systemd_unit::unit(surroundings),
    }
}

async fn start(options: &DaemonStartOptions, surroundings: &Surroundings) -> Result<(), Failure> {
    let (settings, printer) = (&surroundings.settings, &surroundings.printer);
    if let Some(Daemon { running, .. }) = of_servers(settings)? {
        if let Some(listen) = wanted(options, settings).filter(|it| !listens(&running, *it)) {
            return Err(elsewhere(&running, listen));
        }
        let text = format!("a daemon runs already: {}", place(&running));
        printer.done(text, &said(&running, "runs already"));
        return Ok(());
    }
    let running = daemon_process::start(options, surroundings).await?;
    let log = log_file(settings.home()?);
    let text = format!("the daemon runs: {}\nits log is {}", place(&running), log.display());
    printer.done(text, &said(&running, "started"));
    Ok(())
}

/// Where it is to listen, if somebody said so.
fn wanted(options: &DaemonStartOptions, settings: &Settings) -> Option<Listen> {
    options.listen.or(settings.listen)
}

/// Whether a daemon listens where it is wanted. Port 0 is any port.
fn listens(running: &Running, listen: Listen) -> bool {
    match (listen, running.addr) {
        (Listen::Nowhere, addr) => addr.is_none(),
        (Listen::At(_), None) => false,
        (Listen::At(wanted), Some(addr)) => {
            wanted.ip() == addr.ip() && (wanted.port() == 0 || wanted.port() == addr.port())
        }
    }
}

fn elsewhere(running: &Running, listen: Listen) -> Failure {
    let here = place(running);
    let message = format!("a daemon runs already, and not as `--listen {listen}` asks for: {here}");
    let hint = format!(
        "end it with `toolrack daemon stop`, then run `toolrack daemon start --listen {listen}`"
    );
    Failure::new(Verdict::Config, ErrorCode::Conflict, message, hint).at("--listen")
}

/// Runs the daemon in this very process, until a signal comes or somebody asks it to end.
pub(crate) fn run(options: &DaemonStartOptions, settings: &Settings) -> Result<(), Failure> {
    let home = settings.home()?;
    Servers::must_be_sound(settings)?;
    if options.detached {
        // Nothing of the terminal that started us shall reach us any more.
        rustix::process::setsid().map_err(std::io::Error::from)?;
    }
    daemon_process::make_home(home)?;
    daemon_log::install(options.detached.then(|| log_file(home)))?;
    raise_limits();
    let listen = match wanted(options, settings) {
        Some(Listen::At(addr)) => Some(addr),
        Some(Listen::Nowhere) => None,
        None => Some(DEFAULT_ADDR),
    };
    let service = service_options(settings)?;
    let service = ServiceOptions { lookup: inherited(service.lookup, settings)?, ..service };
    let options = HostOptions { listen, service, ..HostOptions::default() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ending = runtime.block_on(async {
        let host = Host::start(home.clone(), options).await?;
        tracing::info!(addr = ?host.addr(), socket = %host.socket().display(), "the daemon runs");
        Ok::<_, Failure>(host.run().await?)
    });
    // Threads that are at the disk are not waited for.
    runtime.shutdown_background();
    match ending? {
        Ending::Orderly => Ok(()),
        Ending::Forced => Err(Failure::interrupted()),
    }
}

/// The values of this very moment, which the daemon keeps.
fn inherited(
    values: Option<SharedLookup>,
    settings: &Settings,
) -> Result<Option<SharedLookup>, Failure> {
    let config = std::path::absolute(settings.home()?.config_file())?;
    let config = settings.is_config_given.then_some(config.as_path());
    let start = start_command(config, settings.agent.as_deref());
    Ok(values.map(|values| Arc::new(Inherited { values, start }) as SharedLookup))
}

/// Every server takes some files, so all that the system grants are wanted.
fn raise_limits() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::debug!(%error, "there may be too few files for many servers");
    }
}

async fn stop(surroundings: &Surroundings) -> Result<(), Failure> {
    let (settings, printer) = (&surroundings.settings, &surroundings.printer);
    let Some(daemon) = of_home(settings)? else {
        printer.done("no daemon runs", &json!({ "state": "not running" }));
        return Ok(());
    };
    let pid = daemon.running.pid;
    daemon.post::<Value>("/api/daemon/stop").await?;
    let deadline = Instant::now() + END_PATIENCE;
    while Running::find(settings.home()?)?.is_some_and(|it| it.pid == pid) {
        if Instant::now() >= deadline {
            let message = format!("the daemon (process {pid}) does not end");
            let hint = format!("end it with `kill {pid}`; its servers end with it");
            let code = ErrorCode::ServiceUnavailable;
            return Err(Failure::new(Verdict::Unreachable, code, message, hint));
        }
        let pause = async {
            sleep(LOOK).await;
            Ok(())
        };
        surroundings.unless_stopped(pause).await?;
    }
    let text = format!("the daemon (process {pid}) has ended, and all its servers");
    printer.done(text, &json!({ "state": "stopped", "pid": pid }));
    Ok(())
}

async fn status(surroundings: &Surroundings) -> Result<(), Failure> {
    let (settings, printer) = (&surroundings.settings, &surroundings.printer);
    let Some(daemon) = of_servers(settings)? else {
        let hint = "start one with `toolrack daemon start`";
        let (verdict, code) = (Verdict::Unreachable, ErrorCode::ServiceUnavailable);
        return Err(Failure::new(verdict, code, "no daemon runs for this home", hint));
    };
    let home = settings.home()?;
    let about: About = daemon.get("/api/daemon").await?;
    let servers = daemon.statuses().await?;
    let n_up = servers.iter().filter(|it| matches!(it.state, McpStatus::Running { .. }));
    let (n_up, n_servers) = (n_up.count(), servers.len());
    let Running { pid, socket, addr, version, config, agent } = &daemon.running;
    let url = addr.map(|it| format!("http://{it}"));
    if printer.output() != Output::Table {
        let document = json!({
            "state": "running", "pid": pid, "version": version, "url": url,
            "mcp": url.as_ref().map(|it| format!("{it}/mcp")), "socket": socket,
            "key_file": token_file(home), "started_at": time_format::utc(about.started_ms), "config": config, "agent": agent,
            "n_servers": n_servers, "n_running_servers": n_up,
            "n_running_calls": about.n_running_calls, "log": log_file(home),
        });
        printer.document(&document.to_string());
        return Ok(());
    }
    let up = time_format::ago(about.started_ms, time_format::now());
    printer.line(format_args!("running   process {pid}, version {version}, started {up}"));
    match url {
        Some(url) => {
            printer.line(format_args!("address   {url}"));
            printer.line(format_args!("endpoint  {url}/mcp, for clients with the key"));
            printer.line(format_args!("key       in {}", token_file(home).display()));
        }
        None => printer.line(format_args!("address   nowhere; only on its socket")),
    }
    printer.line(format_args!("socket    {}", socket.display()));
    printer.line(format_args!("config    {}", config.display()));
    printer.line(format_args!("log       {}", log_file(home).display()));
    printer.line(format_args!("servers   {n_up} of {n_servers} run"));
    printer.line(format_args!("calls     {} under way", about.n_running_calls));
    Ok(())
}

/// Which process it is, and where.
fn place(running: &Running) -> String {
    match running.addr {
        Some(addr) => format!("process {}, http://{addr}", running.pid),
        None => format!("process {}, {}", running.pid, running.socket.display()),
    }
}

fn said(running: &Running, state: &str) -> Value {
    let url = running.addr.map(|it| format!("http://{it}"));
    json!({ "state": state, "pid": running.pid, "url": url, "socket": running.socket })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_port_will_do_for_port_0() {
        let check = |addr: Option<&str>, listen: &str, expected: bool| {
            let running = Running {
                pid: 7,
                socket: "/s".into(),
                addr: addr.map(|it| it.parse().unwrap()),
                version: String::new(),
                config: "/c".into(),
                agent: None,
            };
            assert_eq!(listens(&running, listen.parse().unwrap()), expected, "{addr:?} {listen}");
        };
        check(Some("127.0.0.1:7733"), "127.0.0.1:7733", true);
        check(Some("127.0.0.1:7733"), "127.0.0.1:0", true);
        check(Some("127.0.0.1:7733"), "127.0.0.1:7734", false);
        check(Some("127.0.0.1:7733"), "[::1]:7733", false);
        check(Some("127.0.0.1:7733"), "none", false);
        check(None, "127.0.0.1:0", false);
        check(None, "none", true);
    }
}
