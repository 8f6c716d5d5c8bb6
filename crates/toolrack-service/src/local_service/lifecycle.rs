//! Starting, stopping and calling servers.

use std::sync::{Arc, PoisonError};

use serde_json::Value;
use tokio::time::Instant;
use toolrack_auth::Secret;
use toolrack_manager::{ConnectionState, McpConnection, ToolWithServer};
use toolrack_mcp::Tool;
use toolrack_transport::clean_text;
use uuid::Uuid;

use super::{Inner, LocalService};
use crate::config_snapshot::{Known, secrets_of};
use crate::error;
use crate::error::{ErrorCode, ServiceError, ServiceFault};
use crate::service::{Enabled, McpStatus};
use crate::status::{StatusDetail, status};

impl Inner {
    pub(super) async fn start(&self, id: Uuid) -> Result<(), ServiceError> {
        let name = self.startable(id).await?;
        let begun = self.manager.start(&name).await;
        self.outcome(&name, begun)
    }

    pub(super) async fn restart(&self, id: Uuid) -> Result<(), ServiceError> {
        let name = self.startable(id).await?;
        let begun = self.manager.reconnect(&name).await;
        self.outcome(&name, begun)
    }

    pub(super) async fn stop(&self, id: Uuid) -> Result<(), ServiceError> {
        let name = self.name_of(id)?;
        self.catch_up().await?;
        self.manager.disconnect(&name).await.map_err(|error| self.masked(error::of_rack(&error)))
    }

    /// The toggle of spec 004: persisted, started, and taken back if it cannot be started.
    pub(super) async fn set_enabled(
        self: Arc<Self>,
        id: Uuid,
        enabled: Enabled,
    ) -> Result<(), ServiceError> {
        let was = self.known(id)?.config.enabled;
        if enabled == Enabled::No {
            self.persist(id, Enabled::No).await?;
            return self.stop(id).await;
        }
        if !was {
            self.persist(id, Enabled::Yes).await?;
        }
        let started = self.start(id).await;
        if started.is_err() && !was {
            self.persist(id, Enabled::No).await?;
            self.catch_up().await?;
        }
        started
    }

    /// Stops every server. Restarts that were promised before are given up.
    pub(super) async fn shutdown_all(&self) -> Result<(), ServiceError> {
        self.catch_up().await?;
        self.recall_errands().await;
        self.manager.disconnect_all().await.map_err(|error| self.masked(error::of_rack(&error)))
    }

    /// The name of a server that may be started, once the manager knows it.
    async fn startable(&self, id: Uuid) -> Result<String, ServiceError> {
        let known = self.known(id)?;
        if !known.config.enabled {
            return Err(error::disabled(&known.config.name).into());
        }
        self.catch_up().await?;
        Ok(known.server.name)
    }

    fn outcome(
        &self,
        name: &str,
        begun: Result<Arc<McpConnection>, toolrack_manager::RackError>,
    ) -> Result<(), ServiceError> {
        let connection = begun.map_err(|error| self.masked(error::of_rack(&error)))?;
        match connection.state() {
            ConnectionState::Connected => Ok(()),
            state => Err(self.masked(error::of_state(name, state))),
        }
    }

    pub(super) async fn call_tool(
        &self,
        id: Uuid,
        tool: &str,
        arguments: &Value,
    ) -> Result<String, ServiceError> {
        let server = self.name_of(id)?;
        if !(arguments.is_object() || arguments.is_null()) {
            let message = "must be an object, with a member for each argument";
            return Err(ServiceFault::new(ErrorCode::ValidationError, message)
                .at("arguments")
                .into());
        }
        self.catch_up().await?;
        let raw = self.raw_name(&server, tool);
        let called = self.manager.call_tool(&server, raw.as_deref().unwrap_or(tool), arguments);
        let result = called.await.map_err(|error| self.masked(error::of_rack(&error)))?;
        if result.is_error {
            let text = clean_text(&result.content).into_owned();
            return Err(self.masked(ServiceFault::new(ErrorCode::ServiceUnavailable, text)));
        }
        Ok(self.mask.clean(&result.content).into_owned())
    }

    /// What the server calls a tool that was named by its public name.
    fn raw_name(&self, server: &str, tool: &str) -> Option<String> {
        let connection = self.manager.server(server).ok()?;
        let listing = connection.listing()?;
        if listing.items.iter().any(|it| it.name == tool) {
            return None;
        }
        let found = self.manager.find_tool(tool).filter(|it| **it.server() == *server)?;
        Some(found.tool().name.clone())
    }

    pub(super) fn available_tools(&self) -> Vec<Tool> {
        self.manager.get_tools().iter().map(public_tool).collect()
    }

    pub(super) fn provider(&self, tool: &str) -> Option<Uuid> {
        let found = self.manager.find_tool(tool)?;
        self.view.load().named(found.server()).map(|it| it.config.id)
    }

    pub(super) fn status(&self, id: Uuid) -> McpStatus {
        let view = self.view.load();
        let Some(known) = view.get(id) else { return McpStatus::Stopped };
        match self.manager.server(&known.server.name) {
            Ok(connection) => status(connection.state(), || connection.tool_names()),
            Err(_unheard) => status(&unheard(known), Vec::new),
        }
    }

    pub(super) fn status_detail(&self, id: Uuid) -> Option<StatusDetail> {
        let view = self.view.load();
        let known = view.get(id)?;
        Some(match self.manager.server(&known.server.name) {
            Ok(connection) => StatusDetail::of(id, &connection, Instant::now()),
            Err(_unheard) => StatusDetail::at_rest(id, known.config.name.clone(), &unheard(known)),
        })
    }
}

/// Where a server stands of which the manager will hear in a moment.
fn unheard(known: &Known) -> ConnectionState {
    if known.config.enabled { ConnectionState::Disconnected } else { ConnectionState::Disabled }
}

/// A tool under its public name, with a description that is safe to show.
fn public_tool(tool: &ToolWithServer) -> Tool {
    let plain = tool.tool().clone();
    let description = plain.description.map(|it| clean_text(&it).into_owned());
    Tool { name: tool.name().as_ref().to_owned(), description, ..plain }
}

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
