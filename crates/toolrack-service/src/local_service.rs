//! `LocalService`: the service on this machine, with one config file, one secret store and one manager.
//!
//! A config change is validated, written to disk under a lock, and published as the next [`ConfigSnapshot`]; then one
//! background task applies it to the manager. An edit of the file by hand takes the same path from the snapshot on.
//! Starts and calls first wait until the manager has the current snapshot (`wait_until_applied`).
//!
//! **Invariant:** the config changes only under `write_lock`, on disk first; one task applies snapshots to the manager,
//! in order.

mod background_tasks;
mod mcp_service;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_auth::{Authorizer, Browser, TokenStore};
use toolrack_client::{CallOptions, ClientHandler, Limits};
use toolrack_config::{McpServerConfig, ToolNaming};
use toolrack_http::HttpOptions;
use toolrack_manager::{CallTarget, FileWatch, ManagerError, ManagerEvents, McpManager};
use toolrack_stdio::StdioOptions;
use toolrack_transport::{Delivery, RawJson, Redactor};
use uuid::Uuid;

use crate::authorizers::Authorizers;
use crate::config_snapshot::{ConfigSnapshot, ConfiguredServer};
use crate::config_store::{ConfigStore, ETag, StoredConfig};
use crate::document::{ConfigScope, unknown_id};
use crate::error::{ErrorCode, ErrorDetail, ServiceError};
use crate::home_permissions::{InsecureHome, secure_home};
use crate::packages::Installer;
use crate::paths::Home;
use crate::secret_store::{FileSecretStore, SecretStore, SharedLookup, VariableLookup};
use crate::server_logs::LogStore;
use crate::service::StatusDetail;

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
#[derive(Clone, Default)]
pub struct ServiceOptions {
    /// Where the servers come from; the default is the config file of the home.
    pub config: ConfigInput,
    /// Whether a home is used that other users can change.
    pub insecure_home: InsecureHome,
    /// Whose servers these are; `None` for the defaults.
    pub agent: Option<String>,
    /// Resolves variables and files that configs refer to, such as `${HOME}`. Secrets come from the store.
    pub lookup: Option<SharedLookup>,
    /// Where secrets are kept; the default is [`FileSecretStore`] in the home.
    pub secrets: Option<Arc<dyn SecretStore>>,
    /// Where OAuth tokens are kept; the default is [`FileTokenStore`](toolrack_auth::FileTokenStore) in the home.
    pub tokens: Option<Arc<dyn TokenStore>>,
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
    /// How HTTP servers are reached.
    pub http: HttpOptions,
    /// How long opening waits for slow servers, which go on starting in the background; the default is five seconds.
    pub ready_wait: Option<Duration>,
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

impl fmt::Debug for ServiceOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceOptions").finish_non_exhaustive()
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
    secrets: Arc<dyn SecretStore>,
    logs: LogStore,
    redactor: Redactor,
    authorizers: Arc<Authorizers>,
    manager: Arc<McpManager>,
    snapshot: ArcSwap<ConfigSnapshot>,
    /// Held while the config changes. Holds the [`ETag`] of the current snapshot; `None` without a config file.
    write_lock: Mutex<Option<ETag>>,
    /// The config file as the watcher has last read it, until the reconcile task takes it.
    edited: Mutex<Option<StoredConfig>>,
    /// Wakes the reconcile task: there is a new snapshot, or an edited file.
    config_changed: Notify,
    /// Revision of the last snapshot that the manager has.
    applied_revision: watch::Sender<u64>,
    /// Revision of the last snapshot whose removed servers have ended too. A stubborn server takes seconds to end, and
    /// calls of the others do not wait for it.
    settled_revision: watch::Sender<u64>,
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
    /// Every diagnostic of the config file, or every path of the home that other users can change.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops everything that was started.
    pub async fn open(home: Home, mut options: ServiceOptions) -> Result<Self, ServiceError> {
        secure_home(&home, options.insecure_home)?;
        let store = ConfigStore::new(home.config_file());
        let (snapshot, naming, etag) = match std::mem::take(&mut options.config) {
            ConfigInput::Servers(servers) => {
                (ConfigSnapshot::from_servers(FIRST_REVISION, servers), ToolNaming::default(), None)
            }
            input => {
                let stored = match input {
                    ConfigInput::Stored(stored) => stored,
                    _ => {
                        let store = store.clone();
                        blocking(move || store.read()).await?
                    }
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
            *service.watch.lock() = service.inner.watch_config_file();
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

    /// The manager, for everything that [`McpService`](crate::McpService) does not offer.
    pub fn manager(&self) -> &Arc<McpManager> {
        &self.inner.manager
    }

    /// The paths of this service.
    pub fn home(&self) -> &Home {
        &self.inner.home
    }

    /// The secret store. Unlike it, [`set_secret`](Self::set_secret) also restarts the servers that use a secret.
    pub fn secrets(&self) -> &dyn SecretStore {
        &*self.inner.secrets
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

    /// Statuses of the servers of another agent, which this service does not run.
    ///
    /// # Errors
    ///
    /// The config file cannot be read.
    pub fn statuses_of_inactive_agent(
        &self,
        agent: &str,
    ) -> Result<Vec<StatusDetail>, ServiceError> {
        let file = self.inner.store.read()?.file;
        let snapshot = ConfigSnapshot::from_file(FIRST_REVISION, Some(agent), &file);
        let servers = snapshot.servers.iter();
        Ok(servers.map(|server| StatusDetail::new(&server.config, None)).collect())
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
        let snapshot = self.inner.snapshot.load();
        let ConfiguredServer { config, manager_config } = snapshot.get(id)?;
        let connection = self.inner.manager.server(&manager_config.name).ok();
        Some(StatusDetail::new(config, connection.as_deref()))
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

/// Runs blocking file IO on a blocking thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ServiceError> + Send + 'static,
) -> Result<T, ServiceError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_panicked| {
        Err(ServiceError::new(ErrorCode::Internal, "cannot access the config"))
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
    let secrets = options.secrets;
    let secrets = secrets.unwrap_or_else(|| Arc::new(FileSecretStore::new(home.secrets_dir())));
    let variables: SharedLookup = Arc::new(VariableLookup {
        secrets: Arc::clone(&secrets),
        fallback: options.lookup,
        redactor: redactor.clone(),
    });
    let authorizers = Arc::new(Authorizers {
        home: home.clone(),
        store: options.tokens,
        browser: options.browser,
        lookup: Arc::clone(&variables),
        redactor: redactor.clone(),
        by_server: Mutex::default(),
    });
    let credentials = {
        let authorizers = Arc::clone(&authorizers);
        move |server: &McpServerConfig| authorizers.credentials(server)
    };
    let mut builder = McpManager::builder()
        .names(options.names.unwrap_or_default())
        .tool_cache(home.catalog_dir())
        .lookup(variables)
        .stdio(StdioOptions { redactor: redactor.clone(), ..options.stdio })
        .http(options.http)
        .credentials(Arc::new(credentials))
        .package_installer(Arc::new(Installer::new(home.dir())))
        .limits(options.limits);
    if let Some(wait) = options.ready_wait {
        builder = builder.ready_wait(wait);
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
        edited: Mutex::new(None),
        config_changed: Notify::new(),
        applied_revision: watch::Sender::new(FIRST_REVISION),
        settled_revision: watch::Sender::new(FIRST_REVISION),
        restarts: TaskTracker::new(),
        tasks: TaskTracker::new(),
        // A child token: closing the service cancels the restarts too.
        restart_cancel: Mutex::new(stop.child_token()),
        stop,
    };
    LocalService { inner: Arc::new(inner), watch: Mutex::new(None) }
}

impl Inner {
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
        self.wait_for_revision(&self.applied_revision).await
    }

    /// Waits until the current snapshot is applied and the servers that it has removed have ended.
    async fn wait_until_settled(&self) -> Result<(), ServiceError> {
        self.wait_for_revision(&self.settled_revision).await
    }

    async fn wait_for_revision(&self, reached: &watch::Sender<u64>) -> Result<(), ServiceError> {
        // Read once: changes that come later do not prolong the wait.
        let revision = self.snapshot.load().revision;
        // Fast path of almost every call: nothing to wait for.
        if *reached.borrow() >= revision {
            return Ok(());
        }
        let mut reached = reached.subscribe();
        let is_reached = tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            reached = timeout(APPLY_TIMEOUT, reached.wait_for(|reached| *reached >= revision)) => reached.is_ok(),
        };
        if is_reached {
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
}
