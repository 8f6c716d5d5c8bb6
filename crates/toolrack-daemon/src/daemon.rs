//! Daemon startup, shutdown order, options and startup errors.
//!
//! **Invariant:** when `shutdown` returns, every server, socket and task of the daemon has ended and the instance lock
//! is free.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::select_all;
use parking_lot::Mutex;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_platform::{tcp_listener_user, unix_time_ms};
use toolrack_service::{Home, InsecureHome, ServiceError, ServiceOptions, secure_home};

use crate::access_control::ListenerKind;
use crate::active_keys::ActiveKeys;
use crate::event_log::{ApiEvent, EventLog};
use crate::event_recorder::EventRecorder;
use crate::history::{History, HistoryOptions};
use crate::http_server::{self, ConnectionOptions};
use crate::instance_lock::{DaemonInfo, InstanceLock, file_error};
use crate::keys::KeyFile;
use crate::mcp_endpoints::{EndpointSet, Endpoints};
use crate::routes::{self, App, AppState};
use crate::tokens::Token;

/// Default TCP address. The port is fixed so that client configs can name it.
pub const DEFAULT_ADDR: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7733);

/// Time for connections to end after they are aborted.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for all servers to exit. Each one is killed after five seconds at the latest.
const SERVER_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);
/// How often the daemon looks whether its lock file and its socket are still there.
const RUN_DIR_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Delay after a config change before freed memory is returned: the last users of a removed server drop it meanwhile.
const TRIM_DELAY: Duration = Duration::from_secs(1);
/// Time for the history to write its queue.
const HISTORY_FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// Options of a daemon.
#[derive(Debug)]
pub struct DaemonOptions {
    /// Options of the service. `autostart`, `watch_config`, `ready_wait`, `handler` and `limits` are overridden: the
    /// daemon always starts all enabled servers, watches the config file, and forwards server requests to its clients.
    pub service: ServiceOptions,
    /// Loopback address to listen on for browsers and MCP clients. `None` disables TCP.
    pub listen: Option<SocketAddr>,
    /// Limits of the call history.
    pub history: HistoryOptions,
    /// Limits of the connections of each listener.
    pub connections: ConnectionOptions,
    /// Time for running calls to finish when the daemon shuts down.
    pub drain: Duration,
}

impl Default for DaemonOptions {
    fn default() -> Self {
        Self {
            service: ServiceOptions::default(),
            listen: Some(DEFAULT_ADDR),
            history: HistoryOptions::default(),
            connections: ConnectionOptions::default(),
            drain: Duration::from_secs(5),
        }
    }
}

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    app: App,
    drain: Duration,
    /// Released on drop, so it outlives the sockets and tasks above.
    instance: Arc<InstanceLock>,
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
    /// Starts the daemon of a home directory. Servers start in the background. Large blocks that this process frees
    /// return to the system at once from now on.
    ///
    /// # Errors
    ///
    /// When another daemon runs for this home, its config is invalid, or a socket cannot be bound.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops everything that was started.
    pub async fn start(home: Home, mut options: DaemonOptions) -> Result<Self, DaemonError> {
        toolrack_stdio::return_freed_memory();
        // Before anything is locked, read or written there.
        secure_home(&home, options.service.insecure_home).map_err(DaemonError::Service)?;
        options.service.insecure_home = InsecureHome::Allow;
        let lock_home = home.clone();
        // On a blocking thread: it may retry for a moment.
        let acquired = tokio::task::spawn_blocking(move || InstanceLock::acquire(&lock_home)).await;
        let panicked =
            |_panicked| file_error("lock", &home.lock_file(), io::ErrorKind::Other.into());
        let instance = acquired.map_err(panicked)??;
        let tcp = match options.listen {
            Some(addr) if !addr.ip().is_loopback() => return Err(DaemonError::NotLoopback(addr)),
            Some(addr) => {
                let bound = TcpListener::bind(addr).await;
                Some(bound.map_err(|source| DaemonError::listen(addr, source))?)
            }
            None => None,
        };
        let addr = tcp.as_ref().and_then(|listener| listener.local_addr().ok());
        // Both sockets before any server starts: a taken port must not start and stop
        // all servers first.
        let unix = bind_unix(&instance.socket())?;
        let keys = ActiveKeys::new(KeyFile::new(&home))?;
        // Distinguishes this run from earlier ones in call and event ids.
        let run_id = Token::random()?.reveal().chars().take(8).collect();
        let events = Arc::new(EventLog::new(run_id));
        let history_file = home.history_file();
        let warnings = Arc::clone(&events);
        let warn = move |message| {
            warnings.append(unix_time_ms(), ApiEvent::Warning { server: None, message });
        };
        let history = History::open(&history_file, options.history, warn)
            .map_err(|source| file_error("open", &history_file, source))?;
        let own = EndpointSet::open(home.clone(), options.service.clone(), None).await;
        let own = own.map_err(DaemonError::Service)?;
        let agent = own.service.agent().map(str::to_owned);
        instance.convert_token(&keys.file, agent.as_deref());
        if let (_, Err(error)) = keys.reload() {
            // The socket and the dashboard work without keys.
            tracing::error!(%error, hint = error.hint(), "no key is valid");
        }
        let config = home.config_file();
        let config = std::path::absolute(config).unwrap_or_else(|_error| config.to_owned());
        let endpoints = Endpoints {
            own,
            source: (home, options.service),
            recorder: Arc::new(EventRecorder::new(events, agent.clone(), history)),
            tasks: TaskTracker::new(),
            recorder_stop: CancellationToken::new(),
            agents: Mutex::default(),
        };
        let info = DaemonInfo {
            pid: std::process::id(),
            start_time: toolrack_stdio::process_start_time(std::process::id()),
            socket: instance.socket(),
            addr,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config,
            agent,
        };
        let app = Arc::new(AppState::new(endpoints, keys, info));
        let daemon = Self { app, drain: options.drain, instance: Arc::new(instance) };
        daemon.serve(unix, tcp, &options.connections);
        // Last: a client that reads the lock file may connect at once.
        daemon.instance.write_info(&daemon.app.info)?;
        // Again: a program that changed the keys before it could find this daemon has not told it.
        drop(daemon.app.reload_keys());
        Ok(daemon)
    }

    fn serve(&self, unix: UnixListener, tcp: Option<TcpListener>, options: &ConnectionOptions) {
        let AppState { service, recorder, endpoints, shutdown, info, .. } = &*self.app;
        let tasks = &endpoints.tasks;
        let (events, stop) = (service.subscribe(), endpoints.recorder_stop.clone());
        tasks.spawn(Arc::clone(recorder).run(Arc::clone(service), events, stop));
        // Kills servers of a daemon that was killed together with its guardians.
        tasks.spawn_blocking(toolrack_stdio::kill_orphans);
        let (app, instance) = (Arc::clone(&self.app), Arc::downgrade(&self.instance));
        tasks.spawn(keep_findable(app, instance, options.clone()));
        tasks.spawn(return_memory(Arc::clone(&self.app)));
        let router = routes::router(&self.app, ListenerKind::Unix);
        tasks.spawn(http_server::serve(unix, router, options.clone(), shutdown.clone()));
        if let (Some(tcp), Some(addr)) = (tcp, info.addr) {
            let router = routes::router(&self.app, ListenerKind::Tcp(addr));
            tasks.spawn(http_server::serve(tcp, router, options.clone(), shutdown.clone()));
        }
    }

    /// The TCP address, if the daemon listens on one.
    pub fn addr(&self) -> Option<SocketAddr> {
        self.app.info.addr
    }

    /// The path of the Unix socket.
    pub fn socket(&self) -> &Path {
        &self.app.info.socket
    }

    /// Waits until a client requests a stop through the API.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn stop_requested(&self) {
        self.app.stop_requested.cancelled().await;
    }

    /// Runs until SIGTERM, SIGINT, SIGHUP or a stop request, then shuts down. A second signal aborts the shutdown. A signal
    /// after a stop request is the first one: `toolrack daemon stop` sends it to a daemon that is slow to answer.
    ///
    /// # Errors
    ///
    /// When signal handlers cannot be installed.
    pub async fn run(self) -> io::Result<ShutdownKind> {
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let mut signals: Vec<Signal> = kinds.into_iter().map(signal).collect::<io::Result<_>>()?;
        let n_left = tokio::select! {
            () = next_signal(&mut signals) => 1,
            () = self.stop_requested() => 2,
        };
        let forced = async {
            for _ in 0..n_left {
                next_signal(&mut signals).await;
            }
        };
        tokio::select! {
            biased;
            // Biased: a shutdown that has just finished is not reported as forced.
            () = self.shutdown() => Ok(ShutdownKind::Graceful),
            () = forced => Ok(ShutdownKind::Forced),
        }
    }

    /// Shuts down: refuses new requests, gives running calls the drain time, then stops all servers.
    ///
    /// The order matters: connections drain before servers stop, so that running calls can finish; the recorder stops
    /// after the servers, so that it sees their last events; the history closes after the recorder that feeds it.
    pub async fn shutdown(self) {
        let AppState { recorder, endpoints, shutdown, .. } = &*self.app;
        // First, because event streams end with the next line.
        recorder.events.append(unix_time_ms(), ApiEvent::Stopping);
        shutdown.graceful.cancel();
        endpoints.drain();
        shutdown.connections.close();
        if timeout(self.drain, shutdown.connections.wait()).await.is_err() {
            tracing::warn!("aborting calls that did not finish in time");
        }
        shutdown.force.cancel();
        wait_for("connections", ABORT_TIMEOUT, shutdown.connections.wait()).await;
        wait_for("servers", SERVER_SHUTDOWN_TIMEOUT, endpoints.close()).await;
        endpoints.recorder_stop.cancel();
        endpoints.tasks.close();
        wait_for("tasks", ABORT_TIMEOUT, endpoints.tasks.wait()).await;
        let history = Arc::clone(&recorder.history);
        let closed = endpoints.tasks.spawn_blocking(move || history.close()).map(drop);
        wait_for("history", HISTORY_FLUSH_TIMEOUT, closed).await;
    }
}

/// Puts the lock file and the socket back if another program has removed them, so that clients find the daemon.
///
/// The lock is weak: this task may outlive a daemon that is dropped, and the lock must not.
async fn keep_findable(app: App, instance: Weak<InstanceLock>, options: ConnectionOptions) {
    while app.shutdown.graceful.run_until_cancelled(sleep(RUN_DIR_CHECK_INTERVAL)).await.is_some() {
        let (Some(instance), restoring) = (instance.upgrade(), Arc::clone(&app)) else { return };
        let restored = tokio::task::spawn_blocking(move || {
            let socket = &restoring.info.socket;
            if instance.restore(&restoring.info)? {
                tracing::warn!("the lock file was removed and is restored");
                // A program that revoked a key meanwhile could not find this daemon.
                drop(restoring.reload_keys());
            }
            // With the lock only, or the socket could be that of another daemon.
            let is_bound = socket.exists() || !socket.parent().is_some_and(Path::exists);
            Ok::<bool, DaemonError>(!is_bound)
        });
        let rebound = match restored.await {
            Ok(Ok(true)) => bind_unix(&app.info.socket),
            Ok(Ok(false)) | Err(_) => continue,
            Ok(Err(error)) => Err(error),
        };
        match rebound {
            Ok(unix) => {
                tracing::warn!("the socket was removed and is restored");
                let router = routes::router(&app, ListenerKind::Unix);
                let shutdown = app.shutdown.clone();
                let serving = http_server::serve(unix, router, options.clone(), shutdown);
                app.endpoints.tasks.spawn(serving);
            }
            Err(error) => tracing::warn!(%error, "clients cannot find this daemon"),
        }
    }
}

/// Returns the memory of removed servers to the system.
async fn return_memory(app: App) {
    let config_applied = async || {
        app.recorder.config_applied.notified().await;
        sleep(TRIM_DELAY).await;
    };
    while app.shutdown.graceful.run_until_cancelled(config_applied()).await.is_some() {
        // On a blocking thread: the allocator walks through all its memory.
        drop(tokio::task::spawn_blocking(toolrack_stdio::trim_freed_memory).await);
    }
}

async fn wait_for(what: &str, limit: Duration, end: impl Future<Output = ()>) {
    if timeout(limit, end).await.is_err() {
        tracing::warn!("shutdown timed out waiting for {what}");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.app.shutdown.graceful.cancel();
        self.app.shutdown.force.cancel();
        self.app.endpoints.recorder_stop.cancel();
    }
}

fn bind_unix(path: &Path) -> Result<UnixListener, DaemonError> {
    use std::os::unix::fs::PermissionsExt as _;
    let private = std::fs::Permissions::from_mode(0o600);
    // The run directory has mode 0700, so other users cannot connect between bind and chmod.
    let bound = UnixListener::bind(path)
        .and_then(|listener| std::fs::set_permissions(path, private).map(|()| listener));
    bound.map_err(|source| file_error("bind", path, source))
}

/// Waits for one of the signals.
async fn next_signal(signals: &mut [Signal]) {
    select_all(signals.iter_mut().map(|signal| Box::pin(signal.recv()))).await;
}

/// Why a daemon cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// Another daemon runs for this home.
    #[error("a daemon is already running for this home{}", .pid.map(|pid| format!(" (process {pid})")).unwrap_or_default())]
    AlreadyRunning {
        /// Its process id, if it has written one.
        pid: Option<u32>,
        /// Its Unix socket.
        socket: PathBuf,
    },
    /// The service cannot be opened, for example because the config is invalid.
    #[error("cannot manage the servers of this home")]
    Service(#[source] ServiceError),
    /// The system accepts no socket with this path.
    #[error("the path of the socket `{}` is too long", .0.display())]
    SocketPathTooLong(PathBuf),
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
    #[error("cannot listen on {addr}{}", .other_user.map(|user| format!(", where a program of another user (uid {user}) listens")).unwrap_or_default())]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The user id of the program that listens there, if it is not that of the daemon.
        other_user: Option<u32>,
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
    fn listen(addr: SocketAddr, source: io::Error) -> Self {
        let own = rustix::process::geteuid().as_raw();
        let in_use = source.kind() == io::ErrorKind::AddrInUse;
        let user = in_use.then(|| tcp_listener_user(addr)).flatten();
        Self::Listen { addr, other_user: user.filter(|user| *user != own), source }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::AlreadyRunning { pid: Some(_), .. } => {
                Some("use the running daemon, or stop it".to_owned())
            }
            Self::AlreadyRunning { pid: None, socket } => {
                let home = socket.ancestors().nth(2).unwrap_or(socket).display();
                Some(format!(
                    "use the running daemon, or stop it; if there is none, a program has locked `{home}`: end it, and \
                     keep other users out with `chmod 700 {home}`"
                ))
            }
            Self::Service(error) => error.hint().map(str::to_owned),
            Self::SocketPathTooLong(_) => {
                Some("set `TOOLRACK_HOME` to a directory with a shorter path".to_owned())
            }
            Self::File { source, .. } if source.kind() == io::ErrorKind::InvalidInput => {
                Some("remove it: the daemon makes a regular file in its place".to_owned())
            }
            Self::Listen { other_user: Some(_), .. } => Some(
                "choose another port (0 picks a free one); clients that are configured for this port send their \
                 keys to that program, so rotate the keys"
                    .to_owned(),
            ),
            Self::File { source, .. } if source.kind() == io::ErrorKind::InvalidFilename => {
                Some("use a home and a config file whose paths are valid UTF-8".to_owned())
            }
            Self::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => Some(
                "another program uses this port; choose another one (0 picks a free port)"
                    .to_owned(),
            ),
            Self::NotLoopback(_) => Some("listen on `127.0.0.1` or `[::1]`".to_owned()),
            Self::File { .. } | Self::Listen { .. } | Self::NoRandomness => None,
        }
    }
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
