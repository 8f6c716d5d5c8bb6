//! Daemon under test: its home and config, the process, readiness, and the call history on disk.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use toolrack_daemon::{Daemon, DaemonOptions, ShutdownKind};
use toolrack_service::Home;
use toolrack_testkit::Marker;
use toolrack_testkit::harness::{now, own_program};

use crate::daemon_client::{ApiResponse, DaemonClient};
use crate::process;
use crate::subreaper::{RunningChild, Subreaper, Unreaped};

/// Interval between two readiness checks.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Start time after which the daemon counts as failed. Far more than it needs.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Time limit for one response of the daemon.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Servers left behind by a failed gate exit by themselves after this time.
const LIFETIME: &str = "600s";

/// A server entry of the config.
#[derive(Debug, Clone)]
pub(crate) struct ServerEntry {
    pub(crate) name: String,
    /// Its fault plan. Without one, its program does not exist.
    pub(crate) plan: Option<&'static str>,
}

/// Temporary home and config, with a marker on every process started from it.
#[derive(Debug)]
pub(crate) struct DaemonHome {
    dir: TempDir,
    pub(crate) marker: Marker,
}

/// A daemon that accepts calls.
#[derive(Debug)]
pub(crate) struct RunningDaemon<'a> {
    pub(crate) process: RunningChild,
    /// From the start of its process until it accepted calls.
    pub(crate) ready: Duration,
    started_at: Instant,
    /// Keeps the exit code for `wait`: the subreaper must not collect it.
    _unreaped: Unreaped<'a>,
    socket: PathBuf,
}

impl ServerEntry {
    pub(crate) fn scripted(name: impl Into<String>, plan: &'static str) -> Self {
        Self { name: name.into(), plan: Some(plan) }
    }
}

/// An entry of the config.
fn to_toml(name: &str, program: &Path, plan: &str, marker: &Marker) -> String {
    // A JSON string is a valid TOML string.
    let quoted = |text: &str| Value::from(text).to_string();
    let args = ["--lifetime", LIFETIME, "--plan", plan].map(quoted).join(", ");
    let (variable, value) = marker.env_var();
    format!(
        "[[defaults.mcp]]\nname = {}\ntransport = \"stdio\"\ncommand = {}\nargs = [{args}]\n\
         env = {{ {variable} = {} }}\n\n",
        quoted(name),
        quoted(&program.to_string_lossy()),
        quoted(value),
    )
}

impl DaemonHome {
    pub(crate) fn new(entries: &[ServerEntry]) -> io::Result<Self> {
        let daemon_home = Self { dir: TempDir::new()?, marker: Marker::new() };
        let scripted = process::scripted_server()?;
        let texts = entries.iter().map(|ServerEntry { name, plan }| {
            let program = plan.map_or(Path::new("/nonexistent/server"), |_| &scripted);
            to_toml(name, program, plan.unwrap_or_default(), &daemon_home.marker)
        });
        let text: String = texts.collect();
        File::create(daemon_home.home().config_file())?.write_all(text.as_bytes())?;
        Ok(daemon_home)
    }

    pub(crate) fn home(&self) -> Home {
        Home::in_dir(self.dir.path())
    }

    /// Starts the daemon and waits until it accepts calls.
    pub(crate) fn start<'a>(&self, subreaper: &'a Subreaper) -> Result<RunningDaemon<'a>, String> {
        let why = |error: io::Error| format!("the daemon does not start: {error}");
        let mut command = own_program().map_err(why)?;
        let (variable, value) = self.marker.env_var();
        command.arg("daemon").arg(self.dir.path()).env(variable, value);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let started_at = now();
        let process = subreaper.start(&mut command).map_err(why)?;
        let unreaped = subreaper.leave_unreaped(&process.handle);
        let (socket, ready) = (self.home().run_dir().join("daemon.sock"), Duration::ZERO);
        let daemon = RunningDaemon { process, ready, started_at, _unreaped: unreaped, socket };
        Ok(RunningDaemon { ready: daemon.wait_ready()?, ..daemon })
    }
}

impl RunningDaemon<'_> {
    fn wait_ready(&self) -> Result<Duration, String> {
        loop {
            let response =
                self.client().and_then(|mut client| client.get("/readyz")?.success_body());
            let took = self.started_at.elapsed();
            match response {
                Ok(_) => return Ok(took),
                Err(error)
                    if took > START_LIMIT || self.process.handle.wait_exit(POLL_INTERVAL) =>
                {
                    return Err(format!("the daemon is not ready after {took:?}: {error}"));
                }
                Err(_) => {}
            }
        }
    }

    /// Waits until this many servers are connected, and returns the time since the daemon started.
    pub(crate) fn wait_connected(
        &self,
        n_servers: u64,
        limit: Duration,
    ) -> Result<Duration, String> {
        let mut client = self.client().map_err(|error| error.to_string())?;
        loop {
            let response = client.get("/readyz").and_then(ApiResponse::success_body);
            let states = response.map_err(|error| format!("/readyz: {error}"))?;
            let n_connected = states.pointer("/servers/connected").and_then(Value::as_u64);
            let took = self.started_at.elapsed();
            if n_connected.unwrap_or_default() >= n_servers {
                return Ok(took);
            }
            if took > limit {
                return Err(format!("not {n_servers} servers after {took:?}, but {states}"));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Opens a new connection.
    pub(crate) fn client(&self) -> io::Result<DaemonClient> {
        DaemonClient::open(&self.socket, CALL_TIMEOUT)
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Asks the daemon to stop.
    pub(crate) fn terminate(&self) {
        self.process.handle.signal(Signal::TERM);
    }

    /// Waits for the exit and returns the exit code: `None` if the daemon was killed or did not exit.
    pub(crate) fn wait_exit(&mut self, limit: Duration) -> Option<i32> {
        if !self.process.handle.wait_exit(limit) {
            return None;
        }
        self.process.child.wait().ok()?.code()
    }
}

/// Runs the daemon of a home until a signal, as `toolrack daemon start --foreground` does, without terminal, log or
/// TCP address.
pub(crate) fn run_role(home: &Path) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ending = runtime.block_on(async {
        let options = DaemonOptions { listen: None, ..DaemonOptions::default() };
        let daemon = Daemon::start(Home::in_dir(home), options).await?;
        anyhow::Ok(daemon.run().await?)
    });
    // Do not wait for threads in blocking file operations.
    runtime.shutdown_background();
    Ok(match ending? {
        ShutdownKind::Graceful => ExitCode::SUCCESS,
        ShutdownKind::Forced => ExitCode::FAILURE,
    })
}

/// Returns the ids of all calls in the history and checks its integrity. Reads a copy, so that the next daemon finds
/// the files as the killed one left them.
pub(crate) fn history_call_ids(history: &Path) -> anyhow::Result<HashSet<String>> {
    if !history.exists() {
        return Ok(HashSet::new());
    }
    let dir = TempDir::new()?;
    let copy = dir.path().join("history.db");
    fs::copy(history, &copy)?;
    let log = history.with_extension("db-wal");
    if log.exists() {
        fs::copy(log, copy.with_extension("db-wal"))?;
    }
    let connection = Connection::open(&copy)?;
    let verdict: String = connection.query_row("pragma integrity_check", [], |row| row.get(0))?;
    anyhow::ensure!(verdict == "ok", "integrity_check: {verdict}");
    let tables = "select count(*) from sqlite_schema where name = 'calls'";
    if connection.query_row(tables, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(HashSet::new());
    }
    let mut statement = connection.prepare("select id from calls")?;
    let ids = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use toolrack_config::{Dialect, read_as};

    use super::*;

    #[test]
    fn entry_with_any_plan_is_valid_toml() {
        let plan = "call=garbage(text,3); \\ \"x\"";
        let text = to_toml("a b", "/nonexistent/server".as_ref(), plan, &Marker::new());
        let reading = read_as(Dialect::Toolrack, "", &text);
        assert!(reading.diagnostics.is_empty(), "{:?}", reading.diagnostics);
    }

    #[test]
    fn missing_history_is_empty_and_a_corrupt_one_is_an_error() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("history.db");
        assert_eq!(history_call_ids(&path).unwrap(), HashSet::new());
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch("create table calls (id text); insert into calls values ('a')")
            .unwrap();
        drop(connection);
        assert_eq!(history_call_ids(&path).unwrap(), HashSet::from(["a".to_owned()]));
        let bytes = vec![7; 4096];
        File::create(&path).unwrap().write_all(&bytes).unwrap();
        assert!(history_call_ids(&path).is_err());
    }
}
