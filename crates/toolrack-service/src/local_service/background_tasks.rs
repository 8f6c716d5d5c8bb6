//! Background tasks of the service: applying config changes to the manager (reconcile), and recording server logs.
//!
//! **Invariant:** snapshots are applied in order, and `applied_revision` advances for each one, even if the manager
//! rejects it; otherwise a start or a call would wait in vain. `settled_revision` follows when removed servers have ended.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use toolrack_manager::{
    ConnectionState, FileWatch, ManagerError, ManagerEvent, ManagerEvents, Reconciliation,
};
use toolrack_platform::create_private_dir;
use uuid::Uuid;

use super::{Inner, LocalService};
use crate::config_snapshot::ConfigSnapshot;
use crate::config_store::StoredConfig;
use crate::error::ServiceError;
use crate::local_service::Autostart;
use crate::server_logs::{LogKind, LogLine};

impl LocalService {
    /// Reads the config file again and waits until its changes are applied. Returns the warnings of the file.
    ///
    /// # Errors
    ///
    /// The file is invalid; the servers then stay as they are.
    pub async fn reload(&self) -> Result<Vec<String>, ServiceError> {
        let stored = self.inner.blocking(Inner::refresh).await?;
        self.inner.wait_until_settled().await?;
        Ok(stored.warnings.iter().map(ToString::to_string).collect())
    }
}

impl Inner {
    /// Applies every new snapshot until the service closes. The manager already has `last`.
    pub(super) async fn reconcile(self: Arc<Self>, mut last: Arc<ConfigSnapshot>) {
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = self.config_changed.notified() => {}
            }
            if let Err(error) = self.blocking(Inner::publish_edited).await {
                tracing::debug!(%error, "keeping the last valid config");
            }
            let next = self.snapshot.load_full();
            // An earlier round has applied it.
            if next.revision == last.revision {
                continue;
            }
            let applied = self.apply(&last, &next).await.unwrap_or_else(|error| {
                tracing::debug!(%error, "the manager rejected a config change");
                None
            });
            // `send_replace`: `send` would change nothing while there is no waiter.
            self.applied_revision.send_replace(next.revision);
            // In a task of its own: the next change does not wait for servers that take long to end.
            let inner = Arc::clone(&self);
            self.tasks.spawn(inner.settle(applied, last.revision, next.revision));
            last = next;
        }
    }

    /// Waits until the removed servers have ended, and those of all earlier changes.
    async fn settle(
        self: Arc<Self>,
        applied: Option<Reconciliation>,
        previous_revision: u64,
        revision: u64,
    ) {
        if let Some(applied) = applied {
            applied.finished().await;
        }
        let mut settled = self.settled_revision.subscribe();
        tokio::select! {
            () = self.stop.cancelled() => {}
            reached = settled.wait_for(|settled| *settled >= previous_revision) => {
                drop(reached);
                self.settled_revision.send_replace(revision);
            }
        }
    }

    async fn apply(
        self: &Arc<Self>,
        last: &ConfigSnapshot,
        next: &ConfigSnapshot,
    ) -> Result<Option<Reconciliation>, ManagerError> {
        // Before the change: afterwards the manager has no server under the old name.
        let renamed = self.renamed_and_running(last, next);
        let (old, new) = (last.configs(), next.configs());
        let applied = match self.autostart {
            Autostart::AllEnabled => Some(self.manager.begin_reconcile(&old, &new).await?),
            // `begin_reconcile` would start every new server.
            Autostart::None => {
                self.manager.upsert_servers(&new).await?;
                let is_removed = |name: &&String| !new.iter().any(|config| config.name == **name);
                for name in old.iter().map(|config| &config.name).filter(is_removed) {
                    self.manager.remove(name).await?;
                }
                None
            }
        };
        for name in renamed {
            self.spawn_restart(name);
        }
        Ok(applied)
    }

    /// The new names of running servers that were renamed. With autostart they are started anyway.
    fn renamed_and_running(&self, last: &ConfigSnapshot, next: &ConfigSnapshot) -> Vec<String> {
        if self.autostart == Autostart::AllEnabled {
            return Vec::new();
        }
        let is_running =
            |name: &str| self.manager.server(name).is_ok_and(|server| server.is_connected());
        let renamed = next.servers.iter().filter(|server| {
            let old = last.get(server.config.id).map(|old| &old.manager_config.name);
            server.manager_config.enabled
                && old.is_some_and(|old| *old != server.manager_config.name && is_running(old))
        });
        renamed.map(|server| server.manager_config.name.clone()).collect()
    }

    /// Watches the config file, and passes each valid version to the reconcile task. An invalid file is reported as
    /// [`ManagerEvent::ConfigRejected`] and changes nothing. A system without file watching still runs the service.
    pub(super) fn watch_config_file(self: &Arc<Self>) -> Option<FileWatch> {
        let path = self.home.config_file();
        // Weak: the watcher must not keep the service alive.
        let inner = Arc::downgrade(self);
        let read = move |path: &Path, text: &str| {
            let stored = StoredConfig::parse(path, text.to_owned());
            let stored = stored.map_err(|error| error.into_service_error(path).to_string())?;
            if let Some(inner) = inner.upgrade() {
                *inner.edited.lock() = Some(stored);
                inner.config_changed.notify_one();
            }
            // The reconcile task passes the servers to the manager, so the watcher itself has none to apply.
            Ok(Vec::new())
        };
        // Only an existing directory can be watched.
        let created = path.parent().map_or(Ok(()), create_private_dir);
        let watched =
            created.and_then(|()| self.manager.watch_file(path, Vec::new(), Arc::new(read)));
        watched
            .inspect_err(|error| {
                tracing::warn!(%error, path = %path.display(), "cannot watch the config file; edits are not noticed");
            })
            .ok()
    }
}

/// Most events that are written at once.
const MAX_BATCH: usize = 256;

impl Inner {
    /// Writes server logs until the service closes. Events that are queued by then are still written.
    pub(super) async fn record_logs(self: Arc<Self>, mut events: ManagerEvents) {
        loop {
            let first = tokio::select! {
                biased;
                // Events first, so that those that are queued at the stop are still written.
                event = events.next() => event,
                () = self.stop.cancelled() => None,
            };
            let Some(first) = first else { return };
            let mut batch = vec![first];
            while batch.len() <= MAX_BATCH {
                // Takes only events that are queued already.
                let queued = tokio::select! {
                    biased;
                    event = events.next() => event,
                    // Not a timeout of zero, which waits for a whole millisecond.
                    () = std::future::ready(()) => None,
                };
                let Some(event) = queued else { break };
                batch.push(event);
            }
            let snapshot = self.snapshot.load_full();
            let mut lines_by_server: HashMap<Uuid, Vec<LogLine>> = HashMap::new();
            for (server, line) in batch.iter().filter_map(log_line) {
                // Events of servers that are not in the config (any more) are not recorded.
                if let Some(configured) = snapshot.by_name(server) {
                    lines_by_server.entry(configured.config.id).or_default().push(line);
                }
            }
            if lines_by_server.is_empty() {
                continue;
            }
            let written = self.blocking(move |inner| {
                for (id, lines) in lines_by_server {
                    if let Err(error) = inner.logs.append(id, &lines) {
                        tracing::debug!(%error, "cannot write a server log");
                    }
                }
                Ok(())
            });
            if let Err(error) = written.await {
                tracing::debug!(%error, "cannot write server logs");
            }
        }
    }
}

/// The log line of an event, and the server's name.
fn log_line(event: &ManagerEvent) -> Option<(&str, LogLine)> {
    match event {
        ManagerEvent::StateChanged { server, state } => {
            let (kind, text) = match (state, state.failure()) {
                (ConnectionState::NeedsAuth(failure), _) => {
                    (LogKind::NeedsLogin, failure.reason().to_owned())
                }
                (_, Some(failure)) => (LogKind::Failure, failure.reason().to_owned()),
                (ConnectionState::Connecting, _) => (LogKind::Start, "starting".to_owned()),
                (ConnectionState::Connected, _) => (LogKind::Ready, "connected".to_owned()),
                _ => return None,
            };
            Some((server, LogLine::now(kind, text)))
        }
        ManagerEvent::Stderr { server, line } => {
            Some((server, LogLine::now(LogKind::Stderr, line.to_string())))
        }
        ManagerEvent::InstallerOutput { server, line } => {
            Some((server, LogLine::now(LogKind::Install, line.to_string())))
        }
        _ => None,
    }
}
