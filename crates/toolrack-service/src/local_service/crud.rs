//! Adding, changing and forgetting servers: checked, written to disk, then told to the follower.
//!
//! **Invariant:** a secret that a config refers to is stored before the config is written, and a value that is
//! marked secret never reaches the file.

use std::sync::{Arc, MutexGuard, PoisonError};

use uuid::Uuid;

use super::Inner;
use crate::config_snapshot::View;
use crate::config_store::{Generation, Stored};
use crate::document::{Document, Place};
use crate::error::{ErrorCode, ServiceError, ServiceFault};
use crate::service::{Enabled, McpConfig};
use crate::validate;
use toolrack_auth::Secret;
use toolrack_config::join;

/// A secret that took the place of a value, and what was there before.
struct Moved {
    name: String,
    before: Option<Secret>,
}

impl Inner {
    pub(super) fn create(self: &Arc<Self>, config: McpConfig) -> Result<Uuid, ServiceError> {
        let id = if config.id.is_nil() { Uuid::new_v4() } else { config.id };
        let config = McpConfig { id, ..config };
        self.check(&config, None)?;
        let mut writing = self.lock();
        let (config, moved) = self.hide_values(config)?;
        let place = self.place();
        let written = self.edit(&mut writing, |document| {
            self.check_name(document, &config)?;
            document.assign_ids();
            document.add(&place, &config)?;
            Ok(())
        });
        self.keep_or_take_back(written, moved)?;
        Ok(id)
    }

    pub(super) fn update(self: &Arc<Self>, config: McpConfig) -> Result<(), ServiceError> {
        let id = config.id;
        let before = self.known(id)?.config;
        self.check(&config, Some(&before))?;
        let mut writing = self.lock();
        let (config, moved) = self.hide_values(config)?;
        let written = self.edit(&mut writing, |document| {
            // One that has its name already may share it with the default in whose place it is.
            if config.name != before.name {
                self.check_name(document, &config)?;
            }
            document.assign_ids();
            document.replace(&config)
        });
        let changed = self.keep_or_take_back(written, moved)?;
        self.drop_unused(id, Some(&config));
        // The config is the same whatever the value of a secret is, so nobody else would notice.
        for name in changed {
            self.restart_users(&name);
        }
        Ok(())
    }

    pub(super) fn delete(&self, id: Uuid) -> Result<(), ServiceError> {
        self.known(id)?;
        let mut writing = self.lock();
        self.edit(&mut writing, |document| {
            document.assign_ids();
            document.remove(id).map(drop)
        })?;
        self.drop_unused(id, None);
        if let Err(error) = self.logs.remove(id) {
            tracing::debug!(%error, "what a server said is left behind");
        }
        Ok(())
    }

    /// Writes whether a server may be started.
    pub(super) async fn persist(
        self: &Arc<Self>,
        id: Uuid,
        enabled: Enabled,
    ) -> Result<(), ServiceError> {
        self.blocking(move |inner| {
            let mut writing = inner.lock();
            inner.edit(&mut writing, |document| {
                document.assign_ids();
                document.set_enabled(id, enabled)
            })
        })
        .await
    }

    /// Reads the file again, and says whether anything in it is new.
    pub(super) fn refresh(&self) -> Result<Stored, ServiceError> {
        let mut writing = self.lock();
        let stored = self.store.read()?;
        if stored.generation != *writing {
            self.publish(&mut writing, &stored)?;
        }
        Ok(stored)
    }

    /// Does something that touches the disk where it holds up nobody.
    pub(super) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, ServiceError> + Send + 'static,
    ) -> Result<T, ServiceError> {
        let inner = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || work(&inner)).await;
        done.unwrap_or_else(|_crashed| {
            Err(ServiceError::new(ErrorCode::Internal, "the config could not be written"))
        })
    }

    fn lock(&self) -> MutexGuard<'_, Generation> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, config: &McpConfig, before: Option<&McpConfig>) -> Result<(), ServiceError> {
        let mut faults = validate::faults(config, before);
        let is_stored = |name: &str| self.secrets.get(name).map(|it| it.is_some());
        faults.extend(validate::secret_faults(config, is_stored));
        ServiceError::unless_empty(faults)
    }

    /// Whether the name is free among the servers of this agent.
    fn check_name(&self, document: &Document, config: &McpConfig) -> Result<(), ServiceError> {
        let place = self.place();
        let is_ours = |it: &Place| *it == place || *it == Place::Defaults;
        let taken = document.entries().into_iter().any(|it| {
            is_ours(&it.place) && it.config.name == config.name && it.config.id != config.id
        });
        if !taken {
            return Ok(());
        }
        let message = format!("another server is called `{}`", config.name);
        let fault = ServiceFault::new(ErrorCode::Conflict, message).at("name");
        Err(fault.hint("choose another name, or change the server that has it").into())
    }

    /// Changes the file, and lets the manager follow.
    fn edit(
        &self,
        writing: &mut MutexGuard<'_, Generation>,
        change: impl FnMut(&mut Document) -> Result<(), ServiceError>,
    ) -> Result<(), ServiceError> {
        let ((), stored) = self.store.edit(None, change)?;
        self.publish(writing, &stored)
    }

    fn publish(
        &self,
        writing: &mut MutexGuard<'_, Generation>,
        stored: &Stored,
    ) -> Result<(), ServiceError> {
        let number = self.view.load().number + 1;
        let view = view_of(number, self.agent.as_deref(), stored)?;
        self.view.store(Arc::new(view));
        **writing = stored.generation;
        self.bell.notify_one();
        Ok(())
    }

    /// Moves values that are marked secret into the store, and says what was there before.
    fn hide_values(&self, mut config: McpConfig) -> Result<(McpConfig, Vec<Moved>), ServiceError> {
        let mut moved = Vec::new();
        for (variable, entry) in &mut config.env_vars {
            let is_hidden = |value: &mut String| entry.is_secret && !value.is_empty();
            let Some(value) = entry.value.take_if(is_hidden) else { continue };
            let name = own_secret(config.id, variable);
            let before = self.secrets.get(&name)?;
            if let Err(error) = self.secrets.set(&name, &Secret::from(value)) {
                let field = join(&join("env_vars", variable), "value");
                self.take_back(moved);
                return Err(error.at(&field));
            }
            entry.secret_ref = Some(name.clone());
            moved.push(Moved { name, before });
        }
        Ok((config, moved))
    }

    /// The names of what was stored for a config, or everything as before if it could not be written.
    fn keep_or_take_back(
        &self,
        written: Result<(), ServiceError>,
        moved: Vec<Moved>,
    ) -> Result<Vec<String>, ServiceError> {
        let Err(error) = written else {
            return Ok(moved.into_iter().map(|it| it.name).collect());
        };
        self.take_back(moved);
        Err(error)
    }

    fn take_back(&self, moved: Vec<Moved>) {
        for Moved { name, before } in moved {
            match before {
                None => self.drop_secret(&name),
                Some(before) => {
                    if let Err(error) = self.secrets.set(&name, &before) {
                        tracing::warn!(name, %error, "a secret could not be put back");
                    }
                }
            }
        }
    }

    /// Removes secrets that belong to one server alone and that it does not refer to any more.
    fn drop_unused(&self, id: Uuid, config: Option<&McpConfig>) {
        let is_used = |name: &String| {
            let mut used = config.into_iter().flat_map(|it| it.env_vars.values());
            used.any(|it| it.secret_ref.as_ref() == Some(name))
        };
        match self.secrets.list() {
            Ok(names) => {
                let own = names.iter().filter(|it| it.starts_with(&own_secret(id, "")));
                own.filter(|it| !is_used(it)).for_each(|name| self.drop_secret(name));
            }
            Err(error) => tracing::warn!(%error, "secrets that nobody uses are left behind"),
        }
    }

    fn drop_secret(&self, name: &str) {
        if let Err(error) = self.secrets.remove(name) {
            tracing::warn!(name, %error, "a secret that nobody uses is left behind");
        }
    }
}

/// The name of a secret that belongs to one server alone.
fn own_secret(id: Uuid, variable: &str) -> String {
    let plain = |it: char| if it.is_ascii_alphanumeric() || it == '_' { it } else { '-' };
    format!("{id}.{}", variable.chars().map(plain).take(80).collect::<String>())
}

/// What a file says, as far as it concerns an agent.
pub(super) fn view_of(
    number: u64,
    agent: Option<&str>,
    stored: &Stored,
) -> Result<View, ServiceError> {
    Ok(View::new(number, agent, &stored.file, stored.document()?.entries()))
}
