//! Supervisor task: owns all servers, and starts and ends their launches as their [`Lifecycle`] decides. It never
//! waits for a server.
//!
//! **Invariant:** a change is published before its caller gets a reply. When this task ends, the manager is
//! closed, even if it panicked or its runtime was dropped.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use toolrack_config::{McpServerConfig, fingerprint};
use toolrack_transport::deadline_after;

use crate::connection_task::{ConnectionTask, TaskEvent, TaskReport};
use crate::error::ManagerError;
use crate::events::{EventSender, ManagerEvent};
use crate::lifecycle::{
    ConnectPhase, ConnectionState, Effect, Enabled, Epoch, Event, Lifecycle, Phase, Policy, Tools,
};
use crate::manager::Shared;
use crate::retry_policy::Availability;
use crate::server_tools::ServerTools;
use crate::snapshot::{ActiveClient, Index, IndexKey, McpConnection, Snapshot};
use crate::tool_cache::{CacheWrite, CachedTools};
use crate::tool_filter::ToolFilter;

/// How many reports are handled before the result is published. Publishing may rebuild the index, so the reports of
/// servers that connect at the same time are handled together.
const REPORT_BATCH: usize = 64;

/// Shortest interval at which a connection in use is checked for being idle.
const MIN_IDLE_CHECK: Duration = Duration::from_millis(100);

/// Channel for the reply to a command.
type ReplySender = oneshot::Sender<Result<(), ManagerError>>;

/// Command to the supervisor.
#[derive(Debug)]
pub(crate) enum Command {
    /// Apply these operations in order; the reply comes after the result is published.
    Apply(Vec<Operation>, ReplySender),
    /// A call waits for this server.
    Demand(Arc<str>),
}

/// One operation on a server.
#[derive(Debug)]
pub(crate) enum Operation {
    /// Add a server, or change its config.
    Upsert(Arc<McpServerConfig>, CachedTools),
    /// Connect all servers, except for lazy ones whose tools are known.
    ConnectAll,
    /// Connect a server, unless it is lazy and its tools are known.
    Connect(String),
    /// Start a server now, or end it and start it again.
    Step(String, Event),
    /// End a server, and notify the sender when it is gone.
    Stop(String, oneshot::Sender<()>),
    /// End a server and remove it.
    Remove(String, oneshot::Sender<()>),
    /// Take over the current tool list of this launch.
    UpdateTools(String, Epoch),
    /// Replace the tools of a server that are denied at runtime.
    DenyTools(String, Vec<String>),
}

/// State of the supervisor task.
pub(crate) struct Supervisor {
    pub(crate) shared: Arc<Shared>,
    pub(crate) reports: mpsc::Sender<TaskReport>,
    /// `None` without a tool cache. A full channel drops the write, which only makes a later start slower.
    pub(crate) cache_writes: Option<mpsc::Sender<CacheWrite>>,
    pub(crate) start_permits: Arc<Semaphore>,
    pub(crate) stop: CancellationToken,
    pub(crate) servers: HashMap<Arc<str>, ServerRecord>,
    /// Names in the order in which they were added, which is the order of their tools.
    pub(crate) order: Vec<Arc<str>>,
    pub(crate) positions: Arc<foldhash::HashMap<Arc<str>, usize>>,
    pub(crate) index: Arc<Index>,
    /// The tool lists from which the index was built. `None` forces a rebuild.
    pub(crate) index_keys: Option<Vec<IndexKey>>,
}

impl Supervisor {
    pub(crate) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        mut reports: mpsc::Receiver<TaskReport>,
    ) {
        let stop = self.stop.clone();
        let mut batch = Vec::with_capacity(REPORT_BATCH);
        loop {
            let mut reply = None;
            let now = Instant::now();
            let wake = self.servers.values().filter_map(|server| server.wake_at(now)).min();
            // No arm awaits: both queues are always drained, so neither callers nor connection tasks can deadlock
            // with this loop.
            tokio::select! {
                // Not biased: under a flood of reports, commands still get their turn, and the
                // other way round.
                () = stop.cancelled() => break,
                _n_reports = reports.recv_many(&mut batch, REPORT_BATCH) => {
                    batch.drain(..).for_each(|report| self.handle_report(report));
                }
                command = commands.recv() => match command {
                    Some(command) => reply = self.handle_command(command),
                    None => break,
                },
                () = sleep_until(wake.unwrap_or(now)), if wake.is_some() => self.handle_timer(),
            }
            // Before the reply, so that a caller that reads the snapshot next sees its own change.
            self.publish();
            if let Some((sender, outcome)) = reply {
                let dropped = |_outcome| tracing::trace!("caller of a command is gone");
                sender.send(outcome).unwrap_or_else(dropped);
            }
        }
    }

    fn handle_command(
        &mut self,
        command: Command,
    ) -> Option<(ReplySender, Result<(), ManagerError>)> {
        match command {
            Command::Apply(operations, sender) => {
                // The operations before a failed one stay applied; the caller gets the first error.
                let outcome =
                    operations.into_iter().try_for_each(|operation| self.apply(operation));
                Some((sender, outcome))
            }
            Command::Demand(server) => {
                self.step(&server, Event::Demand);
                None
            }
        }
    }

    fn apply(&mut self, operation: Operation) -> Result<(), ManagerError> {
        match operation {
            Operation::Upsert(config, cached) => self.upsert(config, cached),
            Operation::ConnectAll => {
                // Cloned, because `connect` borrows all of `self`. Reference counts only.
                for name in self.order.clone() {
                    self.connect(&name);
                }
            }
            Operation::Connect(server) => {
                let name = self.find(&server)?;
                self.connect(&name);
            }
            Operation::Step(server, event) => {
                let name = self.find(&server)?;
                self.step(&name, event);
            }
            Operation::Stop(server, stopped) => {
                let name = self.find(&server)?;
                self.stop_server(&name, stopped);
            }
            Operation::Remove(server, stopped) => {
                let name = self.find(&server)?;
                self.stop_server(&name, stopped);
                // The record stays until its launch is gone. A server of the same name that is added before that must
                // not start beside it.
                if let Some(record) = self.servers.get_mut(&name) {
                    record.is_removed = true;
                }
                self.update_order();
            }
            Operation::UpdateTools(server, epoch) => self.update_tools_of(&server.into(), epoch),
            Operation::DenyTools(server, patterns) => {
                let name = self.find(&server)?;
                if let Some(record) = self.servers.get_mut(&name) {
                    record.filter.set_denied_at_runtime(patterns);
                    record.refilter();
                }
                self.warn_unused_patterns(&name);
            }
        }
        Ok(())
    }

    fn find(&self, server: &str) -> Result<Arc<str>, ManagerError> {
        let record = self.servers.get(server).filter(|record| !record.is_removed);
        record.map(|record| Arc::clone(&record.name)).ok_or_else(|| {
            ManagerError::no_such_server(server, self.order.iter().map(|name| &**name))
        })
    }

    pub(crate) fn upsert(&mut self, config: Arc<McpServerConfig>, cached: CachedTools) {
        let name: Arc<str> = config.name.as_str().into();
        match self.servers.get_mut(&name) {
            Some(record) => {
                let event = record.configure(config, cached);
                self.step(&name, event);
            }
            None => {
                self.servers.insert(Arc::clone(&name), ServerRecord::new(config, cached));
            }
        }
        // A changed server keeps its place: a stable order of tools keeps the prompt caches
        // of models valid.
        if !self.order.contains(&name) {
            self.order.push(Arc::clone(&name));
            self.update_order();
        }
        self.warn_unused_patterns(&name);
    }

    fn connect(&mut self, name: &Arc<str>) {
        if let Some(record) = self.servers.get(name) {
            let tools = record.known_tools();
            self.step(name, Event::ConnectAll(tools));
        }
    }

    fn stop_server(&mut self, name: &Arc<str>, stopped: oneshot::Sender<()>) {
        if let Some(record) = self.servers.get_mut(name) {
            record.stop_waiters.push(stopped);
        }
        self.step(name, Event::Stop);
    }

    /// Updates order and positions after servers were added or removed.
    fn update_order(&mut self) {
        let servers = &self.servers;
        self.order.retain(|name| servers.get(name).is_some_and(|record| !record.is_removed));
        let positions = self.order.iter().enumerate().map(|(at, name)| (Arc::clone(name), at));
        self.positions = Arc::new(positions.collect());
        // The index refers to servers by position.
        self.index_keys = None;
    }

    fn handle_report(&mut self, report: TaskReport) {
        let TaskReport { server, epoch, event } = report;
        let Some(record) = self.servers.get_mut(&server) else { return };
        match event {
            TaskEvent::Phase(phase) => {
                // Phases do not pass through the state machine, so the epoch is checked here.
                if record.lifecycle.launch() == Some(epoch) {
                    record.phase = phase;
                    record.published = None;
                }
            }
            TaskEvent::Opened(active) => {
                // First the state machine, which decides whether the launch is still wanted.
                self.step(&server, Event::Opened(epoch));
                self.attach(&server, active);
            }
            TaskEvent::ToolsChanged => self.update_tools_of(&server, epoch),
            TaskEvent::OpenFailed(failure) => {
                tracing::warn!(server = &*server, %failure, "cannot connect to server");
                self.step(&server, Event::OpenFailed(epoch, failure));
            }
            TaskEvent::Lost(failure) => {
                tracing::warn!(server = &*server, %failure, "server connection lost");
                self.step(&server, Event::Lost(epoch, failure));
            }
            // The state machine ignores a stale epoch, so a late report of an old launch cannot end
            // the new one.
            TaskEvent::Gone => self.step(&server, Event::Gone(epoch)),
        }
    }

    /// Stores a new connection, if its launch is still the current one: a stop or restart may have been handled while
    /// the report was queued.
    fn attach(&mut self, server: &Arc<str>, active: Arc<ActiveClient>) {
        let Some(record) = self.servers.get_mut(server) else { return };
        let is_connected = matches!(record.lifecycle.phase(), Phase::Connected { .. });
        if is_connected && record.lifecycle.launch() == Some(active.epoch) {
            record.active = Some(active);
            self.update_tools(server);
        }
    }

    /// Takes over the tools of a launch, if it is still connected.
    fn update_tools_of(&mut self, server: &Arc<str>, epoch: Epoch) {
        let active = self.servers.get(server).and_then(|record| record.active.as_ref());
        if active.is_some_and(|active| active.epoch == epoch) {
            self.update_tools(server);
        }
    }

    fn update_tools(&mut self, server: &Arc<str>) {
        let Some(record) = self.servers.get_mut(server) else { return };
        record.update_tools();
        if let Some(cache_writes) = &self.cache_writes {
            let config = Arc::clone(&record.config);
            let write = CacheWrite { config, cached: record.cached.clone() };
            let skipped = |error| tracing::debug!(%error, "tool cache write skipped");
            // `try_send`: a slow disk must not hold up this loop, which serves all servers.
            cache_writes.try_send(write).unwrap_or_else(skipped);
        }
        self.warn_unused_patterns(server);
    }

    fn warn_unused_patterns(&self, server: &Arc<str>) {
        if let Some(record) = self.servers.get(server) {
            record.warn_unused_patterns(&self.shared.events);
        }
    }

    /// Starts retries that are due and closes connections that are idle.
    fn handle_timer(&mut self) {
        let now = Instant::now();
        // All servers, not only the one that was due: several deadlines may pass before
        // this task runs.
        for name in self.servers.keys().cloned().collect::<Vec<_>>() {
            let Some(record) = self.servers.get_mut(&name) else { continue };
            let active =
                record.active.as_ref().filter(|_| record.idle_at(now).is_some_and(|at| at <= now));
            // A call may have started since `idle_at` looked; closing the counter decides which of the two wins.
            let idle = active.filter(|active| active.in_flight.close_if_unused());
            if let Some(epoch) = idle.map(|active| active.epoch) {
                tracing::debug!(server = &*name, "closing idle server");
                self.step(&name, Event::Idle(epoch));
            } else if record.lifecycle.is_due(now) {
                self.step(&name, Event::Tick);
            }
        }
    }

    fn step(&mut self, server: &Arc<str>, event: Event) {
        let Some(record) = self.servers.get_mut(server) else { return };
        let effect = record.lifecycle.step(event, Instant::now(), fastrand::f64());
        record.published = None;
        // The next snapshot must not offer a connection that is ending.
        if !matches!(record.lifecycle.phase(), Phase::Connected { .. }) {
            record.active = None;
        }
        match effect {
            Some(Effect::Launch(epoch)) => self.launch(server, epoch),
            // The token is that of the current launch: `launch` replaces it only after the old
            // one is gone.
            Some(Effect::End(_epoch)) => record.stop.cancel(),
            None => {}
        }
    }

    fn launch(&mut self, server: &Arc<str>, epoch: Epoch) {
        let Some(record) = self.servers.get_mut(server) else { return };
        // A child token: the end of the manager ends every launch.
        record.stop = self.stop.child_token();
        record.phase = ConnectPhase::default();
        let task = ConnectionTask {
            server: Arc::clone(server),
            epoch,
            config: Arc::clone(&record.config),
            cached_version: record.cached.version,
            options: Arc::clone(&self.shared.launch_options),
            events: Arc::clone(&self.shared.events),
            start_permits: Arc::clone(&self.start_permits),
            stop: record.stop.clone(),
            reports: self.reports.clone(),
        };
        self.shared.tracker.spawn(task.run());
    }

    /// Publishes a snapshot, emits events for the changes, and drops removed servers.
    pub(crate) fn publish(&mut self) {
        let now = Instant::now();
        self.notify_stopped();
        let mut connections: Vec<Arc<McpConnection>> = Vec::with_capacity(self.order.len());
        for name in &self.order {
            let Some(record) = self.servers.get_mut(name) else { continue };
            // Removed servers are not in `order`: they vanish from snapshots at once, although
            // their processes still end.
            let connection = record.snapshot(now);
            if record.emitted_state != connection.state {
                record.emitted_state = connection.state.clone();
                self.shared.events.emit(|| ManagerEvent::StateChanged {
                    server: Arc::clone(name),
                    state: connection.state.clone(),
                });
            }
            let phase = connection.phase.filter(|phase| record.emitted_phase != Some(*phase));
            if let Some(phase) = phase {
                let server = Arc::clone(name);
                self.shared.events.emit(|| ManagerEvent::PhaseChanged { server, phase });
            }
            record.emitted_phase = connection.phase;
            connections.push(connection);
        }
        self.reindex(&connections);
        let positions = Arc::clone(&self.positions);
        let snapshot = Snapshot::new(connections, positions, Arc::clone(&self.index));
        self.shared.publish(snapshot);
    }

    /// Notifies callers that wait for a server's end, and drops removed servers that have no processes left.
    fn notify_stopped(&mut self) {
        let is_gone = |record: &&mut ServerRecord| record.lifecycle.launch().is_none();
        for record in self.servers.values_mut().filter(is_gone) {
            for waiter in record.stop_waiters.drain(..) {
                let dropped = |()| tracing::trace!("caller of a stop is gone");
                waiter.send(()).unwrap_or_else(dropped);
            }
        }
        // After the waiters: `remove` returns only when the processes are gone.
        self.servers.retain(|_, record| !record.is_removed || record.lifecycle.launch().is_some());
    }

    /// Rebuilds the index if any tool list changed. Most snapshots differ in states only, and share the old index.
    fn reindex(&mut self, connections: &[Arc<McpConnection>]) {
        let no_tools = Arc::clone(&self.shared.no_tools);
        let key = |connection: &Arc<McpConnection>| IndexKey::new(connection, &no_tools);
        let index_keys: Vec<IndexKey> = connections.iter().map(key).collect();
        if self.index_keys.as_ref() == Some(&index_keys) {
            return;
        }
        // Still the old snapshot: the new one is stored after the index is built.
        let before = self.shared.snapshot.load();
        for (connection, IndexKey { offered, .. }) in connections.iter().zip(&index_keys) {
            let old = before.server(connection.name()).ok().filter(|old| old.is_offered());
            let diff = offered.diff(old.map_or(&no_tools, |old| &old.tools));
            if !diff.is_empty() {
                self.shared.events.emit(|| ManagerEvent::ToolsChanged {
                    server: Arc::clone(&connection.name),
                    added: diff.added,
                    removed: diff.removed,
                    changed: diff.changed,
                });
            }
        }
        self.index = Arc::new(Index::build(&self.shared.names, connections, &self.index));
        self.index_keys = Some(index_keys);
    }
}

impl Drop for Supervisor {
    /// Runs also when the Tokio runtime is dropped: waiting callers get [`ManagerError::Closed`], and no server that
    /// is gone stays published as connected.
    fn drop(&mut self) {
        // After a panic the state may be inconsistent, so nothing but the end is published.
        if !std::thread::panicking() {
            self.order.clone().iter().for_each(|name| self.step(name, Event::Stop));
            self.publish();
        }
        self.shared.mark_closed();
    }
}

/// One server as the supervisor stores it: config, lifecycle and tools.
pub(crate) struct ServerRecord {
    name: Arc<str>,
    config: Arc<McpServerConfig>,
    lifecycle: Lifecycle,
    filter: ToolFilter,
    cached: CachedTools,
    tools: Arc<ServerTools>,
    active: Option<Arc<ActiveClient>>,
    /// Ends the current launch.
    stop: CancellationToken,
    /// Notified when the current launch is gone.
    stop_waiters: Vec<oneshot::Sender<()>>,
    /// The record is dropped as soon as its launch is gone.
    is_removed: bool,
    /// The last published snapshot, if nothing has changed since.
    published: Option<Arc<McpConnection>>,
    /// State of the last state event.
    emitted_state: ConnectionState,
    /// Progress of the current launch.
    phase: ConnectPhase,
    /// Phase of the last phase event, while the server is connecting.
    emitted_phase: Option<ConnectPhase>,
}

impl ServerRecord {
    fn new(config: Arc<McpServerConfig>, cached: CachedTools) -> Self {
        let filter = ToolFilter::new(&config.allow, &config.deny);
        Self {
            name: config.name.as_str().into(),
            lifecycle: Lifecycle::new(policy(&config)),
            tools: Arc::new(ServerTools::new(cached.list.clone(), &filter)),
            filter,
            cached,
            config,
            active: None,
            stop: CancellationToken::new(),
            stop_waiters: Vec::new(),
            is_removed: false,
            published: None,
            emitted_state: ConnectionState::Disconnected,
            phase: ConnectPhase::default(),
            emitted_phase: None,
        }
    }

    /// Takes over a new config, and returns the matching lifecycle event.
    fn configure(&mut self, config: Arc<McpServerConfig>, cached: CachedTools) -> Event {
        // A changed filter or timeout does not end the connection, so calls in flight
        // survive the edit.
        let is_same_transport = fingerprint(&self.config) == fingerprint(&config);
        self.filter = self.filter.with_config(&config.allow, &config.deny);
        let policy = policy(&config);
        self.config = config;
        // A server that is added again while its removal is under way stays.
        self.is_removed = false;
        if is_same_transport {
            self.refilter();
            return Event::PolicyChanged(policy);
        }
        // Another transport is another server, whose tools are not those that are known here.
        self.cached = cached;
        self.refilter();
        Event::TransportChanged(policy)
    }

    /// Filters the tools again, after the rules or the list changed.
    fn refilter(&mut self) {
        self.tools = Arc::new(ServerTools::new(self.cached.list.clone(), &self.filter));
        self.published = None;
    }

    /// Takes over the tool list of the connection.
    fn update_tools(&mut self) {
        let Some(active) = &self.active else { return };
        let (list, version) = (Some(active.client.tools()), Some(active.client.revision()));
        self.cached = CachedTools { list, version };
        self.refilter();
    }

    /// Warns about patterns that match no tool: they are probably misspelled.
    fn warn_unused_patterns(&self, events: &EventSender) {
        for pattern in self.tools.unused_patterns() {
            let message = format!("pattern `{pattern}` matches no tool of server `{}`", self.name);
            tracing::warn!(server = &*self.name, "{message}");
            let server = Some(Arc::clone(&self.name));
            events.emit(|| ManagerEvent::Warning { server, message });
        }
    }

    fn known_tools(&self) -> Tools {
        if self.cached.list.is_some() { Tools::Known } else { Tools::Unknown }
    }

    /// When the connection has to be checked for being idle.
    fn idle_at(&self, now: Instant) -> Option<Instant> {
        let (active, idle) = (self.active.as_ref()?, self.config.idle?);
        Some(match active.in_flight.idle_since() {
            Some(since) => deadline_after(since, idle),
            // In use: it cannot be idle for long enough before this. Nothing wakes the supervisor when a call ends.
            None => deadline_after(now, idle.max(MIN_IDLE_CHECK)),
        })
    }

    /// When the supervisor has to wake up for this server.
    fn wake_at(&self, now: Instant) -> Option<Instant> {
        let times =
            [self.lifecycle.wake_at(), self.lifecycle.crash_loop_ends_at(), self.idle_at(now)];
        times.into_iter().flatten().min()
    }

    /// Immutable snapshot of the server, shared with the last one if nothing changed.
    fn snapshot(&mut self, now: Instant) -> Arc<McpConnection> {
        if let Some(published) = &self.published {
            return Arc::clone(published);
        }
        let state = ConnectionState::from_lifecycle(&self.lifecycle);
        let connection = Arc::new(McpConnection {
            name: Arc::clone(&self.name),
            config: Arc::clone(&self.config),
            phase: (state == ConnectionState::Connecting).then_some(self.phase),
            state,
            availability: Availability::from_lifecycle(&self.lifecycle),
            retry_at: self.lifecycle.wake_at(),
            is_crash_looping: self.lifecycle.is_crash_looping(now),
            launch: self.lifecycle.launch(),
            active: self.active.clone(),
            tools: Arc::clone(&self.tools),
            filter: Arc::new(self.filter.clone()),
        });
        self.published = Some(Arc::clone(&connection));
        connection
    }
}

fn policy(config: &McpServerConfig) -> Policy {
    let enabled = if config.enabled { Enabled::Yes } else { Enabled::No };
    Policy { enabled, start: config.start }
}
