//! Secrets that change while servers use them.

use std::sync::{Arc, PoisonError};

use toolrack_auth::Secret;
use toolrack_manager::ConnectionState;
use uuid::Uuid;

use super::{Inner, LocalService};
use crate::config_snapshot::secrets_of;
use crate::error::ServiceError;

impl LocalService {
    /// Stores a secret, and restarts the servers that use it, without waiting for them. Says which those are. One
    /// that is stored already changes nothing.
    ///
    /// # Errors
    ///
    /// When the name is none, or it cannot be stored.
    pub async fn set_secret(&self, name: &str, secret: Secret) -> Result<Vec<Uuid>, ServiceError> {
        let name = name.to_owned();
        let stored = name.clone();
        let is_new = self
            .inner
            .blocking(move |inner| {
                let before = inner.secrets.get(&stored)?;
                if before.is_some_and(|it| it.reveal() == secret.reveal()) {
                    return Ok(false);
                }
                inner.secrets.set(&stored, &secret)?;
                Ok(true)
            })
            .await?;
        Ok(if is_new { self.inner.restart_users(&name) } else { Vec::new() })
    }

    /// Forgets a secret, and restarts the servers that used it, as [`set_secret`](Self::set_secret) does. One that
    /// cannot do without it then says so.
    ///
    /// # Errors
    ///
    /// When it cannot be removed.
    pub async fn remove_secret(&self, name: &str) -> Result<Vec<Uuid>, ServiceError> {
        let removed = name.to_owned();
        let was_there = self.inner.blocking(move |inner| inner.secrets.remove(&removed)).await?;
        Ok(if was_there { self.inner.restart_users(name) } else { Vec::new() })
    }
}

impl Inner {
    /// Restarts every server that is to run and uses a secret.
    pub(super) fn restart_users(self: &Arc<Self>, secret: &str) -> Vec<Uuid> {
        let view = self.view.load();
        let users = view.servers.iter().filter(|it| {
            secrets_of(&it.server).contains(secret) && self.is_up_or_tried(&it.server.name)
        });
        users
            .map(|it| {
                self.restart_soon(it.server.name.clone());
                it.config.id
            })
            .collect()
    }

    fn is_up_or_tried(&self, name: &str) -> bool {
        let Ok(connection) = self.manager.server(name) else { return false };
        !matches!(connection.state(), ConnectionState::Disabled | ConnectionState::Disconnected)
    }

    /// Restarts a server in a task of its own, unless it is recalled.
    pub(super) fn restart_soon(self: &Arc<Self>, name: String) {
        let manager = Arc::clone(&self.manager);
        let recalled = self.recall.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.errands.spawn(async move {
            tokio::select! {
                biased;
                () = recalled.cancelled() => {}
                outcome = manager.reconnect(&name) => {
                    if let Err(error) = outcome {
                        tracing::debug!(name, %error, "a server was not restarted");
                    }
                }
            }
        });
    }

    /// Gives up every restart that is under way, and waits until none is.
    pub(super) async fn recall_errands(&self) {
        let old = {
            let mut recall = self.recall.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *recall, self.stop.child_token())
        };
        old.cancel();
        self.errands.close();
        self.errands.wait().await;
        self.errands.reopen();
    }
}
