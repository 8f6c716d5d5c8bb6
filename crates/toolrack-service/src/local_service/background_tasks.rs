//! Background tasks of the service: applying config changes to the manager (reconcile), and recording server logs.
//!
//! **Invariant:** snapshots are applied in order, and `applied_revision` advances for each one, even if the manager
//! rejects it; otherwise a start or a call would wait in vain.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use toolrack_config::McpServerConfig;
use toolrack_manager::{ConnectionState, FileWatch, ManagerError, ManagerEvent, ManagerEvents};
use uuid::Uuid;

use super::{Inner, LocalService};
use crate::config_snapshot::ConfigSnapshot;
use crate::document;
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
        self.inner.wait_until_applied().await?;
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
            // `config_changed` also fires when only the file has changed.
            if let Err(error) = self.blocking(Inner::refresh).await {
                // The file watcher has already reported it.
                tracing::debug!(%error, "keeping the last valid config");
            }
            let next = self.snapshot.load_full();
            // The file was touched without a change, or an earlier round has applied it.
            if next.revision == last.revision {
                continue;
            }
            if let Err(error) = self.apply(&last, &next).await {
                tracing::debug!(%error, "the manager rejected a config change");
            }
            last = next;
            // `send_replace`: `send` would change nothing while there is no waiter.
            self.applied_revision.send_replace(last.revision);
        }
    }

    async fn apply(
        self: &Arc<Self>,
        last: &ConfigSnapshot,
        next: &ConfigSnapshot,
    ) -> Result<(), ManagerError> {
        // Before the change: afterwards the manager has no server under the old name.
        let renamed = self.renamed_and_running(last, next);
        let (old, new) = (last.configs(), next.configs());
        match self.autostart {
            Autostart::AllEnabled => drop(self.manager.reconcile(&old, &new).await?),
            // `reconcile` would start every new server.
            Autostart::None => self.adopt(&old, &new).await?,
        }
        for name in renamed {
            self.spawn_restart(name);
        }
        Ok(())
    }

    /// Passes the new configs to the manager without starting servers that were not running.
    async fn adopt(
        &self,
        old: &[McpServerConfig],
        new: &[McpServerConfig],
    ) -> Result<(), ManagerError> {
        self.manager.upsert_servers(new).await?;
        let is_removed = |name: &&String| !new.iter().any(|config| config.name == **name);
        for name in old.iter().map(|config| &config.name).filter(is_removed) {
            self.manager.remove(name).await?;
        }
        Ok(())
    }

    /// The new names of running servers that were renamed. With autostart they are started anyway.
    fn renamed_and_running(&self, last: &ConfigSnapshot, next: &ConfigSnapshot) -> Vec<String> {
        if self.autostart == Autostart::AllEnabled {
            return Vec::new();
        }
        let is_running =
            |name: &str| self.manager.server(name).is_ok_and(|server| server.is_connected());
        let old_name = |id: Uuid| last.get(id).map(|server| server.manager_config.name.clone());
        let renamed = next.servers.iter().filter(|server| {
            let old = old_name(server.config.id);
            server.manager_config.enabled
                && old.is_some_and(|old| old != server.manager_config.name && is_running(&old))
        });
        renamed.map(|server| server.manager_config.name.clone()).collect()
    }

    /// Watches the config file and wakes the reconcile task when it changes. An invalid file is reported as
    /// [`ManagerEvent::ConfigRejected`] and changes nothing.
    pub(super) fn watch_config_file(self: &Arc<Self>, path: &Path) -> std::io::Result<FileWatch> {
        // Weak: the watcher must not keep the service alive.
        let inner = Arc::downgrade(self);
        let read = move |path: &Path, text: &str| {
            document::read(&path.display().to_string(), text).map_err(|error| error.to_string())?;
            if let Some(inner) = inner.upgrade() {
                inner.config_changed.notify_one();
            }
            // The reconcile task passes the servers to the manager, so the watcher itself has none to apply.
            Ok(Vec::new())
        };
        self.manager.watch_file(path, Vec::new(), Arc::new(read))
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
            let mut lines_by_server: HashMap<Uuid, Vec<LogLine>> = HashMap::new();
            self.collect(&first, &mut lines_by_server);
            for _ in 0..MAX_BATCH {
                // Takes only events that are queued already.
                let Ok(Some(event)) = timeout(Duration::ZERO, events.next()).await else { break };
                self.collect(&event, &mut lines_by_server);
            }
            if !lines_by_server.is_empty() {
                self.write_logs(lines_by_server).await;
            }
        }
    }

    fn collect(&self, event: &ManagerEvent, lines_by_server: &mut HashMap<Uuid, Vec<LogLine>>) {
        let Some((server, line)) = log_line(event) else { return };
        let snapshot = self.snapshot.load();
        // Events of servers that are not in the config (any more) are not recorded.
        if let Some(configured) = snapshot.by_name(server) {
            lines_by_server.entry(configured.config.id).or_default().push(line);
        }
    }

    async fn write_logs(self: &Arc<Self>, lines_by_server: HashMap<Uuid, Vec<LogLine>>) {
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
