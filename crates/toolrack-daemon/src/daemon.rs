//! Daemon startup, shutdown order, options and startup errors.
//!
//! **Invariant:** when `shutdown` returns, every server, socket and task of the daemon has ended and the instance lock
//! is free.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_service::{Home, LocalService, ServiceError, ServiceOptions};

use crate::access_control::ListenerKind;
use crate::event_log::{ApiEvent, unix_time_ms};
use crate::event_recorder::EventRecorder;
use crate::history::{History, HistoryOptions};
use crate::http_server::{self, Shutdown};
use crate::instance_lock::{DaemonInfo, InstanceLock};
use crate::mcp_endpoints::{Endpoints, OpenService, ServiceSource};
use crate::routes;
use crate::state::{App, AppState};
use crate::tokens::{Token, Tokens};

/// Default TCP address. The port is fixed so that client configs can name it.
pub const DEFAULT_ADDR: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7733);

/// Time for connections to end after they are aborted.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for all servers to exit. Each one is killed after five seconds at the latest.
const SERVER_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for the history to write its queue.
const HISTORY_FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// Options of a daemon.
#[derive(Debug)]
pub struct DaemonOptions {
    /// Options of the service. `autostart`, `follow` and `ready_wait` are overridden: the daemon always starts all
    /// enabled servers and watches the config file.
    pub service: ServiceOptions,
    /// Loopback address to listen on for browsers and MCP clients. `None` disables TCP.
    pub listen: Option<SocketAddr>,
    /// Limits of the call history.
    pub history: HistoryOptions,
    /// Time for running calls to finish when the daemon shuts down.
    pub drain: Duration,
}

impl Default for DaemonOptions {
    fn default() -> Self {
        Self {
            service: ServiceOptions::default(),
            listen: Some(DEFAULT_ADDR),
            history: HistoryOptions::default(),
            drain: Duration::from_secs(5),
        }
    }
}

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    app: App,
    info: DaemonInfo,
    drain: Duration,
    shutdown: Shutdown,
    tasks: TaskTracker,
    /// Stops the event recorder, after everything that emits events.
    recorder_stop: CancellationToken,
    /// Released on drop, so it outlives the sockets and tasks above.
    instance: InstanceLock,
}

/// How a daemon shut down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownKind {
    /// All servers and tasks ended in order.
    Graceful,
    /// A second signal interrupted the shutdown. The caller must exit at once; guardians kill the servers.
    Forced,
}

impl Daemon {
    /// Starts the daemon of a home directory. Servers start in the background.
    ///
    /// # Errors
    ///
    /// When another daemon runs for this home, its config is invalid, or a socket cannot be bound.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops everything that was started.
    pub async fn start(home: Home, options: DaemonOptions) -> Result<Self, DaemonError> {
        let instance = acquire_lock(home.clone()).await?;
        let tcp = match options.listen {
            Some(addr) => Some(bind_tcp(addr).await?),
            None => None,
        };
        let addr = tcp.as_ref().and_then(|listener| listener.local_addr().ok());
        // Both sockets before any server starts: a taken port must not start and stop
        // all servers first.
        let unix = bind_unix(instance.socket())?;
        let tokens = Tokens::new(instance.token()?);
        let history_file = home.history_file();
        let history = History::open(&history_file, options.history).map_err(|source| {
            DaemonError::File { action: "open", path: history_file.clone(), source }
        })?;
        let (tasks, recorder_stop) = (TaskTracker::new(), CancellationToken::new());
        let open_service = OpenService::open(home.clone(), options.service.clone(), None).await?;
        let agent = open_service.service.agent().map(str::to_owned);
        let config = home.config_file();
        let config = std::path::absolute(config).unwrap_or_else(|_error| config.to_owned());
        let endpoints = Endpoints::new(
            open_service,
            ServiceSource { home, options: options.service },
            Arc::new(EventRecorder::new(new_run_id()?, agent.clone(), history)),
            (tasks.clone(), recorder_stop.clone()),
        );
        let socket = instance.socket().to_owned();
        let info = DaemonInfo {
            pid: std::process::id(),
            socket: socket.clone(),
            addr,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config,
            agent,
        };
        let app = Arc::new(AppState::new(endpoints, tokens, addr, socket));
        let (shutdown, drain) = (Shutdown::default(), options.drain);
        let daemon = Self { app, info, drain, shutdown, tasks, recorder_stop, instance };
        daemon.serve(unix, tcp);
        // Last: a client that reads the lock file may connect at once.
        daemon.instance.write_info(&daemon.info)?;
        Ok(daemon)
    }

    fn serve(&self, unix: UnixListener, tcp: Option<TcpListener>) {
        let AppState { service, recorder, .. } = &*self.app;
        let recording = Arc::clone(recorder).run(
            Arc::clone(service),
            service.subscribe(),
            self.recorder_stop.clone(),
        );
        self.tasks.spawn(recording);
        // Kills servers of a daemon that was killed together with its guardians.
        self.tasks.spawn_blocking(toolrack_stdio::kill_orphans);
        let router = routes::router(&self.app, ListenerKind::Unix);
        self.tasks.spawn(http_server::serve(unix, router, self.shutdown.clone()));
        if let (Some(tcp), Some(addr)) = (tcp, self.info.addr) {
            let router = routes::router(&self.app, ListenerKind::Tcp(addr));
            self.tasks.spawn(http_server::serve(tcp, router, self.shutdown.clone()));
        }
    }

    /// The TCP address, if the daemon listens on one.
    pub fn addr(&self) -> Option<SocketAddr> {
        self.info.addr
    }

    /// The API token for TCP.
    pub fn token(&self) -> &Token {
        self.app.tokens.primary()
    }

    /// The path of the Unix socket.
    pub fn socket(&self) -> &Path {
        &self.info.socket
    }

    /// The service that manages the servers.
    pub fn service(&self) -> &Arc<LocalService> {
        &self.app.service
    }

    /// Waits until a client requests a stop through the API.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn stop_requested(&self) {
        self.app.stop_requested.cancelled().await;
    }

    /// Runs until SIGTERM, SIGINT, SIGHUP or a stop request, then shuts down. A second signal aborts the shutdown.
    ///
    /// # Errors
    ///
    /// When signal handlers cannot be installed.
    pub async fn run(self) -> io::Result<ShutdownKind> {
        let mut signals = Signals::new()?;
        tokio::select! {
            () = signals.next() => {}
            () = self.stop_requested() => {}
        }
        tokio::select! {
            biased;
            // Biased: a shutdown that has just finished is not reported as forced.
            () = self.shutdown() => Ok(ShutdownKind::Graceful),
            () = signals.next() => Ok(ShutdownKind::Forced),
        }
    }

    /// Shuts down: refuses new requests, gives running calls the drain time, then stops all servers.
    ///
    /// The order matters: connections drain before servers stop, so that running calls can finish; the recorder stops
    /// after the servers, so that it sees their last events; the history closes after the recorder that feeds it.
    pub async fn shutdown(self) {
        let app = &self.app;
        // First, so that a request on an open connection is refused before the listeners close.
        app.drain();
        app.recorder.events.append(unix_time_ms(), ApiEvent::Stopping);
        self.shutdown.graceful.cancel();
        app.shutdown.cancel();
        app.endpoints.drain();
        self.shutdown.connections.close();
        if timeout(self.drain, self.shutdown.connections.wait()).await.is_err() {
            tracing::warn!("aborting calls that did not finish in time");
        }
        self.shutdown.force.cancel();
        self.wait_for("connections", ABORT_TIMEOUT, self.shutdown.connections.wait()).await;
        app.tasks.close();
        self.wait_for("servers", SERVER_SHUTDOWN_TIMEOUT, app.endpoints.close()).await;
        self.recorder_stop.cancel();
        self.tasks.close();
        self.wait_for("tasks", ABORT_TIMEOUT, self.tasks.wait()).await;
        let history = Arc::clone(&app.recorder.history);
        let closed = self.tasks.spawn_blocking(move || history.close()).map(drop);
        self.wait_for("history", HISTORY_FLUSH_TIMEOUT, closed).await;
    }

    async fn wait_for(&self, what: &str, limit: Duration, end: impl Future<Output = ()>) {
        if timeout(limit, end).await.is_err() {
            tracing::warn!("shutdown timed out waiting for {what}");
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.shutdown.graceful.cancel();
        self.shutdown.force.cancel();
        self.app.shutdown.cancel();
        self.recorder_stop.cancel();
    }
}

/// Acquires the instance lock on a blocking thread: it may retry for a moment.
async fn acquire_lock(home: Home) -> Result<InstanceLock, DaemonError> {
    let path = home.lock_file();
    let acquired = tokio::task::spawn_blocking(move || InstanceLock::acquire(&home)).await;
    let panicked =
        |_panicked| DaemonError::File { action: "lock", path, source: io::ErrorKind::Other.into() };
    acquired.map_err(panicked)?
}

async fn bind_tcp(addr: SocketAddr) -> Result<TcpListener, DaemonError> {
    if !addr.ip().is_loopback() {
        return Err(DaemonError::NotLoopback(addr));
    }
    TcpListener::bind(addr).await.map_err(|source| DaemonError::Listen { addr, source })
}

fn bind_unix(path: &Path) -> Result<UnixListener, DaemonError> {
    use std::os::unix::fs::PermissionsExt as _;
    let private = std::fs::Permissions::from_mode(0o600);
    // The run directory has mode 0700, so other users cannot connect between bind and chmod.
    let bound = UnixListener::bind(path)
        .and_then(|listener| std::fs::set_permissions(path, private).map(|()| listener));
    bound.map_err(|source| DaemonError::File { action: "bind", path: path.to_owned(), source })
}

/// A random id that distinguishes this run from earlier ones in call and event ids.
fn new_run_id() -> Result<String, DaemonError> {
    Ok(Token::random()?.reveal().chars().take(8).collect())
}

/// The signals that stop the daemon.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _received = self.terminate.recv() => {}
            _received = self.interrupt.recv() => {}
            _received = self.hangup.recv() => {}
        }
    }
}

/// Why a daemon cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// Another daemon runs for this home.
    #[error("a daemon is already running for this home{}", pid_suffix(*.pid))]
    AlreadyRunning {
        /// Its process id, if it has written one.
        pid: Option<u32>,
        /// Its Unix socket.
        socket: PathBuf,
    },
    /// The service cannot be opened, for example because the config is invalid.
    #[error("cannot manage the servers of this home")]
    Service(#[source] ServiceError),
    /// A file or socket operation failed.
    #[error("cannot {action} `{}`", .path.display())]
    File {
        /// The failed operation, as a verb.
        action: &'static str,
        /// The file or socket.
        path: PathBuf,
        /// The IO error.
        source: io::Error,
    },
    /// The TCP address cannot be bound.
    #[error("cannot listen on {addr}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The IO error.
        source: io::Error,
    },
    /// The address is reachable from other machines.
    #[error("{0} is not a loopback address")]
    NotLoopback(SocketAddr),
    /// The system random number generator failed.
    #[error("the system random number generator failed")]
    NoRandomness,
}

impl DaemonError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::AlreadyRunning { .. } => {
                Some("use the running daemon, or stop it with `toolrack daemon stop`".to_owned())
            }
            Self::Service(error) => error.hint().map(str::to_owned),
            Self::File { source, .. } if source.kind() == io::ErrorKind::InvalidInput => {
                Some("set `TOOLRACK_HOME` to a directory with a shorter path".to_owned())
            }
            Self::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => Some(
                "another program uses this port; choose another one with `toolrack daemon start --listen \
                 127.0.0.1:0` (0 picks a free port) or with `TOOLRACK_LISTEN`"
                    .to_owned(),
            ),
            Self::NotLoopback(_) => Some("listen on `127.0.0.1` or `[::1]`".to_owned()),
            Self::File { .. } | Self::Listen { .. } | Self::NoRandomness => None,
        }
    }
}

fn pid_suffix(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn already_running_error_names_the_process() {
        let error = |pid| DaemonError::AlreadyRunning { pid, socket: PathBuf::new() };
        assert_eq!(
            error(Some(7)).to_string(),
            "a daemon is already running for this home (process 7)"
        );
        assert_eq!(error(None).to_string(), "a daemon is already running for this home");
        assert!(error(None).hint().is_some());
    }
}
