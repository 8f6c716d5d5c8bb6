//! `McpService` of [`LocalService`]: creates, updates and deletes servers, starts and stops them, calls their tools; and
//! what a changed secret restarts.
//!
//! **Invariant:** a secret that a config refers to is stored before the config is written, and a value marked secret
//! never reaches the config file.

use std::sync::Arc;

use parking_lot::MutexGuard;
use serde_json::Value;
use toolrack_auth::{Secret, remove_server_tokens};
use toolrack_config::join;
use toolrack_manager::{ConnectionState, ToolWithServer};
use toolrack_mcp::Tool;
use toolrack_transport::{BoxFuture, sanitize_text};
use uuid::Uuid;

use super::{Inner, LocalService};
use crate::config_snapshot::{ConfigSnapshot, ConfiguredServer, referenced_secrets};
use crate::config_store::{ETag, StoredConfig};
use crate::document::{ConfigScope, Document, name_taken};
use crate::error::{ErrorCode, ErrorDetail, ServiceError};
use crate::service::{Enabled, McpConfig, McpService, McpStatus};
use crate::validate;

/// Name of a secret that was stored for a config, and its previous value.
type ReplacedSecret = (String, Option<Secret>);

/// The version of the config file, locked.
type ConfigGuard<'a> = MutexGuard<'a, Option<ETag>>;

#[derive(Clone, Copy)]
enum Launch {
    Start,
    Restart,
}

impl McpService for LocalService {
    fn list(&self) -> Vec<McpConfig> {
        self.inner.snapshot.load().servers.iter().map(|server| server.config.clone()).collect()
    }

    fn get(&self, id: Uuid) -> Option<McpConfig> {
        self.inner.snapshot.load().get(id).map(|server| server.config.clone())
    }

    fn status(&self, id: Uuid) -> McpStatus {
        self.status_detail(id).map_or(McpStatus::Stopped, |detail| detail.status)
    }

    fn start(&self, id: Uuid) -> BoxFuture<'_, Result<(), ServiceError>> {
        Box::pin(self.inner.launch(id, Launch::Start))
    }

    fn restart(&self, id: Uuid) -> BoxFuture<'_, Result<(), ServiceError>> {
        Box::pin(self.inner.launch(id, Launch::Restart))
    }

    fn stop(&self, id: Uuid) -> BoxFuture<'_, Result<(), ServiceError>> {
        Box::pin(async move {
            let name = self.inner.configured(id)?.manager_config.name;
            self.inner.wait_until_applied().await?;
            let stopped = self.inner.manager.disconnect(&name).await;
            stopped.map_err(|error| self.inner.manager_error(&error))
        })
    }

    /// The toggle of spec 004: writes the flag, starts the server, and reverts the flag if it cannot be started.
    fn set_enabled(&self, id: Uuid, enabled: Enabled) -> BoxFuture<'_, Result<(), ServiceError>> {
        Box::pin(async move {
            let was_enabled = self.inner.configured(id)?.config.enabled;
            if enabled == Enabled::No {
                self.inner.persist_enabled(id, Enabled::No).await?;
                return self.stop(id).await;
            }
            if !was_enabled {
                self.inner.persist_enabled(id, Enabled::Yes).await?;
            }
            // After the flag is written, because `start` refuses a disabled server.
            let started = self.start(id).await;
            // A server that was enabled before stays enabled: its failure is not the fault
            // of this call.
            if started.is_err() && !was_enabled {
                self.inner.persist_enabled(id, Enabled::No).await?;
                self.inner.wait_until_applied().await?;
            }
            started
        })
    }

    fn available_tools(&self) -> Vec<Tool> {
        self.inner.manager.connected_tools().iter().map(public_tool).collect()
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
        Box::pin(async move {
            let inner = &self.inner;
            let server = inner.configured(mcp_id)?.manager_config.name;
            if !(arguments.is_object() || arguments.is_null()) {
                let message = "must be an object with one member per argument";
                return Err(validate::invalid("arguments", message).into());
            }
            inner.wait_until_applied().await?;
            // Agents know the public name, which is all that `available_tools` shows.
            let raw = inner.server_tool_name(&server, tool_name);
            let tool = raw.as_deref().unwrap_or(tool_name);
            let called = inner.manager.call_tool(&server, tool, arguments).await;
            let result = called.map_err(|error| inner.manager_error(&error))?;
            if result.is_error {
                let text = sanitize_text(&result.content).into_owned();
                return Err(inner.redacted(ErrorDetail::new(ErrorCode::ServiceUnavailable, text)));
            }
            // Again, although the transport redacts: the redactor may have learned a secret since.
            Ok(inner.redactor.redact(&result.content).into_owned())
        })
    }

    fn create(&self, config: McpConfig) -> Result<Uuid, ServiceError> {
        let inner = &self.inner;
        let id = if config.id.is_nil() { Uuid::new_v4() } else { config.id };
        let config = McpConfig { id, ..config };
        inner.check(&config)?;
        let mut current = inner.lock()?;
        // The secrets first: a crash in between leaves an unused secret, not a config that refers to a missing one.
        inner.with_stored_values(config, |config| {
            inner.edit(&mut current, |document| {
                // Within the edit, which starts over with the new file if it changes in the meantime.
                inner.check_name(document, config)?;
                document.add(&inner.scope(), config).map(drop)
            })
        })?;
        Ok(id)
    }

    fn update(&self, config: McpConfig) -> Result<(), ServiceError> {
        let inner = &self.inner;
        let id = config.id;
        let before = inner.configured(id)?.config;
        inner.check(&config)?;
        let mut current = inner.lock()?;
        let changed = inner.with_stored_values(config, |config| {
            inner.edit(&mut current, |document| {
                // A server that keeps its name may share it with the default that it overrides.
                if config.name != before.name {
                    inner.check_name(document, config)?;
                }
                document.replace(config)
            })?;
            // Only now: until the write the old config referred to them.
            inner.remove_unused_secrets(id, Some(config));
            Ok(())
        })?;
        // The config refers to secrets by name, so a new value is no config change and reconcile would not notice.
        for name in changed {
            inner.restart_users(&name);
        }
        Ok(())
    }

    fn delete(&self, id: Uuid) -> Result<(), ServiceError> {
        let inner = &self.inner;
        inner.configured(id)?;
        let mut current = inner.lock()?;
        inner.edit(&mut current, |document| document.remove(id).map(drop))?;
        inner.remove_unused_secrets(id, None);
        if let Err(error) = remove_server_tokens(&inner.home.secrets_dir(), id) {
            tracing::warn!(%error, "cannot delete the login of a removed server");
        }
        if let Err(error) = inner.logs.remove(id) {
            tracing::debug!(%error, "cannot delete the log of a removed server");
        }
        Ok(())
    }

    /// Restarts in progress are cancelled first: they would start a server again.
    fn shutdown_all(&self) -> BoxFuture<'_, Result<(), ServiceError>> {
        Box::pin(async move {
            self.inner.wait_until_settled().await?;
            self.inner.cancel_restarts().await;
            let stopped = self.inner.manager.disconnect_all().await;
            stopped.map_err(|error| self.inner.manager_error(&error))
        })
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
        let stored = name.to_owned();
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
        Ok(if is_new { self.inner.restart_users(name) } else { Vec::new() })
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
    /// Starts or restarts an enabled server, once the manager has the current config. Fails unless it is connected.
    async fn launch(&self, id: Uuid, launch: Launch) -> Result<(), ServiceError> {
        let ConfiguredServer { config, manager_config } = self.configured(id)?;
        if !config.enabled {
            return Err(ErrorDetail::disabled(&config.name).into());
        }
        self.wait_until_applied().await?;
        let name = &manager_config.name;
        let connection = match launch {
            Launch::Start => self.manager.start(name).await,
            Launch::Restart => self.manager.reconnect(name).await,
        };
        match connection.map_err(|error| self.manager_error(&error))?.state() {
            ConnectionState::Connected => Ok(()),
            state => Err(self.redacted(ErrorDetail::from_state(name, state))),
        }
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

    /// Writes the `enabled` flag.
    async fn persist_enabled(
        self: &Arc<Self>,
        id: Uuid,
        enabled: Enabled,
    ) -> Result<(), ServiceError> {
        self.blocking(move |inner| {
            let mut current = inner.lock()?;
            inner.edit(&mut current, |document| document.set_enabled(id, enabled))
        })
        .await
    }

    /// Reads the file again, and publishes a snapshot if it has changed.
    pub(super) fn refresh(&self) -> Result<StoredConfig, ServiceError> {
        let mut current = self.lock()?;
        let stored = self.store.read()?;
        if Some(stored.etag) != *current {
            self.publish(&mut current, &stored);
        }
        Ok(stored)
    }

    /// Publishes the config file that the watcher has read, unless a later version was published.
    pub(super) fn publish_edited(&self) -> Result<(), ServiceError> {
        let Some(stored) = self.edited.lock().take() else { return Ok(()) };
        let mut current = self.lock()?;
        // Under the lock: this service may have saved a newer version since. A newer one of an editor wakes the watcher
        // again.
        if Some(stored.etag) != *current && self.store.read_text()?.1 == stored.etag {
            self.publish(&mut current, &stored);
        }
        Ok(())
    }

    /// Runs blocking file IO on a blocking thread.
    pub(super) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, ServiceError> + Send + 'static,
    ) -> Result<T, ServiceError> {
        let inner = Arc::clone(self);
        super::blocking(move || work(&inner)).await
    }

    /// Locks the config file. Fails if the servers do not come from one.
    fn lock(&self) -> Result<ConfigGuard<'_>, ServiceError> {
        let guard = self.write_lock.lock();
        if guard.is_none() {
            let message = "there is no config file: these servers were given by the caller";
            return Err(ServiceError::new(ErrorCode::Conflict, message));
        }
        Ok(guard)
    }

    fn check(&self, config: &McpConfig) -> Result<(), ServiceError> {
        let mut details = validate::find_errors(config);
        let is_stored = |name: &str| Ok(self.secrets.get_for_server(name)?.is_some());
        details.extend(validate::missing_secrets(config, is_stored));
        ServiceError::if_any(details)
    }

    /// Fails if the name is taken among the servers of this agent.
    fn check_name(&self, document: &Document, config: &McpConfig) -> Result<(), ServiceError> {
        let scope = self.scope();
        let is_ours = |other: &ConfigScope| *other == scope || *other == ConfigScope::Defaults;
        let taken = document.entries().into_iter().any(|entry| {
            is_ours(&entry.scope)
                && entry.config.name == config.name
                && entry.config.id != config.id
        });
        if taken { Err(name_taken(&config.name)) } else { Ok(()) }
    }

    /// Edits the file, and publishes the new snapshot.
    fn edit(
        &self,
        current: &mut ConfigGuard<'_>,
        mut change: impl FnMut(&mut Document) -> Result<(), ServiceError>,
    ) -> Result<(), ServiceError> {
        // No expected version: `change` works on one entry and can be repeated on any version
        // of the file.
        let ((), stored) = self.store.edit(None, |document| {
            document.assign_ids();
            change(document)
        })?;
        self.publish(current, &stored);
        Ok(())
    }

    /// Makes a new snapshot current and wakes the reconcile task. The caller holds the write lock, so revisions are in
    /// the order of the file's versions.
    fn publish(&self, current: &mut ConfigGuard<'_>, stored: &StoredConfig) {
        let revision = self.snapshot.load().revision + 1;
        let snapshot = ConfigSnapshot::from_file(revision, self.agent.as_deref(), &stored.file);
        // Before the wake-up: the reconcile task loads the snapshot as soon as it runs.
        self.snapshot.store(Arc::new(snapshot));
        **current = Some(stored.etag);
        self.config_changed.notify_one();
    }

    /// Moves values marked secret into the store and runs `write` with the config that refers to them. Restores the
    /// previous values if anything fails. Returns the names of the stored secrets.
    fn with_stored_values(
        &self,
        mut config: McpConfig,
        write: impl FnOnce(&McpConfig) -> Result<(), ServiceError>,
    ) -> Result<Vec<String>, ServiceError> {
        let mut replaced = Vec::new();
        let stored = self.move_values_to_store(&mut config, &mut replaced);
        let written = stored.and_then(|()| write(&config));
        if written.is_err() {
            for (name, before) in &replaced {
                match before {
                    None => self.remove_secret_file(name),
                    Some(before) => {
                        if let Err(error) = self.secrets.set(name, before) {
                            tracing::warn!(name, %error, "cannot restore the previous value of a secret");
                        }
                    }
                }
            }
        }
        written.map(|()| replaced.into_iter().map(|(name, _)| name).collect())
    }

    fn move_values_to_store(
        &self,
        config: &mut McpConfig,
        replaced: &mut Vec<ReplacedSecret>,
    ) -> Result<(), ServiceError> {
        for (variable, entry) in &mut config.env_vars {
            // The store rejects an empty secret.
            let is_hidden = |value: &mut String| entry.is_secret && !value.is_empty();
            let Some(value) = entry.value.take_if(is_hidden) else { continue };
            let name = owned_secret_name(config.id, variable);
            let before = self.secrets.get(&name)?.filter(|before| !before.reveal().is_empty());
            let stored = self.secrets.set(&name, &Secret::from(value));
            stored
                .map_err(|error| error.with_field(&join(&join("env_vars", variable), "value")))?;
            entry.secret_ref = Some(name.clone());
            replaced.push((name, before));
        }
        Ok(())
    }

    /// Removes secrets that were stored for this server and that its config no longer refers to.
    fn remove_unused_secrets(&self, id: Uuid, config: Option<&McpConfig>) {
        let is_used = |name: &String| {
            let mut variables = config.into_iter().flat_map(|config| config.env_vars.values());
            variables.any(|variable| variable.secret_ref.as_ref() == Some(name))
        };
        match self.secrets.list() {
            Ok(names) => {
                // Only secrets with the server's id in their name; others may be shared
                // with other servers.
                let is_own = |name: &&String| {
                    name.starts_with(&owned_secret_name(id, ""))
                        || (config.is_none() && **name == id.to_string())
                };
                let own = names.iter().filter(is_own);
                own.filter(|name| !is_used(name)).for_each(|name| self.remove_secret_file(name));
            }
            Err(error) => tracing::warn!(%error, "cannot remove unused secrets"),
        }
    }

    fn remove_secret_file(&self, name: &str) {
        if let Err(error) = self.secrets.remove(name) {
            tracing::warn!(name, %error, "cannot remove an unused secret");
        }
    }

    /// Restarts every active server that uses a secret. Returns their ids.
    fn restart_users(self: &Arc<Self>, secret: &str) -> Vec<Uuid> {
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
    async fn cancel_restarts(&self) {
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

/// A tool under its public name, with a sanitized description.
fn public_tool(tool: &ToolWithServer) -> Tool {
    let own = tool.tool().clone();
    let description = own.description.map(|text| sanitize_text(&text).into_owned());
    Tool { name: tool.name().as_ref().to_owned(), description, ..own }
}

/// Name of a secret that belongs to one server: `{id}.{variable}`.
fn owned_secret_name(id: Uuid, variable: &str) -> String {
    let safe = |char: char| if char.is_ascii_alphanumeric() || char == '_' { char } else { '-' };
    // Cut off to stay within the length limit of secret names.
    format!("{id}.{}", variable.chars().map(safe).take(80).collect::<String>())
}
