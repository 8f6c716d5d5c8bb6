//! One daemon: put together, running, and taken apart in an order that leaves nothing behind.
//!
//! **Invariant:** when `shutdown` returns, no server, no socket and no task of the daemon is left, and its home is
//! free for the next one.

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

use crate::access_control::Door;
use crate::event_log::{Happening, wall_clock_ms};
use crate::event_recorder::Chronicle;
use crate::history::{History, HistoryOptions};
use crate::http_server::{self, Ends};
use crate::instance_lock::{Running, Seat};
use crate::mcp_endpoints::{Endpoints, Opened, Origin};
use crate::routes;
use crate::state::{App, Shared};
use crate::tokens::{Keys, Token};

/// How long connections may take to notice that they are cut.
const CUT_LIMIT: Duration = Duration::from_secs(1);
/// How long all servers may take to end. Each one is killed after five seconds at the latest.
const CLOSE_LIMIT: Duration = Duration::from_secs(30);
/// How long the last calls may take to be written down.
const HISTORY_LIMIT: Duration = Duration::from_secs(3);

/// A daemon that runs.
#[derive(Debug)]
pub struct Daemon {
    app: App,
    running: Running,
    drain: Duration,
    ends: Ends,
    tasks: TaskTracker,
    /// Ends the listener of events, last of all.
    silence: CancellationToken,
    /// Given up when dropped, so that the next daemon finds a free home.
    seat: Seat,
}

/// How a daemon ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Everything was ended in order.
    Orderly,
    /// A second signal came. Whoever gets this ends the process at once; guardians end the servers.
    Forced,
}

impl Daemon {
    /// Starts the daemon of a home. Servers are started too, and not waited for.
    ///
    /// # Errors
    ///
    /// When another one runs for this home, its config cannot be used, or it cannot listen.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends whatever was started.
    pub async fn start(home: Home, options: DaemonOptions) -> Result<Self, DaemonError> {
        let seat = take_seat(home.clone()).await?;
        let tcp = match options.listen {
            Some(addr) => Some(bind(addr).await?),
            None => None,
        };
        let addr = tcp.as_ref().and_then(|it| it.local_addr().ok());
        let unix = bind_unix(seat.socket())?;
        let keys = Keys::new(seat.token()?);
        let history_file = home.history_file();
        let history = History::open(&history_file, options.history).map_err(|source| {
            DaemonError::File { done: "used", path: history_file.clone(), source }
        })?;
        let (tasks, silence) = (TaskTracker::new(), CancellationToken::new());
        let opened = Opened::open(home.clone(), options.service.clone(), None).await?;
        let agent = opened.service.agent().map(str::to_owned);
        let config = home.config_file();
        let config = std::path::absolute(config).unwrap_or_else(|_odd| config.to_owned());
        let endpoints = Endpoints::new(
            opened,
            Origin { home, options: options.service },
            Arc::new(Chronicle::new(run_name()?, agent.clone(), history)),
            (tasks.clone(), silence.clone()),
        );
        let socket = seat.socket().to_owned();
        let running = Running {
            pid: std::process::id(),
            socket: socket.clone(),
            addr,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config,
            agent,
        };
        let app = Arc::new(Shared::new(endpoints, keys, addr, socket));
        let (ends, drain) = (Ends::default(), options.drain);
        let daemon = Self { app, running, drain, ends, tasks, silence, seat };
        daemon.serve(unix, tcp);
        daemon.seat.introduce(&daemon.running)?;
        Ok(daemon)
    }

    fn serve(&self, unix: UnixListener, tcp: Option<TcpListener>) {
        let Shared { service, chronicle, .. } = &*self.app;
        let listening = Arc::clone(chronicle).listen(
            Arc::clone(service),
            service.subscribe(),
            self.silence.clone(),
        );
        self.tasks.spawn(listening);
        // What a daemon left that was killed together with its guardians.
        self.tasks.spawn_blocking(toolrack_stdio::sweep);
        let router = routes::router(&self.app, Door::Socket);
        self.tasks.spawn(http_server::serve(unix, router, self.ends.clone()));
        if let (Some(tcp), Some(addr)) = (tcp, self.running.addr) {
            let router = routes::router(&self.app, Door::Tcp(addr));
            self.tasks.spawn(http_server::serve(tcp, router, self.ends.clone()));
        }
    }

    /// Where browsers and other clients reach it.
    pub fn addr(&self) -> Option<SocketAddr> {
        self.running.addr
    }

    /// The key for TCP.
    pub fn token(&self) -> &Token {
        self.app.keys.main()
    }

    /// Where programs of the same user reach it.
    pub fn socket(&self) -> &Path {
        &self.running.socket
    }

    /// The servers.
    pub fn service(&self) -> &Arc<LocalService> {
        &self.app.service
    }

    /// Waits until somebody asks the daemon to end by way of its API.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub async fn asked_to_stop(&self) {
        self.app.farewell.cancelled().await;
    }

    /// Runs until SIGTERM, SIGINT or SIGHUP comes or the API is asked, and ends in order. A second signal ends the
    /// waiting.
    ///
    /// # Errors
    ///
    /// When signals cannot be waited for.
    pub async fn run(self) -> io::Result<Ending> {
        let mut signals = Signals::new()?;
        tokio::select! {
            () = signals.next() => {}
            () = self.asked_to_stop() => {}
        }
        tokio::select! {
            biased;
            () = self.shutdown() => Ok(Ending::Orderly),
            () = signals.next() => Ok(Ending::Forced),
        }
    }

    /// Ends the daemon: no new requests, calls under way have a few seconds, then all servers end.
    pub async fn shutdown(self) {
        let app = &self.app;
        app.drain();
        app.chronicle.feed.tell(wall_clock_ms(), Happening::Stopping);
        self.ends.soon.cancel();
        app.stop.cancel();
        app.endpoints.drain();
        self.ends.connections.close();
        if timeout(self.drain, self.ends.connections.wait()).await.is_err() {
            tracing::warn!("calls that take too long are cut off");
        }
        self.ends.now.cancel();
        self.end_within(CUT_LIMIT, "connections", self.ends.connections.wait()).await;
        app.tasks.close();
        self.end_within(CLOSE_LIMIT, "servers", app.endpoints.close()).await;
        self.silence.cancel();
        self.tasks.close();
        self.end_within(CUT_LIMIT, "tasks", self.tasks.wait()).await;
        let history = Arc::clone(&app.chronicle.history);
        let closed = self.tasks.spawn_blocking(move || history.close()).map(drop);
        self.end_within(HISTORY_LIMIT, "records", closed).await;
    }

    async fn end_within(&self, limit: Duration, what: &str, end: impl Future<Output = ()>) {
        if timeout(limit, end).await.is_err() {
            tracing::warn!("some {what} of the daemon do not end");
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.ends.soon.cancel();
        self.ends.now.cancel();
        self.app.stop.cancel();
        self.silence.cancel();
    }
}

async fn take_seat(home: Home) -> Result<Seat, DaemonError> {
    let path = home.lock_file();
    let taken = tokio::task::spawn_blocking(move || Seat::take(&home)).await;
    let crashed =
        |_crashed| DaemonError::File { done: "locked", path, source: io::ErrorKind::Other.into() };
    taken.map_err(crashed)?
}

async fn bind(addr: SocketAddr) -> Result<TcpListener, DaemonError> {
    if !addr.ip().is_loopback() {
        return Err(DaemonError::NotLoopback(addr));
    }
    TcpListener::bind(addr).await.map_err(|source| DaemonError::Address { addr, source })
}

/// The folder of the socket is closed to others, so that nobody connects before the mode is set.
fn bind_unix(path: &Path) -> Result<UnixListener, DaemonError> {
    use std::os::unix::fs::PermissionsExt as _;
    let private = std::fs::Permissions::from_mode(0o600);
    let bound = UnixListener::bind(path)
        .and_then(|listener| std::fs::set_permissions(path, private).map(|()| listener));
    bound.map_err(|source| DaemonError::File { done: "bound", path: path.to_owned(), source })
}

/// Tells this run from all others.
fn run_name() -> Result<String, DaemonError> {
    Ok(Token::random()?.reveal().chars().take(8).collect())
}

/// The signals that ask a program to end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _one = self.terminate.recv() => {}
            _one = self.interrupt.recv() => {}
            _one = self.hang_up.recv() => {}
        }
    }
}

// What can be chosen when a daemon is started.

/// Where a daemon listens unless it is told otherwise. Fixed, so that clients can be told once.
pub const DEFAULT_ADDR: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7733);

/// What can be chosen when a daemon is started.
#[derive(Debug)]
pub struct DaemonOptions {
    /// How servers are run. That all enabled ones are started and the file is followed is not a choice.
    pub service: ServiceOptions,
    /// Where to listen for browsers and other clients: an address of this machine alone. `None` for nowhere.
    pub listen: Option<SocketAddr>,
    /// What is remembered of calls.
    pub history: HistoryOptions,
    /// How long calls may go on when the daemon is to end.
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

// Why a daemon cannot be started.

/// Why a daemon cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// Another one runs for this home.
    #[error("a daemon runs already for this home{}", by(*.pid))]
    Running {
        /// Which process it is, if it has said so.
        pid: Option<u32>,
        /// Where it can be reached.
        socket: PathBuf,
    },
    /// The config or something else of the home cannot be used.
    #[error("the servers of this home cannot be managed")]
    Service(#[source] ServiceError),
    /// A file or socket cannot be used.
    #[error("`{}` cannot be {done}", .path.display())]
    File {
        /// What was to be done with it.
        done: &'static str,
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The address cannot be listened on.
    #[error("{addr} cannot be listened on")]
    Address {
        /// Which.
        addr: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The address is not of this machine alone.
    #[error("{0} could be reached from other machines")]
    NotLoopback(SocketAddr),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    NoRandomness,
}

impl DaemonError {
    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Running { .. } => Some(
                "use the one that runs, or stop it first with `toolrack daemon stop`".to_owned(),
            ),
            Self::Service(error) => error.hint().map(str::to_owned),
            Self::File { source, .. } if source.kind() == io::ErrorKind::InvalidInput => {
                Some("set `TOOLRACK_HOME` to a folder with a shorter path".to_owned())
            }
            Self::Address { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                Some(
                    "another program listens there; choose another port with `toolrack daemon start --listen \
                     127.0.0.1:0`, where 0 is any, or with `TOOLRACK_LISTEN`"
                        .to_owned(),
                )
            }
            Self::NotLoopback(_) => Some("listen on `127.0.0.1` or `[::1]`".to_owned()),
            Self::File { .. } | Self::Address { .. } | Self::NoRandomness => None,
        }
    }
}

fn by(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_is_said() {
        let error = |pid| DaemonError::Running { pid, socket: PathBuf::new() };
        assert_eq!(error(Some(7)).to_string(), "a daemon runs already for this home (process 7)");
        assert_eq!(error(None).to_string(), "a daemon runs already for this home");
        assert!(error(None).hint().is_some());
    }
}
