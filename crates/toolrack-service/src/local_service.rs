//! `LocalService`: the service on this machine, with one config file, one secret store and one manager.
//!
//! A config change is validated, written to disk under a lock, and published as the next [`ConfigSnapshot`]; then one
//! background task applies it to the manager. An edit of the file by hand takes the same path from the snapshot on.
//! Starts and calls first wait until the manager has the current snapshot (`wait_until_applied`).
//!
//! **Invariant:** the config changes only under `write_lock`, on disk first; one task applies snapshots to the manager,
//! in order.

mod background_tasks;
mod crud;
mod lifecycle;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_auth::{Authorizer, Browser};
use toolrack_client::{CallOptions, ClientHandler, Limits};
use toolrack_config::{McpServerConfig, ToolNaming};
use toolrack_http::HttpOptions;
use toolrack_manager::{
    CallTarget, FileWatch, ManagerError, ManagerEvents, McpManager, PackageInstaller,
    ToolWithServer,
};
use toolrack_mcp::{Implementation, Tool};
use toolrack_platform::{create_private_dir, make_private};
use toolrack_stdio::StdioOptions;
use toolrack_transport::{BoxFuture, Delivery, RawJson, Redactor, sanitize_text};
use uuid::Uuid;

use crate::authorizers::Authorizers;
use crate::config_snapshot::{ConfigSnapshot, ConfiguredServer};
use crate::config_store::{ConfigStore, ETag, StoredConfig};
use crate::document::{ConfigScope, unknown_id};
use crate::error::{ErrorCode, ErrorDetail, ServiceError};
use crate::packages::Installer;
use crate::paths::Home;
use crate::secret_store::{SecretStore, SharedLookup, VariableLookup};
use crate::server_logs::LogStore;
use crate::service::{Enabled, McpConfig, McpService, McpStatus};
use crate::status::StatusDetail;

/// How long the manager may take to apply a config change, including the shutdown of deleted servers.
const APPLY_TIMEOUT: Duration = Duration::from_secs(15);

/// Revision of the first snapshot.
const FIRST_REVISION: u64 = 1;

/// The service on this machine.
///
/// Dropping it stops all servers without waiting; [`close`](Self::close) stops them and waits.
pub struct LocalService {
    inner: Arc<Inner>,
    /// `None` once the service is closed, or if the config file is not watched.
    watch: Mutex<Option<FileWatch>>,
}

/// Options of [`LocalService::open`]. The default suits a short-lived program: it starts nothing by itself and does not
/// watch the config file.
#[derive(Clone)]
pub struct ServiceOptions {
    /// Where the servers come from; the default is the config file of the home.
    pub config: ConfigInput,
    /// Whose servers these are; `None` for the defaults.
    pub agent: Option<String>,
    /// Resolves variables and files that configs refer to, such as `${HOME}`. Secrets come from the store.
    pub lookup: Option<SharedLookup>,
    /// Which servers are started automatically.
    pub autostart: Autostart,
    /// Whether edits of the config file are applied.
    pub watch_config: WatchConfig,
    /// Answers requests from servers.
    pub handler: Option<Arc<dyn ClientHandler>>,
    /// Limits on the data of each server.
    pub limits: Limits,
    /// Opens login pages. Without it, a required login is an error that says so.
    pub browser: Option<Arc<dyn Browser>>,
    /// How public tool names are formed; the default is what the config file says.
    pub names: Option<ToolNaming>,
    /// How child processes are run.
    pub stdio: StdioOptions,
    /// Package installer; the default is [`Installer`].
    pub packages: Option<Arc<dyn PackageInstaller>>,
    /// How HTTP servers are reached.
    pub http: HttpOptions,
    /// Client info sent to servers; the default is Toolrack's.
    pub client: Option<Implementation>,
    /// How long opening waits for slow servers, which go on starting in the background.
    pub ready_wait: Duration,
}

/// Which servers are started automatically.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Autostart {
    /// None: servers are started explicitly.
    #[default]
    None,
    /// All enabled servers, at once and when they are added.
    AllEnabled,
}

/// Where the servers come from.
#[derive(Debug, Clone, Default)]
#[expect(clippy::large_enum_variant, reason = "a service has one")]
pub enum ConfigInput {
    /// The config file of the home, read when the service opens.
    #[default]
    File,
    /// The config file of the home, already read.
    Stored(StoredConfig),
    /// These servers only: no config file is read, watched or written.
    Servers(Vec<McpServerConfig>),
}

/// Whether edits of the config file are applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WatchConfig {
    /// Watch the file.
    Yes,
    /// Only on [`LocalService::reload`].
    #[default]
    No,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        Self {
            config: ConfigInput::default(),
            agent: None,
            lookup: None,
            autostart: Autostart::default(),
            watch_config: WatchConfig::default(),
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
            .field("watch_config", &self.watch_config)
            .field("names", &self.names)
            .field("stdio", &self.stdio)
            .field("ready_wait", &self.ready_wait)
            .finish_non_exhaustive()
    }
}

/// A tool call for [`LocalService::call`].
#[derive(Debug)]
pub struct ToolCall<'a> {
    /// Number of the call in events, from [`McpManager::reserve_call_id`].
    pub number: u64,
    /// The tool.
    pub tool: CallTarget<'a>,
    /// Its arguments.
    pub arguments: &'a RawValue,
    /// Timeout, progress and other options.
    pub options: CallOptions,
}

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCallError {
    /// The error.
    pub error: ServiceError,
    /// Whether the server may have received the call.
    pub delivery: Delivery,
}

/// State shared by the handle and the background tasks.
struct Inner {
    home: Home,
    agent: Option<String>,
    autostart: Autostart,
    store: ConfigStore,
    secrets: SecretStore,
    logs: LogStore,
    redactor: Redactor,
    authorizers: Arc<Authorizers>,
    manager: Arc<McpManager>,
    snapshot: ArcSwap<ConfigSnapshot>,
    /// Held while the config changes. Holds the [`ETag`] of the current snapshot; `None` without a config file.
    write_lock: Mutex<Option<ETag>>,
    /// Wakes the reconcile task: there is a new snapshot, or the file may have changed.
    config_changed: Notify,
    /// Revision of the last snapshot that the manager has.
    applied_revision: watch::Sender<u64>,
    /// Restarts in progress.
    restarts: TaskTracker,
    /// Cancels the restarts in progress.
    restart_cancel: Mutex<CancellationToken>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl LocalService {
    /// Opens the service of a home. Its files need not exist.
    ///
    /// Waits for servers that start automatically, at most [`ServiceOptions::ready_wait`]. A server that fails to start
    /// is not an error: its status says why.
    ///
    /// # Errors
    ///
    /// Every diagnostic of the config file.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops everything that was started.
    pub async fn open(home: Home, mut options: ServiceOptions) -> Result<Self, ServiceError> {
        // A directory that also holds the config file may be shared on purpose; secrets are private by themselves.
        if !home.config_file().starts_with(home.dir()) {
            make_private(home.dir());
        }
        let store = ConfigStore::new(home.config_file());
        let (snapshot, naming, etag) = match std::mem::take(&mut options.config) {
            ConfigInput::Servers(servers) => {
                (ConfigSnapshot::from_servers(FIRST_REVISION, servers), ToolNaming::default(), None)
            }
            input => {
                let stored = match input {
                    ConfigInput::Stored(stored) => stored,
                    _ => read_config(store.clone()).await?,
                };
                let agent = options.agent.as_deref();
                let snapshot = ConfigSnapshot::from_file(FIRST_REVISION, agent, &stored.file);
                (snapshot, stored.file.names(), Some(stored.etag))
            }
        };
        let snapshot = Arc::new(snapshot);
        let autostart = options.autostart;
        let is_watched = options.watch_config == WatchConfig::Yes && etag.is_some();
        options.names.get_or_insert(naming);
        // From here on, an early return drops the service, which stops everything that was started.
        let service = build(home, store, options, etag, Arc::clone(&snapshot));
        let inner = Arc::clone(&service.inner);
        service.inner.tasks.spawn(inner.reconcile(snapshot));
        let inner = Arc::clone(&service.inner);
        // Subscribed before any server starts, so that the log has the first line of each.
        service.inner.tasks.spawn(inner.record_logs(service.subscribe()));
        if autostart == Autostart::AllEnabled {
            let connected = service.inner.manager.connect_all().await;
            connected.map_err(|error| ErrorDetail::from_manager_error(&error))?;
        }
        if is_watched {
            // Last: the watcher reads the file once more when it starts, which covers an
            // edit since `read_config`.
            *service.watch.lock() = service.watch_file();
        }
        Ok(service)
    }

    /// Stops all servers and the service itself. Returns when all their processes are gone.
    pub async fn close(&self) {
        // First, so that no edit of the file starts a server after the others were stopped.
        drop(self.watch.lock().take());
        self.inner.stop.cancel();
        self.inner.restarts.close();
        self.inner.tasks.close();
        // Before the manager: these tasks still use it.
        let all = async {
            self.inner.restarts.wait().await;
            self.inner.tasks.wait().await;
            self.inner.authorizers.wait_idle().await;
        };
        if timeout(APPLY_TIMEOUT, all).await.is_err() {
            tracing::warn!("some tasks of the service did not end in time");
        }
        self.inner.manager.close().await;
    }

    /// The manager, for everything that [`McpService`] does not offer.
    pub fn manager(&self) -> &Arc<McpManager> {
        &self.inner.manager
    }

    /// The paths of this service.
    pub fn home(&self) -> &Home {
        &self.inner.home
    }

    /// The secret store. Unlike it, [`set_secret`](Self::set_secret) also restarts the servers that use a secret.
    pub fn secrets(&self) -> &SecretStore {
        &self.inner.secrets
    }

    /// The log files of the servers.
    pub fn logs(&self) -> &LogStore {
        &self.inner.logs
    }

    /// The config file, for editing it as text. Call [`reload`](Self::reload) afterwards.
    pub fn config_store(&self) -> &ConfigStore {
        &self.inner.store
    }

    /// The agent whose servers these are; `None` for the defaults.
    pub fn agent(&self) -> Option<&str> {
        self.inner.agent.as_deref()
    }

    /// The ids of all agents in the config file.
    pub fn agents(&self) -> Vec<String> {
        self.inner.snapshot.load().agents.clone()
    }

    /// The id of the server with this name.
    pub fn id_for_name(&self, name: &str) -> Option<Uuid> {
        self.inner.snapshot.load().by_name(name).map(|server| server.config.id)
    }

    /// Subscribes to manager events.
    pub fn subscribe(&self) -> ManagerEvents {
        self.inner.manager.subscribe()
    }

    /// The OAuth authorizer of an HTTP server.
    ///
    /// # Errors
    ///
    /// The id is unknown, or the server does not use OAuth.
    pub fn authorizer(&self, id: Uuid) -> Result<Arc<Authorizer>, ServiceError> {
        self.inner.authorizers.authorizer(&self.inner.configured(id)?.manager_config)
    }

    /// Status of a server with its phase, tool counts and recent errors. `None` if the id is unknown.
    pub fn status_detail(&self, id: Uuid) -> Option<StatusDetail> {
        self.inner.status_detail(id)
    }

    /// Calls a tool and returns its whole result, with secrets redacted.
    ///
    /// # Errors
    ///
    /// There is no result. A tool that ran and reported an error is a result.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the call and notifies the server.
    pub async fn call(&self, call: ToolCall<'_>) -> Result<RawJson, ToolCallError> {
        let not_sent = |error| ToolCallError { error, delivery: Delivery::NotSent };
        self.inner.wait_until_applied().await.map_err(not_sent)?;
        let ToolCall { number, tool, arguments, options } = call;
        let called =
            self.inner.manager.call(tool).args(arguments).options(options).id(number).send_raw();
        let raw = called.await.map_err(|error| ToolCallError {
            error: self.inner.manager_error(&error),
            delivery: error.delivery(),
        })?;
        Ok(RawJson::new(self.inner.redactor.redact_json(raw.into_bytes())))
    }

    /// Watches the config file. A system without file watching still runs the service.
    fn watch_file(&self) -> Option<FileWatch> {
        let path = self.inner.home.config_file();
        // Only an existing directory can be watched.
        let created = path.parent().map_or(Ok(()), create_private_dir);
        match created.and_then(|()| self.inner.watch_config_file(path)) {
            Ok(watch) => Some(watch),
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "cannot watch the config file; edits are not noticed");
                None
            }
        }
    }
}

impl McpService for LocalService {
    fn list(&self) -> Vec<McpConfig> {
        self.inner.snapshot.load().servers.iter().map(|server| server.config.clone()).collect()
    }

    fn get(&self, id: Uuid) -> Option<McpConfig> {
        self.inner.snapshot.load().get(id).map(|server| server.config.clone())
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
        self.inner.manager.get_tools().iter().map(public_tool).collect()
    }

    fn find_tool_provider(&self, tool_name: &str) -> Option<Uuid> {
        self.id_for_name(self.inner.manager.find_tool(tool_name)?.server())
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

impl Drop for LocalService {
    fn drop(&mut self) {
        // Ends the background tasks, which keep `Inner` and with it the manager alive.
        self.inner.stop.cancel();
    }
}

impl fmt::Debug for LocalService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalService")
            .field("home", &self.inner.home)
            .field("agent", &self.inner.agent)
            .field("snapshot", &self.inner.snapshot.load())
            .finish_non_exhaustive()
    }
}

async fn read_config(store: ConfigStore) -> Result<StoredConfig, ServiceError> {
    let read = tokio::task::spawn_blocking(move || store.read()).await;
    read.unwrap_or_else(|_panicked| {
        Err(ServiceError::new(ErrorCode::Internal, "cannot read the config"))
    })
}

/// Builds the service. Requires a Tokio runtime.
fn build(
    home: Home,
    store: ConfigStore,
    options: ServiceOptions,
    etag: Option<ETag>,
    snapshot: Arc<ConfigSnapshot>,
) -> LocalService {
    let redactor = Redactor::default();
    let secrets = SecretStore::new(home.secrets_dir());
    let variables: SharedLookup = Arc::new(VariableLookup {
        secrets: secrets.clone(),
        fallback: options.lookup,
        redactor: redactor.clone(),
    });
    let (browser, tokens) = (options.browser, home.tokens_dir());
    let authorizers = Authorizers::new(tokens, browser, Arc::clone(&variables), redactor.clone());
    let authorizers = Arc::new(authorizers);
    let credentials = {
        let authorizers = Arc::clone(&authorizers);
        move |server: &McpServerConfig| authorizers.credentials(server)
    };
    let packages = options.packages.unwrap_or_else(|| Arc::new(Installer::new(home.dir())));
    let mut builder = McpManager::builder()
        .names(options.names.unwrap_or_default())
        .tool_cache(home.catalog_dir())
        .lookup(variables)
        .stdio(StdioOptions { redactor: redactor.clone(), ..options.stdio })
        .http(options.http)
        .credentials(Arc::new(credentials))
        .package_installer(packages)
        .limits(options.limits)
        .ready_wait(options.ready_wait);
    if let Some(client) = options.client {
        builder = builder.client_info(client);
    }
    if let Some(handler) = options.handler {
        builder = builder.handler(handler);
    }
    let stop = CancellationToken::new();
    let inner = Inner {
        manager: Arc::new(builder.build(snapshot.configs())),
        logs: LogStore::new(home.logs_dir()),
        home,
        agent: options.agent,
        autostart: options.autostart,
        store,
        secrets,
        redactor,
        authorizers,
        snapshot: ArcSwap::new(snapshot),
        write_lock: Mutex::new(etag),
        config_changed: Notify::new(),
        applied_revision: watch::Sender::new(FIRST_REVISION),
        restarts: TaskTracker::new(),
        tasks: TaskTracker::new(),
        // A child token: closing the service cancels the restarts too.
        restart_cancel: Mutex::new(stop.child_token()),
        stop,
    };
    LocalService { inner: Arc::new(inner), watch: Mutex::new(None) }
}

impl Inner {
    /// Name of a server in the manager.
    fn name_by_id(&self, id: Uuid) -> Result<String, ServiceError> {
        self.configured(id).map(|server| server.manager_config.name)
    }

    fn configured(&self, id: Uuid) -> Result<ConfiguredServer, ServiceError> {
        self.snapshot.load().get(id).cloned().ok_or_else(|| unknown_id(id))
    }

    /// The scope of new servers.
    fn scope(&self) -> ConfigScope {
        match &self.agent {
            Some(agent) => ConfigScope::Agent(agent.clone()),
            None => ConfigScope::Defaults,
        }
    }

    /// Waits until the manager has the current snapshot. A start or a call right after a config change then sees it.
    async fn wait_until_applied(&self) -> Result<(), ServiceError> {
        // Read once: changes that come later do not prolong the wait.
        let revision = self.snapshot.load().revision;
        // Fast path of almost every call: nothing to wait for.
        if *self.applied_revision.borrow() >= revision {
            return Ok(());
        }
        let mut applied = self.applied_revision.subscribe();
        let reached = tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            reached = timeout(APPLY_TIMEOUT, applied.wait_for(|applied| *applied >= revision)) => reached.is_ok(),
        };
        if reached {
            return Ok(());
        }
        let message = "the config change was not applied in time";
        let detail = ErrorDetail::new(ErrorCode::ServiceUnavailable, message);
        Err(detail.with_hint("try again in a moment").into())
    }

    /// A manager's error, with secrets redacted.
    fn manager_error(&self, error: &ManagerError) -> ServiceError {
        self.redacted(ErrorDetail::from_manager_error(error))
    }

    /// Redacts secrets from an error.
    fn redacted(&self, detail: ErrorDetail) -> ServiceError {
        let redact = |text: String| self.redactor.redact(&text).into_owned();
        let detail = ErrorDetail {
            message: redact(detail.message),
            hint: detail.hint.map(redact),
            reason: detail.reason.map(redact),
            ..detail
        };
        detail.into()
    }

    async fn call_tool(
        &self,
        id: Uuid,
        tool: &str,
        arguments: &Value,
    ) -> Result<String, ServiceError> {
        let server = self.name_by_id(id)?;
        if !(arguments.is_object() || arguments.is_null()) {
            let message = "must be an object with one member per argument";
            return Err(ErrorDetail::new(ErrorCode::ValidationError, message)
                .with_field("arguments")
                .into());
        }
        self.wait_until_applied().await?;
        // Agents know the public name, which is all that `available_tools` shows.
        let raw = self.server_tool_name(&server, tool);
        let called = self.manager.call_tool(&server, raw.as_deref().unwrap_or(tool), arguments);
        let result = called.await.map_err(|error| self.manager_error(&error))?;
        if result.is_error {
            let text = sanitize_text(&result.content).into_owned();
            return Err(self.redacted(ErrorDetail::new(ErrorCode::ServiceUnavailable, text)));
        }
        // Again, although the transport redacts: the redactor may have learned a secret since.
        Ok(self.redactor.redact(&result.content).into_owned())
    }

    /// The server's own name of a tool that was given by its public name.
    fn server_tool_name(&self, server: &str, tool: &str) -> Option<String> {
        let connection = self.manager.server(server).ok()?;
        let listing = connection.tool_list()?;
        // The server's own name wins: a tool may be named like the public name of another.
        if listing.items.iter().any(|own| own.name == tool) {
            return None;
        }
        let found = self.manager.find_tool(tool).filter(|found| **found.server() == *server)?;
        Some(found.tool().name.clone())
    }
}

/// A tool under its public name, with a sanitized description.
fn public_tool(tool: &ToolWithServer) -> Tool {
    let own = tool.tool().clone();
    let description = own.description.map(|text| sanitize_text(&text).into_owned());
    Tool { name: tool.name().as_ref().to_owned(), description, ..own }
}
