//! The one task that owns all servers. It starts and ends launches as each server's [`Life`](crate::lifecycle::Life)
//! decides, and publishes what it knows; it never waits for a server.
//!
//! **Invariant:** whatever was decided is published before anybody is told that it was done. When this task is gone
//! the manager is closed, whatever ended it.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use toolrack_config::McpServerConfig;

use crate::connection_state::ConnectPhase;
use crate::connection_task::{Launch, News, Report};
use crate::error::RackError;
use crate::events::RackEvent;
use crate::index_key::Indexed;
use crate::lifecycle::event::{Effect, Epoch, Event, Phase};
use crate::manager::Shared;
use crate::server_record::Entry;
use crate::server_snapshot::McpConnection;
use crate::snapshot::{Index, Snapshot, nearest};
use crate::tool_cache::Memory;
use crate::tool_cache_writer::Note;

/// How many reports of launches are taken at once before everything is published.
const BATCH: usize = 64;

/// Who waits for an answer.
type Asker = oneshot::Sender<Result<(), RackError>>;

/// What the actor is asked to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// Do all of this; the answer comes when it is published.
    Do(Vec<Order>, Asker),
    /// A call waits for this server.
    Demand(Arc<str>),
}

/// One thing to do.
#[derive(Debug)]
pub(crate) enum Order {
    /// Have a server with this config.
    Put(Arc<McpServerConfig>, Memory),
    /// Begin every server that is to run.
    BeginAll,
    /// Begin a server.
    Begin(String),
    /// Start a server now, if it does not run.
    Start(String),
    /// End a server and start it again.
    Restart(String),
    /// End a server, and tell when it is gone.
    Stop(String, oneshot::Sender<()>),
    /// End a server and forget it.
    Remove(String, oneshot::Sender<()>),
    /// Take over what the connection of this launch says of its tools now.
    Learn(String, Epoch),
    /// Deny these tools of a server, and no others than the config does.
    Deny(String, Vec<String>),
}

/// All servers and what their launches need.
pub(crate) struct Actor {
    pub(crate) shared: Arc<Shared>,
    pub(crate) reports: mpsc::Sender<Report>,
    /// `None` if nothing is remembered. A full channel loses a note, which only makes a later start slower.
    pub(crate) scribe: Option<mpsc::Sender<Note>>,
    pub(crate) turns: Arc<Semaphore>,
    pub(crate) stop: CancellationToken,
    pub(crate) entries: HashMap<Arc<str>, Entry>,
    /// The order in which servers were named, which is the order of their tools.
    pub(crate) order: Vec<Arc<str>>,
    pub(crate) places: Arc<foldhash::HashMap<Arc<str>, usize>>,
    pub(crate) index: Arc<Index>,
    /// What the index was built from. `None` if it has to be built anew.
    pub(crate) indexed: Option<Vec<Indexed>>,
}

impl Actor {
    pub(crate) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        mut reports: mpsc::Receiver<Report>,
    ) {
        let stop = self.stop.clone();
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let mut answer = None;
            let now = Instant::now();
            let wake = self.entries.values().filter_map(|entry| entry.wake_at(now)).min();
            tokio::select! {
                () = stop.cancelled() => break,
                _taken = reports.recv_many(&mut batch, BATCH) => {
                    batch.drain(..).for_each(|report| self.hear(report));
                }
                command = commands.recv() => match command {
                    Some(command) => answer = self.obey(command),
                    None => break,
                },
                () = sleep_until(wake.unwrap_or(now)), if wake.is_some() => self.look(),
            }
            self.publish();
            if let Some((asker, outcome)) = answer {
                asker.send(outcome).unwrap_or_else(|_unheard| tracing::trace!("nobody waits"));
            }
        }
    }

    fn obey(&mut self, command: Command) -> Option<(Asker, Result<(), RackError>)> {
        match command {
            Command::Do(orders, asker) => {
                let outcome = orders.into_iter().try_for_each(|order| self.carry_out(order));
                Some((asker, outcome))
            }
            Command::Demand(server) => {
                self.step(&server, Event::Demand);
                None
            }
        }
    }

    fn carry_out(&mut self, order: Order) -> Result<(), RackError> {
        match order {
            Order::Put(config, memory) => self.put(config, memory),
            Order::BeginAll => {
                for name in self.order.clone() {
                    self.begin(&name);
                }
            }
            Order::Begin(server) => {
                let name = self.known(&server)?;
                self.begin(&name);
            }
            Order::Start(server) => {
                let name = self.known(&server)?;
                self.step(&name, Event::Start);
            }
            Order::Restart(server) => {
                let name = self.known(&server)?;
                self.step(&name, Event::Restart);
            }
            Order::Stop(server, farewell) => {
                let name = self.known(&server)?;
                self.stop_server(&name, farewell);
            }
            Order::Remove(server, farewell) => {
                let name = self.known(&server)?;
                self.stop_server(&name, farewell);
                if let Some(entry) = self.entries.get_mut(&name) {
                    entry.is_removed = true;
                }
                self.reorder();
            }
            Order::Learn(server, epoch) => self.learn_of(&server.into(), epoch),
            Order::Deny(server, patterns) => {
                let name = self.known(&server)?;
                if let Some(entry) = self.entries.get_mut(&name) {
                    entry.filter.set_denied_tools(patterns);
                    entry.refilter();
                }
                self.warn_of_unused(&name);
            }
        }
        Ok(())
    }

    fn known(&self, server: &str) -> Result<Arc<str>, RackError> {
        let entry = self.entries.get(server).filter(|entry| !entry.is_removed);
        entry.map(|entry| Arc::clone(&entry.name)).ok_or_else(|| RackError::NoSuchServer {
            server: server.to_owned(),
            nearest: nearest(server, self.order.iter().map(|it| &**it)),
        })
    }

    pub(crate) fn put(&mut self, config: Arc<McpServerConfig>, memory: Memory) {
        let name: Arc<str> = config.name.as_str().into();
        match self.entries.get_mut(&name) {
            Some(entry) => {
                let event = entry.configure(config, memory);
                self.step(&name, event);
            }
            None => {
                self.entries.insert(Arc::clone(&name), Entry::new(config, memory));
            }
        }
        if !self.order.contains(&name) {
            self.order.push(Arc::clone(&name));
            self.reorder();
        }
        self.warn_of_unused(&name);
    }

    fn begin(&mut self, name: &Arc<str>) {
        if let Some(entry) = self.entries.get(name) {
            let tools = entry.tools();
            self.step(name, Event::Begin(tools));
        }
    }

    fn stop_server(&mut self, name: &Arc<str>, farewell: oneshot::Sender<()>) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.farewells.push(farewell);
        }
        self.step(name, Event::Stop);
    }

    /// Brings order and places up to date after servers have come or gone.
    fn reorder(&mut self) {
        let entries = &self.entries;
        self.order.retain(|name| entries.get(name).is_some_and(|entry| !entry.is_removed));
        let places = self.order.iter().enumerate().map(|(at, name)| (Arc::clone(name), at));
        self.places = Arc::new(places.collect());
        self.indexed = None;
    }

    fn hear(&mut self, report: Report) {
        let Report { server, epoch, news } = report;
        let Some(entry) = self.entries.get_mut(&server) else { return };
        match news {
            News::Phase(phase) => {
                if entry.life.launch() == Some(epoch) {
                    entry.phase = phase;
                    entry.shown = None;
                }
            }
            News::Opened(link) => {
                self.step(&server, Event::Opened(epoch));
                self.adopt(&server, link);
            }
            News::ToolsChanged => self.learn_of(&server, epoch),
            News::OpenFailed(failure) => {
                tracing::warn!(server = &*server, %failure, "a server could not be connected");
                self.step(&server, Event::OpenFailed(epoch, failure));
            }
            News::Lost(failure) => {
                tracing::warn!(server = &*server, %failure, "a server was lost");
                self.step(&server, Event::Lost(epoch, failure));
            }
            News::Gone => self.step(&server, Event::Gone(epoch)),
        }
    }

    /// Takes a connection over, if its launch is still the one that is wanted.
    fn adopt(&mut self, server: &Arc<str>, link: Arc<crate::server_snapshot::Link>) {
        let Some(entry) = self.entries.get_mut(server) else { return };
        let is_connected = matches!(entry.life.phase(), Phase::Connected { .. });
        if is_connected && entry.life.launch() == Some(link.epoch) {
            entry.link = Some(link);
            self.learn(server);
        }
    }

    /// Takes over the tools of a launch, if it is still the one that is connected.
    fn learn_of(&mut self, server: &Arc<str>, epoch: Epoch) {
        let link = self.entries.get(server).and_then(|entry| entry.link.as_ref());
        if link.is_some_and(|link| link.epoch == epoch) {
            self.learn(server);
        }
    }

    fn learn(&mut self, server: &Arc<str>) {
        let Some(entry) = self.entries.get_mut(server) else { return };
        entry.learn();
        if let Some(scribe) = &self.scribe {
            let note = Note { config: Arc::clone(&entry.config), memory: entry.memory.clone() };
            scribe.try_send(note).unwrap_or_else(|error| tracing::debug!(%error, "not noted"));
        }
        self.warn_of_unused(server);
    }

    fn warn_of_unused(&self, server: &Arc<str>) {
        if let Some(entry) = self.entries.get(server) {
            entry.warn_of_unused(&self.shared.bulletin);
        }
    }

    /// Does what time has brought: retries, and ends of connections that nobody uses.
    fn look(&mut self) {
        let now = Instant::now();
        for name in self.entries.keys().cloned().collect::<Vec<_>>() {
            let Some(entry) = self.entries.get_mut(&name) else { continue };
            let link =
                entry.link.as_ref().filter(|_| entry.idle_at(now).is_some_and(|at| at <= now));
            if let Some(epoch) = link.filter(|link| link.usage.seal()).map(|link| link.epoch) {
                tracing::debug!(server = &*name, "nobody has used the server for long");
                self.step(&name, Event::Idle(epoch));
            } else if entry.life.is_due(now) {
                self.step(&name, Event::Tick);
            }
        }
    }

    fn step(&mut self, server: &Arc<str>, event: Event) {
        let Some(entry) = self.entries.get_mut(server) else { return };
        let effect = entry.life.step(event, Instant::now(), fastrand::f64());
        entry.shown = None;
        if !matches!(entry.life.phase(), Phase::Connected { .. }) {
            entry.link = None;
        }
        match effect {
            Some(Effect::Launch(epoch)) => self.launch(server, epoch),
            Some(Effect::End(_epoch)) => entry.stop.cancel(),
            None => {}
        }
    }

    fn launch(&mut self, server: &Arc<str>, epoch: Epoch) {
        let Some(entry) = self.entries.get_mut(server) else { return };
        entry.stop = self.stop.child_token();
        entry.phase = ConnectPhase::default();
        let launch = Launch {
            server: Arc::clone(server),
            epoch,
            config: Arc::clone(&entry.config),
            remembered: entry.memory.verdict,
            equipment: Arc::clone(&self.shared.equipment),
            bulletin: Arc::clone(&self.shared.bulletin),
            turns: Arc::clone(&self.turns),
            stop: entry.stop.clone(),
            reports: self.reports.clone(),
        };
        self.shared.tracker.spawn(launch.run());
    }

    /// Publishes what has changed, tells it, and forgets what is gone.
    pub(crate) fn publish(&mut self) {
        let now = Instant::now();
        self.say_farewell();
        let mut pictures: Vec<Arc<McpConnection>> = Vec::with_capacity(self.order.len());
        for name in &self.order {
            let Some(entry) = self.entries.get_mut(name) else { continue };
            let picture = entry.picture(now);
            if entry.told != picture.state {
                entry.told = picture.state.clone();
                self.shared.bulletin.tell(|| RackEvent::State {
                    server: Arc::clone(name),
                    state: picture.state.clone(),
                });
            }
            if let Some(phase) = picture.phase.filter(|it| entry.told_phase != Some(*it)) {
                let server = Arc::clone(name);
                self.shared.bulletin.tell(|| RackEvent::Phase { server, phase });
            }
            entry.told_phase = picture.phase;
            pictures.push(picture);
        }
        self.reindex(&pictures);
        let snapshot = Snapshot::new(pictures, Arc::clone(&self.places), Arc::clone(&self.index));
        self.shared.publish(snapshot);
    }

    fn say_farewell(&mut self) {
        for entry in self.entries.values_mut().filter(|entry| entry.life.launch().is_none()) {
            for farewell in entry.farewells.drain(..) {
                farewell.send(()).unwrap_or_else(|()| tracing::trace!("nobody waits"));
            }
        }
        self.entries.retain(|_, entry| !entry.is_removed || entry.life.launch().is_some());
    }

    /// Builds the index anew if any list of tools is another than before.
    fn reindex(&mut self, pictures: &[Arc<McpConnection>]) {
        let nothing = Arc::clone(&self.shared.no_tools);
        let indexed: Vec<Indexed> = pictures.iter().map(|it| Indexed::of(it, &nothing)).collect();
        if self.indexed.as_ref() == Some(&indexed) {
            return;
        }
        let before = self.shared.snapshot.load();
        for (picture, Indexed { offered, .. }) in pictures.iter().zip(&indexed) {
            let old = before.server(picture.name()).ok().filter(|it| it.is_listed());
            let difference = offered.difference(old.map_or(&nothing, |it| &it.toolset));
            if !difference.is_empty() {
                self.shared.bulletin.tell(|| RackEvent::Tools {
                    server: Arc::clone(&picture.name),
                    added: difference.added,
                    removed: difference.removed,
                    changed: difference.changed,
                });
            }
        }
        self.index = Arc::new(Index::build(&self.shared.names, pictures, &self.index));
        self.indexed = Some(indexed);
    }
}

impl Drop for Actor {
    /// Also when its runtime is dropped: whoever waits is told, and no server that is gone is shown as connected.
    fn drop(&mut self) {
        // After a fault of our own nothing more is tried.
        if !std::thread::panicking() {
            self.order.clone().iter().for_each(|name| self.step(name, Event::Stop));
            self.publish();
        }
        self.shared.end();
    }
}
