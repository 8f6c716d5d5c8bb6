//! How a manager is set up before it runs.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_client::{ClientHandler, Limits};
use toolrack_config::{Lookup, McpServerConfig, Names, Source};
use toolrack_http::HttpOptions;
use toolrack_mcp::Implementation;
use toolrack_stdio::StdioOptions;

use crate::events::Bulletin;
use crate::manager::{CredentialsOf, Equipment, McpManager, Patience, Shared, SharedLookup};
use crate::package_installer::Packages;
use crate::server_tools::Toolset;
use crate::snapshot::{Index, Snapshot};
use crate::supervisor::Actor;
use crate::tool_cache::{Catalog, Memory};
use crate::tool_cache_writer as scribe;

/// Commands that wait for the actor. When it is full, whoever commands waits.
const COMMANDS: usize = 256;
/// Reports that wait for the actor. When it is full, launches wait, and calls do not.
const REPORTS: usize = 1024;
/// Notes that wait for the disk. When it is full, the next one is lost.
const NOTES: usize = 256;
/// So many servers start at once for each processor, so that the machine stays usable.
const STARTS_PER_PROCESSOR: usize = 2;
/// And so many at least.
const LEAST_STARTS: usize = 4;

/// Everything that can be set about a manager. Made by [`McpManager::builder`].
#[must_use = "nothing happens until it is built"]
pub struct RackBuilder {
    names: Names,
    catalog: Option<PathBuf>,
    lookup: SharedLookup,
    stdio: StdioOptions,
    http: HttpOptions,
    credentials: Option<Arc<CredentialsOf>>,
    client: Option<Implementation>,
    handler: Option<Arc<dyn ClientHandler>>,
    limits: Limits,
    packages: Option<Arc<dyn Packages>>,
    patience: Patience,
}

impl Default for RackBuilder {
    fn default() -> Self {
        let nothing = |_: Source, _: &str| Ok(None);
        Self {
            names: Names::default(),
            catalog: None,
            lookup: Arc::new(nothing),
            stdio: StdioOptions::default(),
            http: HttpOptions::default(),
            credentials: None,
            client: None,
            handler: None,
            limits: Limits::default(),
            packages: None,
            patience: Patience { ready: Duration::from_secs(5), retry: Duration::from_secs(5) },
        }
    }
}

impl RackBuilder {
    /// How public names of tools are made.
    pub fn names(mut self, names: Names) -> Self {
        self.names = names;
        self
    }

    /// Where tools are remembered between runs, so that they are listed before their servers run. Nothing is
    /// remembered unless this is set.
    pub fn catalog(mut self, dir: impl Into<PathBuf>) -> Self {
        self.catalog = Some(dir.into());
        self
    }

    /// Who knows the values that configs refer to, such as `${TOKEN}`. Nobody does unless this is set. It may
    /// take its time.
    pub fn lookup(mut self, lookup: Arc<dyn Lookup + Send + Sync>) -> Self {
        self.lookup = lookup;
        self
    }

    /// How child processes are run. Limits and environment are those of each config.
    pub fn stdio(mut self, options: StdioOptions) -> Self {
        self.stdio = options;
        self
    }

    /// How servers over HTTP are reached. Limits are those of each config.
    pub fn http(mut self, options: HttpOptions) -> Self {
        self.http = options;
        self
    }

    /// Who speaks for the user at each server over HTTP. Asked with each connection.
    pub fn credentials(mut self, credentials: Arc<CredentialsOf>) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// Who we say we are. Toolrack itself, unless set.
    pub fn client(mut self, client: Implementation) -> Self {
        self.client = Some(client);
        self
    }

    /// Who answers what servers ask. Without one, nothing is offered to them.
    pub fn handler(mut self, handler: Arc<dyn ClientHandler>) -> Self {
        self.handler = Some(handler);
        self
    }

    /// Who installs packages. Without anybody, a server that is a package cannot be connected.
    pub fn packages(mut self, packages: Arc<dyn Packages>) -> Self {
        self.packages = Some(packages);
        self
    }

    /// How much is taken from each server before it is cut off.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How long [`McpManager::connect_all`] waits for slow servers. Five seconds, unless set.
    pub fn ready_wait(mut self, wait: Duration) -> Self {
        self.patience.ready = wait;
        self
    }

    /// How long a call waits for a server that has failed and is tried again. Five seconds, unless set.
    pub fn retry_wait(mut self, wait: Duration) -> Self {
        self.patience.retry = wait;
        self
    }

    /// A manager of these servers, none of which is started yet. If a name is there twice, the last one counts.
    /// Reads what is remembered of them.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn build(self, configs: Vec<McpServerConfig>) -> McpManager {
        let mask = self.stdio.mask.clone();
        let catalog = self.catalog.map(|dir| Catalog::new(dir, mask));
        let (commands, orders) = mpsc::channel(COMMANDS);
        let (reporter, reports) = mpsc::channel(REPORTS);
        let equipment = Equipment {
            lookup: self.lookup,
            stdio: self.stdio,
            http: self.http,
            credentials: self.credentials,
            client: self.client,
            handler: self.handler,
            limits: self.limits,
            packages: self.packages,
        };
        let shared = Arc::new(Shared {
            snapshot: ArcSwap::from_pointee(Snapshot::default()),
            version: watch::Sender::new(0),
            bulletin: Arc::new(Bulletin::default()),
            commands,
            n_calls: AtomicU64::new(0),
            names: self.names,
            patience: self.patience,
            equipment: Arc::new(equipment),
            catalog,
            no_tools: Arc::new(Toolset::default()),
            tracker: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        let scribe = shared.catalog.clone().map(|catalog| {
            let (scribe, notes) = mpsc::channel(NOTES);
            shared.tracker.spawn(scribe::write(catalog, notes));
            scribe
        });
        let mut actor = Actor {
            shared: Arc::clone(&shared),
            reports: reporter,
            scribe,
            turns: Arc::new(Semaphore::new(n_turns())),
            stop: shared.stop.clone(),
            entries: HashMap::new(),
            order: Vec::new(),
            places: Arc::default(),
            index: Arc::new(Index::default()),
            indexed: None,
        };
        for config in configs {
            let recall = |catalog: &Catalog| catalog.load(&config);
            let memory = shared.catalog.as_ref().map_or_else(Memory::default, recall);
            actor.put(Arc::new(config), memory);
        }
        actor.publish();
        shared.tracker.spawn(actor.run(orders, reports));
        McpManager { shared }
    }
}

fn n_turns() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (processors * STARTS_PER_PROCESSOR).max(LEAST_STARTS)
}

impl fmt::Debug for RackBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RackBuilder")
            .field("names", &self.names)
            .field("catalog", &self.catalog)
            .field("stdio", &self.stdio)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}
