//! The service on this machine: one config file, one store of secrets, one manager.
//!
//! **Invariant:** what is configured changes only under one lock, on disk first; one task then makes the manager
//! follow, in order.

mod crud;
mod lifecycle;
mod log_recorder;
mod open;
mod reconcile;
mod secret_changes;
mod tool_calls;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_auth::Authorizer;
use toolrack_manager::{FileWatch, McpManager, RackEvents};
use toolrack_mcp::Tool;
use toolrack_transport::{BoxFuture, Mask};
use uuid::Uuid;

use crate::authorizers::Logins;
use crate::config_snapshot::{Known, View};
use crate::config_store::{ConfigStore, Generation};
use crate::document::Place;
use crate::error::{ErrorCode, ServiceError, ServiceFault};
use crate::model::{Enabled, McpConfig, McpStatus};
use crate::options::Autostart;
use crate::paths::Home;
use crate::secret_store::SecretStore;
use crate::server_logs::LogStore;
use crate::service::McpService;
use crate::status::StatusDetail;

pub use tool_calls::{CallFault, ToolCall};

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
