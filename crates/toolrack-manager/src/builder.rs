//! [`ManagerBuilder`]: settings of a manager, and the start of its supervisor.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Once};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_client::{ClientHandler, Limits};
use toolrack_config::{Lookup, McpServerConfig, ToolNaming};
use toolrack_http::HttpOptions;
use toolrack_mcp::Implementation;
use toolrack_stdio::StdioOptions;

use crate::connection_task::MIN_STARTS;
use crate::connector::PackageInstaller;
use crate::environment::Environment;
use crate::events::EventSender;
use crate::manager::{CredentialsProvider, McpManager, Shared};
use crate::snapshot::Snapshot;
use crate::supervisor::Supervisor;
use crate::tool_cache::{self, CachedTools, ToolCache};

/// Capacity of the command queue. When it is full, callers wait.
const COMMAND_CAPACITY: usize = 256;
/// Capacity of the report queue. When it is full, connection tasks wait; calls do not.
const REPORT_CAPACITY: usize = 1024;
/// Capacity of the queue of cache writes. When it is full, the next write is dropped.
const CACHE_WRITE_CAPACITY: usize = 256;

/// Settings of a manager. Created by [`McpManager::builder`].
#[must_use = "nothing happens until it is built"]
pub struct ManagerBuilder {
    pub(crate) names: ToolNaming,
    pub(crate) tool_cache: Option<PathBuf>,
    /// How long [`McpManager::connect_all`] waits for slow servers.
    pub(crate) ready_wait: Duration,
    /// How long a call waits for a server that failed and is retried.
    pub(crate) retry_wait: Duration,
    pub(crate) lookup: Arc<dyn Lookup + Send + Sync>,
    pub(crate) stdio: StdioOptions,
    pub(crate) http: HttpOptions,
    pub(crate) credentials: Option<Arc<CredentialsProvider>>,
    pub(crate) client_info: Option<Implementation>,
    pub(crate) handler: Option<Arc<dyn ClientHandler>>,
    pub(crate) limits: Limits,
    pub(crate) package_installer: Option<Arc<dyn PackageInstaller>>,
}

impl Default for ManagerBuilder {
    fn default() -> Self {
        Self {
            names: ToolNaming::default(),
            tool_cache: None,
            ready_wait: Duration::from_secs(5),
            retry_wait: Duration::from_secs(5),
            lookup: Arc::new(Environment::from_process()),
            stdio: StdioOptions::default(),
            http: HttpOptions::default(),
            credentials: None,
            client_info: None,
            handler: None,
            limits: Limits::default(),
            package_installer: None,
        }
    }
}

impl ManagerBuilder {
    /// Style of public tool names.
    pub fn names(mut self, names: ToolNaming) -> Self {
        self.names = names;
        self
    }

    /// Directory of the tool cache, which lists tools before their servers run. No cache by default.
    pub fn tool_cache(mut self, dir: impl Into<PathBuf>) -> Self {
        self.tool_cache = Some(dir.into());
        self
    }

    /// Resolver of variables in configs, such as `${TOKEN}`. It may block. The default is the process's
    /// [`Environment`]. It is asked at each connection, so a changed value takes effect at the next one.
    pub fn lookup(mut self, lookup: Arc<dyn Lookup + Send + Sync>) -> Self {
        self.lookup = lookup;
        self
    }

    /// Options of stdio servers. Limits and environment come from each config.
    pub fn stdio(mut self, options: StdioOptions) -> Self {
        self.stdio = options;
        self
    }

    /// Options of HTTP servers. Limits come from each config.
    pub fn http(mut self, options: HttpOptions) -> Self {
        self.http = options;
        self
    }

    /// Provider of credentials for HTTP servers. Called for each connection.
    pub fn credentials(mut self, provider: Arc<CredentialsProvider>) -> Self {
        self.credentials = Some(provider);
        self
    }

    /// Name and version that servers see. Those of Toolrack by default.
    pub fn client_info(mut self, client_info: Implementation) -> Self {
        self.client_info = Some(client_info);
        self
    }

    /// Handler of requests from servers. Without one, no client capability is offered to them.
    pub fn handler(mut self, handler: Arc<dyn ClientHandler>) -> Self {
        self.handler = Some(handler);
        self
    }

    /// Installer of packages. Without one, a server that is a package cannot be connected.
    pub fn package_installer(mut self, installer: Arc<dyn PackageInstaller>) -> Self {
        self.package_installer = Some(installer);
        self
    }

    /// Limits on the data that is accepted from each server.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How long [`McpManager::connect_all`] waits for slow servers. Five seconds by default.
    pub fn ready_wait(mut self, wait: Duration) -> Self {
        self.ready_wait = wait;
        self
    }

    /// How long a call waits for a server that failed and is retried. Five seconds by default.
    pub fn retry_wait(mut self, wait: Duration) -> Self {
        self.retry_wait = wait;
        self
    }

    /// Creates a manager of these servers. None of them is started yet. If a name occurs twice, the last config counts.
    /// Reads the tool cache.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn build(self, configs: Vec<McpServerConfig>) -> McpManager {
        let new_cache = |dir| ToolCache { dir, redactor: self.stdio.redactor.clone() };
        let tool_cache = self.tool_cache.clone().map(new_cache);
        let (command_sender, commands) = mpsc::channel(COMMAND_CAPACITY);
        let (report_sender, reports) = mpsc::channel(REPORT_CAPACITY);
        let shared = Arc::new(Shared {
            snapshot: ArcSwap::from_pointee(Snapshot::default()),
            version: watch::Sender::new(0),
            events: EventSender::default(),
            commands: command_sender,
            next_call_id: AtomicU64::new(0),
            settings: self,
            start_permits: Semaphore::new(MIN_STARTS),
            more_start_permits: Once::new(),
            tool_cache,
            tracker: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        let cache_writes = shared.tool_cache.clone().map(|cache| {
            let (sender, writes) = mpsc::channel(CACHE_WRITE_CAPACITY);
            shared.tracker.spawn(tool_cache::run_writer(cache, writes));
            sender
        });
        let mut supervisor = Supervisor {
            shared: Arc::clone(&shared),
            reports: report_sender,
            cache_writes,
            servers: HashMap::new(),
            order: Vec::new(),
            denied_tools: HashMap::new(),
        };
        // Reads the cache on this thread: the caller wants the cached tools when `build` returns.
        for config in configs {
            let load = |cache: &ToolCache| cache.load(&config);
            let cached = shared.tool_cache.as_ref().map_or_else(CachedTools::default, load);
            supervisor.upsert(Arc::new(config), cached);
        }
        // Before the task runs, so that the caller finds its servers at once.
        supervisor.publish();
        shared.tracker.spawn(supervisor.run(commands, reports));
        McpManager { _stop_on_drop: Arc::new(shared.stop.clone().drop_guard()), shared }
    }
}

impl fmt::Debug for ManagerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagerBuilder").finish_non_exhaustive()
    }
}
