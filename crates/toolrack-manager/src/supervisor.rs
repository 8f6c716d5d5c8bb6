//! Supervisor task: owns all servers, and starts and ends their launches as their [`Lifecycle`] decides. It never
//! waits for a server.
//!
//! **Invariant:** a change is published before its caller gets a reply. When this task ends, the manager is
//! closed, even if it panicked or its runtime was dropped.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use toolrack_config::{McpServerConfig, fingerprint};
use toolrack_transport::deadline_after;

use crate::connection_task::{ConnectionTask, TaskEvent, TaskReport};
use crate::error::ManagerError;
use crate::events::{EventSender, ManagerEvent};
use crate::lifecycle::{ConnectPhase, ConnectionState, Effect, Epoch, Event, Lifecycle, Policy};
use crate::manager::Shared;
use crate::server_tools::{ServerTools, ToolDiff};
use crate::snapshot::{Index, McpConnection, Snapshot};
use crate::tool_cache::CachedTools;
use crate::tool_filter::ToolFilter;

/// How many reports are handled before the result is published. Publishing may rebuild the index, so the reports of
/// servers that connect at the same time are handled together.
const REPORT_BATCH: usize = 64;

/// Shortest interval at which a connection in use is checked for being idle.
const MIN_IDLE_CHECK: Duration = Duration::from_millis(100);

/// Command to the supervisor: apply these operations in order.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) operations: Vec<Operation>,
    /// Gets the outcome after the result is published. `None` if no caller waits for it.
    pub(crate) reply: Option<oneshot::Sender<Result<(), ManagerError>>>,
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
    /// Pass an event to the lifecycle of a server.
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

/// Servers whose tools may be denied before they are known.
const MAX_DENIED_SERVERS: usize = 1024;

/// State of the supervisor task.
pub(crate) struct Supervisor {
    pub(crate) shared: Arc<Shared>,
    pub(crate) reports: mpsc::Sender<TaskReport>,
    /// `None` without a tool cache. A full channel drops the write, which only makes a later start slower.
    pub(crate) cache_writes: Option<mpsc::Sender<(Arc<McpServerConfig>, CachedTools)>>,
    pub(crate) servers: HashMap<Arc<str>, ServerRecord>,
    /// Names in the order in which they were added, which is the order of their tools. Without removed servers.
    pub(crate) order: Vec<Arc<str>>,
    /// Patterns of tools that are denied at runtime, by server. A server may be added after its tools were denied.
    pub(crate) denied_tools: HashMap<String, Vec<String>>,
}

impl Supervisor {
    pub(crate) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        mut reports: mpsc::Receiver<TaskReport>,
    ) {
        let stop = self.shared.stop.clone();
        let mut batch = Vec::with_capacity(REPORT_BATCH);
        loop {
            let mut answer = None;
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
                    Some(Command { operations, reply }) => {
                        // The operations before a failed one stay applied; the caller gets the first error.
                        let outcome = operations.into_iter().try_for_each(|operation| self.apply(operation));
                        answer = reply.map(|reply| (reply, outcome));
                    }
                    None => break,
                },
                () = sleep_until(wake.unwrap_or(now)), if wake.is_some() => self.handle_timer(),
            }
            // Before the reply, so that a caller that reads the snapshot next sees its own change.
            self.publish();
            if let Some((reply, outcome)) = answer {
                let dropped = |_outcome| tracing::trace!("caller of a command is gone");
                reply.send(outcome).unwrap_or_else(dropped);
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
                self.stop_server(&server, stopped)?;
            }
            Operation::Remove(server, stopped) => {
                let name = self.stop_server(&server, stopped)?;
                // The record stays until its launch is gone. A server of the same name that is added before that must
                // not start beside it.
                if let Some(record) = self.servers.get_mut(&name) {
                    record.is_removed = true;
                }
                self.order.retain(|other| *other != name);
            }
            Operation::UpdateTools(server, epoch) => self.update_tools(&server, epoch),
            Operation::DenyTools(server, patterns) => {
                // Bounded: names come from the application, and an unknown one may be misspelled.
                if !self.denied_tools.contains_key(&*server)
                    && self.denied_tools.len() >= MAX_DENIED_SERVERS
                {
                    self.find(&server)?;
                }
                if let Some(record) = self.servers.get_mut(&*server) {
                    let filter = &mut Arc::make_mut(&mut record.current).filter;
                    filter.denied_at_runtime.clone_from(&patterns);
                    record.refilter(&self.shared.events);
                }
                self.denied_tools.insert(server, patterns);
            }
        }
        Ok(())
    }

    fn find(&self, server: &str) -> Result<Arc<str>, ManagerError> {
        let record = self.servers.get(server).filter(|record| !record.is_removed);
        record.map(|record| Arc::clone(&record.current.name)).ok_or_else(|| {
            ManagerError::no_such_server(server, self.order.iter().map(|name| &**name))
        })
    }

    pub(crate) fn upsert(&mut self, config: Arc<McpServerConfig>, cached: CachedTools) {
        let name: Arc<str> = config.name.as_str().into();
        match self.servers.get_mut(&name) {
            Some(record) => {
                let event = record.configure(config, cached, &self.shared.events);
                self.step(&name, event);
            }
            None => {
                let denied = self.denied_tools.get(&*name).cloned().unwrap_or_default();
                let record = ServerRecord::new(config, denied, cached, &self.shared.events);
                self.servers.insert(Arc::clone(&name), record);
            }
        }
        // A changed server keeps its place: a stable order of tools keeps the prompt caches
        // of models valid.
        if !self.order.contains(&name) {
            self.order.push(name);
        }
    }

    fn connect(&mut self, name: &Arc<str>) {
        if let Some(record) = self.servers.get(name) {
            let are_tools_known = record.cached.list.is_some();
            self.step(name, Event::ConnectAll { are_tools_known });
        }
    }

    fn stop_server(
        &mut self,
        server: &str,
        stopped: oneshot::Sender<()>,
    ) -> Result<Arc<str>, ManagerError> {
        let name = self.find(server)?;
        if let Some(record) = self.servers.get_mut(&name) {
            record.stop_waiters.push(stopped);
        }
        self.step(&name, Event::Stop);
        Ok(name)
    }

    fn handle_report(&mut self, report: TaskReport) {
        let TaskReport { server, epoch, event } = report;
        match event {
            TaskEvent::Phase(phase) => {
                let Some(record) = self.servers.get_mut(&server) else { return };
                // Phases do not pass through the state machine, so the epoch is checked here.
                if record.current.lifecycle.launch() == Some(epoch) {
                    Arc::make_mut(&mut record.current).phase = phase;
                }
            }
            TaskEvent::Opened(active) => {
                // First the state machine, which decides whether the launch is still wanted.
                self.step(&server, Event::Opened(epoch));
                let Some(record) = self.servers.get_mut(&server) else { return };
                // A stop or restart may have been handled while the report was queued.
                let is_current = record.current.lifecycle.launch() == Some(epoch);
                if is_current && record.current.is_connected() {
                    Arc::make_mut(&mut record.current).active = Some(active);
                    self.update_tools(&server, epoch);
                }
            }
            TaskEvent::ToolsChanged => self.update_tools(&server, epoch),
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

    /// Takes over the tools of a launch, if it is still connected.
    fn update_tools(&mut self, server: &str, epoch: Epoch) {
        let Some(record) = self.servers.get_mut(server) else { return };
        let active = record.current.active.as_ref().filter(|active| active.epoch == epoch);
        let Some(client) = active.map(|active| &active.client) else { return };
        let (list, version) = (Some(client.tools()), Some(client.revision()));
        record.cached = CachedTools { list, version };
        record.refilter(&self.shared.events);
        if let Some(cache_writes) = &self.cache_writes {
            let write = (Arc::clone(&record.current.config), record.cached.clone());
            let skipped = |error| tracing::debug!(%error, "tool cache write skipped");
            // `try_send`: a slow disk must not hold up this loop, which serves all servers.
            cache_writes.try_send(write).unwrap_or_else(skipped);
        }
    }

    /// Starts retries that are due and closes connections that are idle.
    fn handle_timer(&mut self) {
        let now = Instant::now();
        // All servers, not only the one that was due: several deadlines may pass before
        // this task runs.
        for name in self.servers.keys().cloned().collect::<Vec<_>>() {
            let Some(record) = self.servers.get_mut(&name) else { continue };
            let is_idle = record.idle_at(now).is_some_and(|at| at <= now);
            let active = record.current.active.as_ref().filter(|_| is_idle);
            // A call may have started since `idle_at` looked; closing the counter decides which of the two wins.
            let idle = active.filter(|active| active.in_flight.close_if_unused());
            if let Some(epoch) = idle.map(|active| active.epoch) {
                tracing::debug!(server = &*name, "closing idle server");
                self.step(&name, Event::Idle(epoch));
            } else if record.current.lifecycle.tick_at().is_some_and(|at| at <= now) {
                self.step(&name, Event::Tick);
            }
        }
    }

    fn step(&mut self, server: &Arc<str>, event: Event) {
        let Some(record) = self.servers.get_mut(server) else { return };
        let current = Arc::make_mut(&mut record.current);
        let effect = current.lifecycle.step(event, Instant::now(), fastrand::f64());
        // The next snapshot must not offer a connection that is ending.
        if !current.is_connected() {
            current.active = None;
        }
        match effect {
            Some(Effect::Launch(epoch)) => {
                // A child token: the end of the manager ends every launch.
                record.stop = self.shared.stop.child_token();
                current.phase = ConnectPhase::default();
                let task = ConnectionTask {
                    server: Arc::clone(server),
                    epoch,
                    config: Arc::clone(&current.config),
                    cached_version: record.cached.version,
                    shared: Arc::clone(&self.shared),
                    stop: record.stop.clone(),
                    reports: self.reports.clone(),
                };
                self.shared.tracker.spawn(task.run());
            }
            // The token is that of the current launch: a launch replaces it only after the old
            // one is gone.
            Some(Effect::End(_epoch)) => record.stop.cancel(),
            None => {}
        }
    }

    /// Publishes a snapshot, emits events for the changes, and drops removed servers.
    pub(crate) fn publish(&mut self) {
        self.notify_stopped();
        let mut servers: Vec<Arc<McpConnection>> = Vec::with_capacity(self.order.len());
        for name in &self.order {
            // Removed servers are not in `order`: they vanish from snapshots at once, although
            // their processes still end.
            if let Some(record) = self.servers.get_mut(name) {
                servers.push(record.publish(&self.shared.events));
            }
        }
        let snapshot = Snapshot { index: self.index(&servers), servers };
        // In this order: a task that is woken by the version must find the new snapshot.
        self.shared.snapshot.store(Arc::new(snapshot));
        self.shared.version.send_modify(|version| *version += 1);
    }

    /// Notifies callers that wait for a server's end, and drops removed servers that have no processes left.
    fn notify_stopped(&mut self) {
        let is_gone = |record: &&mut ServerRecord| record.current.lifecycle.launch().is_none();
        for record in self.servers.values_mut().filter(is_gone) {
            for waiter in record.stop_waiters.drain(..) {
                let dropped = |()| tracing::trace!("caller of a stop is gone");
                waiter.send(()).unwrap_or_else(dropped);
            }
        }
        // After the waiters: `remove` returns only when the processes are gone.
        self.servers
            .retain(|_, record| !record.is_removed || record.current.lifecycle.launch().is_some());
    }

    /// Rebuilds the index if any tool list changed. Most snapshots differ in states only, and share the old index.
    fn index(&self, servers: &[Arc<McpConnection>]) -> Arc<Index> {
        // Still the old snapshot: the new one is stored after the index is built.
        let before = self.shared.snapshot.load();
        let is_same = |(old, new): (&Arc<McpConnection>, &Arc<McpConnection>)| {
            // Lists are immutable, so the pointer suffices; comparing thousands of tools on each
            // publish would not be cheap.
            let is_same_list = Arc::ptr_eq(&old.tools, &new.tools);
            is_same_list && old.is_offered() == new.is_offered() && old.name == new.name
        };
        let is_same_length = before.servers.len() == servers.len();
        if is_same_length && before.servers.iter().zip(servers).all(is_same) {
            return Arc::clone(&before.index);
        }
        let no_tools = ServerTools::default();
        for server in servers {
            let offered = if server.is_offered() { &*server.tools } else { &no_tools };
            let old = before.server(server.name()).ok().filter(|old| old.is_offered());
            let diff = offered.diff(old.map_or(&no_tools, |old| &old.tools));
            if diff != ToolDiff::default() {
                self.shared.events.emit(|| ManagerEvent::ToolsChanged {
                    server: Arc::clone(&server.name),
                    added: diff.added,
                    removed: diff.removed,
                    changed: diff.changed,
                });
            }
        }
        Arc::new(Index::build(&self.shared.settings.names, servers, &before.index))
    }
}

impl Drop for Supervisor {
    /// Runs also when the Tokio runtime is dropped: waiting callers get [`ManagerError::Closed`], and no server that
    /// is gone stays published as connected.
    fn drop(&mut self) {
        // After a panic the state may be inconsistent, so nothing but the end is published.
        if std::thread::panicking() {
            // Without its servers, because a client and `shared` refer to each other.
            self.shared.snapshot.store(Arc::default());
        } else {
            self.order.clone().iter().for_each(|name| self.step(name, Event::Stop));
            self.publish();
        }
        // Ends all tasks, the event stream and all waits.
        self.shared.stop.cancel();
        self.shared.events.close();
        self.shared.version.send_modify(|version| *version += 1);
    }
}

/// One server as the supervisor stores it.
pub(crate) struct ServerRecord {
    /// The server as it is now. Shared with `published` until it changes.
    current: Arc<McpConnection>,
    /// The last published snapshot.
    published: Option<Arc<McpConnection>>,
    cached: CachedTools,
    /// Ends the current launch.
    stop: CancellationToken,
    /// Notified when the current launch is gone.
    stop_waiters: Vec<oneshot::Sender<()>>,
    /// The record is dropped as soon as its launch is gone.
    is_removed: bool,
}

impl ServerRecord {
    fn new(
        config: Arc<McpServerConfig>,
        denied_tools: Vec<String>,
        cached: CachedTools,
        events: &EventSender,
    ) -> Self {
        let current = Arc::new(McpConnection {
            name: config.name.as_str().into(),
            lifecycle: Lifecycle::new(policy(&config)),
            phase: ConnectPhase::default(),
            active: None,
            tools: Arc::default(),
            filter: ToolFilter::new(&config, denied_tools),
            config,
        });
        let (stop, stop_waiters) = (CancellationToken::new(), Vec::new());
        let mut record =
            Self { current, published: None, cached, stop, stop_waiters, is_removed: false };
        record.refilter(events);
        record
    }

    /// Takes over a new config, and returns the matching lifecycle event.
    fn configure(
        &mut self,
        config: Arc<McpServerConfig>,
        cached: CachedTools,
        events: &EventSender,
    ) -> Event {
        // A changed filter or timeout does not end the connection, so calls in flight
        // survive the edit.
        let known = &self.current.config;
        let is_same_transport = *known == config || fingerprint(known) == fingerprint(&config);
        let policy = policy(&config);
        let current = Arc::make_mut(&mut self.current);
        let denied_at_runtime = std::mem::take(&mut current.filter.denied_at_runtime);
        current.filter = ToolFilter::new(&config, denied_at_runtime);
        current.config = config;
        // A server that is added again while its removal is under way stays.
        self.is_removed = false;
        if !is_same_transport {
            // Another transport is another server, whose tools are not those that are known here.
            self.cached = cached;
        }
        self.refilter(events);
        if is_same_transport {
            Event::PolicyChanged(policy)
        } else {
            Event::TransportChanged(policy)
        }
    }

    /// Filters the tools again, after the rules or the list changed. Warns about patterns that match no tool: they are
    /// probably misspelled.
    fn refilter(&mut self, events: &EventSender) {
        let current = Arc::make_mut(&mut self.current);
        current.tools = Arc::new(ServerTools::new(self.cached.list.clone(), &current.filter));
        for pattern in &current.tools.unused_patterns {
            let name = &current.name;
            let message = format!("pattern `{pattern}` matches no tool of server `{name}`");
            tracing::warn!(server = &**name, "{message}");
            let server = Some(Arc::clone(name));
            events.emit(|| ManagerEvent::Warning { server, message });
        }
    }

    /// When the connection has to be checked for being idle.
    fn idle_at(&self, now: Instant) -> Option<Instant> {
        let (active, idle) = (self.current.active.as_ref()?, self.current.config.idle?);
        Some(match active.in_flight.idle_since() {
            Some(since) => deadline_after(since, idle),
            // In use: it cannot be idle for long enough before this. Nothing wakes the supervisor when a call ends.
            None => deadline_after(now, idle.max(MIN_IDLE_CHECK)),
        })
    }

    /// When the supervisor has to wake up for this server.
    fn wake_at(&self, now: Instant) -> Option<Instant> {
        [self.current.lifecycle.tick_at(), self.idle_at(now)].into_iter().flatten().min()
    }

    /// Immutable snapshot of the server, shared with the last one if nothing changed. Emits events for changes of its
    /// state and phase.
    fn publish(&mut self, events: &EventSender) -> Arc<McpConnection> {
        let (current, published) = (&self.current, self.published.as_ref());
        let (server, state) = (&current.name, current.state());
        if published.map_or(&ConnectionState::Disconnected, |published| published.state()) != state
        {
            let (server, state) = (Arc::clone(server), state.clone());
            events.emit(|| ManagerEvent::StateChanged { server, state });
        }
        let old_phase = published.and_then(|published| published.phase());
        if let Some(phase) = current.phase().filter(|phase| old_phase != Some(*phase)) {
            let server = Arc::clone(server);
            events.emit(|| ManagerEvent::PhaseChanged { server, phase });
        }
        Arc::clone(self.published.insert(Arc::clone(current)))
    }
}

fn policy(config: &McpServerConfig) -> Policy {
    Policy { enabled: config.enabled, start: config.start }
}
