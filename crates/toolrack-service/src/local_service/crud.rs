//! Create, update and delete servers: validates a config, writes it to disk and publishes the next snapshot.
//!
//! **Invariant:** a secret that a config refers to is stored before the config is written, and a value marked secret
//! never reaches the config file.

use std::sync::Arc;

use parking_lot::MutexGuard;
use toolrack_auth::Secret;
use toolrack_config::join;
use uuid::Uuid;

use super::Inner;
use crate::config_snapshot::ConfigSnapshot;
use crate::config_store::{ETag, StoredConfig};
use crate::document::{ConfigScope, Document, name_taken};
use crate::error::{ErrorCode, ServiceError};
use crate::service::{Enabled, McpConfig};
use crate::validate;

/// A secret that was stored for a config, and its previous value.
struct ReplacedSecret {
    name: String,
    before: Option<Secret>,
}

/// The version of the config file, locked.
type ConfigGuard<'a> = MutexGuard<'a, Option<ETag>>;

impl Inner {
    pub(super) fn create(self: &Arc<Self>, config: McpConfig) -> Result<Uuid, ServiceError> {
        let id = if config.id.is_nil() { Uuid::new_v4() } else { config.id };
        let config = McpConfig { id, ..config };
        self.check(&config, None)?;
        let mut current = self.lock()?;
        // The secrets first: a crash in between leaves an unused secret, not a config that refers to a missing one.
        self.with_stored_values(config, |config| {
            self.edit(&mut current, |document| {
                // Within the edit, which starts over with the new file if it changes in the meantime.
                self.check_name(document, config)?;
                document.add(&self.scope(), config).map(drop)
            })
        })?;
        Ok(id)
    }

    pub(super) fn update(self: &Arc<Self>, config: McpConfig) -> Result<(), ServiceError> {
        let id = config.id;
        let before = self.configured(id)?.config;
        self.check(&config, Some(&before))?;
        let mut current = self.lock()?;
        let changed = self.with_stored_values(config, |config| {
            self.edit(&mut current, |document| {
                // A server that keeps its name may share it with the default that it overrides.
                if config.name != before.name {
                    self.check_name(document, config)?;
                }
                document.replace(config)
            })?;
            // Only now: until the write the old config referred to them.
            self.remove_unused_secrets(id, Some(config));
            Ok(())
        })?;
        // The config refers to secrets by name, so a new value is no config change and reconcile would not notice.
        for name in changed {
            self.restart_users(&name);
        }
        Ok(())
    }

    pub(super) fn delete(&self, id: Uuid) -> Result<(), ServiceError> {
        self.configured(id)?;
        let mut current = self.lock()?;
        self.edit(&mut current, |document| document.remove(id).map(drop))?;
        self.remove_unused_secrets(id, None);
        if let Err(error) = self.logs.remove(id) {
            tracing::debug!(%error, "cannot delete the log of a removed server");
        }
        Ok(())
    }

    /// Writes the `enabled` flag.
    pub(super) async fn persist_enabled(
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

    /// Runs blocking file IO on a blocking thread.
    pub(super) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, ServiceError> + Send + 'static,
    ) -> Result<T, ServiceError> {
        let inner = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || work(&inner)).await;
        done.unwrap_or_else(|_panicked| {
            Err(ServiceError::new(ErrorCode::Internal, "cannot write the config"))
        })
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

    fn check(&self, config: &McpConfig, before: Option<&McpConfig>) -> Result<(), ServiceError> {
        let mut details = validate::find_errors(config, before);
        let is_stored = |name: &str| self.secrets.get(name).map(|secret| secret.is_some());
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
        match stored.and_then(|()| write(&config)) {
            Ok(()) => Ok(replaced.into_iter().map(|secret| secret.name).collect()),
            Err(error) => {
                self.restore_secrets(replaced);
                Err(error)
            }
        }
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
            let before = self.secrets.get(&name)?;
            let stored = self.secrets.set(&name, &Secret::from(value));
            stored
                .map_err(|error| error.with_field(&join(&join("env_vars", variable), "value")))?;
            entry.secret_ref = Some(name.clone());
            replaced.push(ReplacedSecret { name, before });
        }
        Ok(())
    }

    fn restore_secrets(&self, moved: Vec<ReplacedSecret>) {
        for ReplacedSecret { name, before } in moved {
            match before {
                None => self.remove_secret_file(&name),
                Some(before) => {
                    if let Err(error) = self.secrets.set(&name, &before) {
                        tracing::warn!(name, %error, "cannot restore the previous value of a secret");
                    }
                }
            }
        }
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
                let own = names.iter().filter(|name| name.starts_with(&owned_secret_name(id, "")));
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
}

/// Name of a secret that belongs to one server: `{id}.{variable}`.
fn owned_secret_name(id: Uuid, variable: &str) -> String {
    let safe = |char: char| if char.is_ascii_alphanumeric() || char == '_' { char } else { '-' };
    // Cut off to stay within the length limit of secret names.
    format!("{id}.{}", variable.chars().map(safe).take(80).collect::<String>())
}
