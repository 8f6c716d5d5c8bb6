//! Starting, stopping and restarting servers; restarts after a secret has changed.

use std::sync::Arc;

use tokio::time::Instant;
use toolrack_auth::Secret;
use toolrack_manager::{ConnectionState, ManagerError, McpConnection};
use uuid::Uuid;

use super::{Inner, LocalService};
use crate::config_snapshot::{ConfiguredServer, referenced_secrets};
use crate::error::{ErrorDetail, ServiceError};
use crate::service::{Enabled, McpStatus};
use crate::status::{StatusDetail, status};

impl Inner {
    pub(super) async fn start(&self, id: Uuid) -> Result<(), ServiceError> {
        let name = self.startable_name(id).await?;
        let connection = self.manager.start(&name).await;
        self.start_result(&name, connection)
    }

    pub(super) async fn restart(&self, id: Uuid) -> Result<(), ServiceError> {
        let name = self.startable_name(id).await?;
        let connection = self.manager.reconnect(&name).await;
        self.start_result(&name, connection)
    }

    pub(super) async fn stop(&self, id: Uuid) -> Result<(), ServiceError> {
        let name = self.name_by_id(id)?;
        self.wait_until_applied().await?;
        self.manager.disconnect(&name).await.map_err(|error| self.manager_error(&error))
    }

    /// The toggle of spec 004: writes the flag, starts the server, and reverts the flag if it cannot be started.
    pub(super) async fn set_enabled(
        self: Arc<Self>,
        id: Uuid,
        enabled: Enabled,
    ) -> Result<(), ServiceError> {
        let was_enabled = self.configured(id)?.config.enabled;
        if enabled == Enabled::No {
            self.persist_enabled(id, Enabled::No).await?;
            return self.stop(id).await;
        }
        if !was_enabled {
            self.persist_enabled(id, Enabled::Yes).await?;
        }
        // After the flag is written, because `start` refuses a disabled server.
        let started = self.start(id).await;
        // A server that was enabled before stays enabled: its failure is not the fault
        // of this call.
        if started.is_err() && !was_enabled {
            self.persist_enabled(id, Enabled::No).await?;
            self.wait_until_applied().await?;
        }
        started
    }

    /// Stops all servers. Restarts in progress are cancelled first: they would start a server again.
    pub(super) async fn shutdown_all(&self) -> Result<(), ServiceError> {
        self.wait_until_applied().await?;
        self.cancel_restarts().await;
        self.manager.disconnect_all().await.map_err(|error| self.manager_error(&error))
    }

    /// Name of an enabled server, once the manager has the current config.
    async fn startable_name(&self, id: Uuid) -> Result<String, ServiceError> {
        let configured = self.configured(id)?;
        if !configured.config.enabled {
            return Err(ErrorDetail::disabled(&configured.config.name).into());
        }
        self.wait_until_applied().await?;
        Ok(configured.manager_config.name)
    }

    /// The result of a start: an error unless the server is connected.
    fn start_result(
        &self,
        name: &str,
        connection: Result<Arc<McpConnection>, ManagerError>,
    ) -> Result<(), ServiceError> {
        let connection = connection.map_err(|error| self.manager_error(&error))?;
        match connection.state() {
            ConnectionState::Connected => Ok(()),
            state => Err(self.redacted(ErrorDetail::from_state(name, state))),
        }
    }

    pub(super) fn status(&self, id: Uuid) -> McpStatus {
        let snapshot = self.snapshot.load();
        let Some(configured) = snapshot.get(id) else { return McpStatus::Stopped };
        match self.manager.server(&configured.manager_config.name) {
            Ok(connection) => status(connection.state(), || connection.tool_names()),
            Err(_not_added_yet) => status(&unmanaged_state(configured), Vec::new),
        }
    }

    pub(super) fn status_detail(&self, id: Uuid) -> Option<StatusDetail> {
        let snapshot = self.snapshot.load();
        let configured = snapshot.get(id)?;
        Some(match self.manager.server(&configured.manager_config.name) {
            Ok(connection) => StatusDetail::from_connection(id, &connection, Instant::now()),
            Err(_not_added_yet) => StatusDetail::from_state(
                id,
                configured.config.name.clone(),
                &unmanaged_state(configured),
            ),
        })
    }
}

/// State of a server that the manager does not have yet.
fn unmanaged_state(configured: &ConfiguredServer) -> ConnectionState {
    if configured.config.enabled {
        ConnectionState::Disconnected
    } else {
        ConnectionState::Disabled
    }
}

impl LocalService {
    /// Stores a secret and restarts the servers that use it, in the background. Returns their ids. Setting the same
    /// value again does nothing.
    ///
    /// # Errors
    ///
    /// The name or the value is invalid, or the secret cannot be stored.
    pub async fn set_secret(&self, name: &str, secret: Secret) -> Result<Vec<Uuid>, ServiceError> {
        let name = name.to_owned();
        let stored = name.clone();
        let is_new = self
            .inner
            .blocking(move |inner| {
                let old = inner.secrets.get(&stored)?;
                if old.is_some_and(|old| old.reveal() == secret.reveal()) {
                    return Ok(false);
                }
                inner.secrets.set(&stored, &secret)?;
                Ok(true)
            })
            .await?;
        Ok(if is_new { self.inner.restart_users(&name) } else { Vec::new() })
    }

    /// Removes a secret and restarts the servers that used it, as [`set_secret`](Self::set_secret) does. A server that
    /// requires it then fails with a message that says so.
    ///
    /// # Errors
    ///
    /// The secret cannot be removed.
    pub async fn remove_secret(&self, name: &str) -> Result<Vec<Uuid>, ServiceError> {
        let to_remove = name.to_owned();
        let existed = self.inner.blocking(move |inner| inner.secrets.remove(&to_remove)).await?;
        Ok(if existed { self.inner.restart_users(name) } else { Vec::new() })
    }
}

impl Inner {
    /// Restarts every active server that uses a secret. Returns their ids.
    pub(super) fn restart_users(self: &Arc<Self>, secret: &str) -> Vec<Uuid> {
        let snapshot = self.snapshot.load();
        let users = snapshot.servers.iter().filter(|user| {
            referenced_secrets(&user.manager_config).contains(secret)
                && self.is_active(&user.manager_config.name)
        });
        users
            .map(|user| {
                self.spawn_restart(user.manager_config.name.clone());
                user.config.id
            })
            .collect()
    }

    fn is_active(&self, name: &str) -> bool {
        let Ok(connection) = self.manager.server(name) else { return false };
        // A failed server counts as active: the new secret may be what it was waiting for.
        !matches!(connection.state(), ConnectionState::Disabled | ConnectionState::Disconnected)
    }

    /// Restarts a server in a task of its own.
    pub(super) fn spawn_restart(self: &Arc<Self>, name: String) {
        let manager = Arc::clone(&self.manager);
        let cancel = self.restart_cancel.lock().clone();
        // In the background: the caller that sets a secret does not wait for slow servers.
        self.restarts.spawn(async move {
            tokio::select! {
                biased;
                () = cancel.cancelled() => {}
                restarted = manager.reconnect(&name) => {
                    if let Err(error) = restarted {
                        tracing::debug!(name, %error, "cannot restart a server");
                    }
                }
            }
        });
    }

    /// Cancels every restart in progress, and waits until they have ended.
    pub(super) async fn cancel_restarts(&self) {
        // A new token first: restarts requested from here on are not cancelled.
        let old = {
            let mut cancel = self.restart_cancel.lock();
            std::mem::replace(&mut *cancel, self.stop.child_token())
        };
        old.cancel();
        self.restarts.close();
        self.restarts.wait().await;
        self.restarts.reopen();
    }
}
