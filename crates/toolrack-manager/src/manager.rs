//! Many servers behind one list of tools: the handle that programs hold.
//!
//! **Invariant:** reading and calling never wait for the actor, unless a server has to be started first.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_client::{ClientHandler, Limits, Timeouts, launcher_of};
use toolrack_config::{Lookup, McpServerConfig, McpTransport, Names, Plan, diff};
use toolrack_http::HttpOptions;
use toolrack_mcp::Implementation;
use toolrack_stdio::StdioOptions;
use toolrack_transport::{Credentials, Mask};

use crate::builder::RackBuilder;
use crate::connection_state::ConnectionState;
use crate::error::RackError;
use crate::events::{Bulletin, RackEvent, RackEvents};
use crate::package_installer::Packages;
use crate::server_snapshot::McpConnection;
use crate::server_tools::{ToolWithServer, Toolset};
use crate::snapshot::Snapshot;
use crate::supervisor::{Command, Order};
use crate::tool_cache::{Catalog, Memory};

/// How long ending a server may take: its line ends within six seconds whatever it does.
const END_LIMIT: Duration = Duration::from_secs(10);

/// Whoever has the values that configs refer to.
pub(crate) type SharedLookup = Arc<dyn Lookup + Send + Sync>;

/// Who speaks for the user at the server of a config, if anybody does.
pub type CredentialsOf = dyn Fn(&McpServerConfig) -> Option<Arc<dyn Credentials>> + Send + Sync;

/// Many servers, one list of tools.
///
/// Dropping it ends all servers without waiting; [`close`](Self::close) ends them and waits. The runtime in which it is
/// built has to run for as long as it is used: when that is dropped, so are its servers, and calls fail.
#[derive(Debug)]
pub struct McpManager {
    pub(crate) shared: Arc<Shared>,
}

/// What the handle, the actor and the launches share.
pub(crate) struct Shared {
    pub(crate) snapshot: ArcSwap<Snapshot>,
    /// Counts snapshots, for whoever waits for the next one.
    pub(crate) version: watch::Sender<u64>,
    pub(crate) bulletin: Arc<Bulletin>,
    /// Bounded: whoever commands faster than the actor obeys waits.
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) n_calls: AtomicU64,
    pub(crate) names: Names,
    pub(crate) patience: Patience,
    pub(crate) equipment: Arc<Equipment>,
    pub(crate) catalog: Option<Catalog>,
    pub(crate) no_tools: Arc<Toolset>,
    pub(crate) tracker: TaskTracker,
    pub(crate) stop: CancellationToken,
}

/// What every launch needs.
pub(crate) struct Equipment {
    pub(crate) lookup: SharedLookup,
    pub(crate) stdio: StdioOptions,
    pub(crate) http: HttpOptions,
    pub(crate) credentials: Option<Arc<CredentialsOf>>,
    pub(crate) client: Option<Implementation>,
    pub(crate) handler: Option<Arc<dyn ClientHandler>>,
    pub(crate) limits: Limits,
    pub(crate) packages: Option<Arc<dyn Packages>>,
}

/// How long callers wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// [`McpManager::connect_all`], for servers that are slow to start.
    pub(crate) ready: Duration,
    /// A call, for a server that has failed and is tried again.
    pub(crate) retry: Duration,
}

impl McpManager {
    /// A manager of these servers, none of which is started yet.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(configs: Vec<McpServerConfig>) -> Self {
        Self::builder().build(configs)
    }

    /// Begins a manager with other than the default settings.
    pub fn builder() -> RackBuilder {
        RackBuilder::default()
    }

    /// Connects every server that is enabled, all at once, and gives them as they then stand.
    ///
    /// Returns when every server is connected or has failed, and at the latest after the time set with
    /// [`RackBuilder::ready_wait`]; what is slower goes on by itself, and [`ready`](Self::ready) waits for it. A server
    /// that failed is no error: its state says why. Lazy servers whose tools are remembered are not started.
    pub async fn connect_all(&self) -> Result<Vec<Arc<McpConnection>>, RackError> {
        self.shared.order(vec![Order::BeginAll]).await?;
        self.ready(self.shared.patience.ready).await;
        Ok(self.servers())
    }

    /// Ends every server, and waits until nothing is left of them.
    pub async fn disconnect_all(&self) -> Result<(), RackError> {
        let mut farewells = Vec::new();
        let mut orders = Vec::new();
        for server in self.servers() {
            let (teller, told) = oneshot::channel();
            farewells.push(told);
            orders.push(Order::Stop(server.name().to_owned(), teller));
        }
        self.shared.order(orders).await?;
        wait_for(farewells).await;
        Ok(())
    }

    /// Adds a server or changes its config, connects it, and waits for the outcome, which may be a failure: `Ok` is
    /// the server as it then stands, and its [state](McpConnection::state) says whether it takes calls.
    ///
    /// A server that is connected with the same config is left alone. The config's own name does not count.
    pub async fn connect(
        &self,
        name: &str,
        config: McpServerConfig,
    ) -> Result<Arc<McpConnection>, RackError> {
        let config = Arc::new(McpServerConfig { name: name.to_owned(), ..config });
        let memory = self.shared.recall(Arc::clone(&config)).await;
        let orders = vec![Order::Put(config, memory), Order::Start(name.to_owned())];
        self.shared.order(orders).await?;
        self.settled(name).await
    }

    /// Adds servers or changes their configs, and starts none of them. One that runs and is reached in another way
    /// now is reconnected.
    pub async fn adopt(&self, configs: &[McpServerConfig]) -> Result<(), RackError> {
        let mut orders = Vec::new();
        for config in configs {
            orders.push(self.shared.put(config).await);
        }
        self.shared.order(orders).await
    }

    /// Ends a server and waits until nothing is left of it. It stays known, and is not started by calls.
    pub async fn disconnect(&self, name: &str) -> Result<(), RackError> {
        let (teller, told) = oneshot::channel();
        self.shared.order(vec![Order::Stop(name.to_owned(), teller)]).await?;
        wait_for(vec![told]).await;
        Ok(())
    }

    /// Ends a server and forgets it.
    pub async fn remove(&self, name: &str) -> Result<(), RackError> {
        let (teller, told) = oneshot::channel();
        self.shared.order(vec![Order::Remove(name.to_owned(), teller)]).await?;
        wait_for(vec![told]).await;
        Ok(())
    }

    /// Connects a server that is known, at once, and waits for the outcome as [`connect`](Self::connect) does. One
    /// that is connected is left alone.
    pub async fn start(&self, name: &str) -> Result<Arc<McpConnection>, RackError> {
        self.shared.order(vec![Order::Start(name.to_owned())]).await?;
        self.settled(name).await
    }

    /// Ends a server if it runs, connects it again, and waits for the outcome as [`connect`](Self::connect) does.
    /// What went wrong before is forgotten, so it is tried at once.
    pub async fn reconnect(&self, name: &str) -> Result<Arc<McpConnection>, RackError> {
        self.shared.order(vec![Order::Restart(name.to_owned())]).await?;
        self.settled(name).await
    }

    /// Makes the servers of `old` into those of `new`: connects what is new, disconnects what is gone,
    /// reconnects what is reached in another way, and leaves the rest alone. Servers that are in neither are not
    /// touched. Says what was done, and tells it with [`RackEvent::ConfigApplied`](crate::RackEvent::ConfigApplied);
    /// does not wait for connections.
    pub async fn reconcile(
        &self,
        old: &[McpServerConfig],
        new: &[McpServerConfig],
    ) -> Result<Plan, RackError> {
        self.shared.reconcile(old, new).await
    }

    /// Keeps these tools of a server from everybody, besides those that its config denies. Names or patterns;
    /// those of the last call are replaced.
    pub async fn set_denied_tools(&self, server: &str, tools: &[&str]) -> Result<(), RackError> {
        let tools = tools.iter().map(|it| (*it).to_owned()).collect();
        self.shared.order(vec![Order::Deny(server.to_owned(), tools)]).await
    }

    /// All servers as they stand, in the order in which they were named.
    pub fn servers(&self) -> Vec<Arc<McpConnection>> {
        self.shared.snapshot.load().servers().to_vec()
    }

    /// One server as it stands.
    pub fn server(&self, name: &str) -> Result<Arc<McpConnection>, RackError> {
        self.shared.snapshot.load().server(name).cloned()
    }

    /// All tools that are offered, also those of servers that are not running at the moment. A server that has never
    /// been connected has none yet: see [`ready`](Self::ready).
    pub fn all_tools(&self) -> Arc<[ToolWithServer]> {
        Arc::clone(self.shared.snapshot.load().tools())
    }

    /// The tools of the servers that are connected right now.
    pub fn get_tools(&self) -> Vec<ToolWithServer> {
        let snapshot = self.shared.snapshot.load();
        let is_up = |it: &&ToolWithServer| {
            snapshot.server(it.server()).is_ok_and(|server| server.is_connected())
        };
        snapshot.tools().iter().filter(is_up).cloned().collect()
    }

    /// Finds a tool by its public name, as `server.tool` or `server/tool`, or by the name that its server gives;
    /// among several servers that have it, the first. What reads like a tool of one server is never found at another.
    pub fn find_tool(&self, name: &str) -> Option<ToolWithServer> {
        self.shared.snapshot.load().find(name)
    }

    /// What must not be seen of what servers write. It is taken out of all that comes from them.
    pub fn mask(&self) -> &Mask {
        &self.shared.equipment.stdio.mask
    }

    /// Everything that happens from now on.
    pub fn subscribe(&self) -> RackEvents {
        self.shared.bulletin.listen()
    }

    /// Ends all servers and the manager itself. When it returns, nothing of them is left.
    pub async fn close(&self) {
        // A runtime that stands still does nothing for us, and nobody has to wait for it.
        match timeout(END_LIMIT, self.disconnect_all()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the manager was closed before"),
            Err(_elapsed) => tracing::warn!("the runtime of the manager does not run"),
        }
        self.shared.stop.cancel();
        self.shared.tracker.close();
        if timeout(END_LIMIT, self.shared.tracker.wait()).await.is_err() {
            tracing::warn!("some tasks of the manager do not end");
        }
    }
}

/// How long a server may take until it takes calls: its package may have to be installed before it starts.
pub(crate) fn start_limit(config: &McpServerConfig) -> Duration {
    match config.transport {
        McpTransport::Package { .. } => {
            config.startup_timeout.saturating_add(config.install_timeout)
        }
        McpTransport::Stdio { ref command, .. } => {
            let timeouts = Timeouts { startup: config.startup_timeout, ..Timeouts::default() };
            timeouts.start(launcher_of(command))
        }
        _ => config.startup_timeout,
    }
}

pub(crate) fn is_settled(server: &McpConnection) -> bool {
    *server.state() != ConnectionState::Connecting
}

async fn wait_for(farewells: Vec<oneshot::Receiver<()>>) {
    let deadline = Instant::now() + END_LIMIT;
    for farewell in farewells {
        if timeout_at(deadline, farewell).await.is_err() {
            tracing::warn!("a server does not end; left to its guardian");
        }
    }
}

impl Shared {
    pub(crate) fn publish(&self, snapshot: Snapshot) {
        self.snapshot.store(Arc::new(snapshot));
        self.version.send_modify(|version| *version += 1);
    }

    /// Tells everybody that the actor is gone, and ends what it has started.
    pub(crate) fn end(&self) {
        self.stop.cancel();
        self.bulletin.close();
        self.version.send_modify(|version| *version += 1);
    }

    /// Why nothing can be done for a caller: a manager that is closed is the better reason.
    pub(crate) fn refusal(&self, refusal: RackError) -> RackError {
        if self.stop.is_cancelled() { RackError::Closed } else { refusal }
    }

    /// Has the actor do something, and waits until it is published.
    pub(crate) async fn order(&self, orders: Vec<Order>) -> Result<(), RackError> {
        let (asker, answer) = oneshot::channel();
        let command = Command::Do(orders, asker);
        // The actor never waits for anything but its own queues, so these two cannot take long.
        self.commands.send(command).await.map_err(|_gone| RackError::Closed)?;
        answer.await.map_err(|_gone| RackError::Closed)?
    }

    pub(crate) async fn reconcile(
        &self,
        old: &[McpServerConfig],
        new: &[McpServerConfig],
    ) -> Result<Plan, RackError> {
        let plan = diff(old, new);
        let mut orders = Vec::new();
        let mut farewells = Vec::new();
        for config in new {
            orders.push(self.put(config).await);
        }
        let is_known = |name: &String| self.snapshot.load().server(name).is_ok();
        let is_there = |name: &&String| new.iter().any(|it| it.name == **name);
        for name in plan.disconnect.iter().chain(&plan.keep) {
            if !is_there(&name) && is_known(name) {
                let (teller, told) = oneshot::channel();
                farewells.push(told);
                orders.push(Order::Remove(name.clone(), teller));
            }
        }
        let unknown = plan.keep.iter().filter(|name| is_there(name) && !is_known(name));
        orders.extend(plan.connect.iter().chain(unknown).cloned().map(Order::Begin));
        self.order(orders).await?;
        wait_for(farewells).await;
        self.bulletin.tell(|| RackEvent::ConfigApplied { plan: plan.clone() });
        Ok(plan)
    }

    async fn put(&self, config: &McpServerConfig) -> Order {
        let config = Arc::new(config.clone());
        Order::Put(Arc::clone(&config), self.recall(config).await)
    }

    /// What is remembered of a server, read where it holds up nobody.
    async fn recall(&self, config: Arc<McpServerConfig>) -> Memory {
        let Some(catalog) = self.catalog.clone() else { return Memory::default() };
        let loaded = tokio::task::spawn_blocking(move || catalog.load(&config)).await;
        loaded.unwrap_or_default()
    }
}

impl Drop for McpManager {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let snapshot = self.snapshot.load();
        f.debug_struct("Shared")
            .field("servers", &snapshot.servers().len())
            .field("tools", &snapshot.tools().len())
            .finish_non_exhaustive()
    }
}
