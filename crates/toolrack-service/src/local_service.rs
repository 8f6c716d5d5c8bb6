//! The service on this machine: one config file, one store of secrets, one manager.
//!
//! **Invariant:** what is configured changes only under one lock, on disk first; one task then makes the manager
//! follow, in order.

mod background_tasks;
mod crud;
mod lifecycle;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_auth::{Authorizer, Browser};
use toolrack_client::{CallOptions, ClientHandler, Limits};
use toolrack_config::{McpServerConfig, Names};
use toolrack_http::HttpOptions;
use toolrack_manager::{Called, FileWatch, McpManager, Packages, RackEvents};
use toolrack_mcp::{Implementation, Tool};
use toolrack_stdio::StdioOptions;
use toolrack_transport::{BoxFuture, Delivery, Mask, RawJson};
use uuid::Uuid;

use crate::atomic_file::{close_to_others, make_private};
use crate::authorizers::Logins;
use crate::config_snapshot::{Known, View};
use crate::config_store::{ConfigStore, Generation, Stored};
use crate::document::Place;
use crate::error;
use crate::error::{ErrorCode, ServiceError, ServiceFault};
use crate::packages::Installer;
use crate::paths::Home;
use crate::secret_store::SecretStore;
use crate::secret_store::{SharedLookup, Values};
use crate::server_logs::LogStore;
use crate::service::McpService;
use crate::service::{Enabled, McpConfig, McpStatus};
use crate::status::StatusDetail;

/// How long the manager may take to follow. The end of a server that was deleted is part of it.
const CATCH_UP: Duration = Duration::from_secs(15);

/// The service on this machine.
///
/// Dropping it ends all servers without waiting; [`close`](Self::close) ends them and waits.
pub struct LocalService {
    inner: Arc<Inner>,
    /// Gone once the service is closed, or if the file is not followed.
    watch: Mutex<Option<FileWatch>>,
}

/// What the handle, the follower and errands share.
struct Inner {
    home: Home,
    agent: Option<String>,
    autostart: Autostart,
    store: ConfigStore,
    secrets: SecretStore,
    logs: LogStore,
    mask: Mask,
    logins: Arc<Logins>,
    manager: Arc<McpManager>,
    view: ArcSwap<View>,
    /// Held while what is configured changes. The generation is that of the present view.
    writing: Mutex<Generation>,
    /// Rung when there is a new view, or the file may have changed.
    bell: Notify,
    /// The number of the view that the manager has.
    applied: watch::Sender<u64>,
    /// Restarts under way, and what ends them.
    errands: TaskTracker,
    recall: Mutex<CancellationToken>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl LocalService {
    /// The manager behind it, for everything that is not in the contract.
    pub fn rack(&self) -> &Arc<McpManager> {
        &self.inner.manager
    }

    /// Where its things live.
    pub fn home(&self) -> &Home {
        &self.inner.home
    }

    /// The secrets. [`set_secret`](Self::set_secret) also tells the servers that use one.
    pub fn secrets(&self) -> &SecretStore {
        &self.inner.secrets
    }

    /// What is remembered of the runs of servers.
    pub fn logs(&self) -> &LogStore {
        &self.inner.logs
    }

    /// The config file, for whoever edits it as text. [`reload`](Self::reload) afterwards makes the servers follow.
    pub fn config_store(&self) -> &ConfigStore {
        &self.inner.store
    }

    /// Whose servers these are, unless everybody's.
    pub fn agent(&self) -> Option<&str> {
        self.inner.agent.as_deref()
    }

    /// The agents of the config file, by their ids.
    pub fn agents(&self) -> Vec<String> {
        self.inner.view.load().agents.clone()
    }

    /// The id of a server that is configured under a name.
    pub fn id_of(&self, name: &str) -> Option<Uuid> {
        self.inner.view.load().named(name).map(|it| it.config.id)
    }

    /// Everything that happens from now on.
    pub fn subscribe(&self) -> RackEvents {
        self.inner.manager.subscribe()
    }

    /// Who logs in at a server over HTTP.
    ///
    /// # Errors
    ///
    /// When nobody knows the id, or there is no login for it.
    pub fn authorizer(&self, id: Uuid) -> Result<Arc<Authorizer>, ServiceError> {
        let view = self.inner.view.load();
        let known = view.get(id).ok_or_else(|| unknown(id))?;
        self.inner.logins.authorizer(&known.server)
    }

    /// Ends all servers and the service itself. When it returns, nothing of them is left.
    pub async fn close(&self) {
        // First, so that no change of the file starts a server that nobody would end.
        drop(self.watch.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.inner.stop.cancel();
        self.inner.errands.close();
        self.inner.tasks.close();
        let all = async {
            self.inner.errands.wait().await;
            self.inner.tasks.wait().await;
            self.inner.logins.settle().await;
        };
        if timeout(CATCH_UP, all).await.is_err() {
            tracing::warn!("some tasks of the service do not end");
        }
        self.inner.manager.close().await;
    }
}

impl Inner {
    /// What the manager calls a server.
    fn name_of(&self, id: Uuid) -> Result<String, ServiceError> {
        let view = self.view.load();
        view.get(id).map(|it| it.server.name.clone()).ok_or_else(|| unknown(id))
    }

    fn known(&self, id: Uuid) -> Result<Known, ServiceError> {
        self.view.load().get(id).cloned().ok_or_else(|| unknown(id))
    }

    /// Where a new server is written.
    fn place(&self) -> Place {
        match &self.agent {
            Some(agent) => Place::Agent(agent.clone()),
            None => Place::Defaults,
        }
    }

    /// Waits until the manager has what is configured now.
    async fn catch_up(&self) -> Result<(), ServiceError> {
        let number = self.view.load().number;
        if *self.applied.borrow() >= number {
            return Ok(());
        }
        let mut applied = self.applied.subscribe();
        let reached = tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            reached = timeout(CATCH_UP, applied.wait_for(|it| *it >= number)) => reached.is_ok(),
        };
        if reached {
            return Ok(());
        }
        let message = "the servers do not follow the config in time";
        let fault = ServiceFault::new(ErrorCode::ServiceUnavailable, message);
        Err(fault.hint("try again in a moment").into())
    }

    /// The same error without what must not be seen.
    fn masked(&self, fault: ServiceFault) -> ServiceError {
        let clean = |text: String| self.mask.clean(&text).into_owned();
        let fault = ServiceFault {
            message: clean(fault.message),
            hint: fault.hint.map(clean),
            reason: fault.reason.map(clean),
            ..fault
        };
        fault.into()
    }
}

fn unknown(id: Uuid) -> ServiceError {
    ServiceFault::new(ErrorCode::NotFound, format!("no server has the id `{id}`")).at("id").into()
}

impl McpService for LocalService {
    fn list(&self) -> Vec<McpConfig> {
        self.inner.view.load().servers.iter().map(|it| it.config.clone()).collect()
    }

    fn get(&self, id: Uuid) -> Option<McpConfig> {
        self.inner.view.load().get(id).map(|it| it.config.clone())
    }

    fn status(&self, id: Uuid) -> McpStatus {
        self.inner.status(id)
    }

    fn start(&self, id: Uuid) -> BoxFuture<'_, Result<(), ServiceError>> {
        Box::pin(self.inner.start(id))
    }

    fn stop(&self, id: Uuid) -> BoxFuture<'_, Result<(), ServiceError>> {
        Box::pin(self.inner.stop(id))
    }

    fn restart(&self, id: Uuid) -> BoxFuture<'_, Result<(), ServiceError>> {
        Box::pin(self.inner.restart(id))
    }

    fn set_enabled(&self, id: Uuid, enabled: Enabled) -> BoxFuture<'_, Result<(), ServiceError>> {
        Box::pin(Arc::clone(&self.inner).set_enabled(id, enabled))
    }

    fn available_tools(&self) -> Vec<Tool> {
        self.inner.available_tools()
    }

    fn find_tool_provider(&self, tool_name: &str) -> Option<Uuid> {
        self.inner.provider(tool_name)
    }

    fn call_tool<'a>(
        &'a self,
        mcp_id: Uuid,
        tool_name: &'a str,
        arguments: &'a Value,
    ) -> BoxFuture<'a, Result<String, ServiceError>> {
        Box::pin(self.inner.call_tool(mcp_id, tool_name, arguments))
    }

    fn create(&self, config: McpConfig) -> Result<Uuid, ServiceError> {
        self.inner.create(config)
    }

    fn update(&self, config: McpConfig) -> Result<(), ServiceError> {
        self.inner.update(config)
    }

    fn delete(&self, id: Uuid) -> Result<(), ServiceError> {
        self.inner.delete(id)
    }

    fn shutdown_all(&self) -> BoxFuture<'_, Result<(), ServiceError>> {
        Box::pin(self.inner.shutdown_all())
    }
}

impl LocalService {
    /// What is known of a server beyond its status. `None` if nobody knows the id.
    pub fn status_detail(&self, id: Uuid) -> Option<StatusDetail> {
        self.inner.status_detail(id)
    }
}

impl Drop for LocalService {
    fn drop(&mut self) {
        self.inner.stop.cancel();
    }
}

impl fmt::Debug for LocalService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalService")
            .field("home", &self.inner.home)
            .field("agent", &self.inner.agent)
            .field("view", &self.inner.view.load())
            .finish_non_exhaustive()
    }
}

/// What can be chosen when a service is opened. The default is for a program that does one thing and ends: it
/// starts nothing by itself, and does not follow the file.
#[derive(Clone)]
pub struct ServiceOptions {
    /// Whose servers these are. Without one, those that every agent has.
    pub agent: Option<String>,
    /// Who knows variables and files that configs refer to, such as `${HOME}`. Secrets come from the store.
    pub lookup: Option<SharedLookup>,
    /// Which servers are started by themselves.
    pub autostart: Autostart,
    /// Whether changes of the file are followed.
    pub follow: Follow,
    /// Who answers what servers ask.
    pub handler: Option<Arc<dyn ClientHandler>>,
    /// How much is taken from each server.
    pub limits: Limits,
    /// Who shows login pages to the user. Without one, a login that is needed is an error that says so.
    pub browser: Option<Arc<dyn Browser>>,
    /// How public names of tools are made. As the file says, unless set.
    pub names: Option<Names>,
    /// How child processes are run.
    pub stdio: StdioOptions,
    /// Who installs packages. Our own installer, unless set.
    pub packages: Option<Arc<dyn Packages>>,
    /// How servers over HTTP are reached.
    pub http: HttpOptions,
    /// Who we say we are. Toolrack itself, unless set.
    pub client: Option<Implementation>,
    /// How long opening waits for servers that are slow to start; they go on by themselves.
    pub ready_wait: Duration,
}

/// Which servers are started by themselves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Autostart {
    /// None: each one is started when somebody says so.
    #[default]
    Nothing,
    /// All that are enabled, now and when they are added.
    Enabled,
}

/// Whether changes of the file are followed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Follow {
    /// They are.
    Yes,
    /// Not until the service is told to look.
    #[default]
    No,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        Self {
            agent: None,
            lookup: None,
            autostart: Autostart::default(),
            follow: Follow::default(),
            handler: None,
            limits: Limits::default(),
            browser: None,
            names: None,
            stdio: StdioOptions::default(),
            packages: None,
            http: HttpOptions::default(),
            client: None,
            ready_wait: Duration::from_secs(5),
        }
    }
}

impl fmt::Debug for ServiceOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceOptions")
            .field("agent", &self.agent)
            .field("autostart", &self.autostart)
            .field("follow", &self.follow)
            .field("names", &self.names)
            .field("stdio", &self.stdio)
            .field("ready_wait", &self.ready_wait)
            .finish_non_exhaustive()
    }
}

/// The first view.
const FIRST: u64 = 1;

impl LocalService {
    /// Opens the service of a home. Nothing has to be there yet.
    ///
    /// Servers that start by themselves are waited for, at most as long as the options say. One that fails is no
    /// error: its status says why.
    ///
    /// # Errors
    ///
    /// When the config file cannot be used; with every fault of it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends whatever was started.
    pub async fn open(home: Home, options: ServiceOptions) -> Result<Self, ServiceError> {
        // Where the config file lies too, others may have been let in on purpose; what is secret is private by itself.
        if !home.config_file().starts_with(home.dir()) {
            close_to_others(home.dir());
        }
        let store = ConfigStore::new(home.config_file());
        let stored = read_config(store.clone()).await?;
        let view = Arc::new(crud::view_of(FIRST, options.agent.as_deref(), &stored)?);
        let (autostart, follow) = (options.autostart, options.follow);
        let service = assemble(home, store, options, stored, Arc::clone(&view));
        let inner = Arc::clone(&service.inner);
        service.inner.tasks.spawn(inner.follow(view));
        let inner = Arc::clone(&service.inner);
        service.inner.tasks.spawn(inner.record(service.subscribe()));
        if autostart == Autostart::Enabled {
            let begun = service.inner.manager.connect_all().await;
            begun.map_err(|error| ServiceError::from(error::of_rack(&error)))?;
        }
        if follow == Follow::Yes {
            *service.watch.lock().unwrap_or_else(PoisonError::into_inner) = service.watch_file();
        }
        Ok(service)
    }

    /// Follows the file. A machine that cannot watch files does not keep anybody from working.
    fn watch_file(&self) -> Option<FileWatch> {
        let path = self.inner.home.config_file();
        // A folder that is not there cannot be watched.
        let made = path.parent().map_or(Ok(()), make_private);
        match made.and_then(|()| self.inner.watch(path)) {
            Ok(watch) => Some(watch),
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "changes of the config go unnoticed");
                None
            }
        }
    }
}

async fn read_config(store: ConfigStore) -> Result<Stored, ServiceError> {
    let read = tokio::task::spawn_blocking(move || store.read()).await;
    read.unwrap_or_else(|_crashed| {
        Err(ServiceError::new(ErrorCode::Internal, "the config could not be read"))
    })
}

/// Puts the parts together. Has to be called within a tokio runtime.
fn assemble(
    home: Home,
    store: ConfigStore,
    options: ServiceOptions,
    stored: Stored,
    view: Arc<View>,
) -> LocalService {
    let mask = Mask::default();
    let secrets = SecretStore::new(home.secrets_dir());
    let values: SharedLookup =
        Arc::new(Values { secrets: secrets.clone(), others: options.lookup, mask: mask.clone() });
    let (browser, tokens) = (options.browser, home.tokens_dir());
    let logins = Logins::new(tokens, browser, Arc::clone(&values), mask.clone());
    let logins = Arc::new(logins);
    let credentials = {
        let logins = Arc::clone(&logins);
        move |server: &McpServerConfig| logins.credentials(server)
    };
    let packages = options.packages.unwrap_or_else(|| Arc::new(Installer::new(home.dir())));
    let mut builder = McpManager::builder()
        .names(options.names.unwrap_or_else(|| stored.file.names()))
        .catalog(home.catalog_dir())
        .lookup(values)
        .stdio(StdioOptions { mask: mask.clone(), ..options.stdio })
        .http(options.http)
        .credentials(Arc::new(credentials))
        .packages(packages)
        .limits(options.limits)
        .ready_wait(options.ready_wait);
    if let Some(client) = options.client {
        builder = builder.client(client);
    }
    if let Some(handler) = options.handler {
        builder = builder.handler(handler);
    }
    let stop = CancellationToken::new();
    let inner = Inner {
        manager: Arc::new(builder.build(view.configs())),
        logs: LogStore::new(home.logs_dir()),
        home,
        agent: options.agent,
        autostart: options.autostart,
        store,
        secrets,
        mask,
        logins,
        view: ArcSwap::new(view),
        writing: Mutex::new(stored.generation),
        bell: Notify::new(),
        applied: watch::Sender::new(FIRST),
        errands: TaskTracker::new(),
        tasks: TaskTracker::new(),
        recall: Mutex::new(stop.child_token()),
        stop,
    };
    LocalService { inner: Arc::new(inner), watch: Mutex::new(None) }
}

/// A call that is to be made.
#[derive(Debug)]
pub struct ToolCall<'a> {
    /// By which number events tell of it. From
    /// [`reserve_call`](toolrack_manager::McpManager::reserve_call) of the manager.
    pub number: u64,
    /// Which tool.
    pub called: Called<'a>,
    /// With what.
    pub arguments: &'a RawValue,
    /// And how.
    pub options: CallOptions,
}

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFault {
    /// Why.
    pub error: ServiceError,
    /// How far it came.
    pub delivery: Delivery,
}

impl LocalService {
    /// Calls a tool, and gives everything it answered. What must not be seen is taken out of the answer.
    ///
    /// # Errors
    ///
    /// When there is no answer. A tool that ran and failed is an answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the call, and the server is told.
    pub async fn call(&self, call: ToolCall<'_>) -> Result<RawJson, CallFault> {
        let unsent = |error| CallFault { error, delivery: Delivery::NotSent };
        self.inner.catch_up().await.map_err(unsent)?;
        let ToolCall { number, called, arguments, options } = call;
        let made = self.inner.manager.call_reserved(number, called, arguments, &options);
        let raw = made.await.map_err(|error| CallFault {
            error: self.inner.masked(error::of_rack(&error)),
            delivery: error.delivery(),
        })?;
        Ok(self.inner.unseen(raw))
    }
}

impl Inner {
    /// The same answer without what must not be seen. One without it is not copied.
    fn unseen(&self, raw: RawJson) -> RawJson {
        RawJson::new(self.mask.clean_json(raw.into_bytes()))
    }
}
