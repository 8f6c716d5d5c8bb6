//! [`McpManager`]: the handle on many servers that are offered as one list of tools.
//!
//! Holds all methods except for calls, which are in [`call`](crate::call), and `get_tools`, which is in
//! [`tool_adapter`](crate::tool_adapter).
//!
//! **Invariant:** reads and calls never wait for the supervisor, unless a server has to be started first.
//! **Invariant:** every wait ends, at the latest when the manager is closed.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Once};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use toolrack_client::{Timeouts, launcher_name};
use toolrack_config::{ConfigDiff, McpServerConfig, McpTransport, diff};
use toolrack_transport::{Credentials, Redactor, deadline_after};

use crate::builder::ManagerBuilder;
use crate::config_watcher::{self, FileWatch, ParseServers};
use crate::error::ManagerError;
use crate::events::{EventSender, ManagerEvent, ManagerEvents};
use crate::in_flight::ClientGuard;
use crate::lifecycle::{ConnectionState, Epoch, Event};
use crate::retry_policy::{Decision, WaitDeadlines, decide};
use crate::server_tools::{ToolWithServer, refresh};
use crate::snapshot::{McpConnection, Snapshot};
use crate::supervisor::{Command, Operation};
use crate::tool_cache::{CachedTools, ToolCache};
use crate::tool_names::{NameGenerator, NameReservations};

/// How long stopping a server may take. Its transport closes within six seconds even if the server ignores it.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// How much longer than its own timeout a start may take: for its start permit, the end of the previous launch, and
/// the report.
const START_SLACK: Duration = Duration::from_secs(15);

/// How long [`McpManager::refresh_tools`] waits for new lists.
const REFRESH_WAIT: Duration = Duration::from_secs(1);

/// Provider of credentials for the HTTP server of a config, if it has any.
pub type CredentialsProvider =
    dyn Fn(&McpServerConfig) -> Option<Arc<dyn Credentials>> + Send + Sync;

/// Manager of many servers that are offered as one list of tools.
///
/// Cheap to clone: clones are handles of the same manager. Dropping the last one ends all servers without waiting;
/// [`close`](Self::close) ends them and waits, whatever clones are left. The Tokio runtime on which it is built has to
/// outlive its use: when the runtime is dropped, the servers end and calls fail.
#[derive(Debug, Clone)]
pub struct McpManager {
    pub(crate) shared: Arc<Shared>,
    /// Cancels `shared.stop` with the last handle. `shared` itself also belongs to the tasks that this ends.
    pub(crate) _stop_on_drop: Arc<DropGuard>,
}

/// State shared by the handle, the supervisor and the connection tasks.
pub(crate) struct Shared {
    pub(crate) snapshot: ArcSwap<Snapshot>,
    /// Counts snapshots, and wakes tasks that wait for the next one.
    pub(crate) version: watch::Sender<u64>,
    pub(crate) events: EventSender,
    /// Bounded: when it is full, callers wait.
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) next_call_id: AtomicU64,
    pub(crate) settings: ManagerBuilder,
    /// Limits how many servers start at once.
    pub(crate) start_permits: Semaphore,
    /// Adds the permits of a machine with many processors, when the first ones are in use. Counting processors reads
    /// several files, and most programs start few servers.
    pub(crate) more_start_permits: Once,
    pub(crate) tool_cache: Option<ToolCache>,
    pub(crate) tracker: TaskTracker,
    pub(crate) stop: CancellationToken,
}

impl McpManager {
    /// Creates a manager of these servers. None of them is started yet. `${VAR}` in a config is a variable of this
    /// process, read at each connection.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn new(configs: Vec<McpServerConfig>) -> Self {
        Self::builder().build(configs)
    }

    /// Builder of a manager with other than the default settings.
    pub fn builder() -> ManagerBuilder {
        ManagerBuilder::default()
    }

    /// Connects all enabled servers in parallel, and returns their snapshots.
    ///
    /// Returns when every server is connected or has failed, at the latest after
    /// [`ManagerBuilder::ready_wait`]; slower servers continue in the background, and [`ready`](Self::ready) waits for
    /// them. A server that failed is not an error: its state says why. Lazy servers whose tools are cached are not
    /// started.
    pub async fn connect_all(&self) -> Result<Vec<Arc<McpConnection>>, ManagerError> {
        self.shared.apply(vec![Operation::ConnectAll]).await?;
        self.ready(self.shared.settings.ready_wait).await;
        Ok(self.servers())
    }

    /// Ends all servers, and waits until no process of them is left.
    pub async fn disconnect_all(&self) -> Result<(), ManagerError> {
        let servers = self.servers();
        self.shared.stop_servers(servers.iter().map(|server| server.name()), Operation::Stop).await
    }

    /// Adds a server or changes its config, connects it, and waits for the outcome.
    ///
    /// A server that is connected with the same config is left alone. The name in the config is ignored.
    ///
    /// # Errors
    ///
    /// [`ManagerError::NotConnected`], whose state says why. The server stays configured, and is tried again in the
    /// background.
    pub async fn connect(
        &self,
        name: &str,
        config: McpServerConfig,
    ) -> Result<Arc<McpConnection>, ManagerError> {
        let config = McpServerConfig { name: name.to_owned(), ..config };
        let upsert = self.shared.upsert_operation(config).await;
        self.shared.apply(vec![upsert, Operation::Step(name.to_owned(), Event::Start)]).await?;
        let connection = self.wait_until_settled(name).await?;
        if connection.is_connected() {
            return Ok(connection);
        }
        let state = connection.state().clone();
        Err(ManagerError::NotConnected { server: name.to_owned(), state })
    }

    /// Adds servers or changes their configs, without starting any. A running server whose transport changed is
    /// reconnected.
    pub async fn upsert_servers(&self, configs: &[McpServerConfig]) -> Result<(), ManagerError> {
        let mut operations = Vec::new();
        for config in configs {
            operations.push(self.shared.upsert_operation(config.clone()).await);
        }
        self.shared.apply(operations).await
    }

    /// Ends a server and waits until no process of it is left. It stays configured, and calls do not start it.
    pub async fn disconnect(&self, name: &str) -> Result<(), ManagerError> {
        self.shared.stop_servers([name], Operation::Stop).await
    }

    /// Ends a server and removes it.
    pub async fn remove(&self, name: &str) -> Result<(), ManagerError> {
        self.shared.stop_servers([name], Operation::Remove).await
    }

    /// Connects a configured server at once, and waits for the outcome. A server that is connected is left alone. `Ok`
    /// is the server's snapshot even if connecting failed: its [state](McpConnection::state) says whether it accepts
    /// calls.
    pub async fn start(&self, name: &str) -> Result<Arc<McpConnection>, ManagerError> {
        self.shared.apply(vec![Operation::Step(name.to_owned(), Event::Start)]).await?;
        self.wait_until_settled(name).await
    }

    /// Ends a server if it runs, connects it again at once, and waits for the outcome as [`start`](Self::start) does.
    /// Resets its failure count.
    pub async fn reconnect(&self, name: &str) -> Result<Arc<McpConnection>, ManagerError> {
        self.shared.apply(vec![Operation::Step(name.to_owned(), Event::Restart)]).await?;
        self.wait_until_settled(name).await
    }

    /// Changes the servers from `old` to `new`: connects new ones, removes missing ones, reconnects those whose
    /// transport changed, and leaves the rest alone. Servers in neither list are not touched.
    ///
    /// Returns the changes, and emits them as [`ManagerEvent::ConfigApplied`]. Does not wait for connections.
    pub async fn reconcile(
        &self,
        old: &[McpServerConfig],
        new: &[McpServerConfig],
    ) -> Result<ConfigDiff, ManagerError> {
        self.shared.reconcile(old, new).await
    }

    /// [`reconcile`](Self::reconcile) without waiting for the removed servers to end: when this returns, calls see the
    /// new servers only.
    pub async fn begin_reconcile(
        &self,
        old: &[McpServerConfig],
        new: &[McpServerConfig],
    ) -> Result<Reconciliation, ManagerError> {
        self.shared.begin_reconcile(old, new).await
    }

    /// Watches a config file from now on. `servers` are those of the caller's last reading, and `parse` makes servers
    /// of the text. Each change is applied as [`reconcile`](Self::reconcile) does, and reported as
    /// [`ManagerEvent::ConfigApplied`] or [`ManagerEvent::ConfigRejected`].
    pub fn watch_file(
        &self,
        path: impl Into<PathBuf>,
        servers: Vec<McpServerConfig>,
        parse: Arc<ParseServers>,
    ) -> io::Result<FileWatch> {
        config_watcher::start(&self.shared, path.into(), servers, parse)
    }

    /// Denies tools of a server, in addition to those that its config denies. Names or patterns; they replace those of
    /// the last call. The server may be added later, also after it was removed.
    pub async fn set_denied_tools(&self, server: &str, tools: &[&str]) -> Result<(), ManagerError> {
        let patterns = tools.iter().map(|tool| (*tool).to_owned()).collect();
        self.shared.apply(vec![Operation::DenyTools(server.to_owned(), patterns)]).await
    }

    /// Snapshots of all servers, in the order in which they were added.
    pub fn servers(&self) -> Vec<Arc<McpConnection>> {
        self.shared.snapshot.load().servers.clone()
    }

    /// Snapshot of one server.
    pub fn server(&self, name: &str) -> Result<Arc<McpConnection>, ManagerError> {
        self.shared.snapshot.load().server(name).cloned()
    }

    /// All offered tools, including those of servers that do not run at the moment. A server that has never been
    /// connected has none yet: see [`ready`](Self::ready).
    pub fn all_tools(&self) -> Arc<[ToolWithServer]> {
        Arc::clone(&self.shared.snapshot.load().index.listed)
    }

    /// The tools of servers that are connected now.
    pub fn connected_tools(&self) -> Vec<ToolWithServer> {
        let snapshot = self.shared.snapshot.load();
        let is_connected = |tool: &&ToolWithServer| {
            snapshot.server(tool.server()).is_ok_and(|server| server.is_connected())
        };
        snapshot.index.listed.iter().filter(is_connected).cloned().collect()
    }

    /// Finds a tool by its public name, as `server.tool` or `server/tool`, or by its name on the server; then the first
    /// server that has it wins. A name that reads like a tool of one server never finds that of another.
    pub fn find_tool(&self, name: &str) -> Option<ToolWithServer> {
        self.shared.snapshot.load().find(name)
    }

    /// Fails with [`ManagerError::Ambiguous`] if a name, other than a bare tool name, could mean tools of several
    /// servers.
    pub fn ensure_unambiguous(&self, name: &str) -> Result<(), ManagerError> {
        match self.shared.snapshot.load().resolve(name) {
            Err(error @ ManagerError::Ambiguous { .. }) => Err(error),
            _ => Ok(()),
        }
    }

    /// Public names for other items of servers, such as prompts, by the same rules as those of tools. Items are pairs
    /// of server and name.
    pub fn public_names(&self, items: &[(&str, &str)]) -> Vec<String> {
        let snapshot = self.shared.snapshot.load();
        let servers: Vec<&str> = snapshot.servers.iter().map(|server| server.name()).collect();
        let (style, reservations) = (&self.shared.settings.names, &NameReservations::default());
        let generator = NameGenerator { style, servers: &servers, reservations };
        generator.name_all(items).into_iter().map(|generated| generated.public).collect()
    }

    /// Redactor of everything that servers send.
    pub fn redactor(&self) -> &Redactor {
        &self.shared.settings.stdio.redactor
    }

    /// Subscribes to events from now on.
    pub fn subscribe(&self) -> ManagerEvents {
        self.shared.events.subscribe()
    }

    /// Client of a server, for requests that the manager has no method for. A lazy server is started. Waits for a
    /// server that is connecting.
    pub async fn acquire_client(&self, server: &str) -> Result<ClientGuard, ManagerError> {
        let mut avoid = None;
        loop {
            let connection = self.server(server)?;
            let wait = self.shared.start_wait(&connection);
            let connection = self.shared.wait_for_server(&connection.name, avoid, wait).await?;
            if let Some(active) = &connection.active {
                if let Some(guard) = ClientGuard::new(active) {
                    return Ok(guard);
                }
                // It is closing because it was idle: wait for the next launch.
                avoid = Some(active.epoch);
            }
        }
    }

    /// Waits until no server is connecting any more, at most for `limit`. Returns the servers that accept no calls
    /// because they are still connecting or have failed; their state says why.
    ///
    /// A server that is disabled, stopped, or started by its first call is not among them.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    pub async fn ready(&self, limit: Duration) -> Vec<Arc<McpConnection>> {
        let deadline = deadline_after(Instant::now(), limit);
        let is_done =
            |snapshot: &Snapshot| snapshot.servers.iter().all(|server| is_settled(server));
        self.shared.wait_until(deadline, is_done).await;
        let is_missing =
            |server: &Arc<McpConnection>| !is_settled(server) || server.state().failure().is_some();
        self.servers().into_iter().filter(is_missing).collect()
    }

    /// Waits until a server is no longer connecting.
    async fn wait_until_settled(&self, name: &str) -> Result<Arc<McpConnection>, ManagerError> {
        // Saturating: a config may set a timeout of `Duration::MAX`.
        let limit = start_timeout(&self.server(name)?.config).saturating_add(START_SLACK);
        let deadline = deadline_after(Instant::now(), limit);
        let is_done =
            |snapshot: &Snapshot| snapshot.server(name).map_or(true, |server| is_settled(server));
        // A server that is still connecting after the deadline is not an error: its state says so.
        if !self.shared.wait_until(deadline, is_done).await && self.shared.stop.is_cancelled() {
            return Err(ManagerError::Closed);
        }
        self.server(name)
    }

    /// Fetches the tools of servers that do not announce changes, if the known lists may be out of date, and waits for
    /// a moment. Lists that arrive later take effect then.
    ///
    /// # Cancel safety
    /// Dropping the future only ends the wait.
    pub async fn refresh_tools(&self) {
        let mut refreshes = Vec::new();
        for server in self.servers() {
            let Some(active) = server.active.clone() else { continue };
            let tools = active.client.capabilities().tools.as_ref();
            let announces_no_changes = tools.is_some_and(|tools| !tools.list_changed);
            if announces_no_changes && active.refresh_limiter.try_start(Instant::now()) {
                // A task of its own, so that a caller that gives up does not lose the list.
                let refresh = refresh(Arc::clone(&self.shared), server, active);
                refreshes.push(self.shared.tracker.spawn(refresh));
            }
        }
        if !refreshes.is_empty() && timeout(REFRESH_WAIT, join_all(refreshes)).await.is_err() {
            tracing::debug!("a tool refresh is slow; using the known list");
        }
    }

    /// Ends all servers and the manager. When it returns, no process and no task of them is left.
    pub async fn close(&self) {
        // With a timeout, because the supervisor's runtime may not be running any more.
        match timeout(STOP_TIMEOUT, self.disconnect_all()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "manager was already closed"),
            Err(_elapsed) => tracing::warn!("the manager's runtime is not running"),
        }
        self.shared.stop.cancel();
        self.shared.tracker.close();
        if timeout(STOP_TIMEOUT, self.shared.tracker.wait()).await.is_err() {
            tracing::warn!("some tasks of the manager did not end in time");
        }
    }
}

/// How long a server may take until it accepts calls. Includes the installation of its package.
fn start_timeout(config: &McpServerConfig) -> Duration {
    match config.transport {
        McpTransport::Package { .. } => {
            config.startup_timeout.saturating_add(config.install_timeout)
        }
        McpTransport::Stdio { ref command, .. } => {
            let timeouts = Timeouts { startup: config.startup_timeout, ..Timeouts::default() };
            timeouts.startup_for(launcher_name(command))
        }
        _ => config.startup_timeout,
    }
}

fn is_settled(server: &McpConnection) -> bool {
    *server.state() != ConnectionState::Connecting
}

/// A config change that calls see already; see [`McpManager::begin_reconcile`].
#[derive(Debug)]
pub struct Reconciliation {
    plan: ConfigDiff,
    /// Ends of the removed servers.
    waiters: Vec<oneshot::Receiver<()>>,
    events: EventSender,
}

impl Reconciliation {
    /// Waits until the removed servers have ended, emits [`ManagerEvent::ConfigApplied`], and returns the changes.
    pub async fn finished(self) -> ConfigDiff {
        wait_until_stopped(self.waiters).await;
        // After the removed servers have ended, so that a listener sees no process of them.
        self.events.emit(|| ManagerEvent::ConfigApplied { plan: self.plan.clone() });
        self.plan
    }
}

async fn wait_until_stopped(waiters: Vec<oneshot::Receiver<()>>) {
    // One deadline for all: they end in parallel.
    let deadline = Instant::now() + STOP_TIMEOUT;
    for stopped in waiters {
        if timeout_at(deadline, stopped).await.is_err() {
            tracing::warn!("server did not stop in time; left to its guardian");
        }
    }
}

impl Shared {
    /// Sends operations to the supervisor, and waits until their result is published.
    pub(crate) async fn apply(&self, operations: Vec<Operation>) -> Result<(), ManagerError> {
        let (sender, reply) = oneshot::channel();
        let command = Command { operations, reply: Some(sender) };
        // Both are short: the supervisor waits for nothing but its queues.
        self.commands.send(command).await.map_err(|_closed| ManagerError::Closed)?;
        reply.await.map_err(|_closed| ManagerError::Closed)?
    }

    /// Applies `operation`, which ends a server, to each server, and waits until no process of them is left.
    async fn stop_servers<'a>(
        &self,
        servers: impl IntoIterator<Item = &'a str>,
        operation: fn(String, oneshot::Sender<()>) -> Operation,
    ) -> Result<(), ManagerError> {
        let stops = servers.into_iter().map(|server| {
            let (sender, stopped) = oneshot::channel();
            (operation(server.to_owned(), sender), stopped)
        });
        let (operations, waiters) = stops.unzip();
        self.apply(operations).await?;
        wait_until_stopped(waiters).await;
        Ok(())
    }

    pub(crate) async fn reconcile(
        &self,
        old: &[McpServerConfig],
        new: &[McpServerConfig],
    ) -> Result<ConfigDiff, ManagerError> {
        Ok(self.begin_reconcile(old, new).await?.finished().await)
    }

    async fn begin_reconcile(
        &self,
        old: &[McpServerConfig],
        new: &[McpServerConfig],
    ) -> Result<Reconciliation, ManagerError> {
        let plan = diff(old, new);
        let mut operations = Vec::new();
        let mut waiters = Vec::new();
        for config in new {
            operations.push(self.upsert_operation(config.clone()).await);
        }
        // The manager may differ from `old`: servers are also added and removed by other callers.
        let is_known = |name: &String| self.snapshot.load().server(name).is_ok();
        let is_in_new = |name: &&String| new.iter().any(|config| config.name == **name);
        // `keep` too: a disabled server that is missing from `new` needs no disconnect, so
        // it is there.
        for name in plan.disconnect.iter().chain(&plan.keep) {
            if !is_in_new(&name) && is_known(name) {
                let (sender, stopped) = oneshot::channel();
                waiters.push(stopped);
                operations.push(Operation::Remove(name.clone(), sender));
            }
        }
        let unknown = plan.keep.iter().filter(|name| is_in_new(name) && !is_known(name));
        operations.extend(plan.connect.iter().chain(unknown).cloned().map(Operation::Connect));
        self.apply(operations).await?;
        Ok(Reconciliation { plan, waiters, events: self.events.clone() })
    }

    /// Operation that adds a server or changes its config. Reads its cached tools on the blocking pool.
    async fn upsert_operation(&self, config: McpServerConfig) -> Operation {
        let config = Arc::new(config);
        // A server with this config has loaded them already.
        let is_known = |known: &Arc<McpConnection>| known.config == config;
        let is_known = self.snapshot.load().server(&config.name).is_ok_and(is_known);
        let Some(cache) = self.tool_cache.clone().filter(|_| !is_known) else {
            return Operation::Upsert(config, CachedTools::default());
        };
        let cached_config = Arc::clone(&config);
        let loaded = tokio::task::spawn_blocking(move || cache.load(&cached_config)).await;
        Operation::Upsert(config, loaded.unwrap_or_default())
    }

    /// Waits until `is_done` holds for the snapshot, at most until `deadline` or the end of the manager. `true` if it
    /// holds.
    async fn wait_until(
        &self,
        deadline: Instant,
        mut is_done: impl FnMut(&Snapshot) -> bool,
    ) -> bool {
        // Subscribes before the first check, so that a snapshot published in between is not missed.
        let mut version = self.version.subscribe();
        loop {
            if is_done(&self.snapshot.load()) {
                return true;
            }
            if self.stop.is_cancelled() {
                return false;
            }
            if !matches!(timeout_at(deadline, version.changed()).await, Ok(Ok(()))) {
                // Once more: the last snapshot may have arrived together with the timeout.
                return is_done(&self.snapshot.load());
            }
        }
    }

    /// Deadlines of a call that starts to wait for this server.
    pub(crate) fn start_wait(&self, connection: &McpConnection) -> WaitDeadlines {
        let startup = start_timeout(&connection.config);
        WaitDeadlines::new(Instant::now(), startup, self.settings.retry_wait)
    }

    /// Waits until a server accepts calls, or the [retry policy](crate::retry_policy) rejects the call.
    pub(crate) async fn wait_for_server(
        &self,
        server: &str,
        avoid: Option<Epoch>,
        deadlines: WaitDeadlines,
    ) -> Result<Arc<McpConnection>, ManagerError> {
        let mut version = self.version.subscribe();
        let mut demanded: Option<(ConnectionState, Option<Instant>)> = None;
        loop {
            // Marked as seen before the snapshot is read: a later one wakes `changed` below.
            version.borrow_and_update();
            if self.stop.is_cancelled() {
                return Err(ManagerError::Closed);
            }
            let connection = Arc::clone(self.snapshot.load().server(server)?);
            let lifecycle = &connection.lifecycle;
            let deadline = match decide(lifecycle, avoid, &deadlines, Instant::now()) {
                Decision::Send => return Ok(connection),
                Decision::Reject => return Err(not_available(&connection, deadlines.started)),
                Decision::Wait(deadline) => deadline,
                Decision::StartAndWait(deadline) => {
                    // Once per state: every snapshot of any server wakes this loop.
                    let state = (lifecycle.state().clone(), lifecycle.retry_at());
                    if demanded.replace(state.clone()) != Some(state) {
                        let operations = vec![Operation::Step(server.to_owned(), Event::Demand)];
                        let demand = self.commands.send(Command { operations, reply: None });
                        let sent = timeout_at(deadline, demand).await;
                        sent.map_or(Ok(()), |sent| sent.map_err(|_closed| ManagerError::Closed))?;
                    }
                    deadline
                }
            };
            if let Ok(Err(_closed)) = timeout_at(deadline, version.changed()).await {
                return Err(ManagerError::Closed);
            }
        }
    }
}

fn not_available(connection: &McpConnection, started: Instant) -> ManagerError {
    let (server, state) = (connection.name().to_owned(), connection.state().clone());
    let waited = started.elapsed();
    match state {
        ConnectionState::Connecting | ConnectionState::Connected => {
            ManagerError::NotReady { server, state, waited }
        }
        state => ManagerError::NotConnected { server, state },
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let snapshot = self.snapshot.load();
        f.debug_struct("Shared")
            .field("servers", &snapshot.servers.len())
            .field("tools", &snapshot.index.listed.len())
            .finish_non_exhaustive()
    }
}
